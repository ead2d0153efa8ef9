package workflow_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ortet/ortet/internal/journal"
	"github.com/ortet/ortet/internal/workflow"
)

// drive makes one pass of each open action in turn until none is open; each has a new
// Runner and workflow, as if the controller were restarted each time.
func drive(t *testing.T, w *world, meet func(n int, rec *journal.Record)) journal.Record {
	p := &process{world: w, name: "controller"}
	plan, err := (&small{p: p}).Plan(t.Context(), journal.Record{})
	if err != nil {
		t.Fatal(err)
	}
	rec := workflow.Resume(plan.Table, journal.Record{Kind: "small", Name: plan.Name, Pool: string(pool)})
	due := map[string]time.Time{} // by the action's id
	for n := 0; n < 1000; n++ {
		open := workflow.Next(plan.Table, rec, nil)
		if len(open) == 0 {
			return rec
		}
		next := 30 * time.Second
		for _, a := range open {
			if in := time.Until(due[a.ID()]); in > 0 {
				next = min(next, in)
				continue
			}
			wait, err := p.runner(t).Pass(t.Context(), &rec, plan.Table, &small{p: p}, a)
			if err != nil {
				t.Fatal(err)
			}
			next, due[a.ID()] = min(next, max(wait.RequeueAfter, time.Millisecond)), time.Now().Add(wait.RequeueAfter)
			if wait.RequeueAfter == 0 {
				break // what is open has changed
			}
		}
		time.Sleep(next)
		if meet != nil {
			meet(n, &rec)
		}
	}
	t.Fatalf("no end after 1000 passes\n%s", w.text())
	return rec
}

func TestPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		if rec := drive(t, w, nil); rec.Phase != journal.Forward || len(workflow.Remaining((&small{}).table(), rec)) > 0 {
			t.Errorf("%+v\n%s", rec, w.text())
		}
		w.holder = ""
		if err := w.clean(true); err != nil {
			t.Errorf("%v\n%s", err, w.text())
		}
		for call, n := range w.calls {
			if strings.HasPrefix(call, "poll") && call != "poll patch model" && n > 4 {
				t.Errorf("%s: %d times in 30 s although Azure asks for 10 s", call, n)
			}
		}
	})
}

// A record that is turned back at any pass is undone.
func TestPassUndoesAtAnyPass(t *testing.T) {
	for at, over := 0, false; !over; at++ {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld()
			over = true
			rec := drive(t, w, func(n int, rec *journal.Record) {
				if n == at {
					over = false
					*rec = workflow.EndForward(*rec, journal.Undo, "deleted")
				}
			})
			if left := workflow.Remaining((&small{}).table(), rec); len(left) > 0 {
				t.Errorf("pass %d: %v", at, left)
			}
			if w.look("stopped") || w.look("protected") || w.look("snapshot") || w.busy != "" {
				t.Errorf("pass %d: %v %s\n%s", at, w.is, w.busy, w.text())
			}
		})
		if t.Failed() {
			return
		}
	}
}
