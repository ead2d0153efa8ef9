package bootstrap

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"log"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ortet/ortet/internal/wire"
)

// nodeLook is one row of a story after the sentinel: what API server and kubelet
// say at a time.
type nodeLook struct {
	at     float64
	node   membership
	silent bool // the API server has not answered since the end
	down   bool // the kubelet is not healthy
}

func TestDecideOnTheNode(t *testing.T) {
	ready := membership{answered: true, registered: true, ready: true}
	notReady := membership{answered: true, registered: true, condition: "KubeletNotReady: no CNI"}
	none := membership{answered: true, said: "404"}
	mute := membership{said: "connection refused"}
	for _, c := range []struct {
		name  string
		rules func(*rules)
		looks []nodeLook
		when  float64 // -1: not over
		want  decision
	}{
		{"ready at once", nil, []nodeLook{{at: 1, node: ready}, {at: 11, node: ready}}, 11, decision{came: true}},
		{"ready later", nil, []nodeLook{{at: 1, node: none}, {at: 11, node: notReady}, {at: 400, node: notReady}, {at: 500, node: ready}}, 500, decision{came: true}},
		{"never ready", nil, []nodeLook{{at: 1, node: notReady}, {at: 11, node: notReady}, {at: 1199, node: notReady}, {at: 1200, node: notReady}}, 1200, decision{deadline: true}},
		{"registered is enough", func(r *rules) { r.node = NodeRegistered }, []nodeLook{{at: 1, node: none}, {at: 11, node: none}, {at: 13, node: notReady}}, 13, decision{came: true}},
		{"nobody is asked", func(r *rules) { r.node = NodeNo }, []nodeLook{{at: 1, silent: true}, {at: 11, silent: true}}, 11, decision{came: true}},
		{"nobody can be asked", nil, []nodeLook{{at: 1, silent: true}, {at: 11, node: membership{cannot: true}}}, 11, decision{came: true}},
		{"not in the cluster", nil, []nodeLook{{at: 1, node: none}, {at: 11, node: none}, {at: 130.9, node: none}, {at: 131, node: none}}, 131, decision{unregistered: true}},
		{"no certificate", nil, []nodeLook{{at: 1, node: membership{unsigned: true}}, {at: 11, node: membership{unsigned: true}}, {at: 131, node: membership{unsigned: true}}}, 131, decision{unregistered: true}},
		{"no answer", nil, []nodeLook{{at: 1, node: mute}, {at: 11, node: mute}, {at: 131, node: mute}}, 131, decision{unregistered: true, unsure: true}},
		{"no answer yet", nil, []nodeLook{{at: 1, silent: true}, {at: 11, silent: true}, {at: 131, silent: true}}, -1, decision{}},
		{"no answer any more", nil, []nodeLook{{at: 1, node: notReady}, {at: 11, node: notReady}, {at: 300, node: mute}, {at: 400, node: ready}}, 400, decision{came: true}},
		{"the Node was deleted again", nil, []nodeLook{{at: 1, node: notReady}, {at: 11, node: notReady}, {at: 300, node: none}, {at: 1200, node: none}}, 1200, decision{deadline: true}},
		{"a kubelet that was restarted meanwhile", nil, []nodeLook{{at: 1, node: notReady}, {at: 11, node: notReady}, {at: 300, node: notReady, down: true}, {at: 301, node: ready}, {at: 310, node: ready}, {at: 311, node: ready}}, 311, decision{came: true}},
		{"a kubelet that went away", nil, []nodeLook{{at: 1, node: notReady}, {at: 11, node: notReady}, {at: 300, node: notReady, down: true}, {at: 420, node: notReady, down: true}}, 420, decision{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := capiRules()
			r.node = NodeReady
			if c.rules != nil {
				c.rules(&r)
			}
			var st state
			var d decision
			when := -1.0
			for _, l := range c.looks {
				s := seen{sentinel: true, kubelet: kubeletSeen{wanted: true, healthy: !l.down, asked: at(l.at)}}
				if !l.silent {
					s.node = nodeSeen{membership: l.node, asked: at(l.at)}
				}
				if st, d = decide(r, st, s, at(l.at)); d.over {
					when = l.at
					break
				}
				if d.next.IsZero() || d.next.Sub(at(l.at)) > askLater {
					t.Errorf("at %v: the next look is at %v", l.at, d.next)
				}
			}
			got := decision{came: d.came, deadline: d.deadline, unregistered: d.unregistered, unsure: d.unsure}
			if when != c.when || got != c.want {
				t.Errorf("over at %v, %+v, want at %v, %+v", when, got, c.when, c.want)
			}
		})
	}
}

// Both are asked with the first look after the end, and then less and less often.
func TestHowOftenTheNodeIsAskedFor(t *testing.T) {
	r := capiRules()
	r.node = NodeReady
	var st state
	var asked []float64
	s := seen{sentinel: true, kubelet: kubeletSeen{wanted: true}}
	for now := 1.0; now < 121; {
		var d decision
		if st, d = decide(r, st, s, at(now)); d.over {
			t.Fatalf("over at %v: %s", now, d.why)
		}
		if d.askKubelet {
			s.kubelet.asked, s.kubelet.healthy = at(now), true
		}
		if d.askNode {
			asked = append(asked, now)
			s.node = nodeSeen{membership: membership{answered: true, registered: true}, asked: at(now)}
		}
		now = d.next.Sub(began).Seconds()
	}
	if len(asked) == 0 || asked[0] != 1 || len(asked) < 40 || len(asked) > 65 {
		t.Errorf("asked at %v", asked)
	}
}

// membershipOf reads a whole answer of the API server.
func membershipOf(answer []byte, boot string) membership {
	a, err := readAnswer(bytes.NewReader(answer), nil)
	if err != nil {
		return membership{said: err.Error()}
	}
	return parseMembership(a, boot)
}

func TestParseMembership(t *testing.T) {
	node := func(status, boot string) string {
		return "HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n" +
			`{"kind":"Node","apiVersion":"v1","metadata":{"name":"x"},"status":{"conditions":[{"type":"MemoryPressure","status":"False"},{"type":"Ready","status":"` + status + `","reason":"KubeletNotReady","message":"no CNI"}],"nodeInfo":{"bootID":"` + boot + `"}}}`
	}
	for name, c := range map[string]struct {
		answer string
		want   membership // said: a part of it
	}{
		"ready":             {node("True", bootA), membership{answered: true, registered: true, ready: true}},
		"not ready":         {node("False", bootA), membership{answered: true, registered: true, condition: "KubeletNotReady: no CNI"}},
		"unknown":           {node("Unknown", strings.ToUpper(bootA)), membership{answered: true, registered: true, condition: "KubeletNotReady: no CNI"}},
		"of another boot":   {node("True", bootB), membership{answered: true, said: "200 OK, and the Node is of another boot: " + bootB}},
		"has not told yet":  {node("True", ""), membership{answered: true, said: "of another boot"}},
		"none":              {"HTTP/1.0 404 Not Found\r\n\r\n" + `{"kind":"Status","message":"nodes \"x\" not found"}`, membership{answered: true, said: `404 Not Found: nodes "x" not found`}},
		"another's 404":     {"HTTP/1.1 404 Not Found\r\n\r\n<html>", membership{said: "404 Not Found"}},
		"forbidden":         {"HTTP/1.0 403 Forbidden\r\n\r\n" + `{"kind":"Status","message":"nodes is forbidden"}`, membership{said: "403 Forbidden: nodes is forbidden"}},
		"unauthorized":      {"HTTP/1.0 401 Unauthorized\r\n\r\n", membership{said: "401 Unauthorized"}},
		"a list":            {"HTTP/1.0 200 OK\r\n\r\n" + `{"kind":"NodeList"}`, membership{said: "a NodeList, not a Node"}},
		"no JSON":           {"HTTP/1.0 200 OK\r\n\r\nhello", membership{said: "not the JSON of a Node"}},
		"truncated":         {node("True", bootA)[:200], membership{said: "not the JSON of a Node"}},
		"another status":    {"HTTP/1.0 200 OK\r\n\r\n" + `{"kind":"Node","status":7}`, membership{said: "a status that cannot be read"}},
		"no HTTP":           {"SSH-2.0-OpenSSH_9.6\r\n", membership{said: "malformed HTTP response"}},
		"nothing":           {"", membership{said: "reading an HTTP answer: unexpected EOF"}},
		"nothing but heads": {"HTTP/1.0 200 OK\r\n" + strings.Repeat("A: b\r\n", 1000), membership{said: "unexpected EOF"}},
	} {
		m := membershipOf([]byte(c.answer), bootA)
		said := m.said
		m.said = c.want.said
		if m != c.want || (said == "") != (c.want.said == "") || !strings.Contains(said, c.want.said) {
			t.Errorf("%s: %+v, said %q, want %+v", name, m, said, c.want)
		}
	}
	// Windows has no boot id.
	if m := membershipOf([]byte(node("True", bootB)), ""); !m.ready {
		t.Errorf("where this boot's id is not known: %+v", m)
	}
}

func FuzzParseMembership(f *testing.F) {
	f.Add([]byte("HTTP/1.0 200 OK\r\n\r\n"+`{"kind":"Node","status":{"conditions":[{"type":"Ready","status":"True"}],"nodeInfo":{"bootID":"`+bootA+`"}}}`), bootA)
	f.Add([]byte("HTTP/1.0 404 Not Found\r\n\r\n"+`{"kind":"Status","message":"nodes \"x\" not found"}`), bootA)
	f.Add([]byte("HTTP/1.1 503 x\r\nA: b\r\n\r\n"), "")
	f.Fuzz(func(t *testing.T, answer []byte, boot string) {
		m := membershipOf(answer, boot)
		if m.ready && !m.registered || m.registered && !m.answered || m.cannot || m.unsigned || (m.said == "") != m.registered {
			t.Errorf("%+v", m)
		}
	})
}

// apiServer is one of the test's own, which knows its clients by a CA.
type apiServer struct {
	t      *testing.T
	server *httptest.Server
	ca     *x509.Certificate
	key    *ecdsa.PrivateKey
	answer atomic.Value // what it answers to a GET of the node, with its code before: "200 {…}"
	asked  atomic.Int32
}

func newAPIServer(t *testing.T) *apiServer {
	t.Helper()
	s := &apiServer{t: t}
	s.key = newKey(t)
	s.ca = s.sign(&x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "kubernetes"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}, nil, &s.key.PublicKey)
	s.server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		s.asked.Add(1)
		if len(q.TLS.PeerCertificates) == 0 || q.TLS.PeerCertificates[0].Subject.CommonName != "system:node:pool1000003" {
			http.Error(w, `{"kind":"Status","message":"Unauthorized"}`, http.StatusUnauthorized)
			return
		}
		if q.URL.Path != "/api/v1/nodes/pool1000003" || q.Method != http.MethodGet {
			http.Error(w, `{"kind":"Status","message":"not this"}`, http.StatusForbidden)
			return
		}
		answer, _ := s.answer.Load().(string)
		var code int
		_, body, _ := strings.Cut(answer, " ")
		if _, err := fmt.Sscan(answer, &code); err != nil {
			t.Errorf("an answer %q", answer)
		}
		w.WriteHeader(code)
		if _, err := w.Write([]byte(body)); err != nil {
			t.Logf("answering: %v", err)
		}
	}))
	clients := x509.NewCertPool()
	clients.AddCert(s.ca)
	serverKey := newKey(t)
	certificate := s.sign(&x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "kube-apiserver"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		DNSNames: []string{"api.example"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}, s.ca, &serverKey.PublicKey)
	s.server.TLS = &tls.Config{
		MinVersion: tls.VersionTLS12, ClientCAs: clients, ClientAuth: tls.VerifyClientCertIfGiven,
		Certificates: []tls.Certificate{{Certificate: [][]byte{certificate.Raw}, PrivateKey: serverKey}},
	}
	s.server.Config.ErrorLog = log.New(testWriter{t}, "", 0)
	s.server.StartTLS()
	t.Cleanup(s.server.Close)
	return s
}

type testWriter struct{ t *testing.T }

func (w testWriter) Write(p []byte) (int, error) {
	w.t.Logf("the API server: %s", p)
	return len(p), nil
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func (s *apiServer) sign(c, by *x509.Certificate, key *ecdsa.PublicKey) *x509.Certificate {
	s.t.Helper()
	if by == nil {
		by = c
	}
	raw, err := x509.CreateCertificate(rand.Reader, c, by, key, s.key)
	if err != nil {
		s.t.Fatal(err)
	}
	signed, err := x509.ParseCertificate(raw)
	if err != nil {
		s.t.Fatal(err)
	}
	return signed
}

func encodePEM(kind string, der []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
}

// login writes what a kubelet has: a kubeconfig as kubeadm leaves it, and a link to
// the certificate, both as on the node.
func (s *apiServer) login(r root, user string) {
	s.t.Helper()
	key := newKey(s.t)
	c := s.sign(&x509.Certificate{
		SerialNumber: big.NewInt(3), Subject: pkix.Name{CommonName: user, Organization: []string{"system:nodes"}}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, s.ca, &key.PublicKey)
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		s.t.Fatal(err)
	}
	r.write("/var/lib/kubelet/pki/kubelet-client-2026-11-21-07-00-00.pem", encodePEM("CERTIFICATE", c.Raw)+encodePEM("EC PRIVATE KEY", der))
	if _, err := os.Lstat(r.path("/var/lib/kubelet/pki/kubelet-client-current.pem")); err != nil {
		r.link("/var/lib/kubelet/pki/kubelet-client-2026-11-21-07-00-00.pem", "/var/lib/kubelet/pki/kubelet-client-current.pem")
	}
	r.write("/etc/kubernetes/pki/ca.crt", encodePEM("CERTIFICATE", s.ca.Raw))
	s.kubeconfig(r, s.server.URL)
}

func (s *apiServer) kubeconfig(r root, server string) {
	r.write("/etc/kubernetes/kubelet.conf", `apiVersion: v1
clusters:
- cluster:
    certificate-authority: pki/ca.crt
    server: `+server+`
    tls-server-name: api.example
  name: default-cluster
contexts:
- context: {cluster: default-cluster, namespace: default, user: default-auth}
  name: default-context
current-context: default-context
kind: Config
users:
- name: default-auth
  user:
    client-certificate: /var/lib/kubelet/pki/kubelet-client-current.pem
    client-key: /var/lib/kubelet/pki/kubelet-client-current.pem
`)
}

const nodeReady = `200 {"kind":"Node","status":{"conditions":[{"type":"Ready","status":"True"}],"nodeInfo":{"bootID":"` + bootA + `"}}}`

// A node whose kubelet is healthy came up once the cluster says so.
func TestNodeInTheCluster(t *testing.T) {
	t.Parallel()
	var healthy atomic.Bool
	healthy.Store(true)
	address := kubelet(t, &healthy)
	for name, c := range map[string]struct {
		answer  string
		change  func(*apiServer, root, *Options)
		outcome wire.Outcome
		reason  string
		shown   string // in the message
	}{
		"ready":            {nodeReady, nil, wire.Succeeded, "", ""},
		"no CNI":           {`200 {"kind":"Node","status":{"conditions":[{"type":"Ready","status":"False","reason":"KubeletNotReady","message":"container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady message:Network plugin returns error: cni plugin not initialized"}],"nodeInfo":{"bootID":"` + bootA + `"}}}`, nil, wire.TimedOut, "CNINotReady", "cni plugin not initialized"},
		"registered":       {`200 {"kind":"Node","status":{"conditions":[{"type":"Ready","status":"False"}],"nodeInfo":{"bootID":"` + bootA + `"}}}`, func(_ *apiServer, _ root, o *Options) { o.Node = NodeRegistered }, wire.Succeeded, "", ""},
		"not there":        {`404 {"kind":"Status","message":"nodes \"pool1000003\" not found"}`, nil, wire.Failed, "NodeNotRegistered", ""},
		"of an older boot": {strings.ReplaceAll(nodeReady, bootA, bootB), nil, wire.Failed, "NodeNotRegistered", ""},
		"forbidden":        {`403 {"kind":"Status","message":"nodes \"pool1000003\" is forbidden: node 'pool1000004' cannot read 'pool1000003'"}`, nil, wire.Failed, "APIServerForbidden", "is forbidden"},
		"unauthorized":     {`401 {"kind":"Status","message":"Unauthorized"}`, nil, wire.Failed, "APIServerUnauthorized", "401"},
		"cannot serve":     {`503 {"kind":"Status","message":"apiserver not ready"}`, nil, wire.Failed, "APIServerUnavailable", "503"},
		"no certificate yet": {nodeReady, func(s *apiServer, r root, _ *Options) {
			if err := os.Remove(r.path("/var/lib/kubelet/pki/kubelet-client-current.pem")); err != nil {
				s.t.Fatal(err)
			}
		}, wire.Failed, "TLSBootstrapTimeout", ""},
		"another CA": {nodeReady, func(_ *apiServer, r root, _ *Options) {
			other := newAPIServer(t)
			r.write("/etc/kubernetes/pki/ca.crt", encodePEM("CERTIFICATE", other.ca.Raw))
		}, wire.Failed, "APIServerCertificateUntrusted", "x509"},
		"another name": {nodeReady, func(s *apiServer, r root, _ *Options) {
			text, err := os.ReadFile(r.path("/etc/kubernetes/kubelet.conf"))
			if err != nil {
				s.t.Fatal(err)
			}
			r.write("/etc/kubernetes/kubelet.conf", strings.Replace(string(text), "api.example", "other.example", 1))
		}, wire.Failed, "APIServerCertificateNameMismatch", "x509"},
		"nobody listens": {nodeReady, func(s *apiServer, r root, _ *Options) { s.kubeconfig(r, "https://"+nobody) }, wire.Failed, "APIServerRefused", "connection refused"},
		// Where nobody can be asked nothing is held against the node.
		"not a node's certificate": {nodeReady, func(s *apiServer, r root, _ *Options) { s.login(r, "system:admin") }, wire.Succeeded, "", ""},
		"another kubeconfig": {nodeReady, func(_ *apiServer, r root, _ *Options) {
			r.write("/etc/kubernetes/kubelet.conf", "users: [{user: {token: x}}]")
		}, wire.Succeeded, "", ""},
		"a kubeconfig that is a folder": {nodeReady, func(s *apiServer, r root, _ *Options) {
			if err := os.Remove(r.path("/etc/kubernetes/kubelet.conf")); err != nil {
				s.t.Fatal(err)
			}
			r.folder("/etc/kubernetes/kubelet.conf")
		}, wire.Succeeded, "", ""},
		"nobody is to be asked": {`404 {}`, func(_ *apiServer, _ root, o *Options) { o.Node = NodeNo }, wire.Succeeded, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newAPIServer(t)
			s.answer.Store(c.answer)
			r := newRoot(t)
			s.login(r, "system:node:pool1000003")
			r.write(sentinelPath, "")
			r.write("/etc/systemd/system/kubelet.service", "[Service]\n")
			o := r.options()
			o.Kubelet, o.Settle, o.Grace = KubeletAuto, time.Millisecond, 50*time.Millisecond
			if c.outcome == wire.TimedOut {
				o.Deadline = 8 * time.Second // by then it was asked
			}
			if c.change != nil {
				c.change(s, r, &o)
			}
			v := r.withKubelet(o, address)
			if v.Outcome != c.outcome || v.Reason != c.reason || !strings.Contains(v.Message, c.shown) {
				t.Errorf("%+v\nwant %s %s", v, c.outcome, c.reason)
			}
			if v.Outcome == wire.Failed && len(v.Evidence) == 0 {
				t.Error("nothing shows it")
			}
			r.nothingRuns()
		})
	}
}

// A node that becomes ready while it is waited for came up then.
func TestNodeBecomesReady(t *testing.T) {
	t.Parallel()
	var healthy atomic.Bool
	healthy.Store(true)
	s := newAPIServer(t)
	s.answer.Store(`404 {"kind":"Status","message":"not yet"}`)
	r := newRoot(t)
	s.login(r, "system:node:pool1000003")
	r.write(sentinelPath, "")
	r.write("/etc/systemd/system/kubelet.service", "[Service]\n")
	o := r.options()
	o.Kubelet, o.Settle = KubeletAuto, time.Millisecond
	go func() {
		for s.asked.Load() == 0 {
			time.Sleep(time.Millisecond)
		}
		s.answer.Store(nodeReady)
	}()
	if v := r.withKubelet(o, kubelet(t, &healthy)); v.Outcome != wire.Succeeded || s.asked.Load() < 2 {
		t.Errorf("%+v after %d questions", v, s.asked.Load())
	}
}
