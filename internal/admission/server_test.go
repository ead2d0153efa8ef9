package admission_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ortet/ortet/azsim/metadata"
	"github.com/ortet/ortet/internal/admission"
	"github.com/ortet/ortet/internal/admission/attest"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/wire"
	"github.com/ortet/ortet/test/syncbuffer"
)

const (
	subscription = "8d10da13-8125-4ba9-a717-bf7490507b3d"
	group        = "/subscriptions/" + subscription + "/resourceGroups/rg"
	pool         = group + "/providers/Microsoft.Compute/virtualMachineScaleSets/pool1"
	flexible     = group + "/providers/Microsoft.Compute/virtualMachineScaleSets/flex"
	instance     = pool + "/virtualMachines/3"
	vmID         = "0f1e2d3c-4b5a-4697-8877-665544332211"
)

var (
	today       = time.Date(2026, 11, 21, 16, 0, 0, 0, time.UTC)
	azureSigner = sync.OnceValue(func() *metadata.Attestor { return attestor(metadata.LeafOptions{}) })
	evil        = sync.OnceValue(func() *metadata.Attestor { return attestor(metadata.LeafOptions{}) })
)

func attestor(o metadata.LeafOptions) *metadata.Attestor {
	a, err := metadata.NewAttestor(o, today)
	if err != nil {
		panic(err)
	}
	return a
}

// cloud is a Directory.
type cloud struct {
	mu      sync.Mutex
	members map[string]fleet.Member
	err     error
	asked   int
}

func (c *cloud) Member(_ context.Context, id fleet.ResourceID) (fleet.Member, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked++
	if c.err != nil {
		return fleet.Member{}, c.err
	}
	m, ok := c.members[strings.ToLower(string(id))]
	if !ok {
		return m, &fleet.Error{Op: "find instance", Kind: fleet.KindNotFound}
	}
	return m, nil
}

func (c *cloud) put(m fleet.Member) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.members[strings.ToLower(string(m.Instance))] = m
}

func (c *cloud) remove(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.members, strings.ToLower(id))
}

// cluster is a Cluster in memory.
type cluster struct {
	mu       sync.Mutex
	key      []byte
	spent    map[string]bool
	nodes    map[string]admission.NodeState
	heard    map[string]time.Time    // of kubelets
	admitted time.Time               // when names were, or zero
	tokens   map[string]fleet.Member // by node
	drained  []wire.LeaveRequest
	forgot   []string
	returned []string
	verdicts []wire.Verdict
	boots    []wire.BootReport
	err      error
	admits   error                          // of Admit alone
	hold     func(context.Context)          // what a Leave waits for
	held     map[fleet.ResourceID]time.Time // until when a pool's Lease is
}

func (c *cluster) lock() func() { c.mu.Lock(); return c.mu.Unlock }

func (c *cluster) NonceKey(context.Context) ([]byte, error) { defer c.lock()(); return c.key, c.err }

func (c *cluster) Spend(_ context.Context, nonce string, _ time.Time) error {
	defer c.lock()()
	if c.spent[nonce] {
		return admission.ErrSpent
	}
	if len(nonce) > 40 || strings.Trim(nonce, "0123456789abcdef") != "" {
		return errors.New("no name for an object: " + nonce)
	}
	c.spent[nonce] = true
	return c.err
}

func (c *cluster) Node(_ context.Context, name string) (admission.NodeState, error) {
	defer c.lock()()
	return c.nodes[name], c.err
}

func (c *cluster) Heard(_ context.Context, name string) (time.Time, error) {
	defer c.lock()()
	return c.heard[name], c.err
}

func (c *cluster) AdmittedAt(context.Context, string) (time.Time, error) {
	defer c.lock()()
	return c.admitted, c.err
}

func (c *cluster) HeldUntil(_ context.Context, pool fleet.ResourceID) (time.Time, error) {
	defer c.lock()()
	return c.held[pool], c.err
}

func (c *cluster) Admit(_ context.Context, m fleet.Member, distribution string, _ admission.NodeState) (wire.Join, error) {
	defer c.lock()()
	if err := errors.Join(c.err, c.admits); err != nil {
		return wire.Join{}, err
	}
	c.tokens[m.NodeName()] = m
	return wire.Join{NodeName: m.NodeName(), ProviderID: m.ProviderID(), Pool: string(m.Pool), VMID: m.VMID, Server: "https://10.0.0.1:6443", Token: "abcdef.0123456789abcdef", Expires: today.Add(10 * time.Minute)}, nil
}

func (c *cluster) Leave(ctx context.Context, _ string, r wire.LeaveRequest) (wire.Leave, error) {
	if c.hold != nil {
		c.hold(ctx)
	}
	defer c.lock()()
	c.drained = append(c.drained, r)
	return wire.Leave{Drained: true}, errors.Join(ctx.Err(), c.err)
}

func (c *cluster) Return(_ context.Context, node string) error {
	defer c.lock()()
	c.returned = append(c.returned, node)
	return c.err
}

func (c *cluster) Forget(_ context.Context, node, providerID string) error {
	defer c.lock()()
	c.forgot = append(c.forgot, node+" "+providerID)
	delete(c.nodes, node)
	return c.err
}

func (c *cluster) Tell(_ context.Context, _ fleet.Member, v *wire.Verdict, b *wire.BootReport) error {
	defer c.lock()()
	if v != nil {
		c.verdicts = append(c.verdicts, *v)
	}
	if b != nil {
		c.boots = append(c.boots, *b)
	}
	return c.err
}

func (c *cluster) granted() int { defer c.lock()(); return len(c.tokens) }

// site is a server with its surroundings, and a node that asks it.
type site struct {
	t         *testing.T
	server    *admission.Server
	handler   http.Handler
	cloud     *cloud
	cluster   *cluster
	authority *authority // of kubelets' certificates
	log       *syncbuffer.Buffer
	registry  *prometheus.Registry
	clock     *clock
	node      *node
}

type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) get() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

func newSite(t *testing.T, change func(*admission.Config)) *site {
	t.Helper()
	s := &site{t: t, clock: &clock{now: today}, log: &syncbuffer.Buffer{}, registry: prometheus.NewRegistry(), authority: newAuthority(t),
		cloud:   &cloud{members: map[string]fleet.Member{}},
		cluster: &cluster{key: bytes.Repeat([]byte{7}, 32), spent: map[string]bool{}, nodes: map[string]admission.NodeState{}, heard: map[string]time.Time{}, tokens: map[string]fleet.Member{}}}
	s.node = newNode(t, instance, vmID)
	s.cloud.put(fleet.Member{Instance: instance, Pool: pool, Name: "pool1_3", HostName: "pool1000003", VMID: vmID, Addresses: []netip.Addr{netip.MustParseAddr("127.0.0.1")}, OfPrimary: 1, ProvisioningState: "Succeeded", Created: today.Add(-time.Minute)})
	c := admission.Config{
		Directory: s.cloud, Cluster: s.cluster, Pools: []fleet.ResourceID{pool, flexible},
		Attest:    &attest.Verifier{Roots: azureSigner().Roots(), Issuers: attest.NewFetcher(onlyAzure{}, s.clock.get), Now: s.clock.get},
		ClientCAs: func(context.Context) ([]byte, error) { return s.authority.pem(), nil },
		Log:       slog.New(slog.NewJSONHandler(s.log, nil)), Metrics: s.registry, Now: s.clock.get,
	}
	if change != nil {
		change(&c)
	}
	server, err := admission.New(c)
	if err != nil {
		t.Fatal(err)
	}
	s.server, s.handler = server, server
	return s
}

// onlyAzure reaches the publication point and nothing else.
type onlyAzure struct{}

func (onlyAzure) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Host != "www.microsoft.com" {
		return nil, errors.New("reached for " + r.URL.String())
	}
	w := httptest.NewRecorder()
	azureSigner().ServeHTTP(w, r)
	return w.Result(), nil
}

// node is a machine that asks. What it says can be changed, to be wrong.
type node struct {
	t        *testing.T
	key      *ecdsa.PrivateKey
	public   []byte
	resource string
	vmID     string
	port     int
	stop     func() // it answers no more
	signer   *metadata.Attestor
	options  metadata.SignOptions
	document func(*metadata.AttestedDocument)
	proof    func(*wire.Proof)
}

// newNode makes one that answers the server's callback.
func newNode(t *testing.T, resource, vmID string) *node {
	t.Helper()
	n := &node{t: t, resource: resource, vmID: vmID, signer: azureSigner()}
	n.newKey()
	n.port, n.stop = answer(t, n.key)
	return n
}

func (n *node) newKey() {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		n.t.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		n.t.Fatal(err)
	}
	n.key, n.public = key, der
}

// answer listens on loopback and answers challenges with a key.
func answer(t *testing.T, key *ecdsa.PrivateKey) (port int, stop func()) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	stop = func() { _ = l.Close() } // closed twice at most
	t.Cleanup(stop)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = conn.Close() }()
				challenge := make([]byte, wire.ChallengeSize)
				if _, err := io.ReadFull(conn, challenge); err != nil {
					return // who calls knows
				}
				sum := sha256.Sum256(wire.CallbackText(challenge))
				signature, err := ecdsa.SignASN1(rand.Reader, key, sum[:])
				if err == nil {
					_, _ = conn.Write(append([]byte{byte(len(signature))}, signature...))
				}
			}()
		}
	}()
	return l.Addr().(*net.TCPAddr).Port, stop
}

// header proves a request for a nonce.
func (n *node) header(nonce, path string, body []byte, now time.Time) string {
	n.t.Helper()
	d := metadata.NewAttestedDocument(n.vmID, subscription, wire.AttestedNonce(nonce, n.public, n.resource), now)
	if n.document != nil {
		n.document(&d)
	}
	text, err := n.signer.Sign(d, n.options)
	if err != nil {
		n.t.Fatal(err)
	}
	sum := sha256.Sum256(wire.SignedText(path, body, nonce))
	signature, err := ecdsa.SignASN1(rand.Reader, n.key, sum[:])
	if err != nil {
		n.t.Fatal(err)
	}
	p := wire.Proof{ResourceID: n.resource, Nonce: nonce, PublicKey: n.public, Document: text, Signature: signature}
	if n.proof != nil {
		n.proof(&p)
	}
	header, err := p.Header()
	if err != nil {
		n.t.Fatal(err)
	}
	return header
}

// reply is what the server answered.
type reply struct {
	status  int
	body    string
	header  http.Header
	refusal wire.Refusal // zero where it was granted
}

func (s *site) send(path string, body []byte, header string, certificate *x509.Certificate) reply {
	s.t.Helper()
	r := httptest.NewRequestWithContext(s.t.Context(), http.MethodPost, path, bytes.NewReader(body))
	r.RemoteAddr = "10.0.0.9:4711"
	r.Header.Set("Content-Type", "application/json")
	if header != "" {
		r.Header.Set("Authorization", header)
	}
	if certificate != nil {
		r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{certificate}}
	}
	return s.do(r)
}

func (s *site) do(r *http.Request) reply {
	s.t.Helper()
	w := httptest.NewRecorder()
	s.handler.ServeHTTP(w, r)
	out := reply{status: w.Code, body: w.Body.String(), header: w.Header()}
	if w.Code != http.StatusOK {
		refusal, ok := wire.ParseRefusal(w.Body.Bytes())
		if !ok {
			s.t.Fatalf("%s: not a refusal: %d %s", r.URL.Path, w.Code, w.Body)
		}
		out.refusal = refusal
	}
	return out
}

func (s *site) nonce() string { s.t.Helper(); return s.nonceFrom("10.0.0.9:4711") }

func (s *site) nonceFrom(address string) string {
	s.t.Helper()
	r := s.sendFrom(address, wire.NoncePath, []byte(`{}`), "")
	n, err := wire.ParseAnswer[wire.Nonce]([]byte(r.body))
	if err != nil || r.status != http.StatusOK || !n.Expires.After(s.clock.get()) {
		s.t.Fatalf("a nonce: %d %s %v", r.status, r.body, err)
	}
	return n.Nonce
}

// ask posts with the node's proof, for a nonce of its own.
func (s *site) ask(path string, request any) reply {
	s.t.Helper()
	body := encode(s.t, request)
	return s.send(path, body, s.node.header(s.nonce(), path, body, s.clock.get()), nil)
}

func (s *site) join() reply {
	s.t.Helper()
	return s.ask(wire.JoinPath, wire.JoinRequest{Distribution: wire.Kubelet, CallbackPort: s.node.port})
}

func encode(t *testing.T, v any) []byte {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// refused sees that the last request was refused with a reason, and nothing granted.
func (s *site) refused(r reply, want admission.Reason) {
	s.t.Helper()
	if r.refusal.Reason != string(want) {
		s.t.Errorf("%d %s, want %s\n%s", r.status, r.body, want, s.log)
	}
	if n := s.cluster.granted(); n != 0 {
		s.t.Errorf("%d tokens were made", n)
	}
	if r.status < 400 {
		s.t.Errorf("status %d", r.status)
	}
	if want != "" && !strings.Contains(s.log.String(), `"reason":"`+string(want)+`"`) {
		s.t.Errorf("the audit log has no line of it:\n%s", s.log)
	}
}

// authority makes kubelets' certificates.
type authority struct {
	t           *testing.T
	key         *ecdsa.PrivateKey
	certificate *x509.Certificate
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	a := &authority{t: t, key: key}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "kubernetes"}, NotBefore: today.AddDate(-1, 0, 0), NotAfter: today.AddDate(1, 0, 0), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	a.certificate = a.sign(template, template, key.Public())
	return a
}

func (a *authority) sign(template, parent *x509.Certificate, public any) *x509.Certificate {
	der, err := x509.CreateCertificate(rand.Reader, template, parent, public, a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	c, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	return c
}

func (a *authority) pem() []byte { return pemOf(a.certificate) }

// kubelet returns a kubelet's client certificate.
func (a *authority) kubelet(change func(*x509.Certificate)) *x509.Certificate {
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "system:node:pool1000003", Organization: []string{"system:nodes"}},
		NotBefore: today.Add(-time.Minute), NotAfter: today.Add(time.Hour), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, BasicConstraintsValid: true,
	}
	if change != nil {
		change(template)
	}
	return a.sign(template, a.certificate, a.key.Public())
}

func TestNodeIsAdmitted(t *testing.T) {
	s := newSite(t, nil)
	r := s.join()
	if r.status != http.StatusOK {
		t.Fatalf("%d %s\n%s", r.status, r.body, s.log)
	}
	got, err := wire.ParseAnswer[wire.Join]([]byte(r.body))
	if err != nil || got.NodeName != "pool1000003" || got.ProviderID != "azure://"+instance || got.VMID != vmID || got.Token == "" {
		t.Errorf("%+v %v", got, err)
	}
	log := s.log.String()
	for _, want := range []string{`"operation":"join"`, `"decision":"granted"`, `"reason":"Granted"`, `"node":"pool1000003"`, `"instance":"` + instance + `"`, `"vmId":"` + vmID + `"`, `"remote":"10.0.0.9:4711"`, `"by":"document"`} {
		if !strings.Contains(log, want) {
			t.Errorf("the audit log has no %s:\n%s", want, log)
		}
	}
	if strings.Contains(log, got.Token) || strings.Count(log, "\n") != 1 {
		t.Errorf("the audit log has a secret, or more than a line a decision:\n%s", log)
	}
	if r.header.Get("Cache-Control") != "no-store" {
		t.Error("an answer with a secret may be kept")
	}
}

// A member of a Flexible scale set is a virtual machine: whose it is, Azure says.
func TestFlexibleMemberIsAdmitted(t *testing.T) {
	s := newSite(t, nil)
	const machine = group + "/providers/Microsoft.Compute/virtualMachines/flex_0a1b2c3d"
	s.node.resource = machine
	m := fleet.Member{Instance: machine, Pool: flexible, Flexible: true, HostName: "flexA1B2C3", VMID: vmID, Addresses: []netip.Addr{netip.MustParseAddr("127.0.0.1")}, OfPrimary: 1}
	s.cloud.put(m)
	if r := s.join(); r.status != http.StatusOK || !strings.Contains(r.body, `"nodeName":"flexa1b2c3"`) {
		t.Errorf("%d %s", r.status, r.body)
	}
	m.Pool = group + "/providers/Microsoft.Compute/virtualMachineScaleSets/other"
	s.cloud.put(m)
	if r := s.join(); r.refusal.Reason != string(admission.PoolNotAllowed) {
		t.Errorf("of another scale set: %d %s", r.status, r.body)
	}
}

func pemOf(c *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})
}
