package denial

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/ortet/ortet/azsim"
	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/cluster/kube"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/capture"
	"github.com/ortet/ortet/internal/image/plan"
	"github.com/ortet/ortet/internal/workflow"
	"github.com/ortet/ortet/test/kubesim"
)

// freshRequest raises a donor, and prepares it.
func freshRequest() capture.Request {
	q := fullRequest(false)
	q.Node, q.Fresh, q.NewNodes, q.ForceDrain = "", pool, 0, false
	q.Prepare = &plan.Preparation{}
	return q
}

// TestFreshDenied: a fresh donor is raised, prepared, captured and deleted with the documented role and
// the one action that the page adds, and with the documented rules. Without one of the two actions that
// only a fresh donor needs, or any verb, it is refused by name before anything is changed.
func TestFreshDenied(t *testing.T) {
	needs := append(azure.Actions(fleet.DeleteInstances{}.Verb()), azure.Actions(fleet.SetCapacity{}.Verb())...)
	onGroup, onSubscription := documentedActions()
	onGroup = slices.Compact(slices.Sorted(slices.Values(append(onGroup, needs...))))
	onSubscription = append(onSubscription, usagesRead)
	rules := documentedRules(false)
	cases := slices.DeleteFunc(denials(onGroup, nil, rules), func(d denial) bool {
		return strings.HasPrefix(d.of, "Microsoft.") && !slices.Contains(needs, d.of)
	})
	for _, d := range append(cases, denial{onGroup: onGroup, rules: rules}) {
		t.Run("without "+short(d.of), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, d.onGroup, onSubscription, d.rules)
				result, err := w.open(rules).Capture(t.Context(), freshRequest())
				if d.of != "" {
					w.refused(err, d.said...)
					return
				}
				must(t, err)
				if n := w.capacity(); result.Version == "" || result.Donor == donor || n != 3 {
					t.Errorf("version %q of %q; capacity %d, want 3", result.Version, result.Donor, n)
				}
				w.usedAll(append(needs, usagesRead), nil)
			})
		})
	}
}

// keptBy are verbs without which a donor, its pods or its record cannot be undone, and what the capture
// then says.
var keptBy = map[string]string{
	"get nodes":                       "az vmss delete-instances -g azsim -n pool1 --instance-ids 3",
	"list nodes":                      "az vmss list-instances --ids " + string(pool),
	"patch nodes":                     "az vmss delete-instances -g azsim -n pool1 --instance-ids 3",
	"get pods":                        "read job (pod ortet-system/ortet-generalize-pool1-",
	"delete pods in ortet-system":     "delete job (pod ortet-system/ortet-generalize-pool1-",
	"update secrets named " + secrets: "write journal (secret ortet-system/ortet-journal-pool1-",
}

// secrets are the pool's, as denials name them.
var secrets = strings.Join(kube.Secrets(pool), ", ") + " in " + kube.DefaultNamespace

// TestFreshRevoked takes a verb away once the donor is added. The capture says which, and undoes all, or
// says what it could not; with the verb again the same command ends well. Without the right to renew
// the Lease it waits for that.
func TestFreshRevoked(t *testing.T) {
	onGroup, onSubscription := documentedActions()
	onGroup = append(onGroup, azure.Actions(fleet.DeleteInstances{}.Verb())...)
	for _, d := range denials(nil, nil, documentedRules(false)) {
		if strings.HasPrefix(d.of, "update leases") {
			continue
		}
		t.Run(d.of, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, onGroup, append(onSubscription, usagesRead), documentedRules(false))
				w.kube.Users[revoked] = kubesim.Grants(kube.PolicyRules(d.rules))
				heard := w.azure.OnRequest
				once := sync.OnceFunc(func() { w.isRevoked.Store(true) })
				w.azure.OnRequest = func(r azsim.Request) {
					if heard(r); r.Method == http.MethodPatch && strings.HasSuffix(r.Path, "/"+pool.Name()) {
						once()
					}
				}
				e := w.open(documentedRules(false))
				_, err := e.Capture(t.Context(), freshRequest())
				w.isRevoked.Store(false)
				verb, _, _ := strings.Cut(d.of, " ")
				says, kept := keptBy[d.of]
				want := workflow.ExitFailed
				if kept {
					want = workflow.ExitNeedsPerson
				} else {
					says = "all changes were undone"
				}
				if text := fmt.Sprint(err); workflow.ExitCode(err) != want || !strings.Contains(text, says) || !strings.Contains(text, verb) {
					t.Errorf("exit %d, want %d, %q and %q: %v", workflow.ExitCode(err), want, verb, says, err)
				}
				if n := w.capacity(); !kept && n != 3 {
					t.Errorf("capacity %d, want 3", n)
				}
				result, err := e.Capture(t.Context(), freshRequest())
				if n := w.capacity(); err != nil || result.Version == "" || n != 3 {
					t.Errorf("with it again: version %q, capacity %d, want 3: %v", result.Version, n, err)
				}
			})
		})
	}
}

// capacity is the pool's.
func (w *world) capacity() int64 {
	now, err := w.open(nil).Cloud.Pool(w.t.Context(), pool)
	must(w.t, err)
	return now.Capacity
}
