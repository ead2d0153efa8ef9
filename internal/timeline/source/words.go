package source

import (
	"strings"
	"time"

	"github.com/ortet/ortet/internal/wire"
)

// goDuration reads a duration as Go prints it ("1.2s"); 0 where it is none.
func goDuration(s string) wire.Micros {
	if len(s) > 32 {
		return 0
	}
	d, err := time.ParseDuration(strings.TrimSpace(s))
	if err != nil || d < 0 {
		return 0
	}
	return wire.MicrosOf(d)
}
