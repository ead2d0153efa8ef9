//go:build e2e && linux

package lab

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	rootfs "github.com/ortet/ortet/hack/lab"
	"github.com/ortet/ortet/internal/nodeconfig/push"
	"github.com/ortet/ortet/internal/wire"
)

const (
	// mirrorFrontend is a registry mirror as machines see it.
	mirrorFrontend = "10.96.0.5:5000"
	// mirroredImage is of a registry that does not exist: only the mirror has it.
	mirroredImage = "mirrored.ortet.invalid/web:1"
)

// nodeConfig changes a setting of the kubelet, a sysctl and a registry's mirror.
const nodeConfig = `apiVersion: ortet.io/v1alpha1
kind: NodeConfig
spec:
  kubelet:
    maxPods: 77
  sysctls:
    net.ipv4.tcp_keepalive_time: "1234"
  registryMirrors:
  - registry: mirrored.ortet.invalid
    endpoints: ["http://` + mirrorFrontend + `"]
`

// A configuring is a lab whose machines' image has the agent and its units, and a pool
// whose nodes are configured in place.
type configuring struct {
	*lab
	key    string
	public string
}

// TestConfigOnRealMachines changes live nodes in place: without a reboot, a drain or a
// pod that goes.
func TestConfigOnRealMachines(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	line := newTimeline(t)
	c := newConfiguring(ctx, t, line)

	line.begin("three machines boot and join")
	c.createPool(ctx, t)
	waiting, done := context.WithTimeout(ctx, 2*time.Minute)
	defer done()
	nodes := c.awaitNodes(waiting, t, workers)
	c.deploy(ctx, t)
	before := c.witness(ctx, t)

	line.begin("a setting of the kubelet, a sysctl and a mirror are pushed")
	c.push(ctx, t, 0, nodeConfig)
	for _, n := range nodes {
		c.checkConfigured(ctx, t, n)
	}
	c.runMirrored(ctx, t, nodes[0])
	if after := c.witness(ctx, t); after != before {
		t.Errorf("boots and pods were\n%s\nand are\n%s", before, after)
	}

	line.begin("a configuration that breaks the kubelet is pushed")
	out := c.push(ctx, t, 4, strings.Replace(nodeConfig, "maxPods: 77", "maxPods: 78\n    imageGCHighThresholdPercent: 10\n    imageGCLowThresholdPercent: 90", 1))
	t.Logf("ortet config push:\n%s", out)
	for i, n := range nodes {
		c.checkConfigured(ctx, t, n)
		if a := c.answer(ctx, t, n); (a.State == wire.ConfigurationFailed) != (i == 0) || a.Generation != 1 {
			t.Errorf("%s answers %+v", n, a)
		}
	}
	if after := c.witness(ctx, t); after != before {
		t.Errorf("boots and pods were\n%s\nand are\n%s", before, after)
	}

	line.begin("a fourth machine boots and joins")
	if err := c.azure.ScaleOut(ctx, poolName, 1); err != nil {
		t.Fatal(err)
	}
	for _, n := range c.awaitNodes(ctx, t, workers+1) {
		c.checkConfigured(ctx, t, n)
	}

	line.begin("the agent is killed at five moments")
	c.killAgent(ctx, t, nodes[0], 5)
	line.print()
}

func newConfiguring(ctx context.Context, t *testing.T, line *timeline) *configuring {
	t.Helper()
	c := &configuring{}
	mirror := c.serveMirror(t)
	c.lab = newLab(ctx, t, line, "config", func(l *lab, disk string) map[string]string {
		c.key = filepath.Join(l.dir, "ortet-config.key")
		var keys struct {
			PublicKey string `json:"publicKey"`
		}
		if err := json.Unmarshal([]byte(l.run(ctx, t, filepath.Join(l.bin, "ortet"), "config", "keygen", "--out", c.key, "-o", "json")), &keys); err != nil {
			t.Fatal(err)
		}
		c.public = keys.PublicKey
		return c.bake(ctx, t, l, disk)
	}, mirrorFrontend+"="+mirror)
	if _, err := c.client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: admissionSpace}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	c.fillMirror(ctx, t, mirror)
	t.Cleanup(func() {
		if t.Failed() {
			c.lastWords(t)
		}
	})
	return c
}

// bake puts the agent, its units and the accepted key into the image, as docs/how-to/config.md
// has it.
func (c *configuring) bake(ctx context.Context, t *testing.T, l *lab, disk string) map[string]string {
	t.Helper()
	folder := filepath.Join(l.dir, "overlay")
	put := func(path string, mode os.FileMode, text []byte) {
		t.Helper()
		path = filepath.Join(folder, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, text, mode); err != nil {
			t.Fatal(err)
		}
	}
	agent, err := os.ReadFile(filepath.Join(l.bin, "ortet-node"))
	if err != nil {
		t.Fatal(err)
	}
	put("/usr/local/bin/ortet-node", 0o755, agent)
	put("/etc/ortet/config.json", 0o644, fmt.Appendf(nil, `{"keys":[%q]}`, c.public))
	if err := os.MkdirAll(filepath.Join(folder, "etc/kubernetes/kubelet.conf.d"), 0o755); err != nil {
		t.Fatal(err)
	}
	wants := map[string]string{"ortet-config-recover.service": "sysinit.target", "ortet-config-boot.service": "multi-user.target", "ortet-config.service": "multi-user.target"}
	for unit, target := range wants {
		text, err := os.ReadFile(filepath.Join(l.checkout, "deploy", "systemd", unit))
		if err != nil {
			t.Fatal(err)
		}
		put("/etc/systemd/system/"+unit, 0o644, text)
		dir := filepath.Join(folder, "etc/systemd/system", target+".wants")
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink("/etc/systemd/system/"+unit, filepath.Join(dir, unit)); err != nil {
			t.Fatal(err)
		}
	}
	out := filepath.Join(l.dir, "config.img")
	if err := rootfs.Overlay(ctx, l.checkout, disk, folder, out); err != nil {
		t.Fatal(err)
	}
	return map[string]string{"*": out}
}

// serveMirror starts a registry on loopback and gives its address.
func (c *configuring) serveMirror(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: registry.New(), ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
	return listener.Addr().String()
}

// fillMirror puts an image into the mirror.
func (c *configuring) fillMirror(ctx context.Context, t *testing.T, mirror string) {
	t.Helper()
	c.run(ctx, t, "go", "build", "-trimpath", "-o", filepath.Join(c.bin, "web"), "./hack/lab/images/web")
	c.run(ctx, t, "go", "run", "./hack/image", "-name", mirroredImage, "-out", c.image("mirrored"), filepath.Join(c.bin, "web"))
	tag, err := name.NewTag(mirroredImage)
	if err != nil {
		t.Fatal(err)
	}
	image, err := tarball.ImageFromPath(c.image("mirrored"), &tag)
	if err != nil {
		t.Fatal(err)
	}
	layers, err := image.Layers()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range layers {
		digest, err := l.Digest()
		if err != nil {
			t.Fatal(err)
		}
		content, err := l.Compressed()
		if err != nil {
			t.Fatal(err)
		}
		upload(ctx, t, http.MethodPost, mirror+"/v2/web/blobs/uploads/?digest="+digest.String(), "application/octet-stream", content)
	}
	digest, err := image.ConfigName()
	if err != nil {
		t.Fatal(err)
	}
	config, err := image.RawConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	upload(ctx, t, http.MethodPost, mirror+"/v2/web/blobs/uploads/?digest="+digest.String(), "application/octet-stream", bytes.NewReader(config))
	manifest, err := image.RawManifest()
	if err != nil {
		t.Fatal(err)
	}
	kind, err := image.MediaType()
	if err != nil {
		t.Fatal(err)
	}
	upload(ctx, t, http.MethodPut, mirror+"/v2/web/manifests/1", string(kind), bytes.NewReader(manifest))
}

// upload sends a blob or a manifest to a registry.
func upload(ctx context.Context, t *testing.T, method, address, kind string, content io.Reader) {
	t.Helper()
	request, err := http.NewRequestWithContext(ctx, method, "http://"+address, content)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", kind)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusCreated {
		t.Fatalf("%s %s: %s", method, address, response.Status)
	}
}

// lastWords logs what machines say of their units.
func (c *configuring) lastWords(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	list, err := c.machines.runc(ctx, nil, "list", "--quiet")
	if err != nil {
		t.Log(err)
	}
	for _, id := range strings.Fields(list) {
		out, err := c.machines.runc(ctx, nil, "exec", id, "sh", "-c", `hostname; systemctl --no-pager --failed; systemctl --no-pager list-jobs
			journalctl --no-pager -n 40 -o short-monotonic -u 'ortet-config*'; journalctl --no-pager -n 15 -o cat -u kubelet; tail -n 5 /var/log/cloud-init.log`)
		t.Logf("%v\n%s", err, out)
	}
}

// ortet runs a command of the operator's and gives its output and exit code.
func (c *configuring) ortet(ctx context.Context, t *testing.T, args ...string) (out string, exit int) {
	t.Helper()
	cmd := exec.CommandContext(ctx, filepath.Join(c.bin, "ortet"), append(args, "--kubeconfig", c.cp.Kubeconfig, "--azure-config", c.azure.Endpoint.AzureConfig)...)
	cmd.Env = append(os.Environ(), "SSL_CERT_FILE="+c.azure.Endpoint.CAFile, "AZURE_ENVIRONMENT_FILEPATH="+filepath.Join(c.azure.Dir, "azurestackcloud.json"), "KUBECONFIG=")
	var all bytes.Buffer
	cmd.Stdout, cmd.Stderr = &all, &all
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return all.String(), cmd.ProcessState.ExitCode()
}

// push pushes a configuration and expects that exit code.
func (c *configuring) push(ctx context.Context, t *testing.T, want int, config string, more ...string) string {
	t.Helper()
	file := filepath.Join(c.dir, "nodeconfig.yaml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	out, exit := c.ortet(ctx, t, append([]string{"config", "push", poolName, "-f", file, "--key", c.key}, more...)...)
	if exit != want {
		t.Fatalf("ortet config push: exit %d, want %d:\n%s", exit, want, out)
	}
	return out
}

// answer is what a node says of its configuration.
func (c *configuring) answer(ctx context.Context, t *testing.T, node string) (a wire.ConfigurationAnswer) {
	t.Helper()
	if err := json.Unmarshal([]byte(c.node(ctx, t, node).Annotations[wire.ConfigurationAnnotation]), &a); err != nil {
		t.Fatalf("%s has no answer: %v", node, err)
	}
	return a
}

// checkConfigured sees that a node has nodeConfig and is Ready.
func (c *configuring) checkConfigured(ctx context.Context, t *testing.T, node string) {
	t.Helper()
	poll(ctx, t, node+" to have 77 pods at most, and an answer", 30*time.Second, func(ctx context.Context) (bool, error) {
		n, err := c.client.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
		return err == nil && n.Status.Capacity.Pods().Value() == 77 && ready(*n) && n.Annotations[wire.ConfigurationAnnotation] != "", err
	})
	if n := c.node(ctx, t, node); n.Spec.Unschedulable {
		t.Errorf("%s is cordoned", node)
	}
	if out := c.machines.sh(ctx, t, node, "cat /proc/sys/net/ipv4/tcp_keepalive_time; cat /etc/containerd/certs.d/mirrored.ortet.invalid/hosts.toml"); !strings.HasPrefix(out, "1234\n") || !strings.Contains(out, mirrorFrontend) {
		t.Errorf("on %s: %s", node, out)
	}
}

// runMirrored runs a pod whose image only the mirror has.
func (c *configuring) runMirrored(ctx context.Context, t *testing.T, node string) {
	t.Helper()
	pods := c.client.CoreV1().Pods("default")
	if _, err := pods.Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "mirrored"},
		Spec: corev1.PodSpec{NodeName: node, TerminationGracePeriodSeconds: new(int64(1)),
			Containers: []corev1.Container{{Name: "c", Image: mirroredImage, Command: []string{"/web"}, ImagePullPolicy: corev1.PullAlways}}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	poll(ctx, t, "a pod of an image that the mirror has", time.Minute, func(ctx context.Context) (bool, error) {
		p, err := pods.Get(ctx, "mirrored", metav1.GetOptions{})
		return err == nil && p.Status.Phase == corev1.PodRunning, err
	})
	if err := pods.Delete(ctx, "mirrored", metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
}

// witness is what a reboot, a drain or a restart of a container would change.
func (c *configuring) witness(ctx context.Context, t *testing.T) string {
	t.Helper()
	var all []string
	list, err := c.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range list.Items {
		all = append(all, fmt.Sprintf("node %s boot %s machine %s", n.Name, n.Status.NodeInfo.BootID, c.machines.sh(ctx, t, n.Name, "stat -c %Y /proc/1")))
	}
	for _, p := range c.webPods(ctx, t) {
		for _, s := range p.Status.ContainerStatuses {
			all = append(all, fmt.Sprintf("pod %s container %s", p.UID, s.ContainerID))
		}
	}
	return strings.Join(all, "\n")
}

// killAgent pushes six files again and again, and kills the agent of one node each time
// while it applies them: it ends with all six of one generation.
func (c *configuring) killAgent(ctx context.Context, t *testing.T, node string, times int) {
	t.Helper()
	random := rand.New(rand.NewPCG(31, 31))
	config := func(round int) string {
		var b strings.Builder
		b.WriteString(nodeConfig + "  files:\n")
		for i := range 6 {
			fmt.Fprintf(&b, "  - {path: /etc/lab/%d, content: \"%d\"}\n", i, round)
		}
		return b.String()
	}
	path, had := filepath.Join(c.dir, "killed.yaml"), ""
	for round := range times {
		after := time.Duration(random.IntN(20_000)) * time.Microsecond
		killed := c.killWhileApplying(ctx, t, node, after)
		if err := os.WriteFile(path, []byte(config(round)), 0o600); err != nil {
			t.Fatal(err)
		}
		out, exit := c.ortet(ctx, t, "config", "push", poolName, "-f", path, "--key", c.key, "--canary", node, "--max-unavailable", "100%", "--retry")
		if err := <-killed; err != nil {
			t.Fatalf("%v; push ended with %d:\n%s", err, exit, out)
		}
		files, next := "", strings.Repeat(fmt.Sprint(round), 6)
		poll(ctx, t, "six files of one generation", 30*time.Second, func(context.Context) (bool, error) {
			files = c.machines.sh(ctx, t, node, "test -e /var/lib/ortet/config/journal.json && echo open; cat /etc/lab/* 2>/dev/null || true")
			return files == had || files == next, nil
		})
		t.Logf("killed %s after it began: push ended with %d, the files hold %q", after, exit, files)
		if (exit == 0) != (files == next) {
			t.Errorf("push ended with %d, and the files hold %q:\n%s", exit, files, out)
		}
		had = files
	}
	c.push(ctx, t, 0, config(times), "--max-unavailable", "100%", "--retry")
	var status push.Status
	out, _ := c.ortet(ctx, t, "config", "status", poolName, "-o", "json")
	if err := json.Unmarshal([]byte(out), &status); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, n := range status.Nodes {
		if n.State != string(wire.ConfigurationApplied) || n.Generation != status.Model {
			t.Errorf("in the end %+v, and the model has %d", n, status.Model)
		}
	}
}

// killWhileApplying kills a node's agent that long after it answers Applying.
func (c *configuring) killWhileApplying(ctx context.Context, t *testing.T, node string, after time.Duration) <-chan error {
	t.Helper()
	id, err := c.machines.container(ctx, node)
	if err != nil {
		t.Fatal(err)
	}
	w, err := c.client.CoreV1().Nodes().Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + node})
	if err != nil {
		t.Fatal(err)
	}
	// It waits in the machine, since runc takes as long as an application does.
	cmd := exec.CommandContext(ctx, "runc", "--root", filepath.Join(c.machines.dir, "runc"), "exec", id, "bash", "-c",
		fmt.Sprintf(`until pid=$(systemctl show --property MainPID --value ortet-config.service); [ "$pid" -gt 0 ]; do sleep 0.1; done; read -r -t 90; sleep %.6f; kill -KILL "$pid"`, after.Seconds()))
	begin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	killed := make(chan error, 1)
	go func() {
		defer w.Stop()
		for event := range w.ResultChan() {
			n, ok := event.Object.(*corev1.Node)
			var a wire.ConfigurationAnswer
			if ok && json.Unmarshal([]byte(n.Annotations[wire.ConfigurationAnnotation]), &a) == nil && a.State == wire.ConfigurationApplying {
				break
			}
		}
		_, err := io.WriteString(begin, "\n")
		killed <- errors.Join(err, cmd.Wait())
	}()
	return killed
}
