package denial

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/cluster/kube"
	"github.com/ortet/ortet/internal/prototype"
	"github.com/ortet/ortet/internal/rollback"
	"github.com/ortet/ortet/test/kubesim"
)

// An exception is a permission whose lack preflight does not name, for a reason.
// A new one is a failing test.
type exception struct {
	why string
	// fine says that the command succeeds all the same.
	fine bool
}

// azureExceptions are those of a capture.
var azureExceptions = map[string]exception{
	"Microsoft.Compute/skus/read": {
		why:  "it lies on the subscription, which many do not give; without it a VM size's abilities are not checked beforehand, as the documentation says",
		fine: true,
	},
	"Microsoft.Compute/virtualMachineScaleSets/extensions/write": {
		why: "a capture deletes extensions; only a rollback to the original writes them", fine: true,
	},
	"deallocate: Microsoft.Compute/virtualMachineScaleSets/virtualMachines/powerOff/action": {
		why: "a donor that is deallocated is not powered off", fine: true,
	},
	"power off: Microsoft.Compute/virtualMachineScaleSets/virtualMachines/deallocate/action": {
		why: "a donor that is powered off is not deallocated", fine: true,
	},
}

// TestCaptureDeniedInAzure takes each documented action away.
func TestCaptureDeniedInAzure(t *testing.T) {
	onGroup, onSubscription := documentedActions(t)
	rules := documentedRules(t, conditions...)
	met := map[string]bool{}
	for _, way := range []string{"power off", "deallocate"} {
		for _, action := range append(slices.Clone(onGroup), onSubscription...) {
			t.Run(way+" without "+short(action), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t, less(onGroup, action), less(onSubscription, action), rules)
					q := fullRequest(way == "deallocate")
					e := w.open(rules)
					if key, x, is := excepted(azureExceptions, way, action); is {
						met[key] = true
						w.goesOn(t, x, func() error { _, err := e.Capture(t.Context(), q); return err })
						return
					}
					p, err := e.Plan(t.Context(), q)
					must(t, err)
					if len(p.Problems) == 0 {
						t.Error("the plan sees no problem")
					}
					_, err = e.Capture(t.Context(), q)
					w.refused(err, action)
				})
			})
		}
	}
	wantMet(t, azureExceptions, met)
}

// TestRollbackToTheOriginalDeniedInAzure: with the list of a rollback, what writes the
// original's extensions again is refused by name.
func TestRollbackToTheOriginalDeniedInAzure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := captured(t, rollbackActions(t), nil, rollbackRules(t))
		_, err := w.open(rollbackRules(t)).rollback.Rollback(t.Context(), rollback.Request{Node: donor, To: prototype.ToOriginal})
		w.refused(err, "Microsoft.Compute/virtualMachineScaleSets/extensions/write")
	})
}

func short(action string) string {
	return strings.ReplaceAll(strings.TrimPrefix(action, "Microsoft."), "/", ".")
}

func excepted(table map[string]exception, way, what string) (string, exception, bool) {
	for _, key := range []string{what, way + ": " + what} {
		if x, ok := table[key]; ok {
			return key, x, true
		}
	}
	return "", exception{}, false
}

// wantMet fails where a table lists what is no exception any more.
func wantMet(t *testing.T, table map[string]exception, met map[string]bool) {
	t.Helper()
	for key := range table {
		if !met[key] {
			t.Errorf("%q is no exception: take it off the table", key)
		}
	}
}

// goesOn checks an exception.
func (w *world) goesOn(t *testing.T, x exception, run func() error) {
	t.Helper()
	err := run()
	if x.fine != (err == nil) {
		t.Errorf("%s: %v", x.why, err)
	}
}

// TestRollbackDeniedInAzure does so for a rollback, whose list is shorter; with
// exactly that list it works.
func TestRollbackDeniedInAzure(t *testing.T) {
	actions, rules := rollbackActions(t), rollbackRules(t)
	if code := azure.ActionsOf(); len(actions) <= len(code) {
		t.Fatalf("a rollback needs %q, and reading %q", actions, code)
	}
	for _, without := range append([]string{""}, actions...) {
		t.Run("without "+short(without), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := captured(t, less(actions, without), nil, rules)
				e := w.open(rules)
				if without != "" {
					p, err := e.rollback.Plan(t.Context(), rollback.Request{Node: donor})
					must(t, err)
					if len(p.Problems) == 0 {
						t.Error("the plan sees no problem")
					}
				}
				_, err := e.rollback.Rollback(t.Context(), rollback.Request{Node: donor})
				if without == "" {
					must(t, err)
					return
				}
				w.refused(err, without)
			})
		})
	}
}

// clusterExceptions are the RBAC verbs whose lack preflight does not name, of a
// capture with and without force.
var clusterExceptions = map[string]exception{
	"force: delete pods in ortet-system": {why: "with force, pods may be deleted anywhere", fine: true},
}

// TestCaptureDeniedInCluster takes each verb of each documented rule away.
func TestCaptureDeniedInCluster(t *testing.T) {
	onGroup, onSubscription := documentedActions(t)
	met := map[string]bool{}
	for way, conditions := range map[string][]string{"force": conditions, "no force": {"kured", "Cluster API"}} {
		rules := documentedRules(t, conditions...)
		for _, v := range verbsOf(rules) {
			t.Run(way+" without "+v.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t, onGroup, onSubscription, without(rules, v))
					w.addKured()
					q := fullRequest(false)
					q.ForceDrain = way == "force"
					if !q.ForceDrain {
						w.kube.Remove("pods", "default", "alone")
					}
					e := w.open(rules)
					if key, x, is := excepted(clusterExceptions, way, v.String()); is {
						met[key] = true
						w.goesOn(t, x, func() error { _, err := e.Capture(t.Context(), q); return err })
						return
					}
					p, err := e.Plan(t.Context(), q)
					must(t, err)
					if len(p.Problems) == 0 {
						t.Error("the plan sees no problem")
					}
					_, err = e.Capture(t.Context(), q)
					for _, what := range v.resources() {
						w.refused(err, v.verb+" "+what)
					}
				})
			})
		}
	}
	wantMet(t, clusterExceptions, met)
}

// resources is how preflight names them: "leases.coordination.k8s.io in ortet-system",
// one for each name.
func (v verb) resources() (all []string) {
	names := v.rule.Names
	if len(names) == 0 {
		names = []string{""}
	}
	for _, name := range names {
		s := v.rule.Resource
		if v.rule.Group != "" {
			s += "." + v.rule.Group
		}
		if name != "" {
			s += " " + name
		}
		if v.rule.Namespace != "" {
			s += " in " + v.rule.Namespace
		}
		all = append(all, s)
	}
	return all
}

// TestRollbackDeniedInCluster does so for a rollback; with exactly its rules it
// works.
func TestRollbackDeniedInCluster(t *testing.T) {
	actions, rules := rollbackActions(t), rollbackRules(t)
	synctest.Test(t, func(t *testing.T) {
		w := captured(t, actions, nil, rules)
		_, err := w.open(rollbackRules(t)).rollback.Rollback(t.Context(), rollback.Request{Node: donor})
		must(t, err)
	})
	for _, v := range verbsOf(rules) {
		t.Run("without "+v.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := captured(t, actions, nil, without(rules, v))
				p, err := w.open(rollbackRules(t)).rollback.Plan(t.Context(), rollback.Request{Node: donor})
				must(t, err)
				if len(p.Problems) == 0 {
					t.Error("the plan sees no problem")
				}
				_, err = w.open(rollbackRules(t)).rollback.Rollback(t.Context(), rollback.Request{Node: donor})
				for _, what := range v.resources() {
					w.refused(err, v.verb+" "+what)
				}
			})
		})
	}
}

// captured is a world in which two captures have been, by somebody who may do
// all that is documented; from then on Ortet may do what is given.
func captured(t *testing.T, onGroup, onSubscription []string, rules []kube.Rule) *world {
	t.Helper()
	all, more := documentedActions(t)
	w := newWorld(t, all, more, documentedRules(t, conditions...), principal(poorer, onGroup, onSubscription))
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
