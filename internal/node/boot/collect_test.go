package boot

import (
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ortet/ortet/internal/wire"
)

const bootID = "3195396e-b632-4ed1-83d4-6b6b83b61422"

// tree makes a node's root with these files, each as old as the map's value says.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	files["proc/sys/kernel/random/boot_id"] = bootID + "\n"
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func state(r wire.BootReport, source string) wire.SourceState {
	for _, s := range r.Sources {
		if s.Name == source {
			return s.State
		}
	}
	return "not told of"
}

func TestAnotherRootsFilesAreRead(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 10, 0, 0, time.UTC)
	root := tree(t, map[string]string{
		"proc/uptime": "600.00 1000.00\n",
		"var/log/cloud-init.log": `2026-11-21 11:00:01,000 - util.py[DEBUG]: Cloud-init v. 22.4.2 running 'init-local' at Sat, 21 Nov 2026 11:00:01 +0000. Up 4.00 seconds.
2026-11-21 11:00:01,100 - handlers.py[DEBUG]: start: init-local: searching for local datasources
2026-11-21 11:00:02,100 - handlers.py[DEBUG]: finish: init-local: SUCCESS: searching for local datasources
2026-11-21 12:00:05,000 - util.py[DEBUG]: Cloud-init v. 22.4.2 running 'init-local' at Sat, 21 Nov 2026 12:00:05 +0000. Up 5.00 seconds.
2026-11-21 12:00:05,100 - handlers.py[DEBUG]: start: init-local: searching for local datasources
2026-11-21 12:00:07,100 - handlers.py[DEBUG]: finish: init-local: SUCCESS: searching for local datasources
`,
		"var/lib/cloud/data/status.json": `{"v1":{"datasource":"DataSourceAzure","stage":null,"init-local":{"errors":[],"start":5.0,"finished":7.5}}}`,
		"var/log/waagent.log":            "\x00\xff not a line of the agent\n",
	})
	old := now.Add(-time.Hour)
	status := filepath.Join(root, "var/lib/cloud/data/status.json")
	if err := os.Chtimes(status, old, old); err != nil {
		t.Fatal(err)
	}
	r := Collect(t.Context(), Options{Root: root}, now, slog.New(slog.DiscardHandler))
	if err := r.Validate(); err != nil {
		t.Fatal(err)
	}
	if r.BootID != bootID || r.Node != "" || !r.At.Equal(now) {
		t.Errorf("boot %q, node %q, at %s", r.BootID, r.Node, r.At)
	}
	for source, want := range map[string]wire.SourceState{
		"systemd": wire.SourceMissing, "journal": wire.SourceMissing, "cloud-init-status": wire.SourceOther,
		"hyperv-kvp": wire.SourceMissing, "kubelet-metrics": wire.SourceMissing,
	} {
		if got := state(r, source); got != want {
			t.Errorf("%s is %s, want %s", source, got, want)
		}
	}
	if !slices.ContainsFunc(r.Spans, func(s wire.BootSpan) bool { return s.Source == "cloud-init" }) {
		t.Errorf("nothing of cloud-init's: %+v", r.Spans)
	}
	began := wire.Micros(now.Add(-11*time.Minute - 2*time.Second).UnixMicro())
	for _, s := range r.Spans {
		if s.Clock == wire.ClockWall && s.Start < began {
			t.Errorf("%s of another boot: %s", s.Name, time.UnixMicro(int64(s.Start)).UTC())
		}
	}
	if text, err := Encode(r); err != nil {
		t.Error(err)
	} else if _, err := wire.ParseBootReport(text); err != nil {
		t.Error(err)
	}
}

func TestTheNewestReportsAreKept(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, "var/lib/ortet/boots")
	at := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	var last string
	for i, id := range []string{"a", "b", "c", "d", "e", "f", "g", "g"} {
		path, err := Keep(root, id, []byte("{}\n"))
		if err != nil {
			t.Fatal(err)
		}
		at = at.Add(time.Minute)
		if err := os.Chtimes(path, at, at); err != nil {
			t.Fatal(i, err)
		}
		last = path
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if got := strings.Join(names, " "); got != "c.json d.json e.json f.json g.json" {
		t.Errorf("kept: %s", got)
	}
	if info, err := os.Stat(last); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info.Mode(), err)
	}
	if path, err := Keep(root, "../../etc/x", []byte("{}\n")); err != nil || filepath.Dir(path) != dir {
		t.Errorf("%s %v", path, err)
	}
}

func TestMetadataIsRead(t *testing.T) {
	for _, c := range []struct{ text, image, vm string }{
		{`{"vmId":"ABC","storageProfile":{"imageReference":{"id":"/subscriptions/s/x/versions/1"}}}`, "/subscriptions/s/x/versions/1", "abc"},
		{`{"storageProfile":{"imageReference":{"publisher":"p","offer":"o","sku":"s","version":"1"}}}`, "p:o:s:1", ""},
		{`{}`, "", ""},
	} {
		if r, err := parseMetadata([]byte(c.text)); err != nil || r.Image != c.image || r.VMID != c.vm {
			t.Errorf("%s: %q %q %v", c.text, r.Image, r.VMID, err)
		}
	}
	if _, err := parseMetadata([]byte("<html>")); err == nil {
		t.Error("HTML was taken for metadata")
	}
}

// large is a report that no annotation holds: text that does not compress.
func large(units, spans int) wire.BootReport {
	r := wire.BootReport{Version: wire.BootReportVersion, BootID: bootID}
	seed := uint32(1)
	word := func() string {
		b := make([]byte, 24)
		for i := range b {
			seed = seed*1664525 + 1013904223
			b[i] = 'a' + byte(seed>>24)%26
		}
		return string(b)
	}
	for range units {
		at := wire.Micros(len(r.Units) * 1000)
		u := wire.BootUnit{Name: word() + ".service", Activating: at + 1, Activated: at + 500}
		for i := max(0, len(r.Units)-20); i < len(r.Units); i++ {
			u.After = append(u.After, r.Units[i].Name)
		}
		r.Units = append(r.Units, u)
	}
	for i := range spans {
		r.Spans = append(r.Spans, wire.BootSpan{Source: "cloud-init", Name: "init-local/" + word(), Parent: "init-local", Clock: wire.ClockMonotonic,
			Start: wire.Micros(i), End: wire.Micros(i + i*1000), Detail: word() + word() + word()})
	}
	return r
}

func TestLargeReportsAreReduced(t *testing.T) {
	for _, c := range []struct{ units, spans int }{{10, 10}, {200, 600}, {400, 4000}, {3000, 5000}} {
		r := large(c.units, c.spans)
		before, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		value, err := encodeReduced(r)
		if err != nil {
			t.Errorf("%d units, %d spans: %v", c.units, c.spans, err)
			continue
		}
		got, err := wire.DecodeBootAnnotation(value)
		if err != nil {
			t.Error(err)
		}
		if after, err := json.Marshal(r); err != nil || string(after) != string(before) {
			t.Error("the report itself was changed")
		}
		reduced := c.units > 10
		if told := state(got, "report") == wire.SourcePartial; told != reduced {
			t.Errorf("%d units: told that it is reduced: %v", c.units, told)
		}
		if len(got.Units) == 0 || !reduced && len(got.Spans) != c.spans {
			t.Errorf("%d of %d units, %d of %d spans are left", len(got.Units), c.units, len(got.Spans), c.spans)
		}
		t.Logf("%d units, %d spans: %d bytes, %d units, %d spans; %+v", c.units, c.spans, len(value), len(got.Units), len(got.Spans), got.Sources)
	}
}
