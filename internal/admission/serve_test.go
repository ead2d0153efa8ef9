package admission_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ortet/ortet/internal/admission"
	"github.com/ortet/ortet/internal/wire"
)

// keys is a Keys in memory.
type keys struct {
	mu                sync.Mutex
	certificate, key  []byte
	made              int
	clientAuthorities []byte
}

func (k *keys) Authority(_ context.Context, fresh func() ([]byte, []byte, error)) ([]byte, []byte, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.certificate == nil {
		var err error
		if k.certificate, k.key, err = fresh(); err != nil {
			return nil, nil, err
		}
		k.made++
	}
	return k.certificate, k.key, nil
}

func (k *keys) ClientCAs(context.Context) ([]byte, error) { return k.clientAuthorities, nil }

// listen serves the site by TLS until the test ends, and gives its address and what
// trusts it.
func (s *site) listen(k *keys) (string, *admission.Certificates) {
	s.t.Helper()
	address, certificates, end := s.listenUntil(k)
	s.t.Cleanup(func() {
		if err := end(); err != nil {
			s.t.Error(err)
		}
	})
	return address, certificates
}

// listenUntil serves it until end is called, which waits for the end.
func (s *site) listenUntil(k *keys) (address string, certificates *admission.Certificates, end func() error) {
	s.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		s.t.Fatal(err)
	}
	certificates, end = s.serveUntil(k, l)
	return l.Addr().String(), certificates, end
}

// serveUntil serves it on a listener until end is called.
func (s *site) serveUntil(k *keys, l net.Listener) (certificates *admission.Certificates, end func() error) {
	s.t.Helper()
	certificates, err := admission.NewCertificates(s.t.Context(), k, []string{"admission.example", "127.0.0.1"}, time.Now, slog.New(slog.DiscardHandler))
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(s.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.server.Serve(ctx, l, certificates) }()
	return certificates, func() error {
		stop()
		return <-ended
	}
}

// pinned trusts the authority that a hash names, as a node does.
func pinned(hash string, certificates ...tls.Certificate) *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS13, ServerName: "admission.example", InsecureSkipVerify: true, Certificates: certificates,
		VerifyConnection: func(state tls.ConnectionState) error {
			authority := state.PeerCertificates[len(state.PeerCertificates)-1]
			if admission.HashOf(authority) != hash {
				return fmt.Errorf("the authority is %s", admission.HashOf(authority))
			}
			roots := x509.NewCertPool()
			roots.AddCert(authority)
			_, err := state.PeerCertificates[0].Verify(x509.VerifyOptions{Roots: roots, DNSName: "admission.example"})
			return err
		}}
}

func TestServesByTLS(t *testing.T) {
	s := newSite(t, nil)
	s.cluster.nodes[nodeName] = ready()
	address, certificates := s.listen(&keys{})
	kubelet := s.authority.kubelet(nil)
	client := &http.Client{Transport: &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: pinned(certificates.Hash(), tls.Certificate{Certificate: [][]byte{kubelet.Raw}, PrivateKey: s.authority.key})}}
	defer client.CloseIdleConnections()
	for _, c := range []struct {
		path string
		body any
	}{{wire.NoncePath, struct{}{}}, {wire.LeavePath, wire.LeaveRequest{Cause: "Asked", Within: 10}}} {
		r, err := client.Post("https://"+address+c.path, "application/json", bytes.NewReader(encode(t, c.body)))
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(r.Body)
		if err := r.Body.Close(); err != nil {
			t.Error(err)
		}
		if err != nil || r.StatusCode != http.StatusOK || r.ProtoMajor != 1 {
			t.Errorf("%s: %s %s %s %v", c.path, r.Proto, r.Status, body, err)
		}
	}
	if len(s.cluster.drained) != 1 {
		t.Error("the kubelet's certificate did not count")
	}
	if _, err := tls.Dial("tcp", address, pinned("sha256:00")); err == nil {
		t.Error("a client with another hash trusts the server")
	}
	if _, err := tls.Dial("tcp", address, &tls.Config{MaxVersion: tls.VersionTLS12, InsecureSkipVerify: true}); err == nil {
		t.Error("an old TLS is served")
	}
}

// A replica that ends gives up a drain that takes too long: the node is answered, and the audit
// log has the line.
func TestEndGivesUpDrains(t *testing.T) {
	s := newSite(t, nil)
	admission.EndIn(s.server, 10*time.Millisecond)
	s.cluster.nodes[nodeName] = ready()
	drains := make(chan struct{})
	s.cluster.hold = func(ctx context.Context) {
		close(drains)
		<-ctx.Done()
	}
	address, certificates, end := s.listenUntil(&keys{})
	kubelet := s.authority.kubelet(nil)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: pinned(certificates.Hash(), tls.Certificate{Certificate: [][]byte{kubelet.Raw}, PrivateKey: s.authority.key})}}
	defer client.CloseIdleConnections()
	answer := make(chan string, 1)
	go func() {
		r, err := client.Post("https://"+address+wire.LeavePath, "application/json", bytes.NewReader(encode(t, wire.LeaveRequest{Cause: "Preempt", Within: 600})))
		if err != nil {
			answer <- err.Error()
			return
		}
		body, err := io.ReadAll(r.Body)
		answer <- fmt.Sprint(r.StatusCode, " ", string(body), errors.Join(err, r.Body.Close()))
	}()
	<-drains
	if err := end(); err != nil {
		t.Fatal(err)
	}
	if written, _ := lines(t, s, admission.Canceled); written != 1 {
		t.Errorf("%d lines:\n%s", written, s.log)
	}
	if got := <-answer; !strings.HasPrefix(got, "503 ") || !strings.Contains(got, string(admission.Canceled)) {
		t.Errorf("the node was answered: %s", got)
	}
}

// All replicas, and one that starts again, have one authority and certificates of
// their own.
func TestReplicasHaveOneAuthority(t *testing.T) {
	k := &keys{}
	made := func(now time.Time) *admission.Certificates {
		c, err := admission.NewCertificates(t.Context(), k, []string{"a"}, func() time.Time { return now }, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	first := made(today)
	if again := made(today.Add(40 * 24 * time.Hour)); again.Hash() != first.Hash() || k.made != 1 || !strings.HasPrefix(first.Hash(), "sha256:") || len(first.Hash()) != 7+64 {
		t.Errorf("%s, then %s, made %d", first.Hash(), again.Hash(), k.made)
	}
	block, _ := pem.Decode(k.certificate)
	if block == nil {
		t.Fatalf("no certificate is kept: %s", k.certificate)
	}
	kept, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	if sum := sha256.Sum256(kept.RawSubjectPublicKeyInfo); first.Hash() != "sha256:"+hex.EncodeToString(sum[:]) {
		t.Errorf("the hash %s is not of the public key that is kept", first.Hash())
	}
	if _, err := tls.X509KeyPair(k.certificate, k.key); err != nil {
		t.Errorf("the key that is kept: %v", err)
	}
	_, err = admission.NewCertificates(t.Context(), k, nil, func() time.Time { return today.AddDate(11, 0, 0) }, slog.New(slog.DiscardHandler))
	if err == nil || !strings.Contains(err.Error(), "delete its Secret") {
		t.Errorf("an authority that has ended: %v", err)
	}
}

// Who sends headers slowly is cut off; who hangs is not waited for at the end.
func TestSlowHeadersAreCutOff(t *testing.T) {
	if testing.Short() {
		t.Skip("skipped: -short, and this waits for the server's 5 s")
	}
	s := newSite(t, nil)
	address, certificates := s.listen(&keys{})
	conn, err := tls.Dial("tcp", address, pinned(certificates.Hash()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }() // cut off already
	if _, err := fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\n", wire.NoncePath); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if _, err := bufio.NewReader(conn).ReadString('\n'); err == nil {
		t.Error("half a request was answered")
	}
	if took := time.Since(began); took > 2*time.Minute {
		t.Errorf("it was waited for %s", took)
	}
}

// One address that opens connections and sends nothing keeps no other from being answered.
func TestOneAddressDoesNotTakeAllConnections(t *testing.T) {
	s := newSite(t, func(c *admission.Config) {
		c.Limits = admission.DefaultLimits()
		c.Limits.Connections, c.Limits.AddressRate = 40, c.Limits.Rate/2 // 20 for each
	})
	address, certificates := s.listen(&keys{})
	var silent []net.Conn
	defer func() {
		for _, conn := range silent {
			_ = conn.Close() // cut off already, or never answered
		}
	}()
	for range 60 {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		silent = append(silent, conn)
	}
	other := &http.Client{Timeout: 2 * time.Minute, Transport: &http.Transport{
		TLSClientConfig: pinned(certificates.Hash()),
		DialContext:     (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}).DialContext}}
	defer other.CloseIdleConnections()
	r, err := other.Post("https://"+address+wire.NoncePath, "application/json", strings.NewReader(`{}`))
	if err != nil {
		t.Fatalf("another address: %v", err)
	}
	if err := r.Body.Close(); err != nil || r.StatusCode != http.StatusOK {
		t.Errorf("%s %v", r.Status, err)
	}
	waitFor(t, func() bool { return metric(t, s, "ortet_admission_connections_closed_total") == 40 })
	for _, conn := range silent {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	}
	// What was closed is counted no more.
	waitFor(t, func() bool {
		conn, err := tls.Dial("tcp", address, pinned(certificates.Hash()))
		return err == nil && conn.Close() == nil
	})
}

// never is a body that does not arrive for as long as the test runs.
type never struct{ ctx context.Context }

func (n never) Read([]byte) (int, error) { <-n.ctx.Done(); return 0, io.EOF }

// Reports are read in few places, since they are large. One address that sends them
// slowly, and proves nothing, does not take these places.
func TestOneAddressDoesNotTakeAllReports(t *testing.T) {
	s := newSite(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	report := func(from string, body io.Reader) *httptest.ResponseRecorder {
		r := httptest.NewRequestWithContext(ctx, http.MethodPost, wire.BootPath, body)
		r.Header.Set("Content-Type", "application/json")
		r.RemoteAddr = from
		w := httptest.NewRecorder()
		s.handler.ServeHTTP(w, r)
		return w
	}
	var all sync.WaitGroup
	for range 2 {
		all.Go(func() { report("10.6.6.6:1", never{ctx}) })
	}
	waitFor(t, func() bool { return metric(t, s, "ortet_admission_in_flight") == 2 })
	for range 20 {
		if w := report("10.6.6.6:2", never{ctx}); w.Code != http.StatusTooManyRequests {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
	}
	if w := report("10.0.0.9:1", strings.NewReader("{}")); w.Code != http.StatusBadRequest {
		t.Errorf("another's report: %d %s", w.Code, w.Body)
	}
	cancel()
	all.Wait()
}

// A body that does not arrive within its time is refused as slow.
func TestSlowBody(t *testing.T) {
	s := newSite(t, nil)
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, wire.JoinPath, io.NopCloser(stalled{fmt.Errorf("read: %w", os.ErrDeadlineExceeded)}))
	r.Header.Set("Content-Type", "application/json")
	got := s.do(r)
	s.refused(got, admission.TooSlow)
	if got.status != http.StatusRequestTimeout {
		t.Errorf("status %d", got.status)
	}
}

// More than can be worked on at once is asked to come back, spread over time.
func TestOverload(t *testing.T) {
	hold := make(chan struct{})
	s := newSite(t, func(c *admission.Config) {
		c.Limits = admission.DefaultLimits()
		c.Limits.InFlight = 1
		c.Jitter = func() float64 { return 1 }
		c.Dial = func(context.Context, string, string) (net.Conn, error) { <-hold; return nil, io.EOF }
	})
	body := encode(t, wire.JoinRequest{Distribution: wire.Kubelet, CallbackPort: 1})
	header := s.node.header(s.nonce(), wire.JoinPath, body, today)
	busy := make(chan struct{})
	go func() {
		defer close(busy)
		s.send(wire.JoinPath, body, header, nil)
	}()
	waitFor(t, func() bool { return metric(t, s, "ortet_admission_in_flight") == 1 })
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // who gave up waiting is answered at once, so that this test is
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, wire.NoncePath, strings.NewReader(`{}`))
	r.Header.Set("Content-Type", "application/json")
	got := s.do(r)
	if got.status != http.StatusServiceUnavailable || got.refusal.Reason != string(admission.Overloaded) || got.refusal.After != 5 || got.refusal.Final {
		t.Errorf("%d %s", got.status, got.body)
	}
	close(hold)
	<-busy
	s.nonce()
}

func waitFor(t *testing.T, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(5 * time.Minute); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("not within five minutes")
		}
	}
}

// metric is the value of a counter or a gauge without labels.
func metric(t *testing.T, s *site, name string) float64 {
	t.Helper()
	families, err := s.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetCounter().GetValue() + f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	return 0
}

// A flock of nodes that ask within moments is admitted, each once.
func TestFlock(t *testing.T) {
	const flock = 200
	s := newSite(t, func(c *admission.Config) {
		c.Limits = admission.DefaultLimits()
		c.Limits.AddressRate, c.Limits.AddressBurst = 1e6, 1e6
		c.CallbackTimeout = time.Minute
	})
	address, certificates := s.listen(&keys{})
	var all sync.WaitGroup
	for i := range flock {
		id := fmt.Sprintf("%s/virtualMachines/%d", pool, 100+i)
		vm := fmt.Sprintf("00000000-0000-4000-8000-%012d", i)
		m, err := s.cloud.Member(t.Context(), instance)
		if err != nil {
			t.Fatal(err)
		}
		m.Instance, m.VMID, m.HostName = "", vm, fmt.Sprintf("pool1%06d", 100+i)
		m.Instance = m.Pool.Child("virtualMachines", fmt.Sprint(100+i))
		s.cloud.put(m)
		n := newNode(t, id, vm)
		all.Go(func() { s.joinOver(address, certificates.Hash(), n) })
	}
	all.Wait()
	if n := s.cluster.granted(); n != flock {
		t.Errorf("%d of %d were admitted", n, flock)
	}
}

// joinOver joins as a node does, over the network: it asks again where it was cut off
// or is to come back, as happens to many at once where there is little CPU.
func (s *site) joinOver(address, hash string, n *node) {
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: pinned(hash)}, Timeout: 5 * time.Minute}
	defer client.CloseIdleConnections()
	post := func(path string, body []byte, header string) ([]byte, error) {
		r, err := http.NewRequestWithContext(s.t.Context(), http.MethodPost, "https://"+address+path, bytes.NewReader(body))
		if err != nil {
			return nil, err
		}
		r.Header.Set("Content-Type", "application/json")
		if header != "" {
			r.Header.Set("Authorization", header)
		}
		answer, err := client.Do(r)
		if err != nil {
			return nil, err
		}
		text, err := io.ReadAll(answer.Body)
		if err := errors.Join(err, answer.Body.Close()); err != nil {
			return nil, err
		}
		if answer.StatusCode != http.StatusOK {
			return nil, fmt.Errorf("%s: %s %s", path, answer.Status, text)
		}
		return text, nil
	}
	join := func() error {
		text, err := post(wire.NoncePath, []byte(`{}`), "")
		if err != nil {
			return err
		}
		nonce, err := wire.ParseAnswer[wire.Nonce](text)
		if err != nil {
			return err
		}
		body := fmt.Appendf(nil, `{"distribution":"kubelet","callbackPort":%d}`, n.port)
		_, err = post(wire.JoinPath, body, n.header(nonce.Nonce, wire.JoinPath, body, today))
		return err
	}
	var err error
	for range 30 {
		if err = join(); err == nil {
			return
		}
		s.t.Log("to be asked again:", err)
	}
	s.t.Error(err)
}
