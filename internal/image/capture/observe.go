package capture

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/cluster"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/capture/donor"
	"github.com/ortet/ortet/internal/image/capture/report"
	"github.com/ortet/ortet/internal/image/plan"
	"github.com/ortet/ortet/internal/wire"
	"github.com/ortet/ortet/internal/workflow"
)

const (
	maxCandidates = 50               // limit of the workbench candidates' machines that are read in Azure
	startFor      = 30 * time.Second // limit of an inspection pod's start that fails: the kubelet has pulled its image three times
	uninspected   = "the donor's disk could not be inspected beforehand: %v"
)

// observe reads all that a capture depends on. What cannot be read is a problem, not an
// error, so that all problems are found at once. Before a fresh donor is up, there is none.
func (c *capture) observe(ctx context.Context) (o plan.Observed, names plan.Names) {
	o.SelfNode, o.NoImage = c.SelfNode, c.Image == ""
	if c.req.Node == "" && c.req.Fresh != "" {
		denied, err := c.Denied(ctx, c.req.Fresh)
		o.Unreadable.Unreadable("what the cluster allows", err)
		o.DeniedCluster, o.Pool = denied, read(ctx, &o, c.req.Fresh, c.Cloud.Pool)
		missing := len(o.Unreadable) == 0 && o.Pool == nil
		o.Unreadable.Refuse(missing, "PoolNotFound", string(c.req.Fresh), "there is no such scale set", "check the name")
	} else {
		c.observeDonor(ctx, &o)
	}
	if o.Pool == nil {
		return o, names
	}
	return o, c.observePool(ctx, &o)
}

// observeDonor reads the donor and its pool.
func (c *capture) observeDonor(ctx context.Context, o *plan.Observed) {
	unreadable, refuse, on := o.Unreadable.Unreadable, o.Unreadable.Refuse, "node "+c.req.Node
	donor, err := c.Cluster.Node(ctx, c.req.Node)
	unreadable(on, err)
	if err == nil {
		o.Donor = &donor
		if o.InstanceID, err = donor.Instance(); Unplaced(err) {
			o.NotInstance, err = err, nil
		}
		unreadable(on, err)
	}
	pool := o.InstanceID.UniformPool()
	if pool == "" && o.InstanceID != "" {
		pool = c.placeMember(ctx, o)
	}
	o.DeniedCluster, err = c.Denied(ctx, pool)
	unreadable("what the cluster allows", err)
	moved := pool != "" && c.found != "" && !pool.Equal(c.found) // since findPool
	refuse(moved, "PoolChanged", on, "it is a node of "+string(pool)+" by now, not of "+string(c.found), "run the same command again")
	if pool == "" || moved {
		return
	}
	o.Pool = read(ctx, o, pool, c.Cloud.Pool)
	if o.Instance == nil {
		o.Instance = read(ctx, o, o.InstanceID, c.Cloud.Instance)
	}
	if o.Instance != nil {
		o.NotInstance = donor.Claim().Is(o.Instance.Computer())
	}
	if !c.req.ForceDrain && !c.req.Online {
		// a missing permission is named by ClusterDenied
		o.EvictionBlockers, err = c.Cluster.EvictionBlockers(ctx, c.req.Node, []string{inspectionPod(pool)})
		if !fleet.Is(err, fleet.KindDenied) {
			unreadable("the pods of "+on, err)
		}
	}
	refuse(len(o.Unreadable) == 0 && o.Pool == nil, "PoolNotFound", string(pool), "there is no such scale set",
		"check the credentials' subscription")
	refuse(len(o.Unreadable) == 0 && o.Instance == nil, "InstanceNotFound", string(o.InstanceID), "there is no such instance",
		"the node is stale: delete it")
}

// observePool reads the rest.
func (c *capture) observePool(ctx context.Context, o *plan.Observed) (names plan.Names) {
	unreadable, now := o.Unreadable.Unreadable, c.Cloud.Now()
	if i := o.Instance; i != nil {
		c.readSizes(ctx, o)
		if i.OSDisk != "" {
			o.Disk = read(ctx, o, i.OSDisk, c.Cloud.Disk)
		}
	}
	var err error
	o.Definitions, err = c.Cloud.Definitions(ctx, plan.DefinitionOf(o.Pool.ID).Parent())
	unreadable(string(plan.DefinitionOf(o.Pool.ID).Parent()), err)
	definition := c.get().Names.Definition // of an open record
	if definition == "" || c.req.Fresh != "" && c.get().Instance == "" {
		definition, o.Definition, o.OtherKind = plan.ChooseDefinition(*o)
	} else {
		o.Definition = plan.FindDefinition(o.Definitions, definition)
	}
	names = plan.NamesOf(o.Pool.ID, "").Of(definition, plan.VersionName(now, c.req.Again))
	o.Gallery = read(ctx, o, names.Gallery, c.Cloud.Gallery)
	o.Snapshot = read(ctx, o, names.Snapshot, c.Cloud.Snapshot)
	o.Generalized = read(ctx, o, names.Generalized, c.Cloud.Snapshot)
	o.WorkDisk = read(ctx, o, names.WorkDisk, c.Cloud.Disk)
	c.definitions = definitionsOf(*o.Pool, o.Definitions, names.Definition)
	o.Versions, err = azure.VersionsOf(ctx, c.Cloud, c.definitions...)
	unreadable(string(names.Definition), err)
	o.Uses, err = c.Cloud.Uses(ctx, c.definitions...)
	unreadable(string(names.Definition), err)
	if !c.req.Again {
		names.Version = names.Definition.Child("versions", plan.TodaysVersion(names.Definition, o.Versions, o.Uses, now))
	}
	if v, found := plan.Retried(names.Definition, o.Versions, now); found && c.req.TakeUnjudged && !o.Pool.Model.Image.Exact().Equal(v.ID) {
		names.Version = v.ID
	}
	if set := plan.EncryptionSet(*o); set != "" {
		keys, err := c.Cloud.EncryptionSet(ctx, set)
		o.Keys, o.NoKeys = keys, err
	}
	if o.Donor != nil {
		c.findWorkbench(ctx, o)
	}
	return names
}

// placeMember reads the donor that is a virtual machine, and returns its scale set, which its
// id does not name; "" if it is in none, or cannot be read.
func (c *capture) placeMember(ctx context.Context, o *plan.Observed) fleet.ResourceID {
	i, err := c.Cloud.Instance(ctx, o.InstanceID)
	on := string(o.InstanceID)
	o.Unreadable.Refuse(fleet.Is(err, fleet.KindNotFound), "InstanceNotFound", on, "there is no such virtual machine", "the node is stale: delete it")
	o.Unreadable.Unreadable(on, err)
	o.Unreadable.Refuse(err == nil && i.Pool == "", "NoPool", on, "it is a virtual machine in no scale set", "name a node of a scale set")
	if err == nil {
		o.Instance = &i
	}
	return i.Pool
}

// read reads one resource; a missing one is nil.
func read[T any](ctx context.Context, o *plan.Observed, id fleet.ResourceID,
	get func(context.Context, fleet.ResourceID) (T, error)) *T {
	v, err := get(ctx, id)
	if o.Unreadable.Unreadable(string(id), err); err != nil {
		return nil
	}
	return &v
}

// readSizes reads the donor's size and those of new nodes in one request.
func (c *capture) readSizes(ctx context.Context, o *plan.Observed) {
	own := cmp.Or(o.Instance.Size, o.Pool.Size)
	names := append([]string{own}, o.Pool.NewSizes()...)
	sizes := c.lookUp(ctx, *o.Pool, names...)
	for _, name := range names {
		size, known := sizes[strings.ToLower(name)]
		switch {
		case known && strings.EqualFold(name, own):
			o.Size = &size
		case known:
			o.ModelSizes = append(o.ModelSizes, size)
		}
	}
}

// lookUp returns what the region's catalogue says of sizes, by their names in lower case. What was
// looked up before is not read again: the catalogue is large. That it cannot be read is no reason
// to refuse: listing sizes needs a right on the subscription.
func (c *capture) lookUp(ctx context.Context, pool fleet.Pool, names ...string) map[string]fleet.SizeInfo {
	missing := slices.DeleteFunc(slices.Clone(names), func(name string) bool { _, known := c.sizes[strings.ToLower(name)]; return known })
	if len(missing) == 0 {
		return c.sizes
	}
	sizes, err := c.Cloud.Sizes(ctx, pool.ID.Segment("subscriptions"), pool.Location, missing...)
	if err != nil {
		c.Log.Debug("cannot read what VM sizes can do", "sizes", missing, "error", err)
	}
	if c.sizes == nil {
		c.sizes = map[string]fleet.SizeInfo{}
	}
	maps.Copy(c.sizes, sizes)
	return c.sizes
}

// findWorkbench takes the best node that may be one, is the machine that it names, and has room
// for a disk. It counts the others by why not. Of another pool it is only by request: what works
// there decides what the image is.
func (c *capture) findWorkbench(ctx context.Context, o *plan.Observed) {
	donor, only, why := *o.Donor, c.req.Workbench, map[string]int{}
	others := only != "" || c.req.OtherPools
	var candidates []plan.Candidate
	var nodes []fleet.Node
	places := azure.Places{Reader: c.Cloud}
	for n, err := range c.Cluster.Nodes(ctx) {
		if err != nil {
			o.Unreadable.Unreadable("the cluster's nodes", err)
			break
		}
		nodes = append(nodes, n)
		reason := plan.CannotServe(donor, n, o.Pool.ID, others)
		switch {
		case only != "" && n.Name != only:
		case reason != "":
			why[reason]++
		case slices.Contains(c.lost, n.Name):
			why["was lost"]++
		default:
			id, _ := fleet.ParseMachine(n.ProviderID) // as CannotServe has seen to
			pool := id.UniformPool()
			if pool == "" && o.InstanceID.UniformPool() == "" { // in a Uniform pool it is another's anyway
				place, _ := places.Of(ctx, n) // if that is not known, it is ranked last
				pool = place.Pool
			}
			candidates = append(candidates, plan.Candidate{Node: n, Pool: pool})
		}
	}
	if o.Instance == nil {
		return
	}
	all := fleet.NewRoster(nodes)
	_, rivals := all.Of(o.Instance.Computer())
	for _, name := range rivals {
		o.Unreadable.Refuse(name != donor.Name, "DuplicateNode", "node "+donor.Name, "node "+name+" reports that it is the same machine",
			fleet.DeleteStaleNode)
	}
	plan.RankWorkbenches(donor, o.Pool.ID, candidates)
	machines := map[string]fleet.Instance{} // that were read: many Nodes may name one
	for _, candidate := range candidates {
		n := candidate.Node
		id, _ := n.Instance() // as CannotServe has seen to
		i, known := machines[strings.ToLower(string(id))]
		if !known {
			if len(machines) == maxCandidates {
				break
			}
			i, _ = c.Cloud.Instance(ctx, id) // without an id where it cannot be read
			machines[strings.ToLower(string(id))] = i
		}
		if i.ID == "" {
			why["cannot be read in Azure"]++
			continue
		}
		if err := n.Claim().Is(i.Computer()); err != nil {
			const reason = "is not the machine that it names"
			if why[reason]++; why[reason] <= plan.MaxNamed {
				c.Note("node %s cannot be the workbench: %v", n.Name, cmp.Or(errors.Unwrap(err), err))
			}
			continue
		}
		if !others && !i.Pool.Equal(o.Pool.ID) {
			why["is of another pool"]++
			continue
		}
		if _, rivals := all.Of(i.Computer()); len(rivals) > 0 {
			why["is claimed by another Node"]++
			c.Note("node %s cannot be the workbench: node %s reports that it is the same machine", n.Name, plan.UpTo(plan.MaxNamed, rivals, len(rivals)))
			continue
		}
		name := strings.ToLower(cmp.Or(i.Size, o.Pool.Size))
		size, known := c.lookUp(ctx, *o.Pool, name)[name]
		if !known {
			size.MaxDataDisks = 2 // what the smallest sizes of Azure take
			c.sizes[name] = size
		}
		lun, reason := plan.BenchLUN(*o.Instance, i, size)
		if reason == "" {
			o.Workbench = &plan.Workbench{Node: n, Instance: i, LUN: lun}
			return
		}
		why[reason]++
	}
	if o.NoWorkbench = plan.Tally(why); only != "" {
		o.NoWorkbench = "node " + only + " " + cmp.Or(o.NoWorkbench, "does not exist")
	}
}

// Denied returns the accesses that RBAC does not allow.
func (c Config) Denied(ctx context.Context, pool fleet.ResourceID) ([]string, error) {
	denied, err := c.Cluster.Denied(ctx, c.Accesses(pool))
	return fleet.Each(denied, cluster.Access.String), err
}

func inspectionPod(pool fleet.ResourceID) string { return plan.JobName(pool, "look") }

// inspect finds what only the disk shows, before the donor is touched. That its pod gives no
// report is a note: the same is found on the copy, later. That its pod cannot start is a
// blocker: the workbench's pod has the same image.
func (c *capture) inspect(ctx context.Context, p *workflow.Pass) (workflow.Wait, error) {
	if err := p.Save(ctx); err != nil {
		return done, err
	}
	w, problems, err := c.inspectOnce(ctx, c.name, p.Since())
	return w, cmp.Or(workflow.NewRefused(problems), err)
}

// inspectNow inspects without a workflow, for a dry run.
func (c *capture) inspectNow(ctx context.Context) (problems []fleet.Problem, err error) {
	begun, w := c.Now(), workflow.In(time.Millisecond, "")
	for err == nil && w.RequeueAfter > 0 {
		w, problems, err = c.inspectOnce(ctx, "inspection", c.Now().Sub(begun))
		_ = azure.Sleep(ctx, w.RequeueAfter) // the next pass reports the end of ctx
	}
	if err != nil && ctx.Err() == nil {
		c.Note(uninspected, err)
		err = nil
	}
	care, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	return problems, errors.Join(err, c.Cluster.ForceDeleteJob(care, inspectionPod(c.get().Pool)))
}

// inspectOnce is one pass: the pod is created, after an earlier process's was deleted, or
// read.
func (c *capture) inspectOnce(ctx context.Context, name string, since time.Duration) (workflow.Wait, []fleet.Problem, error) {
	pod := inspectionPod(c.get().Pool)
	if !c.inspected && since < donor.PodFor {
		err := c.Cluster.ForceDeleteJob(ctx, pod)
		if err == nil {
			job := c.job(pod, c.req.Node, "inspect", name, c.Now(), "--root", "/host", "--inspect")
			job.Deadline, job.ReadOnly = donor.PodFor, true
			if c.req.Online {
				job.Command = append(job.Command, "--flush") // that it can
			}
			err = c.Cluster.StartJob(ctx, job)
		}
		c.inspected = err == nil
		return workflow.In(time.Second, "the pod is starting on %s", c.req.Node), nil, err
	}
	s, err := c.Cluster.Job(ctx, pod)
	_, output, unread := report.Read(s.Output)
	switch {
	case err != nil:
		return done, nil, err
	case output != nil && output.Outcome != wire.GeneralizeFailed:
		c.noUserData = len(output.Saved) == 0 && !report.CustomDataUnread(*output)
		problems := c.disk().Inspected(*output, c.Note)
		more, err := c.canary.Inspected(ctx, *output)
		return done, append(problems, more...), err
	case s.Done && (s.ExitCode == report.ExitFlags || unread != nil):
		why := report.Tail(s.Output)
		if unread != nil {
			why = unread.Error()
		}
		return done, donor.PodProblem(c.req.Node, "ortet-node of another version is in image "+c.Image+": "+why), nil
	case s.Exists && !s.Ran && (s.Done || since >= donor.PodFor || s.Why != "" && since >= startFor):
		return done, donor.PodProblem(c.req.Node, "the pod that inspects its disk cannot start from image "+c.Image+": "+
			cmp.Or(s.Why, "it did not start within "+donor.PodFor.String())), nil
	case s.Exists && !s.Done && since < donor.PodFor:
		return workflow.In(time.Second, "%s", cmp.Or(s.Why, "inspecting")), nil, nil
	case output != nil:
		s.Why = cmp.Or(output.Message, s.Why)
	}
	c.Note(uninspected, cmp.Or(s.Why, "its pod gave no report: "+report.Tail(s.Output)))
	return done, nil, nil
}

// deleteInspection deletes the pod without its node, which may be gone: it only reads,
// and all inspections of a pool have its name.
func (c *capture) deleteInspection(ctx context.Context, _ *workflow.Pass) (workflow.Wait, error) {
	c.inspected = false // a run that is planned again inspects again
	return done, c.Cluster.ForceDeleteJob(ctx, inspectionPod(c.get().Pool))
}
