// Package journaltest is the contract of journal.Store as a suite, which every
// store passes.
package journaltest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/journal"
)

// Run runs the suite. open gives a store on the same records each time, as
// another process would have it; prefix keeps pools of several runs apart.
// remove is the hand of a person who deletes a record.
func Run(t *testing.T, prefix string, open func(t *testing.T) journal.Store, remove func(t *testing.T, pool string)) {
	t.Helper()
	pool := func(name string) string {
		return "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachineScaleSets/" + prefix + name
	}
	tests := []struct {
		name string
		test func(t *testing.T, pool string, open func(t *testing.T) journal.Store)
	}{
		{"absent", absent},
		{"lettercase", letterCase},
		{"stale", stale},
		{"twice", createdTwice},
		{"race", race},
		{"big", big},
		{"schema", otherSchema},
		{"aliasing", aliasing},
		{"ended", ended},
	}
	for _, c := range tests {
		t.Run(c.name, func(t *testing.T) { c.test(t, pool(c.name), open) })
	}
	t.Run("roundtrip", func(t *testing.T) { roundTrip(t, pool("roundtrip"), open, remove) })
	t.Run("deleted", func(t *testing.T) { deletedMeanwhile(t, pool("deleted"), open, remove) })
}

// Sample is a record with every field set.
func Sample(pool string) journal.Record {
	at := time.Date(2026, 11, 21, 10, 30, 0, 123456000, time.UTC)
	return journal.Record{
		Schema: journal.Schema, Capture: "20261121-1", Kind: "capture", Pool: pool, Donor: "pool1000003", Begun: at,
		Request: json.RawMessage(`{"grace":"5m0s"}`),
		Facts:   json.RawMessage(`{"cordoned":false}`),
		Intents: map[string]journal.Intent{
			"stop": {Verb: "stop instance", Target: pool + "/virtualMachines/3", At: at, Tries: 2, Token: "token", Note: json.RawMessage(`{"n":1}`)},
		},
		Undo: []journal.Undo{{Name: "cordon"}, {Name: "annotation/x", What: json.RawMessage(`"before"`)}},
	}
}

func mustSave(t *testing.T, s journal.Store, r journal.Record) journal.Record {
	t.Helper()
	saved, err := s.Save(t.Context(), r)
	if err != nil {
		t.Fatalf("save: %v", err)
	}
	if saved.Revision == "" {
		t.Fatal("a saved record has no revision")
	}
	return saved
}

func mustLoad(t *testing.T, s journal.Store, pool string) journal.Record {
	t.Helper()
	r, err := s.Load(t.Context(), pool)
	if err != nil {
		t.Fatalf("load: %v", err)
	}
	return r
}

func wantKind(t *testing.T, err error, kind fleet.Kind, what string) {
	t.Helper()
	if !fleet.Is(err, kind) {
		t.Fatalf("%s: got %v (kind %q), want kind %q", what, err, fleet.KindOf(err), kind)
	}
}

func absent(t *testing.T, pool string, open func(t *testing.T) journal.Store) {
	s := open(t)
	_, err := s.Load(t.Context(), pool)
	wantKind(t, err, fleet.KindNotFound, "load of what is not there")
}

func roundTrip(t *testing.T, pool string, open func(t *testing.T) journal.Store, remove func(t *testing.T, pool string)) {
	want := Sample(pool)
	saved := mustSave(t, open(t), want)
	got := mustLoad(t, open(t), pool)
	if got.Revision != saved.Revision {
		t.Errorf("loaded revision %q, saved %q", got.Revision, saved.Revision)
	}
	got.Revision = ""
	if !reflect.DeepEqual(got, want) {
		t.Errorf("loaded %+v\nsaved  %+v", got, want)
	}

	saved.Ended = &journal.End{At: saved.Begun.Add(time.Hour), Exit: 1, Message: "a budget blocked the drain"}
	again := mustSave(t, open(t), saved)
	if again.Revision == saved.Revision {
		t.Error("a change did not change the revision")
	}
	if got := mustLoad(t, open(t), pool); !reflect.DeepEqual(got, again) {
		t.Errorf("loaded %+v\nsaved  %+v", got, again)
	}
	remove(t, pool)
	_, err := open(t).Load(t.Context(), pool)
	wantKind(t, err, fleet.KindNotFound, "load after delete")
	mustSave(t, open(t), want)
}

func letterCase(t *testing.T, pool string, open func(t *testing.T) journal.Store) {
	mustSave(t, open(t), Sample(pool))
	if got := mustLoad(t, open(t), strings.ToUpper(pool)); got.Pool != pool {
		t.Errorf("pool is %q, want %q as it was saved", got.Pool, pool)
	}
}

func stale(t *testing.T, pool string, open func(t *testing.T) journal.Store) {
	a := mustSave(t, open(t), Sample(pool))
	b := mustLoad(t, open(t), pool)
	b.Donor = "second"
	b = mustSave(t, open(t), b)
	a.Donor = "first"
	_, err := open(t).Save(t.Context(), a)
	wantKind(t, err, fleet.KindConflict, "save of a record that somebody wrote since")
	if got := mustLoad(t, open(t), pool); got.Donor != "second" || got.Revision != b.Revision {
		t.Errorf("the refused save changed the record: %+v", got)
	}
}

func createdTwice(t *testing.T, pool string, open func(t *testing.T) journal.Store) {
	mustSave(t, open(t), Sample(pool))
	other := Sample(pool)
	other.Donor = "other"
	_, err := open(t).Save(t.Context(), other)
	wantKind(t, err, fleet.KindConflict, "save without a revision over a record")
	if got := mustLoad(t, open(t), pool); got.Donor == "other" {
		t.Error("the refused save won")
	}
}

func deletedMeanwhile(t *testing.T, pool string, open func(t *testing.T) journal.Store, remove func(t *testing.T, pool string)) {
	r := mustSave(t, open(t), Sample(pool))
	remove(t, pool)
	_, err := open(t).Save(t.Context(), r)
	wantKind(t, err, fleet.KindConflict, "save of a record that was deleted since")
	_, err = open(t).Load(t.Context(), pool)
	wantKind(t, err, fleet.KindNotFound, "load after the refused save")
}

// race lets several writers change one revision: exactly one may win.
func race(t *testing.T, pool string, open func(t *testing.T) journal.Store) {
	first := mustSave(t, open(t), Sample(pool))
	const writers = 8
	won := make([]string, writers)
	var group sync.WaitGroup
	for i := range writers {
		store := open(t)
		group.Go(func() {
			r := first
			r.Donor = fmt.Sprintf("writer-%d", i)
			saved, err := store.Save(t.Context(), r)
			switch {
			case err == nil:
				won[i] = saved.Donor
			case !fleet.Is(err, fleet.KindConflict):
				t.Errorf("writer %d: %v", i, err)
			}
		})
	}
	group.Wait()
	winners := strings.Fields(strings.Join(won, " "))
	if len(winners) != 1 {
		t.Fatalf("%d writers won: %v", len(winners), winners)
	}
	if got := mustLoad(t, open(t), pool); got.Donor != winners[0] {
		t.Errorf("the record is %q's, and %q was told that it won", got.Donor, winners[0])
	}
}

func big(t *testing.T, pool string, open func(t *testing.T) journal.Store) {
	r := Sample(pool)
	r.Facts = json.RawMessage(`"` + string(bytes.Repeat([]byte("x"), journal.MaxSize-4096)) + `"`)
	mustSave(t, open(t), r)
	if got := mustLoad(t, open(t), pool); len(got.Facts) != len(r.Facts) {
		t.Errorf("%d bytes of facts came back, of %d", len(got.Facts), len(r.Facts))
	}
	r = mustLoad(t, open(t), pool)
	r.Facts = json.RawMessage(`"` + string(bytes.Repeat([]byte("x"), journal.MaxSize)) + `"`)
	_, err := open(t).Save(t.Context(), r)
	wantKind(t, err, fleet.KindInvalid, "save of too large a record")
}

func otherSchema(t *testing.T, pool string, open func(t *testing.T) journal.Store) {
	r := Sample(pool)
	r.Schema = journal.Schema + 1
	_, err := open(t).Save(t.Context(), r)
	wantKind(t, err, fleet.KindInvalid, "save under a schema that this build does not know")
	r.Schema = 0
	if saved := mustSave(t, open(t), r); saved.Schema != journal.Schema {
		t.Errorf("schema 0 was saved as %d", saved.Schema)
	}
}

func aliasing(t *testing.T, pool string, open func(t *testing.T) journal.Store) {
	r := Sample(pool)
	s := open(t)
	mustSave(t, s, r)
	r.Intents["stop"] = journal.Intent{Verb: "changed after the save"}
	loaded := mustLoad(t, s, pool)
	if got := loaded.Intents["stop"].Verb; got != "stop instance" {
		t.Fatalf("the stored record shares memory with the saved one: %q", got)
	}
	loaded.Intents["stop"] = journal.Intent{Verb: "changed after the load"}
	if got := mustLoad(t, s, pool).Intents["stop"].Verb; got != "stop instance" {
		t.Errorf("the stored record shares memory with the loaded one: %q", got)
	}
}

func ended(t *testing.T, pool string, open func(t *testing.T) journal.Store) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s := open(t)
	if _, err := s.Save(ctx, Sample(pool)); err == nil {
		t.Error("a save after the context's end succeeded")
	}
	_, err := s.Load(t.Context(), pool)
	wantKind(t, err, fleet.KindNotFound, "load after a save that could not be")
}
