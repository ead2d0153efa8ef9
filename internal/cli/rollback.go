package cli

import (
	"io"
	"slices"

	"github.com/spf13/cobra"

	"github.com/ortet/ortet/internal/cluster/kube"
	"github.com/ortet/ortet/internal/image/plan"
	"github.com/ortet/ortet/internal/image/rollback"
)

func newRollback(o *options) *cobra.Command {
	var (
		request rollback.Request
		dryRun  bool
		lease   leaseDuration
		named   []string
	)
	cmd := &cobra.Command{
		Use:   "rollback NODE|POOL",
		Short: "Point a pool's model at an earlier version again",
		Long: `rollback points a scale set's model at an earlier image version, by default the
one that was live before. New nodes boot from it; running instances are not
changed.

A pool is named by one of its nodes, or by the scale set's name or ARM id.

If no earlier version is kept, or with --to original, image and customData become
what they were before the first capture. Saved customData is restored if the
earlier version needs it. The replaced version is tagged as rolled back: a capture
on the same day does not use it again.

customData and protected settings of extensions were read from a donor's disk. They
are shown, and restored only with --restore-learned.`,
		Example: `  ortet rollback k8s-pool1-12345678-vmss000000
  ortet rollback k8s-pool1-12345678-vmss000000 --to 2026.11.20
  ortet rollback k8s-pool1-12345678-vmss --to original`,
		Args: ofPool,
		RunE: func(cmd *cobra.Command, args []string) error {
			if request.To == "" { // an unset variable of a script
				return usagef("--to is empty: want previous, original, or the name of a version")
			}
			ctx := cmd.Context()
			show := o.newProgress()
			defer show.Close()
			c, err := o.open(ctx, work{rules: rollbackRules(o.namespace), lease: lease})
			if err != nil {
				return err
			}
			find, err := c.finder(o, named)
			if err != nil {
				return err
			}
			if request.Node, request.Pool, err = find.NodeOrPool(ctx, args[0]); err != nil {
				return err
			}
			s := c.services(show)
			if dryRun {
				p, err := s.rollback.Plan(ctx, request)
				if err != nil {
					return err
				}
				show.Close()
				return o.printPlan(p)
			}
			result, err := s.Rollback(ctx, request)
			show.Close()
			if err != nil {
				return o.printFailure(result, result.Notes, err)
			}
			return o.print(result, func(w io.Writer) { writeRollback(w, result) })
		},
	}
	f := cmd.Flags()
	f.StringVar(&request.To, "to", plan.Previous, "`VERSION` to use: previous, original (the state before the first capture), or a name such as 2026.11.20")
	f.BoolVar(&dryRun, "dry-run", false, "show the plan and all blockers; change nothing")
	leaseFlag(f, &lease)
	groupsFlag(f, &named)
	f.BoolVar(&request.AllowRolling, "allow-rolling", false, "continue if the scale set's upgrade policy is Rolling; Azure then replaces running instances")
	f.BoolVar(&request.AllowOwned, "allow-owned", false, "continue if Cluster API owns the scale set's model and may revert it")
	f.BoolVar(&request.AcceptLostExtensions, "accept-lost-extensions", false, "continue although extensions of the original model cannot be restored (exit code 4)")
	f.StringArrayVar(&request.RestoreLearned, "restore-learned", nil, "`NAME` of what is restored as a donor's disk showed it: customData, or an extension; repeatable")
	f.BoolVar(&request.WithoutLearned, "without-learned", false, "leave out what only a donor's disk showed and --restore-learned does not name (exit code 4 if extensions are left out)")
	return cmd
}

// rollbackRules are those of a capture's that a rollback needs: preflight, the pool lock,
// the journal, and what a capture saved.
func rollbackRules(namespace string) []kube.Rule {
	return slices.DeleteFunc(kube.Rules(kube.Needs{Namespace: namespace}), func(r kube.Rule) bool {
		return !slices.Contains([]string{"selfsubjectaccessreviews", "leases", "secrets"}, r.Resource)
	})
}

func writeRollback(w io.Writer, r rollback.Result) {
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
		say(w, "New nodes of %s come from %s, no longer from %s.", r.Pool.Name(), to, from)
	}
	list(w, "Restored extensions", r.Restored)
	list(w, "Lost (could not be restored)", r.Lost)
	list(w, "Note", r.Notes)
}
