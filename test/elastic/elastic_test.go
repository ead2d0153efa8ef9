//go:build e2e && linux

package elastic

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	rootfs "github.com/ortet/ortet/hack/lab"
)

// configMap is a manifest.
func configMap(name string) string {
	return "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: " + name + ", namespace: default}\ndata: {kept: \"yes\"}\n"
}

// TestElasticShort is the day of somebody who wants a cheap cluster: made, grown, torn
// down tonight and back tomorrow with the same data.
func TestElasticShort(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	defer cancel()
	w := newWorld(ctx, t)
	w.make()
	w.admissionIsBound()
	w.cluster("scale", poolName, "2")
	w.wantNodes(2)
	w.deploy()
	w.changeServer()
	w.replaceServer()
	w.tomorrow()
	w.wantNodes(1) // the file's count: its scale set is new
	t.Log("\n" + strings.Join(w.times, "\n"))
}

// edit changes the operator's file.
func (w *world) edit(pattern, with string) {
	w.t.Helper()
	file := filepath.Join(w.home, "cluster.yaml")
	text, err := os.ReadFile(file)
	if err != nil {
		w.t.Fatal(err)
	}
	changed := regexp.MustCompile(pattern).ReplaceAll(text, []byte(with))
	if bytes.Equal(changed, text) {
		w.t.Fatalf("cluster.yaml has no %s:\n%s", pattern, text)
	}
	if err := os.WriteFile(file, changed, 0o600); err != nil {
		w.t.Fatal(err)
	}
}

const k3sPattern = `k3s:\n\s+sha256: [0-9a-f]{64}\n\s+url: \S+`

// k3sBlock is what cluster.yaml says of a k3s that the mirror serves.
func k3sBlock(program []byte, name string) string {
	return fmt.Sprintf("k3s:\n        sha256: %x\n        url: http://%s/%s", sha256.Sum256(program), mirrorAddress, name)
}

// changeServer changes the server while it runs: its time zone, for which k3s goes on, and
// then k3s itself, to the next version.
func (w *world) changeServer() {
	w.t.Helper()
	const started = "systemctl show --property ExecMainStartTimestampMonotonic --value k3s.service"
	before, nodes := w.ssh(started), w.uids()
	w.edit(`\n  storage:`, "\n  options: {timeZone: Pacific/Auckland}\n  storage:")
	w.cluster("up")
	if zone := w.ssh("date +%Z; readlink /etc/localtime"); !strings.HasSuffix(zone, "/Pacific/Auckland") {
		w.t.Errorf("the server's time zone is %s", zone)
	}
	if now := w.ssh(started); now != before {
		w.t.Errorf("k3s was restarted for a time zone: %s, was %s", now, before)
	}
	k3s, err := os.ReadFile(w.path("mirror", "k3s"))
	if err != nil {
		w.t.Fatal(err)
	}
	k3s = bytes.ReplaceAll(k3s, []byte(version), []byte(nextVersion)) // as long as before
	if err := os.WriteFile(w.path("mirror", "k3s-next"), k3s, 0o644); err != nil {
		w.t.Fatal(err)
	}
	w.edit(k3sPattern, k3sBlock(k3s, "k3s-next"))
	away := w.outage()
	w.cluster("up")
	w.step("API away for " + away().Round(100*time.Millisecond).String())
	if now := w.ssh(started); now == before {
		w.t.Error("k3s was not restarted for another k3s")
	}
	if sum := w.ssh("sha256sum /usr/local/bin/k3s"); !strings.HasPrefix(sum, fmt.Sprintf("%x ", sha256.Sum256(k3s))) {
		w.t.Errorf("the server's k3s is %s", sum)
	}
	if after := w.uids(); !maps.Equal(nodes, after) {
		w.t.Errorf("Nodes are %v, were %v", after, nodes)
	}
	w.wantVersions(nextVersion, version)
	if backups := w.cluster("backup", "--list"); !strings.Contains(backups, "before another k3s") {
		w.t.Errorf("no backup was made before another k3s:\n%s", backups)
	}
	w.wantAvailable()
}

// The lab's k3s has Kubernetes' version.
const version, nextVersion = "v1.36.3", "v1.36.4"

// wantVersions are those of the server's Node and of all agents'.
func (w *world) wantVersions(server, agents string) {
	w.t.Helper()
	list, err := w.kube().CoreV1().Nodes().List(w.ctx, metav1.ListOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	for _, n := range list.Items {
		want := agents
		if n.Name == "server" {
			want = server
		}
		w.t.Logf("%s  %s", n.Name, n.Status.NodeInfo.KubeletVersion)
		if n.Status.NodeInfo.KubeletVersion != want {
			w.t.Errorf("Node %s has version %s, want %s", n.Name, n.Status.NodeInfo.KubeletVersion, want)
		}
	}
}

// renewAgents: what up changed for agents reaches them by reimage --outdated: the next
// k3s, and an option of kubelet. The server takes its own over while it runs.
func (w *world) renewAgents() {
	w.t.Helper()
	w.edit(`\n  pools:\n  - count`, "\n  server: {k3s: {kubelet-arg: [max-pods=61]}}\n  pools:\n  - k3s: {kubelet-arg: [max-pods=51]}\n    count")
	w.cluster("up")
	w.cluster("reimage", poolName, "--outdated")
	w.wantNodes(2)
	w.wantVersions(nextVersion, nextVersion)
	list, err := w.kube().CoreV1().Nodes().List(w.ctx, metav1.ListOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	for _, n := range list.Items {
		want := int64(51)
		if n.Name == "server" {
			want = 61
		}
		if n.Status.Capacity.Pods().Value() != want {
			w.t.Errorf("Node %s has room for %s pods, want %d", n.Name, n.Status.Capacity.Pods(), want)
		}
	}
	w.wantAvailable()
}

// replaceServer makes the server's machine again: agents and what runs there notice
// nothing but a server that is away, and the operator's kubeconfig stays good.
func (w *world) replaceServer() {
	w.t.Helper()
	key, before := w.ssh("cat /etc/ssh/ssh_host_ed25519_key.pub"), w.uids()
	away := w.outage()
	w.cluster("replace", "server")
	w.step("API away for " + away().Round(100*time.Millisecond).String())
	w.wantNodes(len(before) - 1)
	if after := w.uids(); !maps.Equal(before, after) {
		w.t.Errorf("Nodes are %v, were %v", after, before)
	}
	if now := w.ssh("cat /etc/ssh/ssh_host_ed25519_key.pub"); now != key {
		w.t.Errorf("the server's SSH host key is %s, was %s", now, key)
	}
	w.wantMine()
	w.wantAvailable()
}

// wantMine: the operator's object is there.
func (w *world) wantMine() {
	w.t.Helper()
	m, err := w.kube().CoreV1().ConfigMaps("default").Get(w.ctx, "mine", metav1.GetOptions{})
	if err != nil || m.Data["kept"] != "yes" {
		w.t.Errorf("the object of before: %v, %v", m, err)
	}
}

// uids are what agents' Nodes keep while their machines go on, and the server's name.
func (w *world) uids() map[string]string {
	w.t.Helper()
	list, err := w.kube().CoreV1().Nodes().List(w.ctx, metav1.ListOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	all := map[string]string{}
	for _, n := range list.Items {
		if all[n.Name] = string(n.UID); n.Name != "server" {
			all[n.Name] += " boot " + n.Status.NodeInfo.BootID
		}
	}
	return all
}

// outage measures for how long the API does not answer at a time; it returns the longest.
func (w *world) outage() (longest func() time.Duration) {
	w.t.Helper()
	ctx, cancel := context.WithCancel(w.ctx)
	result, client := make(chan time.Duration), w.kube()
	go func() {
		most, last := time.Duration(0), time.Now()
		for ctx.Err() == nil {
			once, end := context.WithTimeout(ctx, time.Second)
			if _, err := client.CoreV1().Namespaces().Get(once, "default", metav1.GetOptions{}); err == nil {
				most, last = max(most, time.Since(last)), time.Now()
			}
			end()
			select {
			case <-ctx.Done():
			case <-time.After(200 * time.Millisecond):
			}
		}
		result <- most
	}()
	return func() time.Duration { cancel(); return <-result }
}

// make makes the cluster, with data on the share.
func (w *world) make() {
	w.t.Helper()
	w.clusterYAML()
	w.cluster("keys")
	w.cluster("validate")
	w.cluster("up")
	w.cluster("kubeconfig")
	w.wantNodes(1)
	if _, err := w.kube().CoreV1().ConfigMaps("default").Create(w.ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "mine"}, Data: map[string]string{"kept": "yes"}}, metav1.CreateOptions{}); err != nil {
		w.t.Fatal(err)
	}
	w.ssh("sudo mkdir -p /srv/autostart && echo today | sudo tee /srv/data >/dev/null && echo " + shellQuote(configMap("of-the-share")) +
		" | sudo tee /srv/autostart/evil.yaml >/dev/null && sync")
}

// tomorrow takes compute away and makes it again.
func (w *world) tomorrow() {
	w.t.Helper()
	w.cluster("down", "--yes", clusterName)
	// After a night all Leases are old: new machines have the names of yesterday's Nodes,
	// which still say Ready.
	time.Sleep(45 * time.Second)
	w.cluster("up")
	w.wantMine() // by the kubeconfig of yesterday
	w.wantNodes(1)
	if refused := w.ssh("sudo journalctl --no-pager -u ortet-admission | grep refused || true"); refused != "" {
		w.t.Errorf("the agent did not join at its first try:\n%s", refused)
	}
	if got := w.ssh("cat /srv/data"); got != "today" {
		w.t.Errorf("/srv/data is %q after down and up, want what was written before", got)
	}
	w.wantConfigMap()
}

// wantConfigMap waits for what the manifest of cluster.yaml has. The server applies
// nothing else.
func (w *world) wantConfigMap() {
	w.t.Helper()
	client := w.kube()
	deadline := time.Now().Add(time.Minute)
	for {
		m, err := client.CoreV1().ConfigMaps("default").Get(w.ctx, manifest, metav1.GetOptions{})
		if err == nil && m.Data["kept"] == "yes" {
			break
		}
		if time.Now().After(deadline) {
			w.t.Errorf("the manifest was not applied: %v", err)
			return
		}
		time.Sleep(time.Second)
	}
	if _, err := client.CoreV1().ConfigMaps("default").Get(w.ctx, "of-the-share", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		w.t.Errorf("the server applied a manifest of the share: %v", err)
	}
}

// admissionIsBound tries, by the credentials and as the user of the admission server,
// what its policies, RBAC and the files' modes forbid.
func (w *world) admissionIsBound() {
	w.t.Helper()
	for command, want := range map[string]string{
		"create secret generic planted --namespace kube-system":                  "secrets.ortet-system-ortet.ortet.io",
		"create --filename /tmp/lease.yaml":                                      "leases.ortet-system-ortet.ortet.io",
		"get secrets --all-namespaces":                                           "is forbidden",
		"create clusterrolebinding planted --clusterrole cluster-admin --user x": "is forbidden",
		"create token default --namespace kube-system":                           "is forbidden",
		"auth whoami --output jsonpath={.status.userInfo.username}":              "system:serviceaccount:ortet-system:ortet-admission",
		"run planted --namespace kube-system --image x":                          "is forbidden",
	} {
		out := w.ssh("printf 'apiVersion: coordination.k8s.io/v1\nkind: Lease\nmetadata: {name: planted, namespace: ortet-system}\n' >/tmp/lease.yaml; " +
			"sudo -u ortet-admission k3s kubectl --kubeconfig /run/ortet/admission/kubeconfig " + command + " 2>&1 || true")
		if !strings.Contains(out, want) {
			w.t.Errorf("kubectl %s as the admission server: %s; want %s", command, out, want)
		}
	}
	out := w.ssh("for f in /etc/rancher/k3s/k3s.yaml /run/ortet/share-credentials /var/lib/rancher/k3s/server/token; do sudo -u ortet-admission cat $f 2>&1; done; " +
		"sudo grep -h -E '^(Uid|CapBnd|CapEff|NoNewPrivs):' /proc/$(systemctl show --property MainPID --value ortet-admission.service)/status; id -u ortet-admission")
	lines := strings.Split(out, "\n")
	uid := lines[len(lines)-1]
	if strings.Count(out, "Permission denied") != 3 || len(lines) != 8 || uid == "0" || lines[3] != "Uid:\t"+strings.Join([]string{uid, uid, uid, uid}, "\t") ||
		!strings.HasSuffix(lines[4], "\t0000000000000000") || !strings.HasSuffix(lines[5], "\t0000000000000000") || lines[6] != "NoNewPrivs:\t1" {
		w.t.Errorf("the admission server's files and process: %s", out)
	}
}

// deploy gives the agents something to run, which may lose one pod at a time.
func (w *world) deploy() {
	w.t.Helper()
	client, labels := w.kube(), map[string]string{"app": "web"}
	spec := corev1.PodSpec{
		NodeSelector: map[string]string{"lab": "yes"}, // cluster.yaml's
		Containers:   []corev1.Container{{Name: "web", Image: rootfs.WebImage, ImagePullPolicy: corev1.PullNever}},
	}
	if _, err := client.AppsV1().Deployments("default").Create(w.ctx, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: appsv1.DeploymentSpec{Replicas: new(int32(2)), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: spec}},
	}, metav1.CreateOptions{}); err != nil {
		w.t.Fatal(err)
	}
	if _, err := client.PolicyV1().PodDisruptionBudgets("default").Create(w.ctx, &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec:       policyv1.PodDisruptionBudgetSpec{MaxUnavailable: new(intstr.FromInt32(1)), Selector: &metav1.LabelSelector{MatchLabels: labels}},
	}, metav1.CreateOptions{}); err != nil {
		w.t.Fatal(err)
	}
	w.wantAvailable()
}

// wantAvailable waits until all pods of the Deployment serve.
func (w *world) wantAvailable() {
	w.t.Helper()
	client := w.kube()
	deadline := time.Now().Add(2 * time.Minute)
	for {
		d, err := client.AppsV1().Deployments("default").Get(w.ctx, "web", metav1.GetOptions{})
		if err == nil && d.Status.AvailableReplicas == 2 {
			return
		}
		if time.Now().After(deadline) {
			w.t.Fatalf("the Deployment is not available: %+v, %v", d.Status, err)
		}
		time.Sleep(time.Second)
	}
}

// evict takes the last agent away, as Azure takes a Spot machine away: 30 seconds'
// notice, and then it is deleted.
func (w *world) evict() {
	w.t.Helper()
	f, err := w.azure.Clients()
	if err != nil {
		w.t.Fatal(err)
	}
	agents := w.instances()
	victim := w.agents()[len(agents)-1]
	w.step("evict " + victim)
	if _, err := f.NewVirtualMachineScaleSetVMsClient().SimulateEviction(w.ctx, clusterName+"-compute", poolName, agents[victim], nil); err != nil {
		w.t.Fatal(err)
	}
	deadline := time.Now().Add(2 * time.Minute)
	for len(w.agents()) != len(agents)-1 {
		if time.Now().After(deadline) {
			w.t.Fatalf("agents are %v two minutes after an eviction", w.agents())
		}
		time.Sleep(time.Second)
	}
}

// watch looks at status --watch for a while, and ends it as a person does.
func (w *world) watch() {
	w.t.Helper()
	cmd := w.command("--azure-config", w.azure.Endpoint.AzureConfig, "cluster", "status", "--watch")
	var out bytes.Buffer
	cmd.Stdout = &out
	if err := cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	time.Sleep(8 * time.Second)
	err := errors.Join(cmd.Process.Signal(os.Interrupt), cmd.Wait())
	if err != nil || !strings.Contains(out.String(), "Standard_D4s_v5") {
		w.t.Errorf("ortet cluster status --watch, interrupted: %v\n%s", err, out.String())
	}
}

// secondPool adds a pool of Regular machines, which the server that runs admits, and
// deletes it again: its Node goes too, before the whole notice that Azure gives has
// passed.
func (w *world) secondPool() {
	w.t.Helper()
	file := filepath.Join(w.home, "cluster.yaml")
	one, err := os.ReadFile(file)
	if err != nil {
		w.t.Fatal(err)
	}
	two := bytes.Replace(one, []byte("\n  pools:\n"), []byte("\n  pools:\n  - {name: batch, size: Standard_D2s_v5, count: 1, priority: Regular, taints: [\"batch=yes:NoSchedule\"]}\n"), 1)
	if bytes.Equal(one, two) {
		w.t.Fatalf("cluster.yaml has no pools:\n%s", one)
	}
	if err := os.WriteFile(file, two, 0o600); err != nil {
		w.t.Fatal(err)
	}
	w.cluster("up")
	node, deadline := new(corev1.Node), time.Now().Add(3*time.Minute)
	for !ready(node) {
		if node, err = w.kube().CoreV1().Nodes().Get(w.ctx, "batch000000", metav1.GetOptions{}); time.Now().After(deadline) {
			w.t.Fatalf("the machine of the second pool is not Ready: %v", err)
		}
		time.Sleep(time.Second)
	}
	if len(node.Spec.Taints) != 1 || node.Spec.Taints[0].Key != "batch" {
		w.t.Errorf("taints of the second pool's Node: %v", node.Spec.Taints)
	}
	if err := os.WriteFile(file, one, 0o600); err != nil {
		w.t.Fatal(err)
	}
	w.cluster("up", "--prune", "--yes", clusterName)
}

// keepsSize: what resize did stays when up runs.
func (w *world) keepsSize() {
	w.t.Helper()
	w.cluster("up")
	if out := w.cluster("status"); !strings.Contains(out, "Standard_D4s_v5") {
		w.t.Errorf("up took the size of resize back:\n%s", out)
	}
}

// backUpAndRestore: an object that was deleted after a backup is there again.
func (w *world) backUpAndRestore() {
	w.t.Helper()
	maps := w.kube().CoreV1().ConfigMaps("default")
	if _, err := maps.Create(w.ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "saved"}}, metav1.CreateOptions{}); err != nil {
		w.t.Fatal(err)
	}
	w.cluster("backup", "noon")
	if err := maps.Delete(w.ctx, "saved", metav1.DeleteOptions{}); err != nil {
		w.t.Fatal(err)
	}
	w.cluster("restore", "noon", "--yes", clusterName)
	if _, err := maps.Get(w.ctx, "saved", metav1.GetOptions{}); err != nil {
		w.t.Errorf("the object of before the backup: %v", err)
	}
	w.wantNodes(2)
	w.wantAvailable()
}

// stopAndStart: a cluster that was stopped comes back as it was.
func (w *world) stopAndStart() {
	w.t.Helper()
	w.cluster("stop")
	if out := w.cluster("status"); !strings.Contains(out, "deallocated") {
		w.t.Errorf("status of a stopped cluster:\n%s", out)
	}
	w.cluster("start")
	w.wantNodes(2)
	w.wantAvailable()
}

// brokenUpgrade: a k3s that exits at once ends up with exit code 4 and the way back, which
// works.
func (w *world) brokenUpgrade() {
	w.t.Helper()
	file := filepath.Join(w.home, "cluster.yaml")
	before, err := os.ReadFile(file)
	if err != nil {
		w.t.Fatal(err)
	}
	broken := []byte("#!/bin/sh\nexit 1\n")
	if err := os.WriteFile(w.path("mirror", "k3s-broken"), broken, 0o644); err != nil {
		w.t.Fatal(err)
	}
	w.edit(k3sPattern, k3sBlock(broken, "k3s-broken"))
	r := w.try("", "--azure-config", w.azure.Endpoint.AzureConfig, "cluster", "up", "--timeout", "40s")
	w.t.Logf("exit %d\n%s", r.code, r.err)
	way := regexp.MustCompile(`ortet\s+cluster\s+restore\s+(state-[0-9-]+)`).FindStringSubmatch(r.err)
	if r.code != 4 || way == nil {
		w.t.Fatalf("up with a k3s that exits: exit %d, %s", r.code, r.err)
	}
	if err := os.WriteFile(file, before, 0o600); err != nil {
		w.t.Fatal(err)
	}
	w.cluster("restore", way[1], "--yes", clusterName)
	w.wantNodes(2)
	w.wantAvailable()
}

// wrongDigest makes compute again by a file whose digest of k3s is another's: status
// names it.
func (w *world) wrongDigest() {
	w.t.Helper()
	w.cluster("down", "--yes", clusterName)
	file := filepath.Join(w.home, "cluster.yaml")
	right, err := os.ReadFile(file)
	if err != nil {
		w.t.Fatal(err)
	}
	digest := regexp.MustCompile(`k3s:\n\s+sha256: ([0-9a-f]{64})`).FindSubmatch(right)
	if digest == nil {
		w.t.Fatalf("cluster.yaml has no digest of k3s:\n%s", right)
	}
	if err := os.WriteFile(file, bytes.Replace(right, digest[1], bytes.Repeat([]byte("f"), 64), 1), 0o600); err != nil {
		w.t.Fatal(err)
	}
	w.cluster("up", "--no-wait")
	deadline := time.Now().Add(3 * time.Minute)
	for {
		out := w.cluster("status")
		if regexp.MustCompile(`checksum of http://` + mirrorAddress + `/k3s\S* does not match`).MatchString(strings.Join(strings.Fields(out), " ")) {
			w.t.Log(out)
			break
		}
		if time.Now().After(deadline) {
			w.t.Fatalf("status does not name the wrong digest:\n%s", out)
		}
		time.Sleep(5 * time.Second)
	}
	if err := os.WriteFile(file, right, 0o600); err != nil {
		w.t.Fatal(err)
	}
}

func shellQuote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// TestElastic runs every command, and an eviction.
func TestElastic(t *testing.T) {
	if testing.Short() {
		t.Skip("TestElasticShort runs in its place")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	defer cancel()
	w := newWorld(ctx, t)
	w.make()
	for _, command := range [][]string{{"plan"}, {"status"}, {"agents"}, {"endpoints"}, {"logs", "--lines", "5"}} {
		out := w.cluster(command...)
		t.Logf("%s", out)
		if command[0] == "logs" {
			continue
		}
		var v any
		if err := json.Unmarshal([]byte(w.cluster(append(command, "-o", "json")...)), &v); err != nil {
			t.Errorf("ortet cluster %v -o json: %v", command, err)
		}
	}
	w.cluster("up") // again: nothing changes
	w.wantNodes(1)
	agent := w.agents()[0]
	w.until("boot of an agent whose image has nothing of Ortet's", func() error {
		if r := w.try("", "boot", "show", agent); r.code != 0 || !strings.Contains(r.out, "ortet-boot") {
			return fmt.Errorf("ortet boot show %s: exit %d: %s%s", agent, r.code, r.err, r.out)
		}
		return nil
	})
	w.deploy()
	for _, step := range []struct {
		command []string
		agents  int
	}{
		{[]string{"scale", poolName, "3"}, 3},
		{[]string{"scale", poolName, "2"}, 2},
		{[]string{"stop", poolName}, -1},
		{[]string{"start", poolName}, 2},
		{[]string{"resize", poolName, "Standard_D4s_v5"}, 2},
		{[]string{"reimage", poolName}, 2},
		{[]string{"chaos", poolName, "--yes", poolName}, 2},
		{[]string{"replace", w.agents()[0]}, 2},
	} {
		if step.command[0] == "replace" {
			step.command[1] = w.agents()[0]
		}
		w.cluster(step.command...)
		if step.agents >= 0 {
			w.wantNodes(step.agents)
		}
	}
	w.keepsSize()
	w.changeServer()
	w.renewAgents()
	w.backUpAndRestore()
	w.stopAndStart()
	w.brokenUpgrade()
	w.evict()
	w.wantNodes(1)
	w.wantAvailable()
	w.watch()
	w.secondPool()
	w.wantNodes(1)
	w.wrongDigest()
	w.tomorrow()
	w.capture()
	w.cluster("down", "--all", "--yes", clusterName)
	t.Log("\n" + strings.Join(w.times, "\n"))
}
