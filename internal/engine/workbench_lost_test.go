package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ortet/ortet/internal/fleet"
)

const benchName = "pool1000001"

// bench gives the instance and the Node that the tests' captures work on first.
func (w *world) bench() (*fleet.Instance, *fleet.Node) {
	return w.instances[low(instanceID(1))], w.nodes[benchName]
}

// every calls look once a second for so long.
func (w *world) every(d time.Duration, look func()) {
	for at := time.Second; at < d; at += time.Second {
		w.sabotage(at, look)
	}
}

// worksOn gives the instance that the copy of the disk is attached to, or "".
func (w *world) worksOn() fleet.ResourceID {
	for _, d := range w.disks {
		if d.Tags[fleet.TagCapture] != "" {
			return d.ManagedBy
		}
	}
	return ""
}

// TestWorkbenchIsProtected while the copy is attached to it, from both kinds of
// scale-in: Azure's, and the cluster's autoscaler's.
func TestWorkbenchIsProtected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		seen := 0
		w.every(20*time.Minute, func() {
			on := w.worksOn()
			if on == "" {
				return
			}
			seen++
			i := w.instances[low(on)]
			if !i.Protection.ScaleIn || i.Protection.ScaleSetActions || w.nodes[i.HostName].Annotations[fleet.AnnotationScaleDownDisabled] != "true" {
				t.Errorf("the workbench %s is protected %+v, annotated %v, with the copy attached", i.HostName, i.Protection, w.nodes[i.HostName].Annotations)
			}
		})
		e, _, ctx, _ := w.process(t, "a", 0)
		if _, err := e.Capture(ctx, request()); err != nil {
			t.Fatal(err)
		}
		if seen < 60 {
			t.Errorf("the copy was attached for %d s", seen)
		}
		w.whole(t)
		w.tidy(t)
		w.live(t, today)
	})
}

// TestWorkbenchFoundProtected: what others set is neither changed nor removed.
func TestWorkbenchFoundProtected(t *testing.T) {
	for _, found := range []fleet.Protection{{ScaleIn: true}, {ScaleIn: true, ScaleSetActions: true}, {Off: true}} {
		for _, annotation := range []string{"true", "false"} {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				i, n := w.bench()
				i.Protection = found
				n.Annotations[fleet.AnnotationScaleDownDisabled] = annotation
				e, _, ctx, _ := w.process(t, "a", 0)
				if _, err := e.Capture(ctx, request()); err != nil {
					t.Fatal(err)
				}
				if i.Protection != found || n.Annotations[fleet.AnnotationScaleDownDisabled] != annotation {
					t.Errorf("found %+v and %q, left %+v and %v", found, annotation, i.Protection, n.Annotations)
				}
				w.live(t, today)
			})
		}
	}
}

// TestKilledWithWorkbenchProtected: whoever comes next, with the same donor or with
// another, leaves the workbench as it was found.
func TestKilledWithWorkbenchProtected(t *testing.T) {
	world := func() *world {
		w := newWorld()
		i, n := w.bench()
		i.Protection = fleet.Protection{Off: true}
		n.Annotations[fleet.AnnotationScaleDownDisabled] = "false"
		return w
	}
	total, protected := boundaries(t, world, request()), 0
	for at := 1; at <= total; at++ {
		for _, donor := range []string{donorName, "pool1000002"} {
			synctest.Test(t, func(t *testing.T) {
				w := world()
				i, n := w.bench()
				e, p, ctx, _ := w.process(t, "killed", at)
				_, _ = e.Capture(ctx, request())
				if !p.dead || !i.Protection.ScaleIn && n.Annotations[fleet.AnnotationScaleDownDisabled] != "true" {
					return
				}
				protected++
				q := request()
				q.Node = donor
				e, _, ctx, _ = w.process(t, "next", 0)
				if _, err := e.Capture(ctx, q); err != nil {
					t.Errorf("killed %s: %v", p.trace[len(p.trace)-1], err)
				}
				if i.Protection != (fleet.Protection{Off: true}) || n.Annotations[fleet.AnnotationScaleDownDisabled] != "false" {
					t.Errorf("killed %s: the workbench is left %+v, %v", p.trace[len(p.trace)-1], i.Protection, n.Annotations)
				}
				w.tidy(t)
			})
		}
	}
	if protected < 20 {
		t.Errorf("the workbench was protected at %d deaths", protected)
	}
}

// stale answers the first read after each change of the instance as the read
// before it was answered.
type stale struct {
	cloudProc
	of   fleet.ResourceID
	last *fleet.Instance
	next *bool
}

func (s stale) Begin(ctx context.Context, c fleet.Change) (fleet.Token, error) {
	token, err := s.cloudProc.Begin(ctx, c)
	if c.Target().Equal(s.of) {
		*s.next = true
	}
	return token, err
}

func (s stale) Instance(ctx context.Context, id fleet.ResourceID) (fleet.Instance, error) {
	i, err := s.cloudProc.Instance(ctx, id)
	if err != nil || !id.Equal(s.of) {
		return i, err
	}
	old := *s.last
	*s.last = i
	if *s.next && old.ID != "" {
		*s.next = false
		return old, nil
	}
	return i, nil
}

// TestWorkbenchProtectionAndStaleReads: an answer of before a change neither keeps
// the workbench protected nor loses what others set.
func TestWorkbenchProtectionAndStaleReads(t *testing.T) {
	for _, found := range []fleet.Protection{{}, {Off: true}, {ScaleIn: true}} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld()
			i, _ := w.bench()
			i.Protection = found
			_, p, ctx, seen := w.process(t, "a", 0)
			// One that others changed just before: the first read is of before that.
			before := *i
			before.Protection = fleet.Protection{}
			e, err := New(Config{
				Cloud: stale{cloudProc{p}, i.ID, &before, new(found.ScaleIn)}, Cluster: clusterProc{p}, Logger: slog.New(slog.DiscardHandler),
				Reporter: seen, Version: "test", Image: "ortet:test", Namespace: "ortet", Holder: "a", Liveness: func(string) Liveness { return Unknown },
			})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := e.Capture(ctx, request()); err != nil {
				t.Fatal(err)
			}
			if i.Protection != found {
				t.Errorf("found %+v, left %+v", found, i.Protection)
			}
			w.tidy(t)
			w.live(t, today)
		})
	}
}

// reboot lets a node boot again: its pods end, and it is Ready half a minute later.
func (w *world) reboot(name string) {
	n := w.nodes[name]
	if n == nil {
		return
	}
	n.Ready, n.NotReadyWhy = false, "kubelet stopped posting"
	for job, q := range w.pods {
		if !q.done && !strings.HasSuffix(job, "-look") {
			w.pods[job] = &pod{command: q.command, done: true, exit: 137, why: "node rebooted"}
		}
	}
	w.in(30*time.Second, func() { n.Ready, n.BootID = true, "boot-again" })
}

var benchLosses = map[string]func(w *world){
	"deleted": func(w *world) { w.remove(benchName) },
	"off": func(w *world) {
		i, n := w.bench()
		i.Power, n.Ready, n.NotReadyWhy = fleet.PowerStopped, false, "kubelet stopped posting"
		for job, q := range w.pods {
			w.pods[job] = &pod{command: q.command}
		}
	},
	"rebooted": func(w *world) { w.reboot(benchName) },
	"drained": func(w *world) {
		_, n := w.bench()
		n.Unschedulable = true
		for job := range w.pods {
			delete(w.pods, job)
		}
	},
	"silent": func(w *world) {
		_, n := w.bench()
		n.Ready, n.NotReadyWhy = false, "kubelet stopped posting"
		for job, q := range w.pods {
			if !q.done {
				w.pods[job] = &pod{command: q.command}
			}
		}
	},
}

// TestWorkbenchIsLost while it works on the copy: the capture goes on from the
// snapshot on another one, and reports which was lost.
func TestWorkbenchIsLost(t *testing.T) {
	for name, lose := range benchLosses {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				lost := false
				w.every(10*time.Minute, func() {
					if on := w.worksOn(); !lost && on != "" && len(w.pods) > 0 {
						lost = true
						lose(w)
					}
				})
				e, _, ctx, seen := w.process(t, "a", 0)
				result, err := e.Capture(ctx, request())
				if err != nil {
					t.Fatalf("exit %d: %v", ExitCode(err), err)
				}
				w.whole(t)
				w.live(t, today)
				if w.stops != 1 || w.drained != 1 || w.builds != 1 || !lost {
					t.Errorf("lost %v, stopped %d, drained %d, built %d", lost, w.stops, w.drained, w.builds)
				}
				if notes := strings.Join(result.Notes, "\n"); !strings.Contains(notes, benchName) || !strings.Contains(notes, "pool1000002") {
					t.Errorf("the notes are %q", notes)
				}
				if !seen.mentions(benchName + " is lost") {
					t.Error("no progress reports which workbench was lost")
				}
				if i, n := w.bench(); i != nil && (i.Protection != (fleet.Protection{}) || len(n.Annotations) > 0 || len(i.DataDisks) > 0) {
					t.Errorf("the lost workbench is left %+v, %v", i, n.Annotations)
				}
			})
		})
	}
}

// TestDiskOfDeletedWorkbench: Azure has the copy attached to the deleted instance for a
// while longer. The capture reports what it waits for, and goes on.
func TestDiskOfDeletedWorkbench(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		lost := false
		w.every(10*time.Minute, func() {
			on := w.worksOn()
			if lost || on == "" || len(w.pods) == 0 {
				return
			}
			lost = true
			w.remove(benchName)
			for _, d := range w.disks {
				if d.Tags[fleet.TagCapture] != "" {
					d.ManagedBy = on
					w.in(5*time.Minute, func() { d.ManagedBy = "" })
				}
			}
		})
		e, _, ctx, seen := w.process(t, "a", 0)
		if _, err := e.Capture(ctx, request()); err != nil || !lost {
			t.Fatalf("lost %v, exit %d: %v", lost, ExitCode(err), err)
		}
		w.whole(t)
		w.live(t, today)
		if !seen.mentions("still has it attached to instance 1") {
			t.Error("no progress reports what the capture waits for")
		}
	})
}

func (s *events) mentions(text string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.all {
		if strings.Contains(e.Message, text) {
			return true
		}
	}
	return false
}

// TestWorkbenchIsLostAnyTime: deleted at any time, where there is another.
func TestWorkbenchIsLostAnyTime(t *testing.T) {
	for _, after := range sabotageTimes {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld()
			w.sabotage(after, func() { w.remove(benchName) })
			e, _, ctx, _ := w.process(t, "a", 0)
			if _, err := e.Capture(ctx, request()); err != nil {
				t.Errorf("deleted after %s: exit %d: %v", after, ExitCode(err), err)
			}
			w.whole(t)
			w.tidy(t)
			w.live(t, today)
		})
	}
}

// TestWorkbenchesAreBounded: where each is deleted as soon as it has the copy, three
// are enough.
func TestWorkbenchesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		for n := 3; n < 8; n++ {
			w.add(n)
		}
		w.every(time.Hour, func() {
			if i := w.instances[low(w.worksOn())]; i != nil {
				w.remove(i.HostName)
			}
		})
		e, _, ctx, _ := w.process(t, "a", 0)
		_, err := e.Capture(ctx, request())
		if ExitCode(err) != ExitFailed || !strings.Contains(fmt.Sprint(err), "pool1000001, pool1000002, pool1000003") {
			t.Errorf("exit %d: %v", ExitCode(err), err)
		}
		if len(w.instances) != 5 || w.stops != 1 {
			t.Errorf("%d instances of 8 are left, the donor was stopped %d times", len(w.instances), w.stops)
		}
		w.whole(t)
		w.tidy(t)
	})
}

// forgetful says of each instance once, when it is asked for the third time, that it
// is not there.
type forgetful struct {
	cloudProc
	asked map[string]int
}

func (f forgetful) Instance(ctx context.Context, id fleet.ResourceID) (fleet.Instance, error) {
	if f.asked[low(id)]++; f.asked[low(id)]%3 == 0 && id.Equal(instanceID(1)) {
		return fleet.Instance{}, &fleet.Error{Op: "get instance", Resource: string(id), Kind: fleet.KindNotFound, Err: errors.New("switched on")}
	}
	return f.cloudProc.Instance(ctx, id)
}

// TestWorkbenchIsThereAfterAll: a single answer that it is not there is not believed.
func TestWorkbenchIsThereAfterAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		_, p, ctx, seen := w.process(t, "a", 0)
		e, err := New(Config{
			Cloud: forgetful{cloudProc{p}, map[string]int{}}, Cluster: clusterProc{p}, Logger: slog.New(slog.DiscardHandler),
			Reporter: seen, Version: "test", Image: "ortet:test", Namespace: "ortet", Holder: "a", Liveness: func(string) Liveness { return Unknown },
		})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := e.Capture(ctx, request()); err != nil {
			t.Fatal(err)
		}
		if seen.mentions("is lost") {
			t.Error("the workbench was given up")
		}
		w.whole(t)
		w.tidy(t)
		w.live(t, today)
	})
}

// TestNullIsIgnored: where Azure does not remove a policy by null, it protects from
// nothing in the end.
func TestNullIsIgnored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.nullIgnored = true
		e, _, ctx, _ := w.process(t, "a", 0)
		if _, err := e.Capture(ctx, request()); err != nil {
			t.Fatal(err)
		}
		for _, i := range w.instances {
			if i.Protection.Protects() {
				t.Errorf("%s is left %+v", i.HostName, i.Protection)
			}
		}
		w.tidy(t)
		w.live(t, today)
	})
}

// TestOlderJournal: a capture that an older version began, which did not protect its
// workbench, is finished.
func TestOlderJournal(t *testing.T) {
	finished := 0
	for at := 60; at < 140; at += 5 {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld()
			e, p, ctx, _ := w.process(t, "killed", at)
			_, _ = e.Capture(ctx, request())
			rec, err := w.journals.Load(t.Context(), journalKey(poolID))
			if !p.dead || err != nil || rec.Ended != nil {
				return
			}
			w.mu.Lock()
			w.catchUp()
			i, n := w.bench()
			i.Protection = fleet.Protection{}
			delete(n.Annotations, fleet.AnnotationScaleDownDisabled)
			w.mu.Unlock()
			dropUndo(&rec, undoBench)
			f, err := factsOf(rec)
			if err != nil {
				t.Fatal(err)
			}
			f.Bench.BootID, f.Bench.Lost = "", nil
			if rec.Facts, err = json.Marshal(f); err != nil {
				t.Fatal(err)
			}
			if _, err := w.journals.Save(t.Context(), rec); err != nil {
				t.Fatal(err)
			}
			e, _, ctx, _ = w.process(t, "next", 0)
			if _, err := e.Capture(ctx, request()); err != nil {
				t.Errorf("killed %s: %v", p.trace[len(p.trace)-1], err)
			}
			finished++
			w.whole(t)
			w.tidy(t)
			w.live(t, today)
		})
	}
	if finished < 5 {
		t.Errorf("%d captures were finished", finished)
	}
}
