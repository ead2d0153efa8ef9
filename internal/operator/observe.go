package operator

import (
	"context"
	"encoding/json"
	"slices"
	"time"

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
	o.record, err = r.c.Capture.Journal.Load(ctx, string(pool))
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

// A read service gives a status that was read already, so that Azure is asked once.
type read struct {
	auto.Service
	status []capture.PoolStatus
}

func (s read) Status(context.Context, []fleet.ResourceID) ([]capture.PoolStatus, error) {
	return s.status, nil
}

func (r *Reconciler) observe(ctx context.Context, w wanted) (o observation, err error) {
	config := r.c.Capture
	if r.c.Reads != nil {
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
	seen, err := r.auto(w, config.Cluster, read{status: all}).Observe(ctx, []fleet.ResourceID{w.pool}, false)
	if err == nil {
		o.Observation = seen[0]
	}
	return o, err
}

func (r *Reconciler) auto(w wanted, nodes auto.Nodes, s auto.Service) *auto.Auto {
	return auto.New(auto.Config{Service: func(fleet.ResourceID) auto.Service { return s }, Nodes: nodes, Places: r.c.Places,
		Policy: w.policy, Groups: r.c.Groups, Request: w.request, Fresh: w.fresh, Now: r.c.Capture.Cluster.Now})
}

// seen sums up for Decide.
func (o observation) seen(of open) (s Seen) {
	s.Canary, s.Due = o.pool.Canary != nil && o.pool.Canary.Obsolete, o.Due && len(o.Refused) == 0
	unfinished := func(v capture.VersionStatus) bool { return !v.InModel && v.RolledBack && v.Tags[fleet.TagWatch] != "" }
	s.Unproven = of.takesBack() && slices.ContainsFunc(o.pool.Versions, unfinished)
	if o.current != nil {
		s.Unproven = s.Unproven || o.current.Tags[fleet.TagProven] == ""
		s.Outdated = len(o.pool.Instances) - o.current.Instances
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
