package capture_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/ortet/ortet/internal/journal"
	"github.com/ortet/ortet/internal/workflow"
)

// A walk plays a table in a world where a row's effect is there or not. Actions begin
// and end separately, up to three at once, and fail, are canceled, or die with their
// process before or after their effect. It judges the rows that it knows by id.
type walk struct {
	*rand.Rand
	rows func() workflow.Table
	// offersInFlight offers the undo of a step in flight, which breaks the promises.
	offersInFlight bool

	there   map[string]bool
	version bool // a complete version stays
	lost    bool // start failed
	rec     journal.Record
	stored  journal.Record
	table   workflow.Table
	flights []flight
	log     []string
	broken  string
}

// playWalk plays a walk. It gives how that ended, or what was broken.
func playWalk(rows func() workflow.Table, offersInFlight bool, seed uint64) (end string, err error) {
	x := &walk{Rand: rand.New(rand.NewPCG(seed, 1)), rows: rows, offersInFlight: offersInFlight}
	end = x.play()
	if x.broken != "" {
		return "", fmt.Errorf("seed %d: %s\n%v\n%v", seed, x.broken, x.log, x.rec.Steps)
	}
	return end, nil
}

type flight struct {
	workflow.Action
	effect bool
}

func (w *walk) fail(format string, args ...any) {
	if w.broken == "" {
		w.broken = fmt.Sprintf(format, args...)
	}
}

func (w *walk) apply(f *flight) {
	if f.effect {
		return
	}
	f.effect = true
	id := f.Step.ID
	w.log = append(w.log, "  "+f.ID()+" is so")
	switch {
	case f.Undo && id == "version" && w.version:
	case f.Undo:
		delete(w.there, id)
	default:
		w.there[id] = true
		if id == "version" {
			if w.there["stop"] || w.there["cordon"] || w.there["protect"] {
				w.fail("the version is made before the donor is back")
			}
			if !w.there["generalized-snapshot"] {
				w.fail("the version is made of nothing")
			}
			w.version = true
		}
	}
	for _, c := range []struct {
		bad  bool
		what string
	}{
		{w.there["stop"] && !w.there["cordon"], "the donor is stopped and not cordoned"},
		{w.there["stop"] && !w.there["protect"] && !w.lost, "the donor is stopped and not protected"},
		{w.there["attach"] && !w.there["protect-workbench"], "attached to an unprotected workbench"},
		{w.there["attach"] && !w.there["hold-reboots"], "attached without kured's lock"},
		{w.there["attach"] && !w.there["work-disk"], "an attached disk is deleted"},
		{w.version && !w.there["version"], "a complete version is deleted"},
	} {
		if c.bad {
			w.fail("%s", c.what)
		}
	}
}

func (w *walk) inFlight(except func(flight) bool) map[string]bool {
	rows := map[string]bool{}
	for _, f := range w.flights {
		if !except(f) {
			rows[f.Step.ID] = true
		}
	}
	return rows
}

func (w *walk) next() []workflow.Action {
	if !w.offersInFlight {
		return workflow.Next(w.table, w.rec, w.inFlight(func(flight) bool { return false }))
	}
	open := workflow.Next(w.table, w.rec, w.inFlight(func(f flight) bool { return !f.Undo }))
	return slices.DeleteFunc(open, func(a workflow.Action) bool {
		return slices.ContainsFunc(w.flights, func(f flight) bool { return f.Step.ID == a.Step.ID && f.Undo == a.Undo })
	})
}

func (w *walk) begin(a workflow.Action) {
	w.rec = workflow.Started(w.rec, a, time.Time{})
	if !a.Undo || w.IntN(2) == 0 {
		w.stored = w.rec
	}
	w.log = append(w.log, "begin "+a.ID())
	f := flight{Action: a}
	if w.IntN(2) == 0 {
		w.apply(&f)
	}
	w.flights = append(w.flights, f)
}

func (w *walk) end(faults *int) {
	i := w.IntN(len(w.flights))
	f := w.flights[i]
	w.flights = slices.Delete(w.flights, i, i+1)
	var err error
	switch {
	case !f.Undo && w.rec.Phase != journal.Forward:
		err = context.Canceled
	case *faults > 0 && w.IntN(12) == 0:
		*faults--
		err = errors.New("fault")
		if slices.Contains([]string{"attach", "generalize", "save"}, f.ID()) && w.IntN(2) == 0 {
			w.rec = workflow.EndForward(w.rec, journal.Suspend, "again")
		}
	}
	if err == nil || w.IntN(2) == 0 {
		w.apply(&f)
	}
	if f.ID() == "start" {
		w.lost = err != nil
	}
	w.log = append(w.log, fmt.Sprint("end ", f.ID(), " ", err))
	w.rec = workflow.Ended(w.table, w.rec, f.Action, err)
	if w.IntN(2) == 0 {
		w.stored = w.rec
	}
}

// die ends the process: some of what was asked for still happens.
func (w *walk) die() {
	w.log = append(w.log, "die")
	for _, f := range w.flights {
		if w.IntN(2) == 0 {
			w.apply(&f)
		}
	}
	w.flights, w.rec = nil, w.stored
}

// process plays one process and reports whether it came to an end of its own.
func (w *walk) process(faults *int) (over bool) {
	for {
		open := w.next()
		switch {
		case *faults > 0 && w.IntN(60) == 0:
			*faults--
			w.die()
			return false
		case *faults > 0 && w.IntN(60) == 0 && w.rec.Phase == journal.Forward:
			*faults--
			w.log = append(w.log, "interrupt")
			w.rec = workflow.EndForward(w.rec, journal.Suspend, "interrupted")
		case len(open) > 0 && len(w.flights) < 3 && (len(w.flights) == 0 || w.IntN(2) == 0):
			w.begin(open[w.IntN(len(open))])
		case len(w.flights) > 0:
			w.end(faults)
		default:
			return true
		}
		if w.broken != "" {
			return true
		}
	}
}

// play runs processes until one has nothing to go on with, and gives its end.
func (w *walk) play() string {
	w.there = map[string]bool{}
	faults := w.IntN(7)
	w.table = w.skipping()
	w.rec = workflow.Resume(w.table, w.rec)
	w.stored = w.rec
	for n := 0; ; n++ {
		over := w.process(&faults)
		if w.broken != "" {
			return ""
		}
		left := workflow.Remaining(w.table, w.rec)
		if over {
			w.judge(left)
		}
		switch {
		case over && len(left) > 0 && (faults == 0 || n > 5): // a person does not come
			return "left"
		case over && len(left) == 0 && w.rec.Phase == journal.Undo:
			return "undone"
		case over && len(left) == 0 && w.rec.Phase == journal.Forward:
			return "done"
		}
		w.log = append(w.log, "recover")
		w.rec = workflow.Recover(w.rec, journal.Suspend, "interrupted")
		w.stored = w.rec
		if w.process(&faults) && w.rec.Phase == journal.Suspend && len(workflow.Remaining(w.table, w.rec)) == 0 {
			w.log = append(w.log, "resume")
			w.table = w.skipping()
			w.rec = workflow.Resume(w.table, w.rec)
			w.stored = w.rec
		}
	}
}

// judge looks at the end of a process: what is there is meant to stay, or is reported.
func (w *walk) judge(left []workflow.Step) {
	rest := maps.Clone(w.there)
	for _, s := range w.table {
		if s.Undo == nil || s.ID == "version" && w.version || w.rec.Phase == journal.Forward && len(s.Undo.When) == 0 ||
			w.rec.Phase == journal.Suspend && s.Undo.Keep != "" && w.rec.Steps[s.ID].State != journal.Undone ||
			slices.ContainsFunc(left, func(l workflow.Step) bool { return l.ID == s.ID }) {
			delete(rest, s.ID)
		}
	}
	if len(rest) > 0 {
		w.fail("still there and not reported: %v", rest)
	}
	if w.rec.Phase == journal.Forward {
		for _, s := range w.table {
			if st := w.rec.Steps[s.ID].State; (st == journal.Pending || st == journal.Running) || s.ID == "model" && !w.there["model"] {
				w.fail("ended forward, and %s is %q", s.ID, st)
			}
		}
	}
}

// skipping returns the plan of the table: what the world shows is skipped.
func (w *walk) skipping() workflow.Table {
	rows, last := w.rows(), ""
	for _, id := range []string{"snapshot", "generalized-snapshot", "version", "model"} {
		if w.there[id] {
			last = id
		}
	}
	for i := 0; last != ""; i++ {
		if last == "snapshot" && rows[i].ID == "protect-workbench" {
			continue
		}
		rows[i].Skip = "there"
		rows[i].EffectMayExist = rows[i].Undo != nil && rows[i].ID != "version" && w.there[rows[i].ID]
		if rows[i].ID == last {
			break
		}
	}
	return rows
}
