package metadata

import (
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"slices"
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
