//go:build linux

package main

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// Beside a lab that runs, what a killed one left goes, and the one that runs keeps all.
func TestCleanBesideALab(t *testing.T) {
	temporary := t.TempDir()
	// A half-made volume is a leftover that needs no root.
	lab := func(name string) (lock *os.File, left string) {
		t.Helper()
		dir := filepath.Join(temporary, name, "azure", "machine")
		left = filepath.Join(dir, "volumes", "disk.part")
		if err := os.MkdirAll(filepath.Dir(left), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(left, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		lock, err := os.Create(filepath.Join(dir, "lock"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = lock.Close() })
		return lock, left
	}
	lock, running := lab("ortet-elastic")
	_, killed := lab("ortet-lab-capture")
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	if err := clean(temporary); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(running); err != nil {
		t.Errorf("the lab that runs lost a file: %v", err)
	}
	if _, err := os.Stat(killed); !os.IsNotExist(err) {
		t.Errorf("what the killed lab left is there: %v", err)
	}
}
