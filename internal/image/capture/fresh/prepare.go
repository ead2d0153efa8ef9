package fresh

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/ortet/ortet/internal/cluster"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/prove"
	"github.com/ortet/ortet/internal/redact"
	"github.com/ortet/ortet/internal/workflow"
)

const (
	exitRestart = 10              // of a preparation after which the donor has to restart
	startFor    = 2 * time.Minute // how long a pod may say that it cannot start
	endFor      = time.Minute     // how long its kubelet may take to end one whose time is over
	checkFor    = 2 * time.Minute // of the pod that looks whether a restart is needed
	shownLines  = 20              // of what a preparation printed
	shownBytes  = 400             // of each
)

// errRestarted is how a preparation ends that does not leave a restart to the capture.
var errRestarted = fmt.Errorf(
	"the preparation restarted the fresh donor by itself: end it with exit code %d where a restart is needed", exitRestart)

// A Prepared is how far the preparation of a donor is. It is saved before each pod begins, so that
// none runs twice.
type Prepared struct {
	Boot    string `json:"boot,omitempty"` // boot id of the donor as it began
	Next    int    `json:"next,omitempty"` // of the jobs
	Restart bool   `json:"restart,omitempty"`
	Stopped bool   `json:"stopped,omitempty"` // for the restart
	Ended   bool   `json:"ended,omitempty"`
}

// jobs are the pods of a preparation, one after the other: the preparation, and where that is not our
// own, one that looks for the node's mark of a restart.
func (r *Raising) jobs() []cluster.Job {
	q, own := r.Of().Prepare, r.Job("prepare")
	work := own
	work.Image, work.Command, work.Deadline = q.Image, q.Command, q.Timeout
	work.HostPID = true // scripts of packages restart services
	if q.Image == "" {
		work.Image, work.Command = own.Image, []string{"ortet-node", "patch", "--root", "/host"}
		return []cluster.Job{work}
	}
	own = r.Job("prepare-check")
	own.Deadline, own.ReadOnly = checkFor, true
	own.Command = []string{"ortet-node", "patch", "--root", "/host", "--check"}
	return []cluster.Job{work, own}
}

// prepare runs the preparation of a donor that is Ready, and restarts the donor where that asks for
// it. The boot, and the soak, are counted from its end.
func (r *Raising) prepare(ctx context.Context, p *workflow.Pass, x prove.Clone) (workflow.Wait, error) {
	d, s := r.Donor.Get(), &r.raising
	fails := func(format string, args ...any) (workflow.Wait, error) {
		return done, fmt.Errorf("the preparation "+format, args...)
	}
	switch {
	case d.Prepared.Restart:
		return r.restart(ctx, p)
	case x.Node != nil && d.Prepared.Boot == "":
		r.Donor.Set(func(d *Donor) { d.Prepared.Boot = x.Node.BootID })
		return workflow.In(time.Millisecond, "preparing %s", x.Node.Name), p.Save(ctx)
	case x.Node != nil && x.Node.BootID != d.Prepared.Boot:
		return done, errRestarted
	}
	jobs := r.jobs()
	job := jobs[d.Prepared.Next]
	if s.job != job.Name {
		if job.Node = s.node; x.Node != nil {
			job.Node = x.Node.Name
		}
		err := r.Cluster.StartJob(ctx, job)
		if err == nil {
			s.job, s.node, s.ran, s.started = job.Name, job.Node, false, r.Now()
		}
		return workflow.In(lookEvery, "the pod is starting on %s", job.Node), err
	}
	pod, err := r.Cluster.Job(ctx, job.Name)
	if err != nil {
		return done, err
	}
	s.ran = s.ran || pod.Ran
	why, since := redact.Plain(redact.Text(pod.Why), shownBytes), r.Now().Sub(s.started)
	if lines := redact.Tail(pod.Output, shownLines, shownBytes); len(lines) > 0 && !job.ReadOnly {
		r.Lines = lines
	}
	switch {
	case !pod.Exists:
		return fails("has no result: others deleted its pod before it ended")
	case !s.ran && (pod.Done || since >= job.Deadline+endFor || why != "" && since >= startFor):
		return fails("could not run image %s: %s", job.Image, cmp.Or(why, "its pod did not start"))
	case !pod.Done && since >= job.Deadline+endFor:
		return fails("did not end within %s%s", job.Deadline,
			workflow.SkipIf(x.Node == nil || !x.Node.Ready, ", and the Node is not Ready"))
	case !pod.Done:
		return workflow.In(lookEvery, "%s", cmp.Or(why, "preparing "+s.node)), nil
	case pod.ExitCode != 0 && pod.ExitCode != exitRestart:
		return fails("failed: %s", cmp.Or(why, fmt.Sprintf("exit code %d", pod.ExitCode))+r.lastLine())
	}
	r.Donor.Set(func(d *Donor) {
		d.Prepared.Next++
		d.Prepared.Restart = pod.ExitCode == exitRestart
		d.Prepared.Ended = !d.Prepared.Restart && d.Prepared.Next == len(jobs)
	})
	s.begun = r.Cloud.Now()
	return workflow.In(time.Millisecond, "prepared %s", s.node),
		r.Cluster.ForceDeleteJob(ctx, job.Name) // its container has ended
}

// lastLine is the reason that a preparation printed last. Our own ends with how its script ended, below
// the package manager's reason.
func (r *Raising) lastLine() string {
	n := 1
	if r.Of().Prepare.Image == "" {
		n = 2
	}
	if len(r.Lines) == 0 {
		return ""
	}
	return ": " + strings.Join(r.Lines[max(0, len(r.Lines)-n):], "; ")
}

// restart stops the donor and starts it, each of which Azure shows.
func (r *Raising) restart(ctx context.Context, p *workflow.Pass) (workflow.Wait, error) {
	d := r.Donor.Get()
	is := func(states ...fleet.PowerState) func(context.Context) (bool, error) {
		return func(ctx context.Context) (bool, error) {
			i, err := r.Cloud.Instance(ctx, d.Instance)
			return i.Power == states[0] || i.Power == states[len(states)-1], err
		}
	}
	if !d.Prepared.Stopped {
		w, err := p.Ensure(ctx, fleet.StopInstance{Instance: d.Instance}, is(fleet.PowerStopped, fleet.PowerDeallocated))
		if err != nil || w.RequeueAfter > 0 {
			return w, err
		}
		r.Donor.Set(func(d *Donor) { d.Prepared.Stopped = true })
	}
	w, err := p.Ensure(ctx, fleet.StartInstance{Instance: d.Instance}, is(fleet.PowerRunning))
	if err != nil || w.RequeueAfter > 0 {
		return w, err
	}
	r.Donor.Set(func(d *Donor) { d.Prepared.Ended = true })
	r.raising.begun = r.Cloud.Now()
	return workflow.In(lookEvery, "the donor boots again"), p.Save(ctx)
}

// unproven says why a donor that was prepared has to be waited for; "" for one that was not, or has
// stayed Ready since.
func (r *Raising) unproven(x prove.Clone, limit time.Duration) (why string, err error) {
	d, since := r.Donor.Get(), r.Cloud.Now().Sub(r.raising.begun)
	switch again := x.Node != nil && x.Node.BootID != d.Prepared.Boot; {
	case !d.Prepared.Ended || x.Node == nil:
	case again && !d.Prepared.Restart:
		err = errRestarted
	case !again && d.Prepared.Restart && since >= limit:
		err = fmt.Errorf("the fresh donor did not boot again within %s, after its preparation", limit.Round(time.Second))
	case !again && d.Prepared.Restart:
		why = x.Node.Name + " has not booted again"
	case since < r.Of().Soak:
		why = x.Node.Name + " was prepared, and has to stay Ready for " + r.Of().Soak.String()
	}
	return why, err
}
