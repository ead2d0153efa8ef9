package attest_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ortet/ortet/azsim/metadata"
	"github.com/ortet/ortet/internal/admission/attest"
)

const (
	vmID         = "0f1e2d3c-4b5a-4697-8877-665544332211"
	subscription = "8d10da13-8125-4ba9-a717-bf7490507b3d"
	nonce        = "0123456789abcdef0123456789abcdef"
	home         = "10.0.0.4/32" // who asks
)

var now = time.Date(2026, 11, 21, 16, 0, 0, 0, time.UTC)

// attestors are made once: their RSA keys take a while.
var attestors = sync.OnceValue(func() [2]*metadata.Attestor {
	var both [2]*metadata.Attestor
	for i := range both {
		a, err := metadata.NewAttestor(metadata.LeafOptions{}, now)
		if err != nil {
			panic(err)
		}
		both[i] = a
	}
	return both
})

func document() metadata.AttestedDocument {
	return metadata.NewAttestedDocument(vmID, subscription, nonce, now.Add(-time.Second))
}

func signed(t testing.TB, a *metadata.Attestor, d metadata.AttestedDocument, o metadata.SignOptions) string {
	t.Helper()
	text, err := a.Sign(d, o)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func signedContent(t testing.TB, a *metadata.Attestor, content string, o metadata.SignOptions) string {
	t.Helper()
	der, err := a.SignContent([]byte(content), o)
	if err != nil {
		t.Fatal(err)
	}
	return base64.StdEncoding.EncodeToString(der)
}

// publication returns a fetcher whose transport reaches only the attestor, and counts.
func publication(h http.Handler, clock func() time.Time) (*attest.Fetcher, *[]string) {
	var mu sync.Mutex
	var asked []string
	return attest.NewFetcher(roundTrip(func(r *http.Request) (*http.Response, error) {
		mu.Lock()
		asked = append(asked, r.URL.String())
		mu.Unlock()
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Result(), nil
	}), clock), &asked
}

// issuer asks for the issuer of a certificate of Azure's that names this address.
func issuer(ctx context.Context, f *attest.Fetcher, from, address string) (*x509.Certificate, error) {
	child := *attestors()[0].Leaf()
	child.IssuingCertificateURL = []string{address}
	found, err := f.Issuers(ctx, &child, from)
	if len(found) == 0 {
		return nil, err
	}
	return found[0], err
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func still() time.Time { return now }

func reasonOf(err error) attest.Reason {
	var e *attest.Error
	if errors.As(err, &e) {
		return e.Reason
	}
	return ""
}

func TestDocumentOfAzureIsTaken(t *testing.T) {
	azure := attestors()[0]
	fetcher, asked := publication(azure, still)
	v := &attest.Verifier{Roots: azure.Roots(), Issuers: fetcher, Now: still}
	for name, o := range map[string]metadata.SignOptions{
		"intermediate fetched":  {},
		"intermediate embedded": {Chain: true},
		"signed attributes":     {Attributes: true},
		"a stranger first":      {First: []*x509.Certificate{attestors()[1].Leaf()}},
	} {
		t.Run(name, func(t *testing.T) {
			d, err := v.Verify(t.Context(), signed(t, azure, document(), o), nonce, home)
			if err != nil {
				t.Fatal(err)
			}
			want := attest.Document{Nonce: nonce, VMID: vmID, SubscriptionID: subscription, Created: now.Add(-time.Second), Expires: now.Add(metadata.AttestedFor - time.Second)}
			d.Created, d.Expires = d.Created.UTC(), d.Expires.UTC()
			if d != want {
				t.Errorf("%+v\nwant %+v", d, want)
			}
		})
	}
	if len(*asked) != 1 || (*asked)[0] != metadata.IssuerURL() {
		t.Errorf("fetched %v, want the intermediate once", *asked)
	}
}

func TestDocumentsThatProveNothing(t *testing.T) {
	azure, stranger := attestors()[0], attestors()[1]
	leaf := func(o metadata.LeafOptions) *metadata.Attestor {
		a, err := azure.WithLeaf(o)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	at := func(created, expires time.Time) metadata.AttestedDocument {
		d := document()
		const zone = " -0000"
		d.TimeStamp.CreatedOn = created.UTC().Format("01/02/06 15:04:05") + zone
		d.TimeStamp.ExpiresOn = expires.UTC().Format("01/02/06 15:04:05") + zone
		return d
	}
	plain := signed(t, azure, document(), metadata.SignOptions{})
	raw, err := base64.StdEncoding.DecodeString(plain)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, document string
		want           attest.Reason
	}{
		{"empty", "", attest.Malformed},
		{"no base64", "§", attest.Malformed},
		{"too large", strings.Repeat("A", 17<<10), attest.Malformed},
		{"cut", base64.StdEncoding.EncodeToString(raw[:len(raw)-3]), attest.Malformed},
		{"something behind it", base64.StdEncoding.EncodeToString(append(raw[:len(raw):len(raw)], 0, 0)), attest.Malformed},
		{"forged: another vmId under the signature", base64.StdEncoding.EncodeToString([]byte(strings.Replace(string(raw), vmID, strings.Replace(vmID, "0", "1", 1), 1))), attest.Forged},
		{"forged: content left out", signed(t, azure, document(), metadata.SignOptions{Detached: true}), attest.Forged},
		{"several signers", signed(t, azure, document(), metadata.SignOptions{Also: []*metadata.Attestor{stranger}}), attest.NotOneSigner},
		{"several signers, Azure second", signed(t, stranger, document(), metadata.SignOptions{Also: []*metadata.Attestor{azure}}), attest.NotOneSigner},
		{"stranger signs, Azure's certificate first", signed(t, stranger, document(), metadata.SignOptions{First: []*x509.Certificate{azure.Leaf()}, Chain: true}), attest.Untrusted},
		{"stranger signs with Azure's intermediate", signed(t, stranger, document(), metadata.SignOptions{First: []*x509.Certificate{azure.Intermediate()}}), attest.Untrusted},
		{"foreign: another service of Azure's", signed(t, leaf(metadata.LeafOptions{Names: []string{"management.azure.com"}}), document(), metadata.SignOptions{}), attest.ForeignSigner},
		{"foreign: the name is a prefix", signed(t, leaf(metadata.LeafOptions{Names: []string{"metadata.azure.com.evil.example", "evilmetadata.azure.com"}}), document(), metadata.SignOptions{}), attest.ForeignSigner},
		{"foreign: another cloud", signed(t, leaf(metadata.LeafOptions{Names: []string{"metadata.azure.us"}}), document(), metadata.SignOptions{}), attest.ForeignSigner},
		{"foreign: only the common name", signed(t, leaf(metadata.LeafOptions{Names: []string{"x.example"}, CommonName: "metadata.azure.com"}), document(), metadata.SignOptions{}), attest.ForeignSigner},
		{"expired certificate", signed(t, leaf(metadata.LeafOptions{NotBefore: now.Add(-48 * time.Hour), NotAfter: now.Add(-time.Hour)}), document(), metadata.SignOptions{Chain: true}), attest.Untrusted},
		{"certificate not yet valid", signed(t, leaf(metadata.LeafOptions{NotBefore: now.Add(time.Hour)}), document(), metadata.SignOptions{Chain: true}), attest.Untrusted},
		{"wrong nonce", signed(t, azure, metadata.NewAttestedDocument(vmID, subscription, "fedcba98765432100123456789abcdef", now), metadata.SignOptions{}), attest.WrongNonce},
		{"no nonce", signed(t, azure, metadata.NewAttestedDocument(vmID, subscription, "", now), metadata.SignOptions{}), attest.WrongNonce},
		{"too old", signed(t, azure, at(now.Add(-7*time.Minute-time.Second), now.Add(time.Hour)), metadata.SignOptions{}), attest.TooOld},
		{"from the future", signed(t, azure, at(now.Add(2*time.Minute+time.Second), now.Add(time.Hour)), metadata.SignOptions{}), attest.NotYet},
		{"expired document", signed(t, azure, at(now.Add(-3*time.Minute), now.Add(-2*time.Minute)), metadata.SignOptions{}), attest.Expired},
		{"no issuer to be had", signed(t, leaf(metadata.LeafOptions{Issuers: []string{}}), document(), metadata.SignOptions{}), attest.Untrusted},
		{"issuer elsewhere", signed(t, leaf(metadata.LeafOptions{Issuers: []string{"http://169.254.169.254/metadata/identity/oauth2/token"}}), document(), metadata.SignOptions{}), attest.Unreachable},
		{"issuer missing", signed(t, leaf(metadata.LeafOptions{Issuers: []string{attest.Publication + "none.crt"}}), document(), metadata.SignOptions{}), attest.Unreachable},
		{"no JSON", signedContent(t, azure, "hello", metadata.SignOptions{}), attest.Malformed},
		{"JSON twice", signedContent(t, azure, `{"vmId":"x"}{"vmId":"y"}`, metadata.SignOptions{}), attest.Malformed},
		{"no vmId", signed(t, azure, metadata.NewAttestedDocument("", subscription, nonce, now), metadata.SignOptions{}), attest.Malformed},
		{"vmId with a path", signed(t, azure, metadata.NewAttestedDocument("../../../../../../../../etc/passwd", subscription, nonce, now), metadata.SignOptions{}), attest.Malformed},
		{"deep", base64.StdEncoding.EncodeToString(nested(3000)), attest.Malformed},
		{"deep without lengths", base64.StdEncoding.EncodeToString(endless(3000)), attest.Malformed},
	} {
		t.Run(c.name, func(t *testing.T) {
			fetcher, _ := publication(azure, still)
			v := &attest.Verifier{Roots: azure.Roots(), Issuers: fetcher, Now: still}
			d, err := v.Verify(t.Context(), c.document, nonce, home)
			if reasonOf(err) != c.want || d != (attest.Document{}) {
				t.Errorf("%v (%+v), want %s", err, d, c.want)
			}
		})
	}
}

// nested is sequences within each other, endless the same of indefinite length.
func nested(depth int) []byte {
	der := []byte{0x05, 0x00}
	for range depth {
		head := []byte{0x30, 0x82, byte(len(der) >> 8), byte(len(der))}
		der = append(head, der...)
	}
	return der
}

func endless(depth int) []byte {
	der := []byte(strings.Repeat("\x30\x80", depth) + "\x05\x00")
	return append(der, make([]byte, 2*depth)...)
}

// A sovereign cloud's signer has another domain.
func TestSignersOfTheOtherClouds(t *testing.T) {
	azure := attestors()[0]
	for cloud, name := range map[attest.Cloud]string{attest.Government: "usgovvirginia.metadata.azure.us", attest.China: "metadata.azure.cn"} {
		a, err := azure.WithLeaf(metadata.LeafOptions{Names: []string{name}})
		if err != nil {
			t.Fatal(err)
		}
		v := &attest.Verifier{Cloud: cloud, Roots: azure.Roots(), Now: still}
		text := signed(t, a, document(), metadata.SignOptions{Chain: true})
		if _, err := v.Verify(t.Context(), text, nonce, home); err != nil {
			t.Errorf("%s: %v", cloud, err)
		}
		v.Cloud = attest.Public
		if _, err := v.Verify(t.Context(), text, nonce, home); reasonOf(err) != attest.ForeignSigner {
			t.Errorf("%s in the public cloud: %v", cloud, err)
		}
	}
}

// Nothing is fetched for who has not the signer's name and the nonce right.
func TestStrangersMakeNothingFetched(t *testing.T) {
	azure := attestors()[0]
	foreign, err := azure.WithLeaf(metadata.LeafOptions{Names: []string{"x.example"}})
	if err != nil {
		t.Fatal(err)
	}
	fetcher, asked := publication(azure, still)
	v := &attest.Verifier{Roots: azure.Roots(), Issuers: fetcher, Now: still}
	for _, text := range []string{signed(t, foreign, document(), metadata.SignOptions{}), signed(t, azure, metadata.NewAttestedDocument(vmID, subscription, "x", now), metadata.SignOptions{})} {
		if _, err := v.Verify(t.Context(), text, nonce, home); err == nil {
			t.Error("taken")
		}
	}
	if len(*asked) != 0 {
		t.Errorf("fetched %v", *asked)
	}
}

func TestFetcherGoesNowhereElse(t *testing.T) {
	fetcher, asked := publication(attestors()[0], still)
	for _, address := range []string{
		"", "http://169.254.169.254/metadata", "https://www.microsoft.com/pkiops/certs/a.crt", "http://www.microsoft.com.evil.example/pkiops/certs/a.crt",
		"http://www.microsoft.com@evil.example/pkiops/certs/a.crt", "http://user@www.microsoft.com/pkiops/certs/a.crt", "http://www.microsoft.com:8080/pkiops/certs/a.crt",
		"http://www.microsoft.com/pkiops/certs/../a.crt", "http://www.microsoft.com/pkiops/certs/%2e%2e/a.crt", "http://www.microsoft.com/pkiops/certs/a.crt?x=.crt",
		"http://www.microsoft.com/pkiops/certs/a.crt#.crt", "http://www.microsoft.com/pkiops/certs/b/a.crt", `http://www.microsoft.com/pkiops/certs/b\a.crt`,
		"http://www.microsoft.com/pkiops/certsa.crt", "HTTP://www.microsoft.com/pkiops/certs/a.crt", "http://www.microsoft.com/pkiops/certs/" + strings.Repeat("a", 300) + ".crt",
		"ldap://www.microsoft.com/pkiops/certs/a.crt", "http://www.microsoft.com/pkiops/certs/a\r\nHost: x.crt", "http://www.microsoft.com/pkiops/certs/a",
	} {
		if c, err := issuer(t.Context(), fetcher, home, address); err == nil || c != nil {
			t.Errorf("%q was fetched", address)
		}
	}
	if len(*asked) != 0 {
		t.Errorf("asked %v", *asked)
	}
}

func TestFetcherBoundsAnswers(t *testing.T) {
	azure := attestors()[0]
	for name, answer := range map[string]http.HandlerFunc{
		"a redirect": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://169.254.169.254/", http.StatusFound)
		},
		"too much": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write(append(azure.Intermediate().Raw, make([]byte, 16<<10)...))
		},
		"no certificate": func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>")) },
		"no authority":   func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(azure.Leaf().Raw) },
	} {
		fetcher, asked := publication(answer, still)
		for range 3 {
			if _, err := issuer(t.Context(), fetcher, home, metadata.IssuerURL()); err == nil {
				t.Errorf("%s: taken", name)
			}
		}
		if len(*asked) != 1 {
			t.Errorf("%s: asked %d times within a minute, want once", name, len(*asked))
		}
	}
}

func TestFetcherKeeps(t *testing.T) {
	azure := attestors()[0]
	at, up := now, true
	fetcher, asked := publication(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !up {
			http.Error(w, "away", http.StatusBadGateway)
			return
		}
		azure.ServeHTTP(w, r)
	}), func() time.Time { return at })
	get := func() {
		t.Helper()
		if c, err := issuer(t.Context(), fetcher, home, metadata.IssuerURL()); err != nil || !c.Equal(azure.Intermediate()) {
			t.Errorf("%v %v", c, err)
		}
	}
	get()
	at = at.Add(23 * time.Hour)
	get()
	if len(*asked) != 1 {
		t.Errorf("asked %d times within a day", len(*asked))
	}
	at, up = at.Add(2*time.Hour), false
	get() // what was right yesterday is used while it cannot be had anew
	if len(*asked) != 2 {
		t.Errorf("asked %d times in two days", len(*asked))
	}
}

func TestManyWaitForOneFetch(t *testing.T) {
	azure := attestors()[0]
	began, open := make(chan struct{}, 1), make(chan struct{})
	fetcher, asked := publication(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began <- struct{}{}
		<-open
		azure.ServeHTTP(w, r)
	}), still)
	first, cancel := context.WithCancel(t.Context())
	gone := make(chan error, 1)
	go func() { _, err := issuer(first, fetcher, home, metadata.IssuerURL()); gone <- err }()
	<-began
	cancel() // who came first goes: the others still get it
	if err := <-gone; !errors.Is(err, context.Canceled) {
		t.Errorf("who gave up got %v", err)
	}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if _, err := issuer(t.Context(), fetcher, home, metadata.IssuerURL()); err != nil {
				t.Error(err)
			}
		})
	}
	close(open)
	all.Wait()
	if len(*asked) != 1 {
		t.Errorf("fetched %d times", len(*asked))
	}
}

func FuzzVerify(f *testing.F) {
	azure := attestors()[0]
	for _, o := range []metadata.SignOptions{{}, {Chain: true}, {Attributes: true}, {Detached: true}, {Also: []*metadata.Attestor{attestors()[1]}}} {
		raw, err := base64.StdEncoding.DecodeString(signed(f, azure, document(), o))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
	}
	f.Add(nested(20))
	f.Add(endless(20))
	f.Add(endless(2000))
	content, err := json.Marshal(document())
	if err != nil {
		f.Fatal(err)
	}
	v := &attest.Verifier{Roots: azure.Roots(), Now: still}
	f.Fuzz(func(t *testing.T, raw []byte) {
		d, err := v.Verify(t.Context(), base64.StdEncoding.EncodeToString(raw), nonce, home)
		switch {
		case err != nil && reasonOf(err) == "":
			t.Fatalf("an error without a reason: %v", err)
		case err == nil && (d.VMID != vmID || !strings.Contains(string(raw), string(content))):
			t.Fatalf("%+v was never signed", d)
		}
	})
}

// The node's bundle holds a hundred authorities, and whatever an administrator added:
// none of them speaks for Azure.
func TestNodesBundleIsNotTrusted(t *testing.T) {
	azure := attestors()[0]
	file := filepath.Join(t.TempDir(), "bundle.pem")
	if err := os.WriteFile(file, azure.RootPEM(), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("SSL_CERT_FILE", file)
	v := &attest.Verifier{Now: still}
	if d, err := v.Verify(t.Context(), signed(t, azure, document(), metadata.SignOptions{Chain: true}), nonce, home); reasonOf(err) != attest.Untrusted {
		t.Errorf("%+v, %v", d, err)
	}
}

// Azure's documents hold the signer's certificate and its issuer's at most. What more a
// stranger puts there, or by keys of unknown sizes, is not verified.
func TestCertificatesAreBoundedBeforeTheyVerify(t *testing.T) {
	azure, stranger := attestors()[0], attestors()[1]
	odd := func(curve elliptic.Curve) *x509.Certificate {
		key, err := ecdsa.GenerateKey(curve, rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: now, NotAfter: now.Add(time.Hour), SignatureAlgorithm: x509.ECDSAWithSHA256}
		der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
		if err != nil {
			t.Fatal(err)
		}
		c, err := x509.ParseCertificate(der)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	v := &attest.Verifier{Roots: azure.Roots(), Now: still}
	for name, c := range map[string]struct {
		first []*x509.Certificate
		want  attest.Reason
	}{
		"three":                 {[]*x509.Certificate{stranger.Leaf()}, ""},
		"four":                  {[]*x509.Certificate{stranger.Leaf(), stranger.Intermediate()}, attest.Malformed},
		"one of a key of P-256": {[]*x509.Certificate{odd(elliptic.P256())}, ""},
		"one of a key of P-224": {[]*x509.Certificate{odd(elliptic.P224())}, attest.Malformed},
	} {
		if _, err := v.Verify(t.Context(), signed(t, azure, document(), metadata.SignOptions{Chain: true, First: c.first}), nonce, home); reasonOf(err) != c.want {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}
