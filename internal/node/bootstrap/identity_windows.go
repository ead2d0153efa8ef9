package bootstrap

import (
	"time"
	"unsafe"

	"golang.org/x/sys/windows"
)

func systemUptime() time.Duration { return windows.DurationSinceBoot() }

// firmwareTable is the firmware's SMBIOS table; nil where there is none.
func firmwareTable() []byte {
	const (
		provider = 'R'<<24 | 'S'<<16 | 'M'<<8 | 'B'
		most     = 1 << 20 // bytes; real ones have some KiB
	)
	call := windows.NewLazySystemDLL("kernel32.dll").NewProc("GetSystemFirmwareTable")
	// The result is the size that it needs, 0 where it fails.
	size, _, _ := call.Call(provider, 0, 0, 0)
	if size == 0 || size > most {
		return nil
	}
	table := make([]byte, size)
	n, _, _ := call.Call(provider, 0, uintptr(unsafe.Pointer(&table[0])), size) // #nosec G103 -- the call fills it in
	if n == 0 || n > size {
		return nil
	}
	return table[:n]
}

// onWindows means that this node runs Windows.
const onWindows = true

// errRefused means that no process listens on a port.
const errRefused = windows.WSAECONNREFUSED
