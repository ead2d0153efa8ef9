// Package disk finds the copy of a donor's OS disk that is attached to this
// host as a data disk, and lends its tree, mounted where nothing else sees it.
//
// The copy is a twin of disks that are in use: its file systems, partitions and
// volume groups have the UUIDs of the donor's, and often of the host's own. So
// nothing is looked up by UUID but among the partitions of the one disk at the
// given LUN, nothing is activated, and every mount lies in a mount namespace of
// this process's alone, which ends with the process however it ends.
package disk

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/ortet/ortet/internal/node/tree"
)

// Controller is how the host sees its data disks.
type Controller string

// The controllers. Auto tries both.
const (
	Auto Controller = "auto"
	SCSI Controller = "scsi"
	NVMe Controller = "nvme"
)

// Request names a disk and says what to do with its tree.
type Request struct {
	Host       string // the host's root directory, "/" when not in a container
	LUN        int
	Controller Controller
	Wait       time.Duration // at most this long for the disk to show up; 0 looks once
	ReadOnly   bool          // neither check nor replay nor change anything

	// IsRoot says whether a file system is the root of an operating system.
	IsRoot func(*tree.Tree) (bool, error)
	// Check judges the disk while it is mounted read-only, before the first
	// change, which repairing its file system already is.
	Check func(*tree.Tree) error
	// Work does what the disk was opened for.
	Work func(*tree.Tree) error

	// Unseen is told of a part of the disk that could not be mounted and holds
	// no state: an EFI system partition where the kernel does not know FAT.
	Unseen   func(string)
	Progress func(string)
	Log      *slog.Logger
}

// RefusedError says why a disk is not worked on. Nothing on it was changed.
type RefusedError struct{ Reason string }

func (r *RefusedError) Error() string { return r.Reason }

func refuse(format string, args ...any) error {
	return &RefusedError{Reason: fmt.Sprintf(format, args...)}
}

// With finds the disk, checks it, lends it to Work and gives it back unmounted.
// Errors of Check and Work come back as they are; a disk that is in use, is not
// understood or is unsafe to mount is a *RefusedError. Ending ctx unmounts as well.
func With(ctx context.Context, r Request) error {
	found, err := await(ctx, r)
	if err != nil {
		return err
	}
	if found.dir != "" {
		return withTree(found.dir, func(t *tree.Tree) error {
			if err := r.Check(t); err != nil {
				return err
			}
			return r.Work(t)
		})
	}
	return withDevice(ctx, r, found)
}

// withTree opens a directory as a tree for the time of do.
func withTree(dir string, do func(*tree.Tree) error) (err error) {
	t, err := tree.Open(dir)
	if err != nil {
		return err
	}
	defer func() {
		if cerr := t.Close(); err == nil {
			err = cerr
		}
	}()
	return do(t)
}
