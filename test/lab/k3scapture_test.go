//go:build e2e && linux

package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	rootfs "github.com/ortet/ortet/hack/lab"
	"github.com/ortet/ortet/test/azsimserver"
)

const serverPool = "server"

// k3sData is custom data of a k3s node: its configuration, and which unit it starts.
func k3sData(unit, config string) string {
	return "#cloud-config\nwrite_files:\n- path: /etc/rancher/k3s/config.yaml\n  permissions: \"0600\"\n  content: |\n    " +
		strings.ReplaceAll(strings.TrimSpace(config), "\n", "\n    ") +
		"\nruncmd:\n- [systemctl, enable, --now, --no-block, " + unit + "]\n"
}

// startK3s boots the server of a k3s cluster, and returns its host name.
func (l *lab) startK3s(ctx context.Context, t *testing.T) (server string) {
	t.Helper()
	pool := azsimserver.Pool{Name: serverPool, Capacity: 1, CustomData: k3sData("k3s.service", k3sServerConfig), Change: azsimserver.Bare}
	if err := l.azure.Create(ctx, pool); err != nil {
		t.Fatalf("create the server: %v", err)
	}
	server = l.hosts(ctx, t)[0]
	t.Cleanup(func() { l.explainK3s(t) })
	l.reachK3s(ctx, t, server)
	l.awaitNodes(ctx, t, 1)
	return server
}

// TestK3sCapture captures an agent of k3s that Ortet did not admit, and whose Node has k3s's
// own provider id: it is found by its systemUUID and host name, and its clone joins as a
// node of its own.
func TestK3sCapture(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	line := newTimeline(t)
	line.begin("binaries, disk image")
	l, binary, disk := prepareLab(ctx, t, "k3scapture")
	l.buildOrtet(ctx, t)
	baked := bakeK3s(ctx, t, l, binary, disk, map[string]string{"var/lib/rancher/k3s/agent/images/lab-ortet.tar": l.image("ortet")})
	l.startAzure(ctx, t, map[string]string{"*": baked})

	line.begin("server")
	server := l.startK3s(ctx, t)

	line.begin("two agents")
	token := l.machines.sh(ctx, t, server, "cat /var/lib/rancher/k3s/server/node-token")
	config := fmt.Sprintf("server: https://%s:6443\ntoken: %s\npause-image: %s\n", l.addressOf(ctx, t, server), token, rootfs.PauseImage)
	pool := azsimserver.Pool{Name: poolName, Capacity: 2, CustomData: k3sData("k3s-agent.service", config), Change: azsimserver.Bare}
	if err := l.azure.Create(ctx, pool); err != nil {
		t.Fatalf("create the agents: %v", err)
	}
	nodes := l.awaitNodes(ctx, t, 3)
	agents := slices.DeleteFunc(slices.Clone(nodes), func(n string) bool { return n == server })
	donor, bench := agents[0], agents[1]
	for _, n := range agents {
		l.checkK3sNode(ctx, t, n)
	}
	before, password := l.node(ctx, t, donor), l.password(ctx, t, donor)

	line.begin("capture of an agent")
	if err := l.change(ctx, t, "capture", donor, "--image="+ortetImage, "--workbench="+bench,
		"--accept-pool-credentials", "--grace-period=30s"); err != nil {
		l.explain(t)
		t.Fatal(err)
	}
	version := l.checkModel(ctx, t)
	l.awaitNodes(ctx, t, 3)
	after := l.node(ctx, t, donor)
	if after.UID != before.UID || after.Spec.Unschedulable || after.Status.NodeInfo.BootID == before.Status.NodeInfo.BootID {
		t.Errorf("donor %s is Node %s with boot %s, unschedulable %v; was %s with boot %s",
			donor, after.UID, after.Status.NodeInfo.BootID, after.Spec.Unschedulable, before.UID, before.Status.NodeInfo.BootID)
	}

	line.begin("a clone")
	if err := l.azure.ScaleOut(ctx, poolName, 1); err != nil {
		t.Fatal(err)
	}
	clones := slices.DeleteFunc(l.awaitNodes(ctx, t, 4), func(n string) bool { return slices.Contains(nodes, n) })
	if len(clones) != 1 {
		t.Fatalf("clones %v, want 1", clones)
	}
	clone := clones[0]
	l.checkK3sNode(ctx, t, clone)
	image := l.instances(ctx, t)[clone].Properties.StorageProfile.ImageReference.ID
	if image == nil || path.Base(*image) != path.Base(version) {
		t.Errorf("clone %s was made from %v, want %s", clone, image, version)
	}
	if l.password(ctx, t, clone) == password {
		t.Errorf("clone %s has the node password of %s", clone, donor)
	}
	if now := l.password(ctx, t, donor); now != password {
		t.Errorf("donor %s has another node password than before", donor)
	}
	for _, n := range []string{donor, clone} {
		if _, err := l.client.CoreV1().Secrets(metav1.NamespaceSystem).Get(ctx, n+".node-password.k3s", metav1.GetOptions{}); err != nil {
			t.Errorf("the server does not know the node password of %s: %v", n, err)
		}
	}
	l.runPod(ctx, t, "on-clone", clone, rootfs.WebImage)
	line.print()
}

// hosts are the host names of all machines that run.
func (l *lab) hosts(ctx context.Context, t *testing.T) []string {
	t.Helper()
	if _, err := l.machines.container(ctx, ""); err == nil {
		t.Fatal("a machine has no host name")
	}
	var names []string
	for name := range l.machines.containers {
		names = append(names, name)
	}
	return names
}

func (l *lab) addressOf(ctx context.Context, t *testing.T, host string) string {
	t.Helper()
	return l.machines.sh(ctx, t, host, "ip -4 -oneline address show dev eth0 scope global | awk '{print $4; exit}' | cut -d / -f 1")
}

// reachK3s takes the administrator's kubeconfig from the server, once it has one.
func (l *lab) reachK3s(ctx context.Context, t *testing.T, server string) {
	t.Helper()
	text := l.machines.sh(ctx, t, server,
		"timeout 90 sh -c 'until systemctl is-active --quiet k3s; do sleep 1; done'; cat /etc/rancher/k3s/k3s.yaml")
	l.kubeconfig = filepath.Join(l.dir, "k3s.yaml")
	text = strings.ReplaceAll(text, "127.0.0.1", l.addressOf(ctx, t, server))
	if err := os.WriteFile(l.kubeconfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", l.kubeconfig)
	if err == nil {
		l.client, err = kubernetes.NewForConfig(config)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// checkK3sNode: nothing of a Node names its machine but the id of its firmware.
func (l *lab) checkK3sNode(ctx context.Context, t *testing.T, name string) {
	t.Helper()
	n, vm := l.node(ctx, t, name), l.instances(ctx, t)[name]
	if vm == nil {
		t.Fatalf("node %s is no instance of the pool", name)
	}
	if id := n.Spec.ProviderID; id != "k3s://"+name {
		t.Errorf("node %s has provider id %s", name, id)
	}
	if id := n.Status.NodeInfo.SystemUUID; id != *vm.Properties.VMID {
		t.Errorf("node %s has systemUUID %q, want the vmId %s", name, id, *vm.Properties.VMID)
	}
	for _, address := range n.Status.Addresses {
		if address.Type == corev1.NodeHostName && address.Address != name {
			t.Errorf("node %s has host name %s", name, address.Address)
		}
	}
	t.Logf("node %s: provider id %s, systemUUID %s", name, n.Spec.ProviderID, n.Status.NodeInfo.SystemUUID)
}

func (l *lab) password(ctx context.Context, t *testing.T, host string) string {
	t.Helper()
	return l.machines.sh(ctx, t, host, "cat /etc/rancher/node/password")
}

// explainK3s shows what k3s said on each machine of a test that failed.
func (l *lab) explainK3s(t *testing.T) {
	if !t.Failed() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	_, err := l.machines.container(ctx, "")
	for name, id := range l.machines.containers {
		out, lerr := l.machines.runc(ctx, nil, "exec", id, "sh", "-c",
			"journalctl -b --no-pager -o short-precise -u k3s -u k3s-agent | grep -v 'Running\\|Flag --' | tail -40")
		err = errors.Join(err, lerr)
		t.Logf("on %s:\n%s", name, out)
	}
	t.Logf("machines: %v", err)
}
