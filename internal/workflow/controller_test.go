package workflow_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ortet/ortet/internal/workflow"
	"github.com/ortet/ortet/internal/workflow/journal"
)

// drive calls Pass until the run has ended; each call has a new Runner and workflow, as
// if the controller were restarted each time.
func drive(t *testing.T, w *world, meet func(n int, rec *journal.Record)) (journal.Record, error) {
	rec := journal.Record{Pool: string(pool)}
	for n := 0; n < 1000; n++ {
		p := &process{world: w, name: "controller"}
		next, err := p.runner(t).Pass(t.Context(), &rec, &small{p: p})
		if next == 0 {
			return rec, err
		}
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(next)
		if meet != nil {
			meet(n, &rec)
		}
	}
	t.Fatalf("no end after 1000 passes\n%s", w.text())
	return rec, nil
}

func TestPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		rec, err := drive(t, w, nil)
		if err == nil {
			err = w.clean(true)
		}
		if err != nil || rec.Open() {
			t.Fatalf("%v, open %t\n%s", err, rec.Open(), w.text())
		}
		for call, n := range w.calls {
			if strings.HasPrefix(call, "poll") && call != "poll patch model" && n > 4 {
				t.Errorf("%s: %d times in 30 s although Azure asks for 10 s", call, n)
			}
		}
	})
}

// Whoever wants it no more at any pass gets everything back.
func TestPassUndoesAtAnyPass(t *testing.T) {
	for at, over := 0, false; !over; at++ {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld()
			over = true
			rec, err := drive(t, w, func(n int, rec *journal.Record) {
				if n == at {
					over = false
					*rec = workflow.GoBack(*rec, journal.Undo, "deleted")
				}
			})
			committed := rec.Steps["model"].State == journal.Done
			if want := map[bool]int{true: workflow.ExitNeedsPerson, false: workflow.ExitFailed}[committed]; !over && workflow.ExitCode(err) != want {
				t.Errorf("pass %d: %v", at, err)
			}
			if w.look("stopped") || w.look("protected") || w.look("snapshot") || w.busy != "" || w.holder != "" {
				t.Errorf("pass %d: %v %s\n%s", at, w.is, w.busy, w.text())
			}
		})
		if t.Failed() {
			return
		}
	}
}
