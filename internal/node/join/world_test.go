package join

import (
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ortet/ortet/internal/node/tree"
	"github.com/ortet/ortet/internal/wire"
	"github.com/ortet/ortet/test/port"
)

const (
	ourVM      = "11111111-2222-3333-4444-555555555555"
	otherVM    = "99999999-2222-3333-4444-555555555555"
	ourName    = "pool100000a"
	ourID      = "/subscriptions/00000000-0000-0000-0000-000000000001/resourceGroups/rg-1/providers/Microsoft.Compute/virtualMachineScaleSets/pool1/virtualMachines/10"
	goodToken  = "abcdef.0123456789abcdef"
	pinOfCA    = "K10aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	apiServer  = "https://10.0.0.4:6443"
	subjectFor = "system:node:"
)

// authority signs certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T, name string) authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return authority{cert, key}
}

func (a authority) hash() string {
	sum := sha256.Sum256(a.cert.RawSubjectPublicKeyInfo)
	return "sha256:" + hex.EncodeToString(sum[:])
}

func (a authority) pem() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw})
}

// issue makes a certificate with its key; the chain holds the CA.
func (a authority) issue(t *testing.T, name string, until time.Time, addresses ...net.IP) (tls.Certificate, []byte, []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name, Organization: []string{"system:nodes"}}, NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: until,
		IPAddresses: addresses, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der, a.cert.Raw}, PrivateKey: key},
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw})
}

// world is Azure, an admission server and a machine's disk.
type world struct {
	t        *testing.T
	ca       authority
	azure    *httptest.Server
	server   *httptest.Server
	root     string
	settings Settings
	options  Options

	mu       sync.Mutex
	metadata func(w http.ResponseWriter, r *http.Request) bool // true: it has answered
	refuse   func(path string) *wire.Refusal
	code     int // of its refusals; 0 is 403
	grant    func(*wire.Join)
	nonces   map[string]bool
	asked    []string // paths, and by whom
	joins    int
	waits    []time.Duration
	log      strings.Builder
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, ca: newAuthority(t, "admission"), root: t.TempDir(), nonces: map[string]bool{}}
	w.azure = httptest.NewServer(http.HandlerFunc(w.serveAzure))
	t.Cleanup(w.azure.Close)
	w.server = httptest.NewUnstartedServer(http.HandlerFunc(w.serveAdmission))
	own, _, _ := w.ca.issue(t, "admission", time.Now().Add(time.Hour), net.IPv4(127, 0, 0, 1))
	clients := x509.NewCertPool()
	clients.AddCert(w.ca.cert)
	w.server.TLS = &tls.Config{Certificates: []tls.Certificate{own}, ClientAuth: tls.VerifyClientCertIfGiven, ClientCAs: clients}
	w.server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	w.server.StartTLS()
	t.Cleanup(w.server.Close)
	w.settings = Settings{Servers: []string{w.server.URL}, CAHash: w.ca.hash(), Distribution: wire.Kubelet, CallbackPort: port.Free(t)}
	w.options = Options{Root: w.root, Metadata: w.azure.URL, Log: slog.New(slog.NewTextHandler(&locked{w: &w.log, mu: &w.mu}, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Wait: func(ctx context.Context, d time.Duration) error {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.waits = append(w.waits, d)
			if len(w.waits) > 200 {
				return errors.New("it has been tried often enough")
			}
			return ctx.Err()
		}}
	return w
}

type locked struct {
	w  io.Writer
	mu *sync.Mutex
}

func (l *locked) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(b)
}

func (w *world) serveAzure(rw http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Metadata") != "true" {
		http.Error(rw, `{"error":"Bad request"}`, http.StatusBadRequest)
		return
	}
	w.mu.Lock()
	meddle := w.metadata
	w.mu.Unlock()
	if meddle != nil && meddle(rw, r) {
		return
	}
	switch r.URL.Path {
	case "/metadata/instance/compute":
		_, _ = fmt.Fprintf(rw, `{"resourceId":%q,"vmId":%q,"name":"pool1_10","osProfile":{"computerName":"pool100000A"},"tags":""}`, ourID, strings.ToUpper(ourVM))
	case "/metadata/attested/document":
		document, _ := json.Marshal(map[string]string{"nonce": r.URL.Query().Get("nonce"), "vmId": ourVM})
		_, _ = fmt.Fprintf(rw, `{"encoding":"pkcs7","signature":%q}`, base64.StdEncoding.EncodeToString(document))
	default:
		http.NotFound(rw, r)
	}
}

// serveAdmission is a server that checks what a node alone is to do right.
func (w *world) serveAdmission(rw http.ResponseWriter, r *http.Request) {
	w.mu.Lock()
	defer w.mu.Unlock()
	answer := func(code int, v any) {
		rw.WriteHeader(code)
		_ = json.NewEncoder(rw).Encode(v)
	}
	refuse := func(code int, reason string) {
		w.asked = append(w.asked, r.URL.Path+" refused "+reason)
		answer(code, wire.Refusal{Reason: reason, Message: "no"})
	}
	body, err := io.ReadAll(r.Body)
	if err != nil || r.Method != http.MethodPost {
		refuse(400, "Form")
		return
	}
	if w.refuse != nil {
		if refusal := w.refuse(r.URL.Path); refusal != nil {
			w.asked = append(w.asked, r.URL.Path+" refused "+refusal.Reason)
			answer(cmp.Or(w.code, 403), refusal)
			return
		}
	}
	if r.URL.Path == wire.NoncePath {
		nonce := fmt.Sprintf("nonce-%d", len(w.nonces))
		w.nonces[nonce] = true
		answer(200, wire.Nonce{Nonce: nonce, Expires: time.Now().Add(time.Minute)})
		return
	}
	by := "proof"
	if certs := r.TLS.PeerCertificates; len(certs) > 0 && r.URL.Path != wire.JoinPath {
		by = certs[0].Subject.CommonName
	} else {
		p, err := wire.ParseProof(r.Header.Get("Authorization"))
		if err != nil {
			refuse(401, "Unproven")
			return
		}
		var document struct{ Nonce, VMID string }
		raw, _ := base64.StdEncoding.DecodeString(p.Document)
		if json.Unmarshal(raw, &document) != nil || !w.nonces[p.Nonce] || document.Nonce != wire.AttestedNonce(p.Nonce, p.PublicKey, p.ResourceID) {
			refuse(401, "WrongNonce")
			return
		}
		delete(w.nonces, p.Nonce)
		w.nonces[p.Nonce+"-spent"] = true
		key, err := x509.ParsePKIXPublicKey(p.PublicKey)
		digest := sha256.Sum256(wire.SignedText(r.URL.Path, body, p.Nonce))
		if err != nil || !ecdsa.VerifyASN1(key.(*ecdsa.PublicKey), digest[:], p.Signature) {
			refuse(401, "WrongSignature")
			return
		}
		if r.URL.Path == wire.JoinPath {
			request, err := wire.ParseAdmission[wire.JoinRequest](body)
			if err != nil {
				refuse(400, "Form")
				return
			}
			if err := challenge(fmt.Sprintf("127.0.0.1:%d", request.CallbackPort), key.(*ecdsa.PublicKey)); err != nil {
				refuse(403, "NoCallback")
				return
			}
			w.joins++
			j := wire.Join{NodeName: ourName, ProviderID: "azure://" + ourID, VMID: ourVM, Server: apiServer, CA: w.ca.pem(), Token: goodToken, Expires: time.Now().Add(5 * time.Minute)}
			if request.Distribution != wire.Kubelet {
				j.Token = pinOfCA + "::" + goodToken
			}
			if w.grant != nil {
				w.grant(&j)
			}
			w.asked = append(w.asked, r.URL.Path+" "+by)
			answer(200, j)
			return
		}
	}
	w.asked = append(w.asked, r.URL.Path+" "+by)
	switch r.URL.Path {
	case wire.LeavePath:
		if _, err := wire.ParseAdmission[wire.LeaveRequest](body); err != nil {
			refuse(400, "Form")
			return
		}
		answer(200, wire.Leave{Drained: true})
	case wire.LeftPath:
		if _, err := wire.ParseAdmission[wire.LeftRequest](body); err != nil {
			refuse(400, "Form")
			return
		}
		answer(200, struct{}{})
	case wire.VerdictPath, wire.BootPath, wire.BackPath:
		answer(200, struct{}{})
	default:
		refuse(404, "Path")
	}
}

func (w *world) client() *Client {
	w.t.Helper()
	c, err := NewClient(w.settings, w.options)
	if err != nil {
		w.t.Fatal(err)
	}
	return c
}

func (w *world) join() error {
	w.t.Helper()
	ctx, stop := context.WithTimeout(context.Background(), 5*time.Minute)
	defer stop()
	return w.client().Join(ctx, false)
}

func (w *world) mustJoin() {
	w.t.Helper()
	if err := w.join(); err != nil {
		w.t.Fatalf("%v\n%s", err, w.said())
	}
}

func (w *world) said() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.log.String()
}

func (w *world) path(name string) string { return filepath.Join(w.root, name) }

func (w *world) write(name, text string) {
	w.t.Helper()
	if err := os.MkdirAll(filepath.Dir(w.path(name)), 0o755); err != nil {
		w.t.Fatal(err)
	}
	if err := os.WriteFile(w.path(name), []byte(text), 0o600); err != nil {
		w.t.Fatal(err)
	}
}

// read is "" where there is no file.
func (w *world) read(name string) string {
	w.t.Helper()
	text, err := os.ReadFile(w.path(name))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		w.t.Fatal(err)
	}
	return string(text)
}

func (w *world) there(name string) bool {
	_, err := os.Lstat(w.path(name))
	return err == nil
}

// kubelet puts what a kubelet of that name has on the disk.
func (w *world) kubelet(name string, until time.Time) {
	w.t.Helper()
	_, cert, key := w.ca.issue(w.t, subjectFor+name, until)
	w.write("/var/lib/kubelet/pki/kubelet-client-2026-01-01-00-00-00.pem", string(cert)+string(key))
	_ = os.Remove(w.path("/var/lib/kubelet/pki/kubelet-client-current.pem"))
	if err := os.Symlink("/var/lib/kubelet/pki/kubelet-client-2026-01-01-00-00-00.pem", w.path("/var/lib/kubelet/pki/kubelet-client-current.pem")); err != nil {
		w.t.Fatal(err)
	}
	w.write("/etc/kubernetes/kubelet.conf", `{"apiVersion":"v1","kind":"Config","clusters":[{"name":"c","cluster":{"server":"https://10.0.0.4:6443","certificate-authority-data":"`+base64.StdEncoding.EncodeToString(w.ca.pem())+`"}}],
"users":[{"name":"n","user":{"client-certificate":"/var/lib/kubelet/pki/kubelet-client-current.pem","client-key":"/var/lib/kubelet/pki/kubelet-client-current.pem"}}]}`)
	w.write("/var/lib/kubelet/cpu_manager_state", "{}")
	w.write("/var/lib/kubelet/pods/uid/volumes/x", "a pod's of "+name)
}

func (w *world) record() Record {
	w.t.Helper()
	var r Record
	if text := w.read(RecordFile); text != "" {
		if err := json.Unmarshal([]byte(text), &r); err != nil {
			w.t.Fatal(err)
		}
	}
	return r
}

// challenge has who listens there show that he holds a key.
func challenge(address string, key *ecdsa.PublicKey) error {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	asked := []byte(rand.Text()[:26] + "012345")
	if _, err := conn.Write(asked); err != nil {
		return err
	}
	answer, err := io.ReadAll(conn)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(wire.CallbackText(asked))
	if len(answer) < 2 || int(answer[0]) != len(answer)-1 || !ecdsa.VerifyASN1(key, sum[:], answer[1:]) {
		return fmt.Errorf("%x answers not for the key", answer)
	}
	return nil
}

// open is the machine's disk.
func (w *world) open() *tree.Tree {
	w.t.Helper()
	tr, err := tree.Open(w.root)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = tr.Close() })
	return tr
}
