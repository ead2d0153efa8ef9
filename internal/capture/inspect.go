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
	inspectFor = 2 * time.Minute // limit of the inspection of the donor's disk
	maxNamed   = 10              // paths in a problem
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
	case report.Outcome == wire.DiskRefused, len(report.Joins) > 0, c.req.Bakes(), customDataUnread(report), customData != "" && customData != noopSHA:
	case customData == noopSHA, s.LastCustomData == noopSHA:
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
