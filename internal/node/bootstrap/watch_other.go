//go:build !linux

package bootstrap

import (
	"errors"
	"fmt"
	"os"

	"github.com/fsnotify/fsnotify"
)

// watcher pokes when something happens in the folders of files.
type watcher struct {
	w       *fsnotify.Watcher
	folders map[string]bool
	done    chan struct{}
}

func newWatcher(poke func()) (*watcher, error) {
	fsw, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, fmt.Errorf("asking the system for file notifications: %w", err)
	}
	w := &watcher{w: fsw, folders: map[string]bool{}, done: make(chan struct{})}
	go func() {
		defer close(w.done)
		for {
			select {
			case _, ok := <-fsw.Events:
				if !ok {
					return
				}
				poke()
			case _, ok := <-fsw.Errors:
				if !ok {
					return
				}
				poke() // such as an overflowed queue: check everything
			}
		}
	}()
	return w, nil
}

// cover watches what has to be watched for the files now, and reports whether that changed:
// then observe again.
func (w *watcher) cover(files []string) (changed bool, err error) {
	want := folders(files)
	for dir := range w.folders {
		if _, ok := want[dir]; !ok {
			_ = w.w.Remove(dir) // an error means that it is deleted already
			delete(w.folders, dir)
		}
	}
	var problems []error
	for dir := range want {
		if w.folders[dir] {
			continue
		}
		if err := w.w.Add(dir); err != nil {
			if errors.Is(err, os.ErrNotExist) {
				changed = true
				continue
			}
			problems = append(problems, fmt.Errorf("watching %s: %w", dir, err))
			continue
		}
		w.folders[dir], changed = true, true
	}
	return changed, errors.Join(problems...)
}

func (w *watcher) close() {
	_ = w.w.Close()
	<-w.done
}
