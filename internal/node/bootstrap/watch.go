package bootstrap

import (
	"io/fs"
	"os"
	"path/filepath"
)

// busSocket is where the message bus listens.
const busSocket = "/run/dbus/system_bus_socket"

// watchedFiles are those whose coming or changing may decide something.
func watchedFiles(o Options) []string {
	files := []string{
		o.under("/run/cloud-init/status.json"), o.under("/run/cloud-init/result.json"),
		o.under("/var/lib/cloud/data/status.json"), o.under("/var/lib/cloud/data/result.json"),
		o.under(provisionFile), o.under(busSocket),
	}
	if o.Sentinel != NoSentinel {
		files = append(files, o.under(o.Sentinel))
	}
	return files
}

// folders returns which folders have to be watched so that each file's creation is noticed:
// its own, or the nearest existing parent. near means that it is the file's own.
func folders(files []string) map[string]bool {
	watched := map[string]bool{}
	for _, f := range files {
		dir, near := filepath.Dir(f), true
		for !isDir(dir) {
			up := filepath.Dir(dir)
			if up == dir {
				break
			}
			dir, near = up, false
		}
		watched[dir] = watched[dir] || near
	}
	return watched
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// fileKind returns the kind of file at a path; a link is followed within its folder.
func fileKind(path string) (fs.FileMode, bool) {
	dir, err := os.OpenRoot(filepath.Dir(path))
	if err != nil {
		return 0, false
	}
	defer func() { _ = dir.Close() }()
	info, err := dir.Stat(filepath.Base(path))
	if err != nil {
		// A link that leads nowhere, or away, is something that is no file.
		if info, err = dir.Lstat(filepath.Base(path)); err != nil {
			return 0, false
		}
	}
	return info.Mode(), true
}
