package bootstrap

import (
	"time"

	"golang.org/x/sys/windows"
)

func systemUptime() time.Duration { return windows.DurationSinceBoot() }

// onWindows says that this node runs it.
const onWindows = true

// errRefused says that nobody listens on a port.
const errRefused = windows.WSAECONNREFUSED
