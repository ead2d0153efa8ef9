package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ortet/ortet/internal/cluster"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/prototype"
	"github.com/ortet/ortet/internal/wire"
)

const (
	// lookFor bounds what is asked of one pod or node beside the work.
	lookFor = time.Minute
	// inspectFor bounds the inspection of the donor's disk; its pod has lookFor of that
	// to start.
	inspectFor = 2 * time.Minute
)

// inspectBefore finds what only the disk shows before the donor is touched: a pod on
// the donor reads it as the scan of the copy will. Where it cannot, that is a note and
// no reason to refuse: the same is found on the copy, later.
func (r *run) inspectBefore(q CaptureRequest, prep preparation) error {
	i := slices.IndexFunc(prep.steps, func(s prototype.Step) bool { return s.ID == prototype.StepInspect })
	if i < 0 || prep.steps[i].Skip != "" || prep.observed.Donor == nil {
		return nil
	}
	return r.carry(r.work, prep.steps[i], func(ctx context.Context, t *task) error {
		report, err := t.inspect(ctx, q, prep)
		if err == nil && report.Outcome == wire.GeneralizeFailed {
			err = errors.New(first(report.Message, "it failed without a reason"))
		}
		problems := inspectionProblems(q, prep, report)
		switch {
		case r.work.Err() != nil:
			return context.Cause(r.work)
		case err != nil:
			r.note("the donor's disk could not be inspected beforehand: %v", err)
			return needless("it could not be inspected: " + err.Error())
		case len(problems) > 0:
			return &Refused{Problems: problems}
		}
		if text := removalNote(report); text != "" {
			r.note("%s", text)
		}
		if report.Partial {
			r.note("the inspection of the donor's disk ended at its limit of time, files or bytes: the rest is scanned on the copy, later")
		}
		return nil
	})
}

// maxNamed bounds how many paths a problem names.
const maxNamed = 10

// inspectionProblems says what the report of a donor's disk gives for reasons to
// refuse, each with the way out.
func inspectionProblems(q CaptureRequest, prep preparation, report wire.GeneralizeReport) []fleet.Problem {
	var problems []fleet.Problem
	add := func(code, what, wayOut string) {
		problems = append(problems, fleet.Problem{Code: code, On: "node " + q.Node, What: what, WayOut: wayOut})
	}
	paths := map[wire.SecretClass][]string{}
	for _, f := range report.Findings {
		if !f.Accepted && !f.Removed {
			paths[f.Class] = append(paths[f.Class], fmt.Sprintf("%s (%s)", f.Path, f.Rule))
		}
	}
	named := func(class wire.SecretClass) string {
		all := paths[class]
		text := strings.Join(all[:min(len(all), maxNamed)], ", ")
		if more := len(all) - maxNamed; more > 0 {
			text += fmt.Sprintf(" and %d more", more)
		}
		return text
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
	seen := report.Outcome == wire.Generalized || report.Outcome == wire.SecretsFound
	if !seen || len(report.Joins) > 0 || customDataUnread(report) || q.Bootstrap != BootstrapKeep {
		return problems
	}
	switch {
	case prep.baked():
		add("CannotJoin", "nothing that generalising leaves on its disk lets a new node join, and the model's customData does nothing since a capture with --bootstrap baked",
			"capture with --bootstrap baked")
	case len(prep.input.Doomed) > 0:
		add("CannotJoin", "nothing on its disk lets a new node join, and it came with no customData: the extensions that go may be all that does",
			"leave the extensions alone (--extensions none), or let the disk hold a bootstrap kubeconfig")
	}
	return problems
}

// lookName names the pod that looks.
func lookName(pool fleet.ResourceID) string { return prototype.JobName(pool, "look") }

// sweepLook takes away a pod that looked for a run which died. One that may be
// looking now for another process is left to it. Where this run may take over from one that
// died (resumes), that there is none is not believed at once: the end tries again.
func (r *run) sweepLook(pool fleet.ResourceID, resumes bool) {
	ctx, cancel := context.WithTimeout(r.work, lookFor)
	defer cancel()
	name := lookName(pool)
	s, err := r.e.cluster.Job(ctx, name)
	if err == nil && s.Exists && (s.Done || r.hold != nil) {
		err = r.e.cluster.DeleteJob(ctx, name)
	}
	if err != nil {
		r.e.log.Debug("cannot take away a pod that inspected a disk", "pod", name, "error", err)
	}
	if err != nil || !s.Exists && resumes {
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
		r.note("the pod %s, which inspected the donor's disk, could not be removed (%v): kubectl delete pod -n %s %s", name, err, r.e.config.Namespace, name)
	}
}

// inspect runs the pod on the donor and gives its report. Without a hold on the pool
// another process may have made it: then the report is another donor's, or gone.
func (t *task) inspect(ctx context.Context, q CaptureRequest, prep preparation) (report wire.GeneralizeReport, err error) {
	r := t.r
	jobs, name := r.e.cluster, lookName(prep.plan.Pool)
	command := []string{
		"ortet-node", "generalize", "--root", "/host", "--inspect", "--capture", "inspection", "--donor", q.Node,
		"--at", r.e.now().UTC().Format(time.RFC3339), "--bootstrap", q.Bootstrap,
	}
	if ips := ipsOf(prep.observed.Donor.Addresses); len(ips) > 0 {
		command = append(command, "--donor-address", strings.Join(ips, ","))
	}
	command = append(command, secretFlags(q.options())...)
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
		Name: name, Node: q.Node, Image: r.e.config.Image, PullSecret: r.e.config.PullSecret, Command: command, Deadline: inspectFor, ReadOnly: true,
		Labels: map[string]string{"app.kubernetes.io/name": "ortet", "app.kubernetes.io/component": "inspect"},
	})
	if err != nil {
		return report, err
	}
	ctx, cancel := context.WithTimeout(ctx, inspectFor)
	defer cancel()
	for began := r.e.now(); ; {
		s, err := jobs.Job(ctx, name)
		if err != nil {
			return report, err
		}
		_, said := readOutput(s.Output)
		switch {
		case s.Done && said != nil && said.Donor != q.Node:
			return report, fmt.Errorf("another process inspected %s with pod %s", said.Donor, name)
		case s.Done && said != nil:
			return *said, nil
		case len(s.Output) == 0 && r.e.now().Sub(began) >= lookFor && !s.Done:
			return report, errors.New(first(s.Why, "the pod does not start"))
		case s.Done || !s.Exists:
			return report, errors.New("the pod ended without a report: " + first(s.Why, tail(s.Output)))
		}
		if err := t.wait(ctx, lookEvery, forWorld); err != nil {
			return report, errors.New(first(s.Why, "the pod does not end"))
		}
	}
}
