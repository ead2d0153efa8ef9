package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/ortet/ortet/internal/admission"
	"github.com/ortet/ortet/internal/admission/attest"
	admissionkube "github.com/ortet/ortet/internal/admission/kube"
	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/azure/arm"
	"github.com/ortet/ortet/internal/cluster/kube"
	"github.com/ortet/ortet/internal/fleet"
)

// What was done is begun anew after so long, where it could not be begun.
const beginAgain = 5 * time.Second

// runAdmission serves until ctx ends.
func (o *options) runAdmission(ctx context.Context, f admissionFlags) (err error) {
	klog.SetSlogLogger(o.log) // the election's library writes past everything else
	audit, closeAudit, err := o.openAudit(f.audit)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeAudit()) }()
	a, err := o.connectAdmission(ctx, f, audit)
	if err != nil {
		return err
	}
	sides := []side{
		{"metrics", f.metrics, promhttp.HandlerFor(a.registry, promhttp.HandlerOpts{}), nil},
		{"health", f.health, healthHandler(&a.ready), nil},
	}
	listener, err := o.listenOn(ctx, "machines", f.listen)
	if err != nil {
		return err
	}
	for i := range sides {
		if sides[i].address == "" || sides[i].address == "0" {
			continue
		}
		if sides[i].listener, err = o.listenOn(ctx, sides[i].what, sides[i].address); err != nil {
			return errors.Join(err, listener.Close())
		}
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return a.server.Serve(ctx, listener, a.certificates) })
	group.Go(func() error { return a.certificates.Run(ctx) })
	group.Go(func() error { return a.lead(ctx, f.elect) })
	group.Go(func() error { a.warm(ctx); return nil })
	for _, s := range sides {
		if s.listener != nil {
			group.Go(func() error { return s.serve(ctx) })
		}
	}
	a.ready.Store(true)
	if err := group.Wait(); err != nil && !errors.Is(err, context.Canceled) {
		return &fleet.Error{Op: "run the admission server", Err: err}
	}
	return nil
}

// admitting is an admission server with all that belongs to it.
type admitting struct {
	server       *admission.Server
	certificates *admission.Certificates
	registry     *prometheus.Registry
	directory    admission.Directory
	cluster      *admissionkube.Cluster
	identity     string                        // of this replica
	runs         []func(context.Context) error // the reaper's and the keeper's
	issuers      *attest.Fetcher               // to have beforehand; nil where that is of no use
	audit        *slog.Logger
	log          *slog.Logger
	ready        atomic.Bool
}

// connectAdmission makes the server from the flags and the environment.
func (o *options) connectAdmission(ctx context.Context, f admissionFlags, audit *slog.Logger) (*admitting, error) {
	config, err := o.kubernetes()
	if err != nil {
		return nil, err
	}
	azureCloud, who, err := logIn(ctx, o, arm.New)
	if err != nil {
		return nil, err
	}
	issuers := attest.NewFetcher(nil, time.Now)
	verifier, err := f.verifier(who.Cloud, issuers)
	if err != nil {
		return nil, err
	}
	pools, err := scaleSets(f.pools)
	if err != nil {
		return nil, err
	}
	c, err := o.admissionCluster(ctx, config, f)
	if err != nil {
		return nil, err
	}
	a := &admitting{identity: localHolder(), registry: prometheus.NewRegistry(), audit: audit, log: o.log}
	if f.roots == "" && f.intermediates == "" { // else they are not Microsoft's, or there already
		a.issuers = issuers
	}
	if err := errors.Join(a.registry.Register(collectors.NewGoCollector()), a.registry.Register(collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))); err != nil {
		return nil, err
	}
	c.Metrics = a.registry
	if a.cluster, err = admissionkube.New(c); err != nil {
		return nil, err
	}
	members := azure.LimitMembers(azureCloud, azure.Limits{})
	asked := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "ortet_admission_lookups_total", Help: "Looks at Azure for who asks: get of one instance, or list of a scale set for all who wait."}, []string{"kind"})
	if err := a.registry.Register(asked); err != nil {
		return nil, err
	}
	a.directory = admission.NewDirectory(members, admission.DirectoryOptions{Pools: pools, Asked: func(kind string) { asked.WithLabelValues(kind).Inc() }})
	// What looks at its own pace takes nothing from who waits.
	members = azure.LimitMembers(azureCloud, azure.Limits{})
	evicted, err := a.keep(azureCloud, members, f)
	if err != nil {
		return nil, err
	}
	reaper, err := admission.NewReaper(admission.ReaperConfig{Admissions: a.cluster, Members: members, Pools: pools, Interval: f.reap, Joins: f.ttl, Log: o.log, Audit: audit, Metrics: a.registry})
	if err != nil {
		return nil, err
	}
	a.runs = append(a.runs, reaper.Run)
	ports, err := f.callbackPorts()
	if err != nil {
		return nil, err
	}
	if a.certificates, err = admission.NewCertificates(ctx, a.cluster, f.names, time.Now, o.log); err != nil {
		return nil, err
	}
	a.server, err = admission.New(admission.Config{
		Directory: a.directory, Cluster: a.cluster, Attest: verifier, ClientCAs: a.cluster.ClientCAs, Pools: pools, ScaleSets: azure.Limit(azureCloud, azure.Limits{}),
		CallbackTimeout: f.callback, CallbackPorts: ports, Dial: o.process.Dial, Limits: f.limits(), Evicted: evicted, Log: o.log, Audit: audit, Metrics: a.registry,
	})
	return a, err
}

// warm fetches the issuers of the metadata service's certificates before a machine needs
// them, and tells a person who blocked the way to them before a machine is refused.
func (a *admitting) warm(ctx context.Context) {
	if a.issuers == nil {
		return
	}
	switch has, of, err := a.issuers.Warm(ctx); {
	case ctx.Err() != nil:
	case has == 0:
		a.log.WarnContext(ctx, "no issuer of the metadata service's certificates can be fetched; no machine joins until one can be, or --attestation-intermediates gives it", "from", attest.Publication, "error", err)
	default:
		a.log.InfoContext(ctx, "issuers of the metadata service's certificates fetched", "has", has, "of", of)
	}
}

// keep makes what keeps the capacities of --keep-capacity, and gives what is to be
// told of evictions; nil where none is kept.
func (a *admitting) keep(c azure.Cloud, members azure.Members, f admissionFlags) (func(context.Context, fleet.Member) error, error) {
	pools, err := scaleSets(f.keep)
	if err != nil || len(pools) == 0 {
		return nil, err
	}
	keeper, err := admission.NewKeeper(admission.KeeperConfig{
		Desires: a.cluster, Scaler: azure.Audit(azure.Retry(azure.Limit(c, azure.Limits{}), azure.RetryPolicy{Jitter: rand.Float64}), a.log),
		Members: members, Pools: pools, Log: a.log, Audit: a.audit, Metrics: a.registry,
	})
	if err != nil {
		return nil, err
	}
	a.runs = append(a.runs, keeper.Run)
	return keeper.Evicted, nil
}

// admissionCluster is how the server's part of the cluster is reached, and how nodes
// reach it.
func (o *options) admissionCluster(ctx context.Context, config *rest.Config, f admissionFlags) (admissionkube.Config, error) {
	holder := localHolder()
	drainer, err := kube.New(kube.Config{REST: config, Namespace: o.namespace, Logger: o.log, Identity: holder})
	if err != nil {
		return admissionkube.Config{}, err
	}
	c := admissionkube.Config{REST: config, Namespace: o.namespace, Logger: o.log, Identity: holder, TokenTTL: f.ttl, Server: f.apiServer, Supervisor: f.supervisor, Drainer: drainer, Leases: drainer}
	if f.ca != "" {
		if c.CA, err = os.ReadFile(f.ca); err != nil {
			return c, err
		}
	}
	if c.Server == "" || len(c.CA) == 0 {
		if err := o.clusterInfo(ctx, config, &c); err != nil {
			return c, err
		}
	}
	return c, nil
}

// clusterInfo finds how nodes reach the API server: what kubeadm publishes for all,
// else what this process itself uses, unless that is an address within the cluster.
func (o *options) clusterInfo(ctx context.Context, config *rest.Config, c *admissionkube.Config) error {
	if c.Server == "" {
		c.Server = admissionkube.Published(ctx, config)
	}
	inCluster := o.kubeconfig == "" && config.BearerTokenFile != ""
	if c.Server == "" && !inCluster {
		if u, _, err := rest.DefaultServerUrlFor(config); err == nil {
			c.Server = u.Scheme + "://" + u.Host
		}
	}
	if c.Server == "" {
		return usagef("--api-server is required (admission.server of the chart): %w", errNoAddress)
	}
	if len(c.CA) > 0 {
		return nil
	}
	var err error
	if c.CA, err = admissionkube.RootCA(ctx, config, o.namespace); len(c.CA) > 0 {
		return nil
	}
	if loadErr := rest.LoadTLSFiles(config); loadErr != nil {
		return fmt.Errorf("find who signs the API server's certificate: %w", errors.Join(err, loadErr))
	}
	if c.CA = config.CAData; len(c.CA) == 0 {
		return fmt.Errorf("find who signs the API server's certificate: the ConfigMap %s/kube-root-ca.crt has none, nor has the kubeconfig; name a file with --ca: %w", o.namespace, err)
	}
	return nil
}

// lead approves certificates and looks for what is gone: in one replica at a time.
func (a *admitting) lead(ctx context.Context, elect bool) error {
	if !elect {
		a.work(ctx)
		return nil
	}
	return a.cluster.Lead(ctx, a.identity, a.work)
}

// work does what one replica does, until ctx ends.
func (a *admitting) work(ctx context.Context) {
	var all sync.WaitGroup
	for _, run := range a.runs {
		all.Go(func() {
			if err := run(ctx); err != nil && ctx.Err() == nil {
				a.log.WarnContext(ctx, "part of the admission server has ended", "error", err)
			}
		})
	}
	all.Go(func() { a.approve(ctx) })
	all.Wait()
}

// approve runs the approver until ctx ends, anew where it could not begin.
func (a *admitting) approve(ctx context.Context) {
	for {
		err := a.cluster.Run(ctx, a.directory, a.auditCertificate)
		if ctx.Err() != nil {
			return
		}
		a.log.WarnContext(ctx, "certificates are not approved for now", "error", err)
		timer := time.NewTimer(beginAgain)
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		timer.Stop()
	}
}

func (a *admitting) auditCertificate(d admissionkube.Decided) {
	a.audit.Info("certificate", "decision", string(d.Verb), "reason", d.Reason, "request", d.Request, "signer", d.Signer, "by", d.By, "node", d.Node, "cause", d.Message)
}

// healthHandler answers whether the process lives, and whether it is ready.
func healthHandler(ready *atomic.Bool) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if !ready.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	return mux
}

// A side is what is served beside the machines.
type side struct {
	what, address string
	handler       http.Handler
	listener      net.Listener // nil serves nowhere
}

// serve serves until ctx ends.
func (s side) serve(ctx context.Context) error {
	server := &http.Server{Handler: s.handler, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: 30 * time.Second, MaxHeaderBytes: 16 << 10}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() }) // what it serves can be asked again
	defer stop()
	if err := server.Serve(s.listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
