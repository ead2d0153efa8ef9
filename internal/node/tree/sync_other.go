//go:build !linux

package tree

import (
	"io/fs"
	"os"
)

// Sync writes out nothing where files are synced one by one.
func (t *Tree) Sync() error { return nil }

// SyncAt is Sync of the file system that a directory lies on.
func (t *Tree) SyncAt(string) error { return nil }

func (t *Tree) syncs(fs.FileInfo) bool { return false }

// SyncDirIn does nothing: elsewhere a directory cannot be written out.
func SyncDirIn(*os.Root, string) error { return nil }
