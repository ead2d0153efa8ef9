package cli

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"sigs.k8s.io/yaml"

	"github.com/ortet/ortet/internal/image/plan"
	"github.com/ortet/ortet/internal/workflow"
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
	table(&plainWriter{to: o.process.Out})
	return nil
}

// nameForm is -o name: for each thing the name or id by which commands take it.
const nameForm = "name"

// printNames is print for a result that has names. It writes one on each line.
func (o *options) printNames(result any, names []string, table func(io.Writer)) error {
	if o.output != nameForm {
		return o.print(result, table)
	}
	for _, name := range names {
		if _, err := fmt.Fprintln(o.process.Out, plain(name)); err != nil {
			return fmt.Errorf("write the names: %w", err)
		}
	}
	return nil
}

// forPerson reports whether -o is a form without messages, which then go to standard error.
func (o *options) forPerson() bool { return o.output == "table" || o.output == nameForm }

// plain is text without what a terminal would carry out: names, tags, logs and messages
// of nodes and of Azure are others'.
func plain(text string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' || unicode.IsGraphic(r) {
			return r
		}
		return unicode.ReplacementChar
	}, text)
}

// A plainWriter writes plain text. Runes may be split between calls.
type plainWriter struct {
	to   io.Writer
	rest []byte // the beginning of a rune
}

func (w *plainWriter) Write(p []byte) (int, error) {
	text := slices.Concat(w.rest, p)
	end := len(text)
	for i := 1; i < utf8.UTFMax && i <= len(text); i++ {
		if at := len(text) - i; utf8.RuneStart(text[at]) {
			if !utf8.FullRune(text[at:]) {
				end = at
			}
			break
		}
	}
	w.rest = text[end:]
	_, err := io.WriteString(w.to, plain(string(text[:end])))
	return len(p), err
}

// printPlan shows a plan; one with problems ends as refused.
func (o *options) printPlan(p plan.Plan) error {
	table := func(w io.Writer) { writePlan(w, p) }
	if len(p.Problems) == 0 {
		return o.print(p, table)
	}
	refused := &workflow.Refused{Problems: p.Problems}
	f := struct { // a failure with the plan's keys
		plan.Plan
		Result any    `json:"result"`
		Exit   int    `json:"exit"`
		Error  string `json:"error"`
	}{Plan: p, Exit: workflow.ExitRefused, Error: refused.Error()}
	return cmp.Or(o.print(f, table), error(refused))
}

// maxIDWidth is the width of the ids' column in a plan: the titles beside it, such as the
// name of an image definition, need the rest of the line. Longer ids pass it.
const maxIDWidth = 20

func writePlan(w io.Writer, p plan.Plan) {
	if len(p.Problems) > 0 {
		return // the error lists them
	}
	what := "Plan for the " + p.Kind
	if p.Kind == "abandonment" {
		what = "Plan to abandon the capture"
	}
	if p.Donor != "" {
		what += " of " + p.Donor
	}
	say(w, "%s (pool %s). Dry run: nothing is changed.", what, p.Pool.Name())
	if p.Resumes {
		say(w, "It resumes an interrupted run.")
	}
	if p.NothingToDo {
		say(w, "Nothing to do: new nodes come from %s.", p.Version.Name())
		list(w, "Note", p.Notes)
		return
	}
	if p.Workbench != "" {
		say(w, "The copied disk is prepared on %s.", p.Workbench)
	}
	if whole, out := p.UsualTime(); whole > 0 {
		text := "By usual durations it takes " + duration(whole)
		if out > 0 {
			text += ", of which the donor is out of service for " + duration(out)
		}
		say(w, "%s.", text)
	}
	if len(p.Steps) == 0 {
		say(w, "Nothing is left to undo: its record is closed.")
	} else {
		fmt.Fprintln(w)
	}
	id := 0
	for _, s := range p.Steps {
		id = max(id, min(len(s.ID), maxIDWidth))
	}
	hang := strings.Repeat(" ", id+len("123  1234567  "))
	var irreversible []string
	for i, s := range p.Steps {
		usual := ""
		if s.Usual > 0 {
			usual = "~" + duration(time.Duration(s.Usual))
		}
		title := s.Title
		if s.Skip != "" {
			usual, title = "skip", title+": "+s.Skip
		} else {
			irreversible = append(irreversible, s.Irreversible...)
		}
		left := fmt.Sprintf("%3d %-*s %7s  ", i+1, id, s.ID, usual)
		paragraph(w, resultWidth, left, hang, title)
	}
	if len(irreversible) > 0 {
		fmt.Fprintln(w)
		list(w, "Irreversible", irreversible)
	}
	if len(p.Notes) > 0 {
		fmt.Fprintln(w)
		list(w, "Note", p.Notes)
	}
}

// resultWidth is how many columns results take: the least that terminals have.
const resultWidth = 80

// say writes a sentence of a result, over several lines where it is long.
func say(w io.Writer, format string, args ...any) {
	paragraph(w, resultWidth, "", "", fmt.Sprintf(format, args...))
}

// paragraph writes text after begin, and further lines of it after next; 0
// columns mean one line. A word that is too long for a line, such as an ARM id,
// is not broken.
func paragraph(w io.Writer, columns int, begin, next, text string) {
	text = plain(text)
	for {
		room := columns - len([]rune(begin))
		if columns == 0 {
			room = len(text)
		}
		line, rest := breakLine(text, room)
		fmt.Fprintln(w, begin+line)
		if begin, text = next, rest; rest == "" {
			return
		}
	}
}

// breakLine takes as many words as fit, and at least one.
func breakLine(text string, width int) (line, rest string) {
	words := strings.Fields(text)
	for len(words) > 0 && (line == "" || len([]rune(line))+1+len([]rune(words[0])) <= width) {
		line = strings.TrimPrefix(line+" "+words[0], " ")
		words = words[1:]
	}
	return line, strings.Join(words, " ")
}

func list(w io.Writer, title string, items []string) {
	switch len(items) {
	case 0:
	case 1:
		paragraph(w, resultWidth, "", "  ", title+": "+items[0])
	default:
		fmt.Fprintln(w, title+":")
		for _, item := range items {
			paragraph(w, resultWidth, "  - ", "    ", item)
		}
	}
}
