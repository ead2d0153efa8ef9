package generalize

import (
	"encoding/base64"
	"errors"
	"path"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/ortet/ortet/internal/node/tree"
)

// nodeUserPrefix begins the common name of every kubelet's client certificate.
const nodeUserPrefix = "system:node:"

// kubeconfig is what this package reads of a kubeconfig.
type kubeconfig struct {
	Kind     string           `yaml:"kind"`
	Clusters []yaml.Node      `yaml:"clusters"`
	Users    []kubeconfigUser `yaml:"users"`
}

type kubeconfigUser struct {
	Name string `yaml:"name"`
	User struct {
		Certificate     string `yaml:"client-certificate"`
		CertificateData string `yaml:"client-certificate-data"`
		Key             string `yaml:"client-key"`
		KeyData         string `yaml:"client-key-data"`
		Token           string `yaml:"token"`
		TokenFile       string `yaml:"tokenFile"`
		Password        string `yaml:"password"`
	} `yaml:"user"`
}

var errNoKubeconfig = errors.New("not a kubeconfig")

// parseKubeconfig reads a kubeconfig in YAML or JSON.
func parseKubeconfig(data []byte) (kubeconfig, error) {
	var kc kubeconfig
	if len(data) > maxConfig || !strings.Contains(string(data), "users") {
		return kc, errNoKubeconfig
	}
	if err := yaml.Unmarshal(data, &kc); err != nil {
		return kubeconfig{}, errors.Join(errNoKubeconfig, err)
	}
	if kc.Kind != "Config" && len(kc.Clusters) == 0 {
		return kubeconfig{}, errNoKubeconfig
	}
	return kc, nil
}

// certificate is the embedded client certificate in PEM, or nil.
func (u kubeconfigUser) certificate() []byte { return decodeBase64(u.User.CertificateData) }

func decodeBase64(s string) []byte {
	data, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(s), ""))
	if err != nil {
		return nil
	}
	return data
}

// isNodes says whether a kubeconfig's user is a node: by an embedded or named
// certificate of a system:node: name, or one below the kubelet's pki folder,
// which the kubelet fills for one node.
func (u kubeconfigUser) isNodes(t *tree.Tree, dir string) (bool, error) {
	if strings.HasPrefix(u.Name, nodeUserPrefix) {
		return true, nil
	}
	certs := u.certificate()
	if file := u.User.Certificate; file != "" {
		if !path.IsAbs(file) {
			file = path.Join("/", dir, file)
		}
		if strings.HasPrefix(path.Clean(file), "/var/lib/kubelet/pki/") {
			return true, nil
		}
		data, err := readOptional(t, file, maxConfig)
		if err != nil {
			return false, err
		}
		certs = append(append(certs, '\n'), data...)
	}
	for _, c := range certificatesIn(certs) {
		if strings.HasPrefix(c.Subject.CommonName, nodeUserPrefix) {
			return true, nil
		}
	}
	return false, nil
}

// isNodeKubeconfig says whether a file is a kubeconfig by which a clone could
// act as the donor. What is no kubeconfig is left; the scan judges it.
func isNodeKubeconfig(c *cleaner, at string) (bool, error) {
	data, err := readOptional(c.t, at, maxConfig)
	if errors.Is(err, tree.ErrTooLarge) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	kc, err := parseKubeconfig(data)
	if err != nil {
		return false, nil //nolint:nilerr // no kubeconfig: not this row's matter
	}
	for _, u := range kc.Users {
		if node, err := u.isNodes(c.t, path.Dir(at)); err != nil || node {
			return node, err
		}
	}
	return false, nil
}
