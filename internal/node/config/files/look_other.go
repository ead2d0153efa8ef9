//go:build !linux

package files

import (
	"io/fs"
	"os"
)

// look describes what lies at a name of a folder, and reads a link.
func look(folder *os.Root, name string) (info fs.FileInfo, target string, err error) {
	info, err = folder.Lstat(name)
	if err == nil && info.Mode().Type() == fs.ModeSymlink {
		target, err = folder.Readlink(name)
	}
	return info, target, err
}
