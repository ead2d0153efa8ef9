package controlplane

import (
	"os"
	"path/filepath"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/ortet/ortet/test/access"
)

// A Client is somebody who uses the API.
type Client = access.Client

// KubeconfigFor returns a kubeconfig, complete in itself, by which client is
// authenticated.
func (cp *ControlPlane) KubeconfigFor(client Client) ([]byte, error) {
	return cp.ca.Kubeconfig(cp.Server, client)
}

// WriteKubeconfig writes KubeconfigFor to a new file of mode 0600 beside the
// administrator's, "<name>.kubeconfig", and returns its path.
func (cp *ControlPlane) WriteKubeconfig(name string, client Client) (string, error) {
	content, err := cp.KubeconfigFor(client)
	if err != nil {
		return "", err
	}
	path := filepath.Join(cp.Dir, name+".kubeconfig")
	return path, os.WriteFile(path, content, 0o600)
}

// RESTConfig returns the administrator's client configuration, without a client
// side limit on requests.
func (cp *ControlPlane) RESTConfig() (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", cp.Kubeconfig)
	if err != nil {
		return nil, err
	}
	config.QPS = -1
	return config, nil
}

// RESTConfigFor returns client's configuration.
func (cp *ControlPlane) RESTConfigFor(client Client) (*rest.Config, error) {
	content, err := cp.KubeconfigFor(client)
	if err != nil {
		return nil, err
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(content)
	if err != nil {
		return nil, err
	}
	config.QPS = -1
	return config, nil
}

// CA returns the PEM of the certificate in CAFile.
func (cp *ControlPlane) CA() []byte { return cp.ca.PEM() }

// Port returns the API server's port.
func (cp *ControlPlane) Port() int { return cp.port }

func (l *layout) kubeconfig(component string) string {
	return filepath.Join(l.dir, component+".kubeconfig")
}

// kubeconfigs writes those of the administrator and of the components.
func (l *layout) kubeconfigs(cp *ControlPlane) error {
	for path, client := range map[string]Client{
		cp.Kubeconfig:                      {User: "kubernetes-admin", Groups: []string{"system:masters"}},
		l.kubeconfig("controller-manager"): {User: "system:kube-controller-manager"},
		l.kubeconfig("scheduler"):          {User: "system:kube-scheduler"},
	} {
		content, err := cp.KubeconfigFor(client)
		if err != nil {
			return err
		}
		if err := os.WriteFile(path, content, 0o600); err != nil {
			return err
		}
	}
	return nil
}
