package engine

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/ortet/ortet/internal/cluster"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/journal"
	"github.com/ortet/ortet/internal/prototype"
	"github.com/ortet/ortet/internal/wire"
)

// generalize has a pod on the workbench remove the donor's identity from the
// copy. A pod that was lost leaves a copy behind of which nothing is known, so
// that the next pod gets a new one.
func generalize(ctx context.Context, t *task) error {
	r := t.r
	if r.get().Saved {
		return needless("it is done, and what had to be saved is saved")
	}
	for try := 0; ; try++ {
		report, err := t.runJob(ctx)
		if err == nil {
			return judge(t, report)
		}
		var lost *lostJobError
		if !errors.As(err, &lost) || try == 2 || t.benchLost(ctx) != "" {
			return err
		}
		t.progress(-1, "%v: with a new copy again", lost)
		for _, act := range []act{deletePodNow, detach, deleteWorkDisk, workDisk, attach} {
			var not needless
			if err := act(ctx, t); err != nil && !errors.As(err, &not) {
				return err
			}
		}
		if err := r.forget(prototype.StepGeneralize); err != nil {
			return err
		}
	}
}

// A lostJobError is a pod that ended without a report.
type lostJobError struct{ why string }

func (e *lostJobError) Error() string { return "the pod on the workbench was lost: " + e.why }

// runJob starts the pod, or finds the one that an earlier process started, and
// waits for its report.
func (t *task) runJob(ctx context.Context) (wire.GeneralizeReport, error) {
	r := t.r
	f := r.get()
	job, err := r.job()
	if err != nil {
		return wire.GeneralizeReport{}, err
	}
	started := r.intended(prototype.StepGeneralize)
	if _, left := r.undo(undoJob); left && !started {
		// It worked on a copy that is gone: what it reports is not about this one.
		if err := deletePodNow(ctx, t); err != nil {
			return wire.GeneralizeReport{}, err
		}
	}
	if !started {
		node, err := t.benchNode(ctx)
		if err != nil {
			return wire.GeneralizeReport{}, err
		}
		if f.Bench.BootID != "" && node.BootID != f.Bench.BootID { // it may have booted from the copy
			return wire.GeneralizeReport{}, &lostJobError{"its node booted again, with the copy attached"}
		}
		err = r.write(func(rec *journal.Record, _ *facts) {
			addUndo(rec, undoJob, nil)
			rec.Intents[prototype.StepGeneralize] = journal.Intent{Verb: "start job", Target: job.Name, At: r.e.now(), Tries: 1}
		})
		if err != nil {
			return wire.GeneralizeReport{}, err
		}
	} else if s, err := t.job(ctx, job.Name); err != nil {
		return wire.GeneralizeReport{}, err
	} else if !s.Exists {
		return wire.GeneralizeReport{}, &lostJobError{"it is gone"}
	}
	if !started {
		if err := do(ctx, t, func(ctx context.Context) error { return r.e.cluster.StartJob(ctx, job) }); err != nil {
			return wire.GeneralizeReport{}, err
		}
	}
	said, begun := "", r.e.now()
	bench := silence{looked: begun}
	for {
		s, err := t.job(ctx, job.Name)
		if err != nil {
			return wire.GeneralizeReport{}, err
		}
		progress, report := readOutput(s.Output)
		switch {
		case !s.Exists:
			return wire.GeneralizeReport{}, &lostJobError{"it is gone"}
		case s.Done && report != nil && report.Capture == r.captureName():
			return *report, nil
		case s.Done && s.ExitCode == 64:
			return wire.GeneralizeReport{}, fmt.Errorf("ortet-node generalize does not take its flags: is %s of this version? it printed: %s", r.e.config.Image, tail(s.Output))
		case s.Done:
			return wire.GeneralizeReport{}, &lostJobError{fmt.Sprintf("it ended with code %d and no report (%s); it printed: %s", s.ExitCode, first(s.Why, "no reason given"), tail(s.Output))}
		}
		if text := first(s.Why, progress, "the pod is starting on "+f.Bench.Node); text != said {
			t.progress(-1, "%s", text)
			said = text
		}
		if err := t.awaitBench(ctx, &bench); err != nil {
			return wire.GeneralizeReport{}, err
		}
		if err := t.wait(ctx, lookAfter(r.e.now().Sub(begun)), forWorld); err != nil {
			return wire.GeneralizeReport{}, t.timedOut(ctx, "generalize", "pod "+job.Name, errors.New(first(said, "it does not end")))
		}
	}
}

func (t *task) job(ctx context.Context, name string) (cluster.JobState, error) {
	return ask(ctx, t, func(ctx context.Context) (cluster.JobState, error) { return t.r.e.cluster.Job(ctx, name) })
}

// job is the pod that generalises.
func (r *run) job() (cluster.Job, error) {
	f := r.get()
	public, err := publicKey(f.PrivateKey)
	if err != nil {
		return cluster.Job{}, err
	}
	r.mu.Lock()
	o, begun := optionsOf(r.record), r.record.Begun
	r.mu.Unlock()
	bootstrap := BootstrapKeep
	if o.Bake {
		bootstrap = BootstrapBaked
	}
	command := []string{
		"ortet-node", "generalize", "--host", "/host", "--lun", strconv.Itoa(int(f.Bench.LUN)),
		"--capture", r.captureName(), "--donor", r.donorName(), "--at", begun.UTC().Format(time.RFC3339),
		"--bootstrap", bootstrap, "--seal-to", base64.StdEncoding.EncodeToString(public),
	}
	if len(f.Addresses) > 0 {
		command = append(command, "--donor-address", strings.Join(f.Addresses, ","))
	}
	command = append(command, secretFlags(o)...)
	return cluster.Job{
		Name: f.Names.Job, Node: f.Bench.Node, Image: r.e.config.Image, PullSecret: r.e.config.PullSecret, Command: command,
		Labels:   map[string]string{"app.kubernetes.io/name": "ortet", "app.kubernetes.io/component": "generalize", "ortet.io/capture": r.captureName()},
		Deadline: time.Hour,
	}, nil
}

// readOutput gives the last progress and the report among the lines that a pod
// printed. Logs of others are mixed in, and are passed over.
func readOutput(output []byte) (progress string, report *wire.GeneralizeReport) {
	lines := bufio.NewScanner(bytes.NewReader(output))
	lines.Buffer(nil, 4<<20)
	for lines.Scan() {
		text := bytes.TrimSpace(lines.Bytes())
		if len(text) == 0 || text[0] != '{' {
			continue
		}
		line, err := wire.ParseGeneralizeLine(text)
		if err != nil {
			continue
		}
		if line.Report != nil {
			report = line.Report
		} else if line.Progress != "" {
			progress = line.Progress
		}
	}
	return progress, report
}

// tail gives the end of what a pod printed, for a person.
func tail(output []byte) string {
	const most = 400
	text := strings.TrimSpace(string(output))
	if len(text) > most {
		text = "…" + strings.ToValidUTF8(text[len(text)-most:], "")
	}
	return strconv.Quote(text)
}

// judge says what a report means.
func judge(t *task, report wire.GeneralizeReport) error {
	r := t.r
	switch report.Outcome {
	case wire.Generalized:
	case wire.SecretsFound:
		var lines []string
		for _, f := range report.Findings {
			if !f.Accepted && !f.Removed {
				lines = append(lines, fmt.Sprintf("%s (%s, %s%s)", f.Path, f.Class, f.Rule, orNothing(", ", f.Detail)))
			}
		}
		return &fleet.Error{Op: "generalize", Resource: "the copy of the disk", Kind: fleet.KindInvalid,
			Err:    fmt.Errorf("it holds secrets that may not be in an image: %s", first(strings.Join(lines, "; "), report.Message)),
			Remedy: "remove them from the donor; --accept-pool-credentials accepts those of class PoolCredential, --accept-secret PATH one of class OtherSecret, and --remove-secrets deletes the files of these from the copy"}
	case wire.DiskRefused:
		return &fleet.Error{Op: "generalize", Resource: "the copy of the disk", Kind: fleet.KindInvalid, Err: errors.New(first(report.Message, "the disk was refused"))}
	default:
		return &fleet.Error{Op: "generalize", Resource: "the copy of the disk", Kind: fleet.KindInvalid, Err: errors.New(first(report.Message, "it failed without a reason"))}
	}
	r.mu.Lock()
	o := optionsOf(r.record)
	r.mu.Unlock()
	if o.Bake && len(report.Joins) == 0 {
		return &fleet.Error{Op: "generalize", Resource: "the copy of the disk", Kind: fleet.KindInvalid,
			Err:    errors.New("nothing on it lets a clone join, and --bootstrap baked leaves it nothing else"),
			Remedy: "say --bootstrap keep, or let the disk hold a bootstrap kubeconfig"}
	}
	t.progress(100, "removed %d paths; %s", report.Removed, first(report.OS, "an unknown system"))
	return nil
}
