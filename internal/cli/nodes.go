package cli

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ortet/ortet/internal/boots/assess"
	"github.com/ortet/ortet/internal/boots/survey"
	"github.com/ortet/ortet/internal/fleet"
)

// nodesFlags are those of ortet nodes.
type nodesFlags struct {
	pools, groups []string
	failed        bool
	deadline      time.Duration
	wait, since   time.Duration
}

func newNodes(o *options) *cobra.Command {
	var f nodesFlags
	c := &cobra.Command{
		Use:   "nodes [NAME]",
		Short: "Show which nodes came up, and why others failed",
		Long: `nodes lists the instances of the scale sets that the cluster's nodes belong to,
with a verdict for each: also for instances that never registered a Node. With the
name of a node or an instance it shows what failed, who can fix it and how, the
duration of each stage, and the log lines that prove it.

It reads Azure and the cluster directly, so it needs no controller. If ortet
controller runs, it also lists failed instances that were deleted since.

With --wait it ends when each instance has a verdict: 0 if all came up, 4 if some did
not, 1 if some have none when the time is over.`,
		Example: `  ortet nodes
  ortet nodes --failed --pool k8s-pool1-12345678-vmss
  ortet nodes --wait 15m --since 1h --pool k8s-pool1-12345678-vmss`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			return oneNode("a node or an instance")(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.check(cmd, args); err != nil {
				return err
			}
			more, err := groups(f.groups)
			if err != nil {
				return err
			}
			v, err := o.openSurvey(cmd.Context(), f.pools, more, assess.Deadlines{Boot: f.deadline})
			if err != nil {
				return err
			}
			if f.since > 0 {
				v.Since = time.Now().Add(-f.since)
			}
			if f.wait > 0 {
				s, err := o.waitForVerdicts(cmd.Context(), v, f.wait)
				if err != nil {
					return err
				}
				return o.printWaited(s, f)
			}
			s, err := v.Observe(cmd.Context(), strings.Join(args, ""))
			if err != nil {
				return err
			}
			s = s.Young()
			if len(args) == 1 {
				return o.printNode(s, args[0])
			}
			return o.printNodes(s, f.failed)
		},
	}
	o.takesForms(c, nameForm)
	p := c.Flags()
	p.StringArrayVar(&f.pools, "pool", nil, "`POOL` to inspect instead of all: a scale set's name or ARM id; repeatable")
	p.StringArrayVar(&f.groups, "resource-group", nil, "ARM `ID` of a resource group whose scale sets are inspected too; repeatable")
	p.BoolVar(&f.failed, "failed", false, "show only nodes that failed, timed out or came up degraded")
	durationVar(p, &f.wait, "wait", 0, "time to wait until each instance has a verdict; 0 is not at all")
	durationVar(p, &f.since, "since", 0, "age of the oldest instances to show and to wait for; 0 is any")
	durationVar(p, &f.deadline, "boot-deadline", assess.DefaultBootDeadline, "time limit from an instance's creation until its Node is Ready")
	return c
}

// openSurvey connects, and finds pools by their names or ARM ids. Azure may be away.
func (o *options) openSurvey(ctx context.Context, pools []string, more []fleet.ResourceID, deadlines assess.Deadlines) (*survey.Surveyor, error) {
	c, err := o.openCluster(ctx)
	if err != nil {
		return nil, err
	}
	look, unasked := o.connectBoots(ctx, nil)
	if errors.As(unasked, new(refusedFileError)) {
		return nil, unasked
	}
	v := &survey.Surveyor{Nodes: c, Records: c, Boots: look.boots, Machines: look.machines, Unasked: unasked, Groups: more, Deadlines: deadlines, Now: time.Now}
	find := o.finder(c, look.places(unasked), look.boots, nil, more, look.group)
	if len(pools) == 0 {
		v.Groups = find.Groups
	}
	for _, arg := range pools {
		id, err := find.ToRead(ctx, arg)
		if err != nil {
			return nil, err
		}
		v.Pools = append(v.Pools, id)
	}
	return v, ctx.Err()
}

// survey is one observation.
func (o *options) survey(ctx context.Context, more []fleet.ResourceID) (survey.Survey, error) {
	v, err := o.openSurvey(ctx, nil, more, assess.Deadlines{})
	if err != nil {
		return survey.Survey{}, err
	}
	return v.Observe(ctx, "")
}
