package serve

import (
	"crypto/subtle"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ortet/ortet/test/access"
	"github.com/ortet/ortet/test/kubesim"
)

var errUnauthorized = errors.New("Unauthorized") // Kubernetes' own word

// authenticate says who sends a request.
func (c *Cluster) authenticate(request *http.Request) (kubesim.User, error) {
	if request.TLS != nil && len(request.TLS.VerifiedChains) > 0 {
		subject := request.TLS.VerifiedChains[0][0].Subject
		return kubesim.User{Name: subject.CommonName, Groups: append(slices.Clone(subject.Organization), "system:authenticated")}, nil
	}
	header := request.Header.Get("Authorization")
	if header == "" {
		return kubesim.User{Name: "system:anonymous", Groups: []string{"system:unauthenticated"}}, nil
	}
	token, _ := strings.CutPrefix(header, "Bearer ")
	id, secret, _ := strings.Cut(token, ".")
	known := c.Kube.Secret(metav1.NamespaceSystem, "bootstrap-token-"+id)
	if known == nil || known.Type != corev1.SecretTypeBootstrapToken || string(known.Data["usage-bootstrap-authentication"]) != "true" ||
		subtle.ConstantTimeCompare(known.Data["token-secret"], []byte(secret)) != 1 {
		return kubesim.User{}, errUnauthorized
	}
	if text := string(known.Data["expiration"]); text != "" {
		if until, err := time.Parse(time.RFC3339, text); err != nil || !time.Now().Before(until) {
			return kubesim.User{}, errUnauthorized
		}
	}
	groups := []string{"system:bootstrappers", "system:authenticated"}
	if extra := string(known.Data["auth-extra-groups"]); extra != "" {
		groups = append(groups, strings.Split(extra, ",")...)
	}
	return kubesim.User{Name: "system:bootstrap:" + id, Groups: groups}, nil
}

// unauthorized refuses a request whose credentials are not known.
func unauthorized(w http.ResponseWriter, request *http.Request, err error) {
	response := kubesim.Refuse(request, apierrors.NewUnauthorized(err.Error()))
	defer response.Body.Close()
	w.Header().Set("Content-Type", response.Header.Get("Content-Type"))
	w.WriteHeader(response.StatusCode)
	_, _ = io.Copy(w, response.Body) // the client's connection is its own affair
}

// sign approves and signs what Kubernetes' own controllers do: a kubelet's client
// certificate, for who holds a token of kubeadm's group or renews its own.
func (c *Cluster) sign(request *certificatesv1.CertificateSigningRequest) []byte {
	if request.Spec.SignerName != certificatesv1.KubeAPIServerClientKubeletSignerName {
		return nil
	}
	block, _ := pem.Decode(request.Spec.Request)
	if block == nil {
		return nil
	}
	parsed, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil || parsed.CheckSignature() != nil {
		return nil
	}
	name := parsed.Subject.CommonName
	if !strings.HasPrefix(name, "system:node:") || !slices.Equal(parsed.Subject.Organization, []string{"system:nodes"}) {
		return nil
	}
	renews := slices.Contains(request.Spec.Groups, "system:nodes") && request.Spec.Username == name
	if !renews && !slices.Contains(request.Spec.Groups, access.TokenGroup) {
		return nil
	}
	certificate, err := c.ca.SignClient(parsed)
	if err != nil {
		return nil
	}
	return certificate
}
