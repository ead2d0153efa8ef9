package journal_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/plan"
	"github.com/ortet/ortet/internal/journal"
	"github.com/ortet/ortet/internal/journal/journaltest"
)

const pool = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachineScaleSets/pool1"

func TestRoundTrip(t *testing.T) {
	want := journaltest.Sample(pool)
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
	data, err := journal.Encode(journaltest.Sample(pool))
	if err != nil {
		t.Fatal(err)
	}
	good := string(data)
	for name, c := range map[string]struct {
		data, pool string
		want       fleet.Kind
	}{
		"empty":           {"", pool, fleet.KindInvalid},
		"schema 1":        {`{"schema":1,"ended":{}}`, pool, fleet.KindInvalid},
		"schema 3":        {`{"schema":3,"graph":{}}`, pool, fleet.KindUnsupported},
		"unknown field":   {strings.Replace(good, `{"schema"`, `{"later":1,"schema"`, 1), pool, fleet.KindInvalid},
		"no name":         {strings.Replace(good, `"20261121-103000"`, `""`, 1), pool, fleet.KindInvalid},
		"trailing data":   {good + "{}", pool, fleet.KindInvalid},
		"of another pool": {good, pool + "2", fleet.KindInvalid},
	} {
		if _, err := journal.Decode(c.pool, []byte(c.data)); !fleet.Is(err, c.want) {
			t.Errorf("%s: got %v, want kind %s", name, err, c.want)
		}
	}
	big := journaltest.Sample(pool)
	big.State = json.RawMessage(`"` + strings.Repeat("x", journal.MaxSize) + `"`)
	if _, err := journal.Encode(big); !fleet.Is(err, fleet.KindInvalid) {
		t.Errorf("a record over the limit: %v", err)
	}
}

func TestMemory(t *testing.T) {
	var store journaltest.Memory
	journaltest.Run(t, journaltest.Setup{
		Open: func(*testing.T) journal.Store { return &store },
		Put:  func(_ *testing.T, pool string, data []byte) { store.Put(pool, data) },
	})
}

// An ended record of schema 1 gives what the next one inherits.
func TestSchema1(t *testing.T) {
	sum := sha256.Sum256([]byte(plan.NoopCustomData))
	noop := hex.EncodeToString(sum[:])
	const image = `{"at":"2026-11-01T00:00:00Z","image":{"id":"i"}}`
	for name, c := range map[string]struct{ facts, want string }{
		"nothing known": {`{"writer":"w"}`, `{}`},
		"the model kept its own": {`{"customData":"a","restore":"a","modelChanged":true,"original":` + image + `}`, `{"original":` + image +
			`}`},
		"Ortet replaced it": {`{"customData":"a","restore":"b","modelChanged":true}`, `{"lastCustomData":"a"}`},
		"baked":             {`{"customData":"NOOP","restore":"a","modelChanged":true}`, `{"lastCustomData":"NOOP"}`},
		"baked, original unknown": {`{"customData":"NOOP","modelChanged":true,"original":{"at":"x"}}`,
			`{"lastCustomData":"NOOP","original":{"at":"x"}}`},
		"after a baked one":          {`{"customData":"a","restore":"a","went":"NOOP","modelChanged":true}`, `{"lastCustomData":"a"}`},
		"failed before the model":    {`{"customData":"a","restore":"b"}`, `{}`},
		"failed, after a baked one":  {`{"customData":"a","went":"NOOP"}`, `{"lastCustomData":"NOOP"}`},
		"rollback":                   {`{"customData":"a","modelChanged":true,"return":{"to":"v"}}`, `{"lastCustomData":"a"}`},
		"rollback, customData stays": {`{"modelChanged":true,"return":{"to":"v"}}`, `{}`},
	} {
		t.Run(name, func(t *testing.T) {
			const rest = `"capture":"20261101-1","kind":"capture","pool":"` + pool +
				`","donor":"node1","begun":"2026-11-01T10:00:00Z","request":{},"undo":[]`
			begun := `{"schema":1,` + rest + `,"facts":` + c.facts
			if _, err := journal.Decode(pool, []byte(begun+`}`)); !fleet.Is(err, fleet.KindUnsupported) ||
				!strings.Contains(err.Error(), "run its command again") {
				t.Errorf("open: %v", err)
			}
			at := time.Date(2026, 11, 1, 10, 0, 0, 0, time.UTC)
			got, err := journal.Decode(pool, []byte(strings.ReplaceAll(begun, "NOOP",
				noop)+`,"ended":{"at":"2026-11-01T10:00:00Z","exit":1,"message":"m"}}`))
			want := journal.Record{
				Schema: journal.Schema, Kind: "capture", Name: "20261101-1", Pool: pool, Subject: "node1", Begun: at,
				Ended: &journal.End{At: at, Exit: 1, Message: "m"}, State: json.RawMessage(strings.ReplaceAll(c.want, "NOOP", noop)),
			}
			if err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("got %+v, %v\nwant %+v\nstate %s", got, err, want, got.State)
			}
		})
	}
}
