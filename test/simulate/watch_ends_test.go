package simulate

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/watch"
	"github.com/ortet/ortet/internal/workflow"
)

// meets has the next requests of a name meet an event, n of them.
func (w *world) meets(n int, request, what string) {
	w.locked(func() {
		w.pending = append(w.pending, each(w.counts[request]+1, w.counts[request]+n, request, what)...)
	})
}

// hold has another process take the pool's lock for a while, and renew it until then.
func (w *world) hold(t *testing.T, ttl, until time.Duration) {
	t.Helper()
	config, err := w.config("another", w.azure.Transport(), w.kube, nil)
	if err == nil {
		_, err = config.Cluster.Hold(w.ctx, strings.ToLower(string(w.pool)), "another", ttl)
	}
	if err != nil {
		t.Fatal(err)
	}
	if until > ttl/2 {
		w.after(ttl/2, func() { w.hold(t, ttl, until-ttl/2) })
	}
}

// nodesCordoned reports whether all nodes of bad computers are cordoned.
func (w *world) allCordoned() bool { return len(w.cordonedNodes()) == len(w.badComputers()) }

// A version that a person left and brought back while the watch's laptop slept is the person's, whatever
// its nodes show then.
func TestOutcomeVersionBroughtBackWhileTheWatchSleeps(t *testing.T) {
	inCaptured(t, badPool("daemon", nil), 2, nil, func(t *testing.T, w *world) {
		p := w.beginCommand(t, Ask{Do: "watch"})
		time.Sleep(time.Minute)
		p.suspend(2 * time.Hour)
		for _, to := range []string{"", badVersion} {
			if back := w.do(t, Ask{Do: "rollback", To: to}); back.code() != 0 {
				t.Fatal(back.err)
			}
		}
		w.await(p)
		p.ends(t, workflow.ExitNeedsPerson, watch.StoodDown, "is quarantined: ", "names it again, by rollback ", "the watch leaves model and nodes as they are")
		if w.live() != badVersion || len(w.cordonedNodes()) > 0 || w.badTags()[fleet.TagQuarantine] != "" {
			t.Errorf("the model has %s; %v are cordoned; its version has %v", w.live(), w.cordonedNodes(), w.badTags())
		}
	})
}

// A version that others choose again as the rollback of its take-back ends is theirs: it is not
// quarantined.
func TestOutcomeVersionChosenAsItsTakeBackEnds(t *testing.T) {
	inCaptured(t, badPool("daemon", nil), 2, nil, func(t *testing.T, w *world) {
		p := w.beginCommand(t, Ask{Do: "watch"})
		w.until(t, "taken back", func() bool { return w.live() != badVersion && w.badTags()[fleet.TagRolledBack] != "" })
		w.meets(1, "kube DELETE ortet-system/leases/ortet-pool1-fd34c415d62c", "person brings the version back")
		w.await(p)
		p.ends(t, workflow.ExitNeedsPerson, watch.StoodDown, "names it again, by a program without a record")
		if w.live() != badVersion || w.badTags()[fleet.TagQuarantine] != "" {
			t.Errorf("the model has %s; its version has %v", w.live(), w.badTags())
		}
	})
}

// Ctrl-C while a take-back waits for another command's lock, or while bad nodes are drained, leaves
// what ortet watch continues.
func TestOutcomeInterruptedTakeBackIsContinued(t *testing.T) {
	for name, ttl := range map[string]time.Duration{"at a lock": 40 * time.Minute, "at a lock that is renewed": time.Minute} {
		t.Run(name, func(t *testing.T) {
			inCaptured(t, badPool("daemon", nil), 2, nil, func(t *testing.T, w *world) {
				w.hold(t, ttl, 40*time.Minute)
				p := w.beginCommand(t, Ask{Do: "watch"})
				w.until(t, "failed", func() bool { return len(w.cordonedNodes()) > 0 })
				time.Sleep(time.Minute)
				p.interrupt()
				w.await(p)
				p.ends(t, workflow.ExitInterrupted, "", "interrupted, ortet watch pool1 continues the watch")
				if w.live() != badVersion {
					t.Errorf("the model names %s", w.live())
				}
				time.Sleep(time.Hour)
				w.do(t, Ask{Do: "watch"}).ends(t, workflow.ExitFailed, watch.TakenBack, "new nodes come from 1999.12.25")
			})
		})
	}
	t.Run("in a drain", func(t *testing.T) {
		inCaptured(t, badPool("daemon", func(p *Pool) { p.PodsTake = 40 * time.Second }), 2, nil, func(t *testing.T, w *world) {
			busy := w.badComputers()[0].node()
			w.putPod(busy, "web", w.nextPod(), nil)
			p := w.beginCommand(t, Ask{Do: "watch", Bad: watch.Delete})
			w.until(t, "drained", func() bool {
				return w.live() != badVersion && slices.ContainsFunc(w.evictable(busy), func(p *corev1.Pod) bool { return p.DeletionTimestamp != nil })
			})
			begun := time.Now()
			p.interrupt()
			w.await(p)
			p.ends(t, workflow.ExitNeedsPerson, watch.TakenBack, "not all nodes of "+badVersion+" were seen to; ortet watch pool1 continues")
			if took := time.Since(begun); took > 10*time.Second || len(w.badComputers()) != 2 {
				t.Errorf("it ends %s after Ctrl-C, and leaves %d bad machines", took, len(w.badComputers()))
			}
			w.do(t, Ask{Do: "watch", Bad: watch.Delete}).ends(t, workflow.ExitFailed, watch.TakenBack)
			if left := w.badComputers(); len(left) > 0 {
				t.Errorf("%d bad machines are left", len(left))
			}
		})
	})
}

// Tags of the version that are refused keep no watch from the end of its take-back: the outcome names them.
func TestOutcomeRefusedTagsOfATakeBack(t *testing.T) {
	const patch = "azure PATCH " + definition + "/versions/" + badVersion
	for name, c := range map[string]struct {
		refused, exit int // refused: after that of the begin
		says          string
		lacks         string
	}{
		"of the rollback":         {1, workflow.ExitFailed, "the rollback did not end well: step tag: ", ""},
		"of the quarantine":       {2, workflow.ExitFailed, badVersion + " could not be tagged as quarantined: ", fleet.TagQuarantine},
		"of the end of the watch": {3, workflow.ExitNeedsPerson, "not all nodes of " + badVersion + " were seen to; ortet watch pool1 continues", ""},
	} {
		t.Run(name, func(t *testing.T) {
			inCaptured(t, badPool("daemon", nil), 2, nil, func(t *testing.T, w *world) {
				p := w.beginCommand(t, Ask{Do: "watch"})
				w.until(t, "begun", func() bool { return w.badTags()[fleet.TagWatch] != "" })
				w.locked(func() { w.pending = append(w.pending, at(patch, w.counts[patch]+c.refused, "refused")...) })
				w.await(p)
				p.ends(t, c.exit, watch.TakenBack, c.says, "new nodes come from 1999.12.25")
				for _, tag := range []string{fleet.TagRolledBack, fleet.TagQuarantine} {
					if is := w.badTags()[tag] != ""; is == (tag == c.lacks) {
						t.Errorf("the version has %s: %t", tag, is)
					}
				}
				if c.exit == workflow.ExitNeedsPerson {
					w.do(t, Ask{Do: "watch"}).ends(t, workflow.ExitFailed, watch.TakenBack, "new nodes come from 1999.12.25")
				}
			})
		})
	}
}

// With --bad-nodes leave a take-back leaves nodes as they are, and names none as cordoned.
func TestOutcomeBadNodesAreLeft(t *testing.T) {
	inCaptured(t, badPool("daemon", nil), 2, nil, func(t *testing.T, w *world) {
		p := w.do(t, Ask{Do: "watch", Bad: watch.Leave})
		p.ends(t, workflow.ExitFailed, watch.TakenBack, "new nodes come from 1999.12.25")
		if cordoned := w.cordonedNodes(); len(cordoned) > 0 || len(w.badComputers()) != 2 || strings.Contains(fmt.Sprint(p.err), "uncordon") {
			t.Errorf("%v are cordoned, %d are left: %v", cordoned, len(w.badComputers()), p.err)
		}
		for _, c := range w.badComputers() {
			if mark := w.kube.Node(c.node()).Annotations[fleet.AnnotationCordoned]; mark != "" {
				t.Errorf("%s is marked: %s", c.node(), mark)
			}
		}
	})
}

// A bad node that the API server does not let be cordoned is a person's, and the next watch's.
func TestOutcomeCordonIsRefused(t *testing.T) {
	inCaptured(t, badPool("daemon", nil), 2, nil, func(t *testing.T, w *world) {
		node := w.badComputers()[0].node()
		w.meets(9, "kube PATCH nodes/"+node, "forbidden")
		p := w.do(t, Ask{Do: "watch"})
		p.ends(t, workflow.ExitNeedsPerson, watch.TakenBack, "not all nodes of "+badVersion+" were seen to; ortet watch pool1 continues", "new nodes come from 1999.12.25")
		if w.allCordoned() {
			t.Error("all are cordoned")
		}
		w.locked(func() { w.pending = nil })
		w.do(t, Ask{Do: "watch"}).ends(t, workflow.ExitFailed, watch.TakenBack, "kubectl uncordon ")
		if !w.allCordoned() {
			t.Errorf("only %v are cordoned", w.cordonedNodes())
		}
	})
}

// Machines are not deleted while another process has the pool's lock, but once it has not.
func TestOutcomeDeletionWaitsForTheLock(t *testing.T) {
	inCaptured(t, badPool("daemon", func(p *Pool) { p.PodsTake = 40 * time.Second }), 2, nil, func(t *testing.T, w *world) {
		busy := w.badComputers()[0].node()
		w.putPod(busy, "web", w.nextPod(), nil)
		p := w.beginCommand(t, Ask{Do: "watch", Bad: watch.Delete})
		w.until(t, "drained", func() bool {
			return w.live() != badVersion && slices.ContainsFunc(w.evictable(busy), func(p *corev1.Pod) bool { return p.DeletionTimestamp != nil })
		})
		w.hold(t, 10*time.Minute, 0)
		time.Sleep(9 * time.Minute)
		if left := len(w.badComputers()); left != 2 {
			t.Errorf("%d of 2 are left while another process has the lock", left)
		}
		w.await(p)
		p.ends(t, workflow.ExitFailed, watch.TakenBack)
		if left := len(w.badComputers()); left > 0 {
			t.Errorf("%d bad machines are left", left)
		}
	})
}

// A finding that cannot be saved while another process has the lock is saved once it has not: it outlives
// its node. Those that passed are not said to be found.
func TestOutcomeFindingIsSavedLater(t *testing.T) {
	inCaptured(t, badPool("no join", nil), 1, nil, func(t *testing.T, w *world) {
		bad := w.badComputers()
		w.mend(0)
		p := w.beginCommand(t, Ask{Do: "watch", Need: 5, For: 2 * time.Hour})
		time.Sleep(time.Minute)
		w.added(t, 1)
		w.hold(t, 25*time.Minute, 0)
		time.Sleep(20 * time.Minute)
		w.deleteInstances(w.pool, fleet.ResourceID(bad[0].ResourceID).Name())
		time.Sleep(10 * time.Minute)
		p.die()
		time.Sleep(2 * leaseFor)
		again := w.beginCommand(t, Ask{Do: "watch"})
		time.Sleep(5 * time.Minute)
		w.locked(func() { w.story.Pool.Bad = "no join" })
		w.added(t, 1)
		w.await(again)
		if n := strings.Count(strings.Join(p.watch.Notes, "\n"), "is not saved yet: "); n != 1 {
			t.Errorf("it says %d times that the finding is not saved: %q", n, p.watch.Notes)
		}
		again.ends(t, workflow.ExitFailed, watch.TakenBack, "an earlier watch found: ")
		if n := strings.Count(strings.Join(again.watch.Notes, "\n"), "an earlier watch found: "); n != 1 {
			t.Errorf("it names %d findings of the earlier watch: %q", n, again.watch.Notes)
		}
	})
}

// A scale set that is deleted ends its watch, and one that names no version of the pool's has none.
func TestOutcomeNothingToWatch(t *testing.T) {
	t.Run("scale set deleted", func(t *testing.T) {
		inCaptured(t, badPool("", nil), 0, nil, func(t *testing.T, w *world) {
			p := w.beginCommand(t, Ask{Do: "watch"})
			time.Sleep(time.Minute)
			w.make(http.MethodDelete, w.pool, computeAPI, nil)
			w.await(p)
			if p.code() != workflow.ExitDone || p.watch.Outcome != watch.StoodDown || p.watch.Why != "the version or the scale set was deleted" {
				t.Errorf("exit %d and %s: %s, %v", p.code(), p.watch.Outcome, p.watch.Why, p.err)
			}
		})
	})
	t.Run("no version", func(t *testing.T) {
		s := Story{Seed: 1, Pool: fresh, Asks: []Ask{{Do: "watch", Once: true, Exit: 3}}, Cannot: "NotAPrototype"}
		if r := play(t, s); len(r.violations) > 0 {
			t.Error(explain(s, r))
		}
	})
}

// A watch whose way back passes over a version says so as it begins.
func TestOutcomeWayBackOfAWatchIsNamed(t *testing.T) {
	inCaptured(t, with(func(p *Pool) { p.Forged = true }), 0, nil, func(t *testing.T, w *world) {
		time.Sleep(day)
		w.do(t, Ask{Do: "capture", Baked: true})
		p := w.do(t, Ask{Do: "watch", Alone: true})
		p.ends(t, workflow.ExitDone, watch.Unproven, "if its nodes fail, the way back passes over "+badVersion)
	})
}
