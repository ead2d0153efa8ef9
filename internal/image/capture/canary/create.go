package canary

import (
	"context"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/clones"
	"github.com/ortet/ortet/internal/image/plan"
	"github.com/ortet/ortet/internal/wire"
	"github.com/ortet/ortet/internal/workflow"
)

var done = workflow.Wait{}

const (
	life     = 24 * time.Hour
	emptyFor = time.Minute      // of the drains of all clones at the end
	evictFor = 20 * time.Second // of one, when it is cordoned
)

// create creates the scale set. If it is optional and Azure refuses it for good, as by a
// policy, it is left out.
func (c *Canary) create(ctx context.Context, p *workflow.Pass) (workflow.Wait, error) {
	if c.Outcome.Get().NoCanary != "" {
		return done, nil
	}
	w, err := c.ensure(ctx, p)
	if c.Of().Request.CanaryIfPossible && fleet.Is(err, fleet.KindDenied, fleet.KindInvalid, fleet.KindUnsupported) {
		c.leaveOut(err.Error(), p.Note)
		return done, nil
	}
	return w, err
}

// ensure does not wait for Azure's operation, which ends once each machine has reported: an
// image that does not boot would hold up its deletion.
func (c *Canary) ensure(ctx context.Context, p *workflow.Pass) (workflow.Wait, error) {
	v := c.Of()
	id := fleet.CanaryOf(v.Pool)
	set, err := c.Cloud.Pool(ctx, id)
	_, _, ours := set.Canary()
	deletes := fleet.DeleteScaleSet{Pool: id, Force: true}
	switch {
	case fleet.IgnoreNotFound(err) != nil:
		return done, err
	case err == nil && !ours:
		return done, fleet.Invalid("create canary", string(id), "rename or delete it", "a scale set of this name exists that Ortet did not make")
	case err == nil && set.Tags[fleet.TagCapture] == v.Capture && set.ProvisioningState != plan.Deleting:
		return done, nil
	case err == nil: // another capture left it
		return workflow.GoOn(p.Ensure(ctx, deletes, workflow.Gone(c.Cloud.Pool, id, nil)))
	}
	change, err := c.clone(ctx, p, id)
	if err != nil {
		return done, err
	}
	return p.Ensure(ctx, change, func(ctx context.Context) (bool, error) {
		set, err := c.Cloud.Pool(ctx, id)
		return err == nil && set.Tags[fleet.TagCapture] == v.Capture, fleet.IgnoreNotFound(err)
	})
}

// clone makes clones of what new nodes will be.
func (c *Canary) clone(ctx context.Context, p *workflow.Pass, id fleet.ResourceID) (change fleet.CreateCanary, err error) {
	v := c.Of()
	pool, err := c.Cloud.Pool(ctx, v.Pool)
	if err != nil {
		return change, err
	}
	if problems := v.uncloned(pool, v.knowsCustomData(), nil); len(problems) > 0 {
		return change, fleet.Invalid("create canary", string(id), problems[0].WayOut, "%s", problems[0].What)
	}
	now := c.Cloud.Now().UTC()
	host := regexp.MustCompile(`[^a-z0-9-]+`).ReplaceAllString(strings.ToLower(v.Pool.Name()), "-")
	change = fleet.CreateCanary{
		ID: id, Pool: v.Pool, Image: v.ID, Instances: v.Request.Canary,
		HostPrefix: host[:min(len(host), 40)] + now.Format("-c0102150405"), // a Node's name is never used twice
		Protected:  map[string]fleet.Secret{},
		Tags:       v.Tags,
	}
	change.Tags[fleet.TagCanary] = now.Add(life).Format(time.RFC3339)
	if sha := v.CustomData; sha != "" {
		data, err := c.CustomData(ctx, sha)
		if err != nil {
			return change, err
		}
		change.CustomData = &data
	}
	deleted, _ := v.Request.Extensions.ToDelete(pool.Model.Extensions)
	change.Without = fleet.Each(deleted, func(e fleet.Extension) string { return e.Name })
	for _, e := range pool.Model.Extensions {
		sha := v.protectedSettings(e)
		switch {
		case slices.Contains(change.Without, e.Name):
		case strings.HasPrefix(strings.ToLower(e.Type), "applicationhealth"): // it is for repairs and upgrades
			change.Without = append(change.Without, e.Name)
		case sha == plan.NoSettings:
		case sha == "":
			change.Without = append(change.Without, e.Name)
			p.Note("clones are made without extension %s, whose protected settings Azure does not show", e.Name)
		default:
			kept, err := c.Cluster.GetSecret(ctx, v.Pool, string(wire.ProtectedSettings), sha)
			if err != nil {
				return change, err
			}
			change.Protected[e.Name] = kept.Data
		}
	}
	return change, nil
}

func (c *Canary) delete(ctx context.Context, p *workflow.Pass) (workflow.Wait, error) {
	w, err := c.deleteClones(ctx, p)
	if err == nil && w.RequeueAfter == 0 {
		err = c.deleteTests(ctx)
	}
	return w, err
}

// deleteClones deletes the scale set once what was scheduled there before its nodes were cordoned
// has left.
func (c *Canary) deleteClones(ctx context.Context, p *workflow.Pass) (workflow.Wait, error) {
	v := c.Of()
	id := fleet.CanaryOf(v.Pool)
	deletes := fleet.DeleteScaleSet{Pool: id, Force: true}
	set, err := c.Cloud.Pool(ctx, id)
	switch {
	case err == nil && set.Tags[fleet.TagCapture] != v.Capture:
		return done, nil
	case err == nil && set.ProvisioningState != plan.Deleting:
		if c.empty(ctx, id); ctx.Err() != nil {
			return done, context.Cause(ctx)
		}
		p.Preempts(deletes)
	}
	return p.Ensure(ctx, deletes, workflow.Gone(c.Cloud.Pool, id, nil))
}

// empty evicts pods from the clones. What fails is no reason to leave them there.
func (c *Canary) empty(ctx context.Context, id fleet.ResourceID) {
	end := c.Now().Add(emptyFor)
	all, _ := clones.Pair(ctx, c.Cloud, c.Cluster, id)
	for _, x := range all {
		if left := end.Sub(c.Now()); x.Node != nil && left > 0 {
			if err := clones.SetAside(ctx, c.Cluster, c.Log, *x.Node, left); err != nil {
				c.Log.Debug("cannot cordon a clone", "node", x.Node.Name, "error", err)
			}
		}
	}
}
