//go:build !windows

package bootstrap

import "time"

func systemUptime() time.Duration { return 0 }

// onWindows says that this node runs it.
const onWindows = false
