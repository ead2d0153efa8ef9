package events

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"
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
	})
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
				if h.By != ByKubelet || !h.Done || h.ClearedAt.Sub(began) > 6*time.Second {
					t.Errorf("kept: %+v", h)
				}
				if got := w.azure.acknowledged(); len(got) != 1 {
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
