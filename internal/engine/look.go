package engine

import (
	"context"
	"errors"
	"time"

	"github.com/ortet/ortet/internal/cluster"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/plan"
	"github.com/ortet/ortet/internal/wire"
)

// lookFor bounds the look at the donor's disk.
const lookFor = time.Minute

// lookStep is how the look is told. It is part of preflight, and no step of a
// plan: it changes nothing, and leaves nothing that a resume would need.
func lookStep() plan.Step {
	return plan.Step{ID: "look", Title: "Look at the donor's disk for what would stop the capture later", Usual: 5 * time.Second, Deadline: 2 * lookFor}
}

// lookBefore finds what only the disk shows, such as cloud-init's preserve_hostname or
// that nothing on it lets a clone join, before the donor is touched: a pod on
// the donor reads a few files. Where it cannot look, that is a note and no
// reason to refuse: the same is found on the copy, later.
func (r *run) lookBefore(q CaptureRequest, prep preparation) error {
	if !prep.input.Course.FromDonor() || prep.observed.Donor == nil {
		return nil
	}
	return r.carry(r.work, lookStep(), func(ctx context.Context, t *task) error {
		report, err := t.lookAt(ctx, q, prep)
		switch {
		case r.work.Err() != nil:
			return context.Cause(r.work)
		case err != nil:
			r.note("the donor's disk could not be looked at beforehand: %v", err)
			return needless("it could not be looked at: " + err.Error())
		case report.Outcome == wire.DiskRefused:
			return &Refused{Problems: []plan.Problem{{
				Code: "DiskRefused", On: "node " + q.Node, What: first(report.Message, "its disk cannot be captured"), WayOut: "mend it on the node",
			}}}
		}
		return nil
	})
}

// lookName names the pod that looks.
func lookName(pool fleet.ResourceID) string { return plan.JobName(pool, "look") }

// sweepLook takes away a pod that looked for a run which died. One that may be
// looking now for another process is left to it.
func (r *run) sweepLook(pool fleet.ResourceID) {
	ctx, cancel := context.WithTimeout(r.work, lookFor)
	defer cancel()
	name := lookName(pool)
	s, err := r.e.cluster.Job(ctx, name)
	if err == nil && s.Exists && (s.Done || r.hold != nil) {
		err = r.e.cluster.DeleteJob(ctx, name)
	}
	if err != nil {
		r.e.log.Debug("cannot take away a pod that looked at a disk", "pod", name, "error", err)
		r.mu.Lock()
		r.lookLeft = name
		r.mu.Unlock()
	}
}

// endLook tries again to take away a pod that looked and would not go, and says
// so where that fails: it has ended by itself by then, and the next capture of
// the pool takes it away.
func (r *run) endLook() {
	r.mu.Lock()
	name := r.lookLeft
	r.mu.Unlock()
	if name == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.caller), lookFor)
	defer cancel()
	if err := r.e.cluster.DeleteJob(ctx, name); err != nil {
		r.note("the pod %s, which looked at the donor's disk, could not be removed (%v): kubectl delete pod -n %s %s", name, err, r.e.config.Namespace, name)
	}
}

func (t *task) lookAt(ctx context.Context, q CaptureRequest, prep preparation) (report wire.GeneralizeReport, err error) {
	r := t.r
	jobs, name := r.e.cluster, lookName(prep.plan.Pool)
	command := []string{
		"ortet-node", "generalize", "--root", "/host", "--inspect", "--capture", "look", "--donor", q.Node,
		"--at", r.e.now().UTC().Format(time.RFC3339), "--bootstrap", q.Bootstrap,
	}
	// However this ends, even when the caller gave up, the pod goes.
	defer func() {
		care, cancel := context.WithTimeout(r.care, lookFor)
		defer cancel()
		if goneErr := jobs.DeleteJob(care, name); goneErr != nil {
			err = errors.Join(err, goneErr)
			r.mu.Lock()
			r.lookLeft = name
			r.mu.Unlock()
		}
	}()
	err = jobs.StartJob(ctx, cluster.Job{
		Name: name, Node: q.Node, Image: r.e.config.Image, PullSecret: r.e.config.PullSecret, Command: command, Deadline: lookFor,
		Labels: map[string]string{"app.kubernetes.io/name": "ortet", "app.kubernetes.io/component": "look"},
	})
	if err != nil {
		return report, err
	}
	ctx, cancel := context.WithTimeout(ctx, lookFor)
	defer cancel()
	for {
		s, err := jobs.Job(ctx, name)
		if err != nil {
			return report, err
		}
		if _, said := readOutput(s.Output); s.Done && said != nil {
			return *said, nil
		}
		if s.Done || !s.Exists {
			return report, errors.New("the pod ended without a report: " + first(s.Why, tail(s.Output)))
		}
		if err := t.wait(ctx, lookEvery, forWorld); err != nil {
			return report, errors.New(first(s.Why, "the pod does not end"))
		}
	}
}
