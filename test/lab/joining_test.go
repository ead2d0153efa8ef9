//go:build e2e && linux

package lab

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	rootfs "github.com/ortet/ortet/hack/lab"
	"github.com/ortet/ortet/test/azsimserver"
	"github.com/ortet/ortet/test/controlplane"
	"github.com/ortet/ortet/test/port"
	"github.com/ortet/ortet/test/process"
)

const (
	admissionSpace = "ortet-system"
	keySpace       = admissionSpace + "-admission" // of the admission server's keys
	// admissionFrontend is the admission server as machines see it.
	admissionFrontend = "10.96.0.3:443"
	// What a token of ours is called in kube-system.
	tokenPrefix = "bootstrap-token-"
)

// A joining is a lab whose machines have everything in their image, and join by
// themselves: nothing but where to ask is in their customData.
type joining struct {
	*lab
	kubeconfig string // of the admission server, which may what the chart lets it
	listen     string
	hash       string
	server     *process.Process
	started    int
}

// bakeJoin makes the image: the node's configuration, the agent and its units as they
// are shipped, with what the platform's image has elsewhere.
func bakeJoin(ctx context.Context, t *testing.T) func(l *lab, disk string) map[string]string {
	return func(l *lab, disk string) map[string]string {
		t.Helper()
		folder := filepath.Join(l.dir, "overlay")
		put := func(path string, mode os.FileMode, text string) {
			t.Helper()
			path = filepath.Join(folder, path)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(text), mode); err != nil {
				t.Fatal(err)
			}
		}
		shipped := func(name string) string {
			t.Helper()
			text, err := os.ReadFile(filepath.Join(l.checkout, "deploy", "systemd", name))
			if err != nil {
				t.Fatal(err)
			}
			return string(text)
		}
		for path, text := range baseConfiguration(t) {
			put(path, 0o644, text)
		}
		agent, err := os.ReadFile(filepath.Join(l.bin, "ortet-node"))
		if err != nil {
			t.Fatal(err)
		}
		put("/usr/local/bin/ortet-node", 0o755, string(agent))
		enabled := []string{"containerd.service", "node-preparation.service", "kubelet.service"}
		for _, u := range []string{"ortet-join.service", "ortet-metadata-guard.service", "ortet-events.service"} {
			put("/etc/systemd/system/"+u, 0o644, shipped(u))
			enabled = append(enabled, u)
		}
		put("/etc/systemd/system/kubelet.service.d/20-ortet.conf", 0o644, strings.ReplaceAll(shipped("kubelet.service.d/20-ortet.conf"), "/usr/bin/kubelet ", "/usr/local/bin/kubelet "))
		put("/etc/ortet/ortet-metadata-guard.nft", 0o644, shipped("ortet-metadata-guard.nft"))
		wants := filepath.Join(folder, "etc/systemd/system/multi-user.target.wants")
		if err := os.MkdirAll(wants, 0o755); err != nil {
			t.Fatal(err)
		}
		for _, u := range enabled {
			from := "/lib/systemd/system/"
			if strings.HasPrefix(u, "ortet-") {
				from = "/etc/systemd/system/"
			}
			if err := os.Symlink(from+u, filepath.Join(wants, u)); err != nil {
				t.Fatal(err)
			}
		}
		out := filepath.Join(l.dir, "joining.img")
		if err := rootfs.Overlay(ctx, l.checkout, disk, folder, out); err != nil {
			t.Fatal(err)
		}
		return map[string]string{"*": out}
	}
}

// baseConfiguration is what the pools of the other tests get by customData, without
// any credential: by path. Serving certificates are asked for.
func baseConfiguration(t *testing.T) map[string]string {
	t.Helper()
	data, err := rootfs.CustomData(rootfs.Pool{})
	if err != nil {
		t.Fatal(err)
	}
	var config struct {
		WriteFiles []struct{ Path, Encoding, Content string } `json:"write_files"`
	}
	if err := yaml.Unmarshal(data, &config); err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for _, f := range config.WriteFiles {
		if f.Encoding == "" { // the encoded ones are the cluster's
			files[f.Path] = f.Content
		}
	}
	const kubelet = "/var/lib/kubelet/config.yaml"
	if files[kubelet] == "" || files["/etc/containerd/config.toml"] == "" {
		t.Fatalf("the pool's custom data lacks a node's configuration: %s", data)
	}
	files[kubelet] += "serverTLSBootstrap: true\n"
	return files
}

// newJoining starts a lab with an admission server.
func newJoining(ctx context.Context, t *testing.T, line *timeline) *joining {
	t.Helper()
	var err error
	j := &joining{listen: port.Loopback(t)}
	j.lab = newLab(ctx, t, line, "join", bakeJoin(ctx, t), admissionFrontend+"="+j.listen)
	line.begin("admission server")
	if _, err := j.client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: admissionSpace}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	j.applyChart(ctx, t)
	user := "system:serviceaccount:" + admissionSpace + ":ortet-admission"
	if j.kubeconfig, err = j.cp.WriteKubeconfig("admission", controlplane.Client{User: user, Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + admissionSpace}}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // of the test, and not of the part that starts it again
		if j.server == nil {
			return
		}
		end(t, func(ctx context.Context) error { return j.server.Stop(ctx, 20*time.Second) })
		if t.Failed() {
			text, err := os.ReadFile(j.audit())
			t.Logf("the admission server's last words:\n%s\nits audit log (%v):\n%s", j.server.LogTail(20), err, text)
		}
	})
	j.serve(ctx, t)
	return j
}

// applyChart gives the cluster what the chart has of rights and policies. The server
// itself runs beside the machines, not on one.
func (j *joining) applyChart(ctx context.Context, t *testing.T) {
	t.Helper()
	helm := strings.TrimSpace(j.run(ctx, t, "hack/helm/build.sh"))
	objects := j.run(ctx, t, helm, "template", "ortet", "charts/ortet", "--namespace", admissionSpace, "--kube-version", "1.36.0",
		"--set", "admission.enabled=true,image.repository=example.invalid/ortet,image.tag=none", "--set", "admission.pools={"+j.pool()+"}", "--set", "admission.names={10.96.0.3}",
		"--show-only", "templates/admission-rbac.yaml", "--show-only", "templates/admission-policy.yaml")
	file := filepath.Join(j.dir, "admission.yaml")
	if err := os.WriteFile(file, []byte(objects), 0o600); err != nil {
		t.Fatal(err)
	}
	binary, err := controlplane.Binary(ctx)
	if err != nil {
		t.Fatal(err)
	}
	j.run(ctx, t, binary, "kubectl", "--kubeconfig", j.cp.Kubeconfig, "apply", "--filename", file)
}

// pool is the ARM id of the scale set.
func (j *joining) pool() string {
	return "/subscriptions/" + j.azure.Endpoint.Subscription + "/resourceGroups/" + j.azure.Endpoint.ResourceGroup + "/providers/Microsoft.Compute/virtualMachineScaleSets/" + poolName
}

func (j *joining) arguments(t *testing.T) []string {
	t.Helper()
	ca := filepath.Join(j.dir, "ca.pem")
	if err := os.WriteFile(ca, j.cp.CA(), 0o600); err != nil {
		t.Fatal(err)
	}
	return []string{
		"admission", "--kubeconfig", j.kubeconfig, "--azure-config", j.azure.Endpoint.AzureConfig, "--namespace", admissionSpace,
		"--attestation-roots", j.azure.Endpoint.AttestationCAFile, "--pool", j.pool(), "--tls-san", "10.96.0.3", "--listen", j.listen,
		"--api-server", rootfs.APIServer, "--ca", ca, "--metrics-address", "0", "--health-address", "0",
		"--reap-interval", "5s", "--audit-log", j.audit(), "--log-level", "INFO",
	}
}

func (j *joining) audit() string { return filepath.Join(j.dir, "audit.log") }

func (j *joining) environment() []string {
	return append(os.Environ(), "SSL_CERT_FILE="+j.azure.Endpoint.CAFile, "AZURE_ENVIRONMENT_FILEPATH="+filepath.Join(j.azure.Dir, "azurestackcloud.json"),
		// The issuer's certificate is where Microsoft's is, which azsim stands for.
		"HTTP_PROXY="+j.azure.Endpoint.AttestationProxy, "HTTPS_PROXY=", "NO_PROXY=", "KUBECONFIG=")
}

// serve starts the admission server.
func (j *joining) serve(ctx context.Context, t *testing.T) {
	t.Helper()
	binary := filepath.Join(j.bin, "ortet")
	if j.hash == "" {
		out := filepath.Join(j.dir, "hash")
		p, err := process.Start(process.Command{Name: "ortet", Binary: binary, Args: append(j.arguments(t), "--print-ca-hash"), Env: j.environment(), Log: out})
		if err != nil {
			t.Fatal(err)
		}
		<-p.Done()
		text, err := os.ReadFile(out)
		if err != nil || p.Err() != nil {
			t.Fatalf("ortet admission --print-ca-hash: %v, %v: %s", p.Err(), err, text)
		}
		lines := strings.Fields(string(text))
		if i := slices.IndexFunc(lines, func(s string) bool { return strings.HasPrefix(s, "sha256:") }); i >= 0 {
			j.hash = lines[i]
		} else {
			t.Fatalf("no hash in %s", text)
		}
	}
	j.started++
	p, err := process.Start(process.Command{Name: "ortet admission", Binary: binary, Args: j.arguments(t), Env: j.environment(), Log: filepath.Join(j.dir, fmt.Sprintf("admission-%d.log", j.started))})
	if err != nil {
		t.Fatal(err)
	}
	j.server = p
}

// createPool makes the Spot pool.
func (j *joining) createPool(ctx context.Context, t *testing.T, capacity int64) {
	t.Helper()
	settings, err := json.Marshal(map[string]any{"servers": []string{"https://" + admissionFrontend}, "caHash": j.hash, "distribution": "kubelet"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	if err := j.azure.Create(ctx, azsimserver.Pool{
		Name: poolName, Capacity: capacity, CustomData: azsimserver.CloudConfig(map[string][]byte{"/etc/ortet/join.json": settings}),
		Change: func(body map[string]any) {
			azsimserver.Bare(body)
			profile := body["properties"].(map[string]any)["virtualMachineProfile"].(map[string]any)
			profile["priority"], profile["evictionPolicy"] = "Spot", "Delete"
		},
	}); err != nil {
		t.Fatalf("create the pool: %v", err)
	}
}
