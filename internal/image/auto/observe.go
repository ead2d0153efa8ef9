package auto

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/capture"
	"github.com/ortet/ortet/internal/image/clones"
	"github.com/ortet/ortet/internal/image/donors"
	"github.com/ortet/ortet/internal/image/plan"
	"github.com/ortet/ortet/internal/image/rollback"
	"github.com/ortet/ortet/internal/workflow"
)

// Pools returns the scale sets that the cluster's Nodes are instances of, by id.
func (a *Auto) Pools(ctx context.Context) ([]fleet.ResourceID, error) {
	nodes, err := a.nodes(ctx)
	if err != nil {
		return nil, err
	}
	var pools []fleet.ResourceID
	for _, key := range slices.Sorted(maps.Keys(nodes.of)) {
		pools = append(pools, nodes.of[key][0].place.Pool)
	}
	return pools, nil
}

// Observe returns an Observation for each of the pools, in their order, and changes nothing. With
// all, pools that are not ours to change are left out; otherwise they were named, and
// the reason is in Refused.
func (a *Auto) Observe(ctx context.Context, pools []fleet.ResourceID, all bool) ([]Observation, error) {
	nodes, err := a.nodes(ctx)
	if err != nil {
		return nil, err
	}
	observations := make([]Observation, len(pools))
	var g errgroup.Group
	g.SetLimit(a.c.MaxParallel)
	for i, id := range pools {
		g.Go(func() error {
			s, err := a.c.Service(id).Status(ctx, []fleet.ResourceID{id})
			if err == nil {
				observations[i] = a.observe(s[0], nodes, all)
			}
			if o := &observations[i]; err == nil && o.Due && len(o.Refused) == 0 && o.Left == "" && o.Resumes == "" {
				err = a.blocked(ctx, o, s[0].Pool.ID, nodes.all)
			}
			return err
		})
	}
	return observations, g.Wait()
}

func keyOf(pool fleet.ResourceID) string { return strings.ToLower(string(pool)) }

// members are the cluster's Nodes, and those of each pool by its id in lower case.
type members struct {
	all []fleet.Node
	of  map[string][]member
}

type member struct {
	fleet.Node
	place fleet.Place
}

func (a *Auto) nodes(ctx context.Context) (members, error) {
	m, places := members{of: map[string][]member{}}, a.c.Places()
	for n, err := range a.c.Nodes.Nodes(ctx) {
		if err != nil {
			return members{}, err
		}
		m.all = append(m.all, n)
		place, err := places.Of(ctx, n)
		switch {
		case err == nil:
			key := keyOf(place.Pool)
			m.of[key] = append(m.of[key], member{n, place})
		case !capture.Unplaced(err):
			return members{}, err
		}
	}
	return m, nil
}

// observe judges a pool.
func (a *Auto) observe(s capture.PoolStatus, cluster members, all bool) Observation {
	var nodes []fleet.Node
	of := map[string]fleet.ResourceID{}
	p := donors.Pool{ID: s.Pool.ID}
	instances := map[string]capture.InstanceStatus{}
	var nobodies []string
	for _, i := range s.Instances {
		instances[strings.ToLower(i.InstanceID)] = i
	}
	for _, m := range cluster.of[keyOf(s.Pool.ID)] {
		// A Node outlives its instance by a minute or so, and may name one that it is not: neither says
		// anything of the pool.
		i, ok := instances[strings.ToLower(m.place.Instance.Name())]
		why := m.Claim().Is(fleet.Computer{ID: m.place.Instance, HostName: i.HostName, VMID: i.VMID})
		switch {
		case !ok && s.Problem == "", m.Annotations[fleet.AnnotationFresh] != "": // a capture deletes it
		case ok && why != nil:
			nobodies = append(nobodies, why.Error())
		default: // or the instances could not be read
			nodes, of[m.Name] = append(nodes, m.Node), m.place.Instance
			if ok {
				p.Members = append(p.Members, donors.Member{Node: m.Node, Created: i.Created, Power: i.Power})
			}
		}
	}
	for _, v := range s.Versions {
		// When its disk was captured, or else when it was published.
		if at := cmp.Or(v.BuiltAt, v.Published); counts(v, s.Capture) && at.After(p.Newest) {
			p.Newest, p.NewestName, p.RolledBack = at, v.Name, v.RolledBack
		}
	}
	choose := donors.Choose
	if a.c.Fresh {
		choose = donors.Due
	}
	l := Observation{instances: of, Choice: choose(p, a.c.Policy, a.c.Now()), Notes: append(a.c.Policy.Notes(nodes, cluster.all), nobodies...)}
	if a.c.Request.Again {
		l.Due, l.Because = true, "--again"
	}
	refuse := func(code, what, wayOut string) {
		l.Refused = append(l.Refused, fleet.Problem{Code: code, On: string(s.Pool.ID), What: what, WayOut: wayOut})
	}
	if owned := a.owned(s, nodes); owned != nil {
		if all {
			l.Left = owned.What
			return l
		}
		l.Refused = append(l.Refused, *owned)
		return l
	}
	switch c := s.Capture; {
	case s.JournalDenied:
		refuse(plan.CodeClusterDenied, "these credentials may not read the Secret with its journal, as where it was made after the Helm chart was installed",
			fmt.Sprintf("run helm upgrade, which finds it, or where ortet.pools is set add it there (%s); without the chart, grant get and update on its Secrets (docs/reference/kubernetes-permissions.md)", s.Pool.ID))
	case s.Problem != "":
		refuse("Unreadable", s.Problem, "try again")
	case c != nil && c.Ended == nil && c.Kind == rollback.Kind:
		refuse("RollbackOpen", "a rollback of it has not ended",
			"if it is not under way, run ortet rollback "+string(s.Pool.ID)+" again, which finishes it")
	case c != nil && c.Ended == nil && c.Fresh == a.c.Fresh: // else it is undone by the next that is due
		l.Resumes = cmp.Or(c.Donor, "a fresh donor")
	case a.c.Fresh && all && len(p.Members) == 0: // it may be another cluster's, as a Node's own word is not enough
		l.Left = "no node of it is in this cluster; --pool " + string(s.Pool.ID) + " captures a pool at zero"
	}
	if s.JournalDenied || s.Problem != "" {
		l.Unread = l.Refused
	}
	return l
}

// blocked sets an Observation's Blockers. The whole cluster is read only where none of the pool's own nodes
// can serve, so that to observe a pool costs by its own size.
func (a *Auto) blocked(ctx context.Context, o *Observation, pool fleet.ResourceID, near []fleet.Node) error {
	o.Blockers = a.blockers(pool, o.Candidates, near)
	if o.Blockers == nil || a.c.Cluster == nil {
		return nil
	}
	all, err := clones.Nodes(ctx, a.c.Cluster)
	o.Blockers = a.blockers(pool, o.Candidates, all)
	return err
}

// blockers says that no other node can be the workbench of any donor that qualifies. Which
// of those that may be has room for a disk only a capture finds.
func (a *Auto) blockers(pool fleet.ResourceID, candidates []donors.Candidate, all []fleet.Node) []fleet.Problem {
	why, on := map[string]int{}, ""
	for _, c := range candidates {
		i := slices.IndexFunc(all, func(n fleet.Node) bool { return n.Name == c.Node })
		if !c.Eligible || i < 0 {
			continue
		}
		counted := map[string]int{}
		for _, n := range all {
			reason := plan.CannotServe(all[i], n, pool, a.c.Request.Workbench != "" || a.c.Request.OtherPools)
			if only := a.c.Request.Workbench; reason == "" && (only == "" || only == n.Name) {
				return nil
			}
			counted[reason]++
		}
		if on == "" { // of the best one
			why, on = counted, "node "+c.Node
		}
	}
	if on == "" {
		return nil
	}
	return []fleet.Problem{{
		Code: plan.CodeNoWorkbench, On: on, What: "no other node can work on a copy of its disk: " +
			plan.Tally(why), WayOut: plan.NeedsWorkbench,
	}}
}

// owned says why a pool is not ours to change; nil where it is.
func (a *Auto) owned(s capture.PoolStatus, nodes []fleet.Node) *fleet.Problem {
	problem := func(code, what, wayOut string) *fleet.Problem {
		return &fleet.Problem{Code: code, On: string(s.Pool.ID), What: what, WayOut: wayOut}
	}
	if s.Gone {
		return problem("PoolNotFound", "Azure has no such scale set", "name a pool that exists (az vmss list)")
	}
	workers := len(nodes) == 0
	for _, n := range append([]fleet.Node{{ControlPlane: true}}, nodes...) { // the first is for what the scale set shows
		if by := fleet.AKSMark(n.Labels, s.Pool.ID, s.Pool.Tags); by != "" {
			return problem("ManagedByAKS", "AKS manages it ("+by+")", "use AKS's own node images, or a pool of your own")
		}
		workers = workers || !n.ControlPlane
	}
	switch p := s.Pool; {
	case !workers:
		return problem("ControlPlane", "its nodes are control plane nodes", "name a pool of workers")
	case s.Unread:
		return nil
	case !p.NoProfile && !p.Model.Linux:
		return problem("NotLinuxPool", "its model is not Linux", "name a Linux pool")
	}
	for _, p := range plan.ModelProblems(s.Pool, true, true, a.c.Request.AllowOwned || a.c.Request.PublishOnly) {
		switch p.Code {
		case plan.CodeOwnedByClusterAPI:
			p.WayOut += plan.OrPublishOnly
			return &p
		case plan.CodeIsCanary, plan.CodeNoProfile:
			return &p
		}
	}
	return nil
}

// counts reports whether a version decides when the next one is due. One that the last
// capture made before it failed, as at the model, does not: nodes never came from it. Nor does
// one without a canary's result.
func counts(v capture.VersionStatus, last *capture.RunStatus) bool {
	if v.ProvisioningState == "Failed" || v.ProvisioningState == "Deleting" {
		return false
	}
	failed := last != nil && last.Kind == capture.Kind && last.Ended != nil && last.Ended.Exit != workflow.ExitDone
	return !failed && !plan.IsUnjudged(v.ImageVersion) || v.InModel || v.RolledBack || v.Instances > 0
}
