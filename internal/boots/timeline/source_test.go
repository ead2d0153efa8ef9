package timeline_test

import (
	"fmt"
	"math/rand"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ortet/ortet/internal/boots/timeline"
	"github.com/ortet/ortet/internal/boots/timeline/source"
	"github.com/ortet/ortet/internal/wire"
)

const sources = "source/testdata"

// Source 4's document as it is, prose and all: its waits, its gap and its
// conclusion come out.
func TestSourceFour(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(sources, "vm-lifecycle.md"))
	if err != nil {
		t.Fatal(err)
	}
	var waits []wire.Micros
	var idle wire.Micros
	var kubelet string
	for _, r := range source.CriticalChains(strings.NewReader(string(text)), source.Options{}) {
		got := timeline.Build(r, timeline.Cloud{})
		idle = max(idle, got.Idle)
		for _, s := range got.Path {
			if s.Wait != nil && s.Wait.Hidden && s.End-s.Start > 1000000 {
				waits = append(waits, s.End-s.Start)
			}
		}
		for _, a := range got.Advice {
			if a.Unit == "kubelet.service" && strings.Contains(a.What, "cloud-final.service (11.703s)") && strings.Contains(a.What, "cloud-config.service (2.499s)") {
				kubelet = a.What
				if a.Saves != 14504000 {
					t.Errorf("the kubelet saves %d", a.Saves)
				}
				if a.Uncertainty != 273000 { // the waits between: nothing tells that it would have none
					t.Errorf("the kubelet's saving may be off by %d", a.Uncertainty)
				}
			}
		}
	}
	if len(waits) != 2 || waits[0] != 1040000 || waits[1] != 2286000 {
		t.Errorf("the waits are %v", waits)
	}
	if idle != 1000410000 {
		t.Errorf("the machine waited %d", idle)
	}
	if kubelet == "" {
		t.Error("no advice about the kubelet")
	}
}

// Where no unit waited, and each had ended before the next began, the critical
// path is the critical chain.
func TestChainsAreEqual(t *testing.T) {
	units := []wire.BootUnit{
		{Name: "a.slice", Activating: 2000000, Activated: 2000000},
		{Name: "b.service", Activating: 2000000, Activated: 3000000, After: []string{"a.slice"}},
		{Name: "c.service", Activating: 2000000, Activated: 2500000, After: []string{"a.slice"}},
		{Name: "d.target", Activating: 3000000, Activated: 3000000, After: []string{"c.service", "b.service", "never.service"}},
		{Name: "e.service", Activating: 3000000, Activated: 4500000, After: []string{"d.target", "a.slice"}},
	}
	r := wire.BootReport{Version: wire.BootReportVersion, Units: units, System: wire.SystemTimes{Userspace: 1500000, UnitsLoadStart: 1600000, UnitsLoadFinish: 2000000, Finish: 4500000}}
	var path []string
	for _, s := range timeline.Build(r, timeline.Cloud{}).Path {
		if s.Wait != nil {
			t.Errorf("%+v", s)
		}
		if name, ok := strings.CutPrefix(s.Span, "unit/"); ok {
			path = append([]string{name}, path...)
		}
	}
	chain := lastOfAll(r, "e.service")
	if strings.Join(path, " ") != strings.Join(chain, " ") || len(chain) != 4 {
		t.Errorf("the path is %v, the chain %v", path, chain)
	}
}

// lastOfAll leads from a unit to what it is ordered after and was active last, and
// so on, as systemd-analyze critical-chain does.
func lastOfAll(r wire.BootReport, unit string) (chain []string) {
	units := map[string]wire.BootUnit{}
	for _, u := range r.Units {
		units[u.Name] = u
	}
	for unit != "" {
		chain = append(chain, unit)
		last := ""
		for _, name := range units[unit].After {
			if last == "" || units[name].Activated > units[last].Activated {
				last = name
			}
		}
		unit = last
	}
	return chain
}

// The same of any graph of units.
func TestRandomChainsAreEqual(t *testing.T) {
	for seed := range int64(300) {
		rnd := rand.New(rand.NewSource(seed))
		const first = 2000000
		r := wire.BootReport{Version: wire.BootReportVersion, System: wire.SystemTimes{Userspace: 1500000, UnitsLoadStart: 1600000, UnitsLoadFinish: first}}
		n := 2 + rnd.Intn(60)
		for i := range n {
			u := wire.BootUnit{Name: fmt.Sprintf("u%d.service", i), Activating: first}
			for range min(i, 1+rnd.Intn(4)) {
				d := r.Units[rnd.Intn(i)]
				if slices.Contains(u.After, d.Name) {
					continue
				}
				u.After = append(u.After, d.Name)
				u.Activating = max(u.Activating, d.Activated)
			}
			// No two end at once, or both would be in the chain.
			u.Activated = u.Activating + wire.Micros(rnd.Intn(1000))*100 + wire.Micros(i+1)
			r.Units = append(r.Units, u)
			r.System.Finish = max(r.System.Finish, u.Activated)
		}
		var path []string
		for _, s := range timeline.Build(r, timeline.Cloud{}).Path {
			if s.Wait != nil {
				t.Fatalf("seed %d: %+v", seed, s.Wait)
			}
			if name, ok := strings.CutPrefix(s.Span, "unit/"); ok {
				path = append([]string{name}, path...)
			}
		}
		chain := lastOfAll(r, path[0])
		if strings.Join(path, " ") != strings.Join(chain, " ") {
			t.Fatalf("seed %d: the path is %v, the chain %v", seed, path, chain)
		}
	}
}

// Whatever package source reads gives a whole timeline.
func TestSources(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(sources, "*"))
	if err != nil || len(files) < 10 {
		t.Fatalf("%d files: %v", len(files), err)
	}
	var all []wire.BootReport
	for _, name := range files {
		if info, err := os.Stat(name); err != nil || info.IsDir() {
			continue
		}
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		reports, err := source.Read(name, f, source.Options{})
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		if err != nil {
			t.Logf("%s: %v", name, err)
			continue
		}
		all = append(all, reports...)
		for _, r := range reports {
			tiled(t, name, timeline.Build(r, timeline.Cloud{}))
		}
	}
	for _, r := range source.Join(all...) {
		got := timeline.Build(r, timeline.Cloud{})
		tiled(t, "joined", got)
		t.Logf("from %s to %s: %s, idle %s", got.OriginIs, got.EndIs, got.Total(), got.Idle.Duration())
		for _, s := range got.Path {
			t.Logf("  %9d %9d %s %s %s %+v", s.Start, s.End-s.Start, s.Class, s.Stage, s.Name, s.Wait)
		}
		for _, m := range got.Missing {
			t.Logf("  missing: %s", m)
		}
	}
}

func tiled(t *testing.T, name string, got timeline.Timeline) {
	t.Helper()
	at := got.Origin
	for _, s := range got.Path {
		if s.Start != at {
			t.Fatalf("%s: a gap or an overlap at %d", name, at)
		}
		at = s.End
	}
	if at != got.End {
		t.Fatalf("%s: the path ends at %d of %d", name, at, got.End)
	}
}
