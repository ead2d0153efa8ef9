package bootstrap

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync"

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

	mu sync.Mutex
	// ended are watches that the kernel has ended, or that lead elsewhere now. A folder's
	// inode is no proof: a new folder may get the old one's number.
	ended map[int32]bool
	lost  bool // events were lost: any watch may have ended
}

// watch is one on a folder; a changed inode shows that another has its name now.
type watch struct {
	wd   int32
	near bool
	info os.FileInfo
}

func newWatcher(poke func()) (*watcher, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("asking the kernel for file notifications: %w", err)
	}
	w := &watcher{file: os.NewFile(uintptr(fd), "inotify"), fd: fd, folders: map[string]watch{}, done: make(chan struct{}), ended: map[int32]bool{}}
	go func() {
		defer close(w.done)
		var buf [8 * (unix.SizeofInotifyEvent + unix.NAME_MAX + 1)]byte
		for {
			n, err := w.file.Read(buf[:])
			if err != nil {
				if errors.Is(err, unix.EINTR) {
					continue
				}
				return // closed
			}
			w.note(buf[:n])
			poke() // any event, also an overflowed queue: check everything
		}
	}()
	return w, nil
}

// note records events about the watches themselves.
func (w *watcher) note(events []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for len(events) >= unix.SizeofInotifyEvent {
		// Source: inotify(7), struct inotify_event.
		wd := int32(binary.NativeEndian.Uint32(events))
		mask, name := binary.NativeEndian.Uint32(events[4:]), int(binary.NativeEndian.Uint32(events[12:]))
		if mask&(unix.IN_IGNORED|unix.IN_DELETE_SELF|unix.IN_MOVE_SELF|unix.IN_UNMOUNT) != 0 {
			w.ended[wd] = true
		}
		if mask&unix.IN_Q_OVERFLOW != 0 {
			w.lost = true
		}
		events = events[min(unix.SizeofInotifyEvent+name, len(events)):]
	}
}

// take returns what note kept, and forgets it.
func (w *watcher) take() (ended map[int32]bool, lost bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	ended, lost = w.ended, w.lost
	w.ended, w.lost = map[int32]bool{}, false
	return ended, lost
}

// cover watches what has to be watched for the files now, and reports whether that changed:
// then observe again, since the watch may be later than what it is for.
func (w *watcher) cover(files []string) (changed bool, err error) {
	// Before the folders are listed: later ends are notified again.
	ended, lost := w.take()
	want := folders(files)
	for dir, old := range w.folders {
		info, err := os.Stat(dir)
		near, wanted := want[dir]
		if wanted && near == old.near && !ended[old.wd] && !lost && err == nil && os.SameFile(info, old.info) {
			continue
		}
		// An error means that the folder is deleted, and the watch with it.
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
			changed = true // deleted since: check again
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
		w.folders[dir] = watch{int32(wd), near, info}
		changed = true
	}
	return changed, errors.Join(problems...)
}

func (w *watcher) close() {
	_ = w.file.Close()
	<-w.done
}
