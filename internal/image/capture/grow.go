package capture

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/clones"
	"github.com/ortet/ortet/internal/image/plan"
	"github.com/ortet/ortet/internal/image/prove"
	"github.com/ortet/ortet/internal/workflow"
)

const (
	newNodesFor   = 15 * time.Minute // from the capacity's effect until new nodes have to be Ready
	newNodesEvery = 10 * time.Second
)

// wishes returns the growth of a version for n nodes, as far as this one is of the same version.
func wishes(g plan.Growth, version fleet.ResourceID, n int64) plan.Growth {
	if !g.Version.Equal(version) {
		return plan.Growth{Version: version, Wanted: n}
	}
	g.Done = g.Done && g.Wanted >= n
	if g.Wanted = n; !g.Accepted.IsZero() { // by an earlier capture, which has named what it added
		g = plan.Growth{Version: version, Wanted: n, Done: g.Done, Nodes: g.Nodes, Unmet: g.Capacity}
	}
	return g
}

// fresh returns the instances that are made of the version, and are none of those before.
func fresh(g plan.Growth, clones []prove.Clone) (all []prove.Clone) {
	for _, x := range clones {
		known := slices.Contains(g.Before, x.Instance.Name) || slices.ContainsFunc(g.Nodes, func(n plan.NewNode) bool { return n.Instance == x.Instance.Name })
		if !known && x.Instance.Image.Exact().Equal(g.Version) {
			all = append(all, x)
		}
	}
	slices.SortFunc(all, func(a, b prove.Clone) int {
		return cmp.Or(a.Instance.Created.Compare(b.Instance.Created), cmp.Compare(len(a.Instance.Name), len(b.Instance.Name)), cmp.Compare(a.Instance.Name, b.Instance.Name))
	})
	return all[:min(len(all), max(0, int(g.Adds)))]
}

// observed returns the nodes of the growth as they are now. One that was Ready stays so.
func observed(g plan.Growth, clones []prove.Clone) (nodes []plan.NewNode) {
	for _, n := range g.Nodes {
		i := slices.IndexFunc(clones, func(x prove.Clone) bool { return x.Instance.Name == n.Instance })
		switch {
		case n.Ready:
		case i < 0:
			n.Why = noInstance
		default:
			n = newNode(clones[i])
		}
		nodes = append(nodes, n)
	}
	for _, x := range fresh(g, clones) {
		nodes = append(nodes, newNode(x))
	}
	return nodes
}

const noInstance, failedInAzure = "the instance does not exist any more", "the instance is Failed in Azure"

func newNode(x prove.Clone) plan.NewNode {
	n := plan.NewNode{Instance: x.Instance.Name}
	switch {
	case x.Node != nil:
		n.Node, n.Ready = x.Node.Name, x.Node.Ready
		n.Why = workflow.SkipIf(!n.Ready, "its Node is not Ready ("+x.Node.NotReadyWhy+")")
	case x.Instance.ProvisioningState == "Failed":
		n.Why = failedInAzure
	case len(x.Rivals) > 0:
		n.Why = "it has no Node, and node " + x.Rivals[0] + " reports that it is the instance"
	default:
		n.Why = "it has no Node; its provisioning state is " + x.Instance.ProvisioningState
	}
	return n
}

// grow raises the capacity by what is missing, and waits until the new nodes are Ready.
func (c *capture) grow(ctx context.Context, p *workflow.Pass) (workflow.Wait, error) {
	c.grew = true
	if c.get().Growth.Accepted.IsZero() {
		if w, err := c.addNodes(ctx, p); err != nil || w.RequeueAfter > 0 {
			return w, err
		}
		c.set(func(s *state) { s.Growth.Accepted, s.Growth.Failure = c.Now(), p.Failure() })
		if err := p.Save(ctx); err != nil {
			return done, err
		}
	}
	return c.awaitNewNodes(ctx)
}

// addNodes computes the capacity of the scale set as it was read, and asks for it with that
// read's ETag. A request that was refused had no effect. One whose answer was lost had it if the
// capacity is reached, or if as many instances came; otherwise others preempted it.
func (c *capture) addNodes(ctx context.Context, p *workflow.Pass) (workflow.Wait, error) {
	s := c.get()
	if _, err := c.ScaleSet.Pool(ctx, s.Pool); err != nil {
		return done, err
	}
	g := s.Growth
	asked := g.Capacity != 0
	preempted := asked && c.Last.Etag != g.Etag && c.Last.Capacity < g.Capacity
	if !asked || preempted {
		var there []prove.Clone
		if preempted || len(g.Nodes) > 0 || g.Unmet > 0 {
			var err error
			if there, err = clones.Pair(ctx, c.Cloud, c.Cluster, s.Pool); err != nil || preempted && (p.Accepted() || len(fresh(g, there)) == int(g.Adds)) {
				return done, err
			}
		}
		g.Adds, g.Capacity, asked = 0, 0, false
		g.Nodes = slices.DeleteFunc(observed(g, there), func(n plan.NewNode) bool { return n.Why == noInstance })
		g.Adds = max(0, g.Wanted-int64(len(g.Nodes)))
		if g.Raises = g.Adds; g.Unmet > 0 && c.Last.Capacity >= g.Unmet { // an operation that failed may leave the capacity raised
			g.Raises -= min(g.Adds, max(0, c.Last.Capacity-int64(len(there))))
		}
		if c.set(func(s *state) { s.Growth = g }); g.Adds == 0 {
			return done, nil
		}
	}
	change := func(pool fleet.Pool) fleet.Change {
		return fleet.SetCapacity{Pool: s.Pool, Capacity: pool.Capacity + g.Raises, Etag: pool.Etag}
	}
	is := func(pool fleet.Pool) bool {
		to := c.get().Growth.Capacity
		return to != 0 && pool.Capacity >= to
	}
	w, err := c.Change(ctx, p, s.Pool, change, is, func(ctx context.Context, pool fleet.Pool) error {
		if err := c.stillNamed(ctx, pool); err != nil || c.get().Growth.Capacity != 0 {
			return err
		}
		instances, err := c.Cloud.Instances(ctx, s.Pool)
		c.set(func(s *state) {
			g := &s.Growth
			g.Capacity, g.Etag = pool.Capacity+g.Raises, pool.Etag
			g.Before = fleet.Each(instances, func(i fleet.Instance) string { return i.Name })
		})
		return err
	})
	if !asked && hadNoEffect(err) {
		c.set(func(s *state) { s.Growth.Capacity, s.Growth.Before = 0, nil })
	}
	return w, err
}

// stillNamed returns an error if the model names another image by now: nodes of that are not those
// that were wished for, so a repeat would add as many again.
func (c *capture) stillNamed(ctx context.Context, pool fleet.Pool) error {
	version, image := c.get().Growth.Version, pool.Model.Image
	if image.Same(fleet.ImageReference{ID: version}) {
		return nil
	}
	versions, err := c.Cloud.Versions(ctx, version.Parent())
	if fleet.IgnoreNotFound(err) != nil {
		return err
	}
	if named, known := plan.VersionOf(versions, image, pool.Location); known && named.ID.Equal(version) {
		return nil
	}
	return fleet.Invalid("add nodes", string(pool.ID), "", "the model names %s by now, not %s, so no node was added", image.Text(), version.Name())
}

// hadNoEffect reports whether the service itself refused a change. What is without a code may be
// the answer of a proxy.
func hadNoEffect(err error) bool {
	e := new(fleet.Error)
	return fleet.Is(err, fleet.KindStale, fleet.KindThrottled) ||
		errors.As(err, &e) && e.Code != "" && !fleet.Is(err, fleet.KindUnknown, fleet.KindTransient, fleet.KindTimedOut)
}

// awaitNewNodes waits until the new nodes are Ready. If a watch follows, that judges them, and
// their instances are enough.
func (c *capture) awaitNewNodes(ctx context.Context) (workflow.Wait, error) {
	s, watched := c.get(), len(c.Next) > 0
	there, err := clones.Pair(ctx, c.Cloud, c.Cluster, s.Pool)
	if err != nil {
		return done, err
	}
	g := s.Growth
	nodes := observed(g, there)
	ready, exist, waits := 0, 0, int64(len(nodes)) < g.Wanted
	for _, n := range nodes {
		if n.Why != noInstance {
			exist++
		}
		if n.Ready {
			ready++
		}
		waits = waits || !n.Ready && !watched && n.Why != noInstance && n.Why != failedInAzure
	}
	of := fmt.Sprintf("%d of %s of %s Ready", ready, fleet.Count(int(g.Wanted), "new node"), g.Version.Name())
	if waits && c.Now().Sub(g.Accepted) < newNodesFor {
		keep := slices.DeleteFunc(slices.Clone(nodes), func(n plan.NewNode) bool { // others of an overprovisioned set go again
			return !n.Ready && !slices.ContainsFunc(g.Nodes, func(k plan.NewNode) bool { return k.Instance == n.Instance })
		})
		c.set(func(s *state) { s.Growth.Nodes = keep })
		return workflow.In(newNodesEvery, "%s", of), nil
	}
	came := int64(ready) >= g.Wanted || watched && int64(exist) >= g.Wanted
	c.set(func(s *state) { s.Growth.Nodes, s.Growth.Done = nodes, came })
	if !came {
		return done, errors.New(of)
	}
	return done, nil
}

// lacking lists the new nodes that are not Ready, each with what to do.
func lacking(g plan.Growth, pool, command string) (all []string) {
	for _, n := range g.Nodes {
		what := map[string]string{noInstance: command + " adds another", failedInAzure: "delete it, then " + command + " adds another"}[n.Why]
		if !n.Ready {
			all = append(all, fmt.Sprintf("new node %s: %s; %s", n.Instance, n.Why, cmp.Or(what,
				"ortet nodes --pool "+pool+" shows why; "+command+" waits for it again, or adds another once it is deleted")))
		}
	}
	if missing := g.Wanted - int64(len(g.Nodes)); missing > 0 {
		all = append(all, fmt.Sprintf("Azure did not add %s (%s); %s adds what is missing", fleet.Count(int(missing), "new node"),
			cmp.Or(g.Failure, "the reason is above"), command))
	}
	return all
}
