package hollow

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// kubelet is the endpoint that an API server asks for a pod's log: one server
// for all nodes, which listens on each node's own loopback address.
type kubelet struct {
	substrate *Substrate
	tls       *tls.Config
	server    *http.Server
}

func newKubelet(s *Substrate) (*kubelet, error) {
	certificate, err := selfSigned(time.Now())
	if err != nil {
		return nil, err
	}
	k := &kubelet{substrate: s, tls: &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{certificate}}}
	if len(s.config.ClientCA) > 0 {
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(s.config.ClientCA) {
			return nil, errors.New("the kubelets' client CA holds no certificate")
		}
		k.tls.ClientCAs, k.tls.ClientAuth = pool, tls.RequireAndVerifyClientCert
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /containerLogs/{namespace}/{pod}/{container}", k.containerLogs)
	k.server = &http.Server{
		Handler:           k.authorize(mux),
		ReadHeaderTimeout: 10 * time.Second,
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
	return k, nil
}

// selfSigned makes a serving certificate such as kubelets make for themselves.
func selfSigned(now time.Time) (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()),
		Subject:      pkix.Name{CommonName: "hollow-kubelet"},
		NotBefore:    now.Add(-time.Hour), NotAfter: now.AddDate(1, 0, 0),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames: []string{"localhost"},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, err
}

// listen begins to serve for r.
func (k *kubelet) listen(r *running) error {
	listener, err := net.Listen("tcp", net.JoinHostPort(r.address(), "0"))
	if err != nil {
		return fmt.Errorf("kubelet endpoint: %w", err)
	}
	r.listener = listener
	k.substrate.wait.Go(func() {
		// The listener is closed with the computer's power.
		err := k.server.Serve(tls.NewListener(listener, k.tls))
		if err != nil && !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, net.ErrClosed) {
			k.substrate.log.Error("kubelet endpoint", "computer", r.computer.ID, "error", err)
		}
	})
	return nil
}

// port is where the node's kubelet listens.
func (r *running) port() int32 {
	if r.listener == nil {
		return 10250
	}
	if address, ok := r.listener.Addr().(*net.TCPAddr); ok {
		return int32(address.Port) // #nosec G115 -- a port
	}
	return 10250
}

// close ends the server; its Serve may have closed the listener just before.
func (k *kubelet) close() error { return ignoreClosed(k.server.Close()) }

// authorize admits the API server, or a cluster administrator, alone.
func (k *kubelet) authorize(next http.Handler) http.Handler {
	if k.tls.ClientCAs == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		subject := request.TLS.PeerCertificates[0].Subject
		if subject.CommonName != "kube-apiserver-kubelet-client" && !slices.Contains(subject.Organization, "system:masters") {
			http.Error(w, fmt.Sprintf("Forbidden (user=%s, verb=get, resource=nodes, subresource=proxy)", subject.CommonName), http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, request)
	})
}

// containerLogs serves a container's log as a kubelet does.
func (k *kubelet) containerLogs(w http.ResponseWriter, request *http.Request) {
	options, err := parseLogOptions(request.URL.Query(), time.Now())
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	name := types.NamespacedName{Namespace: request.PathValue("namespace"), Name: request.PathValue("pod")}
	local, _ := request.Context().Value(http.LocalAddrContextKey).(net.Addr)
	p := k.substrate.runningPod(name, local)
	if p == nil {
		http.Error(w, "pod "+strconv.Quote(name.String())+" is not running on this node", http.StatusNotFound)
		return
	}
	log, err := p.logOf(request.PathValue("container"), options.previous)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "text/plain")
	w.WriteHeader(http.StatusOK)
	if err := log.copy(request.Context(), &flushing{w}, options); err != nil {
		// The status has gone out; who reads learns from the closed connection.
		k.substrate.log.Debug("container log", "pod", name.String(), "error", err)
	}
}

// flushing sends each line as it is written, for those who follow.
type flushing struct{ http.ResponseWriter }

func (f *flushing) Write(p []byte) (int, error) {
	n, err := f.ResponseWriter.Write(p)
	if flusher, ok := f.ResponseWriter.(http.Flusher); ok && err == nil {
		flusher.Flush()
	}
	return n, err
}
