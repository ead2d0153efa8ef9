package serve_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/certificate/csr"

	"github.com/ortet/ortet/test/kubesim/serve"
)

func start(t *testing.T) (*serve.Cluster, kubernetes.Interface) {
	t.Helper()
	c, err := serve.Start(filepath.Join(t.TempDir(), "cluster"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	config, err := c.RESTConfig()
	return c, clientFor(t, config, err)
}

func clientFor(t *testing.T, config *rest.Config, err error) kubernetes.Interface {
	t.Helper()
	if err == nil {
		var client *kubernetes.Clientset
		if client, err = kubernetes.NewForConfig(config); err == nil {
			return client
		}
	}
	t.Fatal(err)
	return nil
}

// joined is a kubelet's client, got by TLS bootstrap with kubeconfig.
func joined(t *testing.T, kubeconfig []byte, node string) (kubernetes.Interface, error) {
	t.Helper()
	config, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	bootstrap := clientFor(t, config, err)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	request, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		Subject: pkix.Name{CommonName: "system:node:" + node, Organization: []string{"system:nodes"}},
	}, key)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	name, uid, err := csr.RequestCertificateWithContext(ctx, bootstrap, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: request}), "",
		certificatesv1.KubeAPIServerClientKubeletSignerName, nil, []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth}, key)
	if err != nil {
		return nil, err
	}
	certificate, err := csr.WaitForCertificate(ctx, bootstrap, name, uid)
	if err != nil {
		return nil, err
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return clientFor(t, &rest.Config{Host: config.Host, TLSClientConfig: rest.TLSClientConfig{
		CAData: config.CAData, CertData: certificate, KeyData: pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}),
	}}, nil), nil
}

func node(name string) *corev1.Node { return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}} }

// A kubelet joins by a bootstrap token and writes its own Node, and no other's.
func TestKubeletJoins(t *testing.T) {
	c, admin := start(t)
	ctx := t.Context()
	token, err := c.BootstrapKubeconfig(ctx, time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	kubelet, err := joined(t, token, "n1")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := kubelet.CoreV1().Nodes().Create(ctx, node("n1"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := admin.CoreV1().Nodes().Create(ctx, node("n2"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for name, on := range map[string]string{"own": "n1", "other": "n2"} {
		c.Kube.Put(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{NodeName: on, Containers: []corev1.Container{{Name: "c", Image: "i"}}}})
	}
	own, err := kubelet.CoreV1().Pods("").List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=n1"})
	if err != nil || len(own.Items) != 1 {
		t.Fatalf("a kubelet's own pods: %v, %v", own, err)
	}
	if err := kubelet.CoreV1().Pods("default").Delete(ctx, "own", metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
	for what, try := range map[string]func() error{
		"create another Node": func() error {
			_, err := kubelet.CoreV1().Nodes().Create(ctx, node("n3"), metav1.CreateOptions{})
			return err
		},
		"patch another Node": func() error {
			_, err := kubelet.CoreV1().Nodes().Patch(ctx, "n2", "application/merge-patch+json", []byte(`{"metadata":{"labels":{"a":"b"}}}`), metav1.PatchOptions{})
			return err
		},
		"read another Node": func() error {
			_, err := kubelet.CoreV1().Nodes().Get(ctx, "n2", metav1.GetOptions{})
			return err
		},
		"list all pods": func() error {
			_, err := kubelet.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
			return err
		},
		"delete another's pod": func() error {
			return kubelet.CoreV1().Pods("default").Delete(ctx, "other", metav1.DeleteOptions{})
		},
		"list Secrets": func() error {
			_, err := kubelet.CoreV1().Secrets("").List(ctx, metav1.ListOptions{})
			return err
		},
	} {
		if err := try(); !apierrors.IsForbidden(err) {
			t.Errorf("a kubelet may %s: %v", what, err)
		}
	}

	bootstrap, err := clientcmd.RESTConfigFromKubeConfig(token)
	if _, err := clientFor(t, bootstrap, err).CoreV1().Nodes().List(ctx, metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("a bootstrap token lists nodes: %v", err)
	}
	bootstrap.BearerToken = strings.Repeat("a", 6) + "." + strings.Repeat("b", 16)
	if _, err := clientFor(t, bootstrap, nil).CoreV1().Nodes().List(ctx, metav1.ListOptions{}); !apierrors.IsUnauthorized(err) {
		t.Errorf("an unknown token: %v", err)
	}
	bootstrap.BearerToken = ""
	if _, err := clientFor(t, bootstrap, nil).CoreV1().Nodes().List(ctx, metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("without credentials: %v", err)
	}
	expired, err := c.BootstrapKubeconfig(ctx, time.Now().Add(-time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := joined(t, expired, "n4"); !apierrors.IsUnauthorized(err) {
		t.Errorf("a token that has expired: %v", err)
	}
}

// An informer sees what is there and what comes, over TLS and HTTP/2.
func TestInformer(t *testing.T) {
	_, admin := start(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if _, err := admin.CoreV1().Nodes().Create(ctx, node("n1"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	factory := informers.NewSharedInformerFactory(admin, 0)
	seen := make(chan string, 10)
	nodes := factory.Core().V1().Nodes().Informer()
	report := func(what string, o any) {
		if n, ok := o.(*corev1.Node); ok {
			seen <- what + " " + n.Name
		}
	}
	if _, err := nodes.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(o any) { report("add", o) }, UpdateFunc: func(_, o any) { report("update", o) }, DeleteFunc: func(o any) { report("delete", o) },
	}); err != nil {
		t.Fatal(err)
	}
	factory.Start(ctx.Done())
	wants := func(want string) {
		t.Helper()
		select {
		case got := <-seen:
			if got != want {
				t.Fatalf("%s, want %s", got, want)
			}
		case <-ctx.Done():
			t.Fatalf("no %s", want)
		}
	}
	wants("add n1")
	if _, err := admin.CoreV1().Nodes().Patch(ctx, "n1", "application/merge-patch+json", []byte(`{"spec":{"unschedulable":true}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	wants("update n1")
	if err := admin.CoreV1().Nodes().Delete(ctx, "n1", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	wants("delete n1")
	cancel()
	factory.Shutdown()
}

// What is not served is refused by a Status that says so.
func TestNotServed(t *testing.T) {
	_, admin := start(t)
	for path, want := range map[string]string{
		"/apis/apps/v1/deployments":                     "does not serve deployments of apps",
		"/api/v1/namespaces/default/pods/a/exec":        "does not serve pods/exec",
		"/openapi/v3":                                   "does not serve /openapi/v3",
		"/apis/example.com/v1/namespaces/a/things/b":    "does not serve things of example.com",
		"/api/v1/namespaces/default/services/a/proxy/x": "does not serve services",
	} {
		err := admin.CoreV1().RESTClient().Get().AbsPath(path).Do(t.Context()).Error()
		var status *apierrors.StatusError
		if !errors.As(err, &status) || status.Status().Code != 404 || !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
	}
	if err := admin.CoreV1().RESTClient().Put().AbsPath("/api/v1/namespaces").Body([]byte("{}")).Do(t.Context()).Error(); !apierrors.IsMethodNotSupported(err) {
		t.Errorf("PUT of a list: %v", err)
	}
}
