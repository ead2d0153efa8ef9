package azsim

import (
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/smallstep/pkcs7"
)

func newAttestor(t *testing.T) *Attestor {
	t.Helper()
	a, err := NewAttestor(LeafOptions{}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// opened is a signed message as who verifies sees it.
func opened(t *testing.T, signature string) (*pkcs7.PKCS7, AttestedDocument) {
	t.Helper()
	der, err := base64.StdEncoding.DecodeString(signature)
	if err != nil {
		t.Fatal(err)
	}
	m, err := pkcs7.Parse(der)
	if err != nil {
		t.Fatal(err)
	}
	var d AttestedDocument
	if err := json.Unmarshal(m.Content, &d); err != nil {
		t.Fatalf("%s: %v", m.Content, err)
	}
	return m, d
}

func TestAttestedDocumentIsAsAzuresIs(t *testing.T) {
	a := newAttestor(t)
	now := time.Date(2026, 11, 21, 18, 30, 5, 0, time.FixedZone("", 3600))
	text, err := a.Sign(NewAttestedDocument("vm", "sub", "", now), SignOptions{})
	if err != nil {
		t.Fatal(err)
	}
	m, d := opened(t, text)
	const want = `{"licenseType":"","nonce":"20261121-233005","plan":{"name":"","product":"","publisher":""},"sku":"","subscriptionId":"sub",` +
		`"timeStamp":{"createdOn":"11/21/26 17:30:05 -0000","expiresOn":"11/21/26 23:30:05 -0000"},"vmId":"vm"}`
	if string(m.Content) != want {
		t.Errorf("%s\nwant\n%s", m.Content, want)
	}
	for _, when := range []string{d.TimeStamp.CreatedOn, d.TimeStamp.ExpiresOn} {
		if _, err := time.Parse(AttestedTime, when); err != nil {
			t.Error(err)
		}
	}
	if len(m.Certificates) != 1 || len(m.Signers) != 1 || len(m.Signers[0].AuthenticatedAttributes) != 0 ||
		!m.Signers[0].DigestAlgorithm.Algorithm.Equal(pkcs7.OIDEncryptionAlgorithmRSASHA256) {
		t.Errorf("%d certificates, signers %+v", len(m.Certificates), m.Signers)
	}
	if err := m.Verify(); err != nil {
		t.Error(err)
	}
	leaf := m.GetOnlySigner()
	if leaf == nil || !slices.Contains(leaf.DNSNames, "westeurope.metadata.azure.com") || !slices.Contains(leaf.DNSNames, "metadata.azure.com") {
		t.Fatalf("signed by %+v", leaf)
	}
	if _, err := leaf.Verify(x509.VerifyOptions{Roots: a.Roots()}); err == nil {
		t.Error("the chain is there without the intermediate")
	}
	pool := x509.NewCertPool()
	pool.AddCert(a.Intermediate())
	if _, err := leaf.Verify(x509.VerifyOptions{Roots: a.Roots(), Intermediates: pool, DNSName: "metadata.azure.com"}); err != nil {
		t.Error(err)
	}
}

func TestAttestorSignsWhatAzureWouldNot(t *testing.T) {
	a := newAttestor(t)
	stranger := newAttestor(t)
	old, err := a.WithLeaf(LeafOptions{Names: []string{"metadata.azure.com.evil.example"}, CommonName: "evil", NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: time.Now().Add(-time.Hour), Issuers: []string{}})
	if err != nil {
		t.Fatal(err)
	}
	sign := func(a *Attestor, o SignOptions) *pkcs7.PKCS7 {
		t.Helper()
		der, err := a.SignContent([]byte(`{"vmId":"x"}`), o)
		if err != nil {
			t.Fatal(err)
		}
		m, err := pkcs7.Parse(der)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	if m := sign(a, SignOptions{Chain: true}); len(m.Certificates) != 2 || m.VerifyWithChain(a.Roots()) != nil {
		t.Error("no chain that verifies")
	}
	if m := sign(stranger, SignOptions{Chain: true}); m.VerifyWithChain(a.Roots()) == nil {
		t.Error("another root's document verifies")
	}
	if m := sign(stranger, SignOptions{First: []*x509.Certificate{a.Leaf()}}); !m.Certificates[0].Equal(a.Leaf()) || m.GetOnlySigner() == nil || !m.GetOnlySigner().Equal(stranger.Leaf()) {
		t.Error("the stranger's certificate is not first, or signs")
	}
	if m := sign(a, SignOptions{Also: []*Attestor{stranger}}); len(m.Signers) != 2 || m.GetOnlySigner() != nil || m.Verify() != nil {
		t.Errorf("%d signers", len(m.Signers))
	}
	if m := sign(a, SignOptions{Detached: true}); len(m.Content) != 0 {
		t.Errorf("content %s", m.Content)
	}
	if m := sign(a, SignOptions{Attributes: true}); len(m.Signers[0].AuthenticatedAttributes) == 0 || m.Verify() != nil {
		t.Error("no signed attributes that verify")
	}
	m := sign(old, SignOptions{Chain: true})
	var invalid x509.CertificateInvalidError
	pool := x509.NewCertPool()
	pool.AddCert(a.Intermediate())
	leaf := m.GetOnlySigner()
	if _, err := leaf.Verify(x509.VerifyOptions{Roots: a.Roots(), Intermediates: pool}); !errors.As(err, &invalid) || invalid.Reason != x509.Expired {
		t.Errorf("an expired leaf: %v", err)
	}
	if len(leaf.IssuingCertificateURL) != 0 || leaf.VerifyHostname("metadata.azure.com") == nil {
		t.Errorf("%v %v", leaf.DNSNames, leaf.IssuingCertificateURL)
	}
}

func TestServerAttests(t *testing.T) {
	withPool(t, 1, nil, func(t *testing.T, l *lab) { serverAttests(t, l) })
}

func serverAttests(t *testing.T, l *lab) {
	s := l.s
	e := s.findID(val(l.vm("pool1", "0").ID))
	get := func(query string, version string) (int, string) {
		r := httptest.NewRequest(http.MethodGet, "/metadata/attested/document?api-version="+version+query, nil)
		r.Header.Set("Metadata", "true")
		rec := httptest.NewRecorder()
		s.imdsOf(e).ServeHTTP(rec, r)
		time.Sleep(time.Second) // within the limits
		return rec.Code, rec.Body.String()
	}
	status, body := get("&nonce=0123456789abcdef0123456789abcdef", "2025-04-07")
	var answer struct{ Encoding, Signature string }
	if err := json.Unmarshal([]byte(body), &answer); err != nil || status != http.StatusOK || answer.Encoding != "pkcs7" {
		t.Fatalf("%d %s %v", status, body, err)
	}
	m, d := opened(t, answer.Signature)
	x, _ := instanceOf(e)
	if d.VMID != x.vmID || d.Nonce != "0123456789abcdef0123456789abcdef" || d.SubscriptionID != DefaultSubscription {
		t.Errorf("%+v", d)
	}
	// The issuer is where the leaf says, on whatever host the server is.
	leaf := m.GetOnlySigner()
	res, err := (&http.Client{Transport: s.Transport()}).Get(leaf.IssuingCertificateURL[0])
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	der, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	issuer, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	roots, pool := x509.NewCertPool(), x509.NewCertPool()
	roots.AppendCertsFromPEM(s.AttestationPEM())
	pool.AddCert(issuer)
	if _, err := leaf.Verify(x509.VerifyOptions{Roots: roots, Intermediates: pool}); err != nil {
		t.Error(err)
	}
	if res, err := (&http.Client{Transport: s.Transport()}).Get("http://www.microsoft.com/pkiops/certs/none.crt"); err != nil || res.StatusCode != http.StatusNotFound {
		t.Errorf("%v %v", res, err)
	}

	for query, want := range map[string]int{"&nonce=0123456789abcdef0123456789abcdef0": 400, "&nonce=%ff": 400, "": 200} {
		if status, body := get(query, "2025-04-07"); status != want {
			t.Errorf("%q: %d %s", query, status, body)
		}
	}
	for _, version := range []string{"", "2018-04-02", "2031-01-01"} {
		if status, body := get("", version); status != 400 || !strings.Contains(body, `"newest-versions":["2025-04-07"`) {
			t.Errorf("version %q: %d %s", version, status, body)
		}
	}
	s.locked(func() { s.markDeleting(e) })
	if status, body := get("", "2025-04-07"); status != http.StatusGone {
		t.Errorf("an instance that goes: %d %s", status, body)
	}
}
