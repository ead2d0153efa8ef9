package capture

import (
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
	// inspectFor limits the inspection of the donor's disk, startFor the start of its pod.
	inspectFor, startFor = 2 * time.Minute, time.Minute
	maxNamed             = 10 // paths in a problem
)

// inspectionPod names the pod that inspects.
func inspectionPod(pool fleet.ResourceID) string { return prototype.JobName(pool, "look") }

// inspect finds what only the disk shows, before the donor is touched. That it cannot is
// a note: the same is found on the copy, later.
func (c *capture) inspect(ctx context.Context, p *workflow.Pass) (workflow.Wait, error) {
	if err := p.Save(ctx); err != nil {
		return done, err
	}
	w, problems, err := c.inspectOnce(ctx, c.name, p.Since())
	switch {
	case len(problems) > 0:
		return done, &workflow.Refused{Problems: problems}
	case err != nil && ctx.Err() == nil && p.Since() >= inspectFor:
		c.uninspected(err.Error())
		return done, nil
	}
	return w, err
}

func (c *capture) uninspected(why string) {
	c.Note("the donor's disk could not be inspected beforehand: %s", why)
}

// inspectNow inspects without a workflow, for a dry run.
func (c *capture) inspectNow(ctx context.Context) (problems []fleet.Problem, err error) {
	begun := c.Now()
	err = repeat(ctx, func(ctx context.Context) (w workflow.Wait, err error) {
		w, problems, err = c.inspectOnce(ctx, "inspection", c.Now().Sub(begun))
		return w, err
	})
	if err != nil && ctx.Err() == nil {
		c.uninspected(err.Error())
		err = nil
	}
	care, cancel := context.WithTimeout(context.WithoutCancel(ctx), startFor)
	defer cancel()
	began := c.Now()
	return problems, errors.Join(err, repeat(care, func(ctx context.Context) (workflow.Wait, error) { return c.endInspection(ctx, c.Now().Sub(began)) }))
}

// repeat makes passes until one is done.
func repeat(ctx context.Context, pass func(context.Context) (workflow.Wait, error)) error {
	for {
		w, err := pass(ctx)
		if err != nil || w.In == 0 {
			return err
		}
		select {
		case <-time.After(w.In):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// inspectOnce is one pass: the pod is created, after an earlier process's was deleted, or
// read.
func (c *capture) inspectOnce(ctx context.Context, name string, since time.Duration) (workflow.Wait, []fleet.Problem, error) {
	pod := inspectionPod(c.get().Pool)
	if !c.inspected {
		if since >= inspectFor {
			c.uninspected("its pod could not be started in time")
			return done, nil, nil
		}
		if w, err := c.endInspection(ctx, since); err != nil || w.In > 0 {
			return w, nil, err
		}
		job := c.job(pod, c.req.Node, "inspect", name, c.Now(), "--root", "/host", "--inspect")
		job.Deadline, job.ReadOnly = inspectFor, true
		err := c.Cluster.StartJob(ctx, job)
		c.inspected = err == nil
		return in(time.Second, "the pod is starting on %s", c.req.Node), nil, err
	}
	s, err := c.Cluster.Job(ctx, pod)
	if err != nil {
		return done, nil, err
	}
	_, report := readOutput(s.Output)
	switch {
	case s.Done && report != nil && report.Outcome != wire.GeneralizeFailed:
		return done, c.inspectionProblems(*report), nil
	case s.Done || !s.Exists, since >= inspectFor, since >= startFor && len(s.Output) == 0:
		why := first(s.Why, "the pod ended without a report: "+tail(s.Output))
		if report != nil {
			why = first(report.Message, why)
		}
		c.uninspected(why)
		return done, nil, nil
	}
	return in(time.Second, "inspecting"), nil, nil
}

func (c *capture) deleteInspection(ctx context.Context, p *workflow.Pass) (workflow.Wait, error) {
	return c.endInspection(ctx, p.Since())
}

// endInspection deletes the pod, by force if its node does not end it: it only reads, and
// all inspections of a pool have its name.
func (c *capture) endInspection(ctx context.Context, since time.Duration) (workflow.Wait, error) {
	pod := inspectionPod(c.get().Pool)
	if since >= podEnds {
		return done, c.Cluster.ForceDeleteJob(ctx, pod)
	}
	return c.endPod(ctx, pod)
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
