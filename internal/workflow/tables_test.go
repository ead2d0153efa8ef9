package workflow_test

import (
	"context"

	"github.com/ortet/ortet/internal/workflow"
	"github.com/ortet/ortet/internal/workflow/journal"
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

// captureTable has a capture's rows.
func captureTable() workflow.Table {
	return filled(workflow.Table{
		{ID: "inspect", Undo: undo("delete-inspection", "inspect")},
		{ID: "gallery", After: []string{"inspect"}},
		{ID: "definition", After: []string{"gallery"}},
		{ID: "protect", After: []string{"definition"}, Undo: with(undo("unprotect", "snapshot"), func(u *workflow.Undo) { u.After = []string{"start", "uncordon"} })},
		{ID: "protect-workbench", After: []string{"definition"}, Undo: needs(undo("unprotect-workbench", "save"), "detach")},
		{ID: "cordon", After: []string{"protect", "protect-workbench"}, Undo: needs(undo("uncordon", "snapshot"), "start")},
		{ID: "drain", After: []string{"cordon"}},
		{ID: "stop", After: []string{"drain"}, Undo: undo("start", "snapshot")},
		{ID: "snapshot", After: []string{"stop"}, Undo: with(undo("delete-snapshot", "version"), func(u *workflow.Undo) { u.Keep = journal.Done })},
		{ID: "hold-reboots", After: []string{"snapshot"}, Undo: needs(undo("release-reboots", "save"), "detach")},
		{ID: "work-disk", After: []string{"snapshot"}, Undo: needs(undo("delete-work-disk", "generalized-snapshot"), "detach")},
		{ID: "attach", After: []string{"protect-workbench", "hold-reboots", "work-disk"}, Undo: with(undo("detach", "save"), func(u *workflow.Undo) { u.After = []string{"delete-pod"} })},
		{ID: "generalize", After: []string{"attach"}, Undo: undo("delete-pod", "save")},
		{ID: "save", After: []string{"generalize"}},
		{ID: "generalized-snapshot", After: []string{"save", "detach"}, Undo: with(undo("delete-generalized-snapshot", "version"), func(u *workflow.Undo) { u.Keep = journal.Done })},
		{ID: "version", After: []string{"generalized-snapshot", "start", "uncordon", "unprotect"}, Undo: with(undo("delete-version"), func(u *workflow.Undo) { u.Keep = journal.Running })},
		{ID: "prune", After: []string{"version"}, Optional: true},
		{ID: "model", After: []string{"version"}, Commits: true},
		{ID: "extensions", After: []string{"model"}},
		{ID: "grow", After: []string{"extensions"}},
	})
}

// rollbackTable has a rollback's rows.
func rollbackTable() workflow.Table {
	return filled(workflow.Table{
		{ID: "model", Commits: true},
		{ID: "extensions", After: []string{"model"}},
		{ID: "tag", After: []string{"model"}, Optional: true},
	})
}
