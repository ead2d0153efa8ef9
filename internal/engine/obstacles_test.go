package engine

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/ortet/ortet/internal/cluster"
)

// Pods that a drain would wait for in vain are refused before the donor is touched, all
// at once and each with its way out; --force, which deletes them, is one.
func TestPodsThatNoDrainEvictsAreRefusedWithTheWayOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.obstacles = []cluster.BlockedPod{
			{Pod: "default/alone", Why: "Pods that declare no controller"},
			{Pod: "default/db-0", Budget: "default/db", Why: "the budget db allows no eviction"},
		}
		e, _, ctx, _ := w.process(t, "a", 0)
		_, err := e.Capture(ctx, request())
		var refused *Refused
		if !errors.As(err, &refused) || len(refused.Problems) != 2 {
			t.Fatalf("got %v, want both", err)
		}
		for i, want := range []string{"PodNotEvictable default/alone", "BudgetAllowsNoEviction default/db"} {
			code, on, _ := strings.Cut(want, " ")
			if p := refused.Problems[i]; p.Code != code || !strings.Contains(p.What, on) || !strings.Contains(p.WayOut, "--force") {
				t.Errorf("%+v, want %s", p, want)
			}
		}
		if p, err := e.Plan(ctx, request()); err != nil || len(p.Problems) != 2 {
			t.Errorf("a dry run: %+v, %v", p.Problems, err)
		}
		if w.drained != 0 || w.donor().Unschedulable || len(w.pods) != 0 {
			t.Error("the donor was touched")
		}
		q := request()
		q.ForceDrain = true
		if _, err := e.Capture(ctx, q); err != nil {
			t.Errorf("with --force: %v", err)
		}
		w.whole(t)
		w.tidy(t)
	})
}
