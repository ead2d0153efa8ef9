package attest_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/big"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/smallstep/pkcs7"

	"github.com/ortet/ortet/azsim/metadata"
	"github.com/ortet/ortet/internal/admission/attest"
)

// Right after a start nothing is kept. Strangers who ask for one made-up name after the
// other, from one address or several, keep nobody else from having a name fetched, be it
// known or new; and they have few fetched themselves.
func TestFetcherIsNotFloodedByStrangers(t *testing.T) {
	azure := attestors()[0]
	for _, c := range []struct {
		addresses int
		most      int // fetches in 50 s
	}{{1, 8}, {8, 70}, {40, 170}} {
		t.Run(fmt.Sprint(c.addresses), func(t *testing.T) {
			at := now
			fetcher, asked := publication(azure, func() time.Time { return at })
			for i := range 2000 {
				at = at.Add(25 * time.Millisecond)
				from := fmt.Sprintf("10.6.6.%d/32", i%c.addresses)
				if _, err := issuer(t.Context(), fetcher, from, fmt.Sprintf("%sx%d.crt", attest.Publication, i)); err == nil {
					t.Fatal("found what is not there")
				}
				if i == 150 { // all have had all that they may have at once
					if got, err := issuer(t.Context(), fetcher, home, metadata.IssuerURL()); err != nil || !got.Equal(azure.Intermediate()) {
						t.Fatalf("another's: %v", err)
					}
				}
			}
			if n := len(*asked); n > c.most {
				t.Errorf("they had %d fetched in 50 s, want %d at most", n, c.most)
			}
			before := len(*asked)
			for i := range 200 { // and it stays
				at = at.Add(time.Second)
				_, _ = issuer(t.Context(), fetcher, "10.6.6.0/32", fmt.Sprintf("%sy%d.crt", attest.Publication, i)) // there is none
			}
			if _, err := issuer(t.Context(), fetcher, home, metadata.IssuerURL()); err != nil {
				t.Errorf("what was kept is gone: %v", err)
			}
			if n := strings.Count(strings.Join((*asked)[before:], " "), metadata.IssuerURL()); n != 0 {
				t.Errorf("it was fetched %d times more", n)
			}
		})
	}
}

// However many strangers there are, what Microsoft is known to sign with is fetched: at
// once after the start, and when it could not be had before.
func TestKnownNamesAreFetchedInAnyFlood(t *testing.T) {
	chain := newBridged(t)
	at, up := now, false
	fetcher, _ := publication(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !up {
			http.Error(w, "away", http.StatusBadGateway)
			return
		}
		chain.ServeHTTP(w, r)
	}), func() time.Time { return at })
	v := &attest.Verifier{Roots: chain.roots, Issuers: fetcher, Now: func() time.Time { return at }}
	text := chain.sign(t)
	flood := func() {
		for i := range 4000 {
			from := fmt.Sprintf("10.6.%d.%d/32", i/250, i%250)
			_, _ = issuer(t.Context(), fetcher, from, fmt.Sprintf("%sx%d-%d.crt", attest.Publication, i, at.Unix())) // there is none
		}
	}
	flood()
	if _, err := v.Verify(t.Context(), text, nonce, home); reasonOf(err) != attest.Unreachable {
		t.Fatalf("while nothing can be fetched: %v", err)
	}
	up, at = true, at.Add(11*time.Second)
	flood()
	if _, err := v.Verify(t.Context(), text, nonce, home); err != nil {
		t.Error(err)
	}
}

// The metadata service's authorities name an issuer that signed itself, or one at
// Microsoft's other publication point, and that is a root in few places; the bridge to a
// root that is everywhere is known by its name.
func TestChainByTheBridge(t *testing.T) {
	chain := newBridged(t)
	fetcher, asked := publication(chain, still)
	v := &attest.Verifier{Roots: chain.roots, Issuers: fetcher, Now: still}
	if _, err := v.Verify(t.Context(), chain.sign(t), nonce, home); err != nil {
		t.Errorf("%v\nfetched %v", err, *asked)
	}
	// Where the self-signed one is a root, it will do.
	own := x509.NewCertPool()
	own.AddCert(chain.self)
	v.Roots = own
	if _, err := v.Verify(t.Context(), chain.sign(t), nonce, home); err != nil {
		t.Error(err)
	}
	for _, address := range *asked {
		if u, err := url.Parse(address); err != nil || u.Host != "www.microsoft.com" && u.Host != "caissuers.microsoft.com" {
			t.Errorf("fetched %s", address)
		}
	}
}

// What is known is there after a start without anybody having asked for it.
func TestWarm(t *testing.T) {
	chain := newBridged(t)
	fetcher, asked := publication(chain, still)
	has, of, err := fetcher.Warm(t.Context())
	if has != 2 || of < 10 || err == nil {
		t.Errorf("%d of %d, %v: want the 2 that are published, and why the others are not there", has, of, err)
	}
	before := len(*asked)
	v := &attest.Verifier{Roots: chain.roots, Issuers: fetcher, Now: still}
	if _, err := v.Verify(t.Context(), chain.sign(t), nonce, home); err != nil {
		t.Error(err)
	}
	for _, address := range (*asked)[before:] {
		if address != chain.selfAddress { // the only one of no use to most
			t.Errorf("fetched %s, which was there", address)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	fetcher, _ = publication(chain, still)
	if has, _, err := fetcher.Warm(ctx); err == nil && has == 0 {
		t.Error("nothing is there, and no error says why")
	}
}

// bridged is a chain as the metadata service's are since 2026: a leaf of an authority of
// an authority that signed itself, and that has a certificate of a root besides.
type bridged struct {
	roots       *x509.CertPool
	self        *x509.Certificate
	selfAddress string
	leaf        *x509.Certificate
	key         *ecdsa.PrivateKey
	published   map[string][]byte // by path
}

func newBridged(t *testing.T) *bridged {
	t.Helper()
	const selfAddress = "http://caissuers.microsoft.com/pkiops/certs/Microsoft%20TLS%20RSA%20Root%20G2.crt"
	key := func() *ecdsa.PrivateKey {
		k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	serial := int64(1)
	sign := func(name string, k *ecdsa.PrivateKey, parent *x509.Certificate, by *ecdsa.PrivateKey, issuers ...string) *x509.Certificate {
		serial++
		c := &x509.Certificate{SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: name}, NotBefore: now.AddDate(-1, 0, 0), NotAfter: now.AddDate(1, 0, 0), IssuingCertificateURL: issuers}
		if strings.HasPrefix(name, "metadata") {
			c.DNSNames, c.KeyUsage = []string{name}, x509.KeyUsageDigitalSignature
		} else {
			c.IsCA, c.BasicConstraintsValid, c.KeyUsage = true, true, x509.KeyUsageCertSign
		}
		if parent == nil {
			parent = c
		}
		der, err := x509.CreateCertificate(rand.Reader, c, parent, k.Public(), by)
		if err != nil {
			t.Fatal(err)
		}
		parsed, err := x509.ParseCertificate(der)
		if err != nil {
			t.Fatal(err)
		}
		return parsed
	}
	rootKey, g2Key, issuerKey, leafKey := key(), key(), key(), key()
	root := sign("DigiCert Global Root G2", rootKey, nil, rootKey)
	self := sign("Microsoft TLS RSA Root G2", g2Key, nil, g2Key)
	bridge := sign("Microsoft TLS RSA Root G2", g2Key, root, rootKey, "http://cacerts.digicert.com/DigiCertGlobalRootG2.crt")
	authority := sign("Microsoft TLS G2 RSA CA OCSP 04", issuerKey, self, g2Key, selfAddress)
	b := &bridged{roots: x509.NewCertPool(), self: self, selfAddress: selfAddress, key: leafKey,
		leaf: sign("metadata.azure.com", leafKey, authority, issuerKey, "http://www.microsoft.com/pkiops/certs/Microsoft%20TLS%20G2%20RSA%20CA%20OCSP%2004.crt"),
		published: map[string][]byte{
			"/pkiops/certs/Microsoft TLS RSA Root G2.crt":         self.Raw,
			"/pkiops/certs/Microsoft TLS RSA Root G2 - xsign.crt": bridge.Raw,
			"/pkiops/certs/Microsoft TLS G2 RSA CA OCSP 04.crt":   authority.Raw,
		}}
	b.roots.AddCert(root)
	return b
}

func (b *bridged) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	der, ok := b.published[r.URL.Path]
	if !ok {
		http.NotFound(w, r)
		return
	}
	_, _ = w.Write(der) // into a recorder
}

// sign returns a document of the leaf's.
func (b *bridged) sign(t *testing.T) string {
	t.Helper()
	content, err := json.Marshal(document())
	if err != nil {
		t.Fatal(err)
	}
	message, err := pkcs7.NewSignedData(content)
	if err != nil {
		t.Fatal(err)
	}
	message.SetDigestAlgorithm(pkcs7.OIDDigestAlgorithmSHA256)
	if err := message.SignWithoutAttr(b.leaf, b.key, pkcs7.SignerInfoConfig{}); err != nil {
		t.Fatal(err)
	}
	der, err := message.Finish()
	if err != nil {
		t.Fatal(err)
	}
	return base64.StdEncoding.EncodeToString(der)
}
