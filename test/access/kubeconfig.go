package access

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// A Client is somebody who uses the API.
type Client struct {
	User   string
	Groups []string
	Token  string // a bearer token, instead of a certificate for User and Groups
	Server string // URL by which it reaches the API server; "" means by loopback
}

// Kubeconfig returns a kubeconfig, complete in itself, by which client is
// authenticated at server.
func (a *Authority) Kubeconfig(server string, client Client) ([]byte, error) {
	if client.Server != "" {
		server = client.Server
	}
	user := &clientcmdapi.AuthInfo{Token: client.Token}
	if client.Token == "" {
		if client.User == "" {
			return nil, fmt.Errorf("a client of %s needs a user or a token", server)
		}
		certPEM, keyPEM, err := a.Client(client.User, client.Groups...)
		if err != nil {
			return nil, fmt.Errorf("certificate for %s: %w", client.User, err)
		}
		user.ClientCertificateData, user.ClientKeyData = certPEM, keyPEM
	}
	config := clientcmdapi.NewConfig()
	config.Clusters["ortet"] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: a.PEM()}
	config.AuthInfos["ortet"] = user
	config.Contexts["ortet"] = &clientcmdapi.Context{Cluster: "ortet", AuthInfo: "ortet"}
	config.CurrentContext = "ortet"
	return clientcmd.Write(*config)
}

// TokenGroup is kubeadm's for its tokens. Other bootstrap tokens get nothing by it,
// as in a cluster that kubeadm made.
const TokenGroup = "system:bootstrappers:kubeadm:default-node-token"

// BootstrapToken makes a bootstrap token with which kubelets join until expiry,
// and returns it as "id.secret".
func BootstrapToken(ctx context.Context, client kubernetes.Interface, expiry time.Time) (string, error) {
	text := strings.ToLower(rand.Text()) // 26 characters of a–z and 2–7
	id, secret := text[:6], text[6:22]
	_, err := client.CoreV1().Secrets(metav1.NamespaceSystem).Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "bootstrap-token-" + id},
		Type:       corev1.SecretTypeBootstrapToken,
		StringData: map[string]string{
			"token-id": id, "token-secret": secret,
			"expiration":                     expiry.UTC().Format(time.RFC3339),
			"usage-bootstrap-authentication": "true",
			"usage-bootstrap-signing":        "true",
			"auth-extra-groups":              TokenGroup,
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("make a bootstrap token: %w", err)
	}
	return id + "." + secret, nil
}
