// Package kube is Ortet's adapter to a Kubernetes API server: cluster.Cluster by
// client-go, and the journal's store in Secrets beside the Leases.
//
// Everything goes through one http.Client made from the given rest.Config, so
// that a custom http.RoundTripper stands in for the server. There are no
// informers and no caches: a read is a request, and what is listed is walked in
// pages or narrowed by a field selector.
//
// # Errors
//
// Every error is a *fleet.Error. Where the caller's context ended, its cause is
// in the chain: errors.Is(err, context.Canceled) holds, and the kind is
// fleet.KindTimedOut where it was a deadline.
//
// # Time
//
// Config.Now is the only clock that decides here. The API server's, by which its times are
// judged, is Cluster.Now. Whether another holder's Lease ran
// out is judged as written at Hold.
package kube

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/ortet/ortet/internal/cluster"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/journal"
)

// DefaultNamespace is where Ortet keeps its Leases, journals, kept items and
// pods.
const DefaultNamespace = "ortet-system"

// What the adapter may ask of the API server in a second, where the rest.Config
// does not say. A drain has a budget of its own: see drainQPS.
const (
	defaultQPS   = 30
	defaultBurst = 60
)

// requestTimeout bounds one request, where the rest.Config does not.
const requestTimeout = 30 * time.Second

// Config is what an adapter needs.
type Config struct {
	// REST says how to reach the API server. It is copied. Content type, and
	// where they are zero QPS, burst, timeout and user agent, are set here.
	REST *rest.Config
	// Namespace holds Ortet's own objects; "" means DefaultNamespace.
	Namespace string
	// Logger gets what is not an error for the caller; nil discards.
	Logger *slog.Logger
	// Identity says for people who made an object: "host/pid"; "" means "ortet".
	Identity string
	// Now is the clock; nil means time.Now.
	Now func() time.Time
	// ReadRetries is how often a GET that failed in passing is sent again; 0
	// means 2, negative never.
	ReadRetries int
	// Kured names kured's DaemonSet, "namespace/name", where it is neither
	// kube-system/kured nor kured/kured and has no usual label.
	Kured string
}

// Cluster is a cluster.Cluster on an API server. It may be used from many
// goroutines.
type Cluster struct {
	config    *rest.Config
	ownQPS    bool // the requests per second are not the caller's
	http      *http.Client
	client    kubernetes.Interface
	dynamic   dynamic.Interface
	namespace string
	log       *slog.Logger
	identity  string
	now       func() time.Time
	kured     string
	leases    observations
	clock     *fleet.Clock
}

var _ cluster.Cluster = (*Cluster)(nil)

// New makes an adapter. It sends no request.
func New(c Config) (*Cluster, error) {
	fail := func(err error) (*Cluster, error) {
		return nil, &fleet.Error{Op: "configure Kubernetes client", Kind: fleet.KindInvalid, Err: err}
	}
	if c.REST == nil {
		return fail(errors.New("no REST configuration"))
	}
	c.Namespace = cmp.Or(c.Namespace, DefaultNamespace)
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	c.Identity = cmp.Or(c.Identity, "ortet")
	if c.Now == nil {
		c.Now = time.Now
	}
	c.ReadRetries = cmp.Or(c.ReadRetries, 2)
	config := rest.CopyConfig(c.REST)
	config.ContentType = runtime.ContentTypeProtobuf
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	config.WarningHandlerWithContext = warnings{c.Logger}
	ownQPS := config.QPS == 0
	if ownQPS {
		config.QPS, config.Burst = defaultQPS, defaultBurst
	}
	config.Timeout = cmp.Or(config.Timeout, requestTimeout)
	config.UserAgent = cmp.Or(config.UserAgent, "ortet")
	clock := &fleet.Clock{}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return dated{next, clock} })
	if c.ReadRetries > 0 {
		config.Wrap(func(next http.RoundTripper) http.RoundTripper {
			return &readAgain{next: next, tries: c.ReadRetries}
		})
	}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return fail(err)
	}
	typed, err := kubernetes.NewForConfigAndClient(config, client)
	if err != nil {
		return fail(err)
	}
	json := rest.CopyConfig(config)
	json.ContentType, json.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	untyped, err := dynamic.NewForConfigAndClient(json, client)
	if err != nil {
		return fail(err)
	}
	return &Cluster{
		config: config, ownQPS: ownQPS, http: client, client: typed, dynamic: untyped,
		namespace: c.Namespace, log: c.Logger, identity: c.Identity, now: c.Now, kured: c.Kured, clock: clock,
	}, nil
}

// Now is the API server's time.
func (c *Cluster) Now() time.Time { return c.clock.At(time.Now()) }

// Namespace is where Ortet's own objects lie.
func (c *Cluster) Namespace() string { return c.namespace }

// Journals returns the store of journals beside the Leases.
func (c *Cluster) Journals() journal.Store { return journals{c} }

// warnings sends what the API server warns of to the logger, instead of to the
// process's standard error.
type warnings struct{ log *slog.Logger }

func (w warnings) HandleWarningHeaderWithContext(ctx context.Context, code int, _ string, text string) {
	if code == 299 && text != "" {
		w.log.DebugContext(ctx, "warning of the API server", "text", text)
	}
}

// pause waits, or gives the context's cause.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("while waiting: %w", context.Cause(ctx))
	}
}
