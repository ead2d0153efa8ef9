package capture

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/prototype"
	"github.com/ortet/ortet/internal/wire"
	"github.com/ortet/ortet/internal/workflow"
)

const (
	maxCandidates = 50              // limit of the workbench candidates that are read in Azure
	inspectFor    = 2 * time.Minute // limit of the inspection of the donor's disk
	maxNamed      = 10              // paths in a problem
)

// An observer reads all that a capture depends on. What cannot be read is a problem, not
// an error, so that all problems are found at once.
type observer struct {
	*Service
	q Request
	o prototype.Observed
}

func (c *capture) observe(ctx context.Context) (prototype.Observed, prototype.Names) {
	w := &observer{Service: c.Service, q: c.req, o: prototype.Observed{SelfNode: c.SelfNode}}
	o := &w.o
	donor, err := c.Cluster.Node(ctx, w.q.Node)
	w.unreadable("node "+w.q.Node, err)
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
	read(ctx, w, pool, &o.Pool, c.Cloud.Pool)
	read(ctx, w, o.InstanceID, &o.Instance, c.Cloud.Instance)
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
	w.o.Unreadable.Unreadable(on, err)
}

func (w *observer) problem(on, code, what, way string) {
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
		case w.q.Workbench != "" && n.Name != w.q.Workbench:
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

// inspectionPod names the pod that inspects.
func inspectionPod(pool fleet.ResourceID) string { return prototype.JobName(pool, "look") }

// inspect finds what only the disk shows, before the donor is touched. That it cannot is
// a note: the same is found on the copy, later.
func (c *capture) inspect(ctx context.Context, p *workflow.Pass) (workflow.Wait, error) {
	if err := p.Save(ctx); err != nil {
		return done, err
	}
	w, problems, err := c.inspectOnce(ctx, c.name, p.Since())
	if len(problems) > 0 {
		err = &workflow.Refused{Problems: problems}
	}
	return w, err
}

func (c *capture) uninspected(why string) {
	c.Note("the donor's disk could not be inspected beforehand: %s", why)
}

// inspectNow inspects without a workflow, for a dry run.
func (c *capture) inspectNow(ctx context.Context) (problems []fleet.Problem, err error) {
	begun, w := c.Now(), in(time.Millisecond, "")
	for err == nil && w.In > 0 {
		w, problems, err = c.inspectOnce(ctx, "inspection", c.Now().Sub(begun))
		select {
		case <-time.After(w.In):
		case <-ctx.Done():
		}
	}
	if err != nil && ctx.Err() == nil {
		c.uninspected(err.Error())
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
	if !c.inspected && since < inspectFor {
		err := c.Cluster.ForceDeleteJob(ctx, pod)
		if err == nil {
			job := c.job(pod, c.req.Node, "inspect", name, c.Now(), "--root", "/host", "--inspect")
			job.Deadline, job.ReadOnly = inspectFor, true
			err = c.Cluster.StartJob(ctx, job)
		}
		c.inspected = err == nil
		return in(time.Second, "the pod is starting on %s", c.req.Node), nil, err
	}
	s, err := c.Cluster.Job(ctx, pod)
	_, report := readOutput(s.Output)
	switch {
	case err != nil && (ctx.Err() != nil || since < inspectFor):
		return done, nil, err
	case err != nil:
		c.uninspected(err.Error())
	case s.Done && report != nil && report.Outcome != wire.GeneralizeFailed:
		return done, c.inspectionProblems(*report), nil
	case s.Exists && !s.Done && since < inspectFor:
		return in(time.Second, "inspecting"), nil, nil
	case report != nil && report.Message != "":
		c.uninspected(report.Message)
	default:
		c.uninspected(first(s.Why, "its pod gave no report: "+tail(s.Output)))
	}
	return done, nil, nil
}

// deleteInspection deletes the pod without its node, which may be gone: it only reads,
// and all inspections of a pool have its name.
func (c *capture) deleteInspection(ctx context.Context, _ *workflow.Pass) (workflow.Wait, error) {
	return done, c.Cluster.ForceDeleteJob(ctx, inspectionPod(c.get().Pool))
}

func (c *capture) problem(code, what, wayOut string) fleet.Problem {
	return fleet.Problem{Code: code, On: "node " + c.req.Node, What: what, WayOut: wayOut}
}

// inspectionProblems are the reasons to refuse that the report of an inspection gives.
// The rest of it becomes notes.
func (c *capture) inspectionProblems(report wire.GeneralizeReport) []fleet.Problem {
	problems := append(c.diskProblems(report, maxNamed), c.joinProblems(report, "")...)
	if len(problems) > 0 {
		return problems
	}
	var scan state
	scan.keepScan(report)
	if len(scan.RemovedSecrets) > 0 {
		c.Note("--remove-secrets deletes from the copy: %s", upTo(maxNamed, scan.RemovedSecrets, report.SecretsRemoved))
	}
	if report.Partial {
		c.Note("the inspection of the donor's disk ended at its limit of time, files or bytes: the rest is scanned on the copy, later")
	}
	return nil
}

// diskProblems are the reasons why a disk must not become an image, at most so many
// paths of each.
func (c *capture) diskProblems(report wire.GeneralizeReport, most int) (problems []fleet.Problem) {
	if report.Outcome == wire.DiskRefused {
		return []fleet.Problem{c.problem("DiskRefused", first(report.Message, "its disk cannot be captured"), "mend it on the node")}
	}
	if report.Outcome != wire.SecretsFound {
		return nil
	}
	for _, x := range []struct {
		class              wire.SecretClass
		code, what, wayOut string
	}{
		{wire.NodeIdentity, "IdentityOnDisk", "its disk holds its identity where generalising does not remove it: ", "remove it from the node; no flag accepts it"},
		{wire.PoolCredential, "PoolCredentials", "its disk holds credentials, which every new node would hold: ", "accept them with --accept-pool-credentials, or remove them from the node"},
		{
			wire.OtherSecret, "OtherSecrets", "its disk holds secrets that no node needs to join: ",
			"delete their files from the copy with --remove-secrets, accept them with --accept-secret PATH, or remove them from the node",
		},
	} {
		var found []string
		for _, f := range report.Findings {
			if f.Class == x.class && !f.Accepted && !f.Removed {
				found = append(found, fmt.Sprintf("%s (%s)", f.Path, strings.TrimSuffix(f.Rule+", "+f.Detail, ", ")))
			}
		}
		text := upTo(most, found, len(found))
		if x.class == wire.OtherSecret && len(problems) == 0 {
			text = first(text, report.Message) // it fails for more than it lists
		}
		if text != "" {
			problems = append(problems, c.problem(x.code, x.what+text, x.wayOut))
		}
	}
	return problems
}

// joinProblems refuses to strand the pool: if nothing on the disk and no customData lets a
// new node join, the extensions that are to be deleted are what does. What --bootstrap
// baked needs, ortet-node checks.
func (c *capture) joinProblems(report wire.GeneralizeReport, customData string) []fleet.Problem {
	s := c.get()
	switch {
	case report.Outcome == wire.DiskRefused, len(report.Joins) > 0, c.req.Bakes(), customDataUnread(report), customData != "" && customData != prototype.NoopSHA256:
	case customData == prototype.NoopSHA256, s.LastCustomData == prototype.NoopSHA256:
		return []fleet.Problem{c.problem("CannotJoin", "nothing that generalising leaves on its disk lets a new node join, and the model's customData does nothing since a capture with --bootstrap baked",
			"capture with --bootstrap baked")}
	case len(s.ToDelete) > 0:
		return []fleet.Problem{c.problem("CannotJoin", "nothing on its disk lets a new node join, and it came with no customData: the extensions that go may be all that does",
			"leave the extensions alone (--extensions none), or let the disk hold a bootstrap kubeconfig")}
	}
	return nil
}

// upTo lists most of the names, of so many.
func upTo(most int, names []string, all int) string {
	text := strings.Join(names[:min(len(names), most)], ", ")
	if more := all - most; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
