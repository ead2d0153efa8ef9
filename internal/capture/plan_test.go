package capture_test

import (
	"slices"
	"testing"

	"github.com/ortet/ortet/internal/capture"
	"github.com/ortet/ortet/internal/prototype"
)

// A plan lists what a person will see: rows and undos, each after all that it waits for.
func TestPlanned(t *testing.T) {
	steps := capture.Planned()
	at := func(id string) int { return slices.IndexFunc(steps, func(s prototype.Step) bool { return s.ID == id }) }
	for i, s := range steps {
		for _, after := range s.After {
			if j := at(after); j < 0 || j > i {
				t.Errorf("step %d, %s, waits for %s, step %d", i, s.ID, after, j)
			}
		}
		if s.Title == "" || s.Deadline == 0 {
			t.Errorf("step %s has no title or deadline: %+v", s.ID, s)
		}
	}
	for _, row := range capture.Table() {
		if at(row.ID) < 0 {
			t.Errorf("row %s is not listed", row.ID)
		}
		if u := row.Undo; u != nil && (len(u.When) > 0) != (at(u.ID) >= 0) {
			t.Errorf("undo %s is listed: %t; it runs in the good case: %t", u.ID, at(u.ID) >= 0, len(u.When) > 0)
		}
	}
	if at("start") != at("snapshot")+1 {
		t.Errorf("start does not follow snapshot: %v", steps)
	}
}
