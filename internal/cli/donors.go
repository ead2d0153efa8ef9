package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/auto"
	"github.com/ortet/ortet/internal/image/capture"
	"github.com/ortet/ortet/internal/image/donors"
	"github.com/ortet/ortet/internal/workflow"
)

const noPools = "No node of this cluster is known to be an instance of a scale set."

func newDonors(o *options) *cobra.Command {
	s, others := &poolSelection{shows: true}, false
	cmd := &cobra.Command{
		Use:   "donors [POOL...|--all]",
		Short: "Rank a pool's nodes as donors, and show whether an image is due",
		Long: `donors shows for each pool whether a new image is due, and ranks its nodes: those that
qualify as donors, the longest Ready first, then the others with all reasons. It
changes nothing. ortet capture --pool POOL, with the same flags, captures the first.

A pool is the name or the ARM id of a scale set. Without one, all pools of the
cluster are shown, except those that are not Ortet's to change.

A donor meets all rules:

` + rulesText() + `
--skip-rule switches off those marked with *. If the facts for one of these are
not known, it disqualifies no node; the output names it as not judged.`,
		Example: `  ortet donors pool1
  ortet donors --all --min-ready 2d --skip-rule boot-time
  ortet donors pool1 --patch-annotation example.com/last-patch`,
		RunE: func(cmd *cobra.Command, args []string) error {
			s.pools, s.all = args, s.all || len(args) == 0
			return s.showDonors(cmd.Context(), o, others)
		},
	}
	o.takesForms(cmd, nameForm)
	cmd.Flags().BoolVar(&s.all, "all", false, "show all pools of the cluster")
	cmd.Flags().BoolVar(&others, "other-pools", false, "as with capture --other-pools: a node of another pool may be the workbench")
	cmd.Flags().AddFlagSet(s.policyFlags())
	groupsFlag(cmd.Flags(), &s.groups)
	return cmd
}

// rulesText lists the rules for the help, set in so that it is not broken again.
func rulesText() string {
	var b strings.Builder
	for _, r := range donors.Rules() {
		mark := " "
		if r.Ours {
			mark = "*"
		}
		begin := fmt.Sprintf("  %s %-13s ", mark, r.Name)
		paragraph(&b, resultWidth, begin, strings.Repeat(" ", len(begin)), r.Text)
	}
	return b.String()
}

func (s *poolSelection) showDonors(ctx context.Context, o *options, others bool) error {
	a, pools, err := s.open(ctx, o, work{}, func(fleet.ResourceID) *progress { return nil }, auto.Config{Request: capture.Request{OtherPools: others}})
	if err != nil {
		return err
	}
	observations, err := a.Observe(ctx, pools, s.all)
	if err != nil {
		return err
	}
	var names []string
	for _, l := range observations {
		for _, c := range l.Candidates {
			if c.Eligible && len(l.Refused) == 0 {
				names = append(names, c.Node)
			}
		}
	}
	err = o.printNames(observations, names, func(w io.Writer) {
		if len(observations) == 0 {
			fmt.Fprintln(w, noPools)
		}
		name := poolNames(pools)
		for i, l := range observations {
			if i > 0 {
				fmt.Fprintln(w)
			}
			writeLook(w, name(l.Pool), l)
		}
		var notes []string
		for _, l := range observations {
			notes = append(notes, l.Notes...)
		}
		writeNotes(w, notes)
	})
	for _, l := range observations {
		switch {
		case len(l.Unread) > 0:
			err = errors.Join(err, fmt.Errorf("cannot judge scale set %s: %s; %s", l.Pool.Name(), l.Refused[0].What, l.Refused[0].WayOut))
		case !s.all && len(l.Refused) > 0 && len(l.Candidates) == 0:
			err = errors.Join(err, &workflow.Refused{Problems: l.Refused})
		}
	}
	return err
}

// writeNotes writes the notes of pools after an empty line: what holds for several once.
func writeNotes(w io.Writer, notes []string) {
	if len(notes) > 0 {
		slices.Sort(notes)
		fmt.Fprintln(w)
		list(w, "Note", slices.Compact(notes))
	}
}

func writeLook(w io.Writer, name string, l auto.Observation) {
	add := func(text string) { paragraph(w, resultWidth, "  ", "    ", text) }
	head := "not due: " + l.Because
	switch {
	case l.Left != "":
		paragraph(w, resultWidth, "", "  ", name+": left out: "+l.Left)
		return
	case len(l.Refused) > 0:
		head = "cannot be captured"
	case l.Resumes != "":
		head = "a capture of " + l.Resumes + " runs, or is resumed by the next run"
	case l.Due:
		head = "due, from " + l.Donor + ": " + l.Because
		if len(l.Blockers) > 0 {
			head = "due, but its capture would be refused: " + l.Because
		}
	}
	paragraph(w, resultWidth, "", "  ", name+": "+head)
	for _, p := range append(l.Refused, l.Blockers...) {
		add("refused: " + shortly(p.On) + ": " + p.What + "; " + p.WayOut)
	}
	writeCandidates(w, l.Candidates)
	if unknown := unknownRules(l.Candidates); unknown != "" {
		add("not judged: " + unknown)
	}
}

func writeCandidates(w io.Writer, all []donors.Candidate) {
	if len(all) == 0 {
		return
	}
	wide := len("NODE")
	for _, c := range all {
		wide = max(wide, len(c.Node))
	}
	row := func(rank, node, ready, patched, boot string) {
		fmt.Fprintf(w, "  %-4s  %-*s  %-5s  %-10s  %s\n", rank, wide, node, ready, patched, boot)
	}
	row("RANK", "NODE", "READY", "PATCHED", "BOOT")
	now := time.Unix(1<<40, 0) // any time: age is the difference of two
	for i, c := range all {
		rank, ready, boot := "-", "-", "-"
		if c.Eligible {
			rank = fmt.Sprint(i + 1)
		}
		if c.Ready > 0 {
			ready = age(now.Add(-time.Duration(c.Ready)), now)
		}
		if c.Boot > 0 {
			boot = duration(time.Duration(c.Boot))
		}
		row(rank, c.Node, ready, dash(c.Patched), boot)
		why := ""
		for _, r := range c.Reasons {
			why += "; " + r.Rule + ": " + r.Text
		}
		if why != "" {
			paragraph(w, resultWidth, "        ", "        ", why[2:])
		}
	}
}

// unknownRules sums up what was not judged, by cause:
// "kernel, runtime (3 nodes: the Node does not report it); verdict (1 node: …)".
func unknownRules(all []donors.Candidate) string {
	var unknown []donors.Reason
	var causes []string
	nodes, rules := map[donors.Reason]int{}, map[string][]string{}
	for _, c := range all {
		for _, u := range c.Unknown {
			if nodes[u]++; nodes[u] == 1 {
				unknown = append(unknown, u)
			}
		}
	}
	for _, u := range unknown {
		cause := "(" + fleet.Count(nodes[u], "node") + ": " + u.Text + ")"
		if rules[cause] == nil {
			causes = append(causes, cause)
		}
		rules[cause] = append(rules[cause], u.Rule)
	}
	for i, cause := range causes {
		causes[i] = strings.Join(rules[cause], ", ") + " " + cause
	}
	return strings.Join(causes, "; ")
}
