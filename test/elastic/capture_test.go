//go:build e2e && linux

package elastic

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ortet/ortet/test/live"
)

// ortetImage is in the archive of images that agents fetch. No registry has it.
const ortetImage = live.Image

// TestElasticCapture makes a cluster and captures an agent, as TestElastic does at its end.
func TestElasticCapture(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 13*time.Minute)
	defer cancel()
	w := newWorld(ctx, t)
	w.make()
	w.deploy()
	w.capture()
	w.cluster("down", "--all", "--yes", clusterName)
	t.Log("\n" + strings.Join(w.times, "\n"))
}

// capture captures one of two agents by the commands of docs/how-to/run-cluster.md. New
// agents boot from its image, whatever else of the pool changes in cluster.yaml.
func (w *world) capture() {
	w.t.Helper()
	commands := w.page("Capture an agent", "REGISTRY/ortet:TAG", ortetImage)
	last := len(commands) - 1
	marketplace := w.grow(commands[0])
	agents := w.agents()
	donor := agents[0]
	before := w.node(donor)
	for _, c := range commands[1:last] {
		w.t.Logf("%s", w.ortet(c))
	}
	w.wantNodes(2)
	after := w.node(donor)
	if after.UID != before.UID || after.Status.NodeInfo.BootID == before.Status.NodeInfo.BootID || len(after.Spec.Taints) != 0 {
		w.t.Errorf("donor %s is Node %s with boot %s and taints %v, was %s with boot %s", donor, after.UID, after.Status.NodeInfo.BootID, after.Spec.Taints, before.UID, before.Status.NodeInfo.BootID)
	}
	w.wantAvailable()
	image := w.image()
	if !strings.Contains(image, "/galleries/") {
		w.t.Fatalf("the pool's model has image %q", image)
	}

	captured := w.grow(commands[last])
	w.t.Logf("machine's start to Ready Node: Marketplace image %s, captured image %s", marketplace, captured)
	clone := w.wantClones(image, agents)

	// The file changes the pool in all but its image.
	w.edit(`lab: "yes"`, "lab: \"yes\"\n      since: capture")
	w.edit(`count: 1\n`, "count: 4\n")
	plan := w.cluster("plan")
	w.t.Logf("%s", plan)
	w.t.Logf("%s", w.cluster("up"))
	w.wantNodes(4)
	status := w.cluster("status")
	w.t.Logf("%s", status)
	for command, out := range map[string]string{"plan": plan, "status": status} {
		if text := strings.Join(strings.Fields(out), " "); !strings.Contains(text, "pool agents keeps image") {
			w.t.Errorf("%s does not name the image that the pool keeps:\n%s", command, out)
		}
	}
	if now := w.image(); now != image {
		w.t.Errorf("after up the pool's image is %s, was %s", now, image)
	}
	labelled := w.wantClones(image, append(agents, clone))
	if labels := w.node(labelled).Labels; labels["since"] != "capture" {
		w.t.Errorf("Node %s has labels %v, want the one that cluster.yaml got after the capture", labelled, labels)
	}
	w.wantAvailable()
}

// page returns the commands of the first block under a heading of the page on running a
// cluster, with another word in a placeholder's place.
func (w *world) page(heading, placeholder, word string) [][]string {
	w.t.Helper()
	text, err := os.ReadFile(filepath.Join(w.checkout, "docs", "how-to", "run-cluster.md"))
	if err != nil {
		w.t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n## "+heading+"\n")
	_, block, _ := strings.Cut(section, "\n```sh\n")
	block, _, _ = strings.Cut(block, "\n```\n")
	if !strings.Contains(block, placeholder) {
		w.t.Fatalf("run-cluster.md has no %s in the commands under %s:\n%s", placeholder, heading, block)
	}
	var commands [][]string
	for line := range strings.SplitSeq(strings.ReplaceAll(block, placeholder, word), "\n") {
		commands = append(commands, strings.Fields(line)[1:])
	}
	return commands
}

// ortet runs a command that has to end well, and returns all that it prints.
func (w *world) ortet(args []string) string {
	w.t.Helper()
	began := time.Now()
	r := w.try("", append([]string{"--azure-config", w.azure.Endpoint.AzureConfig}, args...)...)
	if r.code != 0 {
		w.t.Fatalf("ortet %s: exit %d\n%s%s", strings.Join(args, " "), r.code, r.err, r.out)
	}
	w.times = append(w.times, fmt.Sprintf("%6.1f s  ortet %s", time.Since(began).Seconds(), strings.Join(args, " ")))
	return r.err + r.out
}

// grow has a command add an agent to the pool, and returns how long its boot took until
// its Node was Ready.
func (w *world) grow(command []string) time.Duration {
	w.t.Helper()
	known := w.agents()
	w.ortet(command)
	w.wantNodes(len(known) + 1)
	name := w.others(known)
	started, err := time.Parse(time.UnixDate, w.on(name, "LC_ALL=C TZ=UTC date --date=@$(stat --format=%Y /proc/1)"))
	if err != nil {
		w.t.Fatal(err)
	}
	for _, c := range w.node(name).Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.LastTransitionTime.Sub(started)
		}
	}
	return 0
}

// others is the one agent that is not known.
func (w *world) others(known []string) string {
	w.t.Helper()
	left := slices.DeleteFunc(w.agents(), func(n string) bool { return slices.Contains(known, n) })
	if len(left) != 1 {
		w.t.Fatalf("new agents are %v, want one", left)
	}
	return left[0]
}

// wantClones looks at the one agent that is not known: it was made from the image, and is
// a machine and a Node of its own. It returns its name.
func (w *world) wantClones(image string, known []string) string {
	w.t.Helper()
	name := w.others(known)
	f, err := w.azure.Clients()
	if err != nil {
		w.t.Fatal(err)
	}
	vm, err := f.NewVirtualMachineScaleSetVMsClient().Get(w.ctx, clusterName+"-compute", poolName, w.instances()[name], nil)
	if err != nil {
		w.t.Fatal(err)
	}
	if got := imageOf(vm.Properties.StorageProfile.ImageReference); got != image {
		w.t.Errorf("%s was made from %q, want %q", name, got, image)
	}
	if got, want := w.node(name).Spec.ProviderID, "azure://"+*vm.ID; !strings.EqualFold(got, want) {
		w.t.Errorf("%s has provider id %s, want %s", name, got, want)
	}
	marks := map[string]map[string]string{}
	for _, n := range append([]string{name}, known...) {
		marks[n] = w.marks(n)
	}
	for mark, value := range marks[name] {
		for _, n := range known {
			if value == marks[n][mark] || value == "" {
				w.t.Errorf("%s: %s has %q, %s has %q", mark, name, value, n, marks[n][mark])
			}
		}
	}
	if hosts := w.on(name, "hostname; cat /etc/hostname"); hosts != name+"\n"+name {
		w.t.Errorf("%s has the host names %s", name, hosts)
	}
	if data := w.on(name, "cat /srv/data"); data != "today" {
		w.t.Errorf("%s has /srv/data %q", name, data)
	}
	// What boot.py fetched is on the image.
	const fetched = "stat --format='%n %Y' /usr/local/bin/k3s /usr/local/bin/ortet-node /var/lib/rancher/k3s/agent/images/*"
	if of, has := w.on(known[0], fetched), w.on(name, fetched); has != of {
		w.t.Errorf("%s has\n%s\nand its donor\n%s", name, has, of)
	}
	return name
}

// marks tell machines from one another.
func (w *world) marks(host string) map[string]string {
	w.t.Helper()
	const files = "/etc/machine-id /etc/rancher/node/password /etc/ssh/ssh_host_ed25519_key " +
		"/var/lib/rancher/k3s/agent/client-kubelet.crt /var/lib/rancher/k3s/agent/client-kubelet.key /var/lib/rancher/k3s/agent/serving-kubelet.crt"
	all := map[string]string{}
	for line := range strings.Lines(w.on(host, "sha256sum "+files)) {
		digest, file, _ := strings.Cut(strings.TrimSpace(line), "  ")
		all[file] = digest
	}
	return all
}

// on runs a script on an agent, as root.
func (w *world) on(host, script string) string {
	w.t.Helper()
	runc := []string{"--root", w.path("azure", "machine", "runc")}
	list, err := exec.CommandContext(w.ctx, "runc", append(runc, "list", "--quiet")...).Output()
	if err != nil {
		w.t.Fatal(err)
	}
	for id := range strings.FieldsSeq(string(list)) {
		name, err := exec.CommandContext(w.ctx, "runc", append(runc, "exec", id, "hostname")...).Output()
		if err != nil || strings.TrimSpace(string(name)) != host {
			continue
		}
		out, err := exec.CommandContext(w.ctx, "runc", append(runc, "exec", id, "sh", "-c", script)...).CombinedOutput()
		if err != nil {
			w.t.Fatalf("on %s: %s: %v\n%s", host, script, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	w.t.Fatalf("no machine has the host name %s", host)
	return ""
}

func (w *world) node(name string) *corev1.Node {
	w.t.Helper()
	n, err := w.kube().CoreV1().Nodes().Get(w.ctx, name, metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	return n
}

// image is that of the pool's model.
func (w *world) image() string {
	w.t.Helper()
	f, err := w.azure.Clients()
	if err != nil {
		w.t.Fatal(err)
	}
	set, err := f.NewVirtualMachineScaleSetsClient().Get(w.ctx, clusterName+"-compute", poolName, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	return imageOf(set.Properties.VirtualMachineProfile.StorageProfile.ImageReference)
}

// imageOf is an image's id, or its name in the Marketplace.
func imageOf(r *armcompute.ImageReference) string {
	if r.ID != nil {
		return *r.ID
	}
	return strings.Join([]string{*r.Publisher, *r.Offer, *r.SKU, *r.Version}, ":")
}
