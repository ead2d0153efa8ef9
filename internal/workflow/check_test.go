package workflow_test

import (
	"context"
	"strings"
	"testing"

	"github.com/ortet/ortet/internal/journal"
	"github.com/ortet/ortet/internal/workflow"
	"github.com/ortet/ortet/test/workflowtest"
)

func nothing(context.Context, *workflow.Pass) (workflow.Wait, error) { return workflow.Wait{}, nil }

func undo(id string, when ...string) *workflow.Undo {
	return &workflow.Undo{ID: id, When: when, Do: nothing}
}

func with(u *workflow.Undo, change func(*workflow.Undo)) *workflow.Undo {
	change(u)
	return u
}

func needs(u *workflow.Undo, ids ...string) *workflow.Undo {
	u.Needs = ids
	return u
}

func filled(t workflow.Table) workflow.Table {
	for i := range t {
		t[i].Do = nothing
	}
	return t
}

func TestCheck(t *testing.T) {
	for _, c := range []struct {
		wrong string
		table workflow.Table
	}{
		{`waits for the unknown id "b"`, workflow.Table{{ID: "a", After: []string{"b"}}}},
		{`id "a" is empty, used twice`, workflow.Table{{ID: "a"}, {ID: "a"}}},
		{`id "a" is empty, used twice`, workflow.Table{{ID: "a", Undo: undo("a")}}},
		{"wait for each other", workflow.Table{{ID: "a", After: []string{"b"}}, {ID: "b", After: []string{"a"}}}},
		{"wait for each other", workflow.Table{{ID: "a", After: []string{"undo-b"}}, {ID: "b", After: []string{"a"}, Undo: undo("undo-b", "b")}}},
		{"wait for each other", workflow.Table{{ID: "a", Undo: needs(undo("undo-a", "b"), "undo-b")},
			{ID: "b", Undo: needs(undo("undo-b", "a"), "undo-a")}}},
		{"only after a failure", workflow.Table{{ID: "a", Undo: undo("undo-a")}, {ID: "b", After: []string{"undo-a"}}}},
		{"only after a failure", workflow.Table{{ID: "a", Undo: undo("undo-a")}, {ID: "b", Undo: needs(undo("undo-b", "a"), "undo-a")}}},
		{"not for all that this needs", workflow.Table{
			{ID: "a", Undo: undo("undo-a", "a")}, {ID: "b", Undo: needs(undo("undo-b", "b"), "undo-a")}, {ID: "c", After: []string{"undo-b"}},
		}},
		{"which is no undo", workflow.Table{{ID: "a"}, {ID: "b", Undo: needs(undo("undo-b"), "a")}}},
		{"not a step", workflow.Table{{ID: "a", Undo: undo("undo-a", "b")}, {ID: "b", Undo: undo("undo-b", "undo-a")}}},
		{"which an interruption leaves out", workflow.Table{
			{ID: "a", Undo: with(undo("undo-a", "b"), func(u *workflow.Undo) { u.Keep = journal.Done })},
			{ID: "b", Undo: needs(undo("undo-b", "b"), "undo-a")},
		}},
	} {
		if err := workflowtest.Check(filled(c.table)); err == nil || !strings.Contains(err.Error(), c.wrong) {
			t.Errorf("want %q, got %v", c.wrong, err)
		}
	}
	if err := workflowtest.Check(workflow.Table{{ID: "a"}}); err == nil {
		t.Error("a row without Do is accepted")
	}
}

// An undo that failed keeps back those that need it, and not those that come after them.
func TestStuckUndoBlocks(t *testing.T) {
	after := func(u *workflow.Undo) { u.After = []string{"undo-b"} }
	table := workflow.Table{{ID: "a", Undo: undo("undo-a")}, {ID: "b", Undo: needs(undo("undo-b"), "undo-a")},
		{ID: "c", Undo: with(undo("undo-c"), after)}}
	done := journal.Step{State: journal.Done}
	steps := map[string]journal.Step{"a": {State: journal.UndoFailed}, "b": done, "c": done}
	if open := workflow.Next(table, journal.Record{Phase: journal.Undo, Steps: steps}, nil); len(open) != 1 || open[0].ID() != "undo-c" {
		t.Errorf("%d may begin: %v", len(open), open)
	}
}
