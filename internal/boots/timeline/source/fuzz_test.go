package source

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/ortet/ortet/internal/wire"
)

// fuzz checks of a reader that whatever it is given, what it says can be merged
// to a valid report of bounded size, whole and within a window.
func fuzz(f *testing.F, read func(io.Reader, Options) []wire.BootReport, seeds ...string) {
	for _, pattern := range seeds {
		files, err := filepath.Glob("testdata/" + pattern)
		if err != nil || len(files) == 0 {
			f.Fatalf("no seeds %s: %v", pattern, err)
		}
		for _, name := range files {
			text, err := os.ReadFile(name) // #nosec G304 -- of testdata
			if err != nil {
				continue // a folder
			}
			f.Add(text)
			f.Add(text[len(text)/3:])
		}
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		for _, o := range []Options{
			{},
			{BootID: "4f1c8a52-b7e9-4d0e-9c33-a1d2e5f60718", Since: time.Unix(1731432213, 0), Until: time.Unix(1731433213, 0)},
			{Bytes: int64(len(text) / 2)},
		} {
			reports := read(bytes.NewReader(text), o)
			if len(reports) == 0 || len(reports) > 4*maxBoots {
				t.Fatalf("%d reports", len(reports))
			}
			for _, r := range reports {
				if len(r.Sources) == 0 {
					t.Fatal("a report that does not say where it is from")
				}
				valid(t, Merge(r))
			}
			for _, r := range Join(reports...) {
				valid(t, r)
			}
		}
	})
}

func valid(t *testing.T, r wire.BootReport) {
	t.Helper()
	if err := r.Validate(); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := wire.ParseBootReport(text); err != nil {
		t.Fatal(err)
	}
}

func FuzzRead(f *testing.F) {
	fuzz(f, func(r io.Reader, o Options) []wire.BootReport {
		reports, err := Read("file", r, o)
		if err != nil {
			return []wire.BootReport{newBoot().done(wire.BootSource{Name: "none", State: wire.SourceMissing, Detail: detail(err.Error())})}
		}
		return reports
	}, "*")
}

func FuzzCriticalChains(f *testing.F)  { fuzz(f, CriticalChains, "*.md") }
func FuzzJournal(f *testing.F)         { fuzz(f, Journal, "journal*") }
func FuzzCloudInitLog(f *testing.F)    { fuzz(f, CloudInitLog, "cloud-init*.log") }
func FuzzCloudInitStatus(f *testing.F) { fuzz(f, CloudInitStatus, "status*") }
func FuzzCloudInitResult(f *testing.F) { fuzz(f, CloudInitResult, "result*") }
func FuzzCloudInitEvents(f *testing.F) { fuzz(f, CloudInitEvents, "analyze*") }
func FuzzAgentLog(f *testing.F)        { fuzz(f, AgentLog, "waagent*") }
func FuzzCSELog(f *testing.F)          { fuzz(f, CSELog, "handler*") }
func FuzzAKSEvents(f *testing.F)       { fuzz(f, AKSEvents, "aks*") }
func FuzzAKSProvision(f *testing.F)    { fuzz(f, AKSProvision, "provision*") }
func FuzzKVP(f *testing.F)             { fuzz(f, KVP, "kvp*") }
func FuzzKubeletMetrics(f *testing.F)  { fuzz(f, KubeletMetrics, "metrics*") }
func FuzzContainerdLog(f *testing.F)   { fuzz(f, ContainerdLog, "containerd*") }
func FuzzSystemctlShow(f *testing.F)   { fuzz(f, SystemctlShow, "show*") }
func FuzzDump(f *testing.F)            { fuzz(f, Dump, "dump*") }
func FuzzPlot(f *testing.F)            { fuzz(f, Plot, "plot*") }
func FuzzTimes(f *testing.F)           { fuzz(f, Times, "time*") }
func FuzzBlame(f *testing.F)           { fuzz(f, Blame, "blame*") }

// FuzzMerge feeds Merge and Join reports that were not validated.
func FuzzMerge(f *testing.F) {
	f.Add([]byte(`[{"version":1,"bootId":"a","units":[{"name":"a.service","activatingUsec":-1,"after":["b.service","b.service"]},{"name":"a.service"}],"spans":[{"source":"","name":"x","clock":"moon","startUsec":5,"endUsec":1}],"clocks":[{"monotonicUsec":5},{"monotonicUsec":1}],"system":{"relative":true,"userspaceUsec":7}},{"units":[{"name":"a.service","activatingUsec":9223372036854775807}],"system":{}}]`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var reports []wire.BootReport
		if json.Unmarshal(text, &reports) != nil {
			return
		}
		valid(t, Merge(reports...))
		for _, r := range Join(reports...) {
			valid(t, r)
		}
	})
}
