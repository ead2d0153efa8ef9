package capture_test

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/capture"
	"github.com/ortet/ortet/internal/image/plan"
)

var update = flag.Bool("update", false, "write the table of steps in docs/reference/capture.md")

// TestDocumented compares the table of steps in docs/reference/capture.md with the rows. Steps, what they
// wait for, and undos come from the rows; the last column is written by hand.
func TestDocumented(t *testing.T) {
	const path, head = "../../../docs/reference/capture.md", "| step | waits for | undo | what it does |\n|---|---|---|---|\n"
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, after, found := strings.Cut(string(text), head)
	table, after, ends := strings.Cut(after, "\n\n")
	if !found || !ends {
		t.Fatalf("%s has no table that begins with:\n%s", path, head)
	}
	byHand := map[string]string{}
	for line := range strings.Lines(table + "\n") {
		if cells := strings.SplitN(line, " | ", 4); len(cells) == 4 {
			byHand[strings.Trim(cells[0], "| `")] = strings.TrimSuffix(cells[3], "\n")
		}
	}
	undos, rows := map[string]string{}, capture.Planned()
	for _, row := range capture.Table() {
		if u := row.Undo; u != nil {
			undos[row.ID] = "`" + u.ID + "`"
		}
		if u := row.Undo; u != nil && len(u.When) == 0 {
			at := slices.IndexFunc(rows, func(s plan.Step) bool { return s.ID == row.ID })
			rows = slices.Insert(rows, at+1, plan.Step{ID: u.ID, Title: u.Title, After: []string{"a failure"}})
		}
	}
	var lines []string
	for _, row := range rows {
		lines = append(lines, fmt.Sprintf("| `%s` | %s | %s | %s", row.ID, strings.Join(row.After, ", "), undos[row.ID], cmp.Or(byHand[row.ID], row.Title+" |")))
	}
	switch want := strings.Join(lines, "\n"); {
	case want == table:
	case !*update:
		t.Errorf("the table of steps in %s is not that of the rows: go test ./internal/image/capture -update, and describe what is new. It should be:\n%s", path, want)
	default:
		if err := os.WriteFile(path, []byte(before+head+want+"\n\n"+after), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// A plan lists what a person will see: rows and undos, each after all that it waits for.
func TestPlanned(t *testing.T) {
	steps := capture.Planned()
	at := func(id string) int { return slices.IndexFunc(steps, func(s plan.Step) bool { return s.ID == id }) }
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
		if u := row.Undo; u != nil && u.ID != "delete-inspection" && (u.Manual == nil || u.Manual() == "") {
			t.Errorf("undo %s names nothing to do by hand", u.ID) // an inspection's pod ends by itself
		}
		if u := row.Undo; u != nil && (len(u.When) > 0) != (at(u.ID) >= 0) {
			t.Errorf("undo %s is listed: %t; it runs in the good case: %t", u.ID, at(u.ID) >= 0, len(u.When) > 0)
		}
	}
	if at("start") != at("snapshot")+1 {
		t.Errorf("start does not follow snapshot: %v", steps)
	}
}

// A plan says for how long it usually takes a node out of service, as README has it. A node that stays in
// service, and one that was added for the capture, is not counted.
func TestUsualTime(t *testing.T) {
	steps, online := capture.Documented(false), capture.Documented(true)
	added := append([]plan.Step{{ID: "raise", Usual: fleet.Duration(4 * time.Minute)}}, steps...)
	for name, c := range map[string]struct {
		steps []plan.Step
		out   time.Duration
	}{"a node": {steps, 5*time.Minute + 36*time.Second}, "--online": {online, 0}, "--fresh": {added, 0}, "nothing": {nil, 0}} {
		whole, out := plan.Plan{Steps: c.steps}.UsualTime()
		if out != c.out || (whole < 45*time.Minute || whole > 55*time.Minute) && c.steps != nil {
			t.Errorf("%s: usually takes %s, of which %s out of service, want about 50m and %s", name, whole, out, c.out)
		}
	}
}
