package watch_test

import (
	"strings"
	"testing"
	"time"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/watch"
)

// A capture asks for the rights of the watch after it, and for those of a deletion only if bad nodes are deleted.
func TestChangesOfAWatch(t *testing.T) {
	for want, q := range map[string]watch.Request{
		"":                               {BadNodes: watch.Delete},
		"patch model, tag image version": {For: time.Hour, BadNodes: watch.Cordon},
		"patch model, tag image version, delete instances": {For: time.Hour, BadNodes: watch.Delete},
	} {
		if got := strings.Join(fleet.Each(q.Changes(), fleet.Change.Verb), ", "); got != want {
			t.Errorf("%+v: %q, want %q", q, got, want)
		}
	}
}
