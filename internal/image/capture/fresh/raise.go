package fresh

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/clones"
	"github.com/ortet/ortet/internal/image/plan"
	"github.com/ortet/ortet/internal/image/prove"
	"github.com/ortet/ortet/internal/workflow"
)

const (
	listEvery  = 10 * time.Second // from one list of the instances to the next, while it is not clear which Node is the donor
	checkEvery = time.Minute      // likewise, once one is
	lookEvery  = 4 * time.Second  // from one read of its Node to the next, until that exists
	judgeEvery = 20 * time.Second // from one judgement of the donor to the next
	evictFor   = 20 * time.Second // of what came before it was cordoned
)

// raise adds an instance, and sets its Node aside as soon as that exists: the operation goes on
// meanwhile. It is done once the Node passes the gates of a clone, and the operation has ended.
func (r *Raising) raise(ctx context.Context, p *workflow.Pass) (workflow.Wait, error) {
	base, err := workflow.Before(ctx, p, func() (prove.Baseline, error) { return r.baseline(ctx) })
	if err != nil {
		return done, err
	}
	if w, err := r.add(ctx, p); err != nil || w.RequeueAfter > 0 {
		return w, err
	}
	x, err := r.observe(ctx, p)
	if err != nil {
		return done, err
	}
	s, prepared, soak := &r.raising, r.Donor.Get().Prepared, r.Of().Soak
	prepares := r.Of().Prepare != nil && !prepared.Ended
	if prepares && prepared.Boot != "" {
		return r.prepare(ctx, p, x)
	} else if prepares {
		soak = 0
	}
	o := prove.Observation{Begun: s.begun, Soak: soak, Recreates: r.Set.Last.Recreates, Now: r.Cluster.Now(), AzureNow: r.Cloud.Now()}
	if x.Instance.ID != "" {
		o.Clones = []prove.Clone{x}
	}
	if err := clones.Pods(ctx, r.Cluster, o.Clones, 1, nil); err != nil {
		return done, err
	}
	pause := min(judgeEvery, max(o.Soak, lookEvery))
	if x.Node == nil {
		pause = lookEvery
	}
	j := prove.Judge(o, base, 1)
	fails := j.Result == prove.Failed || j.Result == prove.NoResult ||
		s.failure != "" && x.Node == nil && x.Instance.ProvisioningState == "Failed"
	switch {
	case fails && r.Now().Sub(s.listed) >= listEvery: // it may be deleted by now
		s.listed = time.Time{}
		return workflow.In(lookEvery, "%s", j.Why), nil
	case fails:
		return done, fmt.Errorf("the fresh donor did not come up%s: %s%s%s", workflow.SkipIf(prepared.Ended, " after its preparation"),
			workflow.SkipIf(j.Gate != "", "gate "+j.Gate+": "), j.Why,
			workflow.SkipIf(s.failure != "", "; Azure: "+s.failure))
	case j.Result == prove.Waits:
		return workflow.In(pause, "%s", j.Why), nil
	case !s.asked:
		return workflow.In(max(judgeEvery, s.poll.Sub(r.Now())), "%s came up; waiting for Azure's operation", x.Node.Name), nil
	}
	if prepares {
		return r.prepare(ctx, p, x)
	}
	if why, err := r.unproven(x, base.Limit); why != "" || err != nil {
		return workflow.In(judgeEvery, "%s", why), err
	}
	r.Donor.Set(func(d *Donor) { d.Node = x.Node.Name })
	return done, nil
}

// baseline is of the pool's nodes as they are.
func (r *Raising) baseline(ctx context.Context) (b prove.Baseline, err error) {
	others, err := clones.Pair(ctx, r.Cloud, r.Cluster, r.Of().ID)
	if err == nil {
		err = clones.Pods(ctx, r.Cluster, others, clones.MaxSiblings, nil)
	}
	return prove.NewBaseline(prove.Observation{Others: others, Now: r.Cluster.Now(), AzureNow: r.Cloud.Now()}, nil), err
}

// add raises the capacity by one. It returns the zero Wait once that is in effect: Azure's operation
// may go on.
func (r *Raising) add(ctx context.Context, p *workflow.Pass) (workflow.Wait, error) {
	s, was, to := &r.raising, r.Donor.Get().To, r.Donor.Get().To
	if s.asked || r.Now().Before(s.poll) {
		return done, nil
	}
	if was == 0 {
		*s = raising{}
	}
	change := func(pool fleet.Pool) fleet.Change {
		to = cmp.Or(r.Donor.Get().To, pool.Capacity+1)
		return fleet.SetCapacity{Pool: pool.ID, Capacity: to, Etag: pool.Etag}
	}
	is := func(pool fleet.Pool) bool { return r.Donor.Get().To != 0 && pool.Capacity != r.Donor.Get().To-1 }
	w, err := r.Set.Change(ctx, p, r.Of().ID, change, is, func(ctx context.Context, _ fleet.Pool) error {
		if r.Donor.Get().To != 0 {
			return nil
		}
		instances, err := r.Cloud.Instances(ctx, r.Of().ID)
		if err == nil {
			r.Donor.Set(func(d *Donor) {
				*d = Donor{To: to, Before: fleet.Each(instances, func(i fleet.Instance) string { return i.Name })}
			})
		}
		return err
	})
	if was == 0 && workflow.HadNoEffect(err) { // what others add then is none of ours
		r.Donor.Set(func(d *Donor) { *d = Donor{} })
	}
	if err != nil || r.Donor.Get().To == 0 {
		return w, err
	}
	if s.begun.IsZero() {
		s.begun = r.Cloud.Now()
	}
	if s.poll = r.Now().Add(w.RequeueAfter); w.RequeueAfter == 0 {
		s.asked, s.failure, s.listed = true, p.Failure(), time.Time{} // until now Azure deletes what is surplus
	}
	return done, nil
}

// observe returns the donor as it is, without an instance where none is new, and sets its Node aside.
func (r *Raising) observe(ctx context.Context, p *workflow.Pass) (x prove.Clone, err error) {
	s, of, age := &r.raising, r.Of(), r.Now().Sub(r.raising.listed)
	listed := len(s.instances) == 0 || age >= checkEvery || s.unsure && age >= listEvery
	if listed {
		if s.instances, err = r.list(ctx); err != nil {
			return x, err
		}
		s.listed, s.unsure = r.Now(), false
	}
	at, err := r.choose(ctx, p, s.instances, r.Set.Last)
	if err != nil || at < 0 {
		return x, err
	}
	if x = s.instances[at]; !listed {
		n, err := r.Cluster.Node(ctx, strings.ToLower(x.Instance.HostName))
		if fleet.IgnoreNotFound(err) != nil {
			return x, err
		}
		if x.Node = &n; err != nil || n.Claim().Is(x.Instance.Computer()) != nil {
			x.Node = nil
		}
		s.unsure = err == nil && x.Node == nil // Azure shows its vmId later, or it is an earlier machine's
	}
	if x.Node == nil {
		s.unsure = s.unsure || x.Instance.HostName == ""
		return x, nil
	}
	if n := *x.Node; n.Annotations[fleet.AnnotationFresh] != of.Capture || !n.Unschedulable {
		mark := map[string]*string{fleet.AnnotationFresh: &of.Capture, fleet.AnnotationScaleDownDisabled: new("true")}
		err = r.Cluster.Annotate(ctx, n.Name, mark)
		if err == nil {
			err = clones.SetAside(ctx, r.Cluster, r.Log, n, evictFor)
		}
	}
	return x, err
}

// list returns the instances that came since the capacity was raised, but for those that are deleted.
func (r *Raising) list(ctx context.Context) ([]prove.Clone, error) {
	all, err := clones.Pair(ctx, r.Cloud, r.Cluster, r.Of().ID)
	d := r.Donor.Get()
	return slices.DeleteFunc(all, func(x prove.Clone) bool {
		deleted := strings.EqualFold(x.Instance.ProvisioningState, plan.Deleting) && !x.Instance.ID.Equal(d.Instance)
		return deleted || slices.Contains(d.Before, x.Instance.Name)
	}), err
}

// choose returns which of the new instances is the donor, -1 for none. Of several, as beside an
// autoscaler, it is one without a Node that pods may be on. The choice is saved, and stays so until the
// instance is gone: of a scale set that overprovisions, Azure may have deleted it as surplus.
func (r *Raising) choose(ctx context.Context, p *workflow.Pass, all []prove.Clone, pool fleet.Pool) (at int, err error) {
	d := r.Donor.Get()
	at = slices.IndexFunc(all, func(x prove.Clone) bool { return d.Instance != "" && x.Instance.ID.Equal(d.Instance) })
	gone := d.Instance != "" && (at < 0 || strings.EqualFold(all[at].Instance.ProvisioningState, plan.Deleting))
	switch {
	case gone && !pool.Overprovision:
		r.Lost = true
		return -1, errors.New("others deleted the fresh donor " + d.Instance.Name())
	case at >= 0 && !gone:
		return at, nil
	}
	rank := func(x prove.Clone) int {
		switch {
		case x.Instance.ID.Equal(d.Instance): // it is surplus
			return 3
		case x.Node == nil, x.Node.Annotations[fleet.AnnotationFresh] == r.Of().Capture:
			return 0
		case !x.Node.Ready:
			return 1
		}
		return 2
	}
	slices.SortStableFunc(all, func(a, b prove.Clone) int { return cmp.Compare(rank(a), rank(b)) })
	if len(all) == 0 || rank(all[0]) == 3 {
		return -1, nil
	}
	r.Donor.Set(func(d *Donor) { d.Instance = all[0].Instance.ID })
	return 0, p.Save(ctx)
}
