package bootstrap

import (
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// What wakes us. inotify is used as it is, since fsnotify asks for every write
// too: in /var/log, where AKS's folder is waited for, each line that anybody logs
// would wake the agent.
const (
	nearEvents = unix.IN_CREATE | unix.IN_MOVED_TO | unix.IN_CLOSE_WRITE | unix.IN_DELETE_SELF | unix.IN_MOVE_SELF | unix.IN_ONLYDIR
	farEvents  = unix.IN_CREATE | unix.IN_MOVED_TO | unix.IN_DELETE_SELF | unix.IN_MOVE_SELF | unix.IN_ONLYDIR
)

// watcher pokes when something happens in the folders of files.
type watcher struct {
	file    *os.File
	fd      int
	folders map[string]watch
	done    chan struct{}
}

// watch is one on a folder; the inode tells whether another has its name now.
type watch struct {
	wd   int
	near bool
	info os.FileInfo
}

func newWatcher(poke func()) (*watcher, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("asking the kernel for file notifications: %w", err)
	}
	w := &watcher{file: os.NewFile(uintptr(fd), "inotify"), fd: fd, folders: map[string]watch{}, done: make(chan struct{})}
	go func() {
		defer close(w.done)
		var buf [8 * (unsafe.Sizeof(unix.InotifyEvent{}) + unix.NAME_MAX + 1)]byte
		for {
			if _, err := w.file.Read(buf[:]); err != nil {
				if errors.Is(err, unix.EINTR) {
					continue
				}
				return // closed
			}
			poke() // whatever it was, a queue that overflowed too: look at everything
		}
	}()
	return w, nil
}

// cover watches what has to be watched for the files now, and says whether that
// is other than before: then it has to be looked again, since the watch may be
// later than what it is for.
func (w *watcher) cover(files []string) (changed bool, err error) {
	want := folders(files)
	for dir, old := range w.folders {
		info, err := os.Stat(dir)
		near, wanted := want[dir]
		if wanted && near == old.near && err == nil && os.SameFile(info, old.info) {
			continue
		}
		// An error says that the folder is gone, and the watch with it.
		_, _ = unix.InotifyRmWatch(w.fd, uint32(old.wd))
		delete(w.folders, dir)
	}
	var problems []error
	for dir, near := range want {
		if _, ok := w.folders[dir]; ok {
			continue
		}
		mask := uint32(farEvents)
		if near {
			mask = nearEvents
		}
		info, err := os.Stat(dir)
		if err != nil {
			changed = true // gone since: look again
			continue
		}
		wd, err := unix.InotifyAddWatch(w.fd, dir, mask)
		if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) {
			changed = true
			continue
		}
		if err != nil {
			problems = append(problems, fmt.Errorf("watching %s: %w", dir, err))
			continue
		}
		w.folders[dir] = watch{wd, near, info}
		changed = true
	}
	return changed, errors.Join(problems...)
}

func (w *watcher) close() {
	_ = w.file.Close()
	<-w.done
}
