//go:build e2e && linux

package lab

import (
	"context"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// checkKilled makes a further prototype of the donor by the chart. The Job's
// program is killed in the middle, while the donor is down and its copied disk
// is being attached; the Job's next pod has to end what that one began. It gives
// the new version.
func (l *lab) checkKilled(ctx context.Context, t *testing.T, donor, version string) string {
	l.helm(ctx, t, "uninstall", "prototype", "--wait")
	l.install(ctx, t, donor, "ortet.again=true")
	killed := ""
	j := l.follow(ctx, t, jobName, donor, func(pod *corev1.Pod, line string) {
		if killed == "" && strings.Contains(line, " attach: ") {
			killed = pod.Name
			// No other process of a machine has that name; ortet-node is another.
			l.machines.sh(ctx, t, pod.Spec.NodeName, `for p in $(pgrep -x ortet); do kill -9 "$p"; done`)
		}
	})
	if len(j.pods) != 2 || killed != j.pods[0] {
		t.Errorf("pods %v, of which %q was killed: want two, and the first killed", j.pods, killed)
	}
	second := l.checkModel(ctx, t)
	if second == version {
		t.Errorf("the model's image is still %s", version)
	}
	want := []string{resource(version).version, resource(second).version}
	slices.Sort(want)
	if got := slices.Sorted(slices.Values(l.versions(ctx, t, version))); !slices.Equal(got, want) {
		t.Errorf("versions %v, want %v", got, want)
	}
	if n := l.node(ctx, t, donor); !ready(*n) || n.Spec.Unschedulable {
		t.Errorf("the donor: ready %v, unschedulable %v", ready(*n), n.Spec.Unschedulable)
	}
	l.checkUnprotected(ctx, t, donor)
	l.checkTemporary(ctx, t, slices.Collect(maps.Keys(l.instances(ctx, t))))
	return second
}

// change runs a command of ortet as an operator does, and logs what it prints; the
// error is how it ended.
func (l *lab) change(ctx context.Context, t *testing.T, args ...string) error {
	t.Helper()
	cmd := exec.CommandContext(ctx, filepath.Join(l.bin, "ortet"), append(args, "--azure-config", l.azure.Endpoint.AzureConfig, "--kubeconfig", l.kubeconfig)...)
	cmd.Env = l.trusting()
	out, err := cmd.CombinedOutput()
	t.Logf("ortet %s:\n%s", args[0], out)
	return err
}

// trusting is an environment in which azsim's certificate is trusted.
func (l *lab) trusting() []string {
	return append(os.Environ(), "SSL_CERT_FILE="+l.azure.Endpoint.CAFile)
}

// checkRollback goes back to the first version by the command line, and adds an
// instance.
func (l *lab) checkRollback(ctx context.Context, t *testing.T, donor, first, second string) {
	if err := l.change(ctx, t, "rollback", donor); err != nil {
		t.Fatal(err)
	}
	if now := l.checkModel(ctx, t); now != first {
		t.Errorf("the model's image is %s, want %s again", now, first)
	}
	before := l.instances(ctx, t)
	if err := l.azure.ScaleOut(ctx, poolName, 1); err != nil {
		t.Fatal(err)
	}
	for _, n := range l.awaitNodes(ctx, t, len(before)+1) {
		if before[n] == nil {
			l.checkOrigin(ctx, t, []string{n}, first)
		}
	}
	if all := l.versions(ctx, t, first); !slices.Contains(all, resource(second).version) {
		t.Errorf("the version that was left is gone: %v", all)
	}
}
