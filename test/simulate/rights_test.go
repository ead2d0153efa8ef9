package simulate

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/capture"
	"github.com/ortet/ortet/internal/image/plan"
	"github.com/ortet/ortet/internal/image/rollback"
)

// without is a cloud whose credentials lack one action, and that notes which are asked for.
type without struct {
	azure.Cloud
	action string
	asked  map[string]bool
}

func (l without) Denied(_ context.Context, _ fleet.ResourceID, actions []string) (denied []string, _ error) {
	for _, a := range actions {
		if l.asked[a] = true; a == l.action {
			denied = append(denied, a)
		}
	}
	return denied, nil
}

// TestOutcomeLackingRightIsNamed: each right that preflight asks for is refused by name where it lacks.
func TestOutcomeLackingRightIsNamed(t *testing.T) {
	plans := map[string]func(ctx context.Context, w *world, c capture.Config) (plan.Plan, error){
		"capture": func(ctx context.Context, w *world, c capture.Config) (plan.Plan, error) {
			return capture.New(c).Plan(ctx, capture.Request{Node: w.nodeName(0), Canary: 2})
		},
		"rollback": func(ctx context.Context, w *world, c capture.Config) (plan.Plan, error) {
			return rollback.New(c).Plan(ctx, rollback.Request{Pool: w.pool})
		},
	}
	for name, of := range plans {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(Story{Seed: 1, Pool: usual})
				defer w.close()
				config, _ := w.of(t, namespace)
				cloud := without{Cloud: config.Cloud, asked: map[string]bool{}}
				config.Cloud = cloud
				if _, err := of(t.Context(), w, config); err != nil || len(cloud.asked) == 0 {
					t.Fatalf("%v, asked for %v", err, cloud.asked)
				}
				for _, action := range slices.Sorted(maps.Keys(cloud.asked)) {
					config.Cloud = without{Cloud: cloud.Cloud, action: action, asked: map[string]bool{}}
					p, err := of(t.Context(), w, config)
					if err != nil || !slices.ContainsFunc(p.Problems, func(x fleet.Problem) bool { return x.Code == "AzureDenied" && strings.Contains(x.What, action) }) {
						t.Errorf("without %s: %v, %v", action, p.Problems, err)
					}
				}
			})
		})
	}
}
