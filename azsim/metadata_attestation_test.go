package azsim

import (
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/smallstep/pkcs7"

	"github.com/ortet/ortet/azsim/metadata"
)

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
	signed, err := base64.StdEncoding.DecodeString(answer.Signature)
	if err != nil {
		t.Fatal(err)
	}
	m, err := pkcs7.Parse(signed)
	if err != nil {
		t.Fatal(err)
	}
	var d metadata.AttestedDocument
	if err := json.Unmarshal(m.Content, &d); err != nil {
		t.Fatalf("%s: %v", m.Content, err)
	}
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
