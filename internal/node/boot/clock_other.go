//go:build !unix

package boot

import (
	"time"

	"github.com/ortet/ortet/internal/wire"
)

// readClocks: there is no clock that counts from the kernel's start to be read.
func readClocks() (wire.ClockReading, bool) { return wire.ClockReading{}, false }

// cost is processor time.
type cost struct{ own, children time.Duration }

func used() cost { return cost{} }
