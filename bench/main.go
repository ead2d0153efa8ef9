// Command bench measures what docs promise, on this machine, and prints a line
// per figure: name, value, unit, bound (">=" before a lower one), and "ok" or
// "over". It exits with 1 if any figure is over its bound.
//
// Figures are ratios and differences within one run, CPU time, counts and
// bytes, since machines are shared and their clocks' speed is not ours.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"sort"
	"strings"
	"syscall"
	"text/tabwriter"
)

// A figure is one thing measured, with its bound.
type figure struct {
	name  string
	value float64
	unit  string
	limit limit
	bound float64
}

// A limit says what a bound is.
type limit int

const (
	none limit = iota
	upper
	lower
)

func free(name string, value float64, unit string) figure {
	return figure{name: name, value: value, unit: unit}
}

func atMost(name string, value float64, unit string, bound float64) figure {
	return figure{name, value, unit, upper, bound}
}

func atLeast(name string, value float64, unit string, bound float64) figure {
	return figure{name, value, unit, lower, bound}
}

// line is how a figure is printed, with tabs between its columns.
func (f figure) line(of string) string {
	return fmt.Sprintf("%s/%s\t%.6g\t%s\t%s\t%s\n", of, f.name, f.value, f.unit, f.within(), f.verdict())
}

// verdict is "over" for what is beyond its bound, also where that is a lower one.
func (f figure) verdict() string {
	switch {
	case f.limit == none:
		return "-"
	case f.limit == upper && f.value > f.bound, f.limit == lower && f.value < f.bound:
		return "over"
	}
	return "ok"
}

func (f figure) within() string {
	switch f.limit {
	case upper:
		return fmt.Sprintf("%.6g", f.bound)
	case lower:
		return fmt.Sprintf(">=%.6g", f.bound)
	}
	return "-"
}

// options are what a person may choose.
type options struct {
	bin   string  // folder with the binaries
	speed float64 // how many times faster than Azure the simulated one is
	disk  int     // GB that are scanned

	rounds int // boots of each kind in clone-boot
	cores  int // processors of its machines; 0: all
}

type benchmark func(ctx context.Context, o options) ([]figure, error)

// byName runs only if it is named: it needs root, and half an hour.
const byName = "clone-boot"

func benchmarks() map[string]benchmark {
	return map[string]benchmark{
		"capture-overhead":   captureOverhead,
		"capture-memory":     captureMemory,
		"boot-collect":       bootCollect,
		"config":             configuration,
		"bootstrap-verdict":  goBenchmark("BenchmarkBootstrapVerdict", 200),
		"bootstrap-failure":  goBenchmark("BenchmarkBootstrapFailure", 200),
		"admission":          admissionRush,
		"admission-latency":  admissionLatency,
		"eviction-notice":    evictionNotice,
		"agent-size":         agentSize,
		"boot-analysis":      inTests("-run=^$", "-bench=^BenchmarkAnalysis$", "-benchtime=1x", "./internal/boots/timeline"),
		"agent-waiting":      goBenchmark("BenchmarkAgentWaiting", 1),
		"controller-cost":    controllerCost,
		"scan":               goBenchmark("BenchmarkScan", 1),
		"simulated-captures": inTests("-run=^TestPace$", "-cpu=1", "./test/simulate", "-pace=200"),
		"operator-idle":      goBenchmark("BenchmarkOperatorIdle", 1),
		"out-of-service":     outOfService,
		byName:               cloneBoot,
	}
}

func main() {
	only := flag.String("only", "", "name of the one benchmark to run")
	var o options
	flag.StringVar(&o.bin, "bin", "bin", "folder with the binaries, as 'make build' leaves them")
	flag.Float64Var(&o.speed, "speed", 10, "how many times faster than Azure the simulated one is; 1 takes about 20 minutes")
	flag.IntVar(&o.disk, "disk", 1, "GB of disk that are scanned for secrets; 20 are a node's, 424,000 files")
	flag.IntVar(&o.rounds, "rounds", 10, "boots of each kind of machine in clone-boot")
	flag.IntVar(&o.cores, "cores", 0, "processors that clone-boot's machines have together; 0: all of the host")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	if flag.Arg(0) == serveArgument { // begun by admissionSite
		code := serveOrtet(ctx, flag.Args()[1:])
		stop()
		os.Exit(code)
	}
	code := run(ctx, o, *only)
	stop()
	os.Exit(code)
}

// selected are the names of the benchmarks to run, sorted; none if there is no such one.
func selected(only string) (names []string) {
	for name := range benchmarks() {
		if only == name || only == "" && name != byName {
			names = append(names, name)
		}
	}
	sort.Strings(names)
	return names
}

func run(ctx context.Context, o options, only string) int {
	all := benchmarks()
	names := selected(only)
	if len(names) == 0 {
		for name := range all {
			names = append(names, name)
		}
		sort.Strings(names)
		fmt.Fprintf(os.Stderr, "bench: there is no %q; there are %s\n", only, strings.Join(names, ", "))
		return 2
	}
	code := 0
	t := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	for _, name := range names {
		fmt.Fprintf(os.Stderr, "bench: %s\n", name)
		figures, err := all[name](ctx, o)
		if err != nil {
			fmt.Fprintf(os.Stderr, "bench: %s: %v\n", name, err)
			code = 1
			continue
		}
		for _, f := range figures {
			fmt.Fprint(t, f.line(name))
			if f.verdict() == "over" {
				code = 1
			}
		}
		_ = t.Flush()
	}
	return code
}
