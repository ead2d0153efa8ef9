package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// The operations that a donor is out of service for.
const (
	opStop     = "stop"
	opSnapshot = "snapshot"
	opStart    = "start"
)

// operationOf names an operation of azsim by what it is for; "" for others.
func operationOf(name, resource string) string {
	name, resource = strings.ToLower(name), strings.ToLower(resource)
	switch {
	case strings.HasSuffix(resource, "/snapshots/snapshot_"+pool) && strings.HasSuffix(name, "/write"):
		return opSnapshot
	case !strings.HasSuffix(resource, "/virtualmachines/0"):
		return ""
	case strings.Contains(name, "poweroff"), strings.Contains(name, "deallocate"):
		return opStop
	case strings.Contains(name, "/start"):
		return opStart
	}
	return ""
}

// outage is what others saw of a donor's time out of service.
type outage struct {
	mu     sync.Mutex
	events int
	out    time.Duration        // in which its Node was unschedulable or not Ready
	since  time.Time            // when that began; zero while the Node is in service
	began  map[string]time.Time // operations on the donor and its snapshot, by name
	ended  map[string]time.Time
	back   time.Time // Ready after another boot
	bootID string
}

// outOfService measures a donor's time out of service for each way of a capture, and prints
// the same figure of all ways side by side.
func outOfService(ctx context.Context, o options) ([]figure, error) {
	figures := []figure{free("speed", o.speed, "x")}
	var names []string
	of := map[string][]figure{} // by name, one for each way
	for _, way := range []struct {
		name  string
		flags []string
	}{{"stop", nil}, {"deallocate", []string{"--deallocate"}}, {"online", []string{online}}} {
		fmt.Fprintf(os.Stderr, "bench:   %s\n", way.name)
		all, err := outOfServiceBy(ctx, o, way.flags)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", way.name, err)
		}
		for _, f := range all {
			if of[f.name] == nil {
				names = append(names, f.name)
			}
			beside := f
			beside.name += "/" + way.name
			of[f.name] = append(of[f.name], beside)
		}
	}
	for _, name := range names {
		figures = append(figures, of[name]...)
	}
	return figures, nil
}

const online = "--online"

// outOfServiceBy measures how long a donor's Node is unschedulable or not Ready, and how much
// of that its own operations took: the drain, the stop, the snapshot, and from the start's
// begin until the Node is Ready after a new boot. The rest is Ortet's. With --online there
// must be no such moment and no such operation.
func outOfServiceBy(ctx context.Context, o options, flags []string) (_ []figure, err error) {
	w, err := newWorld(ctx, o.bin, o.speed, map[string]any{"min": "20s", "max": "20s"})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	asked, err := w.countKubernetes()
	if err != nil {
		return nil, err
	}
	if err := w.trustAzure(); err != nil {
		return nil, err
	}
	azure := &counted{}
	if err := w.countAzure(ctx, azure); err != nil { // of before the capture
		return nil, err
	}
	azure.n = 0
	watching, stop := context.WithCancel(ctx)
	seen := &outage{began: map[string]time.Time{}, ended: map[string]time.Time{}}
	watched := make(chan error, 3)
	go func() { watched <- w.watchDonor(watching, seen) }()
	go func() { watched <- w.watchOperations(watching, seen) }()
	go func() { watched <- w.watchRequests(watching, azure) }()
	result, _, err := w.capture(ctx, flags...)
	stop()
	if err = errors.Join(err, <-watched, <-watched, <-watched); err != nil {
		return nil, err
	}
	requests := asked.Load()
	if err := w.countAzure(ctx, azure); err != nil {
		return nil, err
	}
	var drain time.Duration
	for _, s := range result.Timing.Steps {
		if s.Step == "drain" {
			drain = s.End.Sub(s.Begin)
		}
	}
	seen.mu.Lock()
	defer seen.mu.Unlock()
	sent := []figure{
		free("azure-requests", float64(azure.n), ""),
		free("kubernetes-requests", float64(requests), ""),
		free("capture", result.Timing.End.Sub(result.Timing.Begin).Seconds(), "s"),
	}
	fmt.Fprintf(os.Stderr, "bench:   %d events of the donor's Node\n", seen.events)
	if seen.events == 0 || !seen.since.IsZero() {
		return nil, fmt.Errorf("%d events of the donor's Node, out of service since %s", seen.events, seen.since)
	}
	if slices.Contains(flags, online) {
		if seen.ended[opSnapshot].IsZero() || !seen.began[opStop].IsZero() || !seen.began[opStart].IsZero() || !seen.back.IsZero() {
			return nil, fmt.Errorf("the donor was stopped, started or booted, or its snapshot was not seen: %v", seen.began)
		}
		return append([]figure{atMost("out", seen.out.Seconds(), "s", 0)}, sent...), nil
	}
	cloud := drain + seen.back.Sub(seen.began[opStart])
	fmt.Fprintf(os.Stderr, "bench:   drain %8.3f s\n", drain.Seconds())
	for _, name := range []string{opStop, opSnapshot} {
		cloud += seen.ended[name].Sub(seen.began[name])
		fmt.Fprintf(os.Stderr, "bench:   %s %8.3f s\n", name, seen.ended[name].Sub(seen.began[name]).Seconds())
	}
	fmt.Fprintf(os.Stderr, "bench:   start until Ready %8.3f s\n", seen.back.Sub(seen.began[opStart]).Seconds())
	if seen.out == 0 || seen.back.IsZero() || seen.began[opStart].IsZero() || seen.ended[opStop].IsZero() || seen.ended[opSnapshot].IsZero() {
		return nil, fmt.Errorf("not all of the outage was seen: %s, operations %v, back %s", seen.out, seen.began, seen.back)
	}
	return append([]figure{
		free("out", seen.out.Seconds(), "s"),
		free("cloud", cloud.Seconds(), "s"),
		atMost("own", (seen.out - cloud).Seconds(), "s", 2),
	}, sent...), nil
}

// watchDonor notes how long the donor is out of service, and when it is back.
func (w *world) watchDonor(ctx context.Context, seen *outage) error {
	watch, err := w.client.CoreV1().Nodes().Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + pool + "000000"})
	if err != nil {
		return err
	}
	defer watch.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case e, more := <-watch.ResultChan():
			n, ok := e.Object.(*corev1.Node)
			if !more || !ok {
				return fmt.Errorf("the watch of the donor ended: %v", e.Object)
			}
			seen.note(n, time.Now())
		}
	}
}

func (o *outage) note(n *corev1.Node, now time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	ready := false
	for _, c := range n.Status.Conditions {
		ready = ready || c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	}
	if o.bootID == "" {
		o.bootID = n.Status.NodeInfo.BootID
	}
	o.events++
	switch serves := ready && !n.Spec.Unschedulable; {
	case !serves && o.since.IsZero():
		o.since = now
	case serves && !o.since.IsZero():
		o.out, o.since = o.out+now.Sub(o.since), time.Time{}
	}
	if ready && n.Status.NodeInfo.BootID != o.bootID && o.back.IsZero() {
		o.back = now
	}
}

// watchOperations notes when the donor's operations began, which azsim says, and
// when they were seen to have ended.
func (w *world) watchOperations(ctx context.Context, seen *outage) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		var now struct {
			Value []struct {
				Name, Resource string
				StartTime      time.Time
			}
		}
		if err := w.control(ctx, "operations", &now); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		seen.mu.Lock()
		running := map[string]bool{}
		for _, op := range now.Value {
			name := operationOf(op.Name, op.Resource)
			running[name] = true
			if _, there := seen.began[name]; !there {
				seen.began[name] = op.StartTime
			}
		}
		for name := range seen.began {
			if _, there := seen.ended[name]; !there && !running[name] {
				seen.ended[name] = time.Now()
			}
		}
		seen.mu.Unlock()
	}
}

// control reads one of azsim's own endpoints.
func (w *world) control(ctx context.Context, path string, into any) (err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(w.azure.Endpoint.ResourceManager, "/")+"/azsim/"+path, http.NoBody)
	if err != nil {
		return err
	}
	answer, err := w.web.Do(request)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, answer.Body.Close()) }()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		return err
	}
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("azsim %s: %s: %s", path, answer.Status, body)
	}
	return json.Unmarshal(body, into)
}

// trustAzure makes the client for azsim's own endpoints.
func (w *world) trustAzure() error {
	ca, err := os.ReadFile(w.azure.Endpoint.CAFile)
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	w.web = &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}}
	return nil
}

// counted is how many requests ARM was sent, up to the last one that was counted.
type counted struct{ n, last int }

// countAzure adds those since the last time: azsim remembers only so many, and the
// bench's own are among them.
func (w *world) countAzure(ctx context.Context, c *counted) error {
	var now struct {
		Value []struct {
			Path string
			Seq  int
		}
	}
	if err := w.control(ctx, fmt.Sprintf("requests?since=%d", c.last), &now); err != nil {
		return err
	}
	for _, r := range now.Value {
		c.last = max(c.last, r.Seq)
		if strings.HasPrefix(r.Path, "/subscriptions/") {
			c.n++
		}
	}
	return nil
}

func (w *world) watchRequests(ctx context.Context, c *counted) error {
	tick := time.NewTicker(5 * time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if err := w.countAzure(context.WithoutCancel(ctx), c); err != nil {
			return err
		}
	}
}

// countKubernetes puts a proxy between Ortet and the API server that counts.
func (w *world) countKubernetes() (*atomic.Int64, error) {
	config, err := w.cp.RESTConfig()
	if err != nil {
		return nil, err
	}
	transport, err := rest.TransportFor(config)
	if err != nil {
		return nil, err
	}
	server, err := url.Parse(config.Host)
	if err != nil {
		return nil, err
	}
	asked := &atomic.Int64{}
	forward := &httputil.ReverseProxy{Transport: transport, FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(server) }}
	proxy := httptest.NewServer(http.HandlerFunc(func(answer http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		forward.ServeHTTP(answer, r)
	}))
	w.undo = append(w.undo, func() error { proxy.Close(); return nil })
	w.kubeconfig = filepath.Join(w.azure.Dir, "counted.kubeconfig")
	return asked, clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"counted": {Server: proxy.URL}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"nobody": {}},
		Contexts:       map[string]*clientcmdapi.Context{"counted": {Cluster: "counted", AuthInfo: "nobody"}},
		CurrentContext: "counted",
	}, w.kubeconfig)
}
