package program

import (
	"context"
	"errors"
	"log/slog"
	"runtime"

	"github.com/ortet/ortet/internal/node/disk"
	"github.com/ortet/ortet/internal/node/generalize"
	"github.com/ortet/ortet/internal/node/tree"
	"github.com/ortet/ortet/internal/wire"
)

// generalizeDisk opens what the flags name, generalises it and closes it. What is in the image is
// nil where nothing was generalised.
func generalizeDisk(ctx context.Context, f Flags, o generalize.Options, progress func(string), log *slog.Logger) (
	report wire.GeneralizeReport, manifest []byte,
) {
	report = generalize.NewReport(o)
	if runtime.GOOS != "linux" {
		refusal := &generalize.RefusedError{Reason: "disks are generalised on Linux only; this is " + runtime.GOOS}
		return generalize.Fail(report, refusal), nil
	}
	work := func(t *tree.Tree) error {
		if report = generalize.Run(ctx, t, o, progress, log); report.Outcome == wire.Generalized && !o.DryRun {
			progress("listing what is in the image")
			manifest = generalize.Manifest(t)
		}
		return nil
	}
	var err error
	var unseen []string
	if f.root != "" {
		err = withRoot(f.root, work)
	} else {
		err = disk.With(ctx, disk.Request{
			Host: f.host, LUN: f.lun, Controller: disk.Controller(f.controller), Wait: f.wait, ReadOnly: o.DryRun,
			IsRoot: generalize.IsSystem,
			Check:  func(t *tree.Tree) error { return generalize.CheckDonor(t, o) },
			Work:   work, Progress: progress, Log: log,
			Unseen: func(what string) { unseen = append(unseen, what) },
		})
		report.Unscanned = append(report.Unscanned, unseen...)
	}
	// A disk that could not be given back as it should counts as failed, also
	// where the work on it was done.
	if err != nil {
		if refusal := (*disk.RefusedError)(nil); errors.As(err, &refusal) {
			err = &generalize.RefusedError{Reason: refusal.Reason}
		}
		return generalize.Fail(report, err), nil
	}
	return report, manifest
}

func withRoot(dir string, work func(*tree.Tree) error) error {
	t, err := tree.Open(dir)
	if err != nil {
		return &generalize.RefusedError{Reason: err.Error()}
	}
	return errors.Join(work(t), t.Close())
}
