//go:build e2e

package e2e

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ortet/ortet/internal/fleet"
)

// TestCanaryTest has the chart's account run a user's test on clones that register with a real API
// server, within the chart's policies: one in a namespace that the chart does not grant is refused
// by the rights that it lacks; one that fails keeps the version from going live.
func TestCanaryTest(t *testing.T) {
	if testing.Short() {
		t.Skip("skipped: -short, and this starts a control plane")
	}
	awaitDay(t)
	w := newWorld(t, []poolSpec{{short: "patched", capacity: 2}}) // whose azure.json a night has
	p := w.pool(t, "patched", 2)
	for _, name := range []string{"node-tests", "not-granted"} {
		if _, err := w.kube.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
			must(t, err)
		}
	}
	eventually(t, "the namespace's ServiceAccount", func() bool {
		_, err := w.kube.CoreV1().ServiceAccounts("node-tests").Get(t.Context(), "default", metav1.GetOptions{})
		return err == nil
	})
	chart := w.installed(t, "tested", "kamino.targetNode="+p.nodes[0]+",ortet.canary=1,ortet.workbench="+p.nodes[1]+
		",ortet.canaryTest.configMap=canary-test,ortet.canaryTest.namespace=node-tests")
	run := func(namespace, command string, more ...string) outcome {
		file := filepath.Join(t.TempDir(), "job.yaml")
		must(t, os.WriteFile(file, []byte(`apiVersion: batch/v1
kind: Job
metadata: {name: works, namespace: `+namespace+`}
spec:
  activeDeadlineSeconds: 60
  template:
    spec:
      restartPolicy: Never
      containers: [{name: works, image: example.invalid/ortet:1, command: [ortet-node, `+command+`]}]
`), 0o600))
		return chart.run(t, append(more, "--canary-test="+file, "--canary-soak=5s", "--lease-duration=5s")...)
	}
	image := p.image(t)
	run("not-granted", "version").exits(t, exitRefused).says(t, "create pods in not-granted", "delete pods in not-granted", "get pods/log in not-granted")
	run("node-tests", "no-such-command").exits(t, exitFailed).says(t, "is quarantined: test: ", "failed its test (exit code 64): ", "Last lines of the test on ", "the model was not changed")
	if why := str(p.version(t, today()).Tags[fleet.TagQuarantine]); !strings.HasPrefix(why, "test: ") || !reflect.DeepEqual(p.image(t), image) {
		t.Errorf("the version's tag is %q, and the model's image %+v", why, p.image(t))
	}
	run("node-tests", "version", "--again").exits(t, exitDone).says(t, "1 clone passed")
	if reflect.DeepEqual(p.image(t), image) {
		t.Error("the model is unchanged after a test that passed")
	}
	pods, err := w.kube.CoreV1().Pods("node-tests").List(t.Context(), metav1.ListOptions{})
	must(t, err)
	for _, pod := range pods.Items {
		t.Errorf("pod %s is left on %s", pod.Name, pod.Spec.NodeName)
	}
	p.noCanary(t)
	p.clean(t)
}
