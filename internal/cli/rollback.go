package cli

import (
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ortet/ortet/internal/engine"
	"github.com/ortet/ortet/internal/fleet"
)

func newRollback(o *options) *cobra.Command {
	var (
		request engine.RollbackRequest
		dryRun  bool
		lease   leaseDuration
	)
	cmd := &cobra.Command{
		Use:   "rollback NODE|SCALE-SET-ID",
		Short: "Point a pool's model at an earlier version again",
		Long: `rollback points a scale set's model at an earlier image version, by default the
one before the current one. New nodes boot from it; running instances are not
changed.

If no earlier version is kept, or with --to original, image and customData become
what they were before the first capture. Saved customData is restored if the
earlier version needs it. The replaced version is tagged as rolled back: a capture
on the same day does not use it again.`,
		Example: `  ortet rollback k8s-pool1-12345678-vmss000000
  ortet rollback k8s-pool1-12345678-vmss000000 --to 2026.11.20`,
		Args: oneArgument("a node of the pool, or the scale set's ARM id"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if strings.HasPrefix(args[0], "/") {
				request.Pool = fleet.ResourceID(args[0])
			} else {
				request.Node = args[0]
			}
			ctx := cmd.Context()
			show := newProgress(o.process.Err, o.process.Getenv)
			defer show.Close()
			e, err := o.connect(ctx, show, work{lease: lease})
			if err != nil {
				return err
			}
			if dryRun {
				p, err := e.PlanRollback(ctx, request)
				if err != nil {
					return err
				}
				show.Close()
				return o.printPlan(p)
			}
			result, err := e.Rollback(ctx, request)
			show.Close()
			if err != nil {
				return o.printFailure(result, result.Notes, err)
			}
			return o.print(result, func(w io.Writer) { writeRollback(w, result) })
		},
	}
	f := cmd.Flags()
	f.StringVar(&request.To, "to", engine.Previous, "`VERSION` to use: previous, original (the state before the first capture), or a name such as 2026.11.20")
	f.BoolVar(&dryRun, "dry-run", false, "show the plan and all blockers; change nothing")
	leaseFlag(f, &lease)
	f.BoolVar(&request.AllowRolling, "allow-rolling", false, "continue if the scale set's upgrade policy is Rolling; Azure then replaces running instances")
	f.BoolVar(&request.AllowOwned, "allow-owned", false, "continue if Cluster API owns the scale set's model and may revert it")
	return cmd
}

func writeRollback(w io.Writer, r engine.RollbackResult) {
	to := r.To.Name()
	if r.Original != nil {
		to = imageText(r.Original.Image)
	}
	if r.NothingToDo {
		say(w, "Nothing to do: the model of %s uses %s.", r.Pool.Name(), to)
	} else {
		from := r.From.Name()
		if from == "" {
			from = "an image that is not a prototype"
		}
		say(w, "New nodes of %s come from %s again, no longer from %s.", r.Pool.Name(), to, from)
	}
	list(w, "Note", r.Notes)
}
