package bootstrap

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// kubeconfigs are where kubelets have theirs: kubeadm's; AKS's and others'; k3s's
// and RKE2's; AKS's on Windows.
func kubeconfigs() []string {
	return []string{
		"/etc/kubernetes/kubelet.conf", "/var/lib/kubelet/kubeconfig",
		"/var/lib/rancher/k3s/agent/kubelet.kubeconfig", "/var/lib/rancher/rke2/agent/kubelet.kubeconfig",
		"/k/config",
	}
}

// kubeconfig is what of a kubelet's matters.
type kubeconfig struct {
	Clusters []struct {
		Cluster kubeCluster `yaml:"cluster"`
	} `yaml:"clusters"`
	Users []struct {
		User kubeUser `yaml:"user"`
	} `yaml:"users"`

	path string
}

// kubeCluster is where the API server is and whom to trust. Data are PEM in
// base64.
type kubeCluster struct {
	Server   string `yaml:"server"`
	TLSName  string `yaml:"tls-server-name"`
	ProxyURL string `yaml:"proxy-url"`
	CA       string `yaml:"certificate-authority"`
	CAData   string `yaml:"certificate-authority-data"`
}

// kubeUser is a client certificate; there are other ways, which are not used here.
type kubeUser struct {
	Certificate     string `yaml:"client-certificate"`
	CertificateData string `yaml:"client-certificate-data"`
	Key             string `yaml:"client-key"`
	KeyData         string `yaml:"client-key-data"`
}

// errOtherKubeconfig means that a kubeconfig is of an unsupported kind: with tokens,
// programs or proxies, or of several clusters.
var errOtherKubeconfig = errors.New("a kubeconfig that cannot be used: want one cluster with an https server and its CA, and one user with a client certificate")

// parseKubeconfig reads a kubeconfig as kubelets have it: of one cluster and one
// user. Anything else is refused rather than guessed at: who cannot ask does not
// hold it against the node.
func parseKubeconfig(text []byte) (k kubeconfig, u *url.URL, err error) {
	if err = yaml.Unmarshal(text, &k); err != nil {
		return k, nil, err
	}
	if len(k.Clusters) != 1 || len(k.Users) != 1 {
		return k, nil, errOtherKubeconfig
	}
	c, by := &k.Clusters[0].Cluster, &k.Users[0].User
	u, err = url.Parse(c.Server)
	if err != nil || u.Scheme != "https" || u.Hostname() == "" || u.User != nil || c.ProxyURL != "" ||
		c.CA+c.CAData == "" || by.Certificate+by.CertificateData == "" || by.Key+by.KeyData == "" {
		return k, nil, errOtherKubeconfig
	}
	return k, u, nil
}

// readKubeconfig finds the kubelet's; of several the one that was written last.
func readKubeconfig(o Options) (k kubeconfig, u *url.URL, err error) {
	return newestKubeconfig(o, kubeconfigs())
}

func newestKubeconfig(o Options, paths []string) (k kubeconfig, u *url.URL, err error) {
	newest, at := "", time.Time{}
	for _, path := range paths {
		if info, err := os.Stat(o.under(path)); err == nil && (newest == "" || info.ModTime().After(at)) {
			newest, at = path, info.ModTime()
		}
	}
	if newest == "" {
		return k, nil, fmt.Errorf("no kubeconfig of a kubelet's: %w", fs.ErrNotExist)
	}
	text, err := readWhole(o.under(newest))
	if err == nil {
		k, u, err = parseKubeconfig(text)
	}
	k.path = newest
	return k, u, err
}

// errUnsigned means that the kubelet has no client certificate yet.
var errUnsigned = errors.New("the kubelet has no client certificate yet")

// login returns how the kubelet connects to its API server, and its certificate's name of
// the node.
func (k kubeconfig) login(o Options) (config *tls.Config, node string, err error) {
	c, by := &k.Clusters[0].Cluster, &k.Users[0].User
	certificate, err := k.pem(o, by.Certificate, by.CertificateData)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, "", fmt.Errorf("%w: there is no %s", errUnsigned, by.Certificate)
	}
	ca, problem := k.pem(o, c.CA, c.CAData)
	key, also := k.pem(o, by.Key, by.KeyData)
	if err = errors.Join(err, problem, also); err != nil {
		return nil, "", err
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return nil, "", err
	}
	roots := x509.NewCertPool()
	node, ok := strings.CutPrefix(pair.Leaf.Subject.CommonName, "system:node:")
	if !ok || node == "" || strings.Contains(node, "/") || !roots.AppendCertsFromPEM(ca) {
		return nil, "", errOtherKubeconfig
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots, Certificates: []tls.Certificate{pair}, ServerName: c.TLSName}, node, nil
}

// pem is what a path or base64 holds. A link is followed within its folder: the
// kubelet's present certificate is one.
func (k kubeconfig) pem(o Options, path, data string) ([]byte, error) {
	if data != "" {
		return base64.StdEncoding.DecodeString(data)
	}
	if !absolute(path) {
		path = filepath.ToSlash(filepath.Dir(k.path)) + "/" + path
	}
	path = o.under(path)
	if target, err := os.Readlink(path); err == nil {
		path = filepath.Join(filepath.Dir(path), filepath.Base(target))
	}
	return readWhole(path)
}

// KubeletLogin returns the kubelet's client certificate with its key, and its name of the
// Node. kubeconfig is the path of the kubelet's own, below root; "" is where kubelets have
// them. Without one it returns fs.ErrNotExist.
func KubeletLogin(root, kubeconfig string) (pair tls.Certificate, node string, err error) {
	o := rooted(root)
	paths := kubeconfigs()
	if kubeconfig != "" {
		paths = []string{kubeconfig}
	}
	k, _, err := newestKubeconfig(o, paths)
	if err != nil {
		return pair, "", err
	}
	config, node, err := k.login(o)
	if errors.Is(err, errUnsigned) {
		return pair, "", fmt.Errorf("%w: %w", err, fs.ErrNotExist)
	}
	if err != nil {
		return pair, "", fmt.Errorf("reading %s: %w", k.path, err)
	}
	return config.Certificates[0], node, nil
}
