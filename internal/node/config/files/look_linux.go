package files

import (
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// look describes what lies at a name of a folder, and reads a link. Both are of one and
// the same, which is neither followed nor opened: a FIFO does not block.
func look(folder *os.Root, name string) (info fs.FileInfo, target string, err error) {
	f, err := folder.OpenFile(name, unix.O_PATH, 0)
	if err != nil {
		return nil, "", err
	}
	defer func() { _ = f.Close() }() // only looked at
	if info, err = f.Stat(); err != nil || info.Mode().Type() != fs.ModeSymlink {
		return info, "", err
	}
	text := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(int(f.Fd()), "", text)
	if err != nil {
		return nil, "", &fs.PathError{Op: "readlink", Path: name, Err: err}
	}
	return info, string(text[:n]), nil
}
