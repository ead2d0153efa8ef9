package cli

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ortet/ortet/internal/boots/survey"
	"github.com/ortet/ortet/internal/boots/timeline"
	"github.com/ortet/ortet/internal/boots/timeline/draw"
	"github.com/ortet/ortet/internal/wire"
)

// bootDiff is what ortet boot diff gives.
type bootDiff struct {
	A          survey.Choice       `json:"a"`
	B          survey.Choice       `json:"b"`
	Difference timeline.Difference `json:"difference"`
}

func newBootDiff(o *options) *cobra.Command {
	var out string
	c := &cobra.Command{
		Use:   "diff A B",
		Short: "Show what got slower between nodes, pools or image versions",
		Long: `diff compares boots. A and B are each a node (its last boot), a POOL, or
POOL@VERSION, where VERSION may be "latest" or "previous". With several boots on
each side it marks the differences that are statistically significant.

-o html writes a page with one boot of each side: with several, the one of median
duration.`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 2 {
				return usagef("name two of node, POOL or POOL@VERSION to compare")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			kept, err := o.keptBoots(cmd.Context())
			if err != nil {
				return err
			}
			var d bootDiff
			if d.A, err = chooseBoots(cmd.Context(), kept, args[0], true); err != nil {
				return err
			}
			if d.B, err = chooseBoots(cmd.Context(), kept, args[1], true); err != nil {
				return err
			}
			o.tellUnread(kept)
			d.Difference = timeline.Diff(d.A.Timelines(), d.B.Timelines())
			if o.output == "html" {
				return o.bootDiffPage(out, d)
			}
			if out != "" {
				return usagef("--out is for -o html; the rest can be redirected")
			}
			return o.print(d, func(w io.Writer) { writeBootDiff(w, d) })
		},
	}
	c.Flags().StringVar(&out, "out", "", "output `FILE` for -o html (default: standard output)")
	o.takesForms(c, "html")
	return c
}

// bootDiffPage writes the page of a comparison.
func (o *options) bootDiffPage(out string, d bootDiff) error {
	sides := make([]draw.Side, 0, 2)
	for _, c := range []survey.Choice{d.A, d.B} {
		i := medianBoot(c.Timelines())
		if i < 0 {
			return fmt.Errorf("%s: there is no boot to draw", c.What)
		}
		sides = append(sides, draw.Side{Name: c.What, Boot: c.Boots[i].Timeline()})
	}
	if out == "" && columnsOf(o.process.Out) > 0 {
		return usagef("-o html is nothing for a terminal: name a file with --out, or redirect it")
	}
	return o.result(out, func(w io.Writer) error { return draw.DiffHTML(w, sides[0], sides[1], d.Difference) })
}

// medianBoot is the boot in the middle by how long they took, of those whose end is
// known where there are such; -1: there is none.
func medianBoot(boots []timeline.Timeline) int {
	var order, all []int
	for i, t := range boots {
		all = append(all, i)
		if t.Complete {
			order = append(order, i)
		}
	}
	if len(order) == 0 {
		order = all
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(boots[a].Total(), boots[b].Total()) })
	if len(order) == 0 {
		return -1
	}
	return order[(len(order)-1)/2]
}

func writeBootDiff(w io.Writer, d bootDiff) {
	x := d.Difference
	paragraph(w, resultWidth, "A  ", "   ", fmt.Sprintf("%s: %s", d.A.What, boots(x.A, len(d.A.Boots))))
	paragraph(w, resultWidth, "B  ", "   ", fmt.Sprintf("%s: %s", d.B.What, boots(x.B, len(d.B.Boots))))
	if x.A > 0 && x.B > 0 {
		fmt.Fprintln(w)
		t := x.Total
		switch {
		case t.By > 0:
			say(w, "B takes %s longer than A: %s instead of %s%s%s.", micros(t.By), micros(t.B), micros(t.A), medians(x), surely(t))
		case t.By < 0:
			say(w, "B takes %s less than A: %s instead of %s%s%s.", micros(-t.By), micros(t.B), micros(t.A), medians(x), surely(t))
		default:
			say(w, "B takes as long as A: %s%s.", micros(t.B), medians(x))
		}
		sure := changes(w, "STAGE", x.Stages)
		if changes(w, "ON THE CRITICAL PATH", x.Spans) || sure {
			fmt.Fprintln(w)
			say(w, "* is more than chance: such a difference of boots of one kind would be seen less than once in %.0f times.", 1/timeline.Alpha)
		}
	}
	if len(x.Notes) > 0 {
		fmt.Fprintln(w)
		list(w, "Note", x.Notes)
	}
}

func medians(d timeline.Difference) string {
	if d.A == 1 && d.B == 1 {
		return ""
	}
	return " (medians)"
}

func boots(compared, all int) string {
	text := fmt.Sprintf("%d boots", compared)
	if compared == 1 {
		text = "1 boot"
	}
	if more := all - compared; more > 0 {
		text += fmt.Sprintf(", and %d without an end", more)
	}
	return text
}

func surely(c timeline.Change) string {
	if c.Significant {
		return ", which is more than chance"
	}
	return ", which may be chance"
}

// changes shows what differs, and tells whether any of it is more than chance.
func changes(w io.Writer, title string, all []timeline.Change) (sure bool) {
	all = slices.DeleteFunc(slices.Clone(all), func(c timeline.Change) bool { return c.By == 0 })
	if len(all) == 0 {
		return false
	}
	rows := [][]string{{title, "A", "B", "BY", "P", ""}}
	// What got slower is at the beginning, what got faster at the end.
	const each = mostRows / 2
	for i, c := range all {
		if i >= each && i < len(all)-each {
			if i == each {
				rows = append(rows, []string{fmt.Sprintf("… %d more", len(all)-2*each), "", "", "", "", ""})
			}
			continue
		}
		mark := ""
		if c.Significant {
			mark, sure = "*", true
		}
		p := fmt.Sprintf("%.3f", c.P)
		if c.P < 0.001 {
			p = "<0.001"
		}
		rows = append(rows, []string{shorten(c.Name, 38), micros(c.A), micros(c.B), signed(c.By), p, mark})
	}
	fmt.Fprintln(w)
	writeFigures(w, rows)
	return sure
}

func signed(m wire.Micros) string {
	if m < 0 {
		return "-" + strings.TrimPrefix(micros(-m), "-")
	}
	return "+" + micros(m)
}
