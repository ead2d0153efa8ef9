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
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/kubernetes"
	"k8s.io/kubernetes/cmd/kubeadm/app/util/pkiutil"
)

// Supervisor answers k3s's own paths on the API server's port.
type Supervisor struct {
	ServerCA, ClientCA *Authority
	Token              string // the server's
	Agents             AgentConfig
	Client             kubernetes.Interface
	// Authenticator is the API server's: bootstrap tokens and client certificates.
	Authenticator authenticator.Request
	Now           func() time.Time
}

// AgentConfig is what agents have to know of the server's configuration. Its
// encoding is not k3s's.
type AgentConfig struct{ ClusterCIDR, ClusterDNS string }

// Wrap returns a handler that answers the supervisor's paths, and passes others on.
func (s *Supervisor) Wrap(next http.Handler) http.Handler {
	// No http.ServeMux: it redirects paths that the API server takes as they are.
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path, ours := strings.CutPrefix(r.URL.Path, "/v1-k3s/")
		switch {
		case r.URL.Path == "/cacerts":
			_, _ = w.Write(s.ServerCA.PEM)
			return
		case !ours:
			next.ServeHTTP(w, r)
			return
		}
		body, err := s.answer(r, path)
		if err != nil {
			code := http.StatusInternalServerError
			var status apierrors.APIStatus
			if errors.As(err, &status) {
				code = int(status.Status().Code)
			}
			logrus.Errorf("Sending %d response to %s for %s: %v", code, r.RemoteAddr, r.URL.Path, err)
			http.Error(w, err.Error(), code)
			return
		}
		_, _ = w.Write(body)
	})
}

func (s *Supervisor) answer(r *http.Request, path string) ([]byte, error) {
	who, err := s.authenticate(r)
	if err != nil {
		return nil, err
	}
	switch path {
	case "config":
		return json.Marshal(s.Agents)
	case "client-ca.crt":
		return s.ClientCA.PEM, nil
	case "client-kube-proxy.crt":
		return certify(r, s.ClientCA, subject(s.Now(), user.KubeProxy, nil))
	}
	node, err := s.node(r, who)
	if err != nil {
		return nil, err
	}
	switch path {
	case "client-kubelet.crt":
		return certify(r, s.ClientCA, subject(s.Now(), "system:node:"+node, []string{user.NodesGroup}))
	case "serving-kubelet.crt":
		address := r.Header.Get("k3s-Node-IP")
		if net.ParseIP(address) == nil {
			return nil, apierrors.NewBadRequest("invalid node IP address " + address)
		}
		return certify(r, s.ServerCA, subject(s.Now(), node, nil, node, "localhost", "127.0.0.1", address))
	}
	return nil, apierrors.NewNotFound(schema.GroupResource{}, r.URL.Path)
}

// authenticate finds who asks: a holder of the server's token, of a bootstrap token,
// or a node. As in k3s, a node's certificate counts beside a password that does not.
func (s *Supervisor) authenticate(r *http.Request) (user.Info, error) {
	name, password, _ := r.BasicAuth()
	if name == "server" && subtle.ConstantTimeCompare([]byte(password), []byte(s.Token)) == 1 {
		return &user.DefaultInfo{Name: name, Groups: []string{"k3s:server"}}, nil
	}
	response, ok, err := s.Authenticator.AuthenticateRequest(r)
	if err != nil || !ok {
		return nil, apierrors.NewUnauthorized("not authorized")
	}
	groups := response.User.GetGroups()
	if !slices.Contains(groups, user.NodesGroup) && !slices.Contains(groups, "system:bootstrappers") {
		return nil, forbidden("not a node")
	}
	return response.User, nil
}

func forbidden(reason string) error {
	return apierrors.NewForbidden(schema.GroupResource{}, "", errors.New(reason))
}

// node returns the name of the node that asks, whose password is its own or the
// first for that name.
func (s *Supervisor) node(r *http.Request, who user.Info) (string, error) {
	name, password := strings.ToLower(r.Header.Get("k3s-Node-Name")), r.Header.Get("k3s-Node-Password")
	if name == "" || password == "" {
		return "", apierrors.NewBadRequest("node name or node password not set")
	}
	if slices.Contains(who.GetGroups(), user.NodesGroup) {
		if who.GetName() != "system:node:"+name {
			return "", apierrors.NewBadRequest("header node name does not match auth node name")
		}
		if _, err := s.Client.CoreV1().Nodes().Get(r.Context(), name, metav1.GetOptions{}); apierrors.IsNotFound(err) {
			return "", apierrors.NewUnauthorized("unable to verify node identity: " + err.Error())
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
		return "", forbidden("Node password rejected, duplicate hostname or contents of '/etc/rancher/node/password' may not match server node-passwd entry, try enabling a unique node name with the --with-node-id flag")
	}
	return name, nil
}

func passwordSecret(node string) string { return node + ".node-password.k3s" }

func hashPassword(password, salt string) string {
	hash, err := pbkdf2.Key(sha256.New, password, []byte(salt), 10_000, 32)
	if err != nil {
		return "" // only for keys and salts that are forbidden under FIPS
	}
	return "$1:" + salt + ":" + hex.EncodeToString(hash)
}

// certify signs the public key of the request's body.
func certify(r *http.Request, ca *Authority, who *pkiutil.CertConfig) ([]byte, error) {
	body, err := io.ReadAll(io.LimitReader(r.Body, 1<<16))
	if err != nil {
		return nil, err
	}
	request, err := x509.ParseCertificateRequest(body)
	if err != nil {
		return nil, apierrors.NewBadRequest("no certificate signing request in the body: " + err.Error())
	}
	return ca.sign(who, request.PublicKey)
}
