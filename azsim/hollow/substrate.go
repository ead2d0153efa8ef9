package hollow

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/workqueue"

	"github.com/ortet/ortet/azsim"
)

// Config says how a Substrate works. Only Dir is required.
type Config struct {
	// Dir holds volumes and what computers need while they run.
	Dir string
	// Kubeconfig is the path of a cluster administrator's kubeconfig. Without
	// one, computers run but there is no cluster that they could join.
	Kubeconfig string
	// BootstrapKubeconfig is what node preparation writes to
	// /etc/kubernetes/bootstrap-kubeconfig of a computer whose customData does
	// more than nothing. nil makes one with a new bootstrap token, good for a week.
	BootstrapKubeconfig []byte
	// AzureJSON is what node preparation writes to /etc/kubernetes/azure.json.
	AzureJSON []byte
	// Programs are the commands that pods really run, "ortet-node" → its path.
	Programs map[string]string
	// ClientCA (PEM) is whose certificates the kubelet endpoint accepts from the
	// API server. Without one it accepts every caller that reaches loopback.
	ClientCA []byte
	// LeaseInterval is the time between renewals of a node's Lease; 0 means the
	// kubelet's 10 s.
	LeaseInterval time.Duration
	// StatusInterval is the time between reports of an unchanged node status; 0
	// means the kubelet's 5 minutes.
	StatusInterval time.Duration

	// LoopbackAddresses makes a computer's private address in Azure the one at which
	// its kubelet answers, in 127.0.0.0/8, once it was booted: so that who calls the
	// machine back reaches this process. Without, Azure's is made up and leads nowhere.
	LoopbackAddresses bool

	Logger *slog.Logger // nil discards
}

// podWorkers is how many pods are acted on at the same time.
const podWorkers = 8

// startTimeout bounds the first requests to the cluster.
const startTimeout = 2 * time.Minute

var _ azsim.Substrate = (*Substrate)(nil)

// A Substrate runs hollow computers. Make one by New.
type Substrate struct {
	config    Config
	log       *slog.Logger
	client    kubernetes.Interface // nil without a cluster
	bootstrap []byte
	pods      cache.Indexer
	queue     workqueue.TypedRateLimitingInterface[string]
	kubelet   *kubelet

	ctx    context.Context // ends at Close
	cancel context.CancelFunc
	wait   sync.WaitGroup

	moving sync.RWMutex // held while a volume is moved; for reading, while it is copied

	mu        sync.Mutex
	closed    bool
	computers map[string]*computer  // by Computer.ID
	nodes     map[string][]*running // by the name that they registered under
	nextIndex int
}

// A computer is one that was booted or given a disk, and not removed.
type computer struct {
	id      string
	console console

	acting sync.Mutex // held while the computer is booted or stopped

	// Guarded by Substrate.mu.
	disks map[int32]azsim.Volume
	run   *running // nil while it is off
	last  *running // the last boot, on or off
	index int      // gives the addresses; kept over boots
}

// New returns a Substrate that serves until Close. It waits for the cluster to
// answer, at most half a minute.
func New(config Config) (*Substrate, error) {
	if config.Dir == "" {
		return nil, errors.New("hollow instances need a folder")
	}
	dir, err := filepath.Abs(config.Dir)
	if err != nil {
		return nil, err
	}
	config.Dir = dir
	config.LeaseInterval = cmp.Or(config.LeaseInterval, 10*time.Second)
	config.StatusInterval = cmp.Or(config.StatusInterval, 5*time.Minute)
	s := &Substrate{
		config:    config,
		log:       config.Logger,
		bootstrap: config.BootstrapKubeconfig,
		computers: map[string]*computer{},
		nodes:     map[string][]*running{},
	}
	s.log = cmp.Or(s.log, slog.New(slog.DiscardHandler))
	for _, sub := range []string{"volumes", "computers"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o700); err != nil {
			return nil, err
		}
	}
	if err := s.recover(); err != nil {
		return nil, fmt.Errorf("volumes of an earlier run in %s: %w", dir, err)
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	if config.Kubeconfig == "" {
		return s, nil
	}
	if err := s.connect(); err != nil {
		return nil, errors.Join(fmt.Errorf("hollow instances: %w", err), s.Close())
	}
	return s, nil
}

// connect begins to watch the cluster's pods.
func (s *Substrate) connect() error {
	config, err := clientcmd.BuildConfigFromFlags("", s.config.Kubeconfig)
	if err != nil {
		return err
	}
	config.QPS = -1 // a thousand nodes share this client
	if s.client, err = kubernetes.NewForConfig(config); err != nil {
		return err
	}
	starting, cancel := context.WithTimeout(s.ctx, startTimeout)
	defer cancel()
	if s.bootstrap == nil {
		if s.bootstrap, err = mintBootstrapKubeconfig(starting, s.client, config, time.Now()); err != nil {
			return err
		}
	}
	if s.kubelet, err = newKubelet(s); err != nil {
		return err
	}
	informer := s.watchPods()
	s.wait.Go(func() { informer.RunWithContext(s.ctx) })
	if !cache.WaitForCacheSync(starting.Done(), informer.HasSynced) {
		return fmt.Errorf("the API server at %s did not list its pods within %s", config.Host, startTimeout)
	}
	for range podWorkers {
		s.wait.Go(s.actOnPods)
	}
	return nil
}

// Close stops all computers at once and waits until nothing of theirs runs.
// Nodes stay in the cluster, as they do when a data centre loses its power;
// volumes stay on disk.
func (s *Substrate) Close() error {
	s.mu.Lock()
	s.closed = true
	computers := make([]*computer, 0, len(s.computers))
	for _, c := range s.computers {
		computers = append(computers, c)
	}
	s.mu.Unlock()
	var errs []error
	for _, c := range computers {
		c.acting.Lock()
		errs = append(errs, s.halt(c))
		c.acting.Unlock()
	}
	s.cancel()
	if s.queue != nil {
		s.queue.ShutDown()
	}
	if s.kubelet != nil {
		errs = append(errs, s.kubelet.close())
	}
	s.wait.Wait()
	return errors.Join(errs...)
}

// computer returns the one with that id, made if need be.
func (s *Substrate) computer(id string) (*computer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, errors.New("hollow instances are closed")
	}
	c, ok := s.computers[id]
	if !ok {
		c = &computer{id: id, disks: map[int32]azsim.Volume{}, index: s.nextIndex}
		s.nextIndex++
		s.computers[id] = c
	}
	return c, nil
}

var _ azsim.Addresser = (*Substrate)(nil)

// PrivateAddress implements azsim.Addresser: see Config.LoopbackAddresses.
func (s *Substrate) PrivateAddress(id string) (netip.Prefix, bool) {
	if !s.config.LoopbackAddresses {
		return netip.Prefix{}, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c, ok := s.computers[id]
	if !ok {
		return netip.Prefix{}, true
	}
	return netip.PrefixFrom(loopback(c.index), 8), true
}

// Console implements azsim.Substrate.
func (s *Substrate) Console(_ context.Context, id string) ([]byte, error) {
	s.mu.Lock()
	c, ok := s.computers[id]
	s.mu.Unlock()
	if !ok {
		return nil, fmt.Errorf("console of %s: it was never booted", id)
	}
	return c.console.tail(), nil
}
