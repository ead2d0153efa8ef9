package k3s

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/sirupsen/logrus"
	utilnet "k8s.io/apimachinery/pkg/util/net"
)

const passwordFile = "/etc/rancher/node/password"

var bootstrapToken = regexp.MustCompile(`^[a-z0-9]{6}\.[a-z0-9]{16}$`)

// A Token is what an agent proves itself with: "K10<hash>::user:password",
// "K10<hash>::id.secret", or either's end alone, which pins no CA.
type Token struct{ Hash, User, Password, Bearer string }

// ParseToken reads a token. An end without a user is the agents' password.
func ParseToken(text string) (Token, error) {
	var t Token
	if text == "" {
		return t, errors.New("token must not be empty")
	}
	if rest, ok := strings.CutPrefix(text, "K10"); ok {
		hash, end, ok := strings.Cut(rest, "::")
		if !ok {
			return t, errors.New("failed to normalize token; must be in format K10<CA-HASH>::<USERNAME>:<PASSWORD> or <PASSWORD>")
		}
		if len(hash) != 64 {
			return t, errors.New("invalid token CA hash length")
		}
		t.Hash, text = hash, end
	}
	if bootstrapToken.MatchString(text) {
		t.Bearer = text
		return t, nil
	}
	var ok bool
	if t.User, t.Password, ok = strings.Cut(text, ":"); !ok {
		t.User, t.Password = "node", text
	}
	if t.Password == "" {
		return t, errors.New("invalid token format")
	}
	return t, nil
}

// agent is a node's side of k3s. Files of flags read it.
type agent struct {
	Config
	Node, Address string
	Settings      AgentConfig // the server's
	server        string
	token         Token
	password      string
	ca            []byte
}

// Socket is where k3s's containerd listens.
func (a *agent) Socket() string { return containerdSocket }

func runAgent(ctx context.Context, c Config, p *processes) error {
	a := &agent{Config: c, server: strings.TrimSuffix(c.One("server"), "/"), Node: nodeName(c)}
	if a.server == "" {
		return errors.New("--server is required")
	}
	text := c.One("token")
	if file := c.One("token-file"); text == "" && file != "" {
		if err := p.await(ctx, "for "+file, 2*time.Second, func(context.Context) error {
			content, err := os.ReadFile(file)
			if err == nil && len(bytes.TrimSpace(content)) == 0 {
				err = errors.New("empty token file")
			}
			text = strings.TrimSpace(string(content))
			return err
		}); err != nil {
			return err
		}
	}
	if text == "" {
		return errors.New("--token is required")
	}
	var err error
	if a.token, err = ParseToken(text); err != nil {
		return err
	}
	if a.Address, err = nodeAddress(c); err != nil {
		return err
	}
	if err := p.await(ctx, "to retrieve agent configuration; server is not ready", 5*time.Second, a.configure); err != nil {
		return err
	}
	return a.runNode(ctx, p)
}

// configure gets the agent's configuration and certificates from the server.
func (a *agent) configure(ctx context.Context) error {
	if err := a.fetchCA(ctx); err != nil {
		return err
	}
	text, err := a.ask(ctx, "config", nil)
	if err != nil {
		return fmt.Errorf("failed to retrieve configuration from server: %w", err)
	}
	if err := json.Unmarshal(text, &a.Settings); err != nil {
		return err
	}
	if err := a.readPassword(); err != nil {
		return err
	}
	for _, name := range []string{"client-ca", "server-ca"} {
		text, err := a.ask(ctx, name+".crt", nil)
		if err != nil {
			return err
		}
		if err := writeFile(a.Dir("agent", name+".crt"), text, 0o600); err != nil {
			return err
		}
	}
	// The kubelet's client certificate comes last: others are asked for with the
	// one of the last start.
	for _, name := range []string{"serving-kubelet", "client-kube-proxy", "client-k3s-controller", "client-kubelet"} {
		key, err := loadKey(a.Dir("agent", name+".key"))
		if err != nil {
			return err
		}
		request, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
		if err != nil {
			return err
		}
		text, err := a.ask(ctx, name+".crt", request)
		if err != nil {
			return err
		}
		if err := writeFile(a.Dir("agent", name+".crt"), text, 0o600); err != nil {
			return err
		}
	}
	for file, name := range map[string]string{"kubelet": "client-kubelet", "kubeproxy": "client-kube-proxy", "k3scontroller": "client-k3s-controller"} {
		if err := writeKubeconfig(a.Dir("agent", file+".kubeconfig"), a.server, a.ca, a.Dir("agent", name), false, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// fetchCA gets the server's CA, which the token's hash has to be of.
func (a *agent) fetchCA(ctx context.Context) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, a.server+"/cacerts", nil)
	if err != nil {
		return err
	}
	// Nothing is trusted before the hash is compared.
	text, err := do(request, &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		return fmt.Errorf("failed to get CA certs: %w", err)
	}
	if hash := hashCA(text); a.token.Hash != "" && a.token.Hash != hash {
		return fmt.Errorf("token CA hash does not match the Cluster CA certificate hash: %s != %s", a.token.Hash, hash)
	}
	if a.token.Hash == "" && a.ca == nil {
		logrus.Warn("Cluster CA certificate is not trusted by the host CA bundle, but the token does not include a CA hash. Use the full token from the server's node-token file to enable Cluster CA validation.")
	}
	a.ca = text
	return nil
}

// ask gets a path of the supervisor's by the node's certificate of an earlier start
// and the token; by the token alone where that certificate is refused, as it is
// when the Node was deleted.
func (a *agent) ask(ctx context.Context, path string, body []byte) ([]byte, error) {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(a.ca)
	config := &tls.Config{RootCAs: roots}
	if pair, err := tls.LoadX509KeyPair(a.Dir("agent", "client-kubelet.crt"), a.Dir("agent", "client-kubelet.key")); err == nil {
		config.Certificates = []tls.Certificate{pair}
	}
	try := func() ([]byte, error) {
		method := http.MethodGet
		if body != nil {
			method = http.MethodPost
		}
		request, err := http.NewRequestWithContext(ctx, method, a.server+"/v1-k3s/"+path, bytes.NewReader(body))
		if err != nil {
			return nil, err
		}
		if a.token.Bearer != "" {
			request.Header.Set("Authorization", "Bearer "+a.token.Bearer)
		} else {
			request.SetBasicAuth(a.token.User, a.token.Password)
		}
		request.Header.Set("k3s-Node-Name", a.Node)
		request.Header.Set("k3s-Node-Password", a.password)
		request.Header.Set("k3s-Node-IP", a.Address)
		return do(request, config)
	}
	text, err := try()
	if codeOf(err) == http.StatusUnauthorized && len(config.Certificates) > 0 {
		logrus.Info("Node authorization rejected, retrying without client certificate authentication")
		config.Certificates = nil
		text, err = try()
	}
	if codeOf(err) == http.StatusForbidden {
		return nil, errors.New(nodePasswordRejected)
	}
	return text, err
}

func do(request *http.Request, config *tls.Config) ([]byte, error) {
	transport := &http.Transport{TLSClientConfig: config.Clone(), DisableKeepAlives: true}
	response, err := (&http.Client{Transport: transport, Timeout: 10 * time.Second}).Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		return nil, &refusal{response.StatusCode, request.URL.String() + ": " + response.Status}
	}
	return text, nil
}

func (a *agent) readPassword() error {
	text, err := os.ReadFile(passwordFile)
	if errors.Is(err, fs.ErrNotExist) {
		random := make([]byte, 16)
		_, _ = rand.Read(random) // does not fail
		text = []byte(hex.EncodeToString(random))
		err = writeFile(passwordFile, append(text, '\n'), 0o600)
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

// nodeAddress is the first of node-ip, or that of the default route's interface.
func nodeAddress(c Config) (string, error) {
	if given := c.split("node-ip"); len(given) > 0 {
		return given[0], nil
	}
	ip, err := utilnet.ChooseHostInterface()
	if err != nil {
		return "", fmt.Errorf("find the node's address: %w; set node-ip", err)
	}
	return ip.String(), nil
}

// deviceOf is the interface that has an address.
func deviceOf(address string) (string, error) {
	interfaces, err := net.Interfaces()
	if err != nil {
		return "", err
	}
	for _, i := range interfaces {
		addresses, err := i.Addrs()
		if err != nil {
			return "", err
		}
		for _, at := range addresses {
			if at, ok := at.(*net.IPNet); ok && at.IP.String() == address {
				return i.Name, nil
			}
		}
	}
	return "", fmt.Errorf("no interface has the node's address %s", address)
}

// registries is registries.yaml as far as mirrors and their TLS go.
type registries struct {
	Mirrors map[string]struct {
		Endpoint []string `json:"endpoint"`
	} `json:"mirrors"`
	Configs map[string]struct {
		TLS struct {
			CAFile             string `json:"ca_file"`
			InsecureSkipVerify bool   `json:"insecure_skip_verify"`
		} `json:"tls"`
	} `json:"configs"`
}

// writeHosts writes containerd's hosts.toml for each mirrored registry.
func (r registries) writeHosts(dir string) error {
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	for registry, mirror := range r.Mirrors {
		if registry == "*" {
			registry = "_default"
		}
		var b strings.Builder
		for _, endpoint := range mirror.Endpoint {
			fmt.Fprintf(&b, "[host.%q]\n  capabilities = [\"pull\", \"resolve\"]\n", endpoint)
			_, host, _ := strings.Cut(endpoint, "://")
			host, _, _ = strings.Cut(host, "/")
			if t := r.Configs[host].TLS; t.CAFile != "" {
				fmt.Fprintf(&b, "  ca = %q\n", t.CAFile)
			} else if t.InsecureSkipVerify {
				b.WriteString("  skip_verify = true\n")
			}
		}
		if err := writeFile(filepath.Join(dir, registry, "hosts.toml"), []byte(b.String()), 0o644); err != nil {
			return err
		}
	}
	return nil
}
