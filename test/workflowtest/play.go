package workflowtest

import (
	"context"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/cluster"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/journal"
	"github.com/ortet/ortet/internal/journal/journaltest"
	"github.com/ortet/ortet/internal/workflow"
)

const playedPool = fleet.ResourceID("/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachineScaleSets/pool1")

// A Played is what came of rows that were run alone.
type Played struct {
	Err     error
	Notes   []string
	Changes []fleet.Change // that were begun
	Steps   map[string]journal.Step
}

// Begun returns the changes, of each id only the name.
func (p Played) Begun() string {
	return strings.Join(fleet.Each(p.Changes, func(c fleet.Change) string { return c.Verb() + " " + Short(c) }), "\n")
}

var parents = regexp.MustCompile(`/subscriptions/[^\s\]}]*/`)

// Short returns the value as text, of each id only the name.
func Short(v any) string { return parents.ReplaceAllString(fmt.Sprintf("%+v", v), "") }

// Play runs the rows of one part to their end, without those of others: what they wait for counts as
// skipped. It is for a bubble of testing/synctest, since it waits.
func Play(t *testing.T, cloud azure.Changer, rows ...workflow.Step) Played {
	t.Helper()
	x := &played{Changer: cloud, rows: alone(rows)}
	var store journaltest.Memory
	runner := workflow.Runner{
		Cloud: x, Journal: &store, Locks: x, LockFor: time.Minute, Holder: "test", Now: time.Now,
		Log: slog.New(slog.DiscardHandler), Report: x.summary.Reporter(nil),
	}
	err := runner.Run(t.Context(), playedPool, x)
	rec, loadErr := store.Load(t.Context(), string(playedPool))
	if fleet.IgnoreNotFound(loadErr) != nil {
		t.Fatal(loadErr)
	}
	notes, _ := x.summary.Recorded()
	return Played{Err: err, Notes: notes, Changes: x.changes, Steps: rec.Steps}
}

// alone adds a skipped row for each id that the rows name and that is none of theirs.
func alone(rows workflow.Table) workflow.Table {
	rows = slices.Clone(rows)
	known := map[string]bool{}
	for _, s := range rows {
		known[s.ID] = true
		if s.Undo != nil {
			known[s.Undo.ID] = true
		}
	}
	for _, s := range slices.Clone(rows) {
		ids := s.After
		if u := s.Undo; u != nil {
			ids = slices.Concat(ids, u.When, u.After, u.Needs)
		}
		for _, id := range ids {
			if !known[id] {
				known[id] = true
				rows = append(rows, workflow.Step{ID: id, Skip: "another part's"})
			}
		}
	}
	return rows
}

// Text returns the rows, one in a line: its title, when it is skipped, what it waits for, and its undo.
func Text(rows ...workflow.Step) string {
	var all []string
	for _, s := range rows {
		text := s.ID + ": " + s.Title
		add := func(word string, ids ...string) {
			if len(ids) > 0 && ids[0] != "" {
				text += "; " + word + " " + strings.Join(ids, " ")
			}
		}
		add("after", s.After...)
		add("skip:", s.Skip)
		add("exists", workflow.SkipIf(s.EffectMayExist, "already"))
		add("fails", workflow.SkipIf(s.Optional, "without effect"))
		add("commits", workflow.SkipIf(s.Commits, "here"))
		if u := s.Undo; u != nil {
			add("undo", u.ID+": "+u.Title)
			add("when", u.When...)
			add("after", u.After...)
			add("needs", u.Needs...)
			add("keep", string(u.Keep))
			if u.Manual != nil {
				add("or", u.Manual())
			}
		}
		all = append(all, parents.ReplaceAllString(text, ""))
	}
	return strings.Join(all, "\n")
}

// played is the workflow of rows that are run alone, and what a Runner needs for it.
type played struct {
	azure.Changer
	rows    workflow.Table
	summary workflow.Summary
	mu      sync.Mutex
	changes []fleet.Change
}

func (x *played) Begin(ctx context.Context, c fleet.Change) (fleet.Token, error) {
	x.mu.Lock()
	x.changes = append(x.changes, c)
	x.mu.Unlock()
	return x.Changer.Begin(ctx, c)
}

func (*played) Kind() string { return "part" }

func (x *played) Restore(journal.Record) (workflow.Table, string, error) { return x.rows, "", nil }

func (x *played) Plan(context.Context, journal.Record) (workflow.Plan, error) {
	return workflow.Plan{Name: "run", Subject: "node", Table: x.rows}, nil
}

func (*played) State(bool) any { return nil }

func (*played) Hold(_ context.Context, _, holder string, _ time.Duration) (cluster.Holding, error) {
	return cluster.Holding{Holder: holder}, nil
}

func (*played) Holding(context.Context, string) (cluster.Holding, bool, error) {
	return cluster.Holding{}, false, nil
}

func (*played) Release(context.Context, string, string) error { return nil }
