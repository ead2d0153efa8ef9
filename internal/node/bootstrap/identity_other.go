//go:build !windows

package bootstrap

import "time"

func systemUptime() time.Duration { return 0 }

// firmwareTable is unused here: the kernel shows its parts as files.
func firmwareTable() []byte { return nil }

// onWindows means that this node runs Windows.
const onWindows = false
