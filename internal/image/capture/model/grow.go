package model

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
	newNodesFor   = 15 * time.Minute // from the capacity's effect until new nodes have to be Ready
	newNodesEvery = 10 * time.Second
)

// Wishes returns the growth of a version for n nodes, as far as this one is of the same version.
func Wishes(g plan.Growth, version fleet.ResourceID, n int64) plan.Growth {
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
func (m *Model) grow(ctx context.Context, p *workflow.Pass) (workflow.Wait, error) {
	m.Grew = true
	if m.Inherited.Get().Growth.Accepted.IsZero() {
		if w, err := m.addNodes(ctx, p); err != nil || w.RequeueAfter > 0 {
			return w, err
		}
		m.growth(func(g *plan.Growth) { g.Accepted, g.Failure = m.Now(), p.Failure() })
		if err := p.Save(ctx); err != nil {
			return done, err
		}
	}
	return m.awaitNewNodes(ctx)
}

// addNodes computes the capacity of the scale set as it was read, and asks for it with that
// read's ETag. A request that was refused had no effect. One whose answer was lost had it if the
// capacity is reached, or if as many instances came; otherwise others preempted it, and those that
// came count: whose they are is not known, and nothing is billed twice.
func (m *Model) addNodes(ctx context.Context, p *workflow.Pass) (workflow.Wait, error) {
	t, g := m.Of(), m.Inherited.Get().Growth
	if _, err := m.Set.Pool(ctx, t.Pool); err != nil {
		return done, err
	}
	asked := g.Capacity != 0
	preempted := asked && m.Set.Last.Etag != g.Etag && m.Set.Last.Capacity < g.Capacity
	if !asked || preempted {
		var there []prove.Clone
		if preempted || len(g.Nodes) > 0 || g.Unmet > 0 {
			var err error
			if there, err = clones.Pair(ctx, m.Cloud, m.Cluster, t.Pool); err != nil || preempted && (p.Accepted() || len(fresh(g, there)) == int(g.Adds)) {
				return done, err
			}
		}
		if came := fresh(g, there); !preempted {
			g.Adds = 0 // what came is none of a request that was refused
		} else if len(came) > 0 {
			p.Note("others changed scale set %s while it grew: %s counts as new, though others may have added it", t.Pool.Name(),
				strings.Join(fleet.Each(came, func(x prove.Clone) string { return x.Instance.Name }), ", "))
		}
		g.Nodes = slices.DeleteFunc(observed(g, there), func(n plan.NewNode) bool { return n.Why == noInstance })
		g.Capacity, asked = 0, false
		g.Adds = max(0, g.Wanted-int64(len(g.Nodes)))
		if g.Raises = g.Adds; g.Unmet > 0 && m.Set.Last.Capacity >= g.Unmet { // an operation that failed may leave the capacity raised
			g.Raises -= min(g.Adds, max(0, m.Set.Last.Capacity-int64(len(there))))
		}
		if m.growth(func(now *plan.Growth) { *now = g }); g.Adds == 0 {
			return done, nil
		}
	}
	change := func(pool fleet.Pool) fleet.Change {
		return fleet.SetCapacity{Pool: t.Pool, Capacity: pool.Capacity + g.Raises, Etag: pool.Etag}
	}
	is := func(pool fleet.Pool) bool {
		to := m.Inherited.Get().Growth.Capacity
		return to != 0 && pool.Capacity >= to
	}
	w, err := m.Set.Change(ctx, p, t.Pool, change, is, func(ctx context.Context, pool fleet.Pool) error {
		if err := m.stillNamed(ctx, pool); err != nil || m.Inherited.Get().Growth.Capacity != 0 {
			return err
		}
		instances, err := m.Cloud.Instances(ctx, t.Pool)
		m.growth(func(g *plan.Growth) {
			g.Capacity, g.Etag = pool.Capacity+g.Raises, pool.Etag
			g.Before = fleet.Each(instances, func(i fleet.Instance) string { return i.Name })
		})
		return err
	})
	if !asked && workflow.HadNoEffect(err) {
		m.growth(func(g *plan.Growth) { g.Capacity, g.Before = 0, nil })
	}
	return w, err
}

func (m *Model) growth(change func(*plan.Growth)) {
	m.Inherited.Set(func(h *plan.Inherited) { change(&h.Growth) })
}

// stillNamed returns an error if the model names another image by now: nodes of that are not those
// that were wished for, so a repeat would add as many again.
func (m *Model) stillNamed(ctx context.Context, pool fleet.Pool) error {
	version, image := m.Inherited.Get().Growth.Version, pool.Model.Image
	if image.Same(fleet.ImageReference{ID: version}) {
		return nil
	}
	versions, err := m.Cloud.Versions(ctx, version.Parent())
	if fleet.IgnoreNotFound(err) != nil {
		return err
	}
	if named, known := plan.VersionOf(versions, image, pool.Location); known && named.ID.Equal(version) {
		return nil
	}
	return fleet.Invalid("add nodes", string(pool.ID), "", "the model names %s by now, not %s, so no node was added", image.Text(), version.Name())
}

// awaitNewNodes waits until the new nodes are Ready. If a watch follows, that judges them, and
// their instances are enough.
func (m *Model) awaitNewNodes(ctx context.Context) (workflow.Wait, error) {
	t, g := m.Of(), m.Inherited.Get().Growth
	there, err := clones.Pair(ctx, m.Cloud, m.Cluster, t.Pool)
	if err != nil {
		return done, err
	}
	nodes := observed(g, there)
	ready, exist, waits := 0, 0, int64(len(nodes)) < g.Wanted
	for _, n := range nodes {
		if n.Why != noInstance {
			exist++
		}
		if n.Ready {
			ready++
		}
		waits = waits || !n.Ready && !t.Watched && n.Why != noInstance && n.Why != failedInAzure
	}
	of := fmt.Sprintf("%d of %s of %s Ready", ready, fleet.Count(int(g.Wanted), "new node"), g.Version.Name())
	if waits && m.Now().Sub(g.Accepted) < newNodesFor {
		keep := slices.DeleteFunc(slices.Clone(nodes), func(n plan.NewNode) bool { // others of an overprovisioned set go again
			return !n.Ready && !slices.ContainsFunc(g.Nodes, func(k plan.NewNode) bool { return k.Instance == n.Instance })
		})
		m.growth(func(g *plan.Growth) { g.Nodes = keep })
		return workflow.In(newNodesEvery, "%s", of), nil
	}
	came := int64(ready) >= g.Wanted || t.Watched && int64(exist) >= g.Wanted
	m.growth(func(g *plan.Growth) { g.Nodes, g.Done = nodes, came })
	if !came {
		return done, errors.New(of)
	}
	return done, nil
}

// Ended says how things are after a capture that ended at the row grow, and what is left.
func (m *Model) Ended() (ended string, left []string) {
	t := m.Of()
	image := m.Set.Last.Model.Image // as read before the nodes were asked for
	ended = fmt.Sprintf("new nodes of %s come from %s, but this needs a person", t.Pool.Name(), cmp.Or(image.Exact().Name(), image.Text(), t.Version.Name()))
	left = lacking(m.Inherited.Get().Growth, t.Pool.Name(), "the same command"+workflow.SkipIf(t.Request.Again, " without --again"))
	if t.Watched {
		left = append(left, "nothing watches the nodes of "+t.Version.Name()+"; run ortet watch "+t.Pool.Name())
	}
	return ended, left
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
			cmp.Or(g.Failure, workflow.SkipIf(!g.Accepted.IsZero(), "or others deleted what came"), "the reason is above"), command))
	}
	return all
}
