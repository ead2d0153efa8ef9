package denial

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/cluster/kube"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/capture"
	"github.com/ortet/ortet/internal/image/plan"
	"github.com/ortet/ortet/internal/image/rollback"
	"github.com/ortet/ortet/internal/workflow"
	"github.com/ortet/ortet/test/kubesim"
)

// fullRequest is a capture that needs all that can be needed, but that a donor
// is either powered off or deallocated.
func fullRequest(deallocate bool) capture.Request {
	return capture.Request{
		Node: donor, GracePeriod: 10 * time.Second, ForceDrain: true, History: 2, NewNodes: 1, Deallocate: deallocate, Replicas: 1,
	}
}

// linked are documented actions that no request of Ortet's bears as its own:
// Azure checks them on what a request names besides its target. That they are
// needed all the same shows in TestLinkedActionsAreNeeded.
var linked = map[string]string{
	"Microsoft.Compute/disks/beginGetAccess/action":     "of the disk that a snapshot copies",
	"Microsoft.Compute/snapshots/beginGetAccess/action": "of the snapshot that a disk or a version copies",
}

// TestDocumentedPermissionsSuffice: with exactly what is documented, a capture,
// one by another way, one with pruning and a rollback succeed; and each
// documented permission was used.
func TestDocumentedPermissionsSuffice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		onGroup, onSubscription := documentedActions()
		rules := documentedRules(true)
		w := newWorld(t, onGroup, onSubscription, rules)
		day := func() { time.Sleep(25 * time.Hour) }

		// The first finds no kured, so it looks everywhere for one.
		q := fullRequest(false)
		q.NewNodes = 0 // a node made from it would keep its version
		first := mustCapture(w, q)
		day()
		w.putDaemonSet("kured")
		w.fill()
		q = fullRequest(true)
		q.Bootstrap = plan.BootstrapBaked
		second := mustCapture(w, q)
		day()
		q = fullRequest(true)
		q.Node, q.NewNodes = "pool1000001", 0
		third := mustCapture(w, q)
		if !slices.Contains(third.Pruned, first.Version.Name()) {
			t.Errorf("pruned %v, not %s", third.Pruned, first.Version.Name())
		}
		back, err := w.open(rollbackRules(t)).rollback.Rollback(t.Context(), rollback.Request{Node: donor})
		must(t, err)
		if !back.To.Equal(second.Version) {
			t.Errorf("went back to %s, not %s", back.To, second.Version)
		}
		back, err = w.open(rollbackRules(t)).rollback.Rollback(t.Context(), rollback.Request{Node: donor, To: plan.ToOriginal, RestoreLearned: []string{"customData"}})
		must(t, err)
		if len(back.Restored) != 1 {
			t.Errorf("restored %v", back.Restored)
		}
		if nodes := w.nodes(); nodes != 4 {
			t.Errorf("%d nodes, not 3 and the one that was asked for", nodes)
		}

		w.usedAll(append(onGroup, onSubscription...), rules)
	})
}

// usedAll fails unless requests needed each of the permissions, and none was refused.
func (w *world) usedAll(actions []string, rules []kube.Rule) {
	w.t.Helper()
	used := map[string]bool{}
	for _, r := range w.actions {
		if r.Status < 400 || r.Status == 404 {
			used[strings.ToLower(r.Action)] = true
		}
		if r.Status == 403 {
			w.t.Errorf("%s %s was refused", r.Method, r.Path)
		}
	}
	for _, a := range actions {
		switch why, only := linked[a]; {
		case only && used[strings.ToLower(a)]:
			w.t.Errorf("%s was asked for by itself, and is said to be %s", a, why)
		case !only && !used[strings.ToLower(a)]:
			w.t.Errorf("%s is documented, and nothing needed it", a)
		}
	}
	for _, r := range w.asks {
		if r.Status == 403 {
			w.t.Errorf("%+v was refused", r)
		}
	}
	for _, v := range verbsOf(rules) {
		resource, sub, _ := strings.Cut(v.rule.Resource, "/")
		if !slices.ContainsFunc(w.asks, func(r kubesim.Request) bool {
			return r.Verb == v.verb && r.Resource == resource && r.Subresource == sub && r.Group == v.rule.Group &&
				(v.rule.Namespace == "" || v.rule.Namespace == r.Namespace) && (len(v.rule.Names) == 0 || slices.Contains(v.rule.Names, r.Name))
		}) {
			w.t.Errorf("%s is documented, and nothing needed it", v)
		}
	}
}

func mustCapture(w *world, q capture.Request) capture.Result {
	w.t.Helper()
	result, err := w.open(documentedRules(true)).Capture(w.t.Context(), q)
	must(w.t, err)
	if result.NothingToDo || result.Version == "" {
		w.t.Errorf("%+v", result)
	}
	n := w.kube.Node(q.Node)
	if _, marked := n.Annotations[fleet.AnnotationCapture]; n.Spec.Unschedulable || marked {
		w.t.Errorf("the donor is not as it was found: %+v", n)
	}
	return result
}

// trusting is a cloud whose preflight sees nothing.
type trusting struct{ azure.Cloud }

func (trusting) Denied(context.Context, fleet.ResourceID, []string) ([]string, error) {
	return nil, nil
}

// TestLinkedActionsAreNeeded: without a linked action, and with a preflight that
// does not see it, the capture fails at Azure's own check, which names it, and
// gives the donor back.
func TestLinkedActionsAreNeeded(t *testing.T) {
	onGroup, onSubscription := documentedActions()
	rules := documentedRules(true)
	for _, d := range denials(onGroup, onSubscription, nil) {
		if linked[d.of] == "" {
			continue
		}
		t.Run("without "+short(d.of), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, d.onGroup, onSubscription, rules)
				before := w.kube.Node(donor)
				_, err := w.open(rules, func(c azure.Cloud) azure.Cloud { return trusting{c} }).Capture(t.Context(), fullRequest(false))
				if workflow.ExitCode(err) != workflow.ExitFailed || !strings.Contains(err.Error(), d.of) {
					t.Errorf("exit code %d: %v", workflow.ExitCode(err), err)
				}
				if after := w.kube.Node(donor); after.Spec.Unschedulable || !maps.Equal(after.Annotations, before.Annotations) || after.Status.Conditions[0].Status != corev1.ConditionTrue {
					t.Errorf("the donor was %+v, and is %+v", before, after)
				}
			})
		})
	}
}

// TestStatusNeedsLess: what the documentation says that looking needs is enough
// for it.
func TestStatusNeedsLess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := captured(t, azure.ReadActions(), []kube.Rule{
			{Resource: "nodes", Verbs: []string{"list"}}, {Namespace: kube.DefaultNamespace, Resource: "secrets", Verbs: []string{"get"}},
		})
		pools, err := w.open(nil).Status(t.Context(), nil)
		must(t, err)
		if len(pools) != 1 || pools[0].Problem != "" || len(pools[0].Versions) != 2 || pools[0].Capture == nil {
			t.Errorf("%+v", pools)
		}
		if wrote := w.wrote(); len(wrote) > 0 {
			t.Errorf("looking asks for changes: %q", wrote)
		}
	})
}
