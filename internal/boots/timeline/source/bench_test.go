package source

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/ortet/ortet/internal/wire"
)

// repeated is a file of testdata over and over, to some megabytes.
func repeated(b *testing.B, name string) []byte {
	b.Helper()
	text, err := os.ReadFile("testdata/" + name) // #nosec G304 -- of testdata
	if err != nil {
		b.Fatal(err)
	}
	return bytes.Repeat(text, (4<<20)/len(text)+1)
}

func BenchmarkJournalExport(b *testing.B) { benchmark(b, repeated(b, "journal.export")) }
func BenchmarkJournalJSON(b *testing.B) {
	text := repeated(b, "journal.json")
	benchmark(b, bytes.ReplaceAll(text, []byte(`{"__REALTIME_TIMESTAMP":"17314322`), nil))
}
func BenchmarkCloudInitLog(b *testing.B) { benchmark(b, repeated(b, "cloud-init.log")) }
func BenchmarkAgentLog(b *testing.B)     { benchmark(b, repeated(b, "waagent.log")) }

func BenchmarkShow(b *testing.B) {
	text, err := os.ReadFile("testdata/show.txt")
	if err != nil {
		b.Fatal(err)
	}
	var s strings.Builder
	for i := range 400 {
		s.WriteString(strings.NewReplacer("kubelet.service", fmt.Sprintf("unit-%d.service", i), "cloud-init-local.service", fmt.Sprintf("other-%d.service", i)).Replace(string(text)))
		s.WriteString("\n")
	}
	benchmark(b, []byte(s.String()))
}

func benchmark(b *testing.B, text []byte) {
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Read("x", bytes.NewReader(text), Options{}); err != nil {
			b.Fatal(err)
		}
	}
}

// A report of 400 units, as it is stored.
func BenchmarkReport(b *testing.B) {
	var r wire.BootReport
	r.Version = wire.BootReportVersion
	for i := range 400 {
		u := wire.BootUnit{Name: fmt.Sprintf("unit-%d.service", i), Activating: wire.Micros(i * 1000), Activated: wire.Micros(i*1000 + 500)}
		for k := range min(i, 12) {
			u.After = append(u.After, fmt.Sprintf("unit-%d.service", k))
		}
		r.Units = append(r.Units, u)
	}
	for i := range 150 {
		r.Spans = append(r.Spans, wire.BootSpan{Source: "cloud-init", Name: fmt.Sprintf("modules-config/config-%d", i), Clock: wire.ClockWall, Start: 1731432213412356, End: 1731432214412356, Detail: "ran successfully"})
	}
	text, err := json.Marshal(r)
	if err != nil {
		b.Fatal(err)
	}
	benchmark(b, text)
}
