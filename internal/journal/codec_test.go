package journal_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/journal"
	"github.com/ortet/ortet/internal/journal/journaltest"
)

const pool = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachineScaleSets/pool1"

func TestDecodeRefuses(t *testing.T) {
	good, err := journal.Encode(journaltest.Sample(pool))
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name string
		data string
		pool string
		want fleet.Kind
	}{
		{"nothing", "", pool, fleet.KindInvalid},
		{"not JSON", "kind: capture", pool, fleet.KindInvalid},
		{"no schema", `{"pool":"` + pool + `","capture":"c"}`, pool, fleet.KindInvalid},
		{"newer schema", strings.Replace(string(good), `"schema":1`, `"schema":2`, 1), pool, fleet.KindUnsupported},
		{"newer schema with new fields", `{"schema":2,"steps":[]}`, pool, fleet.KindUnsupported},
		{"unknown field", strings.Replace(string(good), `"schema":1`, `"schema":1,"later":true`, 1), pool, fleet.KindInvalid},
		{"no capture", strings.Replace(string(good), `"20261121-1"`, `""`, 1), pool, fleet.KindInvalid},
		{"trailing data", string(good) + "{}", pool, fleet.KindInvalid},
		{"another pool's", string(good), pool + "2", fleet.KindInvalid},
		{"too large", string(good) + strings.Repeat(" ", journal.MaxSize), pool, fleet.KindInvalid},
	}
	for _, c := range tests {
		t.Run(c.name, func(t *testing.T) {
			_, err := journal.Decode(c.pool, []byte(c.data))
			if !fleet.Is(err, c.want) {
				t.Errorf("got %v (kind %q), want kind %q", err, fleet.KindOf(err), c.want)
			}
		})
	}
	if _, err := journal.Decode(pool, good); err != nil {
		t.Errorf("a good record is refused: %v", err)
	}
}

func TestEncodeRefuses(t *testing.T) {
	for name, change := range map[string]func(*journal.Record){
		"no pool":       func(r *journal.Record) { r.Pool = "" },
		"no capture":    func(r *journal.Record) { r.Capture = "" },
		"newer schema":  func(r *journal.Record) { r.Schema++ },
		"broken detail": func(r *journal.Record) { r.Facts = []byte("{") },
	} {
		r := journaltest.Sample(pool)
		change(&r)
		if _, err := journal.Encode(r); !fleet.Is(err, fleet.KindInvalid) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// FuzzDecode asserts that what is accepted is understood wholly: it encodes to
// a record that reads back the same.
func FuzzDecode(f *testing.F) {
	good, err := journal.Encode(journaltest.Sample(pool))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte(`{"schema":1,"capture":"c","pool":"` + pool + `","request":null,"undo":[{"name":"cordon"}]}`))
	f.Add([]byte(`{"schema":2}`))
	f.Add([]byte(`[]`))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := journal.Decode(pool, data)
		if err != nil {
			if k := fleet.KindOf(err); k != fleet.KindInvalid && k != fleet.KindUnsupported {
				t.Fatalf("kind %q: %v", k, err)
			}
			return
		}
		once, err := journal.Encode(r)
		if err != nil {
			t.Fatalf("what was read cannot be written: %v", err)
		}
		again, err := journal.Decode(pool, once)
		if err != nil {
			t.Fatalf("what was written cannot be read: %v", err)
		}
		twice, err := journal.Encode(again)
		if err != nil || !bytes.Equal(once, twice) {
			t.Fatalf("%s\nbecame\n%s (%v)", once, twice, err)
		}
	})
}
