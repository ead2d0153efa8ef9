package cli

import (
	"io"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ortet/ortet/internal/image/capture"
)

// checkAbandon refuses flags that only a new capture has a use for.
func (f *captureFlags) checkAbandon(cmd *cobra.Command, o *options) (err error) {
	if o.output == nameForm {
		return usagef("-o name: not with --abandon, which makes no version; want table, json or yaml")
	}
	cmd.LocalNonPersistentFlags().VisitAll(func(flag *pflag.Flag) {
		if flag.Changed && err == nil && !slices.Contains(o.fromEnvironment, flag) && !slices.Contains([]string{"abandon", "dry-run", "lease-duration", "output"}, flag.Name) {
			err = usagef("--%s: not with --abandon, which begins no capture; leave it out", flag.Name)
		}
	})
	return err
}

func (f *captureFlags) runAbandon(cmd *cobra.Command, o *options, arg string) error {
	if err := f.checkAbandon(cmd, o); err != nil {
		return err
	}
	ctx := cmd.Context()
	show := o.newProgress()
	defer show.Close()
	c, err := o.open(ctx, f.work(o))
	if err != nil {
		return err
	}
	find, err := c.finder(o, nil)
	if err != nil {
		return err
	}
	node, pool, err := find.NodeOrPool(ctx, arg)
	if err != nil {
		return err
	}
	s := c.services(show)
	nothing := func(w io.Writer, pool string) {
		say(w, "Nothing to abandon: no capture of %s is open in namespace %s.", pool, o.namespace)
	}
	if f.dryRun {
		p, err := s.PlanAbandon(ctx, pool, node)
		if err != nil {
			return err
		}
		show.Close()
		if p.NothingToDo && len(p.Problems) == 0 {
			return o.print(p, func(w io.Writer) { nothing(w, p.Pool.Name()) })
		}
		return o.printPlan(p)
	}
	ended, stop := show.Preflight(), o.explainInterrupt(ctx, show)
	result, err := s.Abandon(ctx, pool, node)
	ended(err)
	stop()
	show.Close()
	if err != nil {
		return o.printFailure(result, result.Notes, err)
	}
	return o.print(result, func(w io.Writer) {
		if result.NothingToDo {
			nothing(w, result.Pool.Name())
			return
		}
		writeAbandoned(w, result)
	})
}

func writeAbandoned(w io.Writer, r capture.Result) {
	say(w, "The capture of %s is abandoned: what it did was undone, and the model of %s is as it was.", r.Donor, r.Pool.Name())
	list(w, "Stays", r.Left)
	list(w, "Note", r.Notes)
}
