package k3s

import (
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/kubernetes"
)

// Supervisor answers k3s's own paths on the API server's port.
type Supervisor struct {
	ServerCA, ClientCA      *Authority
	ServerToken, AgentToken string
	Agents                  AgentConfig
	APIServers              []string
	Client                  kubernetes.Interface
	// Authenticator is the API server's: bootstrap tokens and client certificates.
	Authenticator authenticator.Request
	Now           func() time.Time
}

// AgentConfig is what agents have to know of the server's configuration. Its
// encoding is not k3s's.
type AgentConfig struct {
	ClusterCIDR, ClusterDNS, ClusterDomain   string
	DisableKubeProxy, DisableCloudController bool
}

// Groups that k3s gives to holders of the tokens that the server has in files.
const (
	serverGroup = "k3s:server"
	agentGroup  = "k3s:agent"
)

// Wrap returns a handler that answers the supervisor's paths, and passes others on.
func (s *Supervisor) Wrap(next http.Handler) http.Handler {
	// No http.ServeMux: it redirects paths that the API server takes as they are.
	paths := map[string]http.HandlerFunc{
		"/cacerts": func(w http.ResponseWriter, _ *http.Request) { send(w, s.ServerCA.PEM) },
		"/ping":    func(w http.ResponseWriter, _ *http.Request) { send(w, []byte("pong")) },
	}
	agents := func(path string, answer func(*http.Request, user.Info) ([]byte, error)) {
		paths["/v1-k3s/"+path] = func(w http.ResponseWriter, r *http.Request) {
			who, err := s.authenticate(r)
			var body []byte
			if err == nil {
				body, err = answer(r, who)
			}
			if err != nil {
				logrus.Errorf("Sending %d response to %s for /v1-k3s/%s: %v", codeOf(err), r.RemoteAddr, path, err)
				refuse(w, err)
				return
			}
			send(w, body)
		}
	}
	fixed := func(body []byte) func(*http.Request, user.Info) ([]byte, error) {
		return func(*http.Request, user.Info) ([]byte, error) { return body, nil }
	}
	agents("server-ca.crt", fixed(s.ServerCA.PEM))
	agents("client-ca.crt", fixed(s.ClientCA.PEM))
	agents("readyz", fixed([]byte("ok")))
	agents("config", func(*http.Request, user.Info) ([]byte, error) { return json.Marshal(s.Agents) })
	agents("apiservers", func(*http.Request, user.Info) ([]byte, error) { return json.Marshal(s.APIServers) })
	agents("serving-kubelet.crt", func(r *http.Request, who user.Info) ([]byte, error) {
		node, err := s.node(r, who)
		if err != nil {
			return nil, err
		}
		hosts := []string{node, "localhost", "127.0.0.1"}
		for _, ip := range strings.FieldsFunc(r.Header.Get("k3s-Node-IP"), func(c rune) bool { return c == ',' }) {
			if net.ParseIP(ip) == nil {
				return nil, fmt.Errorf("invalid node IP address %s", ip)
			}
			hosts = append(hosts, ip)
		}
		return s.certify(r, s.ServerCA, subject{name: node, hosts: hosts})
	})
	agents("client-kubelet.crt", func(r *http.Request, who user.Info) ([]byte, error) {
		node, err := s.node(r, who)
		if err != nil {
			return nil, err
		}
		return s.certify(r, s.ClientCA, subject{name: "system:node:" + node, groups: []string{user.NodesGroup}})
	})
	agents("client-kube-proxy.crt", func(r *http.Request, _ user.Info) ([]byte, error) {
		return s.certify(r, s.ClientCA, subject{name: user.KubeProxy})
	})
	agents("client-k3s-controller.crt", func(r *http.Request, _ user.Info) ([]byte, error) {
		return s.certify(r, s.ClientCA, subject{name: "system:k3s-controller"})
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if answer := paths[r.URL.Path]; answer != nil {
			answer(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// A refusal is an error with the HTTP status that answers it.
type refusal struct {
	code int
	text string
}

func (r *refusal) Error() string { return r.text }

func codeOf(err error) int {
	var r *refusal
	if errors.As(err, &r) {
		return r.code
	}
	return http.StatusInternalServerError
}

func refuse(w http.ResponseWriter, err error) {
	code := codeOf(err)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure,
		Message: err.Error(), Reason: metav1.StatusReason(strings.ReplaceAll(http.StatusText(code), " ", "")), Code: int32(code),
	})
}

func send(w http.ResponseWriter, body []byte) {
	w.Header().Set("Content-Type", "text/plain")
	_, _ = w.Write(body)
}

// authenticate finds who asks: a holder of the server's or the agents' token, of a
// bootstrap token, or a node.
func (s *Supervisor) authenticate(r *http.Request) (user.Info, error) {
	var who user.Info
	if name, password, ok := r.BasicAuth(); ok {
		group, want := map[string]string{"server": serverGroup, "node": agentGroup}[name], s.ServerToken
		if name == "node" {
			want = s.AgentToken
		}
		if group == "" || subtle.ConstantTimeCompare([]byte(password), []byte(want)) != 1 {
			// k3s asks all its authenticators: a node's certificate counts
			// beside a password that does not.
			if who = s.byAPIServer(r); who == nil {
				return nil, &refusal{http.StatusUnauthorized, "not authorized"}
			}
		} else {
			who = &user.DefaultInfo{Name: name, Groups: []string{group}}
		}
	} else if who = s.byAPIServer(r); who == nil {
		return nil, &refusal{http.StatusUnauthorized, "not authorized"}
	}
	for _, group := range []string{serverGroup, agentGroup, user.NodesGroup, "system:bootstrappers"} {
		if slices.Contains(who.GetGroups(), group) {
			return who, nil
		}
	}
	return nil, &refusal{http.StatusForbidden, "forbidden"}
}

func (s *Supervisor) byAPIServer(r *http.Request) user.Info {
	response, ok, err := s.Authenticator.AuthenticateRequest(r)
	if err != nil || !ok {
		return nil
	}
	return response.User
}

// node returns the name of the node that asks, whose password is its own or the
// first for that name.
func (s *Supervisor) node(r *http.Request, who user.Info) (string, error) {
	name, password := strings.ToLower(r.Header.Get("k3s-Node-Name")), r.Header.Get("k3s-Node-Password")
	if name == "" || password == "" {
		return "", &refusal{http.StatusBadRequest, "node name or node password not set"}
	}
	if slices.Contains(who.GetGroups(), user.NodesGroup) {
		if who.GetName() != "system:node:"+name {
			return "", &refusal{http.StatusBadRequest, "header node name does not match auth node name"}
		}
		if _, err := s.Client.CoreV1().Nodes().Get(r.Context(), name, metav1.GetOptions{}); apierrors.IsNotFound(err) {
			return "", &refusal{http.StatusUnauthorized, "unable to verify node identity: " + err.Error()}
		} else if err != nil {
			return "", err
		}
	}
	secrets := s.Client.CoreV1().Secrets(metav1.NamespaceSystem)
	_, err := secrets.Create(r.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: passwordSecret(name)}, Immutable: new(true),
		Data: map[string][]byte{"hash": []byte(hashPassword(password, rand.Text()))},
	}, metav1.CreateOptions{})
	if err == nil || !apierrors.IsAlreadyExists(err) {
		return name, err
	}
	kept, err := secrets.Get(r.Context(), passwordSecret(name), metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	hash := string(kept.Data["hash"])
	if fields := strings.Split(hash, ":"); len(fields) != 3 || hashPassword(password, fields[1]) != hash {
		return "", &refusal{http.StatusForbidden, nodePasswordRejected}
	}
	return name, nil
}

const nodePasswordRejected = "Node password rejected, duplicate hostname or contents of '/etc/rancher/node/password' may not match server node-passwd entry, try enabling a unique node name with the --with-node-id flag"

func passwordSecret(node string) string { return strings.ToLower(node) + ".node-password.k3s" }

func hashPassword(password, salt string) string {
	hash, err := pbkdf2.Key(sha256.New, password, []byte(salt), 10_000, 32)
	if err != nil {
		return "" // only for keys and salts that are forbidden under FIPS
	}
	return "$1:" + salt + ":" + hex.EncodeToString(hash)
}

// certify signs the public key of the request's body.
func (s *Supervisor) certify(r *http.Request, ca *Authority, who subject) ([]byte, error) {
	body, err := io.ReadAll(io.LimitReader(r.Body, 1<<16))
	if err != nil {
		return nil, err
	}
	request, err := x509.ParseCertificateRequest(body)
	if err != nil {
		return nil, &refusal{http.StatusBadRequest, "no certificate signing request in the body: " + err.Error()}
	}
	return ca.sign(who, request.PublicKey, s.Now())
}
