package main

import (
	"flag"
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"
)

var (
	bin  = flag.String("bin", "../bin", "folder with the binaries")
	disk = flag.Int("disk", 1, "GB of disk that are scanned")
)

// report prints the lines that the command bench reads, and the figures as metrics for benchstat.
func report(b *testing.B, name string, figures ...figure) {
	b.Helper()
	fmt.Println()
	for _, f := range figures {
		fmt.Print(f.line(name))
		b.ReportMetric(f.value, f.name)
	}
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

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func TestSelection(t *testing.T) {
	if all := selected(""); len(all) < 2 || slices.Contains(all, "clone-boot") {
		t.Errorf("without a name %q run, want all but clone-boot, which needs root and half an hour", all)
	}
	for only, want := range map[string][]string{"clone-boot": {"clone-boot"}, "scan": {"scan"}, "none": nil} {
		if got := selected(only); !slices.Equal(got, want) {
			t.Errorf("-only %s runs %q, want %q", only, got, want)
		}
	}
}

// Spreads stand beside the unit.
func TestFigureLineOfASpread(t *testing.T) {
	m := figureLine.FindStringSubmatch("clone-boot/tuned-over-floor\t1.62\tx (spread 0.3)\t1.5\tover\n")
	if m == nil || m[1] != "tuned-over-floor" || m[2] != "1.62" || m[3] != "x (spread 0.3)" || m[5] != "1.5" {
		t.Errorf("the line is read as %q", m)
	}
}
