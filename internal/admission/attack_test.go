package admission_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/ortet/ortet/internal/admission"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/wire"
)

// labyrinth is a chain without a root whose authorities all signed each other: a verifier
// tries every order of them, with one signature check per step.
func labyrinth(t *testing.T, curve elliptic.Curve, authorities int) []*x509.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(curve, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	name := pkix.Name{CommonName: "labyrinth"}
	sign := func(c *x509.Certificate) *x509.Certificate {
		c.NotBefore, c.NotAfter, c.BasicConstraintsValid = today.Add(-time.Hour), today.Add(time.Hour), true
		parent := &x509.Certificate{Subject: name}
		der, err := x509.CreateCertificate(rand.Reader, c, parent, key.Public(), key)
		if err != nil {
			t.Fatal(err)
		}
		out, err := x509.ParseCertificate(der)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	chain := []*x509.Certificate{sign(&x509.Certificate{SerialNumber: big.NewInt(1), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		Subject: pkix.Name{CommonName: "system:node:" + nodeName, Organization: []string{"system:nodes"}}})}
	for n := range authorities {
		chain = append(chain, sign(&x509.Certificate{SerialNumber: big.NewInt(int64(n + 2)), Subject: name, IsCA: true, KeyUsage: x509.KeyUsageCertSign, DNSNames: []string{fmt.Sprintf("a%d", n)}}))
	}
	return chain
}

// Client certificates cost an unauthenticated client's budget as documents do: chain and
// keys are limited before any verification, and failures are rate-limited by address.
func TestClientCertificatesAreBoundedBeforeTheyVerify(t *testing.T) {
	s := newSite(t, nil)
	s.cluster.nodes[nodeName] = ready()
	ask := func(from string, chain ...*x509.Certificate) reply {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, wire.BackPath, strings.NewReader("{}"))
		r.RemoteAddr = from
		r.Header.Set("Content-Type", "application/json")
		r.TLS = &tls.ConnectionState{PeerCertificates: chain}
		return s.do(r)
	}
	const stranger, other = "10.0.0.9:1", "10.0.0.8:1"
	for cause, chain := range map[string][]*x509.Certificate{
		"chain of 5 client certificates":    labyrinth(t, elliptic.P521(), 4),
		"unsupported ECDSA key of 224 bits": labyrinth(t, elliptic.P224(), 1),
		"unknown authority":                 labyrinth(t, elliptic.P256(), 2),
	} {
		if r := ask(stranger, chain...); r.refusal.Reason != string(admission.BadCertificate) || !strings.Contains(s.log.String(), cause) {
			t.Errorf("%s: %s\n%s", cause, r.body, s.log)
		}
	}
	foreign := labyrinth(t, elliptic.P256(), 1)
	looked := 0
	for range 150 {
		if r := ask(stranger, foreign...); r.refusal.Reason != string(admission.RateLimited) {
			looked++
		}
		s.clock.add(25 * time.Millisecond) // slower than an address may ask
	}
	if looked > 70 {
		t.Errorf("%d certificates of one address were verified in 4 s", looked)
	}
	for _, from := range []string{stranger, other} { // a node's pods have its address
		if r := ask(from, s.authority.kubelet(nil)); r.status != http.StatusOK {
			t.Errorf("a kubelet from %s: %d %s", from, r.status, r.body)
		}
	}
}

// ErrHeard of the cluster becomes KubeletHeard with the cluster's Retry-After.
func TestDeletedNodeIsRefusedAsHeard(t *testing.T) {
	s := newSite(t, nil)
	s.cluster.admits = &fleet.Error{Op: "admit", Kind: fleet.KindConflict, RetryAfter: 20 * time.Second, Err: admission.ErrHeard}
	r := s.join()
	s.refused(r, admission.KubeletHeard)
	if r.refusal.Final || r.refusal.After != 20 {
		t.Errorf("come back after %d s, final %v", r.refusal.After, r.refusal.Final)
	}
}

// A secondary network interface may be in a pod's network namespace, so an answer there
// does not identify the machine.
func TestOtherInterfacesAreNotCalledBack(t *testing.T) {
	for name, change := range map[string]func(*fleet.Member){
		"secondary interface": func(m *fleet.Member) {
			m.Addresses, m.OfPrimary = []netip.Addr{netip.MustParseAddr("192.0.2.1"), m.Addresses[0]}, 1
		},
		"unknown primary interface": func(m *fleet.Member) { m.OfPrimary = 0 },
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, func(c *admission.Config) { c.CallbackTimeout = 300 * time.Millisecond })
			m, err := s.cloud.Member(t.Context(), instance)
			if err != nil {
				t.Fatal(err)
			}
			change(&m)
			s.cloud.put(m)
			s.refused(s.join(), admission.CallbackFailed)
		})
	}
}

// Another verifier of attested documents (SPIRE, Teleport) chooses the nonce that Azure
// signs, so it can bind its own key to the machine. The callback stops it: it does not
// answer at the machine's address.
func TestDocumentThatAnotherVerifierHadSigned(t *testing.T) {
	for name, c := range map[string]struct {
		listens bool
		want    admission.Reason
	}{"its agent listens": {true, admission.CallbackWrongKey}, "nobody listens": {false, admission.CallbackFailed}} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, nil)
			s.node.newKey() // of the other verifier; the machine answers with its own
			if !c.listens {
				s.node.stop()
			}
			s.refused(s.join(), c.want)
		})
	}
}

// Rate limits use the connection's address and ignore forwarding headers.
func TestForwardedAddressesAreNotBelieved(t *testing.T) {
	s := newSite(t, func(c *admission.Config) {
		c.Limits = admission.DefaultLimits()
		c.Limits.AddressRate, c.Limits.AddressBurst = 1, 5
	})
	refused := 0
	for n := range 30 {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, wire.NoncePath, strings.NewReader("{}"))
		r.RemoteAddr = "10.0.0.9:1"
		r.Header.Set("Content-Type", "application/json")
		for _, h := range []string{"X-Forwarded-For", "X-Real-Ip", "Forwarded", "True-Client-Ip"} {
			r.Header.Set(h, fmt.Sprintf("10.1.0.%d", n))
		}
		if s.do(r).refusal.Reason == string(admission.RateLimited) {
			refused++
		}
	}
	if refused < 20 {
		t.Errorf("%d of 30 requests of one address were refused", refused)
	}
}
