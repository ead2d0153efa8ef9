package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/azure/arm"
	"github.com/ortet/ortet/internal/azure/credential"
	"github.com/ortet/ortet/internal/boots/survey"
	"github.com/ortet/ortet/internal/cluster"
	"github.com/ortet/ortet/internal/cluster/kube"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/auto"
	"github.com/ortet/ortet/internal/image/capture"
	"github.com/ortet/ortet/internal/image/clones"
	"github.com/ortet/ortet/internal/image/prove"
	"github.com/ortet/ortet/internal/image/rollback"
	"github.com/ortet/ortet/internal/image/watch"
)

// work is what a command is going to do, as far as connecting goes.
type work struct {
	image, pullSecret string      // of the pod that prepares the disk
	rules             []kube.Rule // what Kubernetes has to allow, for preflight
	lease             leaseDuration
	pools             []string      // as given: the groups of those that are ARM ids have candidates for Nodes
	watch             watch.Request // after each capture; For 0 is none
}

// A leaseDuration is --lease-duration. With less than 5s, one slow renewal would lose the
// pool.
type leaseDuration time.Duration

func leaseFlag(flags *pflag.FlagSet, d *leaseDuration) {
	*d = leaseDuration(45 * time.Second)
	flags.Var(d, "lease-duration", "time after its last renewal until the pool's Lease expires, 5s to 1h")
}

func (d *leaseDuration) Type() string { return "duration" }

func (d *leaseDuration) String() string { return durationText(time.Duration(*d)) }

func (d *leaseDuration) Set(text string) error {
	got, err := parseDuration(text)
	if err != nil || got < 5*time.Second || got > time.Hour {
		return errors.New("want a duration from 5s to 1h")
	}
	*d = leaseDuration(got)
	return nil
}

// A connection is the cluster and Azure, logged in.
type connection struct {
	config capture.Config // all but Holder, Report and Others
	// identify is what makes Nodes that name no machine of Azure ones of config's Cluster.
	identify func(cluster.Cluster) cluster.Cluster
	boots    azure.Boots      // lists scale sets
	group    fleet.ResourceID // that the credentials name
}

// places finds the scale sets of one list of Nodes.
func (c connection) places() auto.Places { return &azure.Places{Reader: c.config.Cloud} }

// finder finds pools, also in the resource groups of --resource-group.
func (c connection) finder(o *options, named []string) (survey.Finder, error) {
	more, err := groups(named)
	return o.finder(c.config.Cluster, c.places(), c.boots, c.config.Cloud, more, c.group), err
}

// services capture and roll back. Each undoes what the other has begun.
type services struct {
	*capture.Service
	rollback *rollback.Service
	show     *progress // nil if nothing is run
}

// Capture is that of capture.Service, and is shown from its begin.
func (s services) Capture(ctx context.Context, q capture.Request, checks ...func(context.Context) error) (capture.Result, error) {
	ended := s.show.Preflight()
	result, err := s.Service.Capture(ctx, q, checks...)
	ended(err)
	return result, err
}

// Rollback is that of rollback.Service, and is shown from its begin.
func (s services) Rollback(ctx context.Context, q rollback.Request) (rollback.Result, error) {
	ended := s.show.Preflight()
	result, err := s.rollback.Rollback(ctx, q)
	ended(err)
	return result, err
}

// Watch is that of watch.Service, with this process's rollback.
func (s services) Watch(ctx context.Context, q watch.Request) (watch.Result, error) {
	w := watch.Service{Config: s.Config, Rollback: s.rollback}
	return w.Watch(ctx, q)
}

// services makes them for show, with a Lease holder of their own.
func (c connection) services(show *progress) services {
	config := c.config
	config.Holder = localHolder()
	if show != nil {
		config.Report = show.Report
	}
	captures, rollbacks := rollback.Services(config)
	return services{captures, rollbacks, show}
}

// connect returns services on a connection of their own.
func (o *options) connect(ctx context.Context, show *progress, w work) (services, error) {
	c, err := o.open(ctx, w)
	if err != nil {
		return services{}, err
	}
	return c.services(show), nil
}

// open connects by the flags and the environment, and logs in.
func (o *options) open(ctx context.Context, w work) (connection, error) {
	c, err := o.openCluster(ctx)
	if err != nil {
		return connection{}, err
	}
	cloud, who, err := logIn(ctx, o, arm.New)
	if err != nil {
		return connection{}, err
	}
	decorated, boots := o.decorate(cloud), bootsOf(cloud)
	identify := func(c cluster.Cluster) cluster.Cluster {
		return capture.Identify(c, decorated, scaleSetsOf(boots, who, w.pools), time.Now)
	}
	return connection{boots: boots, group: groupOf(who), identify: identify, config: capture.Config{
		Cloud:      decorated,
		Cluster:    identify(c),
		Journal:    c.Journals(),
		Log:        o.log,
		Now:        time.Now,
		Version:    o.process.Version,
		Image:      w.image,
		PullSecret: w.pullSecret,
		Accesses:   kube.PoolAccesses(w.rules),
		Namespace:  o.namespace,
		SelfNode:   o.process.Getenv("NODE_NAME"),
		LockFor:    time.Duration(w.lease),
		Next:       w.watch.Changes(),
		Boot: func(ctx context.Context, n fleet.Node) prove.Boot {
			return clones.Boot(ctx, n, decorated, boots, c)
		},
		UserData: func(ctx context.Context, n fleet.Node) time.Duration { return clones.UserData(ctx, n, decorated, c) },
	}}, nil
}

// scaleSetsOf lists the scale sets that a Node without Azure's provider id may be of: those
// of the resource group that the credentials name, and of the groups of pools, a canary's
// among them.
func scaleSetsOf(boots azure.Boots, who credential.Credentials, pools []string) func(context.Context) ([]fleet.ResourceID, error) {
	var groups []fleet.ResourceID
	if group := groupOf(who); group != "" {
		groups = append(groups, group)
	}
	for _, arg := range pools {
		if group := fleet.ResourceID(arg).Group(); strings.HasPrefix(arg, "/") && !slices.ContainsFunc(groups, group.Equal) {
			groups = append(groups, group)
		}
	}
	return func(ctx context.Context) (sets []fleet.ResourceID, err error) {
		for _, group := range groups {
			found, err := boots.Pools(ctx, group)
			if err != nil {
				return nil, err
			}
			for _, p := range found {
				sets = append(sets, p.ID)
			}
		}
		return sets, nil
	}
}

// bootsOf looks at instances by a client of its own limits.
func bootsOf(cloud azure.Boots) azure.Boots {
	return azure.RetryBoots(azure.LimitBoots(cloud, azure.Limits{}), azure.RetryPolicy{Jitter: rand.Float64})
}

// groupOf returns the resource group that the credentials name, by azure.json or
// AZURE_RESOURCE_GROUP; "" where they name none.
func groupOf(who credential.Credentials) fleet.ResourceID {
	if !fleet.ValidName(who.Subscription) || !fleet.ValidName(who.ResourceGroup) {
		return ""
	}
	return fleet.ResourceID("/subscriptions/" + who.Subscription + "/resourceGroups/" + who.ResourceGroup)
}

// decorate makes a cloud as all that change something use it.
func (o *options) decorate(cloud azure.Cloud) azure.Cloud {
	return azure.Audit(azure.Retry(azure.Settled(azure.Limit(cloud, azure.Limits{})), azure.RetryPolicy{Jitter: rand.Float64}), o.log)
}

// logInBoth makes both clients of Azure, with one log-in.
func logInBoth(ctx context.Context, o *options) (*arm.Resources, *arm.Cloud, credential.Credentials, error) {
	resources, who, err := logIn(ctx, o, arm.NewResources)
	if err != nil {
		return nil, nil, who, err
	}
	cloud, err := arm.New(arm.Options{Cloud: who.Cloud, Credential: who.TokenCredential, Transport: who.Transport, Version: o.process.Version})
	if err != nil {
		return nil, nil, who, err
	}
	return resources, cloud, who, nil
}

// logIn finds the credentials, and logs the client in that is made with them: wrong
// credentials are reported at once, rather than waited for as ones that are being renewed,
// and so is a certificate that is not trusted, which would fail all that follows.
func logIn[C interface{ LogIn(context.Context) error }](ctx context.Context, o *options, client func(arm.Options) (C, error)) (c C, who credential.Credentials, err error) {
	load := o.process.Credentials
	if load == nil {
		load = credential.Load
	}
	if who, err = load(ctx, credential.Config{File: o.azureConfig, Getenv: o.process.Getenv, Wrap: func(next http.RoundTripper) http.RoundTripper {
		return o.waits.roundTripper(next, azureService)
	}}); err != nil {
		// A request means that the file was good enough to ask the cloud that it names.
		if request := (*url.Error)(nil); o.azureConfig != "" && fleet.Is(err, fleet.KindInvalid) && !errors.As(err, &request) {
			err = refuseFile(o.azureConfig, err)
		}
		return c, who, err
	}
	o.log.Info("credentials found", "source", who.Source)
	if c, err = client(arm.Options{Cloud: who.Cloud, Credential: who.TokenCredential, Transport: who.Transport, Version: o.process.Version}); err != nil {
		return c, who, err
	}
	switch err := c.LogIn(ctx); fleet.KindOf(err) {
	case fleet.KindUnauthenticated:
		return c, who, fmt.Errorf("credentials of %s: %w", who.Source, err)
	case fleet.KindInvalid:
		return c, who, err
	}
	return c, who, nil
}

// openCluster connects with the API server, and waits for its first answer.
func (o *options) openCluster(ctx context.Context) (*kube.Cluster, error) {
	config, err := o.kubernetes()
	if err != nil {
		return nil, err
	}
	c, err := kube.New(kube.Config{REST: config, Namespace: o.namespace, Logger: o.log, Identity: localHolder()})
	if err == nil {
		err = o.reach(ctx, config)
	}
	return c, err
}

// reach waits for the API server's first answer, and says meanwhile what for.
func (o *options) reach(ctx context.Context, config *rest.Config) error {
	err := kube.Reach(ctx, config, func(why error) {
		text := noAnswer(nil, why)
		if strings.HasPrefix(text, "no answer") { // the line says so already
			text = ""
		}
		o.waits.tell(apiServerName(config.Host), text)
	})
	if err != nil {
		return fmt.Errorf("%w; nothing was changed, and a capture that was interrupted stays open: the same command goes on with it", err)
	}
	return nil
}

// kubernetes finds the API server as kubectl does: the flag, $KUBECONFIG, the
// pod's service account, ~/.kube/config.
func (o *options) kubernetes() (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = o.kubeconfig
	if o.kubeconfig == "" && o.process.Getenv("KUBECONFIG") == "" && o.context == "" {
		if config, err := rest.InClusterConfig(); err == nil {
			return o.watched(config), nil
		} else if !errors.Is(err, rest.ErrNotInCluster) {
			return nil, fmt.Errorf("use the pod's service account: %w", err)
		}
	}
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: o.context}).ClientConfig()
	if err != nil {
		if raw, unread := rules.Load(); unread == nil {
			if wrong := wrongContext(raw, o.context, first(rules.ExplicitPath, strings.Join(rules.Precedence, ", "))); wrong != nil {
				return nil, wrong
			}
		}
		hint := ""
		_, statErr := os.Stat(o.kubeconfig)
		// client-go gives no typed error, and a Go type in its text.
		foreign := regexp.MustCompile(`file "(.+)": couldn't get version/kind`).FindStringSubmatch(err.Error())
		switch {
		case o.kubeconfig != "" && statErr != nil:
			err = fmt.Errorf("read --kubeconfig: %w", statErr)
		case foreign != nil:
			err = fmt.Errorf("%s is not a kubeconfig: it holds no YAML or JSON object", foreign[1])
		case clientcmd.IsEmptyConfig(err) && o.kubeconfig != "":
			err = fmt.Errorf("%s is not a kubeconfig: it names no cluster", o.kubeconfig)
		case clientcmd.IsEmptyConfig(err):
			err = fmt.Errorf("no kubeconfig in %s", strings.Join(rules.Precedence, ", "))
			hint = "; set $KUBECONFIG or --kubeconfig FILE"
		}
		err = fmt.Errorf("cannot find the Kubernetes API server: %w%s", err, hint)
		if name := first(o.kubeconfig, o.process.Getenv("KUBECONFIG")); name != "" {
			err = refuseFile(name, err) // nothing was asked yet
		}
		return nil, err
	}
	return o.watched(config), nil
}

// watched lets the requests to the API server be waited for.
func (o *options) watched(config *rest.Config) *rest.Config {
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return o.waits.roundTripper(next, apiServer(config.Host))
	})
	return config
}

// wrongContext refuses a context that the kubeconfig does not have, and a context whose
// cluster it does not have; nil for neither.
func wrongContext(raw *clientcmdapi.Config, name, file string) error {
	wayOut := "give one of these with --context"
	if name == "" {
		name, wayOut = raw.CurrentContext, "give one of these with --context, or kubectl config use-context NAME"
	}
	if name == "" || len(raw.Contexts)+len(raw.Clusters) == 0 {
		return nil
	}
	at, there := raw.Contexts[name]
	if !there {
		return refuse("ContextNotFound", "context "+name, "the kubeconfig "+file+" has "+namesOf(raw.Contexts, "context"), wayOut)
	}
	if _, there := raw.Clusters[at.Cluster]; !there {
		return refuse("ClusterNotFound", "context "+name, fmt.Sprintf("its cluster %q is not in the kubeconfig %s, which has %s", at.Cluster, file, namesOf(raw.Clusters, "cluster")),
			"kubectl config set-context "+name+" --cluster=NAME, or give another with --context")
	}
	return nil
}

// namesOf lists at most ten names.
func namesOf[T any](of map[string]T, what string) string {
	const most = 10
	names := slices.Sorted(maps.Keys(of))
	if len(names) == 0 {
		return "no " + what
	}
	more := ""
	if n := len(names) - most; n > 0 {
		names, more = names[:most], fmt.Sprintf(" and %d more", n)
	}
	if len(of) > 1 {
		what += "s"
	}
	return "the " + what + " " + strings.Join(names, ", ") + more
}
