package main

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime"
	"syscall"
	"time"

	"github.com/ortet/ortet/internal/boots/timeline"
	"github.com/ortet/ortet/internal/wire"
)

const (
	analysedBoots = 1000
	analysedUnits = 400
	analysedOver  = time.Second // docs/reference/boot.md promises it, on one core
	analysedGrows = 256 << 10   // bytes, of nine times as many boots: what is above is kept of each
)

// bootAnalysis is what it costs to make the critical paths of many boots, and to
// keep their figures: on one core, by CPU time, since machines are shared. The
// parsing of the reports is told apart.
func bootAnalysis(ctx context.Context, _ options) ([]figure, error) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	var texts [][]byte
	for seed := range int64(20) {
		text, err := json.Marshal(timeline.Sample(seed, analysedUnits))
		if err != nil {
			return nil, fmt.Errorf("writing a report: %w", err)
		}
		texts = append(texts, text)
	}
	reports := make([]wire.BootReport, len(texts))
	var failed error
	parsing := work(func() {
		for i := range analysedBoots {
			r, err := wire.ParseBootReport(texts[i%len(texts)])
			if err != nil {
				failed = err
				return
			}
			reports[i%len(texts)] = r
		}
	})
	if failed != nil {
		return nil, fmt.Errorf("reading a report: %w", failed)
	}
	var stats timeline.Stats
	streaming := work(func() {
		for i := range analysedBoots {
			stats.AddReport(reports[i%len(reports)], timeline.Cloud{})
		}
	})
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	kept := reachable()
	for i := range 9 * analysedBoots {
		stats.AddReport(reports[i%len(reports)], timeline.Cloud{})
	}
	grown := reachable() - kept
	if stats.Boots != 10*analysedBoots {
		return nil, fmt.Errorf("of %d boots %d were counted", 10*analysedBoots, stats.Boots)
	}
	var whole timeline.Stats
	building := work(func() {
		for i := range analysedBoots {
			whole.Add(timeline.Build(reports[i%len(reports)], timeline.Cloud{}))
		}
	})
	runtime.KeepAlive(reports)
	return []figure{
		atMost("seconds", streaming.cpu.Seconds(), "s", analysedOver.Seconds()),
		free("bytes-per-boot", streaming.bytes/analysedBoots, "B/op"),
		free("allocations-per-boot", streaming.allocations/analysedBoots, "allocs/op"),
		atMost("memory-growth", float64(max(grown, 0)), "B", analysedGrows),
		free("with-advice-seconds", building.cpu.Seconds(), "s"),
		free("with-advice-bytes-per-boot", building.bytes/analysedBoots, "B/op"),
		free("with-advice-allocations-per-boot", building.allocations/analysedBoots, "allocs/op"),
		free("parsing-seconds", parsing.cpu.Seconds(), "s"),
		free("report-bytes", float64(len(texts[0])), "B"),
	}, nil
}

// cost is what some work took of this process.
type cost struct {
	cpu                time.Duration
	bytes, allocations float64
}

func work(do func()) cost {
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	start := processCPU()
	do()
	took := processCPU() - start
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
func processCPU() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
