package denial

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ortet/ortet/internal/cluster/kube"
	"github.com/ortet/ortet/internal/image/plan"
	"github.com/ortet/ortet/internal/image/rollback"
	"github.com/ortet/ortet/internal/workflow"
	"github.com/ortet/ortet/test/kubesim"
)

// A rollback needs customData that an earlier version saved in a Secret named by its
// content. While the Role does not name that, it is not taken for lost: the refusal says
// what to grant, and with that grant the rollback succeeds.
func TestRollbackReadsWhatEarlierVersionsSaved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		onGroup, onSubscription := documentedActions()
		rules := documentedRules(true)
		w := newWorld(t, onGroup, onSubscription, rules)
		q := fullRequest(false)
		q.NewNodes = 0
		first := mustCapture(w, q)
		time.Sleep(25 * time.Hour)
		q.Bootstrap = plan.BootstrapBaked
		mustCapture(w, q)

		pools := kube.SavedName(string(pool))
		var earlier string
		for key, data := range w.kube.Secret(kube.DefaultNamespace, pools).Data {
			if !strings.HasPrefix(key, "customData") {
				continue
			}
			earlier = "ortet-saved-" + strings.ToLower(key)
			w.kube.Put(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: kube.DefaultNamespace, Name: earlier, Annotations: map[string]string{"ortet.io/kind": "customData"}},
				Type: "ortet.io/saved", Data: map[string][]byte{"data": data}})
		}
		w.kube.Remove("secrets", kube.DefaultNamespace, pools)

		_, err := w.open(rollbackRules(t)).rollback.Rollback(t.Context(), rollback.Request{Node: donor})
		if workflow.ExitCode(err) != workflow.ExitRefused || !strings.Contains(err.Error(), "grant get secrets "+earlier) || strings.Contains(err.Error(), "is not kept") {
			t.Errorf("without the Secret in the Role: %v", err)
		}
		granted := kube.Rule{Namespace: kube.DefaultNamespace, Resource: "secrets", Names: []string{earlier}, Verbs: []string{"get"}}
		w.kube.Users[user] = kubesim.Grants(kube.PolicyRules(append(slices.Clone(rules), granted)))
		back, err := w.open(rollbackRules(t)).rollback.Rollback(t.Context(), rollback.Request{Node: donor, RestoreLearned: []string{"customData"}})
		must(t, err)
		if !back.To.Equal(first.Version) {
			t.Errorf("went back to %s, not %s", back.To, first.Version)
		}
	})
}
