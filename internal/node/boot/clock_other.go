//go:build !unix

package boot

import "github.com/ortet/ortet/internal/wire"

// readClocks: there is no clock that counts from the kernel's start to be read.
func readClocks() (wire.ClockReading, bool) { return wire.ClockReading{}, false }

// Used is not known here.
func Used() Cost { return Cost{} }
