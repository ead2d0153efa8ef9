package operator

import (
	"context"
	"encoding/json"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/cluster"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/auto"
	"github.com/ortet/ortet/internal/image/capture"
	"github.com/ortet/ortet/internal/image/rollback"
	"github.com/ortet/ortet/internal/journal"
)

// An open is what the journal and the pool's Lease show, without a request to Azure.
type open struct {
	record journal.Record
	holder string // of the Lease; "" for none that counts

	done, steps int // of the record; 0, 0 if not known
}

func (r *Reconciler) journal(ctx context.Context, pool fleet.ResourceID) (o open, err error) {
	at := r.c.Capture.Cluster
	held, has, err := at.Holding(ctx, string(pool)) // before the journal: the Lease goes last
	if err != nil {
		return o, err
	}
	if has && at.Now().Before(held.Until) {
		o.holder = held.Holder
	}
	if o.record, err = r.c.Capture.Journal.Load(ctx, string(pool)); o.record.Open() {
		o.done, o.steps = capture.New(r.c.Capture).Progress(o.record)
	}
	return o, fleet.IgnoreNotFound(err)
}

// takesBack reports whether the record is of a rollback that a watch asked for.
func (o open) takesBack() bool {
	var q rollback.Request
	return o.record.Kind == rollback.Kind && json.Unmarshal(o.record.Request, &q) == nil && q.Why != ""
}

// An observation is what was seen of a pool with nothing open.
type observation struct {
	auto.Observation
	pool    capture.PoolStatus
	current *capture.VersionStatus // that the model names; nil for another image
}

// A read pool is a status and its instances, so that Azure is asked once: azure.Places would list all
// machines of the resource group for the Nodes of Flexible sets.
type read struct {
	auto.Service
	status    []capture.PoolStatus
	instances map[string]bool // names, in lower case
}

func (s read) Status(context.Context, []fleet.ResourceID) ([]capture.PoolStatus, error) {
	return s.status, nil
}

// Of implements auto.Places.
func (s read) Of(_ context.Context, n fleet.Node) (p fleet.Place, err error) {
	if p.Instance, err = fleet.ParseMachine(n.ProviderID); err != nil {
		return p, err
	}
	pool, is := s.status[0].Pool.ID, s.instances[strings.ToLower(p.Instance.Name())]
	if p.Pool = p.Instance.UniformPool(); p.Pool == "" && is && p.Instance.Group().Equal(pool.Group()) {
		p.Pool = pool
	}
	return p, nil
}

// A lean Cloud leaves out what no status of the operator has, and has read the pool's instances.
type lean struct {
	azure.Cloud
	pool      fleet.ResourceID
	instances []fleet.Instance
	err       error
}

func (l lean) Instances(ctx context.Context, pool fleet.ResourceID) ([]fleet.Instance, error) {
	if pool.Equal(l.pool) {
		return l.instances, l.err
	}
	return l.Cloud.Instances(ctx, pool)
}

func (lean) StandbyPools(context.Context, fleet.ResourceID) ([]fleet.StandbyPool, error) {
	return nil, nil
}

func (r *Reconciler) observe(ctx context.Context, w wanted) (o observation, err error) {
	config := r.c.Capture
	if r.c.Reads != nil {
		config.Cluster = r.c.Reads
	}
	known := read{instances: map[string]bool{}}
	cloud := lean{Cloud: config.Cloud, pool: w.pool}
	cloud.instances, cloud.err = cloud.Cloud.Instances(ctx, w.pool)
	config.Cloud = cloud
	whole := config.Cluster
	if r.c.NodesOf != nil {
		if config.Cluster, err = r.members(ctx, whole, w, cloud.instances); err != nil {
			return o, err
		}
	}
	all, err := capture.New(config).Status(ctx, []fleet.ResourceID{w.pool})
	if err != nil {
		return o, err
	}
	o.pool = all[0]
	for i := range o.pool.Versions {
		if o.pool.Versions[i].InModel {
			o.current = &o.pool.Versions[i]
		}
	}
	known.status = all
	for _, i := range o.pool.Instances {
		known.instances[strings.ToLower(i.InstanceID)] = true
	}
	seen, err := r.auto(w, config.Cluster, whole, known, func() auto.Places { return known }).Observe(ctx, []fleet.ResourceID{w.pool}, false)
	if err == nil {
		o.Observation = seen[0]
	}
	return o, err
}

// members is the cluster with the Nodes that may be the pool's, so that to observe a pool costs by its own
// size. A Node without a provider id of Azure gets that of the instance that it is.
func (r *Reconciler) members(
	ctx context.Context, whole cluster.Cluster, w wanted, instances []fleet.Instance,
) (cluster.Cluster, error) {
	keys := []string{fleet.PoolKey(w.pool)}
	for _, name := range w.policy.IgnoreNodes { // so that one that is of another pool is known, too
		keys = append(keys, fleet.Claim{Name: name}.Keys()...)
	}
	for _, i := range instances {
		keys = append(keys, i.Computer().Keys()...)
	}
	nodes, err := r.c.NodesOf(ctx, keys)
	roster := fleet.NewRoster(nodes)
	for _, i := range instances {
		if n, _ := roster.Of(i.Computer()); n != nil {
			n.ProviderID = "azure://" + string(i.ID)
		}
	}
	return narrowed{whole, nodes}, err
}

// narrowed is a cluster with some of its Nodes.
type narrowed struct {
	cluster.Cluster
	nodes []fleet.Node
}

// Nodes implements cluster.Nodes.
func (n narrowed) Nodes(context.Context) iter.Seq2[fleet.Node, error] {
	return func(yield func(fleet.Node, error) bool) {
		for _, x := range n.nodes {
			if !yield(x, nil) {
				return
			}
		}
	}
}

func (r *Reconciler) auto(w wanted, nodes, whole auto.Nodes, s auto.Service, places func() auto.Places) *auto.Auto {
	return auto.New(auto.Config{Service: func(fleet.ResourceID) auto.Service { return s }, Nodes: nodes, Cluster: whole, Places: places,
		Policy: w.policy, Groups: r.c.Groups, Request: w.request, Fresh: w.fresh, Now: r.c.Capture.Cluster.Now})
}

// seen sums up for Decide.
func (o observation) seen(of open) (s Seen) {
	s.Canary, s.Due = o.pool.Canary != nil && o.pool.Canary.Obsolete, o.Due && len(o.Refused) == 0
	unfinished := func(v capture.VersionStatus) bool { return !v.InModel && v.RolledBack && v.Tags[fleet.TagWatch] != "" }
	s.Unproven = of.takesBack() && slices.ContainsFunc(o.pool.Versions, unfinished)
	if o.current != nil {
		s.Unproven = s.Unproven || o.current.Tags[fleet.TagProven] == ""
		s.Outdated, s.Begun = len(o.pool.Instances)-o.current.Instances, len(o.pool.Renewing) > 0
	}
	return s
}

// tried is when a capture was begun last, as far as the record shows.
func (o open) tried() (at time.Time) {
	if o.record.Kind == capture.Kind {
		at = o.record.Begun
	}
	return at
}
