package capture

import (
	"cmp"
	"context"
	"strings"
	"time"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/capture/report"
	"github.com/ortet/ortet/internal/image/plan"
	"github.com/ortet/ortet/internal/workflow"
)

// flushFresh is how old a flush may be when the snapshot begins: what was flushed longer ago, by a
// run that was interrupted, is flushed again.
const flushFresh = time.Minute

func flushPod(pool fleet.ResourceID) string { return plan.JobName(pool, "flush") }

// outOfService returns why the rows that take the donor out of service are skipped.
func (c *capture) outOfService(v view) string {
	return cmp.Or(v.copied(), workflow.SkipIf(c.req.Online, "--online: the node stays in service"))
}

// flush has a pod on the donor, which may only read, call syncfs. It reads the pod's output
// before the pod ends, since a process that hangs in a dead disk never does.
func (c *capture) flush(ctx context.Context, p *workflow.Pass) (workflow.Wait, error) {
	pod := flushPod(c.get().Pool)
	if c.flushing.IsZero() {
		if err := p.Save(ctx); err != nil {
			return done, err
		}
		node, err := c.Cluster.Node(ctx, c.req.Node)
		if err != nil {
			return done, err
		}
		i, err := c.donorInstance(ctx)
		if err == nil {
			err = c.Cluster.ForceDeleteJob(ctx, pod)
		}
		if err == nil {
			job := c.job(pod, c.req.Node, "flush", c.name, c.Now(), "--root", "/host", "--flush")
			job.Deadline, job.ReadOnly = inspectFor, true
			err = c.Cluster.StartJob(ctx, job)
		}
		if err == nil {
			c.flushing = c.Now()
			c.set(func(s *state) { s.Disk, s.BootID = i.OSDisk, node.BootID })
		}
		return workflow.In(time.Second, "the pod is starting on %s", c.req.Node), err
	}
	s, err := c.Cluster.Job(ctx, pod)
	if err != nil {
		return done, err
	}
	_, output := report.Read(s.Output)
	var problems plan.Problems
	switch since := c.Now().Sub(c.flushing); {
	case output != nil && output.Capture == c.name && !output.Flushed.IsZero():
		c.flushed, c.flushing = c.flushing, time.Time{}
		c.set(func(st *state) { st.Online = output.Flushed.Format(time.RFC3339) })
		return done, nil
	case output != nil:
		problems = c.disk().Problems(*output, plan.MaxNamed)
	case s.Done && s.ExitCode == exitFlags, s.Exists && !s.Ran && since >= inspectFor:
		problems = c.podProblem("the flush pod did not run: " + cmp.Or(s.Why, report.Tail(s.Output)))
	case since < inspectFor && !s.Done:
		return workflow.In(time.Second, "%s", cmp.Or(s.Why, "flushing")), nil
	default:
		problems = plan.Problems{{What: "the flush pod gave no report within " + inspectFor.String() + strings.TrimSuffix(": "+s.Why, ": "),
			WayOut: "look for dead disks and mounts on the node (dmesg), or capture it without --online"}}
	}
	c.flushing = time.Time{}
	return done, problems.Err("flush", "node "+c.req.Node)
}

// confirmBoot waits until the donor's kubelet has reported since the snapshot was complete: until
// then the Node may show a boot that ended. No clock is read, the report has to be another one.
func (c *capture) confirmBoot(ctx context.Context, _ *workflow.Pass) (workflow.Wait, error) {
	s := c.get()
	node, err := c.Cluster.Node(ctx, c.req.Node)
	switch {
	case fleet.Is(err, fleet.KindNotFound):
		return done, fleet.Invalid("confirm boot", "node "+c.req.Node, "capture another node",
			"its Node was deleted before it showed that the node ran while its disk was copied")
	case err != nil:
		return done, err
	case node.BootID != s.BootID:
		return done, c.interruptedCopy()
	case node.Reported.IsZero() || node.Reported.Equal(s.Reported):
		return workflow.In(5*time.Second, "node %s has not reported since its disk was copied; its kubelet does so each nodeStatusReportFrequency, by default 5 minutes",
			c.req.Node), nil
	}
	c.set(func(s *state) { s.BootID = "" })
	return done, nil
}

func (c *capture) interruptedCopy() error {
	return fleet.Invalid("create snapshot", string(c.get().Instance), "", "the donor was stopped, booted or given another disk while its disk was copied")
}

// stayed returns an error if the donor is seen to have stopped since the flush, and notes which
// report of its kubelet was the last one then.
func (c *capture) stayed(ctx context.Context) error {
	s := c.get()
	i, err := c.donorInstance(ctx)
	if err != nil {
		return err
	}
	node, err := c.Cluster.Node(ctx, c.req.Node)
	if err == nil && (node.BootID != s.BootID || i.Power != fleet.PowerRunning || !i.OSDisk.Equal(s.Disk)) {
		err = c.interruptedCopy()
	}
	c.set(func(s *state) { s.Reported = node.Reported })
	return err
}
