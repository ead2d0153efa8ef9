package simulate

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/ortet/ortet/internal/image/capture"
)

// Without a container image that its pods can run, a capture and its dry run are refused,
// and the donor is neither drained nor stopped.
func TestHole07ImageThatCannotRun(t *testing.T) {
	for image, want := range map[string][]string{
		"none":       {"NoImage", "--image REGISTRY/ortet:TAG"},
		"unpullable": {"PodCannotStart", "ImagePullBackOff", "--image-pull-secret"},
		"hanging":    {"PodCannotStart", "it did not start within 2m0s"},
		"foreign":    {"PodCannotStart", "executable file not found"},
		"newer":      {"PodCannotStart", "ortet-node of another version is in image", `unknown field "newer"`, "give this version's own image"},
	} {
		t.Run(image, func(t *testing.T) {
			s := Story{Name: image, Seed: 1, Pool: with(func(p *Pool) { p.Image = image }), Asks: []Ask{{Do: "capture", Exit: 3}}, Cannot: want[0]}
			r := play(t, s)
			if len(r.violations) > 0 {
				t.Error(explain(s, r))
			}
			for _, sent := range r.requests {
				if sent.write() && sent.side() == "azure" && sent.name != "azure PATCH "+definition || // which namespace has the pool goes with its Lease
					strings.HasPrefix(sent.name, "kube PATCH nodes/") {
					t.Errorf("refused, and yet sent %s", sent.name)
				}
			}
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(s)
				p := &process{w: w, name: "p1", done: make(chan struct{}), dead: make(chan struct{}), ctx: w.ctx, cancel: func() {}}
				config, err := w.config(p.name, azureWire{p}, kubeWire{p}, p)
				if err != nil {
					t.Fatal(err)
				}
				plan, err := capture.New(config).Plan(w.ctx, capture.Request{Node: w.nodeName(0)})
				if err != nil || len(plan.Problems) != 1 || plan.Problems[0].Code != want[0] {
					t.Errorf("the dry run: %v, %+v, want %s", err, plan.Problems, want[0])
				}
				for _, problem := range plan.Problems {
					for _, word := range want[1:] {
						if !strings.Contains(problem.String(), word) {
							t.Errorf("%q does not say %q", problem, word)
						}
					}
				}
				w.close()
			})
		})
	}
}
