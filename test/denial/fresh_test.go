package denial

import (
	"slices"
	"testing"
	"testing/synctest"

	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/fleet"
)

// TestFreshDenied: a fresh donor is raised, captured and deleted with the documented role and the one
// action that the page adds. Without one of the two that only a fresh donor needs, it is refused by
// name before anything is changed.
func TestFreshDenied(t *testing.T) {
	needs := append(azure.Actions(fleet.DeleteInstances{}.Verb()), azure.Actions(fleet.SetCapacity{}.Verb())...)
	onGroup, onSubscription := documentedActions()
	onGroup = slices.Compact(slices.Sorted(slices.Values(append(onGroup, needs...))))
	cases := slices.DeleteFunc(denials(onGroup, nil, nil), func(d denial) bool { return !slices.Contains(needs, d.of) })
	for _, d := range append(cases, denial{onGroup: onGroup}) {
		t.Run("without "+short(d.of), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, d.onGroup, append(onSubscription, usagesRead), documentedRules(true))
				q := fullRequest(false)
				q.Node, q.Fresh, q.NewNodes = "", pool, 0
				if d.of != "" {
					_, err := w.open(documentedRules(true)).Capture(t.Context(), q)
					w.refused(err, d.said...)
					return
				}
				result, err := w.open(documentedRules(true)).Capture(t.Context(), q)
				must(t, err)
				now, err := w.open(nil).Cloud.Pool(t.Context(), pool)
				must(t, err)
				if result.Version == "" || result.Donor == donor || now.Capacity != 3 {
					t.Errorf("version %q of %q; capacity %d, want 3", result.Version, result.Donor, now.Capacity)
				}
				w.usedAll(append(needs, usagesRead), nil)
			})
		})
	}
}
