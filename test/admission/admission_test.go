//go:build e2e

package admission

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/ortet/ortet/azsim"
	admissionkube "github.com/ortet/ortet/internal/admission/kube"
	"github.com/ortet/ortet/internal/cli"
	"github.com/ortet/ortet/internal/node/join"
	"github.com/ortet/ortet/internal/wire"
	"github.com/ortet/ortet/test/azsimserver"
	"github.com/ortet/ortet/test/controlplane"
	"github.com/ortet/ortet/test/port"
	"github.com/ortet/ortet/test/syncbuffer"
)

// TestMain has this process trust httptest's server: what is trusted is read once.
func TestMain(m *testing.M) { os.Exit(trusting(m)) }

func trusting(m *testing.M) int {
	web := httptest.NewTLSServer(nil)
	defer web.Close()
	f, err := os.CreateTemp("", "ortet-test-*.pem")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.Remove(f.Name()) }()
	if err := errors.Join(pem.Encode(f, &pem.Block{Type: "CERTIFICATE", Bytes: web.Certificate().Raw}), f.Close(), os.Setenv("SSL_CERT_FILE", f.Name())); err != nil {
		panic(err)
	}
	return m.Run()
}

// simulatedMachines is a Substrate that remembers what runs, so that a test can be
// the machine.
type simulatedMachines struct {
	azsim.NopSubstrate
	mu      sync.Mutex
	running map[string]azsim.Computer
}

func (m *simulatedMachines) Boot(_ context.Context, c azsim.Computer) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.running[c.Name] = c
	return nil
}

func (m *simulatedMachines) get(name string) azsim.Computer {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.running[name]
}

// admissionWorld is a cluster, an Azure and an admission server.
type admissionWorld struct {
	t        *testing.T
	cp       *controlplane.ControlPlane
	admin    kubernetes.Interface
	machines *simulatedMachines
	args     []string
	process  cli.Process
	out      *syncbuffer.Buffer
	url      string
	hash     string
	// metrics and health are where those are served.
	metrics, health string
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// eventually waits for the world.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(5 * time.Minute); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not within five minutes", what)
		}
	}
}

const admissionPool = "/subscriptions/" + azsim.DefaultSubscription + "/resourceGroups/" + azsim.DefaultResourceGroup + "/providers/Microsoft.Compute/virtualMachineScaleSets/pool1"

func newAdmissionWorld(t *testing.T) *admissionWorld {
	t.Helper()
	cp := controlplane.Run(t, controlplane.Config{NodeMonitorGracePeriod: 30 * time.Minute}) // no kubelet renews the nodes' Leases
	w := &admissionWorld{t: t, cp: cp, machines: &simulatedMachines{running: map[string]azsim.Computer{}}, out: &syncbuffer.Buffer{}}
	w.admin = cp.Admin(t)
	for _, name := range []string{"ortet-system", admissionkube.KeysNamespace("ortet-system")} {
		_, err := w.admin.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		must(t, err)
	}

	// What a token is for, as the chart has it: to ask for a certificate.
	_, err := w.admin.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "ortet-tokens"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "system:node-bootstrapper"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "system:bootstrappers:ortet"}},
	}, metav1.CreateOptions{})
	must(t, err)

	kubeconfig := w.allow()

	azure := &azsim.Server{Speed: 20000, Substrate: w.machines, AttestationChain: true}
	web := httptest.NewTLSServer(azure)
	t.Cleanup(func() { web.Close(); azure.Close() })
	must(t, azsimserver.Pool{Name: "pool1", Capacity: 2, Change: azsimserver.Bare}.CreateIn(t.Context(), azure))

	dir := t.TempDir()
	file := func(name string, text []byte) string {
		path := filepath.Join(dir, name)
		must(t, os.WriteFile(path, text, 0o600))
		return path
	}
	azureJSON, err := json.Marshal(map[string]any{
		"cloud": "AzureStackCloud", "identitySystem": "adfs", "tenantId": "adfs", "subscriptionId": azsim.DefaultSubscription, "resourceGroup": azsim.DefaultResourceGroup,
		"aadClientId": azsim.DefaultClientID, "aadClientSecret": azsim.DefaultClientSecret, "resourceManagerEndpoint": web.URL + "/",
	})
	must(t, err)
	w.args = []string{
		"admission", "--kubeconfig", kubeconfig, "--azure-config", file("azure.json", azureJSON), "--attestation-roots", file("roots.pem", azure.AttestationPEM()),
		"--pool", admissionPool, "--tls-san", "127.0.0.1", "--listen", "127.0.0.1:0", "--metrics-address", "127.0.0.1:0", "--health-address", "127.0.0.1:0",
		"--reap-interval", "5s", "--callback-port", "1024-65535", "--log-level", "INFO",
	}
	w.process = cli.Process{In: strings.NewReader(""), Out: w.out, Err: t.Output(), Getenv: func(string) string { return "" }, Version: "v0-test", Dial: home}
	t.Setenv("KUBECONFIG", "")
	return w
}

// allow makes a user who may do what the server's rules say and nothing else, and
// gives its kubeconfig.
func (w *admissionWorld) allow() string {
	t := w.t
	t.Helper()
	rules := map[string][]rbacv1.PolicyRule{}
	for _, r := range admissionkube.Rules("ortet-system") {
		rules[r.Namespace] = append(rules[r.Namespace], rbacv1.PolicyRule{APIGroups: []string{r.Group}, Resources: []string{r.Resource}, ResourceNames: r.Names, Verbs: r.Verbs})
	}
	w.cp.Grant(t.Context(), t, "ortet-admission", rules)
	file, err := w.cp.WriteKubeconfig("ortet-admission", controlplane.Client{User: "ortet-admission"})
	must(t, err)
	return file
}

// home reaches the simulated network's addresses on this machine.
func home(ctx context.Context, network, address string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	if !strings.HasPrefix(host, "10.") {
		return nil, errors.New("called back at " + address)
	}
	return new(net.Dialer).DialContext(ctx, network, net.JoinHostPort("127.0.0.1", port))
}

// serve runs ortet admission until the test ends.
func (w *admissionWorld) serve() {
	t := w.t
	t.Helper()
	hash := &syncbuffer.Buffer{}
	process := w.process
	process.Out = hash
	if code := cli.Run(t.Context(), append(slices.Clone(w.args), "--print-ca-hash"), process); code != 0 {
		t.Fatalf("--print-ca-hash: code %d", code)
	}
	w.hash = strings.TrimSpace(hash.String())
	logs := &syncbuffer.Buffer{}
	process = w.process
	process.Err = logs
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan int, 1)
	go func() { ended <- cli.Run(ctx, w.args, process) }()
	t.Cleanup(func() {
		stop()
		if code := <-ended; code != 0 {
			t.Errorf("ortet admission: code %d", code)
		}
		if t.Failed() {
			t.Logf("%s\n%s", logs, w.out)
		}
	})
	listening := regexp.MustCompile(`for=machines address=(\S+)`)
	eventually(t, "ortet admission listens", func() bool {
		found := listening.FindStringSubmatch(logs.String())
		if found != nil {
			w.url = "https://" + found[1]
		}
		for what, into := range map[string]*string{"metrics": &w.metrics, "health": &w.health} {
			if found := regexp.MustCompile(`for=` + what + ` address=(\S+)`).FindStringSubmatch(logs.String()); found != nil {
				*into = "http://" + found[1]
			}
		}
		return w.url != "" && w.metrics != "" && w.health != "" || len(ended) > 0
	})
	if w.url == "" {
		t.Fatal("ortet admission has ended")
	}
}

// machine is what ortet-node knows of itself and of the server.
func (w *admissionWorld) machine(name, distribution string) (*join.Client, string) {
	t := w.t
	t.Helper()
	computer := w.machines.get(name)
	if computer.IMDS == nil {
		t.Fatalf("no machine %s runs", name)
	}
	metadata := httptest.NewServer(computer.IMDS)
	t.Cleanup(metadata.Close)
	root := t.TempDir()
	c, err := join.NewClient(join.Settings{Servers: []string{w.url}, CAHash: w.hash, Distribution: distribution, CallbackPort: port.Free(t)},
		join.Options{Root: root, Metadata: metadata.URL, Agent: noAgent{}, Log: slog.New(slog.NewTextHandler(t.Output(), nil))})
	must(t, err)
	return c, root
}

type noAgent struct{}

func (noAgent) Stop(context.Context, string) error         { return nil }
func (noAgent) Runs(context.Context, string) (bool, error) { return false, nil }

// becomesNode does what a kubelet does with what it joins with: it gets a
// certificate, registers its Node and is Ready.
func (w *admissionWorld) becomesNode(root, node string) {
	t := w.t
	t.Helper()
	bootstrap, err := os.ReadFile(filepath.Join(root, "etc/kubernetes/bootstrap-kubelet.conf"))
	must(t, err)
	config, err := clientcmd.RESTConfigFromKubeConfig(bootstrap)
	must(t, err)
	asked, err := kubernetes.NewForConfig(config)
	must(t, err)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: "system:node:" + node, Organization: []string{"system:nodes"}}}, key)
	must(t, err)
	request, err := asked.CertificatesV1().CertificateSigningRequests().Create(t.Context(), &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "node-csr-"},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}), SignerName: certificatesv1.KubeAPIServerClientKubeletSignerName,
			Usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth},
		},
	}, metav1.CreateOptions{})
	must(t, err)
	eventually(t, "the kubelet's certificate", func() bool {
		request, err = w.admin.CertificatesV1().CertificateSigningRequests().Get(t.Context(), request.Name, metav1.GetOptions{})
		must(t, err)
		return len(request.Status.Certificate) > 0
	})
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	must(t, err)
	keyPEM := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})
	text, err := clientcmd.Write(kubeletConfig(config, request.Status.Certificate, keyPEM))
	must(t, err)
	must(t, os.WriteFile(filepath.Join(root, "etc/kubernetes/kubelet.conf"), text, 0o600))
	config, err = clientcmd.RESTConfigFromKubeConfig(text)
	must(t, err)
	kubelet, err := kubernetes.NewForConfig(config)
	must(t, err)
	arguments, err := os.ReadFile(filepath.Join(root, join.KubeletArguments))
	must(t, err)
	provider := regexp.MustCompile(`--provider-id=([^\s"']+)`).FindSubmatch(arguments)
	if provider == nil {
		t.Fatalf("no provider id in %s", arguments)
	}
	// The API server's list of admitted names may come a moment later than the answer.
	eventually(t, "the Node is registered", func() bool {
		_, err = kubelet.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}, Spec: corev1.NodeSpec{ProviderID: string(provider[1])}}, metav1.CreateOptions{})
		return err == nil
	})
	// A kubelet patches: others write to Nodes too.
	status := `{"status":{"conditions":[{"type":"Ready","status":"True","reason":"KubeletReady"}]}}`
	_, err = kubelet.CoreV1().Nodes().Patch(t.Context(), node, types.StrategicMergePatchType, []byte(status), metav1.PatchOptions{}, "status")
	must(t, err)
}

func (w *admissionWorld) tokens() []string {
	w.t.Helper()
	list, err := w.admin.CoreV1().Secrets("kube-system").List(w.t.Context(), metav1.ListOptions{FieldSelector: "type=bootstrap.kubernetes.io/token"})
	must(w.t, err)
	var names []string
	for _, s := range list.Items {
		names = append(names, s.Name)
	}
	return names
}

func (w *admissionWorld) noNode(name string) bool {
	w.t.Helper()
	_, err := w.admin.CoreV1().Nodes().Get(w.t.Context(), name, metav1.GetOptions{})
	return apierrors.IsNotFound(err)
}

// The whole of it on a real API server and a simulated Azure, with the node's own
// code at the other end: a machine proves itself, gets its certificate, is a Node,
// leaves, and nothing is left of it. What another one does in its name is refused.
func TestAdmissionServer(t *testing.T) {
	w := newAdmissionWorld(t)
	w.serve()
	const node = "pool1000000"
	c, root := w.machine("pool1_0", wire.Kubelet)
	must(t, c.Join(t.Context(), true))
	if n := len(w.tokens()); n != 1 {
		t.Fatalf("%d tokens after a join, want one", n)
	}
	w.becomesNode(root, node)
	eventually(t, "the token of a Ready Node is deleted", func() bool { return len(w.tokens()) == 0 })

	// Whoever reaches the metadata service of the machine has its document, but the
	// Node is Ready.
	thief, stolen := w.machine("pool1_0", wire.Kubelet)
	err := thief.Join(t.Context(), true)
	var refused *join.RefusedError
	if !errors.As(err, &refused) || refused.Reason != "NodeReady" {
		t.Errorf("a second join of a Ready node: %v", err)
	}
	if _, err := os.Stat(filepath.Join(stolen, "etc/kubernetes/bootstrap-kubelet.conf")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it got something: %v", err)
	}

	// The kubelet's certificate is enough to leave.
	left, err := c.Leave(t.Context(), wire.LeaveRequest{Cause: "Asked", Within: 60})
	if err != nil || !left.Drained {
		t.Fatalf("leave: %+v %v", left, err)
	}
	must(t, c.Left(t.Context(), "Asked"))
	if !w.noNode(node) {
		t.Error("the Node of a machine that left is there")
	}
	must(t, c.Left(t.Context(), "Asked")) // again is nothing

	// One of k3s gets a token that pins the cluster's authority. A machine that never was
	// a node may say that it left, by its document, which takes nothing back: its token
	// ends by itself.
	other, root := w.machine("pool1_1", wire.K3s)
	must(t, other.Join(t.Context(), true))
	token, err := os.ReadFile(filepath.Join(root, join.RancherToken))
	must(t, err)
	if !regexp.MustCompile(`^K10[0-9a-f]{64}::[a-z0-9]{6}\.[a-z0-9]{16}\s*$`).Match(token) {
		t.Errorf("the token of k3s is %q", token)
	}
	must(t, other.Left(t.Context(), "Asked"))
	if n := len(w.tokens()); n != 1 {
		t.Errorf("%d tokens after a document said that its machine left, want one", n)
	}
	list, err := w.admin.CertificatesV1().CertificateSigningRequests().List(t.Context(), metav1.ListOptions{})
	must(t, err)
	for _, r := range list.Items {
		if strings.Contains(r.Spec.Username, "bootstrap") {
			t.Errorf("the certificate request %s is left over", r.Name)
		}
	}
	w.checkAudit()
	if code, _ := w.get(w.health + "/readyz"); code != http.StatusOK {
		t.Errorf("/readyz: %d", code)
	}
	eventually(t, "the metrics tell of the reaper", func() bool { // once a round of it is over
		_, text := w.get(w.metrics + "/metrics")
		if !strings.Contains(text, `ortet_admission_decisions_total{operation="join",reason="Granted"} 2`) {
			t.Fatalf("the metrics do not tell of two joins:\n%s", text)
		}
		return strings.Contains(text, "ortet_admission_reaper_rounds_total")
	})
}

func (w *admissionWorld) get(url string) (int, string) {
	w.t.Helper()
	r, err := http.Get(url) //nolint:noctx // bounded by the test
	must(w.t, err)
	text, err := io.ReadAll(r.Body)
	must(w.t, errors.Join(err, r.Body.Close()))
	return r.StatusCode, string(text)
}

// checkAudit sees that each decision is a line of JSON.
func (w *admissionWorld) checkAudit() {
	w.t.Helper()
	seen := map[string]int{}
	for line := range strings.Lines(w.out.String()) {
		var l struct{ Msg, Operation, Decision, Reason string }
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			w.t.Errorf("the audit log: %v: %s", err, line)
		}
		seen[fmt.Sprintf("%s %s %s", l.Msg, l.Operation, l.Reason)]++
	}
	for want, n := range map[string]int{"admission join Granted": 2, "admission join NodeReady": 1, "admission leave Granted": 1, "admission left Granted": 3} {
		if seen[want] != n {
			w.t.Errorf("%d lines of %q, want %d: %v", seen[want], want, n, seen)
		}
	}
}

// kubeletConfig is a kubelet's kubeconfig with what it got for its token.
func kubeletConfig(c *rest.Config, certificate, key []byte) clientcmdapi.Config {
	return clientcmdapi.Config{
		Clusters:  map[string]*clientcmdapi.Cluster{"c": {Server: c.Host, CertificateAuthorityData: c.CAData}},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{"u": {ClientCertificateData: certificate, ClientKeyData: key}},
		Contexts:  map[string]*clientcmdapi.Context{"x": {Cluster: "c", AuthInfo: "u"}}, CurrentContext: "x",
	}
}
