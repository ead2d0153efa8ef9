package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ortet/ortet/internal/boots/survey"
	"github.com/ortet/ortet/internal/boots/timeline"
	"github.com/ortet/ortet/internal/boots/timeline/draw"
	"github.com/ortet/ortet/internal/wire"
)

// bootStats is what ortet boot stats gives.
type bootStats struct {
	survey.Choice
	Boots      uint64            `json:"boots"`      // that came to an end
	Incomplete uint64            `json:"incomplete"` // that did not, as far as it is known: they are not counted
	Stages     []timeline.Figure `json:"stages"`
	Spans      []timeline.Figure `json:"spans"`
}

// mostRows is how many spans a table shows.
const mostRows = 12

func newBootStats(o *options) *cobra.Command {
	c := &cobra.Command{
		Use:   "stats POOL[@VERSION]",
		Short: "Show percentiles of the boot stages of a pool",
		Long: `stats shows percentiles of the stored boots of a pool, or of one of its image
versions: in total, by stage, and by entry of their critical paths. VERSION may be
"latest" or "previous", by the time of the last boot of each version.`,
		Args: oneArgument("a pool, or POOL@VERSION"),
		RunE: func(cmd *cobra.Command, args []string) error {
			kept, err := o.keptBoots(cmd.Context())
			if err != nil {
				return err
			}
			c, err := chooseBoots(cmd.Context(), kept, args[0], false)
			o.tellUnread(kept)
			if err != nil {
				return err
			}
			s := statsOf(c)
			return o.print(s, func(w io.Writer) { writeBootStats(w, s) })
		},
	}
	o.takesForms(c)
	return c
}

func statsOf(c survey.Choice) bootStats {
	var s timeline.Stats
	for _, b := range c.Boots {
		s.AddReport(b.Report, b.Record.Cloud())
	}
	out := bootStats{Choice: c, Boots: s.Boots, Incomplete: s.Incomplete}
	if s.Boots > 0 {
		out.Stages, out.Spans = s.StageFigures(), s.SpanFigures()
	}
	out.Stages, out.Spans = nonNil(out.Stages), nonNil(out.Spans)
	return out
}

func micros(m wire.Micros) string { return draw.Duration(m.Duration()) }

func writeBootStats(w io.Writer, s bootStats) {
	text := s.What + ": " + boots(int(s.Boots), 0)
	if s.Incomplete > 0 {
		text += fmt.Sprintf(", and %d whose end is not known, which are not counted", s.Incomplete)
	}
	say(w, "%s.", text)
	if s.Boots == 0 {
		return
	}
	figures := func(title string, list []timeline.Figure) {
		rows := [][]string{{title, "BOOTS", "P50", "P95", "P99", "MAX"}}
		for _, f := range list {
			rows = append(rows, []string{shorten(f.Name, 38), fmt.Sprint(f.Boots), micros(f.P50), micros(f.P95), micros(f.P99), micros(f.Max)})
		}
		fmt.Fprintln(w)
		writeFigures(w, rows)
	}
	figures("STAGE", s.Stages)
	figures("ON THE CRITICAL PATH", s.Spans[:min(len(s.Spans), mostRows)])
	if more := len(s.Spans) - mostRows; more > 0 {
		say(w, "and %d more, which -o json shows.", more)
	}
}

// shorten makes a name fit a column, by its end, which tells most.
func shorten(s string, most int) string {
	if r := []rune(s); len(r) > most {
		return "…" + string(r[len(r)-most+1:])
	}
	return s
}

// writeFigures writes a table of which all columns but the first are figures.
func writeFigures(w io.Writer, rows [][]string) {
	width := make([]int, len(rows[0]))
	for _, r := range rows {
		for i, cell := range r {
			width[i] = max(width[i], len([]rune(cell)))
		}
	}
	for _, r := range rows {
		var b strings.Builder
		for i, cell := range r {
			pad := strings.Repeat(" ", width[i]-len([]rune(cell)))
			if i == 0 {
				b.WriteString(cell + pad)
			} else {
				b.WriteString("  " + pad + cell)
			}
		}
		fmt.Fprintln(w, strings.TrimRight(b.String(), " "))
	}
}
