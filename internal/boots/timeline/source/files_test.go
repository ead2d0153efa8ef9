package source

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ortet/ortet/internal/wire"
)

var update = flag.Bool("update", false, "write what the readers say of testdata as what they have to say")

// TestFiles reads each file of testdata without its name telling what it is, and
// compares what is said of it. After a change, -update writes that anew: read the
// difference.
func TestFiles(t *testing.T) {
	files, err := filepath.Glob("testdata/*")
	if err != nil || len(files) < 20 {
		t.Fatalf("%d files of testdata: %v", len(files), err)
	}
	for _, path := range files {
		if info, err := os.Stat(path); err != nil || info.IsDir() {
			continue
		}
		name := filepath.Base(path)
		t.Run(name, func(t *testing.T) {
			got := printed(readFile(t, name, Options{}))
			golden := filepath.Join("testdata", "said", name+".txt")
			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("said:\n%s\nand not:\n%s", got, want)
			}
		})
	}
}

// printed are reports as lines, each time in seconds.
func printed(reports []wire.BootReport) string {
	var b strings.Builder
	for i, r := range reports {
		fmt.Fprintf(&b, "boot %d: id %q node %q vm %q\n", i+1, r.BootID, r.Node, r.VMID)
		for _, s := range r.Sources {
			fmt.Fprintf(&b, "  %s: %s %s\n", s.Name, s.State, s.Detail)
		}
		for _, c := range r.Clocks {
			fmt.Fprintf(&b, "  at %s it was %s\n", at(wire.ClockMonotonic, c.Monotonic), at(wire.ClockWall, c.Wall))
		}
		if r.System != (wire.SystemTimes{}) {
			fmt.Fprintf(&b, "  system: %+v\n", r.System)
		}
		for _, u := range r.Units {
			fmt.Fprintf(&b, "  %s %d %d %d %d grain %d", u.Name, u.Activating, u.Activated, u.Deactivating, u.Deactivated, u.Grain)
			for _, v := range []struct {
				name string
				on   bool
				what any
			}{{"after", len(u.After) > 0, u.After}, {"triggered by", len(u.TriggeredBy) > 0, u.TriggeredBy}, {"result", u.Result != "", u.Result}, {"restarts", u.Restarts > 0, u.Restarts}, {"skipped", u.Skipped, ""}, {"oneshot", u.Oneshot, ""}} {
				if v.on {
					fmt.Fprintf(&b, " %s %v", v.name, v.what)
				}
			}
			b.WriteString("\n")
		}
		for _, s := range r.Spans {
			fmt.Fprintf(&b, "  %s/%s %s – %s grain %d", s.Source, s.Name, at(s.Clock, s.Start), at(s.Clock, s.End), s.Grain)
			for _, v := range []struct {
				name string
				on   bool
				what any
			}{{"open", s.Open, ""}, {"unit", s.Unit != "", s.Unit}, {"parent", s.Parent != "", s.Parent}, {"result", s.Result != "", s.Result}, {"detail", s.Detail != "", s.Detail}} {
				if v.on {
					fmt.Fprintf(&b, " | %s %v", v.name, v.what)
				}
			}
			b.WriteString("\n")
		}
	}
	return b.String()
}

func at(clock wire.ClockKind, m wire.Micros) string {
	if clock == wire.ClockMonotonic {
		return fmt.Sprintf("%.6f", float64(m)/1e6)
	}
	return string(clock) + " " + time.UnixMicro(int64(m)).UTC().Format("2006-01-02T15:04:05.000000")
}
