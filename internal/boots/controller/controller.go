package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlconfig "sigs.k8s.io/controller-runtime/pkg/config"
	ctrl "sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/boots/assess"
	"github.com/ortet/ortet/internal/fleet"
)

// LeaseName is the Lease by which controllers elect their leader.
const LeaseName = "ortet-controller"

// Defaults of Config.
const (
	DefaultKeep        = 7 * 24 * time.Hour
	DefaultMaxEvidence = 500
)

// Config is what the controller needs. REST, Boots and Budget are required.
type Config struct {
	REST      *rest.Config
	Namespace string // of its Lease and the evidence; it has to exist
	Identity  string // of this process among those that want the Lease
	Boots     azure.Boots
	Budget    *Budget
	Metered   bool // see PollerConfig
	// Groups are polled besides the resource groups that the cluster's Nodes lie in.
	// Pools, if any, are polled instead of all.
	Groups, Pools []fleet.ResourceID
	Interval      time.Duration // 0 is DefaultInterval
	Deadlines     assess.Deadlines
	Keep          time.Duration // how long evidence is kept; 0 is DefaultKeep
	MaxEvidence   int           // how many pieces at most; 0 is DefaultMaxEvidence
	// Of boots' reports so many are kept of a pool and image version, and of all, and
	// for so long; 0 is DefaultBootsPerVersion, DefaultMaxBoots, DefaultKeepBoots.
	BootsPerVersion, MaxBoots int
	KeepBoots                 time.Duration
	// FirstPods makes it ask when the first pod ran on a node that booted.
	FirstPods bool
	// LiftTaint makes it remove fleet.TaintUnproven from Nodes that came up, and from those
	// that are Ready for LiftAfter without a verdict; 0 is DefaultLiftAfter.
	LiftTaint bool
	LiftAfter time.Duration
	// Metrics and Health are addresses to listen on; "0" listens not.
	Metrics, Health string
	// Elect makes it work only while it has the Lease.
	Elect bool
	Log   *slog.Logger
	Now   func() time.Time // nil is time.Now
}

func (c Config) withDefaults() (Config, error) {
	if c.REST == nil || c.Boots == nil || c.Budget == nil {
		return c, &fleet.Error{Op: "start the controller", Kind: fleet.KindInvalid, Err: errors.New("no API server, no cloud or no budget")}
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	c.Keep, c.KeepBoots = cmp.Or(max(c.Keep, 0), DefaultKeep), cmp.Or(max(c.KeepBoots, 0), DefaultKeepBoots)
	c.MaxEvidence, c.MaxBoots = cmp.Or(max(c.MaxEvidence, 0), DefaultMaxEvidence), cmp.Or(max(c.MaxBoots, 0), DefaultMaxBoots)
	c.BootsPerVersion = cmp.Or(max(c.BootsPerVersion, 0), DefaultBootsPerVersion)
	c.LiftAfter, c.Interval = cmp.Or(max(c.LiftAfter, 0), DefaultLiftAfter), cmp.Or(max(c.Interval, 0), DefaultInterval)
	c.Deadlines = c.Deadlines.WithDefaults()
	return c, nil
}

// What the controller may ask of the API server in a second: when it first comes,
// every Node gets a condition.
const (
	clientQPS   = 40
	clientBurst = 80
	reconcilers = 4
)

// Run works until ctx ends, which is no error.
func Run(ctx context.Context, config Config) error {
	c, err := config.withDefaults()
	if err != nil {
		return err
	}
	fail := func(what string, err error) error {
		return &fleet.Error{Op: "start the controller", Resource: what, Err: err}
	}
	// The libraries have one logger for the whole process: one complains without it,
	// and the other writes past it.
	handler := logr.FromSlogHandler(c.Log.Handler())
	ctrllog.SetLogger(handler)
	klog.SetSlogLogger(c.Log)
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		return fail("scheme", err)
	}
	kubeconfig := rest.CopyConfig(c.REST)
	if kubeconfig.QPS == 0 {
		kubeconfig.QPS, kubeconfig.Burst = clientQPS, clientBurst
	}
	kubeconfig.UserAgent = cmp.Or(kubeconfig.UserAgent, "ortet-controller")
	options := manager.Options{
		Scheme: scheme, Logger: handler, Cache: cache.Options{DefaultTransform: trim},
		Metrics:                metricsserver.Options{BindAddress: cmp.Or(c.Metrics, "0")},
		HealthProbeBindAddress: cmp.Or(c.Health, "0"),
		Controller:             ctrlconfig.Controller{SkipNameValidation: ptr(true)},
	}
	if c.Elect {
		options.LeaderElection, options.LeaderElectionReleaseOnCancel = true, true
		options.LeaderElectionID, options.LeaderElectionNamespace = LeaseName, c.Namespace
		options.LeaderElectionResourceLockInterface, err = lease(kubeconfig, c)
		if err != nil {
			return fail("Lease "+LeaseName, err)
		}
	}
	m, err := manager.New(kubeconfig, options)
	if err != nil {
		return fail("manager", err)
	}
	direct, err := client.New(kubeconfig, client.Options{Scheme: scheme, HTTPClient: m.GetHTTPClient(), Mapper: m.GetRESTMapper()})
	if err != nil {
		return fail("client", err)
	}
	if c.Health != "" && c.Health != "0" {
		if err := errors.Join(m.AddHealthzCheck("ping", healthz.Ping), m.AddReadyzCheck("ping", healthz.Ping)); err != nil {
			return fail("health", err)
		}
	}
	r, err := newReconciler(ctx, c, m, direct)
	if err != nil {
		return fail("reconciler", err)
	}
	defer r.meters.close()
	if err := m.Start(ctx); err != nil {
		return &fleet.Error{Op: "run the controller", Err: err}
	}
	return nil
}

// lease is the lock of an election without Events of it: they would need a
// permission of their own.
func lease(config *rest.Config, c Config) (resourcelock.Interface, error) {
	k, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	return &resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Name: LeaseName, Namespace: c.Namespace},
		Client:     k.CoordinationV1(),
		LockConfig: resourcelock.ResourceLockConfig{Identity: cmp.Or(c.Identity, "ortet")},
	}, nil
}

// retries is how long after an error an instance is tried again: within a minute,
// however long the API server was away. The library's would take 16.
func retries() workqueue.TypedRateLimiter[reconcile.Request] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](50*time.Millisecond, time.Minute)
}

func newReconciler(ctx context.Context, c Config, m manager.Manager, direct client.Client) (*reconciler, error) {
	r := &reconciler{
		config: c, client: direct, nodes: m.GetCache(), fleet: NewFleet(), members: newMembers(),
		evidence: newEvidence(direct, c), changed: make(chan []fleet.Key, 256), done: ctx.Done(),
	}
	var err error
	if r.meters, err = newMeters(r.fleet, c); err != nil {
		return nil, err
	}
	r.poller = NewPoller(PollerConfig{
		Boots: c.Boots, Budget: c.Budget, Metered: c.Metered, Fleet: r.fleet, Groups: c.Groups, Pools: c.Pools, Interval: c.Interval,
		Log: c.Log, Now: c.Now, Changed: r.enqueue, Asked: r.meters.asked,
	})
	lately := max(unlisted, 3*quietTimes*c.Interval)
	r.evidence.live = func() (map[string]bool, bool) {
		return r.fleet.evidenceNames(c.Now().Add(-lately)), r.poller.Complete()
	}
	r.controller, err = ctrl.New("boot", m, ctrl.Options{Reconciler: r, MaxConcurrentReconciles: reconcilers, RateLimiter: retries()})
	if err != nil {
		return nil, fmt.Errorf("the reconciler: %w", err)
	}
	if err := r.watchNodes(m.GetCache()); err != nil {
		return nil, fmt.Errorf("watch Nodes: %w", err)
	}
	if err := r.watchChanged(); err != nil {
		return nil, fmt.Errorf("watch instances: %w", err)
	}
	if err := errors.Join(r.addBoots(m), r.addLifter(m)); err != nil {
		return nil, err
	}
	for _, do := range []func(context.Context) error{
		func(ctx context.Context) error { r.poller.Run(ctx); return nil },
		r.evidence.run,
		r.pollRelayed,
		func(ctx context.Context) error { return r.watchKinds(ctx, m) },
	} {
		if err := m.Add(manager.RunnableFunc(do)); err != nil { // runs only while it is elected
			return nil, err
		}
	}
	return r, nil
}

func ptr[T any](v T) *T { return &v }
