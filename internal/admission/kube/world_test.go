//go:build e2e

package kube_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"net"
	"net/netip"
	"os"
	"sync"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ortet/ortet/internal/admission/kube"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/wire"
	"github.com/ortet/ortet/test/controlplane"
)

func TestMain(m *testing.M) { os.Exit(controlplane.Main(m)) }

const (
	group = "/subscriptions/11111111-2222-4333-8444-555555555555/resourceGroups/rg"
	pool  = group + "/providers/Microsoft.Compute/virtualMachineScaleSets/pool1"
)

// A world is a cluster on a real API server, in a namespace of the test's own, in
// which the admission server may do what Rules says.
type world struct {
	*testing.T
	ctx       context.Context
	namespace string
	admin     kubernetes.Interface
	cp        *controlplane.ControlPlane
	least     *rest.Config
	directory *directory
	drainer   *drainer
	figures   prometheus.Registerer // of the replica that is opened next
	now       func() time.Time

	mu      sync.Mutex
	decided []kube.Decided
}

// prepared are the things of the whole cluster that the tests share.
var prepared sync.Once

func newWorld(t *testing.T, namespace string) *world {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 15*time.Minute)
	t.Cleanup(cancel)
	cp := controlplane.Shared(t)
	admin := cp.Admin(t)
	w := &world{T: t, ctx: ctx, namespace: namespace, admin: admin, cp: cp, directory: &directory{members: map[fleet.ResourceID]fleet.Member{}}, drainer: &drainer{}, now: time.Now}
	prepared.Do(func() {
		// A cluster as the documentation wants it: nobody approves for bootstrap
		// tokens by himself, nor renewals.
		for _, name := range []string{"node-autoapprove-bootstrap", "node-autoapprove-certificate-rotation", "kubelet-bootstrap"} {
			must(t, admin.RbacV1().ClusterRoleBindings().Delete(ctx, name, metav1.DeleteOptions{}))
		}
		_, err := admin.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "ortet-bootstrap"},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "system:node-bootstrapper"},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: kube.TokenGroup}},
		}, metav1.CreateOptions{})
		must(t, err)
	})
	for _, name := range []string{namespace, kube.KeysNamespace(namespace)} {
		_, err := admin.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		must(t, err)
	}
	w.least = w.user(namespace, kube.Rules(namespace))
	return w
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// user returns somebody who may do what the rules say and nothing else.
func (w *world) user(name string, rules []kube.Rule) *rest.Config {
	w.Helper()
	by := map[string][]rbacv1.PolicyRule{}
	for _, r := range rules {
		by[r.Namespace] = append(by[r.Namespace], rbacv1.PolicyRule{APIGroups: []string{r.Group}, Resources: []string{r.Resource}, ResourceNames: r.Names, Verbs: r.Verbs})
	}
	return w.cp.Grant(w.ctx, w, name, by)
}

// open returns a replica.
func (w *world) open() *kube.Cluster {
	w.Helper()
	c, err := kube.New(kube.Config{
		REST: w.least, Namespace: w.namespace, Identity: "test", Now: w.now, Server: w.cp.Server, CA: w.cp.CA(), Drainer: w.drainer, Metrics: w.figures,
	})
	must(w, err)
	return c
}

// run runs a replica's watch until the test ends.
func (w *world) run(c *kube.Cluster) {
	w.Helper()
	ctx, cancel := context.WithCancel(w.ctx)
	done := make(chan error, 1)
	go func() {
		done <- c.Run(ctx, w.directory, w.heard)
	}()
	w.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			w.Errorf("the watch: %v", err)
		}
	})
	w.eventually("the watch to begin", c.Synced)
}

// heard is told of decisions.
func (w *world) heard(d kube.Decided) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.decided = append(w.decided, d)
}

// decision returns what was decided on a request.
func (w *world) decision(request string) kube.Decided {
	w.Helper()
	var found kube.Decided
	w.eventually("a decision on "+request, func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, d := range w.decided {
			if d.Request == request {
				found = d
				return true
			}
		}
		return false
	})
	return found
}

// eventually ends the test where it does not come true in minutes.
func (w *world) eventually(what string, check func() bool) {
	w.Helper()
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	limit := time.After(5 * time.Minute)
	for !check() {
		select {
		case <-ticker.C:
		case <-limit:
			w.Fatalf("waited for %s in vain", what)
		}
	}
}

// member is machine n of the pool; its vmId says which machine of the name it is.
func (w *world) member(host, instance, vmID string) fleet.Member {
	m := fleet.Member{
		Instance: fleet.ResourceID(pool + "/virtualMachines/" + instance), Pool: pool, Name: "pool1_" + instance, HostName: host,
		VMID: vmID, Addresses: []netip.Addr{netip.MustParseAddr("10.1.0.4")},
	}
	w.directory.set(m)
	return m
}

const (
	machineA = "aaaaaaaa-0000-4000-8000-000000000001"
	machineB = "bbbbbbbb-0000-4000-8000-000000000002"
)

// as returns a client with a bearer token.
func (w *world) as(token string) kubernetes.Interface {
	w.Helper()
	config, err := w.cp.RESTConfigFor(controlplane.Client{Token: token})
	must(w, err)
	client, err := kubernetes.NewForConfig(config)
	must(w, err)
	return client
}

// asNode returns a node's own client.
func (w *world) asNode(name string) kubernetes.Interface {
	w.Helper()
	config, err := w.cp.RESTConfigFor(controlplane.Client{User: "system:node:" + name, Groups: []string{"system:nodes"}})
	must(w, err)
	client, err := kubernetes.NewForConfig(config)
	must(w, err)
	return client
}

// signed returns what was signed for a request.
func (w *world) signed(name string) []byte {
	w.Helper()
	var signed []byte
	w.eventually("the certificate of "+name, func() bool {
		r, err := w.admin.CertificatesV1().CertificateSigningRequests().Get(w.ctx, name, metav1.GetOptions{})
		must(w, err)
		signed = r.Status.Certificate
		return len(signed) > 0
	})
	return signed
}

// A kubelet asks with the certificate that it has.
type kubelet struct {
	*world
	name string
	kubernetes.Interface
}

// kubelet returns that of a certificate.
func (w *world) kubelet(name string, key *ecdsa.PrivateKey, certificate []byte) kubelet {
	w.Helper()
	config, err := w.cp.RESTConfigFor(controlplane.Client{Token: "none"})
	must(w, err)
	der, err := x509.MarshalECPrivateKey(key)
	must(w, err)
	config.BearerToken, config.CertData, config.KeyData = "", certificate, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})
	client, err := kubernetes.NewForConfig(config)
	must(w, err)
	return kubelet{w, name, client}
}

// bootstrap has a machine that was admitted get its first certificate.
func (w *world) bootstrap(join wire.Join) kubelet {
	w.Helper()
	key := newKey(w)
	name := w.ask(w.as(join.Token), certificatesv1.KubeAPIServerClientKubeletSignerName, request(w, key, nodeSubject(join.NodeName)))
	if d := w.decision(name); d.Verb != kube.Approve {
		w.Fatalf("%+v", d)
	}
	return w.kubelet(join.NodeName, key, w.signed(name))
}

// renew asks for the next client certificate, for the reason that is wanted, and gives
// the kubelet with it where it was approved.
func (k kubelet) renew(reason string) kubelet {
	k.Helper()
	key := newKey(k)
	name := k.ask(k, certificatesv1.KubeAPIServerClientKubeletSignerName, request(k, key, nodeSubject(k.name)))
	d := k.decision(name)
	if d.Reason != reason {
		k.Errorf("%+v, want %s", d, reason)
	}
	if d.Verb != kube.Approve {
		return kubelet{}
	}
	return k.kubelet(k.name, key, k.signed(name))
}

// serves asks for a serving certificate.
func (k kubelet) serves(address, reason string) {
	k.Helper()
	name := k.ask(k, certificatesv1.KubeletServingSignerName, request(k, newKey(k), serving(k.name, []string{k.name}, address)))
	if d := k.decision(name); d.Reason != reason {
		k.Errorf("%+v, want %s", d, reason)
	}
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	return key
}

// request is what a kubelet asks for a certificate with.
func request(t testing.TB, key *ecdsa.PrivateKey, template x509.CertificateRequest) []byte {
	t.Helper()
	der, err := x509.CreateCertificateRequest(rand.Reader, &template, key)
	must(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
}

func nodeSubject(name string) x509.CertificateRequest {
	return x509.CertificateRequest{Subject: pkix.Name{CommonName: "system:node:" + name, Organization: []string{"system:nodes"}}}
}

func serving(name string, dns []string, ips ...string) x509.CertificateRequest {
	template := nodeSubject(name)
	template.DNSNames = dns
	for _, ip := range ips {
		template.IPAddresses = append(template.IPAddresses, net.ParseIP(ip))
	}
	return template
}

// ask makes a CertificateSigningRequest, and gives its name.
func (w *world) ask(client kubernetes.Interface, signer string, pem []byte) string {
	w.Helper()
	usage := certificatesv1.UsageClientAuth
	if signer == certificatesv1.KubeletServingSignerName {
		usage = certificatesv1.UsageServerAuth
	}
	var made *certificatesv1.CertificateSigningRequest
	// The API server authenticates by a cache of tokens.
	w.eventually("the token to count", func() bool {
		var err error
		made, err = client.CertificatesV1().CertificateSigningRequests().Create(w.ctx, &certificatesv1.CertificateSigningRequest{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "csr-"},
			Spec:       certificatesv1.CertificateSigningRequestSpec{SignerName: signer, Request: pem, Usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, usage}},
		}, metav1.CreateOptions{})
		if err != nil && !apierrors.IsUnauthorized(err) {
			w.Fatal(err)
		}
		return err == nil
	})
	return made.Name
}

// directory is Azure's word on instances.
type directory struct {
	mu      sync.Mutex
	members map[fleet.ResourceID]fleet.Member
}

func (d *directory) set(m fleet.Member) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.members[m.Instance] = m
}

func (d *directory) remove(id fleet.ResourceID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.members, id)
}

func (d *directory) Member(_ context.Context, id fleet.ResourceID) (fleet.Member, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	m, ok := d.members[id]
	if !ok {
		return m, &fleet.Error{Op: "read instance", Resource: string(id), Kind: fleet.KindNotFound}
	}
	return m, nil
}

// bootstrapped says that the request is for the node's certificate.
func bootstrapped(t testing.TB, r *certificatesv1.CertificateSigningRequest, node string) bool {
	t.Helper()
	block, _ := pem.Decode(r.Spec.Request)
	if block == nil {
		return false
	}
	wants, err := x509.ParseCertificateRequest(block.Bytes)
	must(t, err)
	return wants.Subject.CommonName == "system:node:"+node
}
