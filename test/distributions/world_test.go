package distributions

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"encoding/pem"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/ortet/ortet/azsim"
	admissionkube "github.com/ortet/ortet/internal/admission/kube"
	"github.com/ortet/ortet/internal/cli"
	"github.com/ortet/ortet/internal/cluster/kube"
	"github.com/ortet/ortet/internal/wire"
	"github.com/ortet/ortet/test/azsimserver"
	"github.com/ortet/ortet/test/kubesim"
)

// TestMain has this process trust httptest's servers: what is trusted is read once.
func TestMain(m *testing.M) { os.Exit(trusting(m)) }

func trusting(m *testing.M) int {
	web := httptest.NewTLSServer(nil)
	defer web.Close()
	f, err := os.CreateTemp("", "ortet-test-*.pem")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.Remove(f.Name()) }()
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: web.Certificate().Raw})
	_, err = f.Write(certificate)
	if err := errors.Join(err, f.Close(), os.Setenv("SSL_CERT_FILE", f.Name())); err != nil {
		panic(err)
	}
	// Rows wait for a pod to start more than they compute.
	flag.Parse()
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	return m.Run()
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A world has a fixture's resources in a simulated Azure, and its Nodes in an API server in
// memory. Both are served over TLS, so that the whole command line connects.
type world struct {
	t       *testing.T
	fixture fixture
	azure   *azsim.Server
	kube    *kubesim.Server
	flags   []string // for every command
	url     string   // of the API server

	mu       sync.Mutex
	machines []azsim.Computer
}

func newWorld(t *testing.T, f fixture) *world {
	t.Helper()
	w := &world{t: t, fixture: f}
	w.kube = &kubesim.Server{Log: w.log, OnRequest: w.kubelet}
	for _, name := range []string{kube.DefaultNamespace, admissionkube.KeysNamespace(kube.DefaultNamespace)} {
		w.kube.Put(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	w.azure = &azsim.Server{Seed: 1, Speed: 20000, ResourceGroup: f.ResourceGroup, Substrate: nodes{w: w}, AttestationChain: true}
	t.Cleanup(w.azure.Close)
	f.create(t, w.azure)

	api, arm := httptest.NewTLSServer(w.kube), httptest.NewTLSServer(f.served(w.azure))
	t.Cleanup(api.Close)
	t.Cleanup(arm.Close)
	w.url = api.URL
	dir := t.TempDir()
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: api.URL, CertificateAuthorityData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: api.Certificate().Raw})}
	config.AuthInfos["u"] = &clientcmdapi.AuthInfo{Token: "operator"}
	config.Contexts["c"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	config.CurrentContext = "c"
	must(t, clientcmd.WriteToFile(*config, filepath.Join(dir, "kubeconfig")))
	credentials, err := json.Marshal(map[string]any{
		"cloud": "AzureStackCloud", "identitySystem": "adfs", "tenantId": "adfs", "subscriptionId": azsim.DefaultSubscription, "resourceGroup": f.group(),
		"aadClientId": azsim.DefaultClientID, "aadClientSecret": azsim.DefaultClientSecret, "resourceManagerEndpoint": arm.URL + "/",
	})
	must(t, err)
	must(t, os.WriteFile(filepath.Join(dir, "azure.json"), credentials, 0o600))
	w.flags = []string{"--kubeconfig", filepath.Join(dir, "kubeconfig"), "--azure-config", filepath.Join(dir, "azure.json")}
	return w
}

// served is the fixture's cloud: Azure, or what refuses newer API versions of Microsoft.Compute,
// in ARM's words.
func (f fixture) served(azure http.Handler) http.Handler {
	if f.NewestCompute == "" {
		return azure
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, path, compute := strings.Cut(r.URL.Path, "/providers/Microsoft.Compute/")
		version := r.URL.Query().Get("api-version")
		if kind, _, _ := strings.Cut(path, "/"); compute && (version > f.NewestCompute || kind == "galleries") {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprintf(w, `{"error":{"code":"NoRegisteredProviderFound","message":"No registered resource provider found for location 'local' and API version '%s' for type '%s'. The supported api-versions are '%s'."}}`, version, kind, f.NewestCompute)
			return
		}
		azure.ServeHTTP(w, r)
	})
}

// process is what a command gets from outside.
func (w *world) process() (process cli.Process, out, errs *strings.Builder) {
	out, errs = new(strings.Builder), new(strings.Builder)
	return cli.Process{In: strings.NewReader(""), Out: out, Err: errs, Getenv: func(string) string { return "" }, Version: "v0-test", Dial: home}, out, errs
}

func (w *world) run(args ...string) (code int, out, errs string) {
	w.t.Helper()
	process, o, e := w.process()
	code = cli.Run(w.t.Context(), append(args, w.flags...), process)
	return code, o.String(), e.String()
}

// home reaches the simulated network's addresses on this machine.
func home(ctx context.Context, network, address string) (net.Conn, error) {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	return new(net.Dialer).DialContext(ctx, network, net.JoinHostPort("127.0.0.1", port))
}

// donor is the first machine.
func (w *world) donor() azsim.Computer {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.machines) != 2 {
		w.t.Fatalf("%d machines run, want 2", len(w.machines))
	}
	slices.SortFunc(w.machines, func(a, b azsim.Computer) int { return strings.Compare(a.HostName, b.HostName) })
	return w.machines[0]
}

func (w *world) node() string { return strings.ToLower(w.donor().HostName) }

// nodes is a substrate whose computers are the cluster's nodes.
type nodes struct {
	azsim.NopSubstrate
	w *world
}

func (n nodes) Boot(_ context.Context, c azsim.Computer) error {
	w, node := n.w, n.w.fixture.Node
	w.mu.Lock()
	w.machines = append(w.machines, c)
	w.mu.Unlock()
	name := strings.ToLower(c.HostName)
	boot, err := wire.EncodeBootAnnotation(bootReport(name, c.VMID))
	if err != nil {
		return err
	}
	annotations := map[string]string{wire.BootAnnotation: boot}
	for k, v := range node.Annotations {
		annotations[k] = filled(v, c)
	}
	w.kube.Put(&corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: node.Labels, Annotations: annotations},
		Spec:       corev1.NodeSpec{ProviderID: filled(node.ProviderID, c)},
		Status: corev1.NodeStatus{
			NodeInfo:   corev1.NodeSystemInfo{BootID: "boot-" + name, SystemUUID: c.VMID, OperatingSystem: "linux", Architecture: "amd64", KubeletVersion: node.Version},
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()}},
		},
	})
	return nil
}

// bootID is of every node's boot.
const bootID = "6c0a1b5e-0000-4000-8000-000000000001"

func bootReport(node, vm string) wire.BootReport {
	return wire.BootReport{Version: wire.BootReportVersion, Node: node, VMID: vm, BootID: bootID}
}

// kubelet runs Ortet's pods as soon as they are there.
func (w *world) kubelet(r kubesim.Request) {
	if r.Resource != "pods" || r.Subresource != "" || r.Verb != "create" {
		return
	}
	w.kube.Each("pods", func(o runtime.Object) bool {
		if pod := o.(*corev1.Pod); pod.Namespace == r.Namespace && pod.Status.Phase != corev1.PodSucceeded {
			w.kube.Change("pods", pod.Namespace, pod.Name, func(o runtime.Object) { o.(*corev1.Pod).Status = azsimserver.Ended(pod, 0) })
		}
		return true
	})
}

// log is what the pod that inspects the donor's disk prints: no secret, and the customData by
// which new nodes join.
func (w *world) log(namespace, name string) []byte {
	pod := w.kube.Pod(namespace, name)
	if pod == nil || pod.Status.Phase != corev1.PodSucceeded {
		return nil
	}
	command := pod.Spec.Containers[0].Command
	report := wire.GeneralizeReport{Capture: azsimserver.Flag(command, "--capture"), Donor: azsimserver.Flag(command, "--donor"), Outcome: wire.Generalized,
		Saved: []wire.SealedItem{{Kind: wire.CustomData, SHA256: fmt.Sprintf("%x", sha256.Sum256([]byte(w.fixture.CustomData)))}}}
	line, err := json.Marshal(wire.GeneralizeLine{Report: &report})
	if err != nil {
		w.t.Error(err)
	}
	return append(line, '\n')
}
