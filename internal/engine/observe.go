package engine

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/ortet/ortet/internal/cluster"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/prototype"
)

// maxBenches bounds how many candidates of other pools are looked at.
const maxBenches = 10

// a watcher observes the world before a capture, as much at once as it can.
type watcher struct {
	e *Engine
	t *task

	mu sync.Mutex
	o  prototype.Observed
}

// together calls all at once and waits for them.
func together(calls ...func()) {
	var wg sync.WaitGroup
	for _, c := range calls {
		wg.Go(c)
	}
	wg.Wait()
}

// observe looks at all that a capture depends on. What cannot be read is a
// problem, not an error, so that all problems are found at once.
func (e *Engine) observe(ctx context.Context, t *task, request CaptureRequest) (prototype.Observed, prototype.Names) {
	w := &watcher{e: e, t: t}
	w.o.SelfNode = e.config.SelfNode
	donor, ok, err := found(ctx, t, func(ctx context.Context) (fleet.Node, error) { return e.cluster.Node(ctx, request.Node) })
	if err != nil {
		w.unreadable("node "+request.Node, err)
	}
	if !ok {
		together(func() { w.deniedCluster(ctx, request.ForceDrain, "") })
		return w.o, prototype.Names{}
	}
	w.o.Donor = &donor
	id, err := fleet.ParseProviderID(donor.ProviderID)
	if err != nil {
		w.o.NotInstance = err
		together(func() { w.deniedCluster(ctx, request.ForceDrain, "") })
		return w.o, prototype.Names{}
	}
	w.o.InstanceID = id
	var (
		candidates []fleet.Node
		why        map[string]int
		siblings   []fleet.Instance
	)
	together(
		func() {
			see(ctx, w, id.Parent(), &w.o.Pool, func(ctx context.Context) (fleet.Pool, error) { return e.cloud.Pool(ctx, id.Parent()) })
		},
		func() {
			see(ctx, w, id, &w.o.Instance, func(ctx context.Context) (fleet.Instance, error) { return e.cloud.Instance(ctx, id) })
		},
		func() {
			siblings, err = ask(ctx, t, func(ctx context.Context) ([]fleet.Instance, error) { return e.cloud.Instances(ctx, id.Parent()) })
			w.unreadable(string(id.Parent()), err)
		},
		func() { candidates, why = w.candidates(ctx, donor, id, request.Workbench) },
		func() { w.deniedCluster(ctx, request.ForceDrain, id.Parent()) },
		func() { w.obstacles(ctx, request, id.Parent()) },
	)
	if w.o.Pool == nil {
		if len(w.o.Unreadable) == 0 {
			w.problem(string(id.Parent()), "PoolNotFound", "there is no such scale set", "check the credentials' subscription")
		}
		return w.o, prototype.Names{}
	}
	if w.o.Instance == nil && len(w.o.Unreadable) == 0 {
		w.problem(string(id), "InstanceNotFound", "there is no such instance", "the node is stale: delete it")
	}
	now := e.now()
	names := prototype.NamesOf(w.o.Pool.ID, prototype.CaptureName(now, ""), prototype.VersionName(now, request.Again))
	w.resources(ctx, names)
	if !request.Again {
		names.Version = names.Definition.Child("versions", prototype.TodaysVersion(w.o.Versions, now))
	}
	if w.o.Instance != nil {
		w.bench(ctx, request.Workbench, candidates, why, siblings)
	}
	return w.o, names
}

// obstacles finds the pods that the drain would wait for in vain. A force drain deletes
// them.
func (w *watcher) obstacles(ctx context.Context, request CaptureRequest, pool fleet.ResourceID) {
	if request.ForceDrain {
		return
	}
	pods, err := ask(ctx, w.t, func(ctx context.Context) ([]cluster.BlockedPod, error) {
		return w.e.cluster.Obstacles(ctx, request.Node, []string{lookName(pool)})
	})
	if !fleet.Is(err, fleet.KindDenied) { // deniedCluster names the permission
		w.unreadable("the pods of node "+request.Node, err)
	}
	for _, p := range pods {
		w.o.Obstacles = append(w.o.Obstacles, prototype.Obstacle{Pod: p.Pod, Budget: p.Budget, Why: p.Why})
	}
}

// resources looks at what has one of the capture's names, and at the disk.
func (w *watcher) resources(ctx context.Context, names prototype.Names) {
	c, o := w.e.cloud, &w.o
	calls := []func(){
		func() {
			see(ctx, w, names.Gallery, &o.Gallery, func(ctx context.Context) (fleet.Gallery, error) { return c.Gallery(ctx, names.Gallery) })
		},
		func() {
			see(ctx, w, names.Definition, &o.Definition, func(ctx context.Context) (fleet.Definition, error) { return c.Definition(ctx, names.Definition) })
		},
		func() {
			see(ctx, w, names.Snapshot, &o.Snapshot, func(ctx context.Context) (fleet.Snapshot, error) { return c.Snapshot(ctx, names.Snapshot) })
		},
		func() {
			see(ctx, w, names.Generalized, &o.Generalized, func(ctx context.Context) (fleet.Snapshot, error) { return c.Snapshot(ctx, names.Generalized) })
		},
		func() {
			see(ctx, w, names.WorkDisk, &o.WorkDisk, func(ctx context.Context) (fleet.Disk, error) { return c.Disk(ctx, names.WorkDisk) })
		},
		func() {
			versions, err := w.t.versions(ctx, names.Definition, o.Pool.Model.Image.Exact())
			w.unreadable(string(names.Definition), err)
			o.Versions = versions
		},
		func() {
			w.unreadable(string(names.Definition), do(ctx, w.t, func(ctx context.Context) (err error) {
				o.Uses, err = c.Uses(ctx, names.Definition)
				return ignoreMissing(err)
			}))
		},
	}
	if o.Instance != nil {
		calls = append(calls, func() {
			if size, ok := w.size(ctx, first(o.Instance.Size, o.Pool.Size)); ok {
				o.Size = &size
			}
		})
		if id := o.Instance.OSDisk; id != "" {
			calls = append(calls, func() {
				see(ctx, w, id, &o.Disk, func(ctx context.Context) (fleet.Disk, error) { return c.Disk(ctx, id) })
			})
		}
	}
	together(calls...)
}

func ignoreMissing(err error) error {
	if fleet.Is(err, fleet.KindNotFound) {
		return nil
	}
	return err
}

func first(values ...string) string {
	for _, v := range values {
		if v != "" {
			return v
		}
	}
	return ""
}

// size gives what the region's catalogue says; false where it cannot be read,
// which is no reason to refuse: listing sizes needs a right on the subscription.
func (w *watcher) size(ctx context.Context, name string) (fleet.SizeInfo, bool) {
	size, err := ask(ctx, w.t, func(ctx context.Context) (fleet.SizeInfo, error) {
		return w.e.cloud.Size(ctx, w.o.Pool.ID.Segment("subscriptions"), w.o.Pool.Location, name)
	})
	if err != nil {
		w.e.log.Debug("cannot read what a VM size can do", "size", name, "error", err)
		return fleet.SizeInfo{}, false
	}
	return size, true
}

// see reads one resource; one that is missing leaves it nil.
func see[T any](ctx context.Context, w *watcher, on fleet.ResourceID, into **T, read func(ctx context.Context) (T, error)) {
	v, ok, err := found(ctx, w.t, read)
	if err != nil {
		w.unreadable(string(on), err)
	}
	if ok {
		*into = &v
	}
}

func (w *watcher) unreadable(on string, err error) {
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

func (w *watcher) problem(on, code, what, way string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.o.Unreadable = append(w.o.Unreadable, fleet.Problem{Code: code, On: on, What: what, WayOut: way})
}

// candidates walks the cluster's nodes and keeps those that may be a
// workbench; the others are counted by the reason why not. On the way it finds
// nodes that claim to be the donor's instance.
func (w *watcher) candidates(ctx context.Context, donor fleet.Node, id fleet.ResourceID, wanted string) ([]fleet.Node, map[string]int) {
	var candidates []fleet.Node
	why := map[string]int{}
	err := do(ctx, w.t, func(ctx context.Context) error {
		candidates = nil
		clear(why)
		for n, err := range w.e.cluster.Nodes(ctx) {
			if err != nil {
				return err
			}
			if other, parseErr := fleet.ParseProviderID(n.ProviderID); parseErr == nil && n.Name != donor.Name && other.Equal(id) {
				w.problem("node "+donor.Name, "DuplicateNode", "node "+n.Name+" says that it is the same instance", "delete the one that is stale")
				why["claims the donor's instance"]++
				continue
			}
			if wanted != "" && n.Name != wanted {
				continue
			}
			if reason := prototype.CannotServe(donor, n); reason != "" {
				why[reason]++
				continue
			}
			n.Annotations, n.Labels = nil, nil // a thousand nodes are to fit in memory
			candidates = append(candidates, n)
		}
		return nil
	})
	w.unreadable("the cluster's nodes", err)
	prototype.RankWorkbenches(id.Parent(), candidates)
	return candidates, why
}

// bench chooses the workbench among the candidates.
func (w *watcher) bench(ctx context.Context, wanted string, candidates []fleet.Node, why map[string]int, siblings []fleet.Instance) {
	known := map[string]fleet.Instance{}
	for _, i := range siblings {
		known[strings.ToLower(string(i.ID))] = i
	}
	// Azure lists all sizes of a region at once, megabytes: each is asked for once.
	sizes := map[string]fleet.SizeInfo{}
	if w.o.Size != nil {
		sizes[first(w.o.Instance.Size, w.o.Pool.Size)] = *w.o.Size
	}
	asked := 0
	for _, n := range candidates {
		id, err := fleet.ParseProviderID(n.ProviderID)
		if err != nil {
			continue
		}
		i, ok := known[strings.ToLower(string(id))]
		if !ok {
			if asked++; asked > maxBenches {
				why["was not looked at"]++
				continue
			}
			i, ok, err = found(ctx, w.t, func(ctx context.Context) (fleet.Instance, error) { return w.e.cloud.Instance(ctx, id) })
			if err != nil || !ok {
				why["cannot be read in Azure"]++
				continue
			}
		}
		name := first(i.Size, w.o.Pool.Size)
		size, ok := sizes[name]
		if !ok {
			if size, ok = w.size(ctx, name); !ok {
				size.MaxDataDisks = 2 // what the smallest sizes of Azure take
			}
			sizes[name] = size
		}
		lun, reason := prototype.BenchLUN(*w.o.Instance, i, size)
		if reason != "" {
			why[reason]++
			continue
		}
		w.o.Workbench = &prototype.Workbench{Node: n, Instance: i, LUN: lun}
		return
	}
	if wanted != "" && len(why) == 0 {
		why["does not exist"]++
	}
	w.o.NoWorkbench = prototype.Tally(why)
	if wanted != "" {
		w.o.NoWorkbench = fmt.Sprintf("node %s %s", wanted, w.o.NoWorkbench)
	}
}
