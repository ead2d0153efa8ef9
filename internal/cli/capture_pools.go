package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/auto"
	"github.com/ortet/ortet/internal/image/plan"
	"github.com/ortet/ortet/internal/workflow"
)

// checkSelection checks NODE, --pool, --all, and the flags that go with them.
func (f *captureFlags) checkSelection(cmd *cobra.Command, args []string) error {
	if f.fresh {
		if err := f.checkFresh(args); err != nil {
			return err
		}
	}
	if f.abandon {
		return ofPool(cmd, args)
	}
	if !f.all && len(f.pools) == 0 {
		if len(args) == 0 {
			return usagef("name the node to capture (as in 'kubectl get nodes'), or its pool with --pool POOL, or all pools with --all")
		}
		var only []string
		f.policySet.VisitAll(func(flag *pflag.Flag) {
			if flag.Changed {
				only = append(only, "--"+flag.Name)
			}
		})
		if len(only) > 0 {
			return usagef("%s: only with --pool or --all; a NODE is captured without rules", strings.Join(only, ", "))
		}
		return oneNode("the node to capture")(cmd, args)
	}
	switch {
	case len(args) > 0:
		return usagef("give NODE %s, or --pool or --all, not both", args[0])
	case f.request.Again && !f.fresh:
		return usagef("--again: only with NODE or --fresh; a pool is captured when a new image is due")
	case f.request.Workbench != "" && (f.all || len(f.pools) > 1):
		return usagef("--workbench: only with NODE or with one --pool; each pool needs a workbench of its own")
	case f.maxParallel < 1:
		return usagef("--max-parallel %d: want 1 or more", f.maxParallel)
	}
	return nil
}

// checkFresh refuses what has no meaning for a donor that is added.
func (f *captureFlags) checkFresh(args []string) error {
	switch {
	case f.abandon:
		return usagef("--fresh: not with --abandon, which begins no capture")
	case len(args) > 0 || !f.all && len(f.pools) == 0:
		return usagef("--fresh: only with --pool or --all; a node is added and captured, so no NODE is given")
	case f.request.Online:
		return usagef("--fresh: not with --online; a donor that is added serves nothing, so nothing is kept in service")
	}
	var rules []string
	f.policySet.VisitAll(func(flag *pflag.Flag) {
		if flag.Changed && !slices.Contains([]string{"patch-annotation", "max-image-age", "max-parallel"}, flag.Name) {
			rules = append(rules, "--"+flag.Name)
		}
	})
	if len(rules) > 0 {
		return usagef("%s: not with --fresh; no node of the pool is chosen", strings.Join(rules, ", "))
	}
	return nil
}

// checkPrepare sets what runs on a donor that is added.
func (f *captureFlags) checkPrepare() error {
	p := f.prepare
	switch asked := f.patch || p.Image != ""; {
	case !asked && len(p.Command) > 0:
		return usagef("--prepare-command: only with --prepare, whose image it is run in")
	case !asked && f.prepareTime.Changed:
		return usagef("--prepare-timeout: only with --prepare or --patch, whose time it limits")
	case !asked:
		return nil
	case !f.fresh:
		return usagef("--patch, --prepare: only with --fresh; a node in service is captured as it is")
	case f.patch && p.Image != "":
		return usagef("--patch and --prepare: give one; an image can run the script of --patch (deploy/prepare/patch.sh)")
	case f.patch && len(p.Command) > 0:
		return usagef("--prepare-command: not with --patch, which has its own")
	case p.Timeout < time.Minute || p.Timeout > plan.MaxPrepare:
		return usagef("--prepare-timeout %s: want 1m to 1h", durationText(p.Timeout))
	}
	f.request.Prepare = &p
	return checkImage("prepare", p.Image)
}

func (f *captureFlags) runPools(ctx context.Context, o *options) error {
	if err := f.complete(""); err != nil {
		return err
	}
	var shows map[fleet.Key]*progress
	show := func(pool fleet.ResourceID) *progress { return shows[fleet.KeyOf(pool)] }
	a, pools, err := f.open(ctx, o, f.work(o), show, auto.Config{Request: f.request, Fresh: f.fresh, MaxParallel: f.maxParallel})
	if err != nil {
		return err
	}
	shows = o.showPools(pools)
	if !f.dryRun {
		defer o.explainInterrupt(ctx, show(""))()
	}
	results := a.Run(ctx, pools, f.all, f.dryRun)
	show("").Close()
	return o.printResults(results, poolNames(pools))
}

// printResults writes failures in full to standard error, then the results.
func (o *options) printResults(results []auto.Result, name func(fleet.ResourceID) string) error {
	for _, r := range results {
		if r.Exit == workflow.ExitDone {
			continue
		}
		fmt.Fprintf(o.process.Err, "%s:\n", name(r.Pool))
		if r.Capture != nil && r.Exit != workflow.ExitRefused {
			list(o.process.Err, "Note", r.Capture.Notes)
			writeTestLines(o.process.Err, r.Capture.Canary)
			list(o.process.Err, preparedLines, r.Capture.Prepared)
		}
		writeError(o.process.Err, r.Err)
	}
	var versions []string
	for _, r := range results {
		if r.Outcome == auto.Captured {
			versions = append(versions, string(r.Capture.Version))
		}
	}
	if o.output == nameForm {
		writeResults(o.process.Err, results, name)
	}
	err := o.printNames(results, versions, func(w io.Writer) { writeResults(w, results, name) })
	if exit := auto.Exit(results); exit != workflow.ExitDone {
		return errors.Join(err, exitError(exit))
	}
	return err
}

// writeResults writes plans and what else is worth knowing, then a line for each pool.
func writeResults(w io.Writer, results []auto.Result, name func(fleet.ResourceID) string) {
	if len(results) == 0 {
		fmt.Fprintln(w, noPools)
	}
	for _, r := range results {
		var b strings.Builder
		switch {
		case r.Plan != nil:
			writePlan(&b, *r.Plan)
		case r.Outcome == auto.Captured:
			if r.Capture.Published != nil {
				fmt.Fprintln(&b, r.Capture.Version)
			}
			writeCaptureLists(&b, *r.Capture)
			if b.Len() > 0 {
				fmt.Fprintf(w, "%s:\n", name(r.Pool))
			}
		}
		if b.Len() > 0 {
			fmt.Fprintln(w, b.String())
		}
	}
	for _, r := range results {
		paragraph(w, resultWidth, "", "  ", name(r.Pool)+": "+outcome(r))
		for _, passed := range byReason(r.Passed) {
			paragraph(w, resultWidth, "  ", "    ", "passed over: "+passed)
		}
	}
	var notes []string
	for _, r := range results {
		notes = append(notes, r.Notes...)
	}
	writeNotes(w, notes)
}

// byReason joins the nodes that follow each other with the same reason: a secret that
// all nodes of a pool have is named once.
func byReason(passed []auto.PassedOver) (lines []string) {
	nodes := ""
	for i, p := range passed {
		if nodes += p.Node; i+1 < len(passed) && passed[i+1].Reason == p.Reason {
			nodes += ", "
			continue
		}
		lines, nodes = append(lines, nodes+": "+p.Reason), ""
	}
	return lines
}

func outcome(r auto.Result) string {
	text := string(r.Outcome)
	switch {
	case r.Exit == workflow.ExitRefused || r.Exit == workflow.ExitInterrupted:
		return shortError(r)
	case r.Outcome == auto.Ended:
		return fmt.Sprintf("failed with %d: %s", r.Exit, shortError(r))
	case r.Outcome == auto.Planned:
		text = "would capture " + r.Donor
	case r.Outcome == auto.Captured:
		donor := cmp.Or(r.Capture.BuiltFrom, r.Donor) // of an earlier run, if this one uses its version
		text = "captured " + donor + " as " + r.Capture.Version.Name()
		if r.Capture.Published != nil {
			text = "published " + r.Capture.Version.Name() + " from " + donor
		}
		if d := r.Capture.Timing.End.Sub(r.Capture.Timing.Begin); d > 0 {
			text += " in " + duration(d)
		}
	}
	return text + ": " + r.Because
}

// shortError is the first of what went wrong, in one line.
func shortError(r auto.Result) string {
	var refused *workflow.Refused
	if errors.As(r.Err, &refused) && len(refused.Problems) > 0 {
		text := "refused: " + shortly(refused.Problems[0].On) + ": " + refused.Problems[0].What
		if n := len(refused.Problems); n > 1 {
			text += fmt.Sprintf(" (and %d more)", n-1)
		}
		return text
	}
	text, _, _ := strings.Cut(cmp.Or(interruption(r.Err), r.Error), "\n")
	return text
}

// showPools makes the displays of captures side by side, by pool: the usual one for a
// single pool, else lines that begin with the pool's name. That of "" is for all.
func (o *options) showPools(pools []fleet.ResourceID) map[fleet.Key]*progress {
	if len(pools) == 1 {
		one := o.newProgress()
		return map[fleet.Key]*progress{"": one, fleet.KeyOf(pools[0]): one}
	}
	lock, name := &sync.Mutex{}, poolNames(pools)
	shows := map[fleet.Key]*progress{"": newProgress(sharedWriter{lock, o.process.Err, ""}, o.process.Getenv)}
	o.waits.through(shows[""].Say)
	for _, id := range pools {
		shows[fleet.KeyOf(id)] = newProgress(sharedWriter{lock, o.process.Err, name(id) + ": "}, o.process.Getenv)
	}
	return shows
}

// A sharedWriter writes whole lines after begin, beside others on the same output.
type sharedWriter struct {
	lock  *sync.Mutex
	to    io.Writer
	begin string
}

func (s sharedWriter) Write(line []byte) (int, error) {
	s.lock.Lock()
	defer s.lock.Unlock()
	_, err := io.WriteString(s.to, s.begin+string(line))
	return len(line), err
}
