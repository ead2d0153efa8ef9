package engine

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/prototype"
)

// process starts a process in the world; it dies at the boundary killAt, if
// that is not 0.
func (w *world) process(t *testing.T, holder string, killAt int) (*Engine, *proc, context.Context, *events) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	p := &proc{w: w, holder: holder, killAt: killAt, kill: cancel}
	seen := &events{}
	e, err := New(Config{
		Cloud: cloudProc{p}, Cluster: clusterProc{p}, Logger: slog.New(slog.DiscardHandler), Reporter: seen, Version: "test",
		Image: "ortet:test", Namespace: "ortet", Holder: holder, Liveness: func(string) Liveness { return Unknown },
	})
	if err != nil {
		t.Fatal(err)
	}
	return e, p, ctx, seen
}

type events struct {
	mu  sync.Mutex
	all []Event
}

func (s *events) Report(e Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, e)
}

func (s *events) count(step string, state State) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.all {
		if e.Step == step && e.State == state {
			n++
		}
	}
	return n
}

// request is what the tests ask for.
func request() CaptureRequest {
	return CaptureRequest{Node: donorName, GracePeriod: donorGrace, Bootstrap: BootstrapBaked}
}

// whole checks that the donor is as it was found.
func (w *world) whole(t *testing.T) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.catchUp()
	n, i := w.donor(), w.donorInstance()
	if !n.Ready || n.Unschedulable || len(n.Annotations) > 0 {
		t.Errorf("the donor is Ready %v, unschedulable %v, annotated %v", n.Ready, n.Unschedulable, n.Annotations)
	}
	if i.Power != fleet.PowerRunning || i.Protection != (fleet.Protection{}) {
		t.Errorf("the donor's instance is %s, protected %+v", i.Power, i.Protection)
	}
	for k := range w.machine {
		t.Errorf("the Machine still has %s", k)
	}
	for _, i := range w.instances {
		if n := w.nodes[i.HostName]; n != nil && i.Protection != (fleet.Protection{}) {
			t.Errorf("%s is protected %+v", n.Name, i.Protection)
		} else if n != nil && n.Annotations[fleet.AnnotationScaleDownDisabled] != "" {
			t.Errorf("%s is annotated %v", n.Name, n.Annotations)
		}
	}
}

// tidy checks that nothing temporary is left.
func (w *world) tidy(t *testing.T) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	for k := range w.snapshots {
		t.Errorf("snapshot %s is left", k)
	}
	for k, d := range w.disks {
		if d.Tags[fleet.TagCapture] != "" {
			t.Errorf("disk %s is left", k)
		}
	}
	for k := range w.pods {
		t.Errorf("pod %s is left", k)
	}
	for k := range w.lease {
		t.Errorf("Lease %s is left", k)
	}
	if w.kured != "" {
		t.Errorf("kured is held by %s", w.kured)
	}
	for _, v := range w.versions {
		if v.ProvisioningState != prototype.Succeeded {
			t.Errorf("version %s is %s", v.Name, v.ProvisioningState)
		}
		if !v.generalized || v.torn {
			t.Errorf("version %s: generalised %v, from a running donor %v", v.Name, v.generalized, v.torn)
		}
	}
}

// live checks that the model is as a capture with --bootstrap baked leaves it.
func (w *world) live(t *testing.T, version string) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	image := w.pool.Model.Image
	if image.ID.Name() != version || !pinned(image, image.ID) {
		t.Errorf("the model uses %+v, want %s", image, version)
	}
	if w.versions[low(image.ID)] == nil {
		t.Errorf("the model's version does not exist")
	}
	if w.customData != noop {
		t.Errorf("customData is %q", w.customData)
	}
	var names []string
	for _, e := range w.pool.Model.Extensions {
		names = append(names, e.Name)
	}
	if !slices.Equal(names, []string{"billing"}) {
		t.Errorf("the extensions are %v", names)
	}
	if len(w.vault) == 0 {
		t.Errorf("customData is replaced and was not kept")
	}
}

// today is the version that a capture makes in a synctest bubble, whose clock
// begins at midnight UTC 2000-01-01.
const today = "2000.01.01"

func TestCapture(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.machine = map[string]string{}
		e, _, ctx, seen := w.process(t, "a", 0)
		result, err := e.Capture(ctx, request())
		if err != nil {
			t.Fatal(err)
		}
		w.whole(t)
		w.tidy(t)
		w.live(t, today)
		if w.drained != 1 || w.stops != 1 || w.builds != 1 || w.jobs != 1 {
			t.Errorf("drained %d, stopped %d, built %d, ran %d pods; want 1 of each", w.drained, w.stops, w.builds, w.jobs)
		}
		if result.Version.Name() != today || result.BuiltFrom != donorName || result.Resumed || result.NothingToDo {
			t.Errorf("result %+v", result)
		}
		for _, s := range prototype.CaptureSteps(prototype.CaptureInput{}) {
			if seen.count(s.ID, StepDone)+seen.count(s.ID, StepSkipped) != 1 {
				t.Errorf("step %s was reported done %d times, skipped %d times", s.ID, seen.count(s.ID, StepDone), seen.count(s.ID, StepSkipped))
			}
		}
		var own time.Duration
		for _, s := range result.Timing.Steps {
			own += s.Own
		}
		// Of the two snapshots and the copy it looks twice whether they are deleted.
		if own != 3*lookAgain {
			t.Errorf("%s of waits of our own", own)
		}
		rec, err := w.journals.Load(ctx, string(result.Pool))
		if err != nil || len(rec.Intents) == 0 {
			t.Fatalf("the journal has %d intents: %v", len(rec.Intents), err)
		}
		for key, intent := range rec.Intents {
			if intent.Token != "" {
				t.Errorf("the token of %s, which is done, is still in the journal", key)
			}
		}
		v := w.versions[low(result.Version)]
		if v.Tags[fleet.TagBuiltFrom] != donorName || v.Tags[fleet.TagGeneralized] != result.Capture || v.Tags[fleet.TagCustomData] != sha(noop) || v.Replicas != 0 {
			t.Errorf("the version's tags are %v", v.Tags)
		}

		// The same day again: nothing, and it says so.
		before := len(w.began)
		e, _, ctx, _ = w.process(t, "b", 0)
		again, err := e.Capture(ctx, request())
		if err != nil || !again.NothingToDo || len(w.began) != before {
			t.Errorf("the second capture: %+v, %v; began %v", again, err, w.began[before:])
		}
	})
}

func TestCaptureKeepsWhatOthersSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.machine = map[string]string{fleet.AnnotationSkipRemediation: "by hand"}
		w.donor().Unschedulable = true
		w.donor().Annotations[fleet.AnnotationScaleDownDisabled] = "false"
		w.donorInstance().Protection.ScaleIn = true
		e, _, ctx, _ := w.process(t, "a", 0)
		if _, err := e.Capture(ctx, request()); err != nil {
			t.Fatal(err)
		}
		n := w.donor()
		if !n.Unschedulable || n.Annotations[fleet.AnnotationScaleDownDisabled] != "false" || len(n.Annotations) != 1 {
			t.Errorf("unschedulable %v, annotations %v", n.Unschedulable, n.Annotations)
		}
		if p := w.donorInstance().Protection; !p.ScaleIn || p.ScaleSetActions {
			t.Errorf("protection %+v", p)
		}
		if w.machine[fleet.AnnotationSkipRemediation] != "by hand" || len(w.machine) != 1 {
			t.Errorf("Machine %v", w.machine)
		}
		w.tidy(t)
	})
}

// TestCaptureFails: whatever fails before the model changes, all is put back.
func TestCaptureFails(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(w *world)
		exit  int
		says  string
	}{
		"drain blocked":   {func(w *world) { w.blocked = true }, ExitFailed, "PodDisruptionBudget default/keep-a"},
		"secrets":         {func(w *world) { w.outcome = "secrets" }, ExitFailed, "/etc/kubernetes/azure.json"},
		"no way to join":  {func(w *world) { w.outcome = "nojoin" }, ExitFailed, "lets a clone join"},
		"snapshot denied": {func(w *world) { w.beginFails["create snapshot"] = []fleet.Kind{fleet.KindDenied} }, ExitFailed, "create snapshot"},
		"version fails":   {func(w *world) { w.opFails["create image version"] = 99 }, ExitFailed, "Failed"},
		"model lies":      {func(w *world) { w.liesEmpty["patch model"] = 99 }, ExitFailed, "patch model"},
		"stop lies":       {func(w *world) { w.liesEmpty["stop instance"] = 99 }, ExitFailed, "stop instance"},
		"attach fails":    {func(w *world) { w.opFails["attach disk"] = 99 }, ExitFailed, "attach disk"},
		"donor is lost":   {func(w *world) { w.neverBack = true }, ExitNeedsPerson, "kubectl uncordon"},
		"extension stays": {func(w *world) { w.liesEmpty["delete extension"] = 99 }, ExitNeedsPerson, "extension"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				c.spoil(w)
				e, _, ctx, _ := w.process(t, "a", 0)
				_, err := e.Capture(ctx, request())
				if ExitCode(err) != c.exit || !strings.Contains(err.Error(), c.says) {
					t.Fatalf("exit %d, %v", ExitCode(err), err)
				}
				if w.neverBack {
					if n := w.donor(); !n.Unschedulable || len(n.Annotations) > 0 || w.donorInstance().Protection != (fleet.Protection{}) {
						t.Errorf("a donor that is lost: unschedulable %v, annotations %v", n.Unschedulable, n.Annotations)
					}
					w.tidy(t)
					// A person brings it back; the same command puts the rest back and goes on.
					w.neverBack = false
					w.donor().Ready, w.donor().BootID = true, "boot-by-hand"
					e, _, ctx, _ := w.process(t, "b", 0)
					if _, err := e.Capture(ctx, request()); err != nil {
						t.Fatal(err)
					}
					w.live(t, today)
				}
				if c.exit == ExitFailed && w.pool.Model.Image.ID != "" {
					t.Errorf("the model was changed: %+v", w.pool.Model.Image)
				}
				w.whole(t)
				w.tidy(t)
			})
		})
	}
}

// TestBlockedDrainGivesBackAtOnce: within a second of giving up.
func TestBlockedDrainGivesBackAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.blocked = true
		e, _, ctx, seen := w.process(t, "a", 0)
		_, err := e.Capture(ctx, request())
		var gaveUp, back time.Time
		for _, ev := range seen.all {
			if ev.Step == prototype.StepDrain && ev.State == StepFailed {
				gaveUp = ev.At
			}
			if ev.Step == prototype.StepUncordon && ev.State == StepDone {
				back = ev.At
			}
		}
		if err == nil || gaveUp.IsZero() || back.IsZero() || back.Sub(gaveUp) > time.Second {
			t.Errorf("gave up at %s, uncordoned at %s: %v", gaveUp, back, err)
		}
		if w.stops != 0 {
			t.Errorf("the donor was stopped")
		}
	})
}

// TestCaptureSurvives: answers that lie and errors that pass change nothing.
func TestCaptureSurvives(t *testing.T) {
	for name, switches := range map[string]func(w *world){
		"no ZRS":                func(w *world) { w.noZRS = true },
		"version fails once":    func(w *world) { w.opFails["create image version"] = 1 },
		"extension delete lies": func(w *world) { w.liesEmpty["delete extension"] = 2 },
		"model says it failed":  func(w *world) { w.liesFailed["patch model"] = 1 },
		"pod is lost":           func(w *world) { w.outcome = "lost" },
		"start fails twice":     func(w *world) { w.opFails["start instance"] = 2 },
		"operations never end":  func(w *world) { w.hangs["create snapshot"], w.hangs["patch model"] = true, true },
		"throttled, conflicting": func(w *world) {
			for _, verb := range []string{"stop instance", "create snapshot", "create disk", "patch model", "start instance", "detach disk"} {
				w.beginFails[verb] = []fleet.Kind{fleet.KindThrottled, fleet.KindConflict, fleet.KindTransient}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				switches(w)
				e, _, ctx, _ := w.process(t, "a", 0)
				result, err := e.Capture(ctx, request())
				if err != nil {
					t.Fatal(err)
				}
				w.whole(t)
				w.tidy(t)
				w.live(t, today)
				if w.stops != 1 {
					t.Errorf("the donor was stopped %d times", w.stops)
				}
				if want := fleet.LRS; w.noZRS && w.versions[low(result.Version)].StorageType != want {
					t.Errorf("storage %s", w.versions[low(result.Version)].StorageType)
				}
			})
		})
	}
}

// TestInterrupted: wherever the caller stops it, the donor is given back before
// Capture returns, and the same command finishes.
func TestInterrupted(t *testing.T) {
	moments := []time.Duration{210 * time.Second, 213 * time.Second, 216 * time.Second, 219 * time.Second, 222 * time.Second, 225 * time.Second}
	for after := time.Second; after < 52*time.Minute; after += after/4 + 11*time.Second {
		moments = append(moments, after)
	}
	for _, after := range moments {
		t.Run(after.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				e, _, ctx, _ := w.process(t, "a", 0)
				ctx, cancel := context.WithTimeoutCause(ctx, after, context.Canceled)
				defer cancel()
				_, err := e.Capture(ctx, request())
				if err == nil {
					return
				}
				var interrupted *Interrupted
				if ExitCode(err) != ExitInterrupted || !errors.As(err, &interrupted) {
					t.Fatalf("exit %d: %v", ExitCode(err), err)
				}
				w.whole(t)
				if len(w.lease) > 0 || len(w.pods) > 0 || w.kured != "" {
					t.Errorf("left: Lease %v, pods %v, kured %q", w.lease, w.pods, w.kured)
				}
				for _, i := range w.instances {
					if len(i.DataDisks) > 0 {
						t.Errorf("a disk is left attached to %s", i.Name)
					}
				}
				e, _, ctx, _ = w.process(t, "b", 0)
				result, err := e.Capture(ctx, request())
				if err != nil || !result.Resumed && !result.NothingToDo && after > time.Minute {
					t.Fatalf("%+v, %v", result, err)
				}
				w.whole(t)
				w.tidy(t)
				w.live(t, today)
				if w.builds != 1 {
					t.Errorf("%d versions were built", w.builds)
				}
			})
		})
	}
}

// TestSecondCaptureSaysWhoHoldsIt, while the first is at work.
func TestSecondCaptureSaysWhoHoldsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		e, _, ctx, _ := w.process(t, "first", 0)
		done := make(chan error)
		go func() {
			_, err := e.Capture(ctx, request())
			done <- err
		}()
		time.Sleep(10 * time.Minute)
		other := request()
		other.Node = "pool1000002"
		second, _, ctx2, _ := w.process(t, "second", 0)
		begun := time.Now()
		_, err := second.Capture(ctx2, other)
		if ExitCode(err) != ExitRefused || !strings.Contains(err.Error(), "first/1 holds it since") {
			t.Errorf("exit %d: %v", ExitCode(err), err)
		}
		// One renewal has to be seen, and they are 15 s apart.
		if waited := time.Since(begun); waited > 18*time.Second {
			t.Errorf("it took %s to say so", waited)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
		w.whole(t)
		w.tidy(t)
		w.live(t, today)
	})
}

// TestAllProblemsAtOnce, and nothing changed.
func TestAllProblemsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.pool.UpgradeMode = fleet.Automatic
		w.pool.Model.EphemeralOS = true
		w.donorInstance().OSDisk = ""
		w.donor().Ready = false
		w.deniedAzure = []string{"Microsoft.Compute/snapshots/write"}
		e, p, ctx, _ := w.process(t, "a", 0)
		_, err := e.Capture(ctx, request())
		var refused *Refused
		if !errors.As(err, &refused) || ExitCode(err) != ExitRefused {
			t.Fatalf("exit %d: %v", ExitCode(err), err)
		}
		var codes []string
		for _, problem := range refused.Problems {
			codes = append(codes, problem.Code)
			if problem.WayOut == "" || problem.On == "" {
				t.Errorf("%+v names no way out", problem)
			}
		}
		slices.Sort(codes)
		if want := []string{"AutomaticUpgrade", "AzureDenied", "EphemeralDisk", "NodeNotReady"}; !slices.Equal(codes, want) {
			t.Errorf("problems %v, want %v", codes, want)
		}
		if len(p.trace) > 0 {
			t.Errorf("changed something: %v", p.trace)
		}
	})
}
