package generalize

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/ortet/ortet/internal/node/tree"
	"github.com/ortet/ortet/internal/wire"
)

// maxMessage is what a report's message may be long, in bytes.
const maxMessage = 2 << 10

// maxListed bounds each of a report's lists.
const maxListed = 200

// Run generalises the tree and reports. It always returns a report; what went
// wrong is its Outcome and Message. progress is called with short lines for the
// person who watches.
func Run(ctx context.Context, t *tree.Tree, o Options, progress func(string), log *slog.Logger) wire.GeneralizeReport {
	r := NewReport(o)
	o.Limits = o.Limits.withDefaults(o.Inspect)
	if err := o.Validate(); err != nil {
		return Fail(r, refuse("%v", err))
	}
	if err := run(ctx, t, o, &r, progress, log); err != nil {
		r = Fail(r, err)
	}
	// Names on the disk may hold anything; the report may not.
	for _, list := range []*[]string{&r.Joins, &r.Unsaved, &r.HooksNotRun, &r.Unscanned, &r.Mentions, &r.Emptied, &r.TunedKept} {
		*list = (*list)[:min(len(*list), maxListed)]
		for i, s := range *list {
			(*list)[i] = printable(s, 1024)
		}
	}
	return r
}

// NewReport is a report of which only the names are known.
func NewReport(o Options) wire.GeneralizeReport {
	return wire.GeneralizeReport{Capture: o.Capture, Donor: o.Donor, At: o.At, DryRun: o.DryRun, Outcome: wire.GeneralizeFailed}
}

// Fail turns an error into a report's outcome: a *RefusedError is DiskRefused.
func Fail(r wire.GeneralizeReport, err error) wire.GeneralizeReport {
	r.Outcome = wire.GeneralizeFailed
	if refusal := (*RefusedError)(nil); errors.As(err, &refusal) {
		r.Outcome = wire.DiskRefused
	}
	r.Message = printable(err.Error(), maxMessage)
	return r
}

func run(ctx context.Context, t *tree.Tree, o Options, r *wire.GeneralizeReport, progress func(string), log *slog.Logger) error {
	progress("looking at the disk")
	found, err := inspect(t, o)
	if err != nil {
		return err
	}
	r.OS, r.Joins, r.Resumed = found.os, found.joins, found.resumed
	r.Tuned, r.TunedKept = found.tune.Names, found.tune.Kept
	if o.Flush {
		if err := flush(ctx, t, o, r); err != nil || !o.Inspect {
			return err
		}
	}
	if r.HooksNotRun, err = hooks(t); err != nil {
		return err
	}
	if o.Inspect {
		return scanRunning(ctx, t, o, found, r, progress, log)
	}
	if !o.DryRun {
		if r.Ancestry, err = appendAncestry(t, o); err != nil {
			return err
		}
	}
	if err := save(t, o, found, r); err != nil {
		return err
	}

	progress("removing the donor's identity")
	rows := Table()
	c := &cleaner{t: t, o: o, donor: found.donor, log: log, kubeadm: found.kubeadm, doomed: map[string]bool{}}
	if o.DryRun {
		err = c.doom(rows, false, true)
	} else {
		err = c.clean(ctx, rows, false)
	}
	if err != nil {
		return err
	}
	if !o.DryRun { // before the scan, which sees what is added as well
		if err := found.tune.Apply(o.Capture); err != nil {
			return err
		}
	}
	if r.Joins, err = findJoins(t); err != nil {
		return err
	}
	r.Joins = c.staying(r.Joins)
	if o.Bootstrap == Baked && len(r.Joins) == 0 {
		return errors.New("after cleaning nothing is left on the disk by which a clone could join, although --bootstrap baked needs it")
	}
	if err := c.doom(rows, true, o.DryRun); err != nil {
		return err
	}

	r.Removed, r.Bytes = c.total.Paths, c.total.Bytes
	progress("scanning what is left for secrets")
	s, err := scan(ctx, t, o, found.donor, c.doomed, c.emptied, progress)
	if err != nil {
		return err
	}
	if err := s.judge(t, r); err != nil {
		return err
	}
	if r.Outcome == wire.SecretsFound {
		return nil
	}
	if o.DryRun {
		return c.measure(s.removals, r)
	}
	if len(s.removals) > 0 {
		progress(fmt.Sprintf("removing %d files with secrets", len(s.removals)))
		if err := c.removeSecrets(ctx, s.removals); err != nil {
			return err
		}
	}

	progress("removing what the run itself had read")
	if err := c.clean(ctx, rows, true); err != nil {
		return err
	}
	left, err := c.left(rows)
	if err != nil {
		return err
	}
	if len(left) > 0 {
		return fmt.Errorf("still there after removing: %v", left[:min(len(left), 10)])
	}
	r.Removed, r.Bytes = c.total.Paths, c.total.Bytes
	log.Info("generalized", "donor", o.Donor, "capture", o.Capture, "removed", r.Removed, "bytes", r.Bytes)
	return nil
}

// save seals what has to be saved into the report.
func save(t *tree.Tree, o Options, found inspection, r *wire.GeneralizeReport) error {
	s, err := findSavings(t)
	if err != nil {
		return err
	}
	if r.Saved, err = s.seal(o); err != nil {
		return err
	}
	if found.resumed {
		// A Last row, as what is saved is, and overwritten before that.
		name, err := readOptional(t, "/etc/hostname", maxConfig)
		if err != nil {
			return err
		}
		if name == nil {
			s.fail("an earlier run of this capture got to its end on this disk and removed what was to be saved; begin from the donor's snapshot again if its report is lost")
		}
	}
	slices.Sort(s.unsaved)
	slices.SortFunc(s.missing, func(a, b wire.UnsavedItem) int { // customData is not cut off
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
	})
	r.Unsaved, r.Missing, r.NoProtected = s.unsaved, s.missing[:min(len(s.missing), maxListed)], s.noProtected
	return nil
}
