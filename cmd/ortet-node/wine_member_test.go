//go:build e2e && linux

package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ortet/ortet/internal/wire"
)

// credentials are a CA's certificate, and a key with a certificate of it, in PEM.
type credentials struct {
	ca, pair []byte
	parsed   tls.Certificate
	pool     *x509.CertPool
}

// issue makes a CA and what it signs: a server's or a node's.
func issue(t *testing.T, template x509.Certificate) credentials {
	t.Helper()
	key := func() *ecdsa.PrivateKey {
		k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	sign := func(c, parent *x509.Certificate, of, by *ecdsa.PrivateKey) []byte {
		c.SerialNumber, c.NotBefore, c.NotAfter = big.NewInt(1), time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
		der, err := x509.CreateCertificate(rand.Reader, c, parent, of.Public(), by)
		if err != nil {
			t.Fatal(err)
		}
		return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	}
	root := &x509.Certificate{Subject: pkix.Name{CommonName: "test"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	rootKey, own := key(), key()
	c := credentials{ca: sign(root, root, rootKey, rootKey), pool: x509.NewCertPool()}
	c.pool.AppendCertsFromPEM(c.ca)
	der, err := x509.MarshalECPrivateKey(own)
	if err != nil {
		t.Fatal(err)
	}
	c.pair = append(sign(&template, root, own, rootKey), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})...)
	if c.parsed, err = tls.X509KeyPair(c.pair, c.pair); err != nil {
		t.Fatal(err)
	}
	return c
}

// The node in its cluster, asked with the kubelet's own credentials, whose paths
// are Windows's.
func (w *wine) members(t *testing.T) {
	server := issue(t, x509.Certificate{IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
	node := issue(t, x509.Certificate{Subject: pkix.Name{CommonName: "system:node:win1", Organization: []string{"system:nodes"}}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	var ready atomic.Value // the condition's status; "" is no Node
	ready.Store("")
	var asked atomic.Int32
	api := httptest.NewUnstartedServer(http.HandlerFunc(func(out http.ResponseWriter, q *http.Request) {
		asked.Add(1)
		status := ready.Load().(string)
		if q.URL.Path != "/api/v1/nodes/win1" || status == "" {
			out.WriteHeader(http.StatusNotFound)
			_, _ = fmt.Fprint(out, `{"kind":"Status","message":"nodes \"win1\" not found"}`)
			return
		}
		_, _ = fmt.Fprintf(out, `{"kind":"Node","status":{"conditions":[{"type":"Ready","status":%q,"reason":"KubeletNotReady","message":"cni plugin not initialized"}],"nodeInfo":{"bootID":"7"}}}`, status)
	}))
	api.TLS = &tls.Config{Certificates: []tls.Certificate{server.parsed}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: node.pool, MinVersion: tls.VersionTLS12}
	api.StartTLS()
	t.Cleanup(api.Close)
	var healthy atomic.Bool
	healthy.Store(true)
	w.kubelet(t, &healthy)

	fresh := func(current string) {
		t.Helper()
		w.fresh(t)
		w.write(t, winSentinel, "")
		w.write(t, "k/kubelet.exe", "")
		w.write(t, "var/lib/kubelet/pki/kubelet-client-current.pem", string(node.pair))
		w.write(t, "etc/kubernetes/kubelet.conf", strings.NewReplacer("SERVER", api.URL, "CA", base64.StdEncoding.EncodeToString(server.ca), "CURRENT", current).Replace(`apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "SERVER", certificate-authority-data: CA}}]
users: [{name: u, user: {client-certificate: 'CURRENT', client-key: 'CURRENT'}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
`))
	}
	// As kubelets write it with --cert-dir and without a drive.
	for _, current := range []string{`C:\var\lib\kubelet\pki\kubelet-client-current.pem`, `\var\lib\kubelet\pki\kubelet-client-current.pem`, `C:/var/lib/kubelet/pki/kubelet-client-current.pem`} {
		ready.Store("True")
		asked.Store(0)
		fresh(current)
		w.came(t, w.wait(t, nil, "--settle", "0s"), exitOK, wire.Succeeded, "")
		if asked.Load() == 0 {
			t.Errorf("%s: nobody was asked", current)
		}
	}
	ready.Store("")
	fresh(`C:\var\lib\kubelet\pki\kubelet-client-current.pem`)
	v := w.came(t, w.wait(t, nil, "--settle", "0s", "--grace", "4s"), exitFailed, wire.Failed, "NodeNotRegistered")
	if !quoted(v, "kubelet", "/api/v1/nodes/win1: 404") {
		t.Errorf("%+v", v.Evidence)
	}
	// It gets ready while it is waited for.
	ready.Store("False")
	fresh(`C:\var\lib\kubelet\pki\kubelet-client-current.pem`)
	w.came(t, w.wait(t, func() { ready.Store("True") }, "--settle", "0s"), exitOK, wire.Succeeded, "")
	ready.Store("False")
	fresh(`C:\var\lib\kubelet\pki\kubelet-client-current.pem`)
	w.came(t, w.wait(t, nil, "--settle", "0s", "--deadline", "5s"), exitDeadline, wire.TimedOut, "CNINotReady")
}
