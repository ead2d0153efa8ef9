package timeline

import (
	"encoding/json"
	"fmt"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/ortet/ortet/internal/wire"
)

const (
	analysedBoots = 1000
	analysedUnits = 400
	analysedOver  = time.Second // docs/reference/boot.md promises it, on one core
	analysedGrows = 256 << 10   // bytes, of nine times as many boots: what is above is kept of each
)

// BenchmarkAnalysis is what it costs to make the critical paths of many boots, and to
// keep their figures: on one core, by CPU time, since machines are shared. The
// parsing of the reports is measured apart. The command bench reads the lines.
func BenchmarkAnalysis(b *testing.B) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	var texts [20][]byte
	for seed := range texts {
		var err error
		if texts[seed], err = json.Marshal(Sample(int64(seed), analysedUnits)); err != nil {
			b.Fatal(err)
		}
	}
	var reports [len(texts)]wire.BootReport
	for b.Loop() {
		parsing := work(b, func(i int) {
			var err error
			if reports[i%len(texts)], err = wire.ParseBootReport(texts[i%len(texts)]); err != nil {
				b.Fatal(err)
			}
		})
		var stats, whole Stats
		add := func(i int) { stats.AddReport(reports[i%len(reports)], Cloud{}) }
		streaming := work(b, add)
		kept := reachable()
		for i := range 9 * analysedBoots {
			add(i)
		}
		grown := reachable() - kept
		if stats.Boots != 10*analysedBoots {
			b.Fatalf("of %d boots %d were counted", 10*analysedBoots, stats.Boots)
		}
		building := work(b, func(i int) { whole.addBuilt(Build(reports[i%len(reports)], Cloud{})) })
		for _, f := range []struct {
			name  string
			value float64
			unit  string
			bound any
		}{
			{"seconds", streaming.cpu.Seconds(), "s", analysedOver.Seconds()},
			{"bytes-per-boot", streaming.bytes / analysedBoots, "B/op", "-"},
			{"allocations-per-boot", streaming.allocations / analysedBoots, "allocs/op", "-"},
			{"memory-growth", float64(max(grown, 0)), "B", analysedGrows},
			{"with-advice-seconds", building.cpu.Seconds(), "s", "-"},
			{"with-advice-bytes-per-boot", building.bytes / analysedBoots, "B/op", "-"},
			{"with-advice-allocations-per-boot", building.allocations / analysedBoots, "allocs/op", "-"},
			{"parsing-seconds", parsing.cpu.Seconds(), "s", "-"},
			{"report-bytes", float64(len(texts[0])), "B", "-"},
		} {
			fmt.Printf("\nboot-analysis/%s\t%.6g\t%s\t%v\t-", f.name, f.value, f.unit, f.bound)
			b.ReportMetric(f.value, f.name)
		}
		fmt.Println()
	}
	runtime.KeepAlive(reports)
}

// cost is what some work took of this process.
type cost struct {
	cpu                time.Duration
	bytes, allocations float64
}

// work does something for analysedBoots.
func work(b *testing.B, do func(i int)) cost {
	b.Helper()
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	start := processCPU(b)
	for i := range analysedBoots {
		do(i)
	}
	took := processCPU(b) - start
	runtime.ReadMemStats(&after)
	return cost{took, float64(after.TotalAlloc - before.TotalAlloc), float64(after.Mallocs - before.Mallocs)}
}

// reachable are the bytes of the heap that are in use.
func reachable() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(min(m.HeapAlloc, 1<<62))
}

// processCPU is the CPU time of this process, its garbage collector's with it.
func processCPU(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// addBuilt adds a boot that was built whole, with its advice.
func (s *Stats) addBuilt(t Timeline) { s.add(t.Path, t.End-t.Origin, t.Idle, t.Complete) }
