//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/ortet/ortet/azsim"
	"github.com/ortet/ortet/test/azsimserver"
	"github.com/ortet/ortet/test/controlplane"
)

const (
	// speed has an image version that takes Azure an hour or two take some seconds.
	speed = 1500
	// namespace is ortet's own.
	namespace = "ortet-system"
	// patience bounds every wait for the world; nothing waits that long that works.
	patience = 8 * time.Minute
)

// A world is what all tests share.
type world struct {
	bin   string
	cp    *controlplane.ControlPlane
	azure *azsimserver.Azure
	kube  kubernetes.Interface
	web   *http.Client // to azsim's own endpoints
}

// A poolSpec is a pool of one test, with the principal that the test logs in as.
type poolSpec struct {
	short    string
	capacity int64
	// denied are actions that its principal may not do.
	denied []string
	change func(body map[string]any)
}

// newWorld starts everything; it ends with the test.
func newWorld(t *testing.T, pools []poolSpec) *world {
	t.Helper()
	ctx := t.Context()
	w := &world{bin: binaries(t), cp: controlplane.Shared(t)}
	bootstrap, err := w.cp.BootstrapKubeconfig(ctx, w.cp.Server, time.Now().Add(time.Hour))
	must(t, err)
	customData := azsimserver.CloudConfig(map[string][]byte{"/etc/kubernetes/bootstrap-kubelet.conf": bootstrap})

	principals := []azsim.Principal{{
		Name: "harness", ClientID: clientID("harness"), ObjectID: objectID("harness"), Secret: "secret-of-harness", Roles: []azsim.Grant{{Role: "Owner"}},
	}}
	var sets []azsimserver.Pool
	for _, p := range pools {
		grant := azsim.Grant{Role: "Owner"}
		if len(p.denied) > 0 {
			grant = azsim.Grant{Role: "all but " + p.short, Actions: []string{"*"}, NotActions: p.denied}
		}
		principals = append(principals, azsim.Principal{
			Name: p.short, ClientID: clientID(p.short), ObjectID: objectID(p.short), Secret: "secret-of-" + p.short, Roles: []azsim.Grant{grant},
		})
		// The pool's name is in it, so that no two pools share a saved Secret.
		sets = append(sets, azsimserver.Pool{Name: scaleSet(p.short), Capacity: p.capacity, CustomData: customData + "# " + p.short + "\n", Change: p.change})
	}
	dir := t.TempDir()
	w.azure, err = azsimserver.Start(ctx, azsimserver.Config{
		Dir: filepath.Join(dir, "azure"), Bin: w.bin, Speed: speed, Kubeconfig: w.cp.Kubeconfig, Instances: azsimserver.Hollow,
		Pools: sets, Spec: map[string]any{"principals": principals},
	})
	must(t, err)
	t.Cleanup(func() {
		// The test's own context has ended by now.
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if t.Failed() {
			t.Logf("azsim's last words:\n%s", w.azure.Log())
		}
		if err := w.azure.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	w.kube = w.cp.Admin(t)
	w.web = webClient(t, w.azure.Endpoint.CAFile)
	return w
}

// binaries returns the folder with the programs under test.
func binaries(t *testing.T) string {
	t.Helper()
	if dir := os.Getenv("ORTET_BIN"); dir != "" {
		dir, err := filepath.Abs(dir)
		must(t, err)
		return dir
	}
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-ldflags=-s -w -X main.version=e2e", "-o", dir+string(filepath.Separator),
		"./cmd/ortet", "./cmd/ortet-node", "./cmd/azsim")
	cmd.Dir = filepath.Join("..", "..")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build the programs: %v\n%s", err, out)
	}
	return dir
}

// scaleSet is a pool's full name, as long as real ones are.
func scaleSet(short string) string { return "k8s-" + short + "-12345678-vmss" }

func clientID(short string) string {
	return fmt.Sprintf("c0000000-0000-4000-8000-%012x", hashOf(short))
}
func objectID(short string) string {
	return fmt.Sprintf("0b000000-0000-4000-8000-%012x", hashOf(short))
}

// hashOf tells short names apart.
func hashOf(s string) (sum uint32) {
	for _, b := range []byte(s) {
		sum = sum*31 + uint32(b)
	}
	return sum
}

// A pool is what one test works on.
type pool struct {
	*world
	name  string // the scale set's
	short string
	azureConfig,
	home string
	nodes []string // that were there at the start, by name
}

// pool waits for a pool's nodes and gives its principal's azure.json.
func (w *world) pool(t *testing.T, short string, nodes int) *pool {
	t.Helper()
	p := &pool{world: w, name: scaleSet(short), short: short, home: t.TempDir()}
	p.azureConfig = w.azureJSON(t, clientID(short), "secret-of-"+short)
	p.nodes = p.ready(t, nodes)
	return p
}

// azureJSON writes azsim's azure.json for another principal.
func (w *world) azureJSON(t *testing.T, client, secret string) string {
	t.Helper()
	text, err := os.ReadFile(w.azure.Endpoint.AzureConfig)
	must(t, err)
	var config map[string]any
	must(t, json.Unmarshal(text, &config))
	config["aadClientId"], config["aadClientSecret"] = client, secret
	text, err = json.Marshal(config)
	must(t, err)
	path := filepath.Join(t.TempDir(), "azure.json")
	must(t, os.WriteFile(path, text, 0o600))
	return path
}

// ready waits until the pool has so many nodes that are Ready and that the
// node controllers are done with, and gives their names in order.
func (p *pool) ready(t *testing.T, want int) []string {
	t.Helper()
	var names []string
	eventually(t, fmt.Sprintf("%d Ready nodes of %s", want, p.name), func() bool {
		list, err := p.kube.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
		must(t, err)
		names = nil
		for i := range list.Items {
			if n := &list.Items[i]; strings.HasPrefix(n.Name, p.name) && isReady(n) && settledIn(n) {
				names = append(names, n.Name)
			}
		}
		return len(names) >= want
	})
	return names
}

// settledIn reports whether the node controllers have labelled a new node and
// taken their taints off.
func settledIn(n *corev1.Node) bool {
	for _, taint := range n.Spec.Taints {
		if taint.Key != corev1.TaintNodeUnschedulable {
			return false
		}
	}
	return n.Labels["beta.kubernetes.io/os"] != ""
}

func isReady(n *corev1.Node) bool {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// eventually waits for the world, which is looked at often and for long.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for !is() {
		select {
		case <-ctx.Done():
			t.Fatalf("waited in vain for %s", what)
		case <-tick.C:
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
