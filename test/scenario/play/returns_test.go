package play

import (
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ortet/ortet/internal/engine"
	"github.com/ortet/ortet/internal/prototype"
	"github.com/ortet/ortet/test/scenario"
)

// points has somebody set the image of the model.
func points(w *world, image object) {
	w.azure.Instant(true)
	body := object{"properties": object{"virtualMachineProfile": object{"storageProfile": object{"imageReference": image}}}}
	if err := w.request(http.MethodPatch, string(w.pool), apiYear, body); err != nil {
		panic(err)
	}
	synctest.Wait()
}

// uses has somebody set the n-th version from the newest on.
func uses(n int) func(*world) {
	return func(w *world) { points(w, object{"id": string(version(w, n))}) }
}

// scales has somebody set the capacity.
func scales(n int) func(*world) {
	return func(w *world) {
		w.azure.Instant(true)
		if err := w.request(http.MethodPatch, string(w.pool), apiYear, object{"sku": object{"capacity": n}}); err != nil {
			panic(err)
		}
		synctest.Wait()
		time.Sleep(time.Hour)
	}
}

// closes is a rollback's record that is closed with exit 0, to the n-th version.
func closes(n int) func(*world, *process) {
	return func(w *world, _ *process) {
		var rec noted
		rec.Capture, rec.Kind, rec.Ended = "c1", prototype.KindRollback, &struct{ Exit int }{}
		rec.Facts.Names.Version = version(w, n)
		w.checkClosedAt(rec)
	}
}

func TestRulesOfRollbacks(t *testing.T) {
	reports := func(from, to int) func(*world, *process) {
		return func(w *world, p *process) {
			p.rollback.From, p.rollback.To = version(w, from), version(w, to)
			w.checkReported(p)
		}
	}
	comes := func(from int) func(*world, *process) {
		return func(w *world, p *process) {
			w.opened()
			leave(0)(w)
			time.Sleep(time.Hour)
			p.rollback.From, p.rollback.To = version(w, from), version(w, 1)
			w.checkReturn(p)
		}
	}
	nothing := func(n int) func(*world, *process) {
		return func(w *world, p *process) {
			p.ask.To = version(w, n).Name()
			p.rollback.NothingToDo, p.rollback.From, p.rollback.To = true, version(w, 0), version(w, n)
			w.checkReturn(p)
		}
	}
	says := func(n int) func(*world, *process) {
		return func(w *world, p *process) {
			left := "the model uses " + version(w, n).Name() + ", but step tag is not done"
			p.err = &engine.NeedsPerson{Step: prototype.StepTag, Err: errors.New("refused"), Left: []string{left}}
			w.checkUses(p)
		}
	}
	opened := func(w *world) { w.opened() }
	const pool = "pool instances=3 versions=4\nrollback\n"
	judged(t, []ruling{
		{"the model is what is reported", pool, uses(1), nil, reports(0, 1), reports(0, 2), "reports that the model uses"},
		{"the record's version is in the model", pool, all(uses(1), opened), uses(2), closes(1), nil, "and not version"},
		{"a rollback keeps the capacity", pool, all(uses(1), opened), scales(4), closes(1), nil, "and was"},
		{"it came from what the model used", pool, nil, nil, comes(0), comes(2), "reports that it came from"},
		{"nothing to do where it is so", pool, nil, leave(0), nothing(0), nil, "had nothing to do"},
		{"exit 4 names what the model uses", pool, nil, nil, says(0), says(1), "says that the model uses"},
	})
}

// TestNamesOfVersionsAsked: what a scenario names is a version as there are.
func TestNamesOfVersionsAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := scenario.Parse("pool instances=3 versions=3\nrollback\n")
		if err != nil {
			t.Fatal(err)
		}
		w, err := newWorld(s)
		if err != nil {
			t.Fatal(err)
		}
		defer w.close()
		if got := w.versionAsked(scenario.Left); got != prototype.Previous {
			t.Errorf("where nobody rolled back, %s is %s", scenario.Left, got)
		}
		leave(1)(w)
		time.Sleep(time.Hour)
		for to, want := range map[string]string{
			scenario.Oldest: version(w, 2).Name(), scenario.Newest: version(w, 0).Name(), scenario.Left: version(w, 1).Name(), "1999.01.01": "1999.01.01",
		} {
			if got := w.versionAsked(to); got != want {
				t.Errorf("%s is %s, want %s", to, got, want)
			}
		}
	})
}
