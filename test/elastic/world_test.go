//go:build e2e && linux

package elastic

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	"github.com/ortet/ortet/azsim/machine"
	rootfs "github.com/ortet/ortet/hack/lab"
	"github.com/ortet/ortet/test/azsimserver"
	"github.com/ortet/ortet/test/controlplane"
	"github.com/ortet/ortet/test/port"
)

// Addresses of frontends in the machines' network.
const (
	armAddress    = "10.96.0.2"
	mirrorAddress = "10.96.0.4"
)

const (
	subnet      = "10.83.0.0/24" // of the machines; the cluster's VNet is all of it, as that of make live
	suffix      = "azsim.invalid"
	speed       = 60
	clusterName = "lab"
	poolName    = "agents"
	manifest    = "applied" // and the ConfigMap in it
)

// A world is an Azure with nothing in it, and an operator's computer.
type world struct {
	t        *testing.T
	ctx      context.Context //nolint:containedctx // the test's
	checkout string
	dir      string // of everything
	bin      string
	home     string // the operator's: cluster.yaml, keys, kubeconfig
	azure    *azsimserver.Azure
	began    time.Time
	times    []string
	tailnet  *tailnet // nil is an operator at the host
}

func newWorld(ctx context.Context, t *testing.T) *world {
	t.Helper()
	if os.Getenv("ORTET_LAB") != "1" {
		t.Skip("NOT RUN: real machines need root on Debian and ORTET_LAB=1; see make elastic")
	}
	checkout, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, ctx: ctx, checkout: checkout, dir: filepath.Join(os.TempDir(), "ortet-elastic"), began: time.Now()}
	machines := filepath.Join(w.dir, "azure", "machine")
	if err := machine.Clean(machines); err != nil {
		t.Fatalf("clean up after a former run: %v", err)
	}
	w.bin, w.home = filepath.Join(w.dir, "bin"), filepath.Join(w.dir, "home")
	if err := errors.Join(os.RemoveAll(w.dir), os.MkdirAll(w.bin, 0o700), os.MkdirAll(w.home, 0o700), os.MkdirAll(w.path("mirror"), 0o700)); err != nil {
		t.Fatal(err)
	}
	w.step("binaries, disk image")
	binary, err := controlplane.Binary(ctx)
	if err != nil {
		t.Fatal(err)
	}
	w.build("go", "build", "-trimpath", "-o", w.bin+"/", "./cmd/ortet", "./cmd/azsim")
	w.build(filepath.Join("hack", "agent.sh"), filepath.Join(w.bin, "ortet-node"))
	disk, err := rootfs.BaseImage(ctx, checkout, binary, testWriter{t})
	if err != nil {
		t.Fatal(err)
	}
	overlay := w.path("overlay")
	if err := rootfs.ElasticOverlay(overlay, rootfs.Elastic{ResourceManager: "https://" + armAddress, AttestationProxy: "http://" + armAddress + ":80", StorageSuffix: suffix}); err != nil {
		t.Fatal(err)
	}
	image := w.path("elastic.img")
	if err := rootfs.Overlay(ctx, checkout, disk, overlay, image); err != nil {
		t.Fatal(err)
	}
	w.artifacts(binary)
	w.startAzure(image, machines)
	return w
}

// artifacts makes what machines fetch: the lab's k3s under its own name, and its images
// in one archive.
func (w *world) artifacts(controlplane string) {
	w.t.Helper()
	w.build("cp", "--reflink=auto", controlplane, w.path("k3s"))
	w.build("go", "run", "./hack/lab/images", "--out", w.path("images"))
	images := map[name.Reference]v1.Image{}
	// k3s's own archive has the pause image under this name.
	// Ortet's own is for captures.
	w.build("go", "run", "./hack/image", "-name", ortetImage, "-out", w.path("images", "ortet.tar"), filepath.Join(w.bin, "ortet"), filepath.Join(w.bin, "ortet-node"))
	for ref, file := range map[string]string{"docker.io/rancher/mirrored-pause:3.6": "pause.tar", rootfs.WebImage: "web.tar", ortetImage: "ortet.tar"} {
		image, err := tarball.ImageFromPath(w.path("images", file), nil)
		if err != nil {
			w.t.Fatal(err)
		}
		tag, err := name.NewTag(ref)
		if err != nil {
			w.t.Fatal(err)
		}
		images[tag] = image
	}
	if err := tarball.MultiRefWriteToFile(w.path("images.tar"), images); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) startAzure(image, machines string) {
	w.t.Helper()
	arm, plain, mirror := port.Loopback(w.t), port.Loopback(w.t), port.Loopback(w.t)
	files := &http.Server{Handler: http.FileServer(http.Dir(w.path("mirror"))), ReadHeaderTimeout: 10 * time.Second}
	listener, err := net.Listen("tcp", mirror)
	if err != nil {
		w.t.Fatal(err)
	}
	go func() { _ = files.Serve(listener) }()
	w.t.Cleanup(func() { _ = files.Close() })
	w.azure, err = azsimserver.Start(w.ctx, azsimserver.Config{
		Dir: w.path("azure"), Bin: w.bin, Speed: speed, Instances: azsimserver.Machine, Listen: arm,
		Spec: map[string]any{"publicAddresses": "127.77.0.0/24"},
		Args: []string{
			"--requests", w.path("requests"), "--name", armAddress, "--subnet", subnet, "--listen-plain", plain, "--image", "*=" + image,
			"--frontend", armAddress + ":443=" + arm, "--frontend", armAddress + ":80=" + plain, "--frontend", mirrorAddress + ":80=" + mirror,
		},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
		defer cancel()
		if err := w.azure.Stop(ctx); err != nil {
			w.t.Error(err)
		}
		if w.t.Failed() {
			w.t.Logf("the end of azsim's log:\n%s", w.azure.Log())
			return // the files stay for whoever looks
		}
		if err := os.RemoveAll(w.dir); err != nil {
			w.t.Error(err)
		}
	})
}

func (w *world) path(names ...string) string {
	return filepath.Join(append([]string{w.dir}, names...)...)
}

// step notes how long the one before took.
func (w *world) step(name string) {
	w.t.Helper()
	w.t.Logf("%6.1f s  %s", time.Since(w.began).Seconds(), name)
}

func (w *world) build(argv ...string) {
	w.t.Helper()
	cmd := exec.CommandContext(w.ctx, argv[0], argv[1:]...)
	cmd.Dir = w.checkout
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		w.t.Fatalf("%v: %v: %s", argv, err, out)
	}
}

// A result is how a command of the operator's ended.
type result struct {
	out, err string
	code     int
}

// command is ortet in the operator's folder.
func (w *world) command(args ...string) *exec.Cmd {
	argv := append([]string{filepath.Join(w.bin, "ortet")}, args...)
	if w.tailnet != nil {
		argv = append(slices.Clone(inOperator), argv...)
	}
	cmd := exec.CommandContext(w.ctx, argv[0], argv[1:]...)
	cmd.Dir = w.home
	cmd.Env = append(os.Environ(), "HOME="+w.home, "KUBECONFIG="+filepath.Join(w.home, "kubeconfig"),
		"SSL_CERT_FILE="+w.azure.Endpoint.CAFile, "AZURE_ENVIRONMENT_FILEPATH="+filepath.Join(w.azure.Dir, "azurestackcloud.json"))
	return cmd
}

// try runs ortet in the operator's folder.
func (w *world) try(stdin string, args ...string) result {
	w.t.Helper()
	cmd := w.command(args...)
	cmd.Stdin = strings.NewReader(stdin)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	r := result{out: out.String(), err: errs.String(), code: cmd.ProcessState.ExitCode()}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		w.t.Fatalf("ortet %v: %v", args, err)
	}
	return r
}

// cluster runs a command of ortet cluster that has to end well.
func (w *world) cluster(args ...string) string {
	w.t.Helper()
	began := time.Now()
	r := w.try("", append([]string{"--azure-config", w.azure.Endpoint.AzureConfig, "cluster"}, args...)...)
	if r.code != 0 {
		w.t.Fatalf("ortet cluster %s: exit %d\n%s%s", strings.Join(args, " "), r.code, r.out, r.err)
	}
	w.times = append(w.times, fmt.Sprintf("%6.1f s  ortet cluster %s", time.Since(began).Seconds(), strings.Join(args, " ")))
	w.step("ortet cluster " + strings.Join(args, " ") + ": done in " + time.Since(began).Round(100*time.Millisecond).String())
	for l := range strings.Lines(r.out) {
		if args[0] == "logs" || args[0] == "ssh" {
			break // what programs of the server print
		}
		if n := len([]rune(strings.TrimRight(l, "\n"))); n > 80 && !slices.Contains(args, "json") {
			w.t.Errorf("ortet cluster %s: a line of %d columns: %s", strings.Join(args, " "), n, l)
		}
	}
	return r.out
}

// ssh runs a command on the server.
func (w *world) ssh(script string) string {
	w.t.Helper()
	return strings.TrimSpace(w.cluster("ssh", "--", script))
}

func (w *world) kube() kubernetes.Interface {
	w.t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(w.home, "kubeconfig"))
	if err != nil {
		w.t.Fatal(err)
	}
	config.Dial = w.dial
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		w.t.Fatal(err)
	}
	return client
}

func ready(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// instances are the pool's, by the name that each one's Node has to have.
func (w *world) instances() map[string]string {
	w.t.Helper()
	f, err := w.azure.Clients()
	if err != nil {
		w.t.Fatal(err)
	}
	ids := map[string]string{}
	pager := f.NewVirtualMachineScaleSetVMsClient().NewListPager(clusterName+"-compute", poolName, nil)
	for pager.More() {
		page, err := pager.NextPage(w.ctx)
		if err != nil {
			w.t.Fatal(err)
		}
		for _, vm := range page.Value {
			ids[strings.ToLower(*vm.Properties.OSProfile.ComputerName)] = *vm.InstanceID
		}
	}
	return ids
}

// agents are the names of instances, sorted.
func (w *world) agents() []string { return slices.Sorted(maps.Keys(w.instances())) }

// wantNodes waits until the Ready, schedulable Nodes are the server and just the
// pool's instances, of which there are n.
func (w *world) wantNodes(n int) {
	w.t.Helper()
	client := w.kube()
	var nodes, want []string
	deadline := time.Now().Add(3 * time.Minute)
	for {
		// While an agent boots the server may answer late: an error is named in the end.
		list, err := client.CoreV1().Nodes().List(w.ctx, metav1.ListOptions{})
		nodes = nil
		for i := range list.Items {
			name := list.Items[i].Name
			if !ready(&list.Items[i]) {
				name += " (not Ready)"
			}
			if list.Items[i].Spec.Unschedulable {
				name += " (cordoned)"
			}
			nodes = append(nodes, name)
		}
		slices.Sort(nodes)
		want = append(w.agents(), "server")
		if slices.Equal(nodes, want) && len(want) == n+1 {
			return
		}
		if time.Now().After(deadline) {
			w.t.Fatalf("Nodes are %v (%v); want %v, of %d agents", nodes, err, want, n)
		}
		select {
		case <-w.ctx.Done():
			w.t.Fatal(w.ctx.Err())
		case <-time.After(time.Second):
		}
	}
}

// clusterYAML writes the operator's file, with the artifacts that the mirror serves.
func (w *world) clusterYAML() {
	w.t.Helper()
	file := w.path(manifest + ".yaml")
	if err := os.WriteFile(file, []byte(configMap(manifest)), 0o600); err != nil {
		w.t.Fatal(err)
	}
	access := map[string]any{"ssh": []any{"127.0.0.0/8"}, "ingress": []any{"127.0.0.0/8"}}
	args := []string{"artifacts", w.path("mirror"), "--url", "http://" + mirrorAddress, "--k3s", w.path("k3s"), "--images", w.path("images.tar"),
		"--ortet", filepath.Join(w.bin, "ortet"), "--ortet-node", filepath.Join(w.bin, "ortet-node"), "--manifest", file}
	if n := w.tailnet; n != nil {
		args = append(args, "--tailscale", n.archive)
		access["tailscale"] = map[string]any{"tags": []any{"tag:k3s"}, "loginServer": n.server}
		access["api"] = []any{"127.0.0.0/8"}
	}
	out := w.cluster(args...)
	var block map[string]any
	if err := yaml.Unmarshal([]byte(out), &block); err != nil {
		w.t.Fatalf("artifacts printed no YAML: %v\n%s", err, out)
	}
	artifacts := block["artifacts"]
	if artifacts == nil {
		artifacts = block
	}
	text, err := yaml.Marshal(map[string]any{
		"apiVersion": "ortet.io/v1alpha1", "kind": "Cluster", "metadata": map[string]any{"name": clusterName},
		"spec": map[string]any{
			"location":  "westeurope",
			"image":     map[string]any{"publisher": "Debian", "offer": "debian-12", "sku": "12-gen2", "version": "latest"},
			"artifacts": artifacts,
			"manifests": block["manifests"],
			"network":   map[string]any{"addressSpace": subnet, "servers": "10.83.0.0/26", "agents": "10.83.0.64/26"},
			"pools":     []any{map[string]any{"name": poolName, "size": "Standard_D2s_v5", "count": 1, "labels": map[string]any{"lab": "yes"}}},
			"storage":   map[string]any{"account": "ortetlab"},
			"access":    access,
		},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(w.home, "cluster.yaml"), text, 0o600); err != nil {
		w.t.Fatal(err)
	}
}

type testWriter struct{ t *testing.T }

func (w testWriter) Write(p []byte) (int, error) {
	w.t.Log(strings.TrimRight(string(p), "\n"))
	return len(p), nil
}
