package donor

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

// PodFor limits a pod that only reads the donor's disk.
const PodFor = 2 * time.Minute

// flushFresh is how old a flush may be when the snapshot begins: what was flushed longer ago, by a
// run that was interrupted, is flushed again.
const flushFresh = time.Minute

func flushPod(pool fleet.ResourceID) string { return plan.JobName(pool, "flush") }

// flush has a pod on the donor, which may only read, call syncfs. It reads the pod's output
// before the pod ends, since a process that hangs in a dead disk never does.
func (d *Donor) flush(ctx context.Context, p *workflow.Pass) (workflow.Wait, error) {
	s := d.Of()
	pod := flushPod(s.Pool)
	if d.flushing.IsZero() {
		if err := p.Save(ctx); err != nil {
			return done, err
		}
		node, err := d.Cluster.Node(ctx, s.Request.Node)
		if err != nil {
			return done, err
		}
		i, err := d.used().Read(ctx, d.Cloud)
		if err == nil {
			err = d.Cluster.ForceDeleteJob(ctx, pod)
		}
		if err == nil {
			job := d.Job(pod, s.Request.Node, "flush", s.Capture, d.Now(), "--root", "/host", "--flush")
			job.Deadline, job.ReadOnly = PodFor, true
			err = d.Cluster.StartJob(ctx, job)
		}
		if err == nil {
			d.flushing = d.Now()
			d.Machine.Set(func(m *Machine) { m.Disk = i.OSDisk })
			d.Taken.Set(func(t *Taken) { t.BootID = node.BootID })
		}
		return workflow.In(time.Second, "the pod is starting on %s", s.Request.Node), err
	}
	job, err := d.Cluster.Job(ctx, pod)
	if err != nil {
		return done, err
	}
	_, output, unread := report.Read(job.Output)
	var problems plan.Problems
	switch since := d.Now().Sub(d.flushing); {
	case output != nil && output.Capture == s.Capture && !output.Flushed.IsZero():
		d.flushed, d.flushing = d.flushing, time.Time{}
		d.Taken.Set(func(t *Taken) { t.Online = output.Flushed.Format(time.RFC3339) })
		return done, nil
	case output != nil:
		problems = s.Disk.Problems(*output, plan.MaxNamed)
	case job.Done && job.ExitCode == report.ExitFlags, job.Exists && !job.Ran && since >= PodFor:
		problems = PodProblem(s.Request.Node, "the flush pod did not run: "+cmp.Or(job.Why, report.Tail(job.Output)))
	case unread != nil:
		problems = PodProblem(s.Request.Node, "ortet-node of another version flushed its disk: "+unread.Error())
	case since < PodFor && !job.Done:
		return workflow.In(time.Second, "%s", cmp.Or(job.Why, "flushing")), nil
	default:
		problems = plan.Problems{{What: "the flush pod gave no report within " + PodFor.String() + strings.TrimSuffix(": "+job.Why, ": "),
			WayOut: "look for dead disks and mounts on the node (dmesg), or capture it without --online"}}
	}
	d.flushing = time.Time{}
	return done, problems.Err("flush", "node "+s.Request.Node)
}

// confirmBoot waits until the donor's kubelet has reported since the snapshot was complete: until
// then the Node may show a boot that ended. No clock is read, the report has to be another one.
func (d *Donor) confirmBoot(ctx context.Context, _ *workflow.Pass) (workflow.Wait, error) {
	s, taken := d.Of(), d.Taken.Get()
	node, err := d.Cluster.Node(ctx, s.Request.Node)
	switch {
	case fleet.Is(err, fleet.KindNotFound):
		return done, fleet.Invalid("confirm boot", "node "+s.Request.Node, "capture another node",
			"its Node was deleted before it showed that the node ran while its disk was copied")
	case err != nil:
		return done, err
	case node.BootID != taken.BootID:
		return done, d.interruptedCopy()
	case node.Reported.IsZero() || node.Reported.Equal(taken.Reported):
		return workflow.In(5*time.Second, "node %s has not reported since its disk was copied; its kubelet does so each nodeStatusReportFrequency, by default 5 minutes",
			s.Request.Node), nil
	}
	d.Taken.Set(func(t *Taken) { t.BootID = "" })
	return done, nil
}

func (d *Donor) interruptedCopy() error {
	return fleet.Invalid("create snapshot", string(d.Machine.Get().Instance), "", "the donor was stopped, booted or given another disk while its disk was copied")
}

// stayed returns an error if the donor is seen to have stopped since the flush, and notes which
// report of its kubelet was the last one then.
func (d *Donor) stayed(ctx context.Context) error {
	taken, disk := d.Taken.Get(), d.Machine.Get().Disk
	i, err := d.used().Read(ctx, d.Cloud)
	if err != nil {
		return err
	}
	node, err := d.Cluster.Node(ctx, d.Of().Request.Node)
	if err == nil && (node.BootID != taken.BootID || i.Power != fleet.PowerRunning || !i.OSDisk.Equal(disk)) {
		err = d.interruptedCopy()
	}
	d.Taken.Set(func(t *Taken) { t.Reported = node.Reported })
	return err
}

// PodProblem is the reason to refuse a donor that cannot run the pods of a capture.
func PodProblem(node, what string) plan.Problems {
	return plan.Problems{{Code: "PodCannotStart", On: "node " + node, What: what,
		WayOut: "give this version's own image by --image (make image builds it), a pull secret for it by --image-pull-secret, and let the nodes reach its registry"}}
}
