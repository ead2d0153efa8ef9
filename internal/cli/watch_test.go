package cli

import (
	"errors"
	"strings"
	"testing"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/capture"
	"github.com/ortet/ortet/internal/workflow"
)

// A watch that is refused after a capture does not claim that nothing was changed.
func TestWatchRefusedAfterACapture(t *testing.T) {
	refused := &workflow.Refused{Problems: []fleet.Problem{{Code: "AzureDenied", On: "group g", What: "no delete/action", WayOut: "grant it"}}}
	live := capture.Result{Pool: pool1, Version: pool1.Child("versions", "2026.11.28")}
	for name, c := range map[string]struct {
		result capture.Result
		err    error
		code   int
		says   []string
	}{
		"captured":      {live, refused, workflow.ExitNeedsPerson, []string{"the model names 2026.11.28", "no delete/action; grant it", "ortet watch " + pool1.Name()}},
		"nothing to do": {capture.Result{NothingToDo: true}, refused, workflow.ExitRefused, []string{"nothing was changed"}},
		"another error": {live, errors.New("throttled"), workflow.ExitFailed, []string{"throttled"}},
	} {
		err := unwatched(c.result, c.err)
		var text strings.Builder
		writeError(&text, err)
		for _, s := range c.says {
			if !strings.Contains(strings.Join(strings.Fields(text.String()), " "), s) {
				t.Errorf("%s: %q is missing in: %s", name, s, text.String())
			}
		}
		if code := workflow.ExitCode(err); code != c.code {
			t.Errorf("%s: exit code %d, want %d", name, code, c.code)
		}
	}
}
