package workflow_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/journal"
	"github.com/ortet/ortet/internal/workflow"
	"github.com/ortet/ortet/test/workflowtest"
)

// steps reads "a done, b running" as a record's.
func steps(text string) map[string]journal.Step {
	all := map[string]journal.Step{}
	for one := range strings.SplitSeq(text, ", ") {
		if id, state, ok := strings.Cut(one, " "); ok {
			all[id] = journal.Step{State: journal.State(state)}
		}
	}
	return all
}

// TestNext: which actions may begin, by the phase and by how far the rows are.
func TestNext(t *testing.T) {
	table := workflow.Table{
		{ID: "stop", Undo: &workflow.Undo{ID: "start", When: []string{"copy"}}},
		{ID: "copy", After: []string{"stop"}, Undo: &workflow.Undo{ID: "delete", When: []string{"build"}, Keep: journal.Done, After: []string{"start"}}},
		{ID: "note", Optional: true},
		{ID: "build", After: []string{"start", "note"}, Undo: &workflow.Undo{ID: "unbuild", Keep: journal.Running}},
	}
	for name, c := range map[string]struct {
		phase     journal.Phase
		steps     string
		inFlight  string
		want      string
		remaining string // of the phase
	}{
		"at the begin":                        {want: "stop note"},
		"in flight":                           {inFlight: "stop", want: "note"},
		"the donor is stopped":                {steps: "stop done, note done", want: "copy", remaining: "stop"},
		"it is copied":                        {steps: "stop done, copy done, note done", want: "start", remaining: "stop copy"},
		"its start is under way":              {steps: "stop undoing, copy done, note done", want: "start", remaining: "stop copy"},
		"its start failed":                    {steps: "stop left, copy done, note done", remaining: "stop copy"},
		"it is back":                          {steps: "stop undone, copy done, note done", want: "build", remaining: "copy"},
		"what is optional failed":             {steps: "stop undone, copy done, note failed", want: "build", remaining: "copy"},
		"what is optional runs":               {steps: "stop undone, copy done, note running", inFlight: "note", remaining: "copy"},
		"it is built":                         {steps: "stop undone, copy done, note done, build done", want: "delete", remaining: "copy"},
		"skipped rows":                        {steps: "stop skipped, copy skipped, note skipped", want: "build"},
		"failed, and undone":                  {phase: journal.Undo, steps: "stop done, copy failed", want: "start", remaining: "stop copy"},
		"failed as it was built":              {phase: journal.Undo, steps: "stop undone, copy done, build failed", want: "delete unbuild", remaining: "copy build"},
		"a row that did not begin":            {phase: journal.Undo, steps: "stop undone, note running"},
		"interrupted, the donor is stopped":   {phase: journal.Suspend, steps: "stop done, copy running", want: "start", remaining: "stop copy"},
		"interrupted, the copy stays":         {phase: journal.Suspend, steps: "stop undone, copy done"},
		"interrupted, an unfinished copy":     {phase: journal.Suspend, steps: "stop undone, copy running", want: "delete", remaining: "copy"},
		"interrupted, Azure goes on to build": {phase: journal.Suspend, steps: "stop undone, copy done, build running"},
		"interrupted, an undo is under way":   {phase: journal.Suspend, steps: "stop undone, copy undoing, build done", want: "delete", remaining: "copy"},
	} {
		r := journal.Record{Phase: c.phase, Steps: steps(c.steps)}
		open := fleet.Each(workflow.Next(table, r, map[string]bool{c.inFlight: true}), workflow.Action.ID)
		left := fleet.Each(workflow.Remaining(table, r), func(s workflow.Step) string { return s.ID })
		if strings.Join(open, " ") != c.want || strings.Join(left, " ") != c.remaining {
			t.Errorf("%s: %q begin, %q remain", name, open, left)
		}
	}
	// A record that another process left: its undos that failed are tried again, and its clocks begin anew.
	r := workflow.Recover(journal.Record{Steps: map[string]journal.Step{"stop": {State: journal.UndoFailed, Begun: time.Unix(1, 0)}, "copy": {State: journal.Done}}}, journal.Suspend, "why")
	if r.Steps["stop"].State != journal.Undoing || !r.Steps["stop"].Begun.IsZero() || r.Steps["copy"].State != journal.Done || r.Phase != journal.Suspend || r.Why != "why" {
		t.Errorf("%+v", r)
	}
	if r := workflow.Recover(journal.Record{Phase: journal.Undo, Why: "first"}, journal.Suspend, "why"); r.Phase != journal.Undo || r.Why != "first" {
		t.Errorf("what is undone is resumed: %+v", r)
	}
}

// TestLeftOpen names what is not done once the run has committed, and nothing before.
func TestLeftOpen(t *testing.T) {
	fails := func(context.Context, *workflow.Pass) (workflow.Wait, error) { return workflow.Wait{}, errors.New("no") }
	for _, commits := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			p := workflowtest.Play(t, nil, workflow.Step{ID: "model", Commits: commits, Do: nothing}, workflow.Step{ID: "grow", After: []string{"model"}, Do: fails, Title: "Grow"},
				workflow.Step{ID: "tag", After: []string{"grow"}, Do: nothing, Title: "Tag it"}, workflow.Step{ID: "skipped", Skip: "x", Title: "Skipped"})
			want := map[bool]string{true: "step grow: no; this needs a person\n  - step tag is not done: Tag it", false: "step grow: no; all changes were undone"}[commits]
			if p.Err == nil || p.Err.Error() != want {
				t.Errorf("%v", p.Err)
			}
		})
	}
}

// A set is a scale set that is updating until a time.
type set struct {
	azure.Cloud
	until    time.Time
	capacity int64
}

func (s *set) Pool(context.Context, fleet.ResourceID) (fleet.Pool, error) {
	state := "Succeeded"
	if time.Now().Before(s.until) {
		state = "Updating"
	}
	return fleet.Pool{ID: pool, Name: "pool1", Etag: "e", Capacity: s.capacity, ProvisioningState: state}, nil
}

func (*set) Instances(context.Context, fleet.ResourceID) ([]fleet.Instance, error) { return nil, nil }

func (s *set) Begin(_ context.Context, c fleet.Change) (fleet.Token, error) {
	s.capacity = c.(fleet.SetCapacity).Capacity
	s.until = time.Time{}
	return "", nil
}

// TestChange waits while the scale set is updating, asks once, and asks for nothing that is there.
func TestChange(t *testing.T) {
	for name, c := range map[string]struct {
		updates  time.Duration
		capacity int64
		asked    int
		takes    time.Duration
		notes    int
		refused  bool
	}{
		"at rest":                          {capacity: 1, asked: 1},
		"there":                            {capacity: 2},
		"updating":                         {updates: 5 * time.Minute, capacity: 1, asked: 1, takes: 5 * time.Minute},
		"updating for too long":            {updates: time.Hour, capacity: 1, asked: 1, takes: azure.RestFor, notes: 1},
		"there, and updating":              {updates: 5 * time.Minute, capacity: 2, takes: 5 * time.Minute},
		"there, and updating for too long": {updates: time.Hour, capacity: 2, takes: azure.RestFor},
		"refused right before the write":   {capacity: 1, refused: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begun := time.Now()
				s := &set{until: begun.Add(c.updates), capacity: c.capacity}
				x := workflow.NewScaleSet(s, time.Now)
				p := workflowtest.Play(t, s, workflow.Step{ID: "grow", Deadline: 2 * time.Hour, Do: func(ctx context.Context, p *workflow.Pass) (workflow.Wait, error) {
					return x.Change(ctx, p, pool, func(at fleet.Pool) fleet.Change { return fleet.SetCapacity{Pool: pool, Capacity: 2, Etag: at.Etag} },
						func(at fleet.Pool) bool { return at.Capacity >= 2 }, func(context.Context, fleet.Pool) error {
							if c.refused {
								return errors.New("refused")
							}
							return nil
						})
				}})
				if took := time.Since(begun); (p.Err != nil) != c.refused || len(p.Changes) != c.asked || took < c.takes || took > c.takes+time.Minute || len(p.Notes) != c.notes {
					t.Errorf("%v after %s, %q, notes %q", p.Err, took, p.Begun(), p.Notes)
				}
			})
		})
	}
}
