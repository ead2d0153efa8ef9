package simulate

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ortet/ortet/internal/image/capture"
	"github.com/ortet/ortet/internal/image/rollback"
	"github.com/ortet/ortet/internal/workflow"
)

// A command over the open capture of another says what becomes of that: the dry run in its
// plan, and the run before it changes anything.
func TestOpenCaptureIsAnnounced(t *testing.T) {
	const open = "an open capture of pool1000000 (step stop, begun 2000-01-01T"
	for name, c := range map[string]struct {
		capture *capture.Request // nil is a rollback
		want    []string         // in notes
		resumes bool
	}{
		"another donor":               {&capture.Request{Node: "pool1000001"}, []string{" is undone first: this command captures pool1000001"}, false},
		"the same donor":              {&capture.Request{Node: "pool1000000"}, []string{" is resumed"}, true},
		"the same with other options": {&capture.Request{Node: "pool1000000", History: 5}, []string{" is resumed", "the options of the open capture are used"}, true},
		"again with other options":    {&capture.Request{Node: "pool1000000", Again: true, History: 5}, []string{" is undone first: this command has --again and other options"}, false},
		"publish only":                {&capture.Request{Node: "pool1000000", PublishOnly: true}, []string{" is undone first: only one of the two commands has --publish-only"}, false},
		"a rollback":                  {nil, []string{" is undone first: a rollback does not resume a capture"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(Story{Name: name, Seed: 1, Pool: usual, Happen: at(powerOff, 1, "kill after")})
				defer w.close()
				w.pursue(0, Ask{Do: "capture", Once: true})
				time.Sleep(2 * leaseFor)
				p := &process{w: w, name: "p2", done: make(chan struct{}), dead: make(chan struct{}), ctx: w.ctx, cancel: func() {}}
				config, err := w.config(p.name, azureWire{p}, kubeWire{p}, p)
				if err != nil {
					t.Fatal(err)
				}
				changes := func() (n int) {
					w.locked(func() {
						for _, r := range w.requests {
							if r.write() && !strings.Contains(r.name, "/leases") {
								n++
							}
						}
					})
					return n
				}
				before, announced := changes(), ""
				config.Report = func(e workflow.Event) {
					if e.Kind == workflow.EventNote && changes() == before && announced == "" {
						announced = e.Message
					}
				}
				captures, rollbacks := capture.New(config), rollback.New(config)
				var notes []string
				check := func(what string, resumes bool, err error) {
					t.Helper()
					all := strings.Join(notes, "\n")
					if err != nil || resumes != c.resumes || strings.Count(all, open) != 1 || strings.Contains(all, "is cordoned, and stays so") {
						t.Errorf("%s: resumes %v, %v\n%s", what, resumes, err, all)
					}
					for _, want := range c.want {
						if !strings.Contains(all, want) {
							t.Errorf("%s: %q is not in the notes:\n%s", what, want, all)
						}
					}
				}
				if c.capture != nil {
					plan, err := captures.Plan(w.ctx, *c.capture)
					notes = plan.Notes
					if len(plan.Problems) > 0 {
						t.Errorf("the dry run is refused: %v", plan.Problems)
					}
					check("the dry run", plan.Resumes, err)
				} else {
					plan, err := rollbacks.Plan(w.ctx, rollback.Request{Pool: w.pool})
					notes = plan.Notes
					if len(plan.Problems) > 0 {
						t.Errorf("the dry run is refused: %v", plan.Problems)
					}
					check("the dry run", plan.Resumes, err)
				}
				if n := changes(); n != before {
					t.Errorf("the dry run sent %d changes", n-before)
				}
				if c.capture != nil {
					result, err := captures.Capture(w.ctx, *c.capture)
					notes = result.Notes
					check("the run", result.Resumed, err)
				} else {
					result, err := rollbacks.Rollback(w.ctx, rollback.Request{Pool: w.pool})
					notes = result.Notes
					check("the run", result.Resumed, err)
				}
				if !strings.Contains(announced, open) || !strings.Contains(announced, c.want[0]) {
					t.Errorf("before its first change the run reported %q", announced)
				}
			})
		})
	}
}
