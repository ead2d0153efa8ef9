package journaltest

import (
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

// A Setup is what Run needs of a store.
type Setup struct {
	// Open gives a store on the same records each time, as another process has it.
	Open func(t *testing.T) journal.Store
	// Put replaces a pool's record by data, as a person may; nil deletes it.
	Put func(t *testing.T, pool string, data []byte)
}

// Run is the contract of journal.Store.
func Run(t *testing.T, setup Setup) {
	t.Helper()
	for name, test := range map[string]func(*testing.T, Setup, string){
		"RoundTrip": roundTrip, "Conflict": conflict, "Race": race, "Size": size, "Schema1": schema1,
	} {
		t.Run(name, func(t *testing.T) {
			pool := "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachineScaleSets/contract-" + name
			_, err := setup.Open(t).Load(t.Context(), pool)
			wantKind(t, err, fleet.KindNotFound, "load of a missing record")
			test(t, setup, pool)
		})
	}
}

// Sample has every field set.
func Sample(pool string) journal.Record {
	at := time.Date(2026, 11, 21, 10, 30, 0, 0, time.UTC)
	return journal.Record{
		Schema: journal.Schema, Kind: "capture", Name: "20261121-103000", Pool: pool, Subject: "node1", Begun: at, Writer: "host/1",
		Request: json.RawMessage(`{"grace":1}`), State: json.RawMessage(`{"zone":"1"}`), Phase: journal.Undo, Why: "step drain: blocked",
		Steps: map[string]journal.Step{"stop": {
			State: journal.Undoing, Begun: at, Failures: 2, Before: json.RawMessage(`true`), Change: "stop instance x",
			Token: "t", Asked: at, Tries: 1, Error: "no",
		}},
		Ended: &journal.End{At: at, Exit: 1, Message: "drain"},
	}
}

func wantKind(t *testing.T, err error, kind fleet.Kind, what string) {
	t.Helper()
	if !fleet.Is(err, kind) {
		t.Errorf("%s: got %v, want kind %q", what, err, kind)
	}
}

func save(t *testing.T, s Setup, r journal.Record) journal.Record {
	t.Helper()
	saved, err := s.Open(t).Save(t.Context(), r)
	if err != nil || saved.Revision == "" || saved.Revision == r.Revision {
		t.Fatalf("save: revision %q after %q, %v", saved.Revision, r.Revision, err)
	}
	return saved
}

// stored checks what is stored.
func stored(t *testing.T, s Setup, want journal.Record) {
	t.Helper()
	got, err := s.Open(t).Load(t.Context(), strings.ToUpper(want.Pool))
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("loaded %+v, %v\nwant %+v", got, err, want)
	}
}

func roundTrip(t *testing.T, s Setup, pool string) {
	first := save(t, s, Sample(pool))
	stored(t, s, first)
	first.Subject = "node2"
	second := save(t, s, first)
	second.Steps["stop"] = journal.Step{} // must not change what is stored
	second.Steps = Sample(pool).Steps
	stored(t, s, second)
}

func conflict(t *testing.T, s Setup, pool string) {
	first := save(t, s, Sample(pool))
	changed := first
	changed.Subject = "node2"
	second := save(t, s, changed)
	refused := func(what string, r journal.Record) {
		t.Helper()
		r.Subject = "other"
		_, err := s.Open(t).Save(t.Context(), r)
		wantKind(t, err, fleet.KindConflict, what)
	}
	refused("save of an old revision", first)
	refused("create of a record that exists", Sample(pool))
	stored(t, s, second)
	s.Put(t, pool, nil)
	refused("save of a deleted record", second)
	save(t, s, Sample(pool))
}

func race(t *testing.T, s Setup, pool string) {
	first := save(t, s, Sample(pool))
	won := make(chan journal.Record, 8)
	var group sync.WaitGroup
	for i := range cap(won) {
		r, store := first, s.Open(t)
		r.Subject = fmt.Sprintf("writer-%d", i)
		group.Go(func() {
			saved, err := store.Save(t.Context(), r)
			if err == nil {
				won <- saved
				return
			}
			wantKind(t, err, fleet.KindConflict, r.Subject)
		})
	}
	group.Wait()
	if len(won) != 1 {
		t.Fatalf("%d writers won", len(won))
	}
	stored(t, s, <-won)
}

func size(t *testing.T, s Setup, pool string) {
	r := Sample(pool)
	r.State = json.RawMessage(`"` + strings.Repeat("x", journal.MaxSize-4096) + `"`)
	r = save(t, s, r)
	stored(t, s, r)
	r.State = json.RawMessage(`"` + strings.Repeat("x", journal.MaxSize) + `"`)
	_, err := s.Open(t).Save(t.Context(), r)
	wantKind(t, err, fleet.KindInvalid, "save of a record over the limit")
}

func schema1(t *testing.T, s Setup, pool string) {
	s.Put(t, pool, []byte(`{"schema":1,"capture":"20261101-1","kind":"capture","pool":"`+pool+`","donor":"node1","ended":{"exit":0}}`))
	r, err := s.Open(t).Load(t.Context(), pool)
	if err != nil || r.Open() || r.Name != "20261101-1" {
		t.Fatalf("loaded %+v, %v", r, err)
	}
	stored(t, s, save(t, s, r))
}
