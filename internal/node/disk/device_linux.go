package disk

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/ortet/ortet/internal/node/tree"
)

// part is a partition of the disk, or the whole disk where it has none.
type part struct {
	name string // for a person, "sdc1"
	node string // its device node, for this process
	sb   Superblock
	// aliases are other paths by which an fstab can call it: LVM's.
	aliases []string
}

// withDevice does Check and Work on the disk that was found.
func withDevice(ctx context.Context, r Request, found location) error {
	done := make(chan error, 1)
	// A thread of its own, never given back to the runtime: the mount namespace
	// is the thread's. It ends with the goroutine, and with the process.
	go func() {
		runtime.LockOSThread()
		done <- inNamespace(ctx, r, found)
	}()
	return <-done
}

// inNamespace runs on a thread of its own.
func inNamespace(ctx context.Context, r Request, found location) (err error) {
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("making a mount namespace of its own: %w; is this a privileged pod?", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("keeping mounts from spreading: %w", err)
	}
	host, err := tree.Open(r.Host)
	if err != nil {
		return refuse("the host's root: %v", err)
	}
	defer func() { _ = host.Close() }() // only looked at
	b, err := newBench(r, host)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	name := found.device
	if found.number != 0 {
		// The node's name need not be the kernel's.
		if name, err = b.kernelName(found.number); err != nil {
			return err
		}
	}
	r.Log.Info("found the disk", "lun", r.LUN, "device", name, "by", found.by)
	parts, err := b.parts(name)
	if err != nil {
		return err
	}
	root, err := findRoot(r, parts, b.root())
	if err != nil {
		return err
	}
	if !r.ReadOnly {
		r.Progress("checking the file system of " + root.name)
		if err := b.check(ctx, root); err != nil {
			return err
		}
	}
	return withMount(r, root, b.root(), !r.ReadOnly, func() error {
		return withTree(b.root(), func(t *tree.Tree) error { return b.withInner(ctx, parts, root, t) })
	})
}

// findRoot mounts each file system read-only, without replaying its journal,
// until one is the root of an operating system that Check accepts.
func findRoot(r Request, parts []part, dir string) (part, error) {
	var seen []string
	for _, p := range parts {
		kind := cmp.Or(string(p.sb.Kind), "nothing known")
		seen = append(seen, p.name+": "+kind)
		if p.sb.Kind != Ext4 && p.sb.Kind != XFS && p.sb.Kind != Btrfs {
			continue
		}
		if p.sb.Kind == Btrfs && mountedBtrfs(r.Host, p.sb.UUID) {
			return part{}, refuse("%s is btrfs with the UUID of a file system that this node has mounted, and the kernel would take one for the other; use a node with another root as workbench", p.name)
		}
		root := false
		// What cannot even be mounted to look at was not changed either.
		if err := mount(p, dir, false); err != nil {
			return part{}, refuse("%v", err)
		}
		if err := unix.Unmount(dir, unix.UMOUNT_NOFOLLOW); err != nil {
			return part{}, fmt.Errorf("unmounting %s: %w", p.name, err)
		}
		err := withMount(r, p, dir, false, func() error {
			return withTree(dir, func(t *tree.Tree) error {
				var err error
				if root, err = r.IsRoot(t); err != nil || !root {
					return err
				}
				return r.Check(t)
			})
		})
		if err != nil || root {
			return p, err
		}
	}
	for _, p := range parts {
		if p.sb.Kind == LUKS {
			return part{}, refuse("%s is encrypted, and there is no key here (%s)", p.name, strings.Join(seen, ", "))
		}
	}
	return part{}, refuse("no partition holds the root of an operating system (%s)", strings.Join(seen, ", "))
}

func mountedBtrfs(host, uuid string) bool {
	_, err := os.Stat(filepath.Join(host, "sys/fs/btrfs", uuid))
	return err == nil
}

// withMount mounts a partition for the time of do, and always unmounts it.
func withMount(r Request, p part, dir string, write bool, do func() error) (err error) {
	if err := mount(p, dir, write); err != nil {
		return err
	}
	defer func() {
		if write && err == nil {
			trim(r, dir)
		}
		if uerr := unix.Unmount(dir, unix.UMOUNT_NOFOLLOW); uerr != nil {
			err = errors.Join(err, fmt.Errorf("unmounting %s: %w", p.name, uerr))
			return
		}
		if write {
			err = errors.Join(err, flush(p))
		}
	}()
	return do()
}

func mount(p part, dir string, write bool) error {
	// Nothing on the disk may become a program or a device of this host's.
	flags := uintptr(unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC | unix.MS_NOATIME)
	var options []string
	if !write {
		flags |= unix.MS_RDONLY
	}
	switch p.sb.Kind {
	case Ext4:
		options = append(options, "errors=remount-ro")
		if !write {
			options = []string{"noload"}
		}
	case XFS:
		options = append(options, "nouuid")
		if !write {
			options = append(options, "norecovery")
		}
	case Btrfs:
		if !write {
			options = append(options, "rescue=nologreplay")
		}
	}
	if err := unix.Mount(p.node, dir, string(p.sb.Kind), flags, strings.Join(options, ",")); err != nil {
		return fmt.Errorf("mounting %s (%s, %s): %w", p.name, p.sb.Kind, strings.Join(options, ","), err)
	}
	return nil
}

// withInner mounts what the disk's own fstab has on its other partitions, and
// then does Work.
func (b *bench) withInner(ctx context.Context, parts []part, root part, t *tree.Tree) error {
	data, err := t.ReadFile("/etc/fstab", 1<<20)
	if err != nil && ignoreAbsent(err) != nil {
		return fmt.Errorf("reading the disk's fstab: %w", err)
	}
	return b.mountNext(ctx, parts, root, t, parseFstab(data))
}

func (b *bench) mountNext(ctx context.Context, parts []part, root part, t *tree.Tree, rest []entry) error {
	if len(rest) == 0 {
		return b.r.Work(t)
	}
	e, rest := rest[0], rest[1:]
	for _, p := range parts {
		if p.name == root.name || !(e.names(p.sb) || slices.Contains(p.aliases, e.spec)) {
			continue
		}
		if p.sb.Kind != Ext4 && p.sb.Kind != XFS && p.sb.Kind != VFAT {
			break
		}
		at, err := t.Resolve(e.dir, true)
		if err != nil {
			b.r.Log.Warn("a mount point of the disk's fstab is not there", "dir", e.dir, "error", err)
			return b.mountNext(ctx, parts, root, t, rest)
		}
		if !b.r.ReadOnly && p.sb.Kind != VFAT {
			if err := b.check(ctx, p); err != nil {
				return err
			}
		}
		dir := filepath.Join(t.Dir(), filepath.FromSlash(at))
		worked := false
		err = withMount(b.r, p, dir, !b.r.ReadOnly, func() error {
			worked = true
			b.r.Log.Info("mounted", "partition", p.name, "at", e.dir)
			return b.mountNext(ctx, parts, root, t, rest)
		})
		if errors.Is(err, unix.ENODEV) && !worked && !holdsState(e.dir) {
			b.r.Log.Warn("this node's kernel cannot mount a partition of the disk", "partition", p.name, "kind", string(p.sb.Kind), "dir", e.dir)
			b.r.Unseen(fmt.Sprintf("%s (%s, which this node's kernel does not know)", e.dir, p.sb.Kind))
			return b.mountNext(ctx, parts, root, t, rest)
		}
		return err
	}
	if holdsState(e.dir) && e.kind != "tmpfs" {
		return refuse("the disk mounts %s from %s, which is not on it: what has to be removed there is out of reach", e.dir, e.spec)
	}
	return b.mountNext(ctx, parts, root, t, rest)
}

// flush makes sure that all is on the device before its snapshot is taken.
func flush(p part) error {
	f, err := os.OpenFile(p.node, os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("flushing %s: %w", p.name, err)
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("flushing %s: %w", p.name, err)
	}
	return nil
}
