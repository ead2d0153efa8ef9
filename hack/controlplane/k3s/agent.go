package k3s

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/sirupsen/logrus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/keyutil"
)

const passwordFile = "/etc/rancher/node/password"

// ParseToken reads what an agent proves itself with: "K10<hash>::user:password" or
// "K10<hash>::id.secret". k3s takes either's end alone too, which pins no CA.
func ParseToken(text string) (hash string, by rest.Config, err error) {
	text, full := strings.CutPrefix(text, "K10")
	hash, credentials, ok := strings.Cut(text, "::")
	if !full || !ok || credentials == "" {
		return "", by, errors.New("failed to normalize token; must be in format K10<CA-HASH>::<USERNAME>:<PASSWORD> or K10<CA-HASH>::<ID>.<SECRET>")
	}
	if by.Username, by.Password, ok = strings.Cut(credentials, ":"); !ok {
		by = rest.Config{BearerToken: credentials}
	}
	return hash, by, nil
}

// agent is a node's side of k3s. Files of flags read it.
type agent struct {
	Config
	Node, Address    string
	Settings         AgentConfig // the server's
	server, password string
	token            rest.Config // credentials
	gone             func(node string)
}

// runAgent joins the server and starts what a node runs. It calls gone for each Node
// that is deleted from then on.
func runAgent(ctx context.Context, c Config, p *processes, gone func(node string)) error {
	a := &agent{Config: c, server: c.One("server"), Node: nodeName(c), gone: gone}
	if a.server == "" {
		return errors.New("--server is required")
	}
	var err error
	if a.Address, err = nodeAddress(c); err != nil {
		return err
	}
	if err := await(ctx, "to retrieve agent configuration; server is not ready", 5*time.Second, func() error { return a.configure(ctx) }); err != nil {
		return err
	}
	if err := a.runNode(ctx, p); err != nil {
		return err
	}
	_, _ = daemon.SdNotify(false, daemon.SdNotifyReady) // fails without systemd
	return nil
}

// configure gets the agent's configuration and certificates from the server.
func (a *agent) configure(ctx context.Context) error {
	text := []byte(a.One("token"))
	if file := a.One("token-file"); file != "" && len(text) == 0 {
		var err error
		if text, err = os.ReadFile(file); err != nil {
			return err
		}
	}
	hash, token, err := ParseToken(strings.TrimSpace(string(text)))
	if err != nil {
		return err
	}
	a.token = token
	// Nothing is trusted before the hash is compared.
	ca, err := a.request(ctx, rest.TLSClientConfig{Insecure: true}, "/cacerts", nil)
	if err != nil {
		return fmt.Errorf("failed to get CA certs: %w", err)
	}
	if got := hashCA(ca); hash != got {
		return fmt.Errorf("token CA hash does not match the Cluster CA certificate hash: %s != %s", hash, got)
	}
	a.token.CAData = ca
	if text, err = a.ask(ctx, "config", nil); err != nil {
		return fmt.Errorf("failed to retrieve configuration from server: %w", err)
	}
	if err := json.Unmarshal(text, &a.Settings); err != nil {
		return err
	}
	if err := a.readPassword(); err != nil {
		return err
	}
	clientCA, err := a.ask(ctx, "client-ca.crt", nil)
	if err != nil {
		return err
	}
	if err := errors.Join(writeFile(a.Dir("agent", "server-ca.crt"), ca), writeFile(a.Dir("agent", "client-ca.crt"), clientCA)); err != nil {
		return err
	}
	// The kubelet's client certificate comes last: others are asked for with the
	// one of the last start.
	for _, name := range []string{"serving-kubelet", "client-kube-proxy", "client-kubelet"} {
		if err := a.getCertificate(ctx, name); err != nil {
			return err
		}
	}
	for file, name := range map[string]string{"kubelet": "client-kubelet", "kubeproxy": "client-kube-proxy"} {
		if err := writeKubeconfig(a.Dir("agent", file+".kubeconfig"), a.server, a.Dir("agent", "server-ca.crt"), a.Dir("agent", name), false); err != nil {
			return err
		}
	}
	return nil
}

func (a *agent) getCertificate(ctx context.Context, name string) error {
	text, _, err := keyutil.LoadOrGenerateKeyFile(a.Dir("agent", name+".key"))
	if err != nil {
		return err
	}
	key, err := keyutil.ParsePrivateKeyPEM(text)
	if err != nil {
		return err
	}
	body, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		return err
	}
	if text, err = a.ask(ctx, name+".crt", body); err != nil {
		return err
	}
	return writeFile(a.Dir("agent", name+".crt"), text)
}

// ask gets a path of the supervisor's by the node's certificate of an earlier start
// and the token; by the token alone where that certificate is refused, as it is
// when the Node was deleted.
func (a *agent) ask(ctx context.Context, path string, body []byte) ([]byte, error) {
	tls := rest.TLSClientConfig{CAData: a.token.CAData}
	if _, err := os.Stat(a.Dir("agent", "client-kubelet.crt")); err == nil {
		tls.CertFile, tls.KeyFile = a.Dir("agent", "client-kubelet.crt"), a.Dir("agent", "client-kubelet.key")
	}
	text, err := a.request(ctx, tls, "/v1-k3s/"+path, body)
	if apierrors.IsUnauthorized(err) && tls.CertFile != "" {
		logrus.Info("Node authorization rejected, retrying without client certificate authentication")
		text, err = a.request(ctx, rest.TLSClientConfig{CAData: a.token.CAData}, "/v1-k3s/"+path, body)
	}
	return text, err
}

// request sends the body, if there is one.
func (a *agent) request(ctx context.Context, tls rest.TLSClientConfig, path string, body []byte) ([]byte, error) {
	var config rest.Config
	if !tls.Insecure {
		config = a.token
	}
	config.Host, config.TLSClientConfig, config.Timeout, config.NegotiatedSerializer = a.server, tls, 10*time.Second, scheme.Codecs
	client, err := rest.UnversionedRESTClientFor(&config)
	if err != nil {
		return nil, err
	}
	method := http.MethodGet
	if body != nil {
		method = http.MethodPost
	}
	return client.Verb(method).AbsPath(path).Body(body).SetHeader("k3s-Node-Name", a.Node).
		SetHeader("k3s-Node-Password", a.password).SetHeader("k3s-Node-IP", a.Address).DoRaw(ctx)
}

func (a *agent) readPassword() error {
	text, err := os.ReadFile(passwordFile)
	if errors.Is(err, fs.ErrNotExist) {
		text = []byte(rand.Text())
		err = writeFile(passwordFile, append(text, '\n'))
	}
	a.password = string(bytes.TrimSpace(text))
	return err
}

func nodeName(c Config) string {
	host, err := os.Hostname()
	if err != nil {
		host = "localhost"
	}
	return strings.ToLower(c.Or("node-name", host))
}

// nodeAddress is node-ip, or the address of the default route's interface.
func nodeAddress(c Config) (string, error) {
	if given := c.One("node-ip"); given != "" {
		return given, nil
	}
	ip, err := utilnet.ChooseHostInterface()
	if err != nil {
		return "", fmt.Errorf("find the node's address: %w; set node-ip", err)
	}
	return ip.String(), nil
}
