package assess

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/ortet/ortet/internal/boots/timeline"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/wire"
)

func TestStoredBootsAreChecked(t *testing.T) {
	record := BootRecord{Node: "n", VMID: someVM, Stored: noon}
	good, err := record.Record(wire.BootReport{Version: wire.BootReportVersion, VMID: someVM})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := ReadBoot(good); err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(*fleet.Record){
		"no record":       func(m *fleet.Record) { m.Data = nil },
		"another version": func(m *fleet.Record) { m.Data[KeyBoot] = `{"version":2}` },
		"no report":       func(m *fleet.Record) { m.Binary = nil },
		"half a report":   func(m *fleet.Record) { m.Binary[KeyReport] = m.Binary[KeyReport][:20] },
	} {
		m := fleet.Record{Namespace: "ns", Name: good.Name, Data: maps.Clone(good.Data), Binary: maps.Clone(good.Binary)}
		spoil(&m)
		if _, _, err := ReadBoot(m); err == nil || !strings.Contains(err.Error(), "ns/"+m.Name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	hostile := good
	hostile.Data[KeyBoot] = strings.Replace(hostile.Data[KeyBoot], `"node": "n"`, `"node": "n\u001b[2J"`, 1)
	if got, _, err := ReadBoot(hostile); err != nil || strings.ContainsRune(got.Node, '\x1b') {
		t.Errorf("%q, %v: it cannot be printed", got.Node, errors.Unwrap(err))
	}
	record.Pulls = slices.Repeat([]timeline.Pull{{Image: "i\x1b", DaemonSet: "d\x1b", Took: -5, Bytes: -5}}, MaxPulls+1)
	if hostile, err = record.Record(wire.BootReport{Version: wire.BootReportVersion, VMID: someVM}); err != nil {
		t.Fatal(err)
	}
	got, _, err := ReadBoot(hostile)
	if err != nil || len(got.Pulls) != MaxPulls || got.Pulls[0].Took != 0 || got.Pulls[0].Bytes != 0 || strings.ContainsRune(got.Pulls[0].Image+got.Pulls[0].DaemonSet, '\x1b') {
		t.Errorf("pulls of somebody's record: %+v, %v", got.Pulls, err)
	}
}
