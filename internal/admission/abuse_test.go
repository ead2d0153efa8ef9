package admission_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/smallstep/pkcs7"

	"github.com/ortet/ortet/azsim/metadata"
	"github.com/ortet/ortet/internal/admission"
	"github.com/ortet/ortet/internal/admission/attest"
	"github.com/ortet/ortet/internal/wire"
)

// sendFrom is send, of another address.
func (s *site) sendFrom(address, path string, body []byte, header string) reply {
	s.t.Helper()
	r := httptest.NewRequestWithContext(s.t.Context(), http.MethodPost, path, bytes.NewReader(body))
	r.RemoteAddr = address
	r.Header.Set("Content-Type", "application/json")
	if header != "" {
		r.Header.Set("Authorization", header)
	}
	return s.do(r)
}

// forged returns a document that a stranger signs, under the metadata service's name, by a
// certificate whose issuer is said to be at an address.
func forged(t *testing.T, d metadata.AttestedDocument, issuer string) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	above, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "metadata.azure.com"}, DNSNames: []string{"metadata.azure.com"},
		NotBefore: today.Add(-time.Hour), NotAfter: today.Add(time.Hour), IssuingCertificateURL: []string{issuer},
	}
	der, err := x509.CreateCertificate(rand.Reader, c, &x509.Certificate{Subject: pkix.Name{CommonName: "Stranger"}}, key.Public(), above)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	content, err := json.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	message, err := pkcs7.NewSignedData(content)
	if err != nil {
		t.Fatal(err)
	}
	message.SetDigestAlgorithm(pkcs7.OIDDigestAlgorithmSHA256)
	if err := message.SignWithoutAttr(leaf, key, pkcs7.SignerInfoConfig{}); err != nil {
		t.Fatal(err)
	}
	if der, err = message.Finish(); err != nil {
		t.Fatal(err)
	}
	return base64.StdEncoding.EncodeToString(der)
}

// After a start no intermediate is kept. A stranger who sends documents of its own
// making, each with another issuer to fetch, does not keep a node from joining.
func TestStrangerDoesNotUseUpTheFetches(t *testing.T) {
	s := newSite(t, nil)
	stranger := newNode(t, instance, vmID)
	join := encode(t, wire.JoinRequest{Distribution: wire.Kubelet, CallbackPort: stranger.port})
	unreachable := 0
	for i := range 150 {
		stranger.proof = func(p *wire.Proof) {
			d := metadata.NewAttestedDocument(vmID, subscription, wire.AttestedNonce(p.Nonce, p.PublicKey, p.ResourceID), s.clock.get())
			p.Document = forged(t, d, fmt.Sprintf("%sx%d.crt", attest.Publication, i))
		}
		r := s.sendFrom("10.6.6.6:1", wire.JoinPath, join, stranger.header(s.nonce(), wire.JoinPath, join, s.clock.get()))
		if r.refusal.Reason == string(attest.Unreachable) {
			unreachable++
		}
		s.clock.add(250 * time.Millisecond) // as often as documents may fail
	}
	if unreachable != 150 {
		t.Fatalf("%d of 150 were refused for want of an issuer: the stranger is not what it is to be\n%s", unreachable, s.log)
	}
	if r := s.join(); r.status != http.StatusOK {
		t.Errorf("a node: %d %s\n%s", r.status, r.body, s.log)
	}
}

// A machine whose documents are Azure's can claim to be any instance. However often and
// however many it claims to be, Azure is not asked each time, and others join.
func TestOneMachineDoesNotUseUpAzure(t *testing.T) {
	s := newSite(t, nil)
	noisy := newNode(t, instance, "00000000-1111-2222-3333-444444444444")
	join := encode(t, wire.JoinRequest{Distribution: wire.Kubelet, CallbackPort: noisy.port})
	limited := 0
	for i := range 300 {
		noisy.resource = fmt.Sprintf("%s/virtualMachines/%d", pool, 1000+i)
		r := s.sendFrom(fmt.Sprintf("10.6.%d.6:1", i%7), wire.JoinPath, join, noisy.header(s.nonce(), wire.JoinPath, join, s.clock.get()))
		if r.refusal.Reason == string(admission.RateLimited) && !r.refusal.Final && r.refusal.After > 0 {
			limited++
		}
		s.clock.add(100 * time.Millisecond)
	}
	if s.cloud.asked > 20 || s.cloud.asked+limited != 300 {
		t.Errorf("Azure was asked %d times in 30 s, %d of 300 were limited", s.cloud.asked, limited)
	}
	if r := s.join(); r.status != http.StatusOK {
		t.Errorf("another: %d %s", r.status, r.body)
	}
}

// So it is by a certificate: neither the cluster nor Azure is asked without end.
func TestOneCertificateDoesNotUseUpAzure(t *testing.T) {
	s := newSite(t, nil)
	s.cluster.nodes[nodeName] = ready()
	certificate := s.authority.kubelet(nil)
	body, granted := encode(t, struct{}{}), 0
	for range 300 {
		if r := s.send(wire.BackPath, body, "", certificate); r.status == http.StatusOK {
			granted++
		}
		s.clock.add(100 * time.Millisecond)
	}
	if granted < 16 || granted > 20 || s.cloud.asked != granted {
		t.Errorf("%d of 300 were granted in 30 s, Azure was asked %d times", granted, s.cloud.asked)
	}
}

// Any customer of Azure's has documents that name no subscription, of the metadata
// service's oldest versions.
func TestDocumentWithoutSubscription(t *testing.T) {
	s := newSite(t, nil)
	s.node.document = func(d *metadata.AttestedDocument) { d.SubscriptionID = "" }
	s.refused(s.join(), admission.ForeignDocument)
	if s.cloud.asked != 0 {
		t.Error("Azure was asked")
	}
}

// lines counts the audit log's: those of decisions by reason, and how many it says that
// it has not.
func lines(t *testing.T, s *site, reason admission.Reason) (written, omitted int) {
	t.Helper()
	for _, line := range strings.Split(strings.TrimSpace(s.log.String()), "\n") {
		var l struct {
			Msg     string
			Reason  admission.Reason
			Omitted int
		}
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		if l.Reason != reason {
			continue
		}
		if l.Msg == "admission" {
			written++
		}
		omitted += l.Omitted
	}
	return written, omitted
}

// What anybody can cause does not fill the audit log, and does not hide from it what was
// granted, what a machine was refused that had proven itself, or another address's
// refusals; and what has no line is counted.
func TestAuditLogInAFlood(t *testing.T) {
	s := newSite(t, func(c *admission.Config) {
		c.Limits = admission.DefaultLimits()
		c.Limits.AddressRate, c.Limits.AddressBurst, c.Limits.Rate, c.Limits.Burst = 1e6, 1e6, 1e6, 1e6
	})
	flood := func(n int) {
		for i := range n {
			s.sendFrom("10.6.6.6:1", wire.JoinPath, []byte(fmt.Sprintf(`{"distribution":"x%d"}`, i)), "")
			s.clock.add(2 * time.Millisecond)
		}
	}
	flood(3000)
	if written, _ := lines(t, s, admission.BadRequest); written > 7 || written < 5 {
		t.Errorf("%d lines of one stranger in 6 s", written)
	}
	s.sendFrom("10.7.7.7:1", wire.JoinPath, []byte(`{}`), "")
	if n := strings.Count(s.log.String(), "10.7.7.7"); n != 1 {
		t.Errorf("%d lines of another address", n)
	}
	s.cluster.nodes[nodeName] = ready()
	for range 12 { // it is proven, and every time written down
		s.refused(s.join(), admission.NodeReady)
	}
	if written, omitted := lines(t, s, admission.NodeReady); written != 12 || omitted != 0 {
		t.Errorf("%d lines of 12 that a machine was refused, %d omitted", written, omitted)
	}
	flood(3000)
	delete(s.cluster.nodes, nodeName)
	if r := s.join(); r.status != http.StatusOK {
		t.Fatalf("%d %s", r.status, r.body)
	}
	if written, _ := lines(t, s, admission.Granted); written != 1 {
		t.Errorf("%d lines of what was granted", written)
	}
	admission.WriteOmissions(s.server, t.Context())
	written, omitted := lines(t, s, admission.BadRequest)
	if n := int(decisions(t, s, admission.BadRequest)); written+omitted != n || n != 6001 {
		t.Errorf("%d lines and %d omitted, of %d", written, omitted, n)
	}
	before := s.log.String()
	admission.WriteOmissions(s.server, t.Context())
	if s.log.String() != before {
		t.Error("what was told is told again")
	}
}

// Nor do very many addresses fill it, and what is known of them is bounded.
func TestAuditLogInAFloodOfAddresses(t *testing.T) {
	s := newSite(t, func(c *admission.Config) {
		c.Limits = admission.DefaultLimits()
		c.Limits.Rate, c.Limits.Burst = 1e6, 1e6
	})
	for i := range 5000 {
		s.sendFrom(fmt.Sprintf("[2001:db8:%x::1]:1", i), wire.JoinPath, []byte(`{`), "")
		s.clock.add(2 * time.Millisecond)
	}
	admission.WriteOmissions(s.server, t.Context())
	written, omitted := lines(t, s, admission.BadRequest)
	if written > 450 || written+omitted != 5000 {
		t.Errorf("%d lines in 10 s, and %d omitted, of 5000", written, omitted)
	}
	if n := strings.Count(s.log.String(), `"msg":"omitted"`); n > 70 {
		t.Errorf("%d lines of what was omitted", n)
	}
}

// The counts are written when it ends at the latest, even where it ends before it served.
func TestOmissionsAreWrittenAtTheEnd(t *testing.T) {
	s := newSite(t, nil)
	certificates, err := admission.NewCertificates(t.Context(), &keys{}, []string{"127.0.0.1"}, time.Now, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	for range 50 {
		s.sendFrom("10.6.6.6:1", wire.JoinPath, []byte(`{`), "")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.server.Serve(ctx, l, certificates); err != nil {
		t.Fatal(err)
	}
	if written, omitted := lines(t, s, admission.BadRequest); written+omitted != 50 || omitted == 0 {
		t.Errorf("%d lines, %d omitted, of 50", written, omitted)
	}
}

// A flood of one kind of refusal of one address leaves lines to its other kinds.
func TestOmissionsAreOfEachReason(t *testing.T) {
	s := newSite(t, nil)
	for range 50 {
		s.sendFrom("10.6.6.6:1", wire.JoinPath, []byte(`{`), "")
	}
	s.node.proof = func(p *wire.Proof) { p.Signature[len(p.Signature)-1] ^= 1 }
	body := encode(t, wire.JoinRequest{Distribution: wire.Kubelet, CallbackPort: 1})
	s.sendFrom("10.6.6.6:1", wire.JoinPath, body, s.node.header(s.nonce(), wire.JoinPath, body, s.clock.get()))
	if written, _ := lines(t, s, admission.SignatureInvalid); written != 1 {
		t.Errorf("%d lines\n%s", written, s.log)
	}
}
