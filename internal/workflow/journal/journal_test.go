package journal_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/workflow/journal"
	"github.com/ortet/ortet/internal/workflow/journal/journaltest"
)

const pool = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachineScaleSets/pool1"

// sample has every field set.
func sample() journal.Record {
	at := time.Date(2026, 11, 21, 10, 30, 0, 0, time.UTC)
	return journal.Record{
		Schema: journal.Schema, Kind: "capture", Name: "20261121-103000", Pool: pool, Subject: "node1", Begun: at, Writer: "host/1",
		Request: json.RawMessage(`{"grace":1}`), State: json.RawMessage(`{"zone":"1"}`), Phase: journal.Undo, Why: "step drain: blocked",
		Redo: []string{"attach"}, Redos: 1,
		Steps: map[string]journal.Step{"stop": {
			State: journal.Undoing, Begun: at, Failures: 2, Due: at, Before: json.RawMessage(`true`), Change: "stop instance x",
			Token: "t", Asked: at, Tries: 1, Recheck: true, Error: "no",
		}},
		Ended: &journal.End{At: at, Exit: 1, Message: "drain"},
	}
}

func TestRoundTrip(t *testing.T) {
	want := sample()
	data, err := journal.Encode(want)
	if err != nil {
		t.Fatal(err)
	}
	got, err := journal.Decode(strings.ToUpper(pool), data)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Fatalf("got %+v, %v\nwant %+v", got, err, want)
	}
}

func TestDecodeRefuses(t *testing.T) {
	data, err := journal.Encode(sample())
	if err != nil {
		t.Fatal(err)
	}
	good := string(data)
	for name, c := range map[string]struct {
		data, pool string
		want       fleet.Kind
	}{
		"empty":           {"", pool, fleet.KindInvalid},
		"schema 1":        {`{"schema":1,"capture":"c","donor":"n"}`, pool, fleet.KindUnsupported},
		"schema 3":        {`{"schema":3,"graph":{}}`, pool, fleet.KindUnsupported},
		"unknown field":   {strings.Replace(good, `{"schema"`, `{"later":1,"schema"`, 1), pool, fleet.KindInvalid},
		"no name":         {strings.Replace(good, `"20261121-103000"`, `""`, 1), pool, fleet.KindInvalid},
		"trailing data":   {good + "{}", pool, fleet.KindInvalid},
		"of another pool": {good, pool + "2", fleet.KindInvalid},
		"too large":       {good + strings.Repeat(" ", journal.MaxSize), pool, fleet.KindInvalid},
	} {
		if _, err := journal.Decode(c.pool, []byte(c.data)); !fleet.Is(err, c.want) {
			t.Errorf("%s: got %v, want kind %s", name, err, c.want)
		}
	}
	big := sample()
	big.State = json.RawMessage(`"` + strings.Repeat("x", journal.MaxSize) + `"`)
	if _, err := journal.Encode(big); !fleet.Is(err, fleet.KindInvalid) {
		t.Errorf("a record over the limit: %v", err)
	}
}

func TestMemory(t *testing.T) {
	var store journaltest.Memory
	if _, err := store.Load(t.Context(), pool); !fleet.Is(err, fleet.KindNotFound) {
		t.Fatal(err)
	}
	first, err := store.Save(t.Context(), sample())
	if err != nil {
		t.Fatal(err)
	}
	second, err := store.Save(t.Context(), first)
	if err != nil || second.Revision == first.Revision {
		t.Fatal(second.Revision, err)
	}
	for name, r := range map[string]journal.Record{"old revision": first, "no revision": sample()} {
		if _, err := store.Save(t.Context(), r); !fleet.Is(err, fleet.KindConflict) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if got, err := store.Load(t.Context(), strings.ToUpper(pool)); err != nil || !reflect.DeepEqual(got, second) {
		t.Errorf("loaded %+v, %v", got, err)
	}
	store.Delete(pool)
	if _, err := store.Save(t.Context(), second); !fleet.Is(err, fleet.KindConflict) {
		t.Errorf("saved over a deleted record: %v", err)
	}
}
