package capture_test

import (
	"cmp"
	"testing"
	"time"

	"github.com/ortet/ortet/internal/image/capture"
	"github.com/ortet/ortet/internal/workflow"
)

// TestDeadlines: a row fails only after Azure or a node had the time that it may take, and a plan says so.
func TestDeadlines(t *testing.T) {
	want := map[string]time.Duration{"inspect": 5 * time.Minute, "delete-inspection": 5 * time.Minute, "unprotect": 40 * time.Minute, "drain": 16 * time.Minute, "stop": 20 * time.Minute,
		"start": 40 * time.Minute, "flush": 5 * time.Minute, "delete-flush": 5 * time.Minute, "snapshot": 30 * time.Minute, "confirm-boot": 20 * time.Minute, "hold-reboots": 2 * time.Hour,
		"work-disk": 30 * time.Minute, "delete-work-disk": 30 * time.Minute, "attach": 20 * time.Minute, "detach": 20 * time.Minute, "generalize": time.Hour, "delete-pod": 5 * time.Minute, "save": 30 * time.Minute,
		"generalized-snapshot": 30 * time.Minute, "live": time.Hour, "version": 8 * time.Hour, "delete-version": time.Hour, "canary": 30 * time.Minute, "delete-canary": time.Hour, "judge": 4 * time.Hour,
		"prune": time.Hour, "publish": time.Hour, "model": time.Hour, "extensions": time.Hour, "grow": 75 * time.Minute,
		"raise": 2 * time.Hour, "delete-donor": time.Hour}
	for _, table := range []workflow.Table{capture.Table(), capture.OnlineTable(), capture.FreshTable()} {
		listed := 0
		for _, step := range capture.Steps(table, nil) {
			if time.Duration(step.Deadline) != cmp.Or(want[step.ID], workflow.DefaultDeadline) {
				t.Errorf("a plan says that %s may take %s, want %s", step.ID, time.Duration(step.Deadline), want[step.ID])
			}
			listed++
		}
		for _, row := range table {
			if row.Deadline != want[row.ID] || row.Undo != nil && row.Undo.Deadline != want[row.Undo.ID] {
				t.Errorf("%s or its undo may not take %s, %s", row.ID, row.Deadline, want[row.ID])
			}
			if listed--; row.Undo != nil && len(row.Undo.When) > 0 {
				listed--
			}
		}
		if listed != 0 {
			t.Errorf("a plan lists %d steps more than there are", listed)
		}
	}
}
