package denial

import (
	"strings"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/ortet/ortet/internal/cluster/kube"
	"github.com/ortet/ortet/internal/image/capture"
	"github.com/ortet/ortet/internal/workflow"
	"github.com/ortet/ortet/test/azsimserver"
	"github.com/ortet/ortet/test/kubesim"
)

const testFile = `apiVersion: batch/v1
kind: Job
metadata: {name: t, namespace: tests}
spec: {template: {spec: {restartPolicy: Never, containers: [{name: t, image: "t:1"}]}}}
`

// testRules are those of a capture without force, which may delete pods everywhere, and of its test.
func testRules() []kube.Rule {
	needs := kube.Everything(kube.DefaultNamespace)
	needs.Force, needs.Secrets, needs.Test = false, kube.Secrets(pool), "tests"
	return kube.Rules(needs)
}

// testWorld has clones whose test ends with the code.
func testWorld(t *testing.T, granted []kube.Rule, code int32) *world {
	t.Helper()
	w := canaryWorld(t, canaryActions(), "")
	w.kube.Users = map[string][]kubesim.Grant{user: kubesim.Grants(kube.PolicyRules(granted))}
	w.kube.Put(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "tests"}})
	var alone []*corev1.Pod // which only force deletes
	w.kube.Each("pods", func(o runtime.Object) bool {
		if p := o.(*corev1.Pod); metav1.GetControllerOf(p) == nil {
			alone = append(alone, p)
		}
		return true
	})
	for _, p := range alone {
		w.kube.Remove("pods", p.Namespace, p.Name)
	}
	w.kube.Remove("poddisruptionbudgets", "default", "budget")
	serve, logs := w.kube.OnRequest, w.kube.Log
	w.kube.OnRequest = func(r kubesim.Request) {
		serve(r)
		if r.Namespace != "tests" || r.Resource != "pods" || r.Verb != "create" {
			return
		}
		w.kube.Each("pods", func(o runtime.Object) bool {
			if p := o.(*corev1.Pod); p.Namespace == "tests" {
				w.kube.Change("pods", p.Namespace, p.Name, func(o runtime.Object) { o.(*corev1.Pod).Status = azsimserver.Ended(p, code) })
			}
			return true
		})
	}
	w.kube.Log = func(namespace, name string) []byte {
		if namespace == "tests" {
			return []byte("no volume\n")
		}
		return logs(namespace, name)
	}
	return w
}

func testRequest() capture.Request {
	q := canaryRequest()
	q.ForceDrain, q.CanaryTest = false, testFile
	return q
}

// TestCanaryTestPermissionsSuffice: with exactly what is documented a clone that fails its test is
// seen with its line, and no pod is left; each right in the Job's namespace was used.
func TestCanaryTestPermissionsSuffice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := testWorld(t, testRules(), 7)
		result, err := w.open(testRules()).Capture(t.Context(), testRequest())
		if workflow.ExitCode(err) != workflow.ExitFailed || len(result.Canary) != 2 || !strings.Contains(err.Error(), "failed its test (exit code 7): no volume") {
			t.Errorf("exit code %d: %v; clones %+v", workflow.ExitCode(err), err, result.Canary)
		}
		w.kube.Each("pods", func(o runtime.Object) bool {
			if p := o.(*corev1.Pod); p.Namespace == "tests" {
				t.Errorf("pod %s is left", p.Name)
			}
			return true
		})
		var own []kube.Rule
		for _, r := range testRules() {
			if r.Namespace == "tests" {
				own = append(own, r)
			}
		}
		w.usedAll(nil, own)
	})
}

// TestCanaryTestDenied takes away each of the rights that the test adds: it is named before
// anything has changed.
func TestCanaryTestDenied(t *testing.T) {
	for _, d := range denials(nil, nil, testRules()) {
		if !strings.HasSuffix(d.of, " in tests") {
			continue
		}
		t.Run("without "+d.of, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := testWorld(t, d.rules, 0)
				_, err := w.open(testRules()).Capture(t.Context(), testRequest())
				w.refused(err, d.said...)
			})
		})
	}
}
