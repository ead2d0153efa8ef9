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
	)
	cmd := &cobra.Command{
		Use:   "rollback NODE|SCALE-SET-ID",
		Short: "Point a pool's model back at an earlier version",
		Long: `rollback points the model at a version that is still in the gallery, by default
the one before the present. Where none is kept, or with --to original, image and
customData become what they were before the first capture. New nodes come from
it; running instances are not changed. The version that was left is tagged, and
a capture on the same day does not bring it back by itself. customData that was
saved when the model changed is put back where the earlier version needs it.`,
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
			e, err := o.connect(ctx, show, work{})
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
	f.StringVar(&request.To, "to", engine.Previous, "version such as 2026.11.20, or original: what was before the first capture")
	f.BoolVar(&dryRun, "dry-run", false, "show the plan, and change nothing")
	f.BoolVar(&request.AllowRolling, "allow-rolling", false, "go on although the scale set is in Rolling mode and Azure will replace its instances")
	f.BoolVar(&request.AllowOwned, "allow-owned", false, "go on although Cluster API owns the scale set's model")
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
