package cli

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/ortet/ortet/internal/elastic/lifecycle"
)

func newClusterPlan(c *clusterOptions) *cobra.Command {
	var own []string
	cmd := &cobra.Command{
		Use:   "plan",
		Short: "Show what up would change",
		Long: `plan asks Azure what up would change, and changes nothing. It names what up leaves as
it is: a server that was made by another recipe, and pools of ortet capture.`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkAddresses(own); err != nil {
				return err
			}
			return c.plan(cmd.Context(), own)
		},
	}
	cmd.Flags().StringArrayVar(&own, "own-address", nil, "`ADDRESS` or range that \"own\" in cluster.yaml stands for; may be given several times")
	return cmd
}

func (c *clusterOptions) plan(ctx context.Context, own []string) error {
	m, err := c.manager(ctx, nil, own)
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
	group := ""
	for i := 0; i < len(p.Changes); {
		if p.Changes[i].Group != group {
			if group != "" {
				fmt.Fprintln(w)
			}
			group = p.Changes[i].Group
			fmt.Fprintln(w, "group "+group)
		}
		end := i
		for end < len(p.Changes) && p.Changes[end].Group == group {
			end++
		}
		rows := [][]string{{"CHANGE", "TYPE", "NAME"}}
		for _, r := range p.Changes[i:end] {
			rows = append(rows, []string{r.Change, r.Kind(), r.Name})
		}
		fit(rows, resultWidth, []shrink{{2, 20}})
		wide := widths(rows)
		writeColumns(w, rows[:1], wide)
		for j, r := range p.Changes[i:end] {
			writeColumns(w, rows[j+1:j+2], wide)
			for _, what := range r.What {
				paragraph(w, resultWidth, "  ", "    ", what)
			}
		}
		i = end
	}
	if len(p.Changes) > 0 {
		fmt.Fprintln(w)
	}
	text := ""
	for _, kind := range []string{"Create", "Modify", "Deploy", "Delete", "Unsupported"} {
		if n := p.Counts[kind]; n > 0 {
			text += fmt.Sprintf("%d to %s, ", n, map[string]string{"Create": "create", "Modify": "modify", "Deploy": "deploy", "Delete": "delete", "Unsupported": "judge (Azure cannot say)"}[kind])
		}
	}
	say(w, "%s%d unchanged.", text, p.Unchanged)
	list(w, "Note", p.Notes)
}
