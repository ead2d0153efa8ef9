package fresh

import (
	"cmp"
	"context"
	"strings"
	"time"

	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/clones"
	"github.com/ortet/ortet/internal/workflow"
)

// delete deletes the instance, which lowers the capacity. The capacity alone is lowered only where it
// is more than there are instances: otherwise Azure would choose which one goes.
func (r *Raising) delete(ctx context.Context, p *workflow.Pass) (workflow.Wait, error) {
	d, id := r.Donor.Get(), r.Of().ID
	if d.To == 0 {
		return done, nil
	}
	if !d.Deleting {
		if w, err := r.chooseDeleted(ctx, p); err != nil || w.RequeueAfter > 0 || r.Donor.Get().To == 0 {
			return w, err
		}
		d = r.Donor.Get()
	}
	change := fleet.DeleteInstances{Pool: id, Instances: []string{d.Instance.Name()}}
	gone := workflow.Gone(r.Cloud.Instance, d.Instance, nil)
	w, err := p.Ensure(ctx, change, func(ctx context.Context) (bool, error) {
		is, err := gone(ctx)
		r.Lost = r.Lost || is && !r.Donor.Get().Deleting
		r.Donor.Set(func(d *Donor) { d.Deleting = true }) // until then the operation that adds it may go on, and its Node come
		return is, err
	})
	return r.ended(ctx, w, err)
}

// chooseDeleted finds the instance to delete where none was chosen, or Azure deleted that as surplus.
func (r *Raising) chooseDeleted(ctx context.Context, p *workflow.Pass) (workflow.Wait, error) {
	d, id := r.Donor.Get(), r.Of().ID
	pool, err := r.Cloud.Pool(ctx, id)
	if fleet.Is(err, fleet.KindNotFound) {
		return r.ended(ctx, done, nil)
	}
	if err != nil {
		return done, err
	}
	if pool.Overprovision && d.Instance != "" && pool.Capacity == d.To {
		if _, err := r.Cloud.Instance(ctx, d.Instance); fleet.Is(err, fleet.KindNotFound) {
			d.Instance = ""
		}
	}
	if d.Instance == "" {
		why, _, err := r.rest.Updating(ctx, r.Cloud, pool, r.Now())
		if err != nil || why != "" {
			return workflow.In(azure.RestInterval, "waiting until scale set %s is not updating: %s", pool.Name, why), err
		}
		added, err := r.list(ctx)
		if err != nil {
			return done, err
		}
		r.Donor.Set(func(d *Donor) { d.Instance = "" })
		if at, err := r.choose(ctx, p, added, pool); err != nil || at < 0 {
			return r.lower(ctx, p, err)
		}
	}
	return done, r.empty(ctx)
}

// empty sets the Node of the instance to delete aside: one that was not chosen yet, or that others
// uncordoned, may have pods.
func (r *Raising) empty(ctx context.Context) error {
	i, err := r.Cloud.Instance(ctx, r.Donor.Get().Instance)
	if err != nil {
		return fleet.IgnoreNotFound(err)
	}
	n, err := r.Cluster.Node(ctx, strings.ToLower(i.HostName))
	if err == nil && !n.Unschedulable && n.Claim().Is(i.Computer()) == nil {
		err = clones.SetAside(ctx, r.Cluster, r.Log, n, evictFor)
	}
	return fleet.IgnoreNotFound(err)
}

// lower gives back the capacity for which Azure made no instance. A request whose answer was lost may
// still take effect for a minute.
func (r *Raising) lower(ctx context.Context, p *workflow.Pass, err error) (workflow.Wait, error) {
	d, id := r.Donor.Get(), r.Of().ID
	if err != nil {
		return done, err
	}
	instances, err := r.Cloud.Instances(ctx, id)
	if err != nil {
		return done, err
	}
	change := func(pool fleet.Pool) fleet.Change {
		return fleet.SetCapacity{Pool: id, Capacity: d.To - 1, Etag: pool.Etag}
	}
	is := func(pool fleet.Pool) bool { return pool.Capacity != d.To || int64(len(instances)) >= pool.Capacity }
	w, err := r.Set.Change(ctx, p, id, change, is, func(context.Context, fleet.Pool) error { return nil })
	if err == nil && w.RequeueAfter == 0 && p.Since() < settleFor {
		w = workflow.In(listEvery, "waiting for an instance that may still come")
	}
	return r.ended(ctx, w, err)
}

const settleFor = time.Minute

// ended forgets the donor once it is deleted, with its pods.
func (r *Raising) ended(ctx context.Context, w workflow.Wait, err error) (workflow.Wait, error) {
	if err == nil && w.RequeueAfter == 0 && r.Donor.Get().Prepared.Boot != "" {
		for _, job := range r.jobs() {
			err = cmp.Or(err, r.Cluster.ForceDeleteJob(ctx, job.Name))
		}
	}
	if err == nil && w.RequeueAfter == 0 {
		r.Donor.Set(func(d *Donor) { *d = Donor{} })
		r.raising = raising{}
	}
	return w, err
}
