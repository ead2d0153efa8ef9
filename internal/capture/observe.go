package capture

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/prototype"
)

// maxCandidates limits how many workbench candidates are read in Azure.
const maxCandidates = 50

// An observer reads all that a capture depends on. What cannot be read is a problem, not
// an error, so that all problems are found at once.
type observer struct {
	*Service
	q    Request
	lost []string // nodes that are no workbench any more
	o    prototype.Observed
}

func (c *capture) observe(ctx context.Context) (prototype.Observed, prototype.Names) {
	w := &observer{Service: c.Service, q: c.req, o: prototype.Observed{SelfNode: c.SelfNode}}
	o := &w.o
	donor, err := c.Cluster.Node(ctx, w.q.Node)
	w.unreadable("node "+w.q.Node, missing(err))
	if err == nil {
		o.Donor = &donor
		o.InstanceID, o.NotInstance = fleet.ParseProviderID(donor.ProviderID)
	}
	pool := o.InstanceID.Parent()
	o.DeniedCluster, err = c.Denied(ctx, pool)
	w.unreadable("what the cluster allows", err)
	if pool == "" {
		return *o, prototype.Names{}
	}
	w.scaleSet(ctx)
	if !w.q.ForceDrain {
		if o.Obstacles, err = c.Cluster.Obstacles(ctx, w.q.Node, []string{inspectionPod(pool)}); !fleet.Is(err, fleet.KindDenied) { // which is named by itself
			w.unreadable("the pods of node "+w.q.Node, err)
		}
	}
	if len(o.Unreadable) == 0 && o.Pool == nil {
		w.problem(string(pool), "PoolNotFound", "there is no such scale set", "check the credentials' subscription")
	} else if len(o.Unreadable) == 0 && o.Instance == nil {
		w.problem(string(o.InstanceID), "InstanceNotFound", "there is no such instance", "the node is stale: delete it")
	}
	if o.Pool == nil {
		return *o, prototype.Names{}
	}
	now := c.Now()
	names := prototype.NamesOf(o.Pool.ID, prototype.VersionName(now, w.q.Again))
	read(ctx, w, names.Gallery, &o.Gallery, c.Cloud.Gallery)
	read(ctx, w, names.Definition, &o.Definition, c.Cloud.Definition)
	read(ctx, w, names.Snapshot, &o.Snapshot, c.Cloud.Snapshot)
	read(ctx, w, names.Generalized, &o.Generalized, c.Cloud.Snapshot)
	read(ctx, w, names.WorkDisk, &o.WorkDisk, c.Cloud.Disk)
	readAll(ctx, w, names.Definition, &o.Versions, c.Cloud.Versions)
	readAll(ctx, w, names.Definition, &o.Uses, c.Cloud.Uses)
	if i := o.Instance; i != nil {
		o.Size = w.size(ctx, *i)
		if i.OSDisk != "" {
			read(ctx, w, i.OSDisk, &o.Disk, c.Cloud.Disk)
		}
	}
	if !w.q.Again {
		names.Version = names.Definition.Child("versions", prototype.TodaysVersion(o.Versions, now))
	}
	w.workbench(ctx)
	return *o, names
}

// scaleSet reads the donor's pool and instance.
func (w *observer) scaleSet(ctx context.Context) {
	id := w.o.InstanceID
	read(ctx, w, id.Parent(), &w.o.Pool, w.Cloud.Pool)
	read(ctx, w, id, &w.o.Instance, w.Cloud.Instance)
}

// missing is an error that is not KindNotFound.
func missing(err error) error {
	if fleet.Is(err, fleet.KindNotFound) {
		return nil
	}
	return err
}

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
	w.unreadable(string(id), missing(err))
}

func readAll[T any](ctx context.Context, w *observer, id fleet.ResourceID, into *[]T, get func(context.Context, fleet.ResourceID) ([]T, error)) {
	var err error
	*into, err = get(ctx, id)
	w.unreadable(string(id), missing(err))
}

func (w *observer) unreadable(on string, err error) {
	if err == nil {
		return
	}
	way := "try again"
	switch fleet.KindOf(err) {
	case fleet.KindDenied:
		way = "grant these credentials the right to read it"
	case fleet.KindUnauthenticated:
		way = "check the credentials"
	}
	w.problem(on, "Unreadable", "it cannot be read: "+err.Error(), way)
}

func (w *observer) problem(on, code, what, way string) {
	w.o.Unreadable = append(w.o.Unreadable, fleet.Problem{Code: code, On: on, What: what, WayOut: way})
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
			candidates = append(candidates, n)
		}
	}
	prototype.RankWorkbenches(donor, candidates)
	return candidates
}

// workbench takes the first candidate whose instance has room for a disk.
func (w *observer) workbench(ctx context.Context) {
	why := map[string]int{}
	candidates := w.candidates(ctx, why)
	if w.o.Instance == nil {
		return
	}
	sizes := map[string]*fleet.SizeInfo{w.o.Instance.Size: w.o.Size} // the catalogue is large
	for at, n := range candidates {
		if at == maxCandidates {
			why["was not looked at"] = len(candidates) - at
			break
		}
		id, _ := fleet.ParseProviderID(n.ProviderID) // as CannotServe has seen to
		i, err := w.Cloud.Instance(ctx, id)
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

// Denied gives the accesses that RBAC does not allow.
func (c Config) Denied(ctx context.Context, pool fleet.ResourceID) (names []string, err error) {
	if c.Accesses == nil {
		return nil, nil
	}
	denied, err := c.Cluster.Denied(ctx, c.Accesses(pool))
	for _, a := range denied {
		names = append(names, a.String())
	}
	return names, err
}
