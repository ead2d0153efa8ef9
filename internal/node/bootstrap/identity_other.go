//go:build !windows

package bootstrap

import "time"

func systemUptime() time.Duration { return 0 }

// firmwareTable is nobody's here: the kernel shows its parts as files.
func firmwareTable() []byte { return nil }

// onWindows says that this node runs it.
const onWindows = false
