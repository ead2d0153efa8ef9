package k3s_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/ortet/ortet/hack/controlplane/k3s"
)

const bearer = "abcdef.0123456789abcdef"

// newSupervisor answers as the server "s", with the token "servers". Its
// API server knows one bootstrap token, the node n1 by a header in the place of a
// certificate, and the Node n1.
func newSupervisor(t *testing.T) http.Handler {
	t.Helper()
	authority := func(name string) *k3s.Authority {
		a, err := k3s.LoadAuthority(t.TempDir(), name)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	s := &k3s.Supervisor{
		ServerCA: authority("server-ca"), ClientCA: authority("client-ca"), Token: "servers",
		Client: fake.NewClientset(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}),
		Now:    time.Now,
		Authenticator: authenticator.RequestFunc(func(r *http.Request) (*authenticator.Response, bool, error) {
			who := &user.DefaultInfo{}
			switch node := r.Header.Get("Test-Certificate"); {
			case node != "":
				who.Name, who.Groups = "system:node:"+node, []string{user.NodesGroup}
			case r.Header.Get("Authorization") == "Bearer "+bearer:
				who.Name, who.Groups = "system:bootstrap:abcdef", []string{"system:bootstrappers"}
			case r.Header.Get("Authorization") == "Bearer other":
				who.Name, who.Groups = "system:serviceaccount:default:default", []string{"system:serviceaccounts"}
			default:
				return nil, false, nil
			}
			return &authenticator.Response{User: who}, true, nil
		}),
	}
	return s.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) }))
}

// ask sends a request of an agent's, changed as the test says.
func ask(t *testing.T, handler http.Handler, path string, change func(*http.Request)) *httptest.ResponseRecorder {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	request, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequest(http.MethodPost, path, bytes.NewReader(request))
	r.Header.Set("k3s-Node-Name", "n1")
	r.Header.Set("k3s-Node-Password", "password")
	r.Header.Set("k3s-Node-IP", "10.0.0.4")
	if change != nil {
		change(r)
	}
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, r)
	return w
}

func withBearer(token string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+token) }
}

func withPassword(name, password string) func(*http.Request) {
	return func(r *http.Request) { r.SetBasicAuth(name, password) }
}

func withCertificate(node string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set("Test-Certificate", node) }
}

func TestWhoMayAskTheSupervisor(t *testing.T) {
	handler := newSupervisor(t)
	for name, c := range map[string]struct {
		who  func(*http.Request)
		want int
	}{
		"no credentials":          {nil, http.StatusUnauthorized},
		"server's token":          {withPassword("server", "servers"), http.StatusOK},
		"another password":        {withPassword("server", "others"), http.StatusUnauthorized},
		"another user":            {withPassword("root", "servers"), http.StatusUnauthorized},
		"bootstrap token":         {withBearer(bearer), http.StatusOK},
		"unknown bootstrap token": {withBearer("abcdef.0000000000000000"), http.StatusUnauthorized},
		"service account":         {withBearer("other"), http.StatusForbidden},
		"node":                    {withCertificate("n1"), http.StatusOK},
		"node with a token of zeros": {func(r *http.Request) {
			withCertificate("n1")(r)
			withPassword("node", "0")(r)
		}, http.StatusOK},
	} {
		if got := ask(t, handler, "/v1-k3s/config", c.who); got.Code != c.want {
			t.Errorf("%s: %d, want %d: %s", name, got.Code, c.want, got.Body)
		}
	}
	for path, want := range map[string]int{"/cacerts": http.StatusOK, "/api//x": http.StatusTeapot} {
		if got := ask(t, handler, path, nil); got.Code != want {
			t.Errorf("%s without a token: %d, want %d", path, got.Code, want)
		}
	}
}

func TestKubeletsCertificates(t *testing.T) {
	handler := newSupervisor(t)
	certificate := func(path string) *x509.Certificate {
		w := ask(t, handler, path, withBearer(bearer))
		block, _ := pem.Decode(w.Body.Bytes())
		if w.Code != http.StatusOK || block == nil {
			t.Fatalf("%s: %d %s", path, w.Code, w.Body)
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	client := certificate("/v1-k3s/client-kubelet.crt")
	if client.Subject.CommonName != "system:node:n1" || len(client.Subject.Organization) != 1 || client.Subject.Organization[0] != "system:nodes" {
		t.Errorf("client certificate of %s", client.Subject)
	}
	serving := certificate("/v1-k3s/serving-kubelet.crt")
	for _, host := range []string{"n1", "10.0.0.4", "127.0.0.1"} {
		if err := serving.VerifyHostname(host); err != nil {
			t.Error(err)
		}
	}
}

func TestNodePassword(t *testing.T) {
	handler := newSupervisor(t)
	for i, c := range []struct {
		node, password string
		who            func(*http.Request)
		want           int
		says           string
	}{
		{"n2", "first", withBearer(bearer), http.StatusOK, ""},
		{"n2", "second", withBearer(bearer), http.StatusForbidden, "Node password rejected, duplicate hostname"},
		{"N2", "first", withBearer(bearer), http.StatusOK, ""},
		{"", "first", withBearer(bearer), http.StatusBadRequest, "not set"},
		{"n1", "other", withCertificate("n1"), http.StatusOK, ""},
		{"n1", "wrong", withCertificate("n1"), http.StatusForbidden, "Node password rejected"},
		{"n2", "first", withCertificate("n1"), http.StatusBadRequest, "does not match"},
		{"n3", "first", withCertificate("n3"), http.StatusUnauthorized, "unable to verify node identity"}, // its Node was deleted
	} {
		w := ask(t, handler, "/v1-k3s/client-kubelet.crt", func(r *http.Request) {
			c.who(r)
			r.Header.Set("k3s-Node-Name", c.node)
			r.Header.Set("k3s-Node-Password", c.password)
		})
		if w.Code != c.want || !strings.Contains(w.Body.String(), c.says) {
			t.Errorf("%d: %d %s, want %d %s", i, w.Code, w.Body, c.want, c.says)
		}
	}
}
