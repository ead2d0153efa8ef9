//go:build !linux

package disk

import (
	"context"
	"io/fs"
	"runtime"
)

func withDevice(context.Context, Request, location) error {
	return refuse("disks are mounted on Linux only; this is %s", runtime.GOOS)
}

func deviceNumber(fs.FileInfo) uint64 { return 0 }
