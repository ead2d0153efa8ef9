package kube

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"fmt"
	"math/big"
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ortet/ortet/internal/fleet"
)

// ofToken is a request that is asked for with a token.
func ofToken(signer string, request []byte) *certificatesv1.CertificateSigningRequest {
	return &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{Name: "csr-1", CreationTimestamp: metav1.NewTime(noon), Annotations: map[string]string{annotationNode: "other", "filler": strings.Repeat("x", 200<<10)}},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			SignerName: signer, Request: request, Username: "system:bootstrap:abcdef", Groups: []string{TokenGroup},
			Usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth},
		},
	}
}

func newTestKey(t *testing.T, curve elliptic.Curve) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(curve, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// filled is a request with an extension of so many bytes.
func filled(bytes int) func(*x509.CertificateRequest) {
	return func(r *x509.CertificateRequest) {
		r.ExtraExtensions = []pkix.Extension{{Id: asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 99999, 1}, Value: make([]byte, bytes)}}
	}
}

// Sixty requests of a megabyte each are kept in as little room as sixty small ones.
func TestCertificateRequestsAreKeptSmall(t *testing.T) {
	small := asked(t, newTestKey(t, elliptic.P256()), "system:node:pool1000001", nil)
	for name, r := range map[string]*certificatesv1.CertificateSigningRequest{
		"a large one":              ofToken(client, make([]byte, 1<<20)),
		"a large one in PEM":       ofToken(client, asked(t, newTestKey(t, elliptic.P256()), "system:node:pool1000001", filled(512<<10))),
		"of another signer":        ofToken("example.com/signer", make([]byte, 1<<20)),
		"of another signer, small": ofToken("example.com/signer", small),
		"one of a kubelet":         ofToken(client, small),
	} {
		out, err := leanRequest(r)
		if err != nil {
			t.Fatal(err)
		}
		kept, ok := out.(*certificatesv1.CertificateSigningRequest)
		if !ok || kept.Size() > 2*maxRequest {
			t.Errorf("%s: %d bytes are kept", name, kept.Size())
		}
		if node := subjectNode(kept); name == "one of a kubelet" && (node != "pool1000001" || csrOf(kept).wants == nil) || name != "one of a kubelet" && node != "" {
			t.Errorf("%s: it is for %q", name, node)
		}
	}
}

// What is larger than any kubelet's request is not granted, whatever asks.
func TestLargeCertificateRequestIsRefused(t *testing.T) {
	key := newTestKey(t, elliptic.P256())
	member := fleet.Member{HostName: "pool1000001", VMID: "vm-a"}
	known := facts{token: &ofNode, admission: forNode, admitted: true, member: &member, mayAsk: true}
	for bytes, want := range map[int][2]Verb{1 << 10: {Approve, Approve}, 8 << 10: {Deny, Leave}} {
		r := ofToken(client, asked(t, key, "system:node:pool1000001", filled(bytes)))
		if d := decideCSR(csrOf(r), known); d.verb != want[0] {
			t.Errorf("%d bytes by token: %s %s: %s", bytes, d.verb, d.reason, d.message)
		}
		r.Spec.Username, r.Spec.Groups = "system:node:pool1000001", []string{nodesGroup}
		if d := decideCSR(csrOf(r), known); d.verb != want[1] {
			t.Errorf("%d bytes by the node: %s %s: %s", bytes, d.verb, d.reason, d.message)
		}
	}
}

// A signature is verified by keys of known kinds and sizes only: by a large one it takes
// as long as a stranger likes.
func TestKeysAreBoundedBeforeTheyVerify(t *testing.T) {
	for _, c := range []struct {
		bits int
		good bool
	}{{1024, false}, {2048, true}, {4096, true}, {8192, false}, {11000, false}} {
		n := new(big.Int).Sub(new(big.Int).Lsh(big.NewInt(1), uint(c.bits)), big.NewInt(1))
		why := csrOf(ofToken(client, unsigned(t, &rsa.PublicKey{N: n, E: 65537}, c.bits/8))).why
		// None of them is signed by its key: what fails for a good one is the signature.
		if refused := strings.Contains(fmt.Sprint(why), "bits"); why == nil || refused == c.good {
			t.Errorf("RSA of %d bits: %v", c.bits, why)
		}
	}
	for curve, good := range map[elliptic.Curve]bool{elliptic.P224(): false, elliptic.P256(): true, elliptic.P384(): true, elliptic.P521(): true} {
		if why := csrOf(ofToken(client, asked(t, newTestKey(t, curve), "system:node:n", nil))).why; (why == nil) != good {
			t.Errorf("%s: %v", curve.Params().Name, why)
		}
	}
}

// unsigned is a request of a key with a signature of zeros.
func unsigned(t *testing.T, key *rsa.PublicKey, signature int) []byte {
	t.Helper()
	public, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		t.Fatal(err)
	}
	subject, err := asn1.Marshal(pkix.Name{CommonName: "system:node:n", Organization: []string{"system:nodes"}}.ToRDNSequence())
	if err != nil {
		t.Fatal(err)
	}
	type request struct {
		Version    int
		Subject    asn1.RawValue
		PublicKey  asn1.RawValue
		Attributes asn1.RawValue
	}
	der, err := asn1.Marshal(struct {
		Request   request
		Algorithm pkix.AlgorithmIdentifier
		Signature asn1.BitString
	}{
		request{Subject: asn1.RawValue{FullBytes: subject}, PublicKey: asn1.RawValue{FullBytes: public}, Attributes: asn1.RawValue{Class: asn1.ClassContextSpecific, IsCompound: true}},
		pkix.AlgorithmIdentifier{Algorithm: asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 1, 11}, Parameters: asn1.NullRawValue},
		asn1.BitString{Bytes: make([]byte, signature), BitLength: 8 * signature},
	})
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
}
