package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/ortet/ortet/internal/engine"
	"github.com/ortet/ortet/internal/plan"
)

// print writes a result in the form that -o asks for.
func (o *options) print(result any, table func(io.Writer)) error {
	switch o.output {
	case "json":
		e := json.NewEncoder(o.process.Out)
		e.SetIndent("", "  ")
		return e.Encode(result)
	case "yaml":
		text, err := yaml.Marshal(result)
		if err != nil {
			return fmt.Errorf("write the result as YAML: %w", err)
		}
		_, err = o.process.Out.Write(text)
		return err
	}
	table(o.process.Out)
	return nil
}

// printPlan shows a plan; one with problems ends as refused.
func (o *options) printPlan(p plan.Plan) error {
	if err := o.print(p, func(w io.Writer) { writePlan(w, p) }); err != nil {
		return err
	}
	if len(p.Problems) > 0 {
		return &engine.Refused{Problems: p.Problems}
	}
	return nil
}

func writePlan(w io.Writer, p plan.Plan) {
	if len(p.Problems) > 0 {
		return // the error lists them
	}
	what := "Plan for the " + p.Kind
	if p.Donor != "" {
		what += " of " + p.Donor
	}
	fmt.Fprintf(w, "%s (pool %s). Nothing is changed now.\n", what, p.Pool.Name())
	if p.Resumes {
		fmt.Fprintln(w, "It goes on where an earlier one was interrupted.")
	}
	if p.NothingToDo {
		fmt.Fprintln(w, "Nothing to do.")
	}
	if p.Workbench != "" {
		fmt.Fprintf(w, "The copied disk is prepared on %s.\n", p.Workbench)
	}
	fmt.Fprintln(w)
	for i, s := range p.Steps {
		usual := ""
		if s.Usual > 0 {
			usual = "~" + duration(s.Usual)
		}
		title := s.Title
		if s.Skip != "" {
			usual, title = "skip", title+": "+s.Skip
		}
		lines := wrap(title, 52)
		fmt.Fprintf(w, "%3d %-12s %7s  %s\n", i+1, s.ID, usual, lines[0])
		for _, more := range lines[1:] {
			fmt.Fprintf(w, "%25s %s\n", "", more)
		}
	}
	if all := p.Irreversible(); len(all) > 0 {
		fmt.Fprintln(w)
		list(w, "Cannot be had back", all)
	}
	if len(p.Notes) > 0 {
		fmt.Fprintln(w)
		list(w, "Note", p.Notes)
	}
}

// wrap breaks text into lines of at most width characters where it can.
func wrap(text string, width int) []string {
	var lines []string
	line := ""
	for _, word := range strings.Fields(text) {
		if line != "" && len([]rune(line))+1+len([]rune(word)) > width {
			lines = append(lines, line)
			line = ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	return append(lines, line)
}
