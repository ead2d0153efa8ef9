//go:build unix

package boot

import (
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

// cost is processor time.
type cost struct{ own, children time.Duration }

// used is what this process and the children that have ended took so far.
func used() cost {
	spent := func(who int) time.Duration {
		var u syscall.Rusage
		if syscall.Getrusage(who, &u) != nil {
			return 0
		}
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	return cost{spent(syscall.RUSAGE_SELF), spent(syscall.RUSAGE_CHILDREN)}
}
