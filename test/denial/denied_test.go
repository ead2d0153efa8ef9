package denial

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/cluster/kube"
	"github.com/ortet/ortet/internal/image/plan"
	"github.com/ortet/ortet/internal/image/rollback"
	"github.com/ortet/ortet/test/kubesim"
)

// exceptions are permissions whose lack a capture's preflight does not name, and why: the
// capture succeeds all the same. A new one is a failing test.
var exceptions = map[string]string{
	"Microsoft.Compute/skus/read":                                                            "it lies on the subscription, which many do not give; without it a VM size's abilities are not checked beforehand, as the documentation says",
	"Microsoft.Compute/virtualMachineScaleSets/extensions/write":                             "a capture deletes extensions; only a rollback to the original writes them",
	"deallocate: Microsoft.Compute/virtualMachineScaleSets/virtualMachines/powerOff/action":  "a donor that is deallocated is not powered off",
	"power off: Microsoft.Compute/virtualMachineScaleSets/virtualMachines/deallocate/action": "a donor that is powered off is not deallocated",
	"power off: delete pods in ortet-system":                                                 "with force, pods may be deleted anywhere",
}

// TestCaptureDenied takes away each documented action, and each verb of each documented
// rule: of a capture that powers off and drains with force, and of a capture that deallocates.
func TestCaptureDenied(t *testing.T) {
	met := map[string]bool{}
	for _, way := range []string{"power off", "deallocate"} {
		force := way == "power off"
		onGroup, onSubscription := documentedActions()
		rules := documentedRules(force)
		for _, d := range denials(onGroup, onSubscription, rules) {
			t.Run(way+" without "+short(d.of), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t, d.onGroup, d.onSubscription, d.rules)
					w.putDaemonSet("kured")
					q := fullRequest(!force)
					if q.ForceDrain = force; !force {
						w.kube.Remove("pods", "default", "alone")
						w.kube.Remove("poddisruptionbudgets", "default", "budget")
					}
					e := w.open(rules)
					for _, key := range []string{d.of, way + ": " + d.of} {
						if why, ok := exceptions[key]; ok {
							met[key] = true
							if _, err := e.Capture(t.Context(), q); err != nil {
								t.Errorf("%s: %v", why, err)
							}
							return
						}
					}
					p, err := e.Plan(t.Context(), q)
					must(t, err)
					if len(p.Problems) == 0 {
						t.Error("the plan sees no problem")
					}
					_, err = e.Capture(t.Context(), q)
					w.refused(err, d.said...)
				})
			})
		}
	}
	for key := range exceptions {
		if !met[key] {
			t.Errorf("%q is no exception: take it off the table", key)
		}
	}
}

// TestRollbackDenied does so for a rollback, which needs less; with exactly that it works.
func TestRollbackDenied(t *testing.T) {
	actions, rules := rollbackActions(), rollbackRules(t)
	if code := azure.ActionsOf(); len(actions) <= len(code) {
		t.Fatalf("a rollback needs %q, and reading %q", actions, code)
	}
	for _, d := range append(denials(actions, nil, rules), denial{onGroup: actions, rules: rules}) {
		t.Run("without "+short(d.of), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := captured(t, d.onGroup, d.rules)
				e := w.open(rules)
				if d.of != "" {
					p, err := e.rollback.Plan(t.Context(), rollback.Request{Node: donor})
					must(t, err)
					if len(p.Problems) == 0 {
						t.Error("the plan sees no problem")
					}
				}
				_, err := e.rollback.Rollback(t.Context(), rollback.Request{Node: donor})
				if d.of == "" {
					must(t, err)
					return
				}
				w.refused(err, d.said...)
			})
		})
	}
}

// TestRollbackToTheOriginalDenied: with the list of a rollback, what writes the original's
// extensions again is refused by name.
func TestRollbackToTheOriginalDenied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := captured(t, rollbackActions(), rollbackRules(t))
		_, err := w.open(rollbackRules(t)).rollback.Rollback(t.Context(), rollback.Request{Node: donor, To: plan.ToOriginal})
		w.refused(err, "Microsoft.Compute/virtualMachineScaleSets/extensions/write")
	})
}

// captured is a world in which two captures have been, by somebody who may do
// all that is documented; from then on Ortet may do what is given.
func captured(t *testing.T, actions []string, rules []kube.Rule) *world {
	t.Helper()
	all, more := documentedActions()
	w := newWorld(t, all, more, documentedRules(true), principal(poorer, actions, nil))
	w.azure.Instant(true)
	for range 2 {
		q := fullRequest(false)
		q.NewNodes = 0
		mustCapture(w, q)
		time.Sleep(25 * time.Hour)
	}
	w.azure.Instant(false)
	w.client = poorer
	w.kube.Users[user] = kubesim.Grants(kube.PolicyRules(rules))
	w.forget()
	return w
}
