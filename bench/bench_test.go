package main

import (
	"flag"
	"fmt"
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
