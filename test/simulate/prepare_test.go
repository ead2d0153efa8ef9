package simulate

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/plan"
	"github.com/ortet/ortet/internal/workflow"
)

// preparations are what the pod of a preparation may do on a fresh donor, and what the capture then
// says; "" for one that ends well.
var preparations = map[string]string{
	"patch":          "", // by Ortet's own image
	"patch, restart": "",
	"patch, fails":   "the preparation failed: exit code 1: E: Failed to fetch https://user:[redacted]@deb.example.org; ortet-node patch: exit status 100",
	"passes":         "",
	"restart":        "", // exit code 10
	"slow restart":   "",
	"mark":           "", // reboot-required on the node
	"fails":          "the preparation failed: exit code 3: E: token=[redacted] is no repository",
	"hangs":          "the preparation failed: DeadlineExceeded",
	"never ends":     "the preparation did not end within 20m0s",
	"fills":          "the preparation failed: Evicted: The node was low on resource: ephemeral-storage",
	"reboots":        "the preparation restarted the fresh donor by itself: end it with exit code 10",
	"reboots late":   "the preparation restarted the fresh donor by itself",
	"breaks kubelet": "the preparation did not end within 20m0s, and the Node is not Ready",
	"unpullable":     "the preparation could not run image example.org/prepare:1: ImagePullBackOff: Back-off pulling image, token=[redacted]",
	"deleted":        "the preparation has no result: others deleted its pod before it ended",
	"breaks boot":    "the fresh donor did not come up after its preparation: gate ready",
}

// slowRestart is how much longer a donor boots after one of the preparations.
const slowRestart = 140 * time.Second

// preparationOf is the request's for an ask.
func preparationOf(does string) *plan.Preparation {
	if strings.HasPrefix(does, "patch") {
		return &plan.Preparation{}
	}
	return &plan.Preparation{Image: "example.org/prepare:1", Command: []string{does}}
}

// prepares plays the pod of a preparation, or the one that looks for the mark of a restart.
func (w *world) prepares(p *corev1.Pod, c *computer) {
	container := p.Spec.Containers[0]
	w.setStatus(p, corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{{
		Name: container.Name, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}})
	does := container.Command[0]
	if does == "ortet-node" {
		i := slices.IndexFunc(w.story.Asks, func(a Ask) bool { return a.Prepare != "" })
		if does = w.story.Asks[i].Prepare; slices.Contains(container.Command, "--check") {
			does = map[bool]string{true: "restart"}[does == "mark"]
		}
	}
	ends := func(code int32, lines string) {
		w.after(30*time.Second, func() {
			if w.runsOn(p) != nil {
				w.podEnded(p, code, []byte(lines))
			}
		})
	}
	if own := slices.Contains(container.Command, "--check"); !own && !p.Spec.HostPID {
		ends(1, "Failed to connect to bus: No data available\n") // of each package that restarts a service
		return
	}
	silent := func() { // its kubelet reports no more
		w.locked(func() { c.running = false })
		w.halted(c)
	}
	restarts := func() { w.make(http.MethodPost, fleet.ResourceID(c.ResourceID)+"/restart", computeAPI, nil) }
	switch does {
	case "restart", "patch, restart":
		ends(10, "Setting up linux-image\n")
	case "slow restart":
		w.locked(func() { w.story.Pool.SlowBoot, w.story.Pool.Stale = slowRestart, 12*time.Minute })
		ends(10, "")
	case "breaks boot":
		w.locked(func() { c.bad = "no join" })
		ends(10, "")
	case "patch, fails":
		ends(1, "Get:1\nE: Failed to fetch https://user:Pa55-w0rd-9xQ@deb.example.org\nortet-node patch: exit status 100\n")
	case "fails":
		ends(3, "Get:1\nE: token=AKIAIOSFODNN7EXAMPLE is no repository\n")
	case "fills":
		w.after(30*time.Second, func() {
			w.setStatus(p, corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Evicted", Message: "The node was low on resource: ephemeral-storage."})
		})
	case "hangs":
		w.after(time.Duration(*p.Spec.ActiveDeadlineSeconds)*time.Second, func() {
			w.podEnded(p, 137, nil)
			w.kube.Change("pods", p.Namespace, p.Name, func(o runtime.Object) { o.(*corev1.Pod).Status.Reason = "DeadlineExceeded" })
		})
	case "reboots":
		w.after(30*time.Second, restarts)
	case "reboots late":
		ends(0, "")
		w.after(35*time.Second, restarts)
	case "breaks kubelet":
		w.after(30*time.Second, silent)
	case "unpullable":
		w.setStatus(p, corev1.PodStatus{Phase: corev1.PodPending, ContainerStatuses: []corev1.ContainerStatus{{
			Name: container.Name, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff", Message: "Back-off pulling image, token=AKIAIOSFODNN7EXAMPLE"}}}}})
	case "deleted":
		w.after(30*time.Second, func() { w.kube.Remove("pods", p.Namespace, p.Name) })
	case "never ends":
	default:
		ends(0, "upgraded\n")
	}
}

// preparing counts the pods of preparations that are there.
func (w *world) preparing() (n int) {
	w.kube.Peek("pods", func(o runtime.Object) bool {
		if strings.Contains(o.(*corev1.Pod).Name, "-prepare") {
			n++
		}
		return true
	})
	return n
}

// stopsOf counts the requests that stop an instance.
func (w *world) stopsOf() (n int) {
	w.locked(func() {
		for _, r := range w.requests {
			if strings.HasPrefix(r.name, "azure POST ") && strings.Contains(r.name, "powerOff") {
				n++
			}
		}
	})
	return n
}

// A preparation that does not end well is undone with its donor, and the capture says why. One that
// does is part of a donor that booted again where it asked for that, and stayed Ready since.
func TestFreshPrepared(t *testing.T) {
	for does, says := range preparations {
		for _, flexible := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, flexible %t", does, flexible), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					ask := Ask{Do: "capture", Fresh: true, Prepare: does, Once: true}
					w := newWorld(Story{Seed: 3, Pool: with(func(p *Pool) { p.Machines, p.Flexible = false, flexible }), Asks: []Ask{ask}})
					defer w.close()
					image, begun := w.imageNow(), time.Now()
					w.pursue(0, ask)
					p := w.processes[0]
					want := workflow.ExitDone
					if says != "" {
						want = workflow.ExitFailed
					}
					if p.code() != want || !strings.Contains(fmt.Sprint(p.err), says) || (w.imageNow() != image) != (says == "") {
						t.Errorf("exit %d, want %d and %q: %v", p.code(), want, says, p.err)
					}
					t.Logf("%.0f s: %v %q", time.Since(begun).Seconds(), p.err, p.capture.Prepared)
					w.checkOver()
					if left := w.preparing(); left > 0 || len(w.instancesOf("")) != w.story.Pool.Instances || len(w.violations) > 0 {
						t.Errorf("%d pods of preparations are left, %d instances; %q", left, len(w.instancesOf("")), w.violations)
					}
					if restarts := strings.Contains(does, "restart") || does == "mark"; says == "" && restarts != (w.stopsOf() == 2) {
						t.Errorf("the donor was stopped %d times", w.stopsOf())
					}
				})
			})
		}
	}
}

// A preparation is begun once on a donor: one that was killed meanwhile is deleted with it, and the
// same command raises another.
func TestFreshPreparedKilled(t *testing.T) {
	for _, at := range []string{"kube POST ortet-system/pods", "kube DELETE ortet-system/pods"} {
		for _, what := range []string{"kill before", "kill after", "interrupt"} {
			s := Story{Name: at + ", " + what, Seed: 5, Pool: with(func(p *Pool) { p.Machines = false }), Asks: []Ask{{Do: "capture", Fresh: true, Prepare: "restart"}},
				Happen: []Event{{At: at, N: 1, What: what}}}
			for _, s := range []Story{s, onFlexible(s)} {
				t.Run(s.Name, func(t *testing.T) {
					t.Parallel()
					if r := play(t, s); len(r.violations) > 0 {
						t.Error(explain(s, r))
					}
				})
			}
		}
	}
}

// A donor that was prepared is captured once it booted again, where that was asked for, and then
// stayed Ready for as long as any, also where its Node is Ready from before while it boots.
func TestFreshPreparedSoaks(t *testing.T) {
	for does, since := range map[string]string{"passes": "-prepare-check 1: 200 OK", "slow restart": "/start 1: "} {
		s := Story{Seed: 6, Pool: with(func(p *Pool) { p.Machines = false }), Asks: []Ask{{Do: "capture", Fresh: true, Prepare: does}}}
		want := 2 * time.Minute
		if does == "slow restart" { // its kubelet reports only after a soak from the start
			s.Asks[0].Soak = 40 * time.Second
			want = s.Asks[0].Soak + slowRestart
		}
		for _, s := range []Story{s, onFlexible(s)} {
			r := play(t, s)
			at := func(line string) (seconds float64) {
				i := slices.IndexFunc(r.trace, func(l string) bool {
					return strings.Contains(l, line) && (!strings.Contains(line, "prepare") || strings.Contains(l, "DELETE"))
				})
				if _, err := fmt.Sscan(r.trace[max(i, 0)], &seconds); i < 0 || err != nil {
					t.Fatalf("no %s: %v", line, explain(s, r))
				}
				return seconds
			}
			if after := at("-look 1: ") - at(since); len(r.violations) > 0 || after < want.Seconds() {
				t.Errorf("%s: its disk is inspected %.0f s after %s, want at least %s: %s", s.Name+does, after, since, want, explain(s, r))
			}
		}
	}
}
