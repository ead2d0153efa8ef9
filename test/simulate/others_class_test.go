package simulate

import (
	"context"
	"fmt"
	"path"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ortet/ortet/internal/cluster"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/capture"
	"github.com/ortet/ortet/internal/image/plan"
	"github.com/ortet/ortet/internal/image/rollback"
	"github.com/ortet/ortet/internal/image/watch"
	"github.com/ortet/ortet/internal/workflow"
)

// A person who rolls back ends a watch that has not decided, at once and without a finding: nothing more
// is changed, whether nodes are on their way or not.
func TestOutcomeRollbackOfAPersonEndsTheWatch(t *testing.T) {
	for name, c := range map[string]struct {
		bad string
		to  string
	}{"no nodes": {"", ""}, "good nodes": {"", "1999.12.18"}, "bad nodes": {"no join", ""}} {
		t.Run(name, func(t *testing.T) {
			pool := badPool(c.bad, func(p *Pool) { p.SlowBoot = 2 * time.Minute })
			inCaptured(t, pool, map[bool]int64{true: 2}[name != "no nodes"], nil, func(t *testing.T, w *world) {
				p := w.beginCommand(t, Ask{Do: "watch", Need: 5})
				time.Sleep(time.Minute)
				back := w.do(t, Ask{Do: "rollback", To: c.to})
				ended, live := time.Now(), w.imageNow()
				if back.code() != 0 || path.Base(live) == badVersion {
					t.Fatalf("the rollback ends with %d, and the model names %s: %v", back.code(), live, back.err)
				}
				w.await(p)
				p.ends(t, workflow.ExitDone, watch.StoodDown)
				if took := time.Since(ended); took > 2*time.Minute || !strings.Contains(p.watch.Why, "by now") {
					t.Errorf("it ends %s after the rollback: %q", took, p.watch.Why)
				}
				if w.imageNow() != live || len(w.cordonedNodes()) > 0 || w.badTags()[fleet.TagQuarantine] != "" {
					t.Errorf("the model names %s, %q are cordoned, and the version has %v", w.imageNow(), w.cordonedNodes(), w.badTags())
				}
			})
		})
	}
}

// A version that is deleted after its capture and before its watch has seen it is a person's: the model
// names nothing that new nodes could be made of.
func TestOutcomeVersionDeletedBeforeItsWatch(t *testing.T) {
	inCaptured(t, badPool("", nil), 0, nil, func(t *testing.T, w *world) {
		id := w.names.Definition.Child("versions", badVersion)
		w.deleted(id, galleryAPI)
		w.until(t, "deleted", func() bool { return w.versions()[low(id)] == nil })
		p := w.do(t, Ask{Do: "watch", To: badVersion})
		p.ends(t, workflow.ExitNeedsPerson, watch.StoodDown, "the model names "+badVersion+", which was deleted", "ortet rollback pool1 goes back")
	})
}

// noAccess is a cluster that allows nothing of what it is asked for.
type noAccess struct{ cluster.Cluster }

func (noAccess) Denied(_ context.Context, all []cluster.Access) ([]cluster.Access, error) {
	return all, nil
}

// Rights in the cluster that lack are named by each command before it changes anything.
func TestOutcomeLackingAccessIsNamed(t *testing.T) {
	inCaptured(t, badPool("", nil), 0, nil, func(t *testing.T, w *world) {
		config, changes := w.of(t, namespace)
		needs := []cluster.Access{{Verb: "patch", Resource: "nodes"}}
		config.Cluster, config.Accesses = noAccess{config.Cluster}, func(fleet.ResourceID) []cluster.Access { return needs }
		captures, rollbacks := capture.New(config), rollback.New(config)
		_, captured := captures.Capture(t.Context(), capture.Request{Node: w.nodeName(0), Again: true})
		_, back := rollbacks.Rollback(t.Context(), rollback.Request{Pool: w.pool, WithoutLearned: true})
		_, watched := (&watch.Service{Config: config, Rollback: rollbacks}).Watch(t.Context(), watch.Request{Pool: w.pool, For: time.Hour, Nodes: 1})
		for what, err := range map[string]error{"capture": captured, "rollback": back, "watch": watched} {
			if !workflow.RefusedFor(err, "ClusterDenied") || !strings.Contains(err.Error(), needs[0].String()) {
				t.Errorf("a %s without rights in the cluster: %v", what, err)
			}
		}
		if n := changes(); n > 0 || w.badTags()[fleet.TagWatch] != "" {
			t.Errorf("%d changes, and the version has %v", n, w.badTags())
		}
	})
}

// A capture of the same version that wishes for more nodes adds those that are missing; one that wishes
// for fewer adds none.
func TestOutcomeWishForMoreNodesIsMet(t *testing.T) {
	for _, wishes := range [][2]int64{{1, 3}, {2, 3}, {3, 1}, {2, 2}} {
		t.Run(fmt.Sprint(wishes), func(t *testing.T) {
			t.Parallel()
			s := Story{Seed: 1, Pool: fresh, Asks: []Ask{{Do: "capture", Grow: wishes[0]}, {Do: "capture", Grow: wishes[1]}}}
			asked(t, s, func(w *world, ps []*process) {
				want := int64(s.Pool.Instances) + max(wishes[0], wishes[1])
				if now := w.modelNow().capacity; now != want || ps[1].code() != workflow.ExitDone {
					t.Errorf("exit %d and capacity %d, want %d: %q, %q", ps[1].code(), now, want, ps[1].newNodes(), ps[1].capture.Notes)
				}
				if wishes[1] > wishes[0] && int64(strings.Count(ps[1].newNodes(), "true")) != wishes[1] {
					t.Errorf("new nodes %q of %d", ps[1].newNodes(), wishes[1])
				}
			})
		})
	}
}

// A rollback that did not finish after the model is finished by the same command, by whichever name
// of its target.
func TestOutcomeUnfinishedRollbackByAnyName(t *testing.T) {
	for _, by := range []string{"", plan.Previous, "its name"} {
		t.Run(by, func(t *testing.T) {
			played(t, func(l ledger) {
				var versions []string
				for range 3 {
					l.run(0, Ask{Do: "capture"})
					versions = append(versions, l.live())
					time.Sleep(day)
				}
				l.next("azure PATCH "+definition+"/versions/"+versions[2], "refused")
				l.run(4, Ask{Do: "rollback"})
				to := by
				if by == "its name" {
					to = versions[1]
				}
				l.run(0, Ask{Do: "rollback", To: to})
				l.wants(versions[1], "the same rollback")
				if l.tag(versions[2], fleet.TagRolledBack) == "" {
					t.Errorf("%s, which was left, is not tagged as rolled back", versions[2])
				}
			})
		})
	}
}

// A version that a person brings back while its take-back is unfinished has no mark of what was decided
// before, and its next watch begins again.
func TestOutcomeVersionBroughtBackHasNoMarks(t *testing.T) {
	inCaptured(t, badPool("daemon", nil), 2, nil, func(t *testing.T, w *world) {
		p := w.beginCommand(t, Ask{Do: "watch"})
		w.until(t, "taken back", func() bool { holder, _ := w.holder(); return w.live() != badVersion && holder == "" && w.quarantined() })
		p.die()
		time.Sleep(2 * leaseFor)
		if back := w.do(t, Ask{Do: "rollback", To: badVersion}); back.code() != 0 {
			t.Fatal(back.err)
		}
		for _, tag := range []string{fleet.TagRolledBack, fleet.TagQuarantine, fleet.TagWatch, fleet.TagCanary, fleet.TagNotLive, fleet.TagPublished} {
			if value := w.badTags()[tag]; value != "" {
				t.Errorf("%s is %q", tag, value)
			}
		}
		w.mend(0)
		begun := time.Now().Truncate(time.Second)
		if again := w.do(t, Ask{Do: "watch"}); again.watch.Since.Before(begun) {
			t.Errorf("the watch after it began at %s, before %s", again.watch.Since, begun)
		}
	})
}

// Status says of a process that was killed that it works as long as its lock holds, and then that the same
// command resumes its run.
func TestOutcomeStatusOfAKilledProcess(t *testing.T) {
	for request, ask := range map[string]Ask{powerOff: {Do: "capture", Once: true}, patchModel: {Do: "rollback", Once: true}} {
		t.Run(ask.Do, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(Story{Seed: 1, Pool: usual, Happen: at(request, 1, "kill after")})
				defer w.close()
				p := w.beginCommand(t, ask)
				status := func() capture.RunStatus {
					config, err := w.config("status", w.azure.Transport(), w.kube, nil)
					if err != nil {
						t.Fatal(err)
					}
					all, err := capture.New(config).Status(w.ctx, []fleet.ResourceID{w.pool})
					if err != nil || all[0].Capture == nil || all[0].Problem != "" {
						t.Fatalf("%+v, %v", all, err)
					}
					return *all[0].Capture
				}
				if w.await(p) {
					t.Fatalf("it was not killed: %v", p.err)
				}
				if s := status(); s.Ended != nil || s.Resumes || !strings.HasPrefix(s.Holder, p.name+"/") || len(s.Running) == 0 {
					t.Errorf("while its lock holds: %+v", s)
				}
				time.Sleep(2 * leaseFor)
				if s := status(); s.Ended != nil || !s.Resumes || s.Holder != "" {
					t.Errorf("after that: %+v", s)
				}
			})
		})
	}
}

// Where there is no way back the version is quarantined all the same: the same day's capture does not
// bring it to more nodes.
func TestOutcomeNoWayBackQuarantines(t *testing.T) {
	pool := badPool("no join", func(p *Pool) { p.Versions = 1 })
	inCaptured(t, pool, 2, at(patchModel, 3, "version before deleted"), func(t *testing.T, w *world) {
		w.do(t, Ask{Do: "watch"}).ends(t, workflow.ExitNeedsPerson, "", badVersion+" is quarantined: join", "there is no way back")
		if !w.quarantined() || w.badTags()[fleet.TagRolledBack] == "" {
			t.Errorf("the version has %v", w.badTags())
		}
		p := w.do(t, Ask{Do: "capture", Once: true})
		if !workflow.RefusedFor(p.err, "RolledBack") || !strings.Contains(p.err.Error(), "today's version is quarantined: join") {
			t.Errorf("the same day's capture ends with %d: %v", p.code(), p.err)
		}
	})
}

// A rollback whose write of the model was accepted, and that failed before it saw its end, goes back once.
func TestOutcomeRollbackThatDoesNotSeeItsEnd(t *testing.T) {
	const read = "azure GET virtualMachineScaleSets/" + poolName
	failed := 0
	for after := range 4 {
		played(t, func(l ledger) {
			var versions []string
			for range 3 {
				l.run(0, Ask{Do: "capture"})
				versions = append(versions, l.live())
				time.Sleep(day)
			}
			p, err := l.start(Ask{Do: "rollback"})
			if err != nil {
				t.Fatal(err)
			}
			l.until(t, "asked for", func() bool { return l.live() == versions[1] })
			l.locked(func() { l.pending = append(l.pending, Event{At: read, N: l.counts[read] + 1 + after, What: "refused"}) })
			if l.await(p); p.code() == workflow.ExitDone {
				return
			}
			failed++
			l.run(3, Ask{Do: "rollback", To: "1.2.3"}) // refused: nothing is recorded
			l.run(0, Ask{Do: "rollback"})
			l.wants(versions[1], "the same command after "+p.err.Error())
			if l.tag(versions[2], fleet.TagRolledBack) == "" {
				t.Errorf("%s, which was left, is not tagged as rolled back", versions[2])
			}
		})
	}
	if failed == 0 {
		t.Error("no rollback failed")
	}
}
