//go:build unix

package boot

import (
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ortet/ortet/internal/wire"
)

// readClocks reads both clocks at one moment.
func readClocks() (wire.ClockReading, bool) {
	var mono, wall unix.Timespec
	if unix.ClockGettime(unix.CLOCK_MONOTONIC, &mono) != nil || unix.ClockGettime(unix.CLOCK_REALTIME, &wall) != nil {
		return wire.ClockReading{}, false
	}
	return wire.ClockReading{Monotonic: wire.Micros(mono.Nano() / 1000), Wall: wire.Micros(wall.Nano() / 1000)}, true
}

// Used is what this process and the children that have ended took so far.
func Used() Cost {
	spent := func(who int) (time.Duration, int64) {
		var u syscall.Rusage
		if syscall.Getrusage(who, &u) != nil {
			return 0, 0
		}
		most := u.Maxrss
		if runtime.GOOS != "darwin" {
			most <<= 10
		}
		return time.Duration(u.Utime.Nano() + u.Stime.Nano()), most
	}
	var c Cost
	c.CPU, c.Peak = spent(syscall.RUSAGE_SELF)
	c.ChildrenCPU, c.ChildrenPeak = spent(syscall.RUSAGE_CHILDREN)
	return c
}
