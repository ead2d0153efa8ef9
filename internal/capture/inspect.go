package capture

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/ortet/ortet/internal/cluster"
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
	if !c.inspected {
		if err := p.Save(ctx); err != nil {
			return done, err
		}
	}
	w, problems, err := c.inspectOnce(ctx, c.name, p.Since())
	switch {
	case len(problems) > 0:
		return done, &workflow.Refused{Problems: problems}
	case err != nil && ctx.Err() == nil && p.Since() >= inspectFor:
		p.Note("the donor's disk could not be inspected beforehand: %v", err)
		return done, nil
	}
	return w, err
}

// inspectNow inspects without a workflow, for a dry run.
func (c *capture) inspectNow(ctx context.Context) (problems []fleet.Problem, err error) {
	begun := c.Now()
	for err == nil {
		var w workflow.Wait
		if w, problems, err = c.inspectOnce(ctx, "inspection", c.Now().Sub(begun)); err != nil || w.In == 0 {
			break
		}
		err = sleep(ctx, w.In)
	}
	if err != nil && ctx.Err() == nil {
		c.Note("the donor's disk could not be inspected beforehand: %v", err)
		err = nil
	}
	care, cancel := context.WithTimeout(context.WithoutCancel(ctx), startFor)
	defer cancel()
	for {
		gone, deleting := c.Cluster.DeleteJob(care, inspectionPod(c.get().Pool))
		if !gone && deleting == nil {
			deleting = sleep(care, time.Second)
		}
		if gone || deleting != nil {
			return problems, errors.Join(err, deleting)
		}
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// inspectOnce is one pass: the pod is created, or read.
func (c *capture) inspectOnce(ctx context.Context, name string, since time.Duration) (workflow.Wait, []fleet.Problem, error) {
	pod := inspectionPod(c.get().Pool)
	if !c.inspected {
		err := c.Cluster.StartJob(ctx, cluster.Job{
			Name: pod, Node: c.req.Node, Image: c.Image, PullSecret: c.PullSecret, Command: c.inspectCommand(name), Deadline: inspectFor, ReadOnly: true,
			Labels: map[string]string{"app.kubernetes.io/name": "ortet", "app.kubernetes.io/component": "inspect"},
		})
		c.inspected = err == nil
		return in(time.Second, "the pod is starting on %s", c.req.Node), nil, err
	}
	s, err := c.Cluster.Job(ctx, pod)
	if err != nil {
		return done, nil, err
	}
	_, report := readOutput(s.Output)
	switch {
	case s.Done && report != nil && report.Capture != name: // of an earlier process
		c.inspected = false
		w, err := c.endPod(ctx, pod)
		if w.In == 0 {
			w = in(time.Millisecond, "deleting an earlier pod")
		}
		return w, nil, err
	case s.Done && report != nil && report.Outcome != wire.GeneralizeFailed:
		return done, c.inspectionProblems(*report), nil
	case s.Done || !s.Exists, since >= inspectFor, since >= startFor && len(s.Output) == 0:
		why := first(s.Why, "the pod ended without a report: "+tail(s.Output))
		if report != nil {
			why = first(report.Message, why)
		}
		c.Note("the donor's disk could not be inspected beforehand: %s", why)
		return done, nil, nil
	}
	return in(time.Second, "inspecting"), nil, nil
}

func (c *capture) inspectCommand(name string) []string {
	command := []string{
		"ortet-node", "generalize", "--root", "/host", "--inspect", "--capture", name, "--donor", c.req.Node,
		"--at", c.Now().UTC().Format(time.RFC3339), "--bootstrap", c.req.Bootstrap,
	}
	if ips := c.get().Addresses; len(ips) > 0 {
		command = append(command, "--donor-address", strings.Join(ips, ","))
	}
	return append(command, c.secretFlags()...)
}

func (c *capture) deleteInspection(ctx context.Context, _ *workflow.Pass) (workflow.Wait, error) {
	return c.endPod(ctx, inspectionPod(c.get().Pool))
}

// inspectionProblems are the reasons to refuse that a report gives, each with the way
// out. The rest of it becomes notes.
func (c *capture) inspectionProblems(report wire.GeneralizeReport) (problems []fleet.Problem) {
	add := func(code, what, wayOut string) {
		problems = append(problems, fleet.Problem{Code: code, On: "node " + c.req.Node, What: what, WayOut: wayOut})
	}
	named := func(class wire.SecretClass) string {
		var all []string
		for _, f := range report.Findings {
			if f.Class == class && !f.Accepted && !f.Removed {
				all = append(all, fmt.Sprintf("%s (%s)", f.Path, f.Rule))
			}
		}
		return upTo(all, len(all))
	}
	switch report.Outcome {
	case wire.DiskRefused:
		add("DiskRefused", first(report.Message, "its disk cannot be captured"), "mend it on the node")
	case wire.SecretsFound:
		if text := named(wire.NodeIdentity); text != "" {
			add("IdentityOnDisk", "its disk holds its identity where generalising does not remove it: "+text, "remove it from the node; no flag accepts it")
		}
		if text := named(wire.PoolCredential); text != "" {
			add("PoolCredentials", "its disk holds credentials, which every new node would hold: "+text,
				"accept them with --accept-pool-credentials, or remove them from the node")
		}
		text := named(wire.OtherSecret)
		if text == "" && len(problems) == 0 {
			text = report.Message // it fails for more than it lists
		}
		if text != "" {
			add("OtherSecrets", "its disk holds secrets that no node needs to join: "+text,
				"delete their files from the copy with --remove-secrets, accept them with --accept-secret PATH, or remove them from the node")
		}
	}
	s := c.get()
	seen := report.Outcome == wire.Generalized || report.Outcome == wire.SecretsFound
	if seen && len(report.Joins) == 0 && !customDataUnread(report) && !c.req.Bakes() {
		switch {
		case s.LastCustomData == noopSHA:
			add("CannotJoin", "nothing that generalising leaves on its disk lets a new node join, and the model's customData does nothing since a capture with --bootstrap baked",
				"capture with --bootstrap baked")
		case len(s.ToDelete) > 0:
			add("CannotJoin", "nothing on its disk lets a new node join, and it came with no customData: the extensions that go may be all that does",
				"leave the extensions alone (--extensions none), or let the disk hold a bootstrap kubeconfig")
		}
	}
	if len(problems) == 0 {
		var scan state
		scan.keepScan(report)
		if len(scan.RemovedSecrets) > 0 {
			c.Note("--remove-secrets deletes from the copy: %s", upTo(scan.RemovedSecrets, report.SecretsRemoved))
		}
		if report.Partial {
			c.Note("the inspection of the donor's disk ended at its limit of time, files or bytes: the rest is scanned on the copy, later")
		}
	}
	return problems
}

// upTo lists maxNamed of so many.
func upTo(names []string, all int) string {
	text := strings.Join(names[:min(len(names), maxNamed)], ", ")
	if more := all - maxNamed; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
