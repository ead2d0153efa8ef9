package operator

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/ortet/ortet/internal/azure"
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

// A lean Cloud leaves out what no status of the operator has.
type lean struct{ azure.Cloud }

func (lean) StandbyPools(context.Context, fleet.ResourceID) ([]fleet.StandbyPool, error) {
	return nil, nil
}

func (r *Reconciler) observe(ctx context.Context, w wanted) (o observation, err error) {
	config := r.c.Capture
	if config.Cloud = (lean{config.Cloud}); r.c.Reads != nil {
		config.Cluster = r.c.Reads
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
	known := read{status: all, instances: map[string]bool{}}
	for _, i := range o.pool.Instances {
		known.instances[strings.ToLower(i.InstanceID)] = true
	}
	seen, err := r.auto(w, config.Cluster, known, func() auto.Places { return known }).Observe(ctx, []fleet.ResourceID{w.pool}, false)
	if err == nil {
		o.Observation = seen[0]
	}
	return o, err
}

func (r *Reconciler) auto(w wanted, nodes auto.Nodes, s auto.Service, places func() auto.Places) *auto.Auto {
	return auto.New(auto.Config{Service: func(fleet.ResourceID) auto.Service { return s }, Nodes: nodes, Places: places,
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
