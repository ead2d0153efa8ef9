//go:build e2e

package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/ortet/ortet/test/scenario"
	"github.com/ortet/ortet/test/scenario/fault"
)

// A proxy stands before the API server, on loopback, and has a scenario's
// happenings come to the requests that go through it.
type proxy struct {
	kubeconfig string // that leads through it
	address    string
	handler    http.Handler

	mu     sync.Mutex
	server *http.Server
	over   bool
	failed error
	back   *time.Timer // when an outage ends
	lines  bytes.Buffer
}

// before starts a proxy before the API server, which ends with the test. What
// goes through it is the administrator's.
func (w *world) before(t *testing.T, chooser *scenario.Chooser) *proxy {
	t.Helper()
	config, err := w.cp.RESTConfig()
	must(t, err)
	next, err := rest.TransportFor(config)
	must(t, err)
	target, err := url.Parse(config.Host)
	must(t, err)
	p := &proxy{}
	way := &fault.Transport{Next: next, Chooser: chooser, Served: p.served}
	forward := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport:     way,
		FlushInterval: -1,
		ErrorLog:      log.New(io.Discard, "", 0),
		// A connection that breaks behind the proxy breaks before it too.
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
	p.handler = http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		// Once the body is read, the request's context ends when its client gives
		// up, for which a request that hangs waits.
		body, err := io.ReadAll(r.Body)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		if len(body) == 0 {
			r.Body = http.NoBody
		}
		forward.ServeHTTP(out, r)
	})
	must(t, p.listen("127.0.0.1:0"))
	t.Cleanup(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.over = true
		if p.back != nil {
			p.back.Stop()
		}
		if p.server != nil {
			_ = p.server.Close()
		}
		if p.failed != nil {
			t.Errorf("the proxy: %v", p.failed)
		}
		if t.Failed() {
			t.Logf("requests that something happened to:\n%s", p.lines.String())
		}
	})
	p.kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	must(t, os.WriteFile(p.kubeconfig, fmt.Appendf(nil, `apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "http://%s"}}]
contexts: [{name: c, context: {cluster: c, user: u}}]
users: [{name: u, user: {}}]
current-context: c
`, p.address), 0o600))
	return p
}

// listen begins to serve.
func (p *proxy) listen(address string) error {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over {
		return listener.Close()
	}
	p.address = listener.Addr().String()
	p.server = &http.Server{Handler: p.handler, ReadHeaderTimeout: patience, ErrorLog: log.New(io.Discard, "", 0)}
	server := p.server
	go func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.failed = err
		}
	}()
	return nil
}

// served writes down what a request met, and begins an outage where it says so:
// then nobody listens, so that connections are refused as they are by an API
// server that is down.
func (p *proxy) served(name string, count int, met *scenario.Event, status int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if met == nil {
		return
	}
	fmt.Fprintf(&p.lines, "%s %d: %d [%s]\n", name, count, status, met.What)
	if met.What != scenario.KubeOutage || p.over || p.server == nil {
		return
	}
	_ = p.server.Close() // connections that are open break
	p.server = nil
	p.back = time.AfterFunc(fault.Outage(*met), func() {
		if err := p.listen(p.address); err != nil {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.failed = err
		}
	})
}

// through gives the flags by which the pool's principal reaches the cluster
// through the proxy.
func (p *pool) through(x *proxy) []string {
	return []string{"--azure-config=" + p.azureConfig, "--kubeconfig=" + x.kubeconfig}
}
