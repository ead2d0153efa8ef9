package main

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ortet/ortet/internal/node/bootstrap"
	"github.com/ortet/ortet/internal/node/config"
	"github.com/ortet/ortet/internal/node/config/files"
	"github.com/ortet/ortet/internal/nodeconfig"
	"github.com/ortet/ortet/internal/wire"
	"github.com/ortet/ortet/test/controlplane"
)

const (
	configNodes  = 1000
	configRate   = 100 // agents started, and Nodes annotated, a second
	configWithin = 2 * time.Minute
	configPool   = "/subscriptions/s/resourcegroups/g/providers/microsoft.compute/virtualmachinescalesets/pool1"
)

// configuration is live configuration: the signal to many nodes, the quota of Azure's
// writes, an idle agent, one application, and the agent's size.
func configuration(ctx context.Context, o options) ([]figure, error) {
	var all []figure
	for _, part := range []benchmark{
		configSignal,
		inTests("-run=^(TestLimitResourcesThousandPuts|TestWatchBreaksAndComesBack)$", "./internal/azure", "./internal/node/config"),
		goBenchmark("BenchmarkConfigApply", 21),
	} {
		figures, err := part(ctx, o)
		if err != nil {
			return all, err
		}
		all = append(all, figures...)
	}
	size, err := agentSize(ctx, o)
	for _, f := range size {
		f.name = "agent-" + f.name
		all = append(all, f)
	}
	return all, err
}

// configSignal runs the agents of a thousand nodes in this process, each with its
// kubelet's credentials and its metadata service, against a real API server. Then each
// Node is annotated, and its agent applies a document.
func configSignal(ctx context.Context, _ options) (_ []figure, err error) {
	s, err := newConfigSite(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	before, err := settledMemory()
	if err != nil {
		return nil, err
	}
	if err := s.startAgents(ctx); err != nil {
		return nil, err
	}
	watching, err := settledMemory()
	if err != nil {
		return nil, err
	}
	watches, asks := s.watches.Load(), s.asks.Load()
	peak := watchMemory(os.Getpid())
	took, err := s.annotate(ctx)
	if err == nil {
		err = s.await(ctx)
	}
	most := peak()
	if err != nil {
		return nil, err
	}
	applied, err := s.applied(ctx)
	if err != nil {
		return nil, err
	}
	began, answered := s.since(func(n *configNode) time.Time { return n.began }), s.since(func(n *configNode) time.Time { return n.answered })
	return []figure{
		// All requests of this process's agents, also those that failed.
		free("watch-requests", float64(watches+asks), "requests"),
		// What is added to this process, which is the agents' metadata service as well.
		free("watch-memory", float64(watching-before)/(1<<20), "MiB"),
		free("peak-memory", float64(most-before)/(1<<20), "MiB"),
		free("annotated", (configNodes-1)/took.Seconds(), "nodes/s"),
		atLeast("applied", float64(applied), "nodes", configNodes),
		free("begun-p50", percentile(began, 50).Seconds(), "s"),
		atMost("begun-p99", percentile(began, 99).Seconds(), "s", 2),
		free("answered-p50", percentile(answered, 50).Seconds(), "s"),
		free("answered-p99", percentile(answered, 99).Seconds(), "s"),
		free("apply-requests", float64(s.watches.Load()+s.asks.Load()-watches-asks), "requests"),
	}, nil
}

// settledMemory is this process's memory without garbage, in bytes.
func settledMemory() (int64, error) {
	debug.FreeOSMemory()
	return memoryOf(os.Getpid(), "RssAnon:")
}

// A configSite is a cluster, and nodes that are nothing but an agent and a metadata
// service.
type configSite struct {
	benchCluster
	metadata      *httptest.Server
	document      string // as userData
	nodes         map[string]*configNode
	names         []string
	watches, asks atomic.Int64
}

func newConfigSite(ctx context.Context) (_ *configSite, err error) {
	s := &configSite{nodes: map[string]*configNode{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	if err := s.start(ctx, forever); err != nil {
		return nil, err
	}
	s.metadata = httptest.NewServer(s)
	s.undo = append(s.undo, func() error { s.metadata.Close(); return nil })
	return s, s.makeConfigNodes(ctx)
}

// makeConfigNodes makes the Nodes, and for each the root folder of an agent.
func (s *configSite) makeConfigNodes(ctx context.Context) error {
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		return err
	}
	d := nodeconfig.Document{Pool: configPool, Generation: 1, Config: nodeconfig.Config{Files: []nodeconfig.File{{Path: "/etc/example.conf", Content: "a: b\n"}}}}
	if s.document, err = d.Sign(private); err != nil {
		return err
	}
	settings, err := json.Marshal(config.Settings{Keys: []nodeconfig.PublicKey{nodeconfig.PublicKeyOf(public)}})
	if err != nil {
		return err
	}
	var g errgroup.Group
	g.SetLimit(8)
	for i := range configNodes {
		n := &configNode{site: s, name: fmt.Sprintf("pool1-%06d", i), watching: make(chan struct{}), done: make(chan struct{})}
		n.root = filepath.Join(s.dir, "nodes", n.name)
		n.kubelet = bootstrap.APIServer(n.root)
		s.nodes[n.name], s.names = n, append(s.names, n.name)
		g.Go(func() error {
			login, err := s.cp.KubeconfigFor(controlplane.Client{User: "system:node:" + n.name, Groups: []string{"system:nodes"}})
			if err != nil {
				return err
			}
			if err := os.MkdirAll(filepath.Join(n.root, filepath.Dir(config.StateFile)), 0o700); err != nil {
				return err
			}
			for name, text := range map[string][]byte{"/etc/kubernetes/kubelet.conf": login, config.SettingsFile: settings} {
				name = filepath.Join(n.root, name)
				if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, text, 0o600)); err != nil {
					return err
				}
			}
			_, err = s.client.CoreV1().Nodes().Create(ctx, &corev1.Node{
				ObjectMeta: metav1.ObjectMeta{Name: n.name},
				Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastHeartbeatTime: metav1.Now()}}},
			}, metav1.CreateOptions{})
			return err
		})
	}
	return g.Wait()
}

// ServeHTTP is the metadata service of the node that the path begins with.
func (s *configSite) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name, path, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	n := s.nodes[name]
	if n == nil || path != "metadata/instance/compute" || r.Header.Get("Metadata") != "true" {
		http.NotFound(w, r)
		return
	}
	userData := ""
	if n.pushed.Load() {
		userData = s.document
	}
	// An agent that went away gets no answer.
	_ = json.NewEncoder(w).Encode(map[string]any{"userData": userData, "virtualMachineScaleSet": map[string]string{"id": configPool}})
}

// startAgents returns once all watch.
func (s *configSite) startAgents(ctx context.Context) error {
	running, end := context.WithCancel(ctx)
	var all sync.WaitGroup
	s.undo = append(s.undo, func() error { end(); all.Wait(); return nil })
	err := paced(ctx, s.names, func(name string) error {
		n := s.nodes[name]
		all.Go(func() {
			config.Run(running, config.Options{Root: n.root, Metadata: s.metadata.URL + "/" + name, Store: n, Applier: n, Kubernetes: n, Now: time.Now, Log: slog.New(slog.DiscardHandler)})
		})
		return nil
	})
	if err != nil {
		return err
	}
	return s.each(ctx, "watch", func(n *configNode) <-chan struct{} { return n.watching })
}

// annotate asks each node for the document, at configRate, and gives the time from the
// first request to the last.
func (s *configSite) annotate(ctx context.Context) (time.Duration, error) {
	patch := []byte(`{"metadata":{"annotations":{"` + wire.ConfigurationWanted + `":"1"}}}`)
	var last atomic.Int64
	began := time.Now()
	err := paced(ctx, s.names, func(name string) error {
		n := s.nodes[name]
		n.pushed.Store(true)
		last.Store(int64(max(time.Since(began), time.Duration(last.Load()))))
		if _, err := s.client.CoreV1().Nodes().Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			return err
		}
		now := time.Now()
		n.mu.Lock()
		defer n.mu.Unlock()
		n.annotated = now
		return nil
	})
	return time.Duration(last.Load()), err
}

// await returns once all nodes have answered that they applied the document.
func (s *configSite) await(ctx context.Context) error {
	return s.each(ctx, "answer", func(n *configNode) <-chan struct{} { return n.done })
}

// applied counts the Nodes whose annotation says so.
func (s *configSite) applied(ctx context.Context) (int, error) {
	list, err := s.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return 0, err
	}
	count := 0
	for _, n := range list.Items {
		var a wire.ConfigurationAnswer
		if err := json.Unmarshal([]byte(n.Annotations[wire.ConfigurationAnnotation]), &a); err != nil {
			return 0, fmt.Errorf("read the answer of %s: %w", n.Name, err)
		}
		if a.State == wire.ConfigurationApplied && a.Generation == 1 {
			count++
		}
	}
	return count, nil
}

// since returns how long after its annotation's answer something was at each node. 0 is for
// a watch that showed the annotation before the request was answered.
func (s *configSite) since(at func(*configNode) time.Time) (all []time.Duration) {
	for _, n := range s.nodes {
		n.mu.Lock()
		all = append(all, max(0, at(n).Sub(n.annotated)))
		n.mu.Unlock()
	}
	return all
}

func (s *configSite) each(ctx context.Context, what string, done func(*configNode) <-chan struct{}) error {
	ctx, cancel := context.WithTimeout(ctx, configWithin)
	defer cancel()
	for i, name := range s.names {
		select {
		case <-done(s.nodes[name]):
		case <-ctx.Done():
			return fmt.Errorf("%s, after %d others, does not %s: %w", name, i, what, ctx.Err())
		}
	}
	return nil
}

// paced calls do for all names at configRate, whether others have returned or not.
func paced(ctx context.Context, names []string, do func(name string) error) error {
	var g errgroup.Group
	for i, name := range names {
		g.Go(func() error {
			if err := wait(ctx, time.Duration(i)*time.Second/configRate); err != nil {
				return err
			}
			return do(name)
		})
	}
	return g.Wait()
}

// A configNode is one agent's store, its applier, which does nothing, and its kubelet's
// API server, whose requests are counted.
type configNode struct {
	site       *configSite
	name, root string
	kubelet    config.Kubernetes
	pushed     atomic.Bool // the metadata service has the document
	watching   chan struct{}
	done       chan struct{}

	mu                         sync.Mutex
	record                     []byte
	seen                       bool // the watch
	annotated, began, answered time.Time
}

var (
	_ config.Store      = (*configNode)(nil)
	_ config.Applier    = (*configNode)(nil)
	_ config.Kubernetes = (*configNode)(nil)
)

// Apply records that the agent began.
func (n *configNode) Apply(_ context.Context, d nodeconfig.Document, record string) wire.ConfigurationAnswer {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.began, n.record = time.Now(), []byte(record)
	return wire.ConfigurationAnswer{State: wire.ConfigurationApplied, Generation: d.Generation}
}

// Recover has nothing to restore.
func (*configNode) Recover(context.Context) (bool, error) { return false, nil }

// Settle finds no journal.
func (*configNode) Settle(context.Context) (a wire.ConfigurationAnswer, settled bool) {
	return a, false
}

// Current returns the document that was applied.
func (n *configNode) Current() (files.Set, []byte, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return nil, n.record, nil
}

// Pending finds no journal.
func (*configNode) Pending() ([]byte, bool, error) { return nil, false, nil }

// Drift finds none.
func (*configNode) Drift() ([]string, error) { return nil, nil }

// Forget is for images of another pool.
func (*configNode) Forget() error { return nil }

// Ask asks as the kubelet, and records the answer after Apply.
func (n *configNode) Ask(ctx context.Context, method string, path func(node string) string, contentType string, body []byte) (bootstrap.Answer, error) {
	n.site.asks.Add(1)
	a, err := n.kubelet.Ask(ctx, method, path, contentType, body)
	if err == nil && a.Code == http.StatusOK && method == http.MethodPatch {
		n.mu.Lock()
		defer n.mu.Unlock()
		if !n.began.IsZero() && n.answered.IsZero() {
			n.answered = time.Now()
			close(n.done)
		}
	}
	return a, err
}

// Watch watches as the kubelet.
func (n *configNode) Watch(ctx context.Context, path func(node string) string, accept string, idle time.Duration, event func(line []byte) error) error {
	n.site.watches.Add(1)
	return n.kubelet.Watch(ctx, path, accept, idle, func(line []byte) error {
		n.mu.Lock()
		if !n.seen {
			n.seen = true
			close(n.watching)
		}
		n.mu.Unlock()
		return event(line)
	})
}
