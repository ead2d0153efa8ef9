// Package serve runs package kubesim's API server as demo and playground need it:
// over TLS on loopback, in real time, with the identities of a cluster.
//
// Clients prove who they are by certificates of the cluster's authority or by
// bootstrap tokens. Members of system:masters may do everything; kubelets write their
// own Node, Lease and pods, but what they change of these is not restricted; holders of a token of kubeadm's
// group may ask for a kubelet's certificate, which is approved and signed as
// Kubernetes' own controllers do. Logs come from the node's kubelet.
package serve

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/ortet/ortet/test/access"
	"github.com/ortet/ortet/test/kubesim"
)

// tick is how often what the cluster does by itself is looked after.
const tick = 100 * time.Millisecond

// A Cluster is a running one. Its methods are safe for concurrent use.
type Cluster struct {
	// Kube is the API server, for those who play a part in the cluster.
	Kube *kubesim.Server
	// Server is its URL.
	Server string
	// Kubeconfig is the path of the administrator's.
	Kubeconfig string
	// CAFile is the path of the authority of the API server and of all clients, its
	// own as a client of kubelets too.
	CAFile string

	ca       *access.Authority
	kubelets *http.Client
	http     http.Server
	ended    chan struct{}
	wait     sync.WaitGroup
	once     sync.Once
}

// Start makes dir, with mode 0700, and serves a new cluster on a free port of
// loopback until Stop.
func Start(dir string) (_ *Cluster, err error) {
	if dir, err = filepath.Abs(dir); err != nil {
		return nil, err
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	ca, err := access.NewAuthority(dir, "ca", "kubernetes", time.Now)
	if err != nil {
		return nil, err
	}
	c := &Cluster{Kubeconfig: filepath.Join(dir, "kubeconfig"), CAFile: ca.CertFile(), ca: ca, ended: make(chan struct{})}
	if err := ca.ClientFiles("apiserver-kubelet-client", "kube-apiserver-kubelet-client", "system:masters"); err != nil {
		return nil, err
	}
	if c.kubelets, err = kubeletClient(dir); err != nil {
		return nil, err
	}
	c.Kube = &kubesim.Server{
		Users: map[string][]kubesim.Grant{}, Groups: grants(),
		Controllers: true, Sign: c.sign, KubeletLog: c.kubeletLog,
	}
	clients := x509.NewCertPool()
	clients.AppendCertsFromPEM(ca.PEM())
	c.http = http.Server{
		Handler:   http.HandlerFunc(c.serve),
		TLSConfig: &tls.Config{MinVersion: tls.VersionTLS12, ClientCAs: clients, ClientAuth: tls.VerifyClientCertIfGiven},
		ErrorLog:  log.New(errorLog{os.Stderr}, "kubesim: ", 0), ReadHeaderTimeout: 10 * time.Second,
	}
	listener, err := c.Listen("127.0.0.1:0", "localhost")
	if err != nil {
		return nil, err
	}
	c.Server = "https://" + listener.Addr().String()
	admin, err := ca.Kubeconfig(c.Server, access.Client{User: "kubernetes-admin", Groups: []string{"system:masters"}})
	if err == nil {
		err = os.WriteFile(c.Kubeconfig, admin, 0o600)
	}
	if err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	c.wait.Go(c.keepTime)
	return c, nil
}

// Listen serves the API server at another address too, with a certificate for it and for
// the name, until the listener is closed or the cluster ends.
func (c *Cluster) Listen(address, name string) (net.Listener, error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	host, port, _ := net.SplitHostPort(listener.Addr().String()) // an address of its own making
	files := filepath.Join(filepath.Dir(c.CAFile), "apiserver-"+host+"-"+port)
	if err := c.ca.ServerFiles(filepath.Base(files), "kube-apiserver", host, name); err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	c.wait.Go(func() {
		// It ends by Stop; whatever else ends it, clients see.
		_ = c.http.ServeTLS(listener, files+".crt", files+".key")
	})
	return listener, nil
}

func (c *Cluster) keepTime() {
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			c.Kube.Tick()
		case <-c.ended:
			return
		}
	}
}

// Stop ends the server at once, with all watches, and waits for that until ctx ends.
// Stopping again does nothing.
func (c *Cluster) Stop(ctx context.Context) (err error) {
	c.once.Do(func() {
		close(c.ended)
		err = c.http.Close()
		stopped := make(chan struct{})
		go func() {
			c.wait.Wait()
			close(stopped)
		}()
		select {
		case <-stopped:
		case <-ctx.Done():
			err = errors.Join(err, fmt.Errorf("stop the API server in memory: %w", ctx.Err()))
		}
	})
	return err
}

// errorLog passes on what a server reports, but for clients that go away in a
// handshake.
type errorLog struct{ to io.Writer }

func (l errorLog) Write(p []byte) (int, error) {
	if bytes.Contains(p, []byte("TLS handshake error")) {
		return len(p), nil
	}
	return l.to.Write(p)
}

// RESTConfig returns the administrator's client configuration, without a client
// side limit on requests.
func (c *Cluster) RESTConfig() (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig)
	if err != nil {
		return nil, err
	}
	config.QPS = -1
	return config, nil
}

// BootstrapKubeconfig returns a kubeconfig with a new bootstrap token.
func (c *Cluster) BootstrapKubeconfig(ctx context.Context, expiry time.Time) ([]byte, error) {
	config, err := c.RESTConfig()
	if err != nil {
		return nil, err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	token, err := access.BootstrapToken(ctx, client, expiry)
	if err != nil {
		return nil, err
	}
	return c.ca.Kubeconfig(c.Server, access.Client{Token: token})
}

// grants are the roles that a cluster is made with, as far as they are needed.
func grants() map[string][]kubesim.Grant {
	grant := func(group string, resources []string, verbs ...string) kubesim.Grant {
		return kubesim.Grant{PolicyRule: rbacv1.PolicyRule{APIGroups: []string{group}, Resources: resources, Verbs: verbs}}
	}
	request := grant("certificates.k8s.io", []string{"certificatesigningrequests"}, "create", "get", "list", "watch")
	review := grant("authorization.k8s.io", []string{"selfsubjectaccessreviews"}, "create")
	return map[string][]kubesim.Grant{
		"system:masters":  {kubesim.Administrator()},
		access.TokenGroup: {request},
		"system:nodes": {
			request, review,
			grant("", []string{"nodes", "nodes/status"}, "create", "get", "update", "patch"),
			grant("", []string{"pods"}, "get", "list", "watch", "delete"),
			grant("", []string{"pods/status"}, "update", "patch"),
			grant("", []string{"pods/eviction"}, "create"),
			grant("", []string{"events"}, "create", "update", "patch"),
			grant("coordination.k8s.io", []string{"leases"}, "create", "get", "update", "patch", "delete"),
		},
		"system:authenticated": {review},
	}
}

// serve authenticates a request and has it served.
func (c *Cluster) serve(w http.ResponseWriter, request *http.Request) {
	user, err := c.authenticate(request)
	if err != nil {
		unauthorized(w, request, err)
		return
	}
	c.Kube.ServeUser(w, request, user)
}

// kubeletClient is the API server's own as a client of kubelets, whose certificates
// are of their own making.
func kubeletClient(dir string) (*http.Client, error) {
	pair, err := tls.LoadX509KeyPair(filepath.Join(dir, "apiserver-kubelet-client.crt"), filepath.Join(dir, "apiserver-kubelet-client.key"))
	if err != nil {
		return nil, fmt.Errorf("read the API server's client certificate: %w", err)
	}
	return &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{
		MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair},
		InsecureSkipVerify: true, // #nosec G402 -- as the API server without --kubelet-certificate-authority
	}}}, nil
}
