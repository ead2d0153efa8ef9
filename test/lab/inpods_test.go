//go:build e2e && linux

package lab

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/ortet/ortet/azsim/metadata"
	rootfs "github.com/ortet/ortet/hack/lab"
	"github.com/ortet/ortet/test/azsimserver"
	"github.com/ortet/ortet/test/controlplane"
)

const (
	// controlPool is the scale set of the nodes that the server runs on, and
	// controlImage the sku of their image, on which Ortet is not.
	controlPool  = "k8s-control-12345678-vmss"
	controlImage = "control-plane"
	// component selects the server's pods.
	component = "app.kubernetes.io/component=admission"
	// admissionPort is the chart's, and the documentation's.
	admissionPort = "8443"
)

// An installed is a lab in which ortet admission runs as docs/how-to/join.md has it installed:
// by the chart, in pods on the control plane's nodes, in the cluster that it lets
// machines into.
type installed struct {
	*lab
	control []string          // names of the control plane's nodes
	address map[string]string // of those, by name
	first   string            // whose server machines ask first: the one that approves certificates
	doc     string
	desk    string // the operator's folder
}

// TestAdmissionInPods follows docs/how-to/join.md: its values, its commands and its settings,
// as they stand there, with the lab's names in the place of the examples'.
func TestAdmissionInPods(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute)
	defer cancel()
	line := newTimeline(t)
	i := newInstalled(ctx, t, line)
	defer func() {
		if t.Failed() {
			i.explain(t)
			for _, name := range i.control {
				t.Logf("the server's log on %s:\n%s", name, i.log(context.WithoutCancel(ctx), t, name))
			}
		}
	}()

	line.begin("helm installs the server")
	data := i.install(ctx, t)
	line.begin("a machine boots and joins")
	if err := i.azure.Create(ctx, azsimserver.Pool{Name: poolName, Capacity: 1, Change: azsimserver.Bare, CustomData: data}); err != nil {
		t.Fatalf("create the pool: %v", err)
	}
	all := i.awaitNodes(ctx, t, len(i.control)+1)
	t.Run("a machine joins by the pods", func(t *testing.T) { i.checkJoined(ctx, t, i.joined(all)) })
	if t.Failed() {
		t.FailNow()
	}
	line.begin("the server is killed while the next one asks it")
	t.Run("a join outlives the server that it asked", func(t *testing.T) { i.checkKilled(ctx, t, all) })
	line.print()
}

// newInstalled starts a lab with two nodes that play the control plane's: they join by a
// token, as kubeadm has it, and have what kubeadm marks them by.
func newInstalled(ctx context.Context, t *testing.T, line *timeline) *installed {
	t.Helper()
	i := &installed{address: map[string]string{}}
	join := bakeJoin(ctx, t)
	i.lab = newLab(ctx, t, line, "pods", func(l *lab, disk string) map[string]string {
		images := join(l, disk)
		images["Debian:debian-12:"+controlImage+":latest"] = disk
		return images
	})
	i.sitDown(ctx, t)

	line.begin("the control plane's nodes boot")
	data, created := i.nodeData(ctx, t), make(chan error, 1)
	go func() {
		created <- i.azure.Create(ctx, azsimserver.Pool{Name: controlPool, Capacity: 2, CustomData: data, Change: func(body map[string]any) {
			azsimserver.Bare(body)
			profile := body["properties"].(map[string]any)["virtualMachineProfile"].(map[string]any)
			profile["storageProfile"].(map[string]any)["imageReference"].(map[string]any)["sku"] = controlImage
		}})
	}()
	i.buildOrtet(ctx, t)
	if err := <-created; err != nil {
		t.Fatalf("create the control plane's nodes: %v", err)
	}
	i.control = i.awaitNodes(ctx, t, 2)
	marks := `{"metadata":{"labels":{"node-role.kubernetes.io/control-plane":"","node.kubernetes.io/exclude-from-external-load-balancers":""}},` +
		`"spec":{"taints":[{"key":"node-role.kubernetes.io/control-plane","effect":"NoSchedule"}]}}`
	for _, name := range i.control {
		n, err := i.client.CoreV1().Nodes().Patch(ctx, name, types.StrategicMergePatchType, []byte(marks), metav1.PatchOptions{})
		if err != nil {
			t.Fatal(err)
		}
		at := slices.IndexFunc(n.Status.Addresses, func(a corev1.NodeAddress) bool { return a.Type == corev1.NodeInternalIP })
		if at < 0 {
			t.Fatalf("%s has no address: %v", name, n.Status.Addresses)
		}
		i.address[name] = n.Status.Addresses[at].Address
	}
	i.pull(ctx, t, "ortet", i.control...)
	return i
}

// sitDown gives the operator a folder with what docs/how-to/join.md takes for granted: the
// checkout's charts, kubectl and helm. What it asks of az is done by the lab.
func (i *installed) sitDown(ctx context.Context, t *testing.T) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(i.checkout, "docs", "how-to", "join.md"))
	if err != nil {
		t.Fatal(err)
	}
	i.doc, i.desk = string(text), filepath.Join(i.dir, "desk")
	binary, err := controlplane.Binary(ctx)
	if err != nil {
		t.Fatal(err)
	}
	helm := strings.TrimSpace(i.run(ctx, t, "hack/helm/build.sh"))
	bin := filepath.Join(i.desk, "bin")
	if err := errors.Join(os.MkdirAll(bin, 0o700), os.Symlink(filepath.Join(i.checkout, "charts"), filepath.Join(i.desk, "charts"))); err != nil {
		t.Fatal(err)
	}
	for name, script := range map[string]string{"kubectl": `exec "` + binary + `" kubectl "$@"`, "helm": `exec "` + helm + `" "$@"`, "az": "exit 0"} {
		if err := os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"+script+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
}

// example is the first block of that language in docs/how-to/join.md that has the mark in it,
// with other words in the place of the example's; each has to be there.
func (i *installed) example(t *testing.T, language, mark string, words ...string) string {
	t.Helper()
	return example(t, "docs/how-to/join.md", i.doc, language, mark, words...)
}

// example is the first block of that language on a page that has the mark in it, with other
// words in the place of the example's; each has to be there.
func example(t *testing.T, page, doc, language, mark string, words ...string) string {
	t.Helper()
	for _, block := range regexp.MustCompile("(?ms)^```"+language+"\n(.*?)^```$").FindAllStringSubmatch(doc, -1) {
		text := block[1]
		if !strings.Contains(text, mark) {
			continue
		}
		for w := 0; w < len(words); w += 2 {
			if !strings.Contains(text, words[w]) {
				t.Fatalf("%s: %q is not in its example: %s", page, words[w], text)
			}
			text = strings.ReplaceAll(text, words[w], words[w+1])
		}
		return text
	}
	t.Fatalf("%s has no example in %s with %q", page, language, mark)
	return ""
}

// command runs the first block of commands with the mark in it at the operator's desk,
// and gives what it writes.
func (i *installed) command(ctx context.Context, t *testing.T, mark string, words ...string) string {
	t.Helper()
	script := i.example(t, "sh", mark, words...)
	return i.run(ctx, t, "env", "--chdir", i.desk, "KUBECONFIG="+i.cp.Kubeconfig, "PATH="+filepath.Join(i.desk, "bin")+":"+os.Getenv("PATH"), "sh", "-ec", script)
}

// put writes a file at the operator's desk.
func (i *installed) put(t *testing.T, name string, content []byte) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(i.desk, name), content, 0o600); err != nil {
		t.Fatal(err)
	}
}

// values are those of docs/how-to/join.md, and the issuer of the lab's metadata service, which
// nobody publishes.
func (i *installed) values(ctx context.Context, t *testing.T) []byte {
	t.Helper()
	one, two := i.control[0], i.control[1]
	var values map[string]any
	if err := yaml.Unmarshal([]byte(i.example(t, "yaml", "admission:",
		"/subscriptions/SUBSCRIPTION/resourceGroups/GROUP", i.group(), "POOL", poolName,
		"https://10.0.0.4:6443", rootfs.APIServer, "10.0.0.4", i.address[one], "10.0.0.5", i.address[two],
		"control-plane-0", one, "control-plane-1", two)), &values); err != nil {
		t.Fatal(err)
	}
	values["admission"].(map[string]any)["intermediates"] = string(i.issuer(ctx, t))
	roots, err := os.ReadFile(i.azure.Endpoint.AttestationCAFile)
	if err != nil {
		t.Fatal(err)
	}
	values["admission"].(map[string]any)["roots"] = string(roots)
	text, err := yaml.Marshal(values)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// install does what docs/how-to/join.md says, and gives the pool's customData.
func (i *installed) install(ctx context.Context, t *testing.T) string {
	t.Helper()
	i.put(t, "azure.json", i.asNodesSee(t, i.azure.Endpoint.AzureConfig))
	i.command(ctx, t, "create secret generic ortet-azure")
	// The simulated Azure is a cloud of its own.
	secrets := i.client.CoreV1().Secrets(admissionSpace)
	secret, err := secrets.Get(ctx, "ortet-azure", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	secret.Data["azurestackcloud.json"] = i.asNodesSee(t, filepath.Join(i.azure.Dir, "azurestackcloud.json"))
	if _, err := secrets.Update(ctx, secret, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	i.put(t, "admission.yaml", i.values(ctx, t))
	repository, _, _ := strings.Cut(ortetImage, ":")
	notes := i.command(ctx, t, "helm install ortet", "REGISTRY/ortet", repository)
	pods := i.pods(ctx, t)
	for _, name := range i.control {
		if want := "https://" + i.address[name] + ":" + admissionPort; !strings.Contains(notes, want) {
			t.Errorf("the chart's notes do not tell %s: %s", want, notes)
		}
		if p := pods[name]; !p.Spec.HostNetwork || p.Status.PodIP != i.address[name] {
			t.Fatalf("no server in the network of %s: they are on %v", name, slices.Collect(maps.Keys(pods)))
		}
	}
	hash := strings.TrimSpace(i.command(ctx, t, "--print-ca-hash"))

	// The one that approves certificates is asked first, and killed later.
	poll(ctx, t, "a replica to lead", time.Minute, func(ctx context.Context) (bool, error) {
		lease, err := i.client.CoordinationV1().Leases(admissionSpace).Get(ctx, "ortet-admission", metav1.GetOptions{})
		if err != nil || lease.Spec.HolderIdentity == nil {
			return false, ignoreNotFound(err)
		}
		i.first, _, _ = strings.Cut(*lease.Spec.HolderIdentity, "/")
		return i.first != "", nil
	})
	other := i.other()
	if other == "" {
		t.Fatalf("%s leads, which is none of %v", i.first, i.control)
	}
	settings := i.example(t, "json", `"servers"`, "10.0.0.4", i.address[i.first], "10.0.0.5", i.address[other], "sha256:5f0c…", hash)
	if strings.Count(settings, ":"+admissionPort) != 2 {
		t.Fatalf("the settings of docs/how-to/join.md have another port than %s: %s", admissionPort, settings)
	}
	i.put(t, "join.json", []byte(settings))
	i.command(ctx, t, "join.yaml")
	data, err := os.ReadFile(filepath.Join(i.desk, "join.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// other is the control plane's node whose server is not asked first.
func (i *installed) other() string {
	if at := slices.Index(i.control, i.first); at >= 0 {
		return i.control[1-at]
	}
	return ""
}

// issuer is the certificate of who signs for the metadata service, for nodes that
// cannot reach where Microsoft publishes its own.
func (i *installed) issuer(ctx context.Context, t *testing.T) []byte {
	t.Helper()
	proxy, err := url.Parse(i.azure.Endpoint.AttestationProxy)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{Proxy: http.ProxyURL(proxy)}
	defer transport.CloseIdleConnections()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, metadata.IssuerURL(), nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := transport.RoundTrip(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	der, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// pods returns the server's pods by their node.
func (i *installed) pods(ctx context.Context, t *testing.T) map[string]corev1.Pod {
	t.Helper()
	list, err := i.client.CoreV1().Pods(admissionSpace).List(ctx, metav1.ListOptions{LabelSelector: component})
	if err != nil {
		t.Fatal(err)
	}
	pods := map[string]corev1.Pod{}
	for _, p := range list.Items {
		pods[p.Spec.NodeName] = p
	}
	return pods
}

// log is what the server on that node wrote, its audit log among it.
func (i *installed) log(ctx context.Context, t *testing.T, node string) string {
	t.Helper()
	text, err := i.client.CoreV1().Pods(admissionSpace).GetLogs(i.pods(ctx, t)[node].Name, &corev1.PodLogOptions{}).DoRaw(ctx)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// joined is the node that is neither the control plane's nor known.
func (i *installed) joined(all []string, known ...string) string {
	at := slices.IndexFunc(all, func(n string) bool { return !slices.Contains(i.control, n) && !slices.Contains(known, n) })
	if at < 0 {
		return ""
	}
	return all[at]
}

// admittedBy tells whether the server on that node let the machine in.
func (i *installed) admittedBy(ctx context.Context, t *testing.T, node, machine string) bool {
	t.Helper()
	for line := range strings.Lines(i.log(ctx, t, node)) {
		if strings.Contains(line, `"operation":"join"`) && strings.Contains(line, `"decision":"granted"`) && strings.Contains(line, `"node":"`+machine+`"`) {
			return true
		}
	}
	return false
}

// checkJoined looks at a machine that joined.
func (i *installed) checkJoined(ctx context.Context, t *testing.T, name string) {
	t.Helper()
	vm := i.instances(ctx, t)[name]
	if vm == nil {
		t.Fatalf("no instance of %s has the computer name %q", poolName, name)
	}
	if got, want := i.node(ctx, t, name).Spec.ProviderID, "azure://"+*vm.ID; !strings.EqualFold(got, want) {
		t.Errorf("provider id %s, want %s", got, want)
	}
	// The pods approve it, by the address that Azure gives the machine.
	poll(ctx, t, name+"'s serving certificate", time.Minute, func(ctx context.Context) (bool, error) {
		requests, err := i.client.CertificatesV1().CertificateSigningRequests().List(ctx, metav1.ListOptions{FieldSelector: "spec.signerName=kubernetes.io/kubelet-serving"})
		if err != nil {
			return false, err
		}
		for _, r := range requests.Items {
			if commonName(t, r) == "system:node:"+name && len(r.Status.Certificate) > 0 {
				return true, nil
			}
		}
		return false, nil
	})
	poll(ctx, t, name+"'s token to be gone", time.Minute, func(ctx context.Context) (bool, error) {
		secrets, err := i.client.CoreV1().Secrets(metav1.NamespaceSystem).List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err
		}
		return !slices.ContainsFunc(secrets.Items, func(s corev1.Secret) bool {
			return string(s.Data["auth-extra-groups"]) == "system:bootstrappers:ortet"
		}), nil
	})
}

// checkKilled has another machine boot, and kills the server that it asks while it asks.
// To be sure of that the server is stopped first: connections to it are made by the
// kernel, and answered by nobody.
func (i *installed) checkKilled(ctx context.Context, t *testing.T, before []string) {
	known := i.joined(before)
	restarts := func(ctx context.Context) (int32, bool) {
		p := i.pods(ctx, t)[i.first]
		if len(p.Status.ContainerStatuses) == 0 {
			return 0, false
		}
		return p.Status.ContainerStatuses[0].RestartCount, p.Status.ContainerStatuses[0].Ready
	}
	had, _ := restarts(ctx)
	pid := i.machines.sh(ctx, t, i.first, "pgrep -x ortet")
	i.machines.sh(ctx, t, i.first, "kill -STOP "+pid)
	scaled := make(chan error, 1)
	go func() { scaled <- i.azure.ScaleOut(ctx, poolName, 1) }()
	peer := i.machines.sh(ctx, t, i.first, fmt.Sprintf(
		`timeout 60 sh -c 'until ss -Htn state established "( sport = :%s )" | grep .; do sleep 0.05; done'; kill -KILL %s`, admissionPort, pid))
	if peer == "" {
		t.Fatal("no machine asked the server in a minute")
	}
	began := time.Now()
	all := i.awaitNodes(ctx, t, len(before)+1)
	name := i.joined(all, known)
	t.Logf("%s joined within %s of the death of the server that it asked (%s)", name, time.Since(began).Round(time.Millisecond), peer)
	if err := <-scaled; err != nil {
		t.Fatal(err)
	}
	if address := i.machines.sh(ctx, t, name, "ip -4 -oneline address show dev eth0 scope global | awk '{print $4; exit}' | cut -d / -f 1"); !strings.Contains(peer, address+"]:") && !strings.Contains(peer, address+":") {
		t.Errorf("who asked was %s, and %s has %s", peer, name, address)
	}
	if !i.admittedBy(ctx, t, i.other(), name) {
		t.Errorf("the server on %s did not let %s in", i.other(), name)
	}
	i.checkJoined(ctx, t, name)
	poll(ctx, t, "the server that was killed to serve again", time.Minute, func(ctx context.Context) (bool, error) {
		now, ready := restarts(ctx)
		return now == had+1 && ready, nil
	})
}
