package simulate

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/watch"
	"github.com/ortet/ortet/internal/workflow"
)

func (w *world) badTags() map[string]string {
	return tagsOf(orEmpty(w.versions()[low(w.names.Definition.Child("versions", badVersion))]))
}

// bads are what a watch may do with bad nodes.
var bads = []string{watch.Cordon, watch.Delete}

// mend has the instances that are made from now on be good, after a while.
func (w *world) mend(slow time.Duration) {
	w.locked(func() { w.story.Pool.Bad, w.story.Pool.SlowBoot = "", slow })
}

// added scales the pool out, and returns the computers of the new instances.
func (w *world) added(t *testing.T, n int64) (all []*computer) {
	t.Helper()
	known := map[*computer]bool{}
	w.find(func(c *computer) bool { known[c] = true; return false })
	w.scaleOut(n)
	w.until(t, "scaled out", func() bool {
		all = nil
		w.find(func(c *computer) bool {
			if !known[c] {
				all = append(all, c)
			}
			return false
		})
		return len(all) == int(n)
	})
	return all
}

// A node of a version that was taken back is seen to also if it joins later than its limit, and one
// that passes meanwhile is given back without a trace.
func TestOutcomeLateNodesAreSeenTo(t *testing.T) {
	for _, bad := range bads {
		t.Run(bad, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(Story{Seed: 7, Pool: badPool("daemon", func(p *Pool) { p.SlowBoot = 6 * time.Minute }), Asks: []Ask{{Do: "capture", Grow: 2}, {Do: "watch"}}})
				defer w.finish()
				w.scaleOut(1) // by which a node's limit is ten minutes
				time.Sleep(10 * time.Minute)
				w.pursue(0, w.story.Asks[0])
				p := w.beginCommand(t, Ask{Do: "watch", Bad: bad})
				time.Sleep(10 * time.Minute)
				w.locked(func() { w.story.Pool.SlowBoot = 24 * time.Minute })
				late := w.added(t, 1)[0]
				w.mend(2 * time.Minute)
				good := w.added(t, 1)[0]
				schedulable := func(is bool) func() bool {
					return func() bool { n := w.kube.Node(good.node()); return n != nil && n.Spec.Unschedulable != is }
				}
				w.until(t, "cordoned, before it has passed", schedulable(false))
				w.until(t, "given back", schedulable(true))
				if n := w.kube.Node(good.node()); n.Annotations[fleet.AnnotationCordoned] != "" {
					time.Sleep(15 * time.Second)
				}
				w.changeNode("cordoned", good) // by a person, for work of their own
				w.await(p)
				p.ends(t, workflow.ExitFailed, watch.TakenBack)
				w.uncordon(good.node())
				time.Sleep(time.Hour)
				if n := w.kube.Node(late.node()); bad == watch.Delete && n != nil || bad == watch.Cordon && (n == nil || !n.Spec.Unschedulable) {
					t.Errorf("the node that joined late is %v", n)
				}
				switch n := w.kube.Node(good.node()); {
				case n == nil || n.Spec.Unschedulable:
					t.Errorf("the node that passed is %v", n)
				case n.Annotations[fleet.AnnotationCordoned] != "":
					t.Errorf("the node that passed is marked: %v", n.Annotations)
				}
			})
		})
	}
}

// A take-back that failed is gone on with at once, also where the bad nodes are gone by now.
func TestOutcomeFailedTakeBackIsGoneOnWith(t *testing.T) {
	inCaptured(t, badPool("no join", nil), 1, each(3, 4, patchModel, "refused"), func(t *testing.T, w *world) {
		w.do(t, Ask{Do: "watch"}).ends(t, workflow.ExitNeedsPerson, "", "still names "+badVersion)
		for _, c := range w.badComputers() {
			w.deleteInstances(w.pool, path.Base(c.ID))
		}
		time.Sleep(time.Hour)
		p := w.do(t, Ask{Do: "watch"})
		p.ends(t, workflow.ExitFailed, watch.TakenBack, "new nodes come from 1999.12.25")
		if took := w.chosenAt.Sub(p.began); took > 5*time.Minute {
			t.Errorf("the version stayed live for %s", took)
		}
	})
}

// A version that a person brings back, and that is watched again, is taken back again if it fails, and
// proven if what failed it was mended.
func TestOutcomeVersionIsWatchedAgain(t *testing.T) {
	for _, mended := range []bool{false, true} {
		name := map[bool]string{false: "bad as before", true: "mended"}[mended]
		t.Run(name, func(t *testing.T) {
			inCaptured(t, badPool("daemon", nil), 2, nil, func(t *testing.T, w *world) {
				w.do(t, Ask{Do: "watch", Bad: watch.Delete}).ends(t, workflow.ExitFailed, watch.TakenBack)
				if back := w.do(t, Ask{Do: "rollback", To: badVersion}); back.code() != 0 {
					t.Fatal(back.err)
				}
				if mended {
					w.mend(0)
				}
				p := w.beginCommand(t, Ask{Do: "watch"})
				time.Sleep(time.Minute)
				w.scaleOut(2)
				if w.await(p); mended {
					p.ends(t, workflow.ExitDone, watch.Proven)
				} else {
					p.ends(t, workflow.ExitFailed, watch.TakenBack, "new nodes come from 1999.12.25")
				}
			})
		})
	}
}

// What an earlier watch found counts no longer once the version was left, mended and brought back,
// also if the watch after that is killed.
func TestOutcomeEarlierFindingsEndWithRollback(t *testing.T) {
	inCaptured(t, badPool("no join", nil), 1, nil, func(t *testing.T, w *world) {
		p := w.beginCommand(t, Ask{Do: "watch"})
		time.Sleep(20 * time.Minute) // one has failed, which is saved
		p.die()
		for _, c := range w.badComputers() {
			w.deleteInstances(w.pool, path.Base(c.ID))
		}
		w.mend(0)
		time.Sleep(2 * leaseFor)
		for _, to := range []string{"", badVersion} {
			if back := w.do(t, Ask{Do: "rollback", To: to}); back.code() != 0 {
				t.Fatal(back.err)
			}
		}
		p = w.beginCommand(t, Ask{Do: "watch"})
		time.Sleep(time.Minute)
		p.die()
		time.Sleep(2 * leaseFor)
		w.scaleOut(2)
		p = w.do(t, Ask{Do: "watch"})
		p.ends(t, workflow.ExitDone, watch.Proven)
		if notes := strings.Join(p.watch.Notes, "\n"); strings.Contains(notes, "an earlier watch found") {
			t.Error(notes)
		}
	})
}

// An instance that its owners protect stays, cordoned, and what cannot be seen to is a person's.
func TestOutcomeBadNodesThatStay(t *testing.T) {
	t.Run("protected", func(t *testing.T) {
		inCaptured(t, badPool("daemon", nil), 2, nil, func(t *testing.T, w *world) {
			kept := w.badComputers()[0]
			w.setProtectionOf(fleet.ResourceID(kept.ResourceID), false)
			p := w.do(t, Ask{Do: "watch", Bad: watch.Delete})
			p.ends(t, workflow.ExitFailed, watch.TakenBack, "kubectl uncordon "+kept.node())
			time.Sleep(time.Hour)
			if n := w.kube.Node(kept.node()); n == nil || !n.Spec.Unschedulable || len(w.badComputers()) != 1 {
				t.Errorf("the protected node is %v, of %d that are left", n, len(w.badComputers()))
			}
		})
	})
	t.Run("cordoned by a person, and without a Node", func(t *testing.T) { // the judge reads what is said of them
		inCaptured(t, badPool("daemon", nil), 3, nil, func(t *testing.T, w *world) {
			theirs := w.badComputers()[0]
			w.changeNode("cordoned", theirs)
			p := w.beginCommand(t, Ask{Do: "watch"})
			w.locked(func() { w.story.Pool.SlowBoot = 24 * time.Hour })
			w.added(t, 1)
			w.await(p)
			p.ends(t, workflow.ExitFailed, watch.TakenBack)
			if strings.Contains(p.err.Error(), theirs.node()) {
				t.Errorf("%s is named, which a person cordoned: %v", theirs.node(), p.err)
			}
		})
	})
	t.Run("deletion refused", func(t *testing.T) {
		refused := at("azure POST virtualMachineScaleSets/"+poolName+"/delete", 1, "refused")
		inCaptured(t, badPool("daemon", nil), 2, refused, func(t *testing.T, w *world) {
			p := w.do(t, Ask{Do: "watch", Bad: watch.Delete})
			p.ends(t, workflow.ExitNeedsPerson, watch.TakenBack, "not all nodes of "+badVersion+" were seen to; ortet watch pool1 continues", "new nodes come from 1999.12.25")
			w.do(t, Ask{Do: "watch", Bad: watch.Delete}).ends(t, workflow.ExitFailed, watch.TakenBack)
			if left := w.badComputers(); len(left) > 0 {
				t.Errorf("%d bad machines are left", len(left))
			}
		})
	})
}

// A node that joins while others are drained is drained, too, before any is deleted: the judge sees to
// that.
func TestOutcomeNodeThatJoinsDuringDrains(t *testing.T) {
	inCaptured(t, badPool("daemon", func(p *Pool) { p.PodsTake = 40 * time.Second }), 2, nil, func(t *testing.T, w *world) {
		busy := w.badComputers()[0].node()
		w.putPod(busy, "web", w.nextPod(), nil)
		p := w.beginCommand(t, Ask{Do: "watch", Bad: watch.Delete})
		time.Sleep(time.Minute)
		w.locked(func() { w.story.Pool.SlowBoot = 6 * time.Hour }) // it joins as this test has it
		late := w.added(t, 1)[0]
		w.until(t, "drained", func() bool {
			n := w.kube.Node(busy)
			return n == nil || slices.ContainsFunc(w.evictable(busy), func(p *corev1.Pod) bool { return p.DeletionTimestamp != nil }) && n.Spec.Unschedulable
		})
		w.report(late, w.lifeOf(late), true)
		w.await(p)
		p.ends(t, workflow.ExitFailed, watch.TakenBack)
		if len(w.violations) > 0 || w.kube.Node(late.node()) != nil {
			t.Errorf("%v; the node that joined during drains: %v", w.violations, w.kube.Node(late.node()))
		}
	})
}

// The watch of a version that is named sees to that one, also where the take-back of an earlier one was
// not finished.
func TestOutcomeWatchOfNamedVersion(t *testing.T) {
	inCaptured(t, badPool("daemon", nil), 2, nil, func(t *testing.T, w *world) {
		p := w.beginCommand(t, Ask{Do: "watch"})
		w.until(t, "taken back", func() bool { holder, _ := w.holder(); return w.live() != badVersion && holder == "" && w.quarantined() })
		p.die()
		if w.badTags()[fleet.TagWatch] == "" {
			t.Fatal("the take-back was finished")
		}
		named := w.do(t, Ask{Do: "watch", To: "1999.12.25"})
		named.ends(t, workflow.ExitDone, watch.Proven) // by nodes that are there
		if v := named.watch.Version.Name(); v != "1999.12.25" {
			t.Errorf("watched %s", v)
		}
		w.do(t, Ask{Do: "watch"}).ends(t, workflow.ExitFailed, watch.TakenBack, "new nodes come from 1999.12.25")
	})
}

// A watch with another --for, or with the wrong clock, continues the earlier one, and says so.
func TestOutcomeWatchContinuesAnEarlierOne(t *testing.T) {
	for _, with := range []time.Duration{10 * time.Minute, 6 * time.Hour} {
		t.Run(with.String(), func(t *testing.T) {
			inCaptured(t, badPool("", nil), 0, nil, func(t *testing.T, w *world) {
				first := w.beginCommand(t, Ask{Do: "watch", For: time.Hour})
				time.Sleep(20 * time.Minute)
				first.die()
				begun, _, _ := strings.Cut(w.badTags()[fleet.TagWatch], " ")
				p := w.do(t, Ask{Do: "watch", For: with})
				since, _ := time.Parse(time.RFC3339, begun)
				p.ends(t, workflow.ExitDone, watch.Unproven, "continues the watch that began at "+begun+": 2 nodes within 1h0m0s")
				if took := time.Since(since); took < time.Hour || took > time.Hour+time.Minute || !p.watch.Since.Equal(since) {
					t.Errorf("it ends %s after the begin of the earlier one, %s", took, since)
				}
			})
		})
	}
}

// A watch that continues another one needs as many nodes as that was asked for.
func TestOutcomeWatchContinuesWithItsNodes(t *testing.T) {
	for need, outcome := range map[int]watch.Outcome{1: watch.Unproven, 4: watch.Proven} {
		t.Run(fmt.Sprint(need), func(t *testing.T) {
			inCaptured(t, badPool("", nil), 0, nil, func(t *testing.T, w *world) {
				first := w.beginCommand(t, Ask{Do: "watch", For: time.Hour, Need: 3})
				time.Sleep(20 * time.Minute)
				first.die()
				p := w.beginCommand(t, Ask{Do: "watch", Need: need})
				w.scaleOut(map[watch.Outcome]int64{watch.Unproven: 1, watch.Proven: 3}[outcome])
				begun := time.Now()
				w.await(p)
				p.ends(t, workflow.ExitDone, watch.Proven, "3 nodes within 1h0m0s")
				if early := time.Since(begun) < 30*time.Minute; early != (outcome == watch.Proven) {
					t.Errorf("it ends after %s: %s", time.Since(begun), p.watch.Why)
				}
			})
		})
	}
}

// A watch that begins long after its version was published gives nodes the time that it was asked for.
func TestOutcomeWatchOfAnOldVersion(t *testing.T) {
	inCaptured(t, badPool("", nil), 0, nil, func(t *testing.T, w *world) {
		time.Sleep(day)
		p := w.beginCommand(t, Ask{Do: "watch"})
		time.Sleep(10 * time.Minute)
		w.scaleOut(2)
		w.await(p)
		p.ends(t, workflow.ExitDone, watch.Proven)
	})
}

// Nodes that are late by an outage of the API server are no fault of the image, whatever the laptop's
// clock is.
func TestOutcomeOutageIsNoFaultOfTheImage(t *testing.T) {
	for _, ahead := range []time.Duration{0, -time.Hour} {
		t.Run(ahead.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := watched("", watch.Cordon)
				s.Asks[0].Grow, s.Asks[1].Ahead = 0, ahead
				w := newWorld(s)
				defer w.finish()
				w.pursue(0, s.Asks[0])
				p := w.beginCommand(t, s.Asks[1])
				time.Sleep(time.Minute)
				w.scaleOut(2)
				until := time.Now().Add(19 * time.Minute)
				w.locked(func() { w.down["kube"], w.story.Pool.SlowBoot = until, 18*time.Minute })
				w.await(p)
				p.ends(t, workflow.ExitDone, watch.Unproven)
				if w.live() != badVersion {
					t.Errorf("the model names %s", w.live())
				}
			})
		})
	}
}
