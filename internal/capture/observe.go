package capture

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"github.com/ortet/ortet/internal/cluster"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/prototype"
)

// maxForeign limits how many workbench candidates of other pools are read in Azure.
const maxForeign = 10

// An observer reads all that a capture depends on. What cannot be read is a problem, not
// an error, so that all problems are found at once.
type observer struct {
	*Service
	q         Request
	lost      []string // nodes that are no workbench any more
	mu        sync.Mutex
	o         prototype.Observed
	instances []fleet.Instance // the pool's
}

func together(calls ...func()) {
	var wg sync.WaitGroup
	for _, c := range calls {
		wg.Go(c)
	}
	wg.Wait()
}

func (c *capture) observe(ctx context.Context) (prototype.Observed, prototype.Names) {
	w := &observer{Service: c.Service, q: c.req, o: prototype.Observed{SelfNode: c.SelfNode}}
	donor, err := c.Cluster.Node(ctx, w.q.Node)
	w.unreadable("node "+w.q.Node, err)
	if err == nil {
		w.o.Donor = &donor
		w.o.InstanceID, w.o.NotInstance = fleet.ParseProviderID(donor.ProviderID)
	}
	pool := w.o.InstanceID.Parent()
	if err != nil || w.o.NotInstance != nil {
		w.denied(ctx, "")
		return w.o, prototype.Names{}
	}
	together(
		func() { w.scaleSet(ctx) },
		func() { w.denied(ctx, pool) },
		func() { w.obstacles(ctx, pool) },
	)
	switch {
	case w.o.Pool == nil && len(w.o.Unreadable) == 0:
		w.problem(string(pool), "PoolNotFound", "there is no such scale set", "check the credentials' subscription")
	case w.o.Instance == nil && len(w.o.Unreadable) == 0:
		w.problem(string(w.o.InstanceID), "InstanceNotFound", "there is no such instance", "the node is stale: delete it")
	}
	if w.o.Pool == nil {
		return w.o, prototype.Names{}
	}
	now := c.Now()
	names := prototype.NamesOf(w.o.Pool.ID, prototype.VersionName(now, w.q.Again))
	w.resources(ctx, names)
	if !w.q.Again {
		names.Version = names.Definition.Child("versions", prototype.TodaysVersion(w.o.Versions, now))
	}
	w.workbench(ctx)
	return w.o, names
}

// scaleSet reads the donor's pool and the instances in it.
func (w *observer) scaleSet(ctx context.Context) {
	id := w.o.InstanceID
	together(
		func() { read(ctx, w, id.Parent(), &w.o.Pool, w.Cloud.Pool) },
		func() { read(ctx, w, id, &w.o.Instance, w.Cloud.Instance) },
		func() { readAll(ctx, w, id.Parent(), &w.instances, w.Cloud.Instances) },
	)
}

// obstacles finds the pods that the drain would not evict.
func (w *observer) obstacles(ctx context.Context, pool fleet.ResourceID) {
	if w.q.ForceDrain {
		return
	}
	pods, err := w.Cluster.Obstacles(ctx, w.q.Node, []string{inspectionPod(pool)})
	if !fleet.Is(err, fleet.KindDenied) { // the permission is named by itself
		w.unreadable("the pods of node "+w.q.Node, err)
	}
	for _, p := range pods {
		w.o.Obstacles = append(w.o.Obstacles, prototype.Obstacle{Pod: p.Pod, Budget: p.Budget, Why: p.Why})
	}
}

// resources reads what has one of the capture's names, and the donor's disk.
func (w *observer) resources(ctx context.Context, names prototype.Names) {
	c, o := w.Cloud, &w.o
	calls := []func(){
		func() { read(ctx, w, names.Gallery, &o.Gallery, c.Gallery) },
		func() { read(ctx, w, names.Definition, &o.Definition, c.Definition) },
		func() { read(ctx, w, names.Snapshot, &o.Snapshot, c.Snapshot) },
		func() { read(ctx, w, names.Generalized, &o.Generalized, c.Snapshot) },
		func() { read(ctx, w, names.WorkDisk, &o.WorkDisk, c.Disk) },
		func() { readAll(ctx, w, names.Definition, &o.Versions, c.Versions) },
		func() { readAll(ctx, w, names.Definition, &o.Uses, c.Uses) },
	}
	if o.Instance != nil {
		calls = append(calls, func() { o.Size = w.size(ctx, *o.Instance) })
		if id := o.Instance.OSDisk; id != "" {
			calls = append(calls, func() { read(ctx, w, id, &o.Disk, c.Disk) })
		}
	}
	together(calls...)
}

func missing(err error) error { return fleet.IgnoreNotFound(err) }

// size gives what the region's catalogue says. That it cannot be read is no reason to
// refuse: listing sizes needs a right on the subscription.
func (w *observer) size(ctx context.Context, i fleet.Instance) *fleet.SizeInfo {
	name := first(i.Size, w.o.Pool.Size)
	size, err := w.Cloud.Size(ctx, w.o.Pool.ID.Segment("subscriptions"), w.o.Pool.Location, name)
	if err != nil {
		w.Log.Debug("cannot read what a VM size can do", "size", name, "error", err)
		return nil
	}
	return &size
}

// read reads one resource; a missing one leaves it nil.
func read[T any](ctx context.Context, w *observer, id fleet.ResourceID, into **T, get func(context.Context, fleet.ResourceID) (T, error)) {
	v, err := get(ctx, id)
	if err == nil {
		*into = &v
	}
	w.unreadable(string(id), err)
}

func readAll[T any](ctx context.Context, w *observer, id fleet.ResourceID, into *[]T, get func(context.Context, fleet.ResourceID) ([]T, error)) {
	var err error
	*into, err = get(ctx, id)
	w.unreadable(string(id), err)
}

func (w *observer) unreadable(on string, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.o.Unreadable.Unreadable(on, err)
}

func (w *observer) problem(on, code, what, way string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.o.Unreadable.Refuse(true, code, on, what, way)
}

// candidates gives the nodes that may be a workbench, the best first, and counts the
// others by why not.
func (w *observer) candidates(ctx context.Context, why map[string]int) (candidates []fleet.Node) {
	donor := *w.o.Donor
	for n, err := range w.Cluster.Nodes(ctx) {
		if err != nil {
			w.unreadable("the cluster's nodes", err)
			break
		}
		reason := prototype.CannotServe(donor, n)
		if other, err := fleet.ParseProviderID(n.ProviderID); err == nil && n.Name != donor.Name && other.Equal(w.o.InstanceID) {
			w.problem("node "+donor.Name, "DuplicateNode", "node "+n.Name+" says that it is the same instance", "delete the stale Node")
			reason = "claims the donor's instance"
		}
		switch {
		case w.q.Workbench != "" && n.Name != w.q.Workbench, slices.Contains(w.lost, n.Name):
		case reason != "":
			why[reason]++
		default:
			n.Annotations, n.Labels = nil, nil // a thousand nodes fit in memory
			candidates = append(candidates, n)
		}
	}
	prototype.RankWorkbenches(w.o.InstanceID.Parent(), candidates)
	return candidates
}

// workbench takes the first candidate whose instance has room for a disk.
func (w *observer) workbench(ctx context.Context) {
	why := map[string]int{}
	candidates := w.candidates(ctx, why)
	if w.o.Instance == nil {
		return
	}
	known := map[string]fleet.Instance{}
	for _, i := range w.instances {
		known[strings.ToLower(string(i.ID))] = i
	}
	sizes := map[string]*fleet.SizeInfo{w.o.Instance.Size: w.o.Size} // the catalogue is large
	foreign := 0
	for _, n := range candidates {
		id, err := fleet.ParseProviderID(n.ProviderID)
		i, ok := known[strings.ToLower(string(id))]
		if err == nil && !ok {
			if foreign++; foreign > maxForeign {
				why["was not looked at"]++
				continue
			}
			i, err = w.Cloud.Instance(ctx, id)
		}
		if err != nil {
			why["cannot be read in Azure"]++
			continue
		}
		if sizes[i.Size] == nil {
			sizes[i.Size] = cmp.Or(w.size(ctx, i), &fleet.SizeInfo{MaxDataDisks: 2}) // what the smallest sizes of Azure take
		}
		lun, reason := prototype.BenchLUN(*w.o.Instance, i, *sizes[i.Size])
		if reason == "" {
			w.o.Workbench = &prototype.Workbench{Node: n, Instance: i, LUN: lun}
			return
		}
		why[reason]++
	}
	if w.q.Workbench != "" && len(why) == 0 {
		why["does not exist"]++
	}
	w.o.NoWorkbench = prototype.Tally(why)
	if w.q.Workbench != "" {
		w.o.NoWorkbench = fmt.Sprintf("node %s %s", w.q.Workbench, w.o.NoWorkbench)
	}
}

func (w *observer) denied(ctx context.Context, pool fleet.ResourceID) {
	var err error
	w.o.DeniedCluster, err = w.Denied(ctx, pool)
	w.unreadable("what the cluster allows", err)
}

// Denied asks which of the accesses RBAC does not allow. The Secrets are named, since a
// Role may name no others.
func (c Config) Denied(ctx context.Context, pool fleet.ResourceID) (names []string, err error) {
	var all []cluster.Access
	for _, a := range c.Accesses {
		if c.Secrets == nil || a.Resource != "secrets" || a.Name != "" || a.Verb == "create" {
			all = append(all, a)
			continue
		}
		if pool == "" {
			continue
		}
		for _, a.Name = range c.Secrets(pool) {
			all = append(all, a)
		}
	}
	denied, err := c.Cluster.Denied(ctx, all)
	for _, a := range denied {
		what := a.Verb + " " + a.Resource
		for _, x := range [][2]string{{"/", a.Subresource}, {".", a.Group}, {" ", a.Name}, {" in ", a.Namespace}} {
			if x[1] != "" {
				what += x[0] + x[1]
			}
		}
		names = append(names, what)
	}
	return names, err
}

// ipsOf keeps what is an IP address.
func ipsOf(addresses []string) (ips []string) {
	for _, a := range addresses {
		if _, err := netip.ParseAddr(a); err == nil && !slices.Contains(ips, a) {
			ips = append(ips, a)
		}
	}
	return ips
}
