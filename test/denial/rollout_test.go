package denial

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/cluster/kube"
	"github.com/ortet/ortet/internal/image/renew"
	"github.com/ortet/ortet/internal/workflow"
)

// TestRolloutDenied: a rollout works with exactly what the two pages list for it, and without any one
// of these its plan and itself are refused by name, before anything is changed. Without those that
// preflight itself rests on it fails, and names them too.
func TestRolloutDenied(t *testing.T) {
	actions := slices.DeleteFunc(azure.ActionsOf(renew.Changes()...), func(a string) bool { return a == azure.ReadEncryptionSet })
	rules := kube.RolloutRules("")
	unreadable := []string{
		"Microsoft.Authorization/permissions/read", "Microsoft.Compute/virtualMachineScaleSets/read", "Microsoft.Compute/virtualMachineScaleSets/virtualMachines/read",
		"list nodes", "create selfsubjectaccessreviews.authorization.k8s.io",
		"create leases.coordination.k8s.io in ortet-system", "get leases.coordination.k8s.io in ortet-system",
	}
	for i, r := range rules {
		if r.Resource == "secrets" {
			rules[i].Names = kube.Secrets(pool)
		}
	}
	for _, d := range append(denials(actions, nil, rules), denial{onGroup: actions, rules: rules}) {
		t.Run("without "+short(d.of), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := captured(t, d.onGroup, d.rules)
				w.putDaemonSet("kured")
				w.fill()
				w.kube.Remove("pods", "default", "alone")
				w.kube.Remove("poddisruptionbudgets", "default", "budget")
				s := renew.New(w.open(rules).Config)
				q := renew.Request{Pool: pool, MaxUnavailable: "1", Soak: time.Minute, DrainTimeout: time.Minute}
				p, err := s.Plan(t.Context(), q)
				if d.of != "" {
					if err == nil && len(p.Problems) == 0 {
						t.Error("the plan sees no problem")
					}
					_, err = s.Rollout(t.Context(), q)
					if !slices.Contains(unreadable, d.of) {
						w.refused(err, d.said...)
					} else if wrote := w.wrote(); workflow.ExitCode(err) != workflow.ExitFailed || !strings.Contains(err.Error(), "; grant "+strings.Replace(d.of, " in ", " in namespace ", 1)) || len(wrote) > 0 {
						t.Errorf("exit code %d, asked for changes: %q: %v", workflow.ExitCode(err), wrote, err)
					}
					return
				}
				must(t, err)
				r, err := s.Rollout(t.Context(), q)
				must(t, err)
				if len(p.Nodes) != 3 || len(r.Renewed) != 3 || len(r.Left) > 0 {
					t.Errorf("%d nodes were planned, %q renewed, and left out %v", len(p.Nodes), r.Renewed, r.Left)
				}
				for _, a := range w.actions {
					if a.Status == 403 {
						t.Errorf("%s %s was refused", a.Method, a.Path)
					}
				}
				for _, a := range w.asks {
					if a.Status == 403 {
						t.Errorf("%+v was refused", a)
					}
				}
			})
		})
	}
}
