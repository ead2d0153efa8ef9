package cli

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/nodeconfig"
	"github.com/ortet/ortet/internal/nodeconfig/push"
	"github.com/ortet/ortet/internal/wire"
)

func newConfigStatus(c *configOptions) *cobra.Command {
	return c.poolCommand("status POOL", "Show the configuration of a pool's nodes, and its history", `status shows which generation the scale set's model and each node have, what nodes
reported of the last one, what was changed on nodes since, instances without a Node,
and the generations that are kept. It reads Nodes by one list.`, func(ctx context.Context, arg string) error {
		p, pool, err := c.open(ctx, arg, nil)
		if err != nil {
			return c.printFailure(nil, nil, err)
		}
		s, err := p.Status(ctx, pool)
		if err != nil {
			return c.printFailure(nil, nil, goneOr(err, pool))
		}
		return c.print(s, func(w io.Writer) { writeConfigStatus(w, s, time.Now()) })
	})
}

func writeConfigStatus(w io.Writer, s *push.Status, now time.Time) {
	model := "no configuration"
	switch {
	case s.ModelForeign:
		model = "userData that is not Ortet's"
	case s.Model > 0:
		model = fmt.Sprintf("generation %d", s.Model)
	}
	say(w, "%s: %s, the model has %s.", s.Pool.Name(), fleet.Count(len(s.Nodes), "node"), model)
	if len(s.Nodes) > 0 {
		fmt.Fprintln(w)
	}
	writeConfigNodes(w, s.Nodes, nil, now)
	if len(s.Without) > 0 {
		paragraph(w, resultWidth, "", "  ", "Instances without a Node: "+strings.Join(s.Without, ", "))
	}
	if len(s.History) == 0 {
		return
	}
	fmt.Fprintln(w)
	rows := [][]string{{"GENERATION", "WHEN", "BY", "DIGEST", "NODES"}}
	for _, e := range s.History {
		has := 0
		for _, n := range s.Nodes {
			if n.Generation == e.Generation {
				has++
			}
		}
		digest := strings.TrimPrefix(e.Digest, "sha256:")
		rows = append(rows, cells(e.Generation, e.At.UTC().Format("2006-01-02 15:04:05Z"), e.By, digest[:min(12, len(digest))], has))
	}
	writeTable(w, rows, shrink{2, 12})
}

// writeConfigNodes shows how far nodes are, then those that a push left, whose messages
// say why. Messages and drift have lines of their own.
func writeConfigNodes(w io.Writer, reached, left []push.Node, now time.Time) {
	nodes := slices.Concat(reached, left)
	if len(nodes) == 0 {
		return
	}
	rows := [][]string{{"NODE", "HAS", "WANTED", "STATE", "SINCE", "REASON"}}
	for _, n := range nodes {
		rows = append(rows, cells(first(n.Name, n.Instance), number(n.Generation), number(n.Wanted), n.State, age(n.At, now), n.Reason))
	}
	writeDetails(w, rows, func(i int) (lines []string) {
		n := nodes[i]
		if !n.Ready {
			lines = append(lines, "the Node is not Ready")
		}
		if n.Message != "" && (n.State != string(wire.ConfigurationApplied) || i >= len(reached)) {
			lines = append(lines, n.Message)
		}
		if len(n.Drift) > 0 {
			lines = append(lines, "changed on the node since: "+strings.Join(n.Drift, ", "))
		}
		return lines
	}, shrink{0, 20}, shrink{5, 18}, shrink{0, 12})
}

// number is a generation; none is "".
func number(n int64) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprint(n)
}

func writeConfigPlan(w io.Writer, p *push.Plan, now time.Time) {
	behind := 0
	for _, n := range p.Nodes {
		if n.Generation != p.From || n.State != string(wire.ConfigurationApplied) {
			behind++
		}
	}
	switch {
	case len(p.Changes) > 0 && p.From == 0:
		say(w, "Plan for pool %s: its first configuration, as generation %d. Nothing was changed.", p.Pool.Name(), p.Generation)
	case len(p.Changes) > 0:
		say(w, "Plan for pool %s: generation %d becomes %d. Nothing was changed.", p.Pool.Name(), p.From, p.Generation)
	case p.From > 0 && behind == 0:
		say(w, "Nothing to do: pool %s has this configuration, as generation %d.", p.Pool.Name(), p.From)
	case p.From > 0:
		say(w, "The configuration is that of generation %d already; %d of %s are not at it. ortet config push resumes with these; give --retry where it failed.", p.From, behind, fleet.Count(len(p.Nodes), "node"))
	default:
		say(w, "Nothing to do: the configuration is empty, and pool %s has none.", p.Pool.Name())
	}
	if len(p.Changes) > 0 {
		fmt.Fprintln(w)
		rows := [][]string{{"KIND", "NAME", "CHANGE", "RESTARTS"}}
		for _, c := range p.Changes {
			rows = append(rows, cells(c.Kind, c.Name, c.What, strings.Join(c.Restarts, ", ")))
		}
		writeDetails(w, rows, func(i int) []string {
			if name := p.Changes[i].Name; rows[i+1][1] != name { // was cut
				return []string{name}
			}
			return nil
		}, shrink{1, 24}, shrink{3, 16})
	}
	if slices.ContainsFunc(p.Changes, func(c nodeconfig.Change) bool { return c.What == nodeconfig.Removed }) {
		fmt.Fprintln(w)
		say(w, "What is removed goes back to what nodes had before Ortet changed it: the file is the whole state. To keep it, add it to the file.")
	}
	if len(p.Nodes) > 0 {
		fmt.Fprintln(w)
		writeConfigNodes(w, p.Nodes, nil, now)
	}
	if len(p.Changes) > 0 {
		fmt.Fprintln(w)
		say(w, "Restarts on each node: %s.", first(strings.Join(p.Restarts, ", "), "none"))
		say(w, "Expected time: about %s.", duration(p.Expected))
	}
	if len(p.Notes) > 0 {
		list(w, "Note", p.Notes)
	}
}
