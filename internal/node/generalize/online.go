package generalize

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/ortet/ortet/internal/node/disk"
	"github.com/ortet/ortet/internal/node/tree"
	"github.com/ortet/ortet/internal/wire"
)

// flushFor limits a flush: on a busy node it takes 0.1 s.
const flushFor = 30 * time.Second

// emptyWithin is how long before the flush an empty file was written that is reported:
// Linux writes back what is 30 s old, and looks each 5 s.
const emptyWithin = time.Minute

// flush writes out what a running node has in memory of its disk's file systems, so that a
// snapshot has it. It changes nothing, and leaves it to the caller's end if it hangs.
func flush(ctx context.Context, t *tree.Tree, o Options, r *wire.GeneralizeReport) error {
	limited, cancel := context.WithTimeout(ctx, flushFor)
	defer cancel()
	begun, done := o.Now().UTC(), make(chan error, 1)
	go func() { done <- syncDisk(t) }()
	select {
	case err := <-done:
		if err != nil {
			return refuse("what the node has in memory cannot be written to its disk: %v", err)
		}
	case <-limited.Done():
		return refuse("what the node has in memory was not on its disk within %s: is a disk or a mount of it dead?", flushFor)
	}
	r.Flushed, r.Outcome = begun, wire.Generalized
	return nil
}

// syncDisk writes out the root's file system, and those of the disk's other partitions and
// volumes, which the workbench mounts too.
func syncDisk(t *tree.Tree) error {
	fstab, err := readOptional(t, "/etc/fstab", maxConfig)
	if err != nil {
		return err
	}
	for _, dir := range disk.Needed(fstab) {
		if info, err := t.Stat(dir); err == nil && info.IsDir() {
			if err := t.SyncAt(dir); err != nil {
				return err
			}
		}
	}
	return t.Sync()
}

// packagesAtWork says which package manager has not ended its work on the disk, of a
// running node also by its locks; "" for none. A copy would have half a package.
func packagesAtWork(t *tree.Tree, running bool) (string, error) {
	for _, name := range []string{"/var/lib/dpkg/lock-frontend", "/var/lib/dpkg/lock", "/var/lib/rpm/.rpm.lock", "/usr/lib/sysimage/rpm/.rpm.lock"} {
		if !running {
			break
		}
		f, _, err := t.OpenRegular(name, os.O_RDONLY)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, tree.ErrNotRegular) {
			continue
		}
		if err != nil {
			return "", err
		}
		locked, err := writeLocked(f)
		if err := errors.Join(err, f.Close()); err != nil {
			return "", fmt.Errorf("asking for the lock of %s: %w", name, err)
		}
		if locked {
			return "a package manager is at work: " + name + " is locked", nil
		}
	}
	updates, err := t.Glob("/var/lib/dpkg/updates/[0-9]*")
	if err != nil || len(updates) > 0 {
		return "dpkg has not ended: there are files in /var/lib/dpkg/updates", err
	}
	status, err := readOptional(t, "/var/lib/dpkg/status", maxPackages)
	if err != nil {
		return "", err
	}
	var name []byte
	for line := range bytes.Lines(status) {
		if p, ok := bytes.CutPrefix(line, []byte("Package: ")); ok {
			name = bytes.TrimSpace(p)
		}
		words := bytes.Fields(line)
		if len(words) == 4 && string(words[0]) == "Status:" {
			switch state := string(words[3]); state {
			case "half-installed", "unpacked", "half-configured":
				return fmt.Sprintf("package %s is %s", printable(string(name), 128), state), nil
			}
		}
	}
	return "", nil
}

// maxPackages bounds what is read of dpkg's list of packages; that of a desktop has 5 MiB.
const maxPackages = 64 << 20

// isEmptied reports whether a file of a copy that was taken online may have lost what was
// written into it: it is empty, and was written just before. The stamps of systemd's timers
// are never anything else.
func (o Options) isEmptied(at string, info fs.FileInfo) bool {
	stamp := strings.HasPrefix(at, "var/lib/systemd/timers/")
	return !o.Online.IsZero() && !stamp && info.Size() == 0 && info.ModTime().After(o.Online.Add(-emptyWithin))
}
