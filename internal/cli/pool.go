package cli

import (
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/boots/survey"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/capture"
	"github.com/ortet/ortet/internal/workflow"
)

// refuseGone refuses scale sets that were named by their ARM ids, and that Azure does not
// have; nil for none.
func refuseGone(pools ...fleet.ResourceID) error {
	if len(pools) == 0 {
		return nil
	}
	r := &workflow.Refused{}
	for _, id := range pools {
		r.Problems = append(r.Problems, fleet.Problem{Code: survey.PoolNotFound, On: string(id), What: "there is no such scale set", WayOut: "check the id and the credentials' subscription (az vmss list)"})
	}
	return r
}

// checkPool refuses what can be neither a scale set's name nor its ARM id.
func checkPool(arg string) error {
	id := fleet.ResourceID(strings.TrimRight(arg, "/"))
	name, is := id.Segment("virtualMachineScaleSets"), strings.HasPrefix(arg, "/")
	if is && (!fleet.ValidName(name) || !id.Equal(id.In("virtualMachineScaleSets", name))) || !is && !fleet.ValidName(arg) {
		return usagef("%q is neither the name of a scale set nor its ARM id (/subscriptions/…/virtualMachineScaleSets/NAME)", arg)
	}
	return nil
}

// ofPool takes one argument: a node of a pool, or its scale set's name or ARM id.
func ofPool(cmd *cobra.Command, args []string) error {
	err := oneNode("a node of the pool, or the scale set's name or ARM id")(cmd, args)
	if err == nil && strings.HasPrefix(args[0], "/") {
		err = checkPool(args[0])
	}
	return err
}

// finder finds pools among the Nodes, then in the groups that are named, and in those of Nodes.
// The groups of flags are more, and group is that of the credentials.
// cloud shows which Nodes are what they report to be; nil for what only reads.
func (o *options) finder(nodes survey.Nodes, places survey.Places, boots azure.Boots, cloud azure.Reader, more []fleet.ResourceID, group fleet.ResourceID) survey.Finder {
	if group != "" {
		more = append(slices.Clone(more), group)
	}
	f := survey.Finder{Nodes: nodes, Places: places, Boots: boots, Groups: more, Note: o.note}
	if cloud != nil {
		f.Machine = func(ctx context.Context, n fleet.Node) (fleet.ResourceID, error) {
			return azure.PoolOfNode(ctx, cloud, n)
		}
	}
	return f
}

// groupsFlag is where pools are found by their names besides the groups of Nodes.
func groupsFlag(flags *pflag.FlagSet, groups *[]string) {
	flags.StringArrayVar(groups, "resource-group", nil, "ARM `ID` of a resource group in which a POOL is found by its name too; repeatable")
}

// note says what is worth knowing beside a result.
func (o *options) note(text string) {
	paragraph(o.process.Err, columnsOf(o.process.Err), "note: ", "  ", text)
}

// poolToChange returns the scale set that an argument names: itself, or one of its nodes.
func (c connection) poolToChange(ctx context.Context, o *options, of string, named []string) (fleet.ResourceID, error) {
	find, err := c.finder(o, named)
	if err != nil {
		return "", err
	}
	node, pool, err := find.NodeOrPool(ctx, of)
	if err != nil || node == "" {
		return pool, err
	}
	n, err := c.config.Cluster.Node(ctx, node)
	switch {
	case fleet.Is(err, fleet.KindNotFound):
		return "", refuse(survey.NodeNotFound, "node "+node, "there is no such node, and no scale set of this name has one",
			"name a node of the pool, or the scale set by its ARM id (az vmss list)")
	case err != nil:
		return "", err
	}
	if pool, err = azure.PoolOfNode(ctx, c.config.Cloud, n); capture.Unplaced(err) {
		return "", refuse("NotAnInstance", "node "+node, err.Error(), "name a node of a scale set")
	}
	return pool, err
}
