//go:build e2e && linux

package lab

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ortet/ortet/internal/cluster/kube"
	"github.com/ortet/ortet/internal/fleet"
)

const compareImage = "lab.ortet.invalid/compare:1" // no registry has it; clones have the donor's

// machineTest is a Job that passes where the node's file has the text.
func machineTest(file, text string) string {
	return `apiVersion: batch/v1
kind: Job
metadata: {name: compare, namespace: node-tests}
spec:
  activeDeadlineSeconds: 60
  template:
    spec:
      restartPolicy: Never
      containers:
        - name: compare
          image: ` + compareImage + `
          imagePullPolicy: Never
          args: [/node` + file + `, "` + text + `"]
          volumeMounts: [{name: file, mountPath: /node` + file + `, readOnly: true}]
      volumes: [{name: file, hostPath: {path: ` + file + `, type: File}}]
`
}

// TestCanaryTest has clones run a test that passes on the donor and fails on each machine made from
// it, since it wants the donor's machine id: that version never goes live. Then one that wants what
// clones share with the donor: that version does.
func TestCanaryTest(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 14*time.Minute)
	defer cancel()
	line := newTimeline(t)
	l := newLab(ctx, t, line, "canarytest", nil)
	line.begin("container images")
	l.buildOrtet(ctx, t)
	l.run(ctx, t, "go", "build", "-trimpath", "-o", filepath.Join(l.bin, "compare"), "./hack/lab/images/compare")
	l.run(ctx, t, "go", "run", "./hack/image", "-name", compareImage, "-out", l.image("compare"), filepath.Join(l.bin, "compare"))
	line.begin("pool of three machines boots and joins")
	l.createPool(ctx, t)
	nodes := l.awaitNodes(ctx, t, workers)
	donor, bench := nodes[0], nodes[1]
	l.pull(ctx, t, "ortet", donor, bench)
	l.pull(ctx, t, "compare", donor)
	if _, err := l.client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "node-tests"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	poll(ctx, t, "the namespace's ServiceAccount", time.Minute, func(ctx context.Context) (bool, error) {
		_, err := l.client.CoreV1().ServiceAccounts("node-tests").Get(ctx, "default", metav1.GetOptions{})
		return err == nil, nil
	})
	id := strings.TrimSpace(l.machines.sh(ctx, t, donor, "cat /etc/machine-id"))
	system := strings.TrimSpace(l.machines.sh(ctx, t, donor, "cat /etc/debian_version"))
	bad, good := machineTest("/etc/machine-id", id), machineTest("/etc/debian_version", system)
	l.passesOn(ctx, t, donor, bad)
	l.passesOn(ctx, t, donor, good)
	model := l.modelImage(ctx, t)
	capture := func(test string, more ...string) error {
		file := filepath.Join(l.dir, "test.yaml")
		if err := os.WriteFile(file, []byte(test), 0o600); err != nil {
			t.Fatal(err)
		}
		return l.change(ctx, t, append([]string{"capture", donor, "--image=" + ortetImage, "--workbench=" + bench, "--accept-pool-credentials",
			"--grace-period=30s", "--canary=1", "--canary-soak=20s", "--canary-test=" + file}, more...)...)
	}

	line.begin("a test that passes on the donor alone")
	err := capture(bad)
	if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || exit.ExitCode() != 1 {
		t.Errorf("the capture whose test fails: %v, want exit status 1", err)
	}
	if now := l.modelImage(ctx, t); now != model {
		t.Errorf("the model's image is %s, want %s still", now, model)
	}

	l.deleteClones(ctx, t)
	line.begin("a test that passes on clones, too")
	if err := capture(good, "--again"); err != nil {
		l.explain(t)
		t.Fatalf("the capture whose test passes: %v", err)
	}
	live := l.checkModel(ctx, t)
	failed := slices.DeleteFunc(l.versions(ctx, t, live), func(v string) bool { return v == resource(live).version })
	if len(failed) != 1 {
		t.Fatalf("versions %v beside %s, want one", failed, live)
	}
	tag := l.tags(ctx, t, strings.TrimSuffix(live, resource(live).version)+failed[0])[fleet.TagQuarantine]
	if tag == nil || !strings.HasPrefix(*tag, "test: ") || !strings.Contains(*tag, "/node/etc/machine-id has") {
		t.Errorf("version %s is not quarantined with the test's line", failed[0])
	} else {
		t.Logf("version %s is quarantined: %s", failed[0], *tag)
	}
	pods, err := l.client.CoreV1().Pods("node-tests").List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range pods.Items {
		t.Errorf("pod %s is left on %s", p.Name, p.Spec.NodeName)
	}
	l.checkCanaryGone(ctx, t, nodes)
	line.print()
}

// modelImage is what the pool's new machines are made from, as text.
func (l *lab) modelImage(ctx context.Context, t *testing.T) string {
	t.Helper()
	set, err := l.azure.Pool(ctx, poolName)
	if err != nil {
		t.Fatal(err)
	}
	text, err := set.Properties.VirtualMachineProfile.StorageProfile.ImageReference.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// passesOn runs the pod of a test on a node, and deletes it.
func (l *lab) passesOn(ctx context.Context, t *testing.T, node, file string) {
	t.Helper()
	job, err := kube.ParseTest(file, kube.DefaultNamespace)
	if err != nil {
		t.Fatal(err)
	}
	pods := l.client.CoreV1().Pods(job.Namespace)
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "on-donor"}, Spec: job.Spec.Template.Spec}
	p.Spec.NodeName = node
	if _, err := pods.Create(ctx, p, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	poll(ctx, t, "the test's end on the donor", 2*time.Minute, func(ctx context.Context) (bool, error) {
		p, err := pods.Get(ctx, p.Name, metav1.GetOptions{})
		if err == nil && p.Status.Phase == corev1.PodFailed {
			err = errors.New("it failed on the donor: " + p.Status.Message)
		}
		return err == nil && p.Status.Phase == corev1.PodSucceeded, err
	})
	if err := pods.Delete(ctx, p.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}); err != nil {
		t.Fatal(err)
	}
}
