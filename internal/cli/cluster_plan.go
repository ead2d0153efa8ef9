package cli

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ortet/ortet/internal/elastic/lifecycle"
)

func newClusterPlan(c *clusterOptions) *cobra.Command {
	var own ownAddresses
	cmd := clusterCommand("plan", "Show what up would change", `plan asks Azure what up would change, and changes nothing. It names what up leaves as
it is: a server that was made by another recipe, and pools of ortet capture.`, func(ctx context.Context, _ []string) error {
		return c.plan(ctx, own)
	})
	own.add(cmd)
	return cmd
}

func (c *clusterOptions) plan(ctx context.Context, own ownAddresses) error {
	m, err := c.deployer(ctx, nil, own)
	if err != nil {
		return err
	}
	p, err := m.Plan(ctx)
	if err != nil {
		return err
	}
	return c.print(p, func(w io.Writer) { writeClusterPlan(w, p) })
}

func writeClusterPlan(w io.Writer, p *lifecycle.Plan) {
	for rest := p.Changes; len(rest) > 0; {
		rows := [][]string{{"CHANGE", "TYPE", "NAME"}}
		group := rest
		for len(rest) > 0 && rest[0].Group == group[0].Group {
			rows = append(rows, cells(rest[0].Change, rest[0].Kind(), rest[0].Name))
			rest = rest[1:]
		}
		fmt.Fprintln(w, "group "+group[0].Group)
		writeDetails(w, rows, func(i int) []string { return group[i].What }, shrink{2, 20})
		fmt.Fprintln(w)
	}
	text := ""
	for _, kind := range []string{"Create", "Modify", "Deploy", "Delete", "Unsupported"} {
		if n := p.Counts[kind]; n > 0 {
			text += fmt.Sprintf("%d to %s, ", n, strings.ReplaceAll(strings.ToLower(kind), "unsupported", "judge (Azure cannot say)"))
		}
	}
	say(w, "%s%d unchanged.", text, p.Unchanged)
	list(w, "Note", p.Notes)
}
