package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/ortet/ortet/internal/boots/assess"
	"github.com/ortet/ortet/internal/boots/survey"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/wire"
	"github.com/ortet/ortet/internal/workflow"
)

// printNodes shows all, or those that did not come up well.
func (o *options) printNodes(s survey.Survey, failed bool) error {
	list := s.Stories
	if failed {
		list = slices.DeleteFunc(slices.Clone(list), survey.Story.Well)
	}
	for i := range list { // the whole story has its own command
		list[i].Console, list[i].Sure = nil, string(list[i].Confidence())
	}
	result := map[string]any{"nodes": nonNil(list), "notes": nonNil(slices.Concat(s.Notes, s.Unread))}
	err := o.printNames(result, storyNames(list), func(w io.Writer) {
		if len(list) == 0 {
			if len(s.Unread)+len(s.Missing) == 0 { // nothing unread looks like an answer
				fmt.Fprintln(w, "No instance or node to show.")
			}
			return
		}
		writeNodes(w, list, s.Now)
	})
	o.tellNotes(s)
	err = cmp.Or(err, errors.Join(noteErrors(s.Unread)...), refuseGone(s.Missing...))
	if failed && slices.ContainsFunc(list, s.Failed) { // a person has to see to them, and the table names them
		if err != nil {
			writeError(o.process.Err, err)
		}
		return exitError(workflow.ExitNeedsPerson)
	}
	return err
}

// storyNames are what kubectl, or for an instance without a Node the Azure CLI, takes: machines
// that are gone have neither.
func storyNames(list []survey.Story) (names []string) {
	for _, n := range list {
		if !n.Gone {
			names = append(names, first(n.Node, string(n.Instance)))
		}
	}
	return names
}

// tellNotes says what could not be seen where a table does not.
func (o *options) tellNotes(s survey.Survey) {
	if !o.forPerson() {
		return
	}
	for _, n := range s.Notes {
		o.note(n)
	}
}

func nonNil[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

func writeNodes(w io.Writer, list []survey.Story, now time.Time) {
	rows := [][]string{{"NODE", "POOL", "STATUS", "VERDICT", "REASON", "OWNER", "CONFIDENCE", "AGE"}}
	legend := map[string]bool{}
	for _, n := range list {
		mark := ""
		if n.Gone {
			mark = "+"
		} else if n.Node == "" {
			mark = "*"
		}
		legend[mark] = true
		at := n.Created
		if at.IsZero() {
			at = n.Since
		}
		rows = append(rows, []string{n.Title() + mark, dash(n.Pool.Name()), dash(status(n)), dash(string(n.State)), dash(n.Reason()), dash(string(n.Owner())), dash(string(n.Confidence())), age(at, now)})
	}
	if !slices.ContainsFunc(list, hasOwnStatus) {
		for i, r := range rows {
			rows[i] = slices.Delete(r, 2, 3)
		}
	}
	if total(rows) <= resultWidth {
		writeRows(w, rows)
	} else {
		writeByPool(w, rows)
	}
	if legend["*"] {
		fmt.Fprintln(w, "* has no Node")
	}
	if legend["+"] {
		fmt.Fprintln(w, "+ is gone, and its evidence was kept")
	}
}

// status is what Azure reports of the machine, in its words: "creating" and "deleting", else the
// power state; "" where it was not asked.
func status(n survey.Story) string {
	if n.Gone || n.Boot == nil {
		return ""
	}
	switch state := strings.ToLower(n.Boot.ProvisioningState); state {
	case "creating", "deleting":
		return state
	}
	return string(n.Boot.Power)
}

// hasOwnStatus reports whether the status says more than the verdict beside it.
func hasOwnStatus(n survey.Story) bool {
	s := status(n)
	return s != "" && s != "creating" && s != string(fleet.PowerRunning) && n.State != assess.Booting && n.State != assess.Deleting
}

// writeByPool writes a table for each pool, where one for all would be too wide.
func writeByPool(w io.Writer, rows [][]string) {
	var narrow [][]string
	for _, r := range rows {
		narrow = append(narrow, append(slices.Clone(r[:1]), r[2:]...))
	}
	// What is too wide all the same gives way: the reason goes before the node.
	reason := slices.Index(narrow[0], "REASON")
	fit(narrow, resultWidth, []shrink{{reason, 20}, {0, 20}, {reason, 8}})
	wide := widths(narrow)
	for i := 1; i < len(rows); {
		end := i
		for end < len(rows) && rows[end][1] == rows[i][1] {
			end++
		}
		if i > 1 {
			fmt.Fprintln(w)
		}
		if rows[i][1] == "-" {
			fmt.Fprintln(w, "no pool")
		} else {
			fmt.Fprintln(w, "pool "+rows[i][1])
		}
		writeColumns(w, narrow[:1], wide)
		writeColumns(w, narrow[i:end], wide)
		i = end
	}
}

func (o *options) printNode(s survey.Survey, name string) error {
	var found []survey.Story
	for _, n := range s.Stories {
		if n.Named(name) {
			found = append(found, n)
		}
	}
	if len(found) == 0 {
		const what, wayOut = "no node or instance has that name", "ortet nodes lists all that there are"
		if len(s.Unread) == 0 {
			o.tellNotes(s)
			return cmp.Or(refuseGone(s.Missing...), refuse(survey.NodeNotFound, "node "+name, what, wayOut))
		}
		return errors.Join(append([]error{&fleet.Error{Op: "find the node", Resource: name, Kind: fleet.KindNotFound, Err: errors.New(what), Remedy: wayOut}},
			noteErrors(slices.Concat(s.Notes, s.Unread))...)...)
	}
	// Those that are there go before those that were.
	slices.SortStableFunc(found, func(a, b survey.Story) int {
		if a.Gone != b.Gone {
			if a.Gone {
				return 1
			}
			return -1
		}
		return b.Since.Compare(a.Since)
	})
	found[0].Sure = string(found[0].Confidence())
	err := o.printNames(found[0], storyNames(found[:1]), func(w io.Writer) {
		writeNode(w, found[0], s.Now)
		if n := len(found) - 1; n > 0 {
			fmt.Fprintf(w, "\n%s of that name: see the ids in the output of ortet nodes -o json.\n", fleet.Count(n, "earlier machine"))
		}
	})
	o.tellNotes(s)
	return cmp.Or(err, errors.Join(noteErrors(s.Unread)...))
}

func noteErrors(notes []string) []error {
	var out []error
	for _, n := range notes {
		out = append(out, errors.New(n))
	}
	return out
}

// writeNode tells the whole story.
func writeNode(w io.Writer, n survey.Story, now time.Time) {
	head := n.Title() + ": " + first(string(n.State), "no verdict")
	if r := n.Reason(); r != "" {
		head += ", " + r
	}
	fmt.Fprintln(w, head)
	if n.Gone {
		fmt.Fprintln(w, "  The machine is gone; this is what was kept of it.")
	}
	if text := n.Message(); text != "" {
		paragraph(w, resultWidth, "  ", "  ", text)
	}
	field := func(name, text string) {
		if text != "" && text != "-" {
			paragraph(w, resultWidth, fmt.Sprintf("  %-10s ", name), strings.Repeat(" ", 13), text)
		}
	}
	v := n.Verdict
	if v == nil {
		v = &wire.Verdict{}
	}
	fmt.Fprintln(w)
	field("owner", string(n.Owner()))
	field("confidence", string(n.Confidence()))
	field("remedy", v.Remedy)
	if v.Retryable {
		field("retry", "the same boot may succeed if it is tried again")
	}
	field("where", where(*v))
	field("config", n.Configuration)
	field("source", sourceText(n.Source))
	if now.Sub(n.Since) >= time.Second { // else it is only known that it is so now
		field("since", moment(n.Since, now))
	}
	field("created", moment(n.Created, now))
	if n.Node == "" {
		field("node", "none")
	} else if n.Node != n.Title() {
		field("node", n.Node)
	}
	field("pool", n.Pool.Name())
	field("instance", string(n.Instance))
	field("vm id", n.VMID)
	if b := n.Boot; b != nil {
		field("azure", strings.Trim(b.ProvisioningState+", "+string(b.Power), ", "))
		field("agent", strings.Trim(b.Agent.Version+" "+b.Agent.Message, " "))
		for _, e := range b.Extensions {
			field("extension", e.Name+": "+extensionText(e))
		}
	}
	for _, ignored := range v.Ignored {
		field("ignored", ignored)
	}
	if len(v.Stages) > 0 {
		rows := [][]string{{"  STAGE", "BEGAN", "TOOK"}}
		for _, s := range v.Stages {
			took := "never ended"
			if s.End > 0 {
				took = duration(time.Duration(s.End-s.Begin) * time.Millisecond)
			}
			rows = append(rows, []string{"  " + s.Name, duration(time.Duration(s.Begin) * time.Millisecond), took})
		}
		fmt.Fprintln(w)
		writeRows(w, rows)
	}
	for _, e := range v.Evidence {
		fmt.Fprintf(w, "\n%s\n", e.Source)
		for _, l := range e.Lines {
			fmt.Fprintln(w, "  "+l)
		}
	}
	rest := unquoted(n.Console, v.Evidence)
	if n.State != assess.Succeeded && slices.ContainsFunc(rest, func(l string) bool { return l != quotedAbove }) {
		fmt.Fprintln(w, "\n"+assess.SerialConsole)
		for _, l := range rest {
			fmt.Fprintln(w, "  "+l)
		}
	}
}

const quotedAbove = "[… quoted above]"

// unquoted returns a console with quotedAbove for the lines that excerpts of it have.
func unquoted(console []string, excerpts []wire.Excerpt) (rest []string) {
	for _, l := range console {
		for _, e := range excerpts {
			if e.Source == assess.SerialConsole && slices.Contains(e.Lines, l) {
				l = quotedAbove
			}
		}
		if n := len(rest); l != quotedAbove || n == 0 || rest[n-1] != quotedAbove {
			rest = append(rest, l)
		}
	}
	return rest
}

func where(v wire.Verdict) string {
	parts := []string{v.Stage, v.Module}
	if v.Phase != "" {
		parts = append(parts, "kubeadm "+v.Phase)
	}
	if v.ExitCode != nil {
		parts = append(parts, fmt.Sprintf("exit code %d", *v.ExitCode))
	}
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), ", ")
}

func sourceText(s assess.Source) string {
	switch s {
	case assess.FromExtension:
		return "the node, by an extension's status"
	case assess.FromConsole:
		return "the node, on its serial console"
	case assess.FromAdmission:
		return "the node, by the admission server"
	case assess.FromNode:
		return "the Node object"
	case assess.FromPlatform:
		return "Azure"
	case assess.FromLog:
		return "the serial log, as judged from outside"
	}
	return string(s)
}

func moment(at, now time.Time) string {
	if at.IsZero() {
		return ""
	}
	return at.UTC().Format("2006-01-02 15:04:05") + "Z (" + age(at, now) + " ago)"
}

func extensionText(e fleet.ExtensionStatus) string {
	if len(e.Statuses) == 0 {
		return "has not reported"
	}
	st := e.Statuses[0]
	return strings.Trim(first(st.Display, st.State)+" "+st.Reason, " ")
}
