package engine

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/journal"
)

// TestWritesAreFew: a capture of three quarters of an hour asks the API server and
// the gallery for no more than it needs.
func TestWritesAreFew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		e, _, ctx, _ := w.process(t, "a", 0)
		result, err := e.Capture(ctx, request())
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("in %s: %v", result.Timing.End.Sub(result.Timing.Begin), w.calls)
		for what, most := range map[string]int{"journal": 55, "lease": 195, "version": 75} {
			if n := w.calls[what]; n > most || n == 0 {
				t.Errorf("%d requests for the %s, more than %d", n, what, most)
			}
		}
	})
}

// witness looks, whenever a change is about to begin, what the journal has of it.
type witness struct {
	cloudProc
	t *testing.T
}

func (x witness) Begin(ctx context.Context, c fleet.Change) (fleet.Token, error) {
	rec, err := x.w.journals.Load(ctx, journalKey(poolID))
	if err != nil {
		x.t.Errorf("%s: %v", c.Verb(), err)
	}
	intended := false
	for _, i := range rec.Intents {
		intended = intended || i.Verb == c.Verb() && fleet.ResourceID(i.Target).Equal(c.Target())
	}
	undone := map[string][]string{
		"stop instance": {undoStop}, "create snapshot": {undoSnapshot, undoGeneralized}, "create disk": {undoWorkDisk},
		"attach disk": {undoAttach}, "create image version": {undoVersion}, "patch model": {undoModel}, "protect instance": {undoProtection, undoBench},
	}[c.Verb()]
	if !intended || undone != nil && !hasUndo(&rec, undone...) {
		x.t.Errorf("%s begins, and the journal has the intents %v and undoes %v", c.Verb(), rec.Intents, undos(rec))
	}
	f, err := factsOf(rec)
	if err != nil {
		x.t.Error(err)
	}
	if attach, ok := c.(fleet.AttachDisk); ok && f.Bench.LUN != attach.LUN {
		x.t.Errorf("LUN %d, the journal has %d", attach.LUN, f.Bench.LUN)
	}
	if _, ok := c.(fleet.StartInstance); ok && (!f.Stopped || !f.SnapshotTaken) {
		x.t.Errorf("the donor starts, and the journal has neither its stop nor its snapshot: %+v", f)
	}
	return x.cloudProc.Begin(ctx, c)
}

func undos(rec journal.Record) (names []string) {
	for _, u := range rec.Undo {
		names = append(names, u.Name)
	}
	return names
}

// TestIntentBeforeBegin: whatever begins is in the journal before, with what undoes
// it; and nothing is left there in the end.
func TestIntentBeforeBegin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		_, p, ctx, seen := w.process(t, "a", 0)
		e, err := New(Config{
			Cloud: witness{cloudProc{p}, t}, Cluster: clusterProc{p}, Logger: slog.New(slog.DiscardHandler), Reporter: seen, Version: "test",
			Image: "ortet:test", Namespace: "ortet", Holder: "a", Liveness: func(string) Liveness { return Unknown },
		})
		if err != nil {
			t.Fatal(err)
		}
		q := request()
		q.NewNodes = 1
		if _, err := e.Capture(ctx, q); err != nil {
			t.Fatal(err)
		}
		rec, err := w.journals.Load(ctx, journalKey(poolID))
		if err != nil || rec.Ended == nil || len(rec.Undo) > 0 {
			t.Errorf("%v; ended %v, undoes %v", err, rec.Ended, undos(rec))
		}
	})
}
