package events

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/ortet/ortet/internal/node/bootstrap"
	"github.com/ortet/ortet/internal/wire"
	"github.com/ortet/ortet/test/kubesim"
)

// A Spot machine is told of its eviction, drained by the server, leaves, and only
// then is the event acknowledged.
func TestPreemptLeavesByTheServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.pod("web", 0, 30)
		w.pod("database", 1000, 300)
		w.azure.schedule("E1", Preempt, 30*time.Second)
		w.run(w.options(), 20*time.Second)
		if got, want := w.ends(), "database 25s, web 25s"; got != want {
			t.Errorf("told to end: %s, want %s", got, want)
		}
		if w.node() != nil {
			t.Error("the Node is there still")
		}
		if got := w.azure.acknowledged(); len(got) != 1 || got[0] != "E1" {
			t.Errorf("acknowledged %v", got)
		}
		h := w.kept().Events[0]
		if h.Phase != Acknowledged || !h.Done || h.By != ByServer || !h.ClearedAt.Before(h.DepartedAt.Add(1)) || h.AcknowledgedAt.Before(h.DepartedAt) {
			t.Errorf("kept: %+v", h)
		}
		if got, want := w.reasons(), "PreemptScheduled DrainedForPreempt LeftForPreempt PreemptAcknowledged"; got != want {
			t.Errorf("Events: %s, want %s", got, want)
		}
		if !w.server.isHeld() {
			t.Error("it may join again")
		}
	})
}

// An eviction that comes before the machine has joined: nothing of it joins any more,
// and Azure need not wait. Where it is cancelled, the machine joins after all.
func TestPreemptBeforeJoining(t *testing.T) {
	for _, cancelled := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			w.kube.Remove("nodes", "", nodeName)
			o := w.options()
			o.Kubernetes = func(context.Context, string, func(string) string, string, []byte) (bootstrap.Answer, error) {
				return bootstrap.Answer{}, fmt.Errorf("no kubeconfig of a kubelet's: %w", fs.ErrNotExist)
			}
			o.Server = early{w.server}
			w.azure.schedule("E1", Preempt, 30*time.Second)
			w.run(o, 10*time.Second)
			if got := w.azure.acknowledged(); len(got) != 1 || !w.server.isHeld() {
				t.Errorf("acknowledged %v; held: %v", got, w.server.isHeld())
			}
			if !cancelled {
				return
			}
			w.azure.over("E1")
			w.run(o, 3*time.Minute)
			if w.server.rejoined != 1 || w.server.isHeld() || w.kept().Touched {
				t.Errorf("joined again %d times; held: %v; kept: %+v", w.server.rejoined, w.server.isHeld(), w.kept())
			}
		})
	}
}

// early is the server of a machine that has no Node.
type early struct{ *server }

func (e early) Leave(context.Context, wire.LeaveRequest) (wire.Leave, error) {
	if !e.isHeld() {
		e.w.t.Error("it may join while it leaves")
	}
	return wire.Leave{Drained: true}, nil
}

func (e early) Back(context.Context) error { return nil }

// What an earlier daemon held, of which nothing is known any more, is released; an
// event that is still there has it held again.
func TestHeldByNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		if err := w.server.Hold(); err != nil {
			t.Fatal(err)
		}
		w.run(w.options(), 5*time.Second)
		if w.server.isHeld() {
			t.Error("kept from joining for ever")
		}
	})
}

// The admission server's settings are lost in the middle of a leave: the node drains
// itself, or says what it cannot do, and lives.
func TestTheServersSettingsAreLost(t *testing.T) {
	for name, c := range map[string]struct {
		h       Handling
		boot    string
		reasons string
		acks    int
	}{
		"before the drain": {Handling{ID: "E1", Type: Preempt, Do: Leave, Phase: Begun}, "", "DrainedForPreempt PreemptAcknowledged", 1},
		"after the drain":  {Handling{ID: "E1", Type: Preempt, Do: Leave, Phase: Cleared, Done: true}, "", "PreemptAcknowledged", 1},
		"after it left":    {Handling{ID: "E0", Type: Preempt, Do: Leave, Phase: Departed}, "boot-1", "PreemptCancelled", 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.pod("web", 0, 2)
				c.h.NoticedAt, c.h.Deadline = time.Now().UTC(), time.Now().Add(30*time.Second).UTC()
				text, err := json.Marshal(State{VMID: "vm", Touched: true, Events: []Handling{c.h}, DepartedIn: c.boot})
				if err == nil {
					err = os.WriteFile(w.state, text, 0o600)
				}
				if err != nil {
					t.Fatal(err)
				}
				o := w.options()
				o.Server = nil
				if c.h.ID == "E1" {
					w.azure.schedule("E1", Preempt, 30*time.Second)
				}
				w.run(o, 3*time.Minute)
				if got := w.reasons(); got != c.reasons || len(w.azure.acknowledged()) != c.acks {
					t.Errorf("Events: %s; acknowledged %v", got, w.azure.acknowledged())
				}
				if told := strings.Contains(w.log.String(), errNoServer.Error()); told != (c.acks == 0) {
					t.Errorf("told: %v", told)
				}
			})
		})
	}
}

// Without the admission server the node drains itself in time: it is not waited for
// longer than 2 s of the 30.
func TestPreemptWithoutAServerInReach(t *testing.T) {
	for _, mode := range []string{"refuses", "hangs"} {
		t.Run(mode, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.server.set(mode)
				w.pod("web", 0, 30)
				w.pod("database", 1000, 10)
				began := time.Now()
				w.azure.schedule("E1", Preempt, 30*time.Second)
				w.run(w.options(), 40*time.Second)
				if got, want := w.ends(), "database 10s, web 2"; !strings.HasPrefix(got, want) {
					t.Errorf("told to end: %s, want %s…", got, want)
				}
				if !w.cordoned() || w.pods() != "" {
					t.Errorf("cordoned %v, pods %q", w.cordoned(), w.pods())
				}
				h := w.kept().Events[0]
				if h.By != ByKubelet || h.ClearedAt.Sub(began) > 6*time.Second {
					t.Errorf("kept: %+v", h)
				}
				// It has not left: nobody was told.
				if got := w.azure.acknowledged(); len(got) != 0 {
					t.Errorf("acknowledged %v", got)
				}
			})
		})
	}
}

// A Reboot drains, is acknowledged, and the node comes back once it is over, in
// another boot.
func TestRebootComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.pod("web", 0, 30)
		w.azure.schedule("E1", Reboot, 15*time.Minute)
		w.run(w.options(), 20*time.Second)
		if !w.cordoned() || w.pods() != "" || len(w.azure.acknowledged()) != 1 || w.node() == nil {
			t.Fatalf("before the reboot: cordoned %v, pods %q, acknowledged %v", w.cordoned(), w.pods(), w.azure.acknowledged())
		}
		w.azure.begin("E1")
		w.boot = "boot-2"
		w.run(w.options(), 20*time.Second)
		if !w.cordoned() {
			t.Error("given back before the event was over")
		}
		w.azure.over("E1")
		w.run(w.options(), 20*time.Second)
		if w.cordoned() || len(w.node().Spec.Taints) > 0 {
			t.Errorf("not given back: %+v", w.node().Spec)
		}
		if s := w.kept(); s.Touched || len(s.Events) > 0 {
			t.Errorf("kept: %+v", s)
		}
		if n := len(w.server.leaves); n != 1 {
			t.Errorf("drained %d times", n)
		}
	})
}

// The daemon dies before and after each thing that it does; another one goes on, and
// the world is the same in the end.
func TestKilledAnywhere(t *testing.T) {
	kinds := map[string]struct {
		event Type
		in    time.Duration
	}{"Preempt": {Preempt, 30 * time.Second}, "Reboot": {Reboot, 15 * time.Minute}}
	for name, c := range kinds {
		for _, mode := range []string{"", "refuses"} {
			t.Run(strings.TrimSuffix(name+"/"+mode, "/"), func(t *testing.T) {
				for at := range 100 {
					var calls int
					synctest.Test(t, func(t *testing.T) {
						w := newWorld(t)
						w.server.set(mode)
						w.pod("web", 0, 30)
						w.pod("database", 1000, 10)
						w.azure.schedule("E1", c.event, c.in)
						calls = w.killed(at)
						w.run(w.options(), 40*time.Second)
						if w.pods() != "" || w.node() != nil && !w.cordoned() {
							t.Errorf("killed before act %d: cordoned %v, pods %q", at, w.cordoned(), w.pods())
						}
						// Who could not say goodbye has not left.
						switch n, stays := len(w.azure.acknowledged()), c.event == Preempt && mode != ""; {
						case stays && n > 0, !stays && (n < 1 || n > 2):
							t.Errorf("killed before act %d: acknowledged %d times", at, n)
						}
						if w.server.isHeld() != (c.event == Preempt) {
							t.Errorf("killed before act %d: held: %v", at, w.server.isHeld())
						}
						if left := c.event == Preempt && mode == ""; left != (w.node() == nil) {
							t.Errorf("killed before act %d: the Node is %v", at, w.node())
						}
						begun := len(w.server.leaves)
						w.run(w.options(), 10*time.Second)
						if len(w.server.leaves) != begun {
							t.Errorf("killed before act %d: begun again after it was acknowledged", at)
						}
						w.azure.over("E1")
						w.boot = "boot-2"
						w.run(w.options(), 3*time.Minute)
						if n := w.node(); n != nil && (w.cordoned() || len(n.Spec.Taints) > 0 && mode == "") {
							t.Errorf("killed before act %d: not given back", at)
						}
						if w.server.isHeld() {
							t.Errorf("killed before act %d: kept from joining for ever", at)
						}
					})
					if calls <= at {
						if at < 3 {
							t.Errorf("only %d acts", at)
						}
						return // it came to its end
					}
				}
				t.Error("it never comes to its end")
			})
		}
	}
}

// killed runs the daemon until it is about to change something for the nth time,
// from 0: then it dies without another word. It gives how often it was about to.
func (w *world) killed(n int) (calls int) {
	ctx, kill := context.WithCancel(w.t.Context())
	defer kill()
	var mu sync.Mutex
	act := func() error {
		mu.Lock()
		defer mu.Unlock()
		calls++
		if calls > n {
			kill()
			return errors.New("killed")
		}
		return nil
	}
	o := w.options()
	o.Metadata = func(ctx context.Context, method, path string, body []byte) (bootstrap.Answer, error) {
		if method != "POST" {
			return w.azure.ask(ctx, method, path, body)
		}
		if err := act(); err != nil {
			return bootstrap.Answer{}, err
		}
		r, err := w.azure.ask(ctx, method, path, body)
		return r, errors.Join(err, act())
	}
	o.Kubernetes = func(ctx context.Context, method string, path func(string) string, contentType string, body []byte) (bootstrap.Answer, error) {
		if method != "GET" && !strings.Contains(path("x"), "/events") {
			if err := act(); err != nil {
				return bootstrap.Answer{}, err
			}
		}
		return w.ask(ctx, method, path, contentType, body)
	}
	o.Server = mortal{w.server, act}
	done := make(chan struct{})
	go func() {
		defer close(done)
		Run(ctx, o)
	}()
	select {
	case <-done:
	case <-time.After(45 * time.Second):
		kill()
		<-done
	}
	synctest.Wait()
	return calls
}

// A daemon that is told to end in the middle of a drain has not drained: the next one
// goes on. Which of the two it hears of first is chance, so it is told often.
func TestEndedInTheMiddleOfADrain(t *testing.T) {
	for range 300 {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			w.pod("web", 0, 30)
			ctx, end := context.WithCancel(t.Context())
			defer end()
			o := w.options()
			o.Server = nil
			o.Kubernetes = func(ask context.Context, method string, path func(string) string, contentType string, body []byte) (bootstrap.Answer, error) {
				if strings.HasSuffix(path("x"), "/eviction") {
					end()
					return bootstrap.Answer{}, errors.New("ended")
				}
				return w.ask(ask, method, path, contentType, body)
			}
			w.azure.schedule("E1", Preempt, 30*time.Second)
			Run(ctx, o)
			if h := w.kept().Events[0]; h.Phase != Begun {
				t.Fatalf("kept: %+v", h)
			}
		})
		if t.Failed() {
			return
		}
	}
}

// mortal dies before and after what the server is asked.
type mortal struct {
	*server
	act func() error
}

func (m mortal) Leave(ctx context.Context, r wire.LeaveRequest) (wire.Leave, error) {
	if err := m.act(); err != nil {
		return wire.Leave{}, err
	}
	a, err := m.server.Leave(ctx, r)
	return a, errors.Join(err, m.act())
}

func (m mortal) Hold() error {
	if err := m.act(); err != nil {
		return err
	}
	return errors.Join(m.server.Hold(), m.act())
}

func (m mortal) Release() error {
	if err := m.act(); err != nil {
		return err
	}
	return errors.Join(m.server.Release(), m.act())
}

func (m mortal) Depart(ctx context.Context, cause string) error {
	if err := m.act(); err != nil {
		return err
	}
	return errors.Join(m.server.Depart(ctx, cause), m.act())
}

func (m mortal) Back(ctx context.Context) error {
	if err := m.act(); err != nil {
		return err
	}
	return errors.Join(m.server.Back(ctx), m.act())
}

// An eviction that is cancelled in the middle of a drain: what was marked is undone,
// and nothing else.
func TestCancelled(t *testing.T) {
	for name, c := range map[string]struct {
		mode     string
		cordoned bool // by somebody else, before
	}{"by the server": {}, "by the kubelet": {mode: "refuses"}, "cordoned before": {mode: "refuses", cordoned: true}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.server.set(c.mode)
				w.kube.Ends = nil // pods do not end
				w.pod("web", 0, 300)
				w.kube.Change("nodes", "", nodeName, func(o runtime.Object) {
					if n, ok := o.(*corev1.Node); ok {
						n.Spec.Unschedulable = c.cordoned
						n.Labels = map[string]string{"mine": "1"}
					}
				})
				w.azure.schedule("E1", Redeploy, 10*time.Minute)
				time.AfterFunc(10*time.Second, func() {
					if n := w.node(); !n.Spec.Unschedulable || n.Labels["mine"] != "1" {
						t.Errorf("in the middle: %+v", n)
					}
					w.azure.over("E1")
				})
				w.run(w.options(), 20*time.Second)
				n := w.node()
				_, out := n.Labels[excluded]
				_, marked := n.Annotations[wire.LeavingMark]
				if n.Spec.Unschedulable != c.cordoned || out || marked || n.Labels["mine"] != "1" {
					t.Errorf("given back as %+v %+v", n.ObjectMeta, n.Spec)
				}
				if got := w.azure.acknowledged(); len(got) > 0 {
					t.Errorf("acknowledged %v", got)
				}
				if !strings.HasSuffix(w.reasons(), "RedeployCancelled Returned") {
					t.Errorf("Events: %s", w.reasons())
				}
			})
		})
	}
}

// An event is cancelled while the machine leaves for it: its agent stands still by
// then, though nobody could be told, so it joins again.
func TestCancelledWhileLeaving(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		o := w.options()
		o.Server = unheard{w.server, func() { time.AfterFunc(5*time.Second, func() { w.azure.over("E1") }) }}
		w.azure.schedule("E1", Terminate, 5*time.Minute)
		w.run(o, 100*time.Second)
		if w.server.rejoined > 0 {
			t.Error("joined again before the machine has outlived its event for long")
		}
		w.run(w.options(), time.Minute)
		if w.server.rejoined != 1 || w.cordoned() {
			t.Errorf("joined again %d times; cordoned %v; kept %+v; Events: %s", w.server.rejoined, w.cordoned(), w.kept(), w.reasons())
		}
	})
}

// unheard stops the agent, and finds nobody to tell.
type unheard struct {
	*server
	stopped func()
}

func (u unheard) Depart(ctx context.Context, _ string) error {
	u.stopped()
	<-ctx.Done()
	return ctx.Err()
}

// Another machine that the event names has it begin while this one is drained: pods
// that come back after it are left alone.
func TestRebootInTheMiddleOfADrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.kube.Ends = nil // pods do not end
		w.pod("web", 0, 3600)
		w.azure.schedule("E1", Reboot, 15*time.Minute, vmName, "pool1_4")
		w.run(w.options(), 20*time.Second)
		w.azure.begin("E1")
		w.boot = "boot-2"
		w.pod("survivor", 0, 300)
		w.run(w.options(), time.Minute)
		if got := w.ends(); got != "web 14m45s" || !w.cordoned() {
			t.Errorf("told to end: %s; cordoned %v", got, w.cordoned())
		}
		w.azure.over("E1")
		w.run(w.options(), 10*time.Second)
		if w.cordoned() {
			t.Error("not given back")
		}
	})
}

// A pod that a budget protects is asked for a third of the time, then deleted; what a
// DaemonSet runs and the node's own pods stay.
func TestBudgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.server.set("refuses")
		w.pod("free", 0, 5)
		w.pod("guarded", 0, 60)
		w.pod("agent", 5, 5, func(p *corev1.Pod) {
			yes := true
			p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "agent", UID: "u", Controller: &yes}}
		})
		w.pod("static", 5, 5, func(p *corev1.Pod) { p.Annotations = map[string]string{"kubernetes.io/config.mirror": "x"} })
		w.pod("finished", 5, 5, func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded })
		one := intstr.FromInt32(1)
		w.kube.Put(&policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: "guard", Namespace: "default"},
			Spec: policyv1.PodDisruptionBudgetSpec{MinAvailable: &one, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "guarded"}}}})
		began := time.Now()
		var deletedAt time.Duration
		deleting := w.kube.Deleting
		w.kube.Deleting = func(d kubesim.Deletion) {
			deleting(d)
			if d.Pod.Name == "guarded" {
				deletedAt = time.Since(began)
				if d.Eviction {
					t.Error("the budget was passed over by an eviction")
				}
			}
		}
		w.azure.schedule("E1", Preempt, 30*time.Second)
		w.run(w.options(), 40*time.Second)
		if w.pods() != "agent finished static" {
			t.Errorf("pods that stay: %s", w.pods())
		}
		if deletedAt < 8*time.Second || deletedAt > 11*time.Second {
			t.Errorf("deleted after %s", deletedAt)
		}
		if h := w.kept().Events[0]; !h.Done {
			t.Errorf("kept: %+v", h)
		}
	})
}

// A drain by the node itself is over when the kubelet has deleted the pods, not when
// their containers have ended.
func TestDrainWaitsUntilTheKubeletIsDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.pod("web", 0, 5)
		w.pod("finished", 5, 5, func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded })
		w.kube.Ends = func(*corev1.Pod, time.Duration) time.Duration {
			time.AfterFunc(time.Second, func() {
				w.kube.Change("pods", "default", "web", func(o runtime.Object) { o.(*corev1.Pod).Status.Phase = corev1.PodSucceeded })
			})
			return 5 * time.Second
		}
		began := time.Now()
		left, err := (&kubernetes{ask: w.ask}).drain(t.Context(), began.Add(30*time.Second), time.Now, func(string) {})
		if took := time.Since(began); err != nil || len(left) != 0 || took < 5*time.Second || took > 7*time.Second {
			t.Errorf("it ended after %s: %v; left: %q", took, err, left)
		}
		if w.pods() != "finished" {
			t.Errorf("pods on the node: %s", w.pods())
		}
	})
}

// A node has more pods than an answer holds.
func TestManyPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.server.set("refuses")
		for i := range 250 {
			w.pod(fmt.Sprintf("p%03d", i), int32(i%3), 5, func(p *corev1.Pod) {
				p.Annotations = map[string]string{"long": strings.Repeat("x", 100<<10)}
			})
		}
		whole := w.options()
		o := whole
		o.Kubernetes = func(ctx context.Context, method string, path func(string) string, contentType string, body []byte) (bootstrap.Answer, error) {
			a, err := whole.Kubernetes(ctx, method, path, contentType, body)
			a.Body = a.Body[:min(len(a.Body), 2<<20)]
			return a, err
		}
		w.azure.schedule("E1", Preempt, 30*time.Second)
		w.run(o, 40*time.Second)
		if w.pods() != "" {
			t.Errorf("left: %s", w.pods())
		}
		if first := strings.SplitN(w.ends(), ",", 84)[:83]; !strings.HasPrefix(first[0], "p") {
			t.Errorf("%v", first)
		} else {
			for _, p := range first {
				if n, err := strconv.Atoi(strings.TrimSpace(p)[1:4]); err != nil || n%3 != 2 {
					t.Errorf("%s is told before more important ones", p)
				}
			}
		}
	})
}

// The machine's clock is wrong, and is set while it runs: events are Azure's time.
func TestClockThatIsWrong(t *testing.T) {
	for _, skew := range []time.Duration{-26 * time.Hour, 3 * time.Minute, 24 * time.Hour} {
		t.Run(skew.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.azure.skew = skew
				w.pod("web", 0, 300)
				time.AfterFunc(3*time.Second, func() { w.azure.schedule("E1", Preempt, 30*time.Second) })
				w.run(w.options(), 40*time.Second)
				if got := w.ends(); got != "web 24s" && got != "web 25s" && got != "web 23s" {
					t.Errorf("told to end: %s", got)
				}
			})
		})
	}
}

// Clocks part while it runs: as where this machine's is set.
func TestClockThatIsSet(t *testing.T) {
	for _, step := range []time.Duration{-time.Hour, time.Hour} {
		t.Run(step.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.pod("web", 0, 300)
				time.AfterFunc(5500*time.Millisecond, func() {
					w.azure.mu.Lock()
					w.azure.skew = step
					w.azure.mu.Unlock()
				})
				time.AfterFunc(10*time.Second, func() { w.azure.schedule("E1", Preempt, 30*time.Second) })
				w.run(w.options(), 40*time.Second)
				if got := w.ends(); got != "web 24s" && got != "web 25s" && got != "web 23s" {
					t.Errorf("told to end: %s", got)
				}
			})
		})
	}
}

// Neither the API server nor the admission server answers: the daemon goes on looking,
// and drains once one does.
func TestNothingInReach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.server.set("refuses")
		w.down = true
		w.pod("web", 0, 5)
		w.azure.schedule("E1", Preempt, 30*time.Second)
		time.AfterFunc(12*time.Second, func() {
			w.mu.Lock()
			w.down = false
			w.mu.Unlock()
		})
		w.run(w.options(), 28*time.Second)
		if w.pods() != "" || !w.cordoned() {
			t.Errorf("cordoned %v, pods %s", w.cordoned(), w.pods())
		}
	})
}

// Answers of the metadata service that are none: it is asked again, not faster, and
// an event is found soon after it works.
func TestMetadataService(t *testing.T) {
	for name, c := range map[string]struct {
		status int
		hangs  bool
		asked  int // in a minute, at most
		found  time.Duration
	}{
		"429": {status: 429, asked: 20, found: 6 * time.Second}, "500": {status: 500, asked: 20, found: 6 * time.Second},
		"410": {status: 410, asked: 20, found: 6 * time.Second}, "404": {status: 404, asked: 12, found: time.Minute},
		"no answer": {hangs: true, asked: 20, found: 11 * time.Second}, "well": {asked: 62, found: 2 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				time.AfterFunc(5*time.Second, func() {
					w.azure.mu.Lock()
					defer w.azure.mu.Unlock()
					w.azure.status, w.azure.hangs, w.azure.asked = c.status, c.hangs, 0
				})
				var asked int
				time.AfterFunc(65*time.Second, func() {
					w.azure.mu.Lock()
					asked = w.azure.asked
					w.azure.status, w.azure.hangs = 0, false
					w.azure.mu.Unlock()
					w.azure.schedule("E1", Terminate, 5*time.Minute)
				})
				w.run(w.options(), 130*time.Second)
				if asked > c.asked || asked == 0 {
					t.Errorf("asked %d times in a minute", asked)
				}
				s := w.kept()
				if len(s.Events) != 1 {
					t.Fatalf("kept: %+v", s)
				}
				if took := s.Events[0].NoticedAt.Sub(time.Date(2000, 1, 1, 0, 1, 5, 0, time.UTC)); took > c.found {
					t.Errorf("found after %s", took)
				}
			})
		})
	}
}

// The first answer may take two minutes.
func TestFirstAnswerTakesLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		o := w.options()
		on := false
		o.Metadata = func(ctx context.Context, method, path string, body []byte) (bootstrap.Answer, error) {
			if path == eventsPath && !on {
				if !sleep(ctx, 119*time.Second) {
					return bootstrap.Answer{}, ctx.Err()
				}
				on = true
			}
			return w.azure.ask(ctx, method, path, body)
		}
		w.azure.schedule("E1", Terminate, 5*time.Minute)
		w.run(o, 120*time.Second)
		if s := w.kept(); len(s.Events) != 1 {
			t.Errorf("kept: %+v", s)
		}
	})
}

// The server has begun, and then nothing more is heard of it.
func TestServerThatStalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.server.set("stalls")
		w.pod("web", 0, 5)
		began := time.Now()
		w.azure.schedule("E1", Preempt, 30*time.Second)
		w.run(w.options(), 40*time.Second)
		if h := w.kept().Events[0]; !h.Done || h.By != ByKubelet || h.ClearedAt.Sub(began) > 18*time.Second {
			t.Errorf("kept: %+v", h)
		}
	})
}

// A disk that takes nothing does not keep the node from leaving.
func TestDiskThatIsFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.pod("web", 0, 5)
		o := w.options()
		o.State = os.DevNull + "/events.json"
		o.Settings.MetricsFile = os.DevNull + "/ortet.prom"
		w.azure.schedule("E1", Preempt, 30*time.Second)
		w.run(o, 30*time.Second)
		if w.node() != nil || len(w.azure.acknowledged()) != 1 {
			t.Errorf("the Node %v, acknowledged %v", w.node(), w.azure.acknowledged())
		}
		for _, once := range []string{"going on without a record", "the metrics cannot be kept"} {
			if n := strings.Count(w.log.String(), once); n != 1 {
				t.Errorf("%q is logged %d times", once, n)
			}
		}
	})
}

// What is done is told by webhook and metrics; neither is waited for.
func TestTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.pod("web", 0, 5)
		dir := t.TempDir()
		o := w.options()
		o.Settings.MetricsFile = filepath.Join(dir, "ortet_events.prom")
		o.Settings.Webhook = "https://hook.example/x"
		slow := o.Post
		o.Post = func(ctx context.Context, url, ca string, body []byte) error {
			if !sleep(ctx, 15*time.Second) {
				return ctx.Err()
			}
			return slow(ctx, url, ca, body)
		}
		w.azure.schedule("E1", Preempt, 30*time.Second)
		w.run(o, 90*time.Second)
		if h := w.kept().Events[0]; h.AcknowledgedAt.Sub(h.NoticedAt) > 4*time.Second {
			t.Errorf("it waited for those who listen: %+v", h)
		}
		if len(w.webhooks) != 4 || w.webhooks[0].Reason != "PreemptScheduled" || w.webhooks[0].Node != nodeName || w.webhooks[0].Name != vmName || w.webhooks[3].Handling.Phase != Acknowledged {
			t.Errorf("the webhook was told %+v", w.webhooks)
		}
		text, err := os.ReadFile(o.Settings.MetricsFile)
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range []string{
			"ortet_events_up 1", `ortet_events_noticed_total{type="Preempt"} 1`, `ortet_events_drains_total{by="server",type="Preempt",whole="true"} 1`,
			`ortet_events_acknowledged_total{type="Preempt"} 1`, `ortet_events_pending{phase="Acknowledged",type="Preempt"} 1`, "# TYPE ortet_events_noticed_total counter", "ortet_events_drain_seconds 2",
		} {
			if !strings.Contains(string(text), line+"\n") {
				t.Errorf("the metrics lack %q:\n%s", line, text)
			}
		}
		info, err := os.Stat(o.Settings.MetricsFile)
		if err != nil || info.Mode().Perm() != 0o644 {
			t.Errorf("%v %v", info.Mode(), err)
		}
		if others, err := filepath.Glob(dir + "/.*"); err != nil || len(others) > 0 {
			t.Errorf("left: %v %v", others, err)
		}
	})
}

// A notice to the first pod takes no longer than the next look and the way to it.
func TestFirstPodIsToldSoon(t *testing.T) {
	for _, mode := range []string{"", "refuses"} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			w.server.set(mode)
			w.pod("web", 0, 5)
			var posted, told time.Time
			deleting := w.kube.Deleting
			w.kube.Deleting = func(d kubesim.Deletion) { deleting(d); told = time.Now() }
			time.AfterFunc(5500*time.Millisecond, func() {
				posted = time.Now()
				w.azure.schedule("E1", Preempt, 30*time.Second)
			})
			w.run(w.options(), 20*time.Second)
			if took := told.Sub(posted); took > 1500*time.Millisecond || told.IsZero() {
				t.Errorf("mode %q: told after %s", mode, took)
			}
		})
	}
}

// The record is lost, or cannot be read: what is marked for an event that is over is
// given back all the same; what somebody else has marked stays.
func TestRecordThatIsLost(t *testing.T) {
	for name, cause := range map[string]string{"ours": "Reboot", "theirs": "Asked"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				if err := (&kubernetes{ask: w.ask}).cordon(t.Context(), Type(cause), true, time.Now()); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(w.state, []byte("{\"events\":[{"), 0o600); err != nil {
					t.Fatal(err)
				}
				w.run(w.options(), 10*time.Second)
				if w.cordoned() != (name == "theirs") {
					t.Errorf("cordoned %v", w.cordoned())
				}
				if s := w.kept(); s.Touched {
					t.Errorf("kept: %+v", s)
				}
			})
		})
	}
}

// A copied disk has another machine's record on it, which is nobody's here.
func TestRecordOfAnotherMachine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.azure.schedule("E1", Reboot, 15*time.Minute)
		w.run(w.options(), 10*time.Second)
		s, err := LoadState(w.state, "another")
		if err != nil || len(s.Events) > 0 || s.Touched || s.VMID != "another" {
			t.Errorf("%+v %v", s, err)
		}
	})
}
