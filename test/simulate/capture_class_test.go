package simulate

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"

	"github.com/ortet/ortet/azsim"
	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/capture"
	"github.com/ortet/ortet/internal/workflow"
)

// checkMade: what a canary is made with, and that no version is in the definition's latest before
// clones of it came up.
func (w *world) checkMade(p *process, req request) {
	if req.name == putCanary {
		w.azure.View(func(v *azsim.View) {
			set, _ := v.Get(string(fleet.CanaryOf(w.pool))).(*armcompute.VirtualMachineScaleSet)
			if set == nil || set.Tags[fleet.TagCanary] == nil || set.Tags[fleet.TagCapture] == nil {
				return
			}
			if ends, err := time.Parse(time.RFC3339, *set.Tags[fleet.TagCanary]); err != nil || (time.Until(ends)-day).Abs() > 2*time.Minute {
				w.broken(15, "%s makes a canary that expires at %s", p.name, *set.Tags[fleet.TagCanary])
			}
			prefix, of := *set.Properties.VirtualMachineProfile.OSProfile.ComputerNamePrefix, *set.Tags[fleet.TagCapture]
			w.mu.Lock()
			by, used := w.prefixes[prefix]
			w.prefixes[prefix] = of
			w.mu.Unlock()
			if used && by != of {
				w.broken(15, "%s gives the clones the host names %s of an earlier canary's", p.name, prefix)
			}
		})
	}
	if p.ask.Canary == 0 || !strings.Contains(req.name, "/versions/") {
		return
	}
	for id, v := range w.versions() {
		if is := v.Properties.PublishingProfile.ExcludeFromLatest; isUnjudged(v) && !w.isTouched(id) && (is == nil || !*is) {
			w.broken(17, "%s has %s be the definition's latest before its clones came up", p.name, id)
		}
	}
}

// An abandonment is of the pool's open capture: a rollback is refused, and versions and canaries of
// others stay, and are not said to be its own.
func TestOutcomeAbandonIsOfItsOwn(t *testing.T) {
	killed := func(t *testing.T, ask Ask, happen []Event, then func(t *testing.T, w *world, abandon func() (capture.Result, error), changes func() int)) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(Story{Seed: 1, Pool: usual, Happen: happen})
			defer w.finish()
			config, changes := w.of(t, namespace)
			w.pursue(0, ask)
			time.Sleep(2 * leaseFor)
			then(t, w, func() (capture.Result, error) { return capture.New(config).Abandon(t.Context(), w.pool, "") }, changes)
		})
	}
	t.Run("rollback", func(t *testing.T) {
		killed(t, Ask{Do: "rollback", Once: true}, at(patchModel, 1, "kill after"), func(t *testing.T, w *world, abandon func() (capture.Result, error), changes func() int) {
			before := w.modelNow().image
			if r, err := abandon(); !workflow.RefusedFor(err, "OpenRollback") || r.Abandoned || changes() > 0 || w.modelNow().image != before {
				t.Errorf("%+v, %v, %d changes", r, err, changes())
			}
			w.pursue(0, Ask{Do: "rollback", Once: true})
			if p := w.processes[len(w.processes)-1]; p.code() != workflow.ExitDone {
				t.Errorf("the rollback after it: %v", p.err)
			}
		})
	})
	t.Run("version", func(t *testing.T) {
		happen := append(at(putVersion, 1, "others publish a version"), at(putVersion, 1, "kill before")...)
		killed(t, Ask{Do: "capture", Once: true}, happen, func(t *testing.T, w *world, abandon func() (capture.Result, error), _ func() int) {
			id := w.names.Definition.Child("versions", badVersion)
			w.make(http.MethodPatch, id, galleryAPI, object{"tags": object{"team": "others", fleet.TagCapture: "20000101-000000"}})
			r, err := abandon()
			if text := fmt.Sprint(r.Left, r.Notes, err); err != nil || strings.Contains(text, badVersion) {
				t.Errorf("a version of others is named: %s", text)
			}
			if tags := w.badTags(); tags["team"] != "others" {
				t.Errorf("the version of others has %v", tags)
			}
		})
	})
	t.Run("canary", func(t *testing.T) {
		killed(t, Ask{Do: "capture", Canary: 2, Once: true}, at(putCanary, 1, "kill after"), func(t *testing.T, w *world, abandon func() (capture.Result, error), _ func() int) {
			id, of := fleet.CanaryOf(w.pool), "20000101-000000"
			w.make(http.MethodPatch, id, computeAPI, object{"tags": object{fleet.TagCapture: of, fleet.TagCanary: time.Now().Add(day).UTC().Format(time.RFC3339)}})
			_, err := abandon()
			w.azure.View(func(v *azsim.View) {
				if set, _ := v.Get(string(id)).(*armcompute.VirtualMachineScaleSet); err != nil || set == nil || *set.Tags[fleet.TagCapture] != of {
					t.Errorf("the canary of another capture is %+v; %v", set, err)
				}
			})
		})
	})
}

// A canary that is being deleted is not judged: its deletion is waited for, and it is made again.
func TestOutcomeCanaryThatIsBeingDeleted(t *testing.T) {
	s := Story{Seed: 1, Pool: usual, Asks: []Ask{{Do: "capture", Canary: 2}},
		Happen: append(at(putCanary, 1, "server error after the effect"), at("azure GET virtualMachineScaleSets/"+poolName+"-canary", 5, "canary deleted")...)}
	r := play(t, s)
	made := 0
	for _, q := range r.requests {
		if q.name == putCanary {
			made++
		}
	}
	if len(r.violations)+len(r.missed) > 0 || made != 2 || !strings.Contains(strings.Join(r.trace, "\n"), "p1 ends: 0 ") {
		t.Error(made, explain(s, r))
	}
}

// Two canaries of one day have other host names. The judge sees to that.
func TestOutcomeTwoCanariesOfADay(t *testing.T) {
	s := Story{Name: "two canaries of a day", Seed: 1, Pool: usual, Asks: []Ask{{Do: "capture", Canary: 1}, {Do: "capture", Canary: 1, Node: 1, Again: true}}}
	if r := play(t, s); len(r.violations) > 0 {
		t.Error(explain(s, r))
	}
}

// A canary that just fits the quota is made, and one that does not by one vCPU is refused.
func TestOutcomeQuotaIsCountedExactly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(Story{Seed: 1, Pool: usual}) // of 8 vCPUs
		defer w.close()
		config, _ := w.of(t, namespace)
		for limit, refused := range map[int]bool{12: false, 11: true} {
			w.azure.Quota = map[string]int{"cores": limit}
			p, err := capture.New(config).Plan(t.Context(), capture.Request{Node: w.nodeName(0), Canary: 2})
			if is := slices.ContainsFunc(p.Problems, func(x fleet.Problem) bool { return x.Code == "CanaryQuota" }); err != nil || is != refused {
				t.Errorf("a quota of %d for 8 and 4: %v, %v", limit, p.Problems, err)
			}
		}
	})
}

// A version that an earlier capture left unjudged stays out of latest where the capture that proves it
// says so.
func TestOutcomeExcludedVersionStaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(Story{Seed: 7, Pool: with(func(p *Pool) { p.Daemons = 1 }), Happen: at(putCanary, 1, "refused")})
		defer w.finish()
		w.pursue(0, Ask{Do: "capture", Canary: 2, Once: true})
		w.pursue(0, Ask{Do: "capture", Canary: 2, Excluded: true, Once: true})
		p, v := w.processes[1], w.versions()[low(w.modelNow().image)]
		if is := v.Properties.PublishingProfile.ExcludeFromLatest; p.code() != workflow.ExitDone || is == nil || !*is || path.Base(*v.ID) != badVersion {
			t.Errorf("exit %d; %s is excluded: %v", p.code(), *v.ID, is)
		}
	})
}

// Nodes of the version that were there before are none that the capture added. A claim sees to that, too.
func TestOutcomeNodesThatWereThereAreNotNamed(t *testing.T) {
	s := Story{Seed: 1, Pool: fresh, Asks: []Ask{{Do: "capture"}, {Do: "scale out", N: 1}, {Do: "capture", Grow: 1}}}
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(s)
		defer w.finish()
		w.act()
		if p := w.processes[1]; p.newNodes() != "pool1_4 true" || len(w.violations) > 0 {
			t.Errorf("new nodes %q: %v; %v", p.newNodes(), p.err, w.violations)
		}
	})
}

// A late writer is a cloud whose writes of tags arrive long after what they were computed from.
type lateWriter struct {
	azure.Cloud
	after time.Duration
}

func (l lateWriter) Begin(ctx context.Context, change fleet.Change) (fleet.Token, error) {
	if change.Verb() == (fleet.TagDefinition{}).Verb() {
		if err := sleep(ctx, l.after); err != nil {
			return "", err
		}
	}
	return l.Cloud.Begin(ctx, change)
}

// Of two namespaces that claim a pool at once one works, also where the claim of one arrives after
// the other's was read back.
func TestOutcomeLateClaimOfANamespace(t *testing.T) {
	for late := range 2 {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(Story{Seed: 1, Pool: usual})
			defer w.close()
			var errs [2]error
			var group sync.WaitGroup
			for i, in := range []string{namespace, "team-b"} {
				config, _ := w.of(t, in)
				if i == late {
					config.Cloud = lateWriter{config.Cloud, 18 * time.Second}
				}
				group.Go(func() {
					_, errs[i] = capture.New(config).Capture(t.Context(), capture.Request{Node: w.nodeName(i)})
				})
			}
			group.Wait()
			if a, b := workflow.RefusedFor(errs[0], "OtherNamespace"), workflow.RefusedFor(errs[1], "OtherNamespace"); a == b || errors.Join(errs[:]...) == nil {
				t.Errorf("of two namespaces: %v\nand: %v", errs[0], errs[1])
			}
		})
	}
}

// What is kept of versions that never were live is by Azure's clock.
func TestOutcomeHistoryIsByAzuresClock(t *testing.T) {
	played(t, func(l ledger) {
		l.run(0, Ask{Do: "capture"})
		left := l.abandon(Ask{Do: "capture", Again: true})
		for range 2 {
			time.Sleep(day)
			l.run(0, Ask{Do: "capture", Node: 1, Ahead: 8 * day})
		}
		if l.versions()[low(l.names.Definition.Child("versions", left))] == nil {
			t.Errorf("%s was made two days ago, and is pruned by a clock that is 8 days ahead", left)
		}
	})
}
