package events

import (
	"errors"
	"testing"
	"time"
)

// One refusal, however it reads, is no reason to miss an eviction that is told 30
// seconds before.
func TestRest(t *testing.T) {
	for _, c := range []struct {
		failures int
		err      error
		want     time.Duration
	}{
		{0, nil, time.Second},
		{1, errors.New("i/o timeout"), 2 * time.Second},
		{1, metadataError{404, "x"}, 2 * time.Second},
		{9, metadataError{400, "x"}, 5 * time.Second},
		{10, metadataError{404, "x"}, time.Minute},
		{1000, metadataError{404, "x"}, time.Minute},
		{1000, metadataError{410, "x"}, 5 * time.Second},
		{1000, metadataError{429, "x"}, 5 * time.Second},
	} {
		if got := rest(c.failures, c.err); got != c.want {
			t.Errorf("after %d failures, %v: %s, want %s", c.failures, c.err, got, c.want)
		}
	}
}
