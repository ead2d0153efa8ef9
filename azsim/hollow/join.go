package hollow

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"path"
	"slices"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/certificate/csr"
	"k8s.io/utils/ptr"
)

// Where kubelets look for credentials, in order. A tree that has none of these
// cannot join.
var (
	kubeconfigs          = []string{"/etc/kubernetes/kubelet.conf", "/var/lib/kubelet/kubeconfig"}
	bootstrapKubeconfigs = []string{"/etc/kubernetes/bootstrap-kubeconfig", "/etc/kubernetes/bootstrap-kubelet.conf", "/var/lib/kubelet/bootstrap-kubeconfig"}
)

const clientCertificate = "/var/lib/kubelet/pki/kubelet-client-current.pem"

// errNoCredentials is the state of a node that nobody gave a way to join.
var errNoCredentials = errors.New("no kubeconfig and no bootstrap kubeconfig on the disk")

// credentials returns the client configuration that the tree gives the kubelet:
// its kubeconfig where that is usable, else one made by TLS bootstrap, which is
// written to the tree as the kubelet does.
func (r *running) credentials(ctx context.Context) (*rest.Config, error) {
	for _, name := range kubeconfigs {
		if !r.tree.exists(name) {
			continue
		}
		config, err := r.tree.restConfig(name)
		if err == nil && usable(config, time.Now()) {
			return config, nil
		}
		r.say("%s is unusable, trying to bootstrap: %v", name, err)
	}
	for _, name := range bootstrapKubeconfigs {
		if r.tree.exists(name) {
			return r.bootstrapTLS(ctx, name)
		}
	}
	return nil, errNoCredentials
}

// usable reports whether a certificate that config uses is still good.
func usable(config *rest.Config, now time.Time) bool {
	if len(config.CertData) == 0 {
		return config.BearerToken != ""
	}
	block, _ := pem.Decode(config.CertData)
	if block == nil {
		return false
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	return err == nil && now.Before(cert.NotAfter)
}

// restConfig reads a kubeconfig whose file names are ones on the tree.
func (t tree) restConfig(name string) (*rest.Config, error) {
	content, err := t.readFile(name)
	if err != nil {
		return nil, err
	}
	loaded, err := clientcmd.Load(content)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	load := func(file *string, into *[]byte) error {
		if *file == "" {
			return nil
		}
		p := *file
		if !path.IsAbs(p) {
			p = path.Join(path.Dir(name), p)
		}
		content, err := t.readFile(p)
		if err != nil {
			return fmt.Errorf("%s names %s: %w", name, p, err)
		}
		// A kubelet keeps certificate and key in one file; TLS takes what it needs.
		*file, *into = "", content
		return nil
	}
	for _, cluster := range loaded.Clusters {
		if err := load(&cluster.CertificateAuthority, &cluster.CertificateAuthorityData); err != nil {
			return nil, err
		}
	}
	for _, user := range loaded.AuthInfos {
		if user.Exec != nil || user.AuthProvider != nil {
			return nil, fmt.Errorf("%s: credentials by a plugin are not for a hollow node", name)
		}
		if err := errors.Join(
			load(&user.ClientCertificate, &user.ClientCertificateData),
			load(&user.ClientKey, &user.ClientKeyData),
		); err != nil {
			return nil, err
		}
		if user.TokenFile != "" {
			token, err := t.readTrimmed(user.TokenFile)
			if err != nil {
				return nil, err
			}
			user.Token, user.TokenFile = token, ""
		}
	}
	return clientcmd.NewDefaultClientConfig(*loaded, &clientcmd.ConfigOverrides{}).ClientConfig()
}

// bootstrapTLS asks the cluster for a certificate in the node's name.
func (r *running) bootstrapTLS(ctx context.Context, name string) (*rest.Config, error) {
	config, err := r.tree.restConfig(name)
	if err != nil {
		return nil, err
	}
	config.QPS = -1
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	request, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		Subject: pkix.Name{CommonName: "system:node:" + r.nodeName, Organization: []string{"system:nodes"}},
	}, key)
	if err != nil {
		return nil, err
	}
	requestPEM := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: request})
	asked, uid, err := csr.RequestCertificateWithContext(ctx, client, requestPEM, "", certificatesv1.KubeAPIServerClientKubeletSignerName, nil,
		[]certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth}, key)
	if err != nil {
		return nil, fmt.Errorf("request a certificate by %s: %w", name, err)
	}
	bounded, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	certificate, err := csr.WaitForCertificate(bounded, client, asked, uid)
	if err != nil {
		return nil, fmt.Errorf("certificate request %s: %w", asked, err)
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, err
	}
	pair := slices.Concat(certificate, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER}))
	if err := r.keepCertificate(pair, config); err != nil {
		return nil, err
	}
	return r.tree.restConfig(kubeconfigs[0])
}

// keepCertificate writes the certificate and the kubeconfig that names it.
func (r *running) keepCertificate(pair []byte, bootstrap *rest.Config) error {
	file := "/var/lib/kubelet/pki/kubelet-client-" + time.Now().UTC().Format("2006-01-02-15-04-05") + ".pem"
	config := clientcmdapi.NewConfig()
	config.Clusters["default-cluster"] = &clientcmdapi.Cluster{Server: bootstrap.Host, CertificateAuthorityData: bootstrap.CAData}
	config.AuthInfos["default-auth"] = &clientcmdapi.AuthInfo{ClientCertificate: clientCertificate, ClientKey: clientCertificate}
	config.Contexts["default-context"] = &clientcmdapi.Context{Cluster: "default-cluster", AuthInfo: "default-auth", Namespace: metav1.NamespaceDefault}
	config.CurrentContext = "default-context"
	content, err := clientcmd.Write(*config)
	if err != nil {
		return err
	}
	return errors.Join(
		r.tree.mkdir("/var/lib/kubelet/pki", 0o700),
		r.tree.writeFile(file, pair, 0o600),
		r.tree.symlink(file, clientCertificate),
		r.tree.writeFile(kubeconfigs[0], content, 0o600),
	)
}

// say writes to console and journal what the kubelet says and an administrator would look for there.
func (r *running) say(format string, args ...any) {
	r.console.printf("kubelet: "+format, args...)
	if err := r.journal("kubelet", format, args...); err != nil && !errors.Is(err, fs.ErrNotExist) {
		r.substrate.log.Warn("journal of a computer", "computer", r.computer.ID, "error", err)
	}
}

// ownClient returns a client by the node's own credentials, and what ends its
// connections: a thousand of them, kept, would be the API server's burden.
func ownClient(config *rest.Config) (*kubernetes.Clientset, func(), error) {
	config.QPS = -1
	tlsConfig, err := rest.TLSConfigFor(config)
	if err != nil {
		return nil, nil, err
	}
	transport := &http.Transport{TLSClientConfig: tlsConfig, ForceAttemptHTTP2: true, Proxy: http.ProxyFromEnvironment, TLSHandshakeTimeout: 10 * time.Second}
	if tlsConfig == nil {
		transport.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	wrapped, err := rest.HTTPWrappersForConfig(config, transport)
	if err != nil {
		return nil, nil, err
	}
	client, err := kubernetes.NewForConfigAndClient(config, &http.Client{Transport: wrapped, Timeout: 30 * time.Second})
	return client, transport.CloseIdleConnections, err
}

// mintBootstrapKubeconfig makes a bootstrap token by the administrator's client.
func mintBootstrapKubeconfig(ctx context.Context, client kubernetes.Interface, admin *rest.Config, now time.Time) ([]byte, error) {
	text := strings.ToLower(rand.Text())
	id, secret := text[:6], text[6:22]
	_, err := client.CoreV1().Secrets(metav1.NamespaceSystem).Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "bootstrap-token-" + id},
		Type:       corev1.SecretTypeBootstrapToken,
		Immutable:  ptr.To(true),
		StringData: map[string]string{
			"description": "for azsim's hollow nodes",
			"token-id":    id, "token-secret": secret,
			"expiration":                     now.Add(7 * 24 * time.Hour).UTC().Format(time.RFC3339),
			"usage-bootstrap-authentication": "true",
			// kubeadm's, whose requests for certificates the cluster approves.
			"auth-extra-groups": "system:bootstrappers:kubeadm:default-node-token",
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("make a bootstrap token for hollow nodes: %w", err)
	}
	bound := rest.CopyConfig(admin)
	if err := rest.LoadTLSFiles(bound); err != nil {
		return nil, err
	}
	config := clientcmdapi.NewConfig()
	config.Clusters["default"] = &clientcmdapi.Cluster{Server: bound.Host, CertificateAuthorityData: bound.CAData}
	config.AuthInfos["default"] = &clientcmdapi.AuthInfo{Token: id + "." + secret}
	config.Contexts["default"] = &clientcmdapi.Context{Cluster: "default", AuthInfo: "default"}
	config.CurrentContext = "default"
	return clientcmd.Write(*config)
}
