//go:build e2e

package controlplane_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/ortet/ortet/test/controlplane"
)

func TestMain(m *testing.M) { os.Exit(controlplane.Main(m)) }

func clientFor(t *testing.T, config *rest.Config, err error) *kubernetes.Clientset {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func TestAdministratorMayEverythingAndOthersNothing(t *testing.T) {
	cp := controlplane.Shared(t)
	config, err := cp.RESTConfig()
	admin := clientFor(t, config, err)
	if _, err := admin.CoreV1().Secrets("").List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	config, err = cp.RESTConfigFor(controlplane.Client{User: "jane", Groups: []string{"guests"}})
	jane := clientFor(t, config, err)
	if _, err := jane.CoreV1().Secrets("").List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("listing Secrets as jane: %v, want Forbidden", err)
	}
}

func TestPrivateFilesArePrivate(t *testing.T) {
	cp := controlplane.Shared(t)
	seen := 0
	err := filepath.Walk(cp.Dir, func(path string, info os.FileInfo, err error) error {
		if err != nil {
			return err
		}
		if info.IsDir() {
			if strings.Contains(path, "etcd") { // etcd's own affair, under a 0700 parent
				return filepath.SkipDir
			}
			return nil
		}
		seen++
		if info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %v", path, info.Mode())
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if seen < 10 {
		t.Errorf("only %d files in %s", seen, cp.Dir)
	}
}

// A kubelet begins with a bootstrap token and ends with a certificate of its own.
func TestBootstrapTokenBecomesNodeCertificate(t *testing.T) {
	cp := controlplane.Shared(t)
	content, err := cp.BootstrapKubeconfig(t.Context(), "", time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(content)
	joining := clientFor(t, config, err)

	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	request, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		Subject: pkix.Name{CommonName: "system:node:joiner", Organization: []string{"system:nodes"}},
	}, key)
	if err != nil {
		t.Fatal(err)
	}
	csr, err := joining.CertificatesV1().CertificateSigningRequests().Create(t.Context(), &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "csr-"},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request:    pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: request}),
			SignerName: certificatesv1.KubeAPIServerClientKubeletSignerName,
			Usages:     []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var issued []byte
	err = wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, 5*time.Minute, true, func(ctx context.Context) (bool, error) {
		got, err := joining.CertificatesV1().CertificateSigningRequests().Get(ctx, csr.Name, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		issued = got.Status.Certificate
		return len(issued) > 0, nil
	})
	if err != nil {
		t.Fatalf("no certificate: %v", err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	node := clientFor(t, &rest.Config{Host: cp.Server, TLSClientConfig: rest.TLSClientConfig{
		CAData: cp.CA(), CertData: issued, KeyData: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}),
	}}, nil)
	if _, err := node.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "joiner"}}, metav1.CreateOptions{}); err != nil {
		t.Errorf("a node registers itself: %v", err)
	}
	if _, err := node.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "another"}}, metav1.CreateOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("a node registers another: %v, want Forbidden", err)
	}
	config, err = cp.RESTConfig()
	if err := clientFor(t, config, err).CoreV1().Nodes().Delete(t.Context(), "joiner", metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
}

// Machines in namespaces of their own reach the API server by other names.
func TestExtraHostsAreServed(t *testing.T) {
	binary, err := controlplane.Binary(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	cp, err := controlplane.Start(t.Context(), controlplane.Config{
		Dir: filepath.Join(t.TempDir(), "cp"), Binary: binary, Listen: "127.0.0.1", Hosts: []string{"192.0.2.7", "api.example"},
	})
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(cp.CA())
	for _, name := range []string{"192.0.2.7", "api.example", "127.0.0.1"} {
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, ServerName: name}}}
		response, err := client.Get(cp.Server + "/livez")
		if err != nil {
			t.Errorf("as %s: %v", name, err)
			continue
		}
		if err := response.Body.Close(); err != nil {
			t.Error(err)
		}
	}
	pids := cp.PIDs()
	if len(pids) != 4 {
		t.Errorf("%d processes, want 4", len(pids))
	}
	if err := cp.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	for _, pid := range pids {
		if err := syscall.Kill(pid, 0); err == nil {
			t.Errorf("process %d lives after Stop", pid)
		}
	}
	if err := cp.Failed(); err == nil {
		t.Error("a stopped control plane says that it did not fail")
	}
}

func TestFailedStartQuotesTheComponent(t *testing.T) {
	dir := t.TempDir()
	broken := filepath.Join(dir, "broken")
	if err := os.WriteFile(broken, []byte("#!/bin/sh\necho \"$1 is out of tape\"\nexit 3\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	_, err := controlplane.Start(t.Context(), controlplane.Config{Dir: filepath.Join(dir, "cp"), Binary: broken})
	if err == nil || !strings.Contains(err.Error(), "is out of tape") {
		t.Errorf("error %v does not quote the log", err)
	}
	if _, err := controlplane.Start(t.Context(), controlplane.Config{Dir: filepath.Join(dir, "cp"), Binary: broken}); err == nil || !strings.Contains(err.Error(), "holds a control plane already") {
		t.Errorf("second start in the same folder: %v", err)
	}
}
