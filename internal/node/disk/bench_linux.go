package disk

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/ortet/ortet/internal/node/tree"
)

// bench is a small tmpfs in this thread's mount namespace, laid over a folder
// of the host's so that programs in the host's root see it too. It holds the
// device nodes, made here so that neither the host's /dev nor udev matter, and
// the mount point.
type bench struct {
	r    Request
	host *tree.Tree
	dir  string // for this process
	in   string // the same, in the host's root
	held []*os.File
}

// newBench must be called on a thread with a mount namespace of its own.
func newBench(r Request, host *tree.Tree) (*bench, error) {
	var last error
	for _, over := range []string{"/mnt", "/media", "/tmp", "/run"} {
		info, err := host.Lstat(over)
		if err != nil || !info.IsDir() {
			continue
		}
		b := &bench{r: r, host: host, dir: filepath.Join(r.Host, over), in: over}
		if last = unix.Mount("ortet", b.dir, "tmpfs", unix.MS_NOSUID|unix.MS_NOEXEC, "size=1m,mode=0700"); last != nil {
			continue
		}
		return b, os.Mkdir(b.root(), 0o700)
	}
	return nil, fmt.Errorf("no folder of the host's to work in below %s: %w", r.Host, errors.Join(last, errors.New("tried /mnt, /media, /tmp and /run")))
}

// root is where the disk is mounted.
func (b *bench) root() string { return filepath.Join(b.dir, "root") }

func (b *bench) close() error {
	var err error
	for _, f := range b.held {
		err = errors.Join(err, f.Close())
	}
	// The namespace goes with the thread; this only gives errors a voice.
	return errors.Join(err, unix.Unmount(b.dir, unix.UMOUNT_NOFOLLOW))
}

// node makes a block device node and returns its path for this process.
func (b *bench) node(name string, number uint64) (string, error) {
	at := filepath.Join(b.dir, name)
	err := unix.Mknod(at, unix.S_IFBLK|0o600, int(number))
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return "", fmt.Errorf("making a device node for %s: %w; is this a privileged pod?", name, err)
	}
	return at, nil
}

// kernelName is the name of a block device in sysfs, by its number.
func (b *bench) kernelName(number uint64) (string, error) {
	link := fmt.Sprintf("/sys/dev/block/%d:%d", unix.Major(number), unix.Minor(number))
	at, err := b.host.Resolve(link, true)
	if err != nil {
		return "", refuse("the kernel does not know the device that is at the LUN (%s): %v", link, err)
	}
	return path.Base(at), nil
}

// number is a block device's number by its name in sysfs.
func (b *bench) number(name string) (uint64, error) {
	s, err := attribute(b.host, "/sys/class/block/"+name+"/dev")
	if err != nil {
		return 0, err
	}
	major, minor, ok := strings.Cut(s, ":")
	ma, err1 := strconv.ParseUint(major, 10, 32)
	mi, err2 := strconv.ParseUint(minor, 10, 32)
	if !ok || err1 != nil || err2 != nil {
		return 0, fmt.Errorf("sysfs says %q is the number of %s", s, name)
	}
	return unix.Mkdev(uint32(ma), uint32(mi)), nil
}

// parts lists what is on a disk that nothing uses: the kernel's partitions;
// where it made none but there is a table, loop devices over them; and where
// there is no table, the disk itself.
func (b *bench) parts(name string) ([]part, error) {
	names, err := partitions(b.host, name)
	if err != nil {
		return nil, err
	}
	disk, err := b.open(name)
	if err != nil {
		return nil, err
	}
	for _, n := range names {
		p, err := b.open(n)
		if err != nil {
			return nil, err
		}
		disk = append(disk, p...)
	}
	if len(names) > 0 {
		return b.probeAll(disk[1:])
	}
	f, err := os.OpenFile(disk[0].node, os.O_RDWR|unix.O_EXCL, 0)
	if err != nil {
		return nil, fmt.Errorf("opening %s: %w", name, err)
	}
	size, err := f.Seek(0, io.SeekEnd)
	var table []extent
	if err == nil {
		table, err = readTable(f, size)
	}
	if err != nil || len(table) == 0 {
		if err := errors.Join(err, f.Close()); err != nil {
			return nil, fmt.Errorf("reading %s: %w", name, err)
		}
		return b.probeAll(disk)
	}
	// Held open: a mount of a loop device does not claim the disk below it.
	b.held = append(b.held, f)
	var parts []part
	for _, e := range table {
		p, err := b.loop(f, fmt.Sprintf("%s-part%d", name, e.number), e)
		if err != nil {
			return nil, err
		}
		parts = append(parts, p)
	}
	return b.probeAll(parts)
}

// open refuses a device that anything uses and makes its node.
func (b *bench) open(name string) ([]part, error) {
	number, err := b.number(name)
	if err != nil {
		return nil, err
	}
	node, err := b.node(name, number)
	if err != nil {
		return nil, err
	}
	if err := b.unused(name, node); err != nil {
		return nil, err
	}
	return []part{{name: name, node: node}}, nil
}

// unused refuses a device that is mounted, has holders (LVM, RAID, encryption,
// multipath) or is claimed in any other way. Opening exclusively asks the
// kernel itself, whatever namespace the user is in; the rest gives its reasons.
func (b *bench) unused(name, node string) error {
	holders, err := b.host.Glob("/sys/class/block/" + name + "/holders/*")
	if err != nil {
		return err
	}
	if len(holders) > 0 {
		return refuse("%s is in use by %s: something on this node has activated it; LVM, RAID and multipath must leave this disk alone", name, path.Base(holders[0]))
	}
	loops, err := b.host.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		return err
	}
	for _, l := range loops {
		if file, err := attribute(b.host, l); err == nil && path.Base(file) == name && strings.HasPrefix(file, "/") && path.Dir(file) != "/" && !strings.Contains(file, " ") {
			return refuse("%s is in use by %s", name, path.Base(path.Dir(path.Dir(l))))
		}
	}
	number, err := attribute(b.host, "/sys/class/block/"+name+"/dev")
	if err != nil {
		return err
	}
	if at := b.mountedAt(number); at != "" {
		return refuse("%s is mounted at %s", name, at)
	}
	fd, err := unix.Open(node, unix.O_RDONLY|unix.O_EXCL|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	switch {
	case errors.Is(err, unix.EBUSY):
		return refuse("%s is in use: the kernel does not let it be opened exclusively", name)
	case err != nil:
		return refuse("cannot open %s: %v; is this a privileged pod?", name, err)
	}
	return unix.Close(fd)
}

// mountedAt is where a device number is mounted on the host or here, or "".
func (b *bench) mountedAt(number string) string {
	var tables [][]byte
	if data, err := b.host.ReadFile("/proc/1/mountinfo", 16<<20); err == nil {
		tables = append(tables, data)
	}
	if data, err := os.ReadFile("/proc/thread-self/mountinfo"); err == nil {
		tables = append(tables, data)
	}
	for _, table := range tables {
		for line := range strings.Lines(string(table)) {
			if f := strings.Fields(line); len(f) > 4 && number != "" && f[2] == number {
				return f[4]
			}
		}
	}
	return ""
}

// loop lays a loop device over a part of the disk. It goes by itself when its
// last user does.
func (b *bench) loop(disk *os.File, name string, e extent) (part, error) {
	fail := func(err error) (part, error) {
		return part{}, fmt.Errorf("laying a loop device over %s: %w", name, err)
	}
	control := filepath.Join(b.dir, "loop-control")
	const miscMajor, loopControl = 10, 237 // linux/miscdevice.h
	if err := unix.Mknod(control, unix.S_IFCHR|0o600, int(unix.Mkdev(miscMajor, loopControl))); err != nil && !errors.Is(err, unix.EEXIST) {
		return fail(err)
	}
	c, err := os.OpenFile(control, os.O_RDWR, 0)
	if err != nil {
		return fail(err)
	}
	defer func() { _ = c.Close() }() // only asked
	config := unix.LoopConfig{Fd: uint32(disk.Fd()), Info: unix.LoopInfo64{
		Offset: uint64(e.offset), Sizelimit: uint64(e.bytes), Flags: unix.LO_FLAGS_AUTOCLEAR,
	}}
	if b.r.ReadOnly {
		config.Info.Flags |= unix.LO_FLAGS_READ_ONLY
	}
	// Between asking for a free one and taking it, another may take it.
	for range 16 {
		n, err := unix.IoctlRetInt(int(c.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return fail(err)
		}
		p := part{name: name}
		free := "loop" + strconv.Itoa(n)
		number, err := b.number(free) // its minor number need not be n
		if err != nil {
			return fail(err)
		}
		if p.node, err = b.node(free, number); err != nil {
			return fail(err)
		}
		f, err := os.OpenFile(p.node, os.O_RDWR, 0)
		if err != nil {
			return fail(err)
		}
		err = unix.IoctlLoopConfigure(int(f.Fd()), &config)
		if err == nil {
			b.held = append(b.held, f) // keeps it from clearing between two mounts
			return p, nil
		}
		if err := errors.Join(err, f.Close()); !errors.Is(err, unix.EBUSY) {
			return fail(err)
		}
	}
	return fail(unix.EBUSY)
}

// probeAll reads what each partition holds, and takes physical volumes of LVM
// apart into their volumes.
func (b *bench) probeAll(parts []part) ([]part, error) {
	var all []part
	for _, p := range parts {
		if err := p.probe(); err != nil {
			return nil, err
		}
		all = append(all, p)
		if p.sb.Kind != LVM {
			continue
		}
		volumes, err := b.volumes(p)
		if err != nil {
			return nil, err
		}
		all = append(all, volumes...)
	}
	return all, nil
}

func (p *part) probe() error {
	f, err := os.Open(p.node)
	if err != nil {
		return fmt.Errorf("reading %s: %w", p.name, err)
	}
	p.sb, err = Probe(f)
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("reading %s: %w", p.name, err)
	}
	return nil
}

// volumes lays loop devices over the logical volumes of a physical volume.
func (b *bench) volumes(pv part) ([]part, error) {
	// Held exclusively, so that nothing activates the volume group meanwhile.
	f, err := os.OpenFile(pv.node, os.O_RDWR|unix.O_EXCL, 0)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", pv.name, err)
	}
	b.held = append(b.held, f)
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", pv.name, err)
	}
	found, scattered, err := readVolumes(f, size)
	if err != nil {
		return nil, refuse("%s is an LVM physical volume: %v", pv.name, err)
	}
	if len(scattered) > 0 {
		return nil, refuse("%s holds LVM volumes that are not in one piece (%s): they cannot be reached without activating a volume group that has the UUIDs of the donor's", pv.name, strings.Join(scattered, ", "))
	}
	var parts []part
	for _, v := range found {
		p, err := b.loop(f, v.group+"/"+v.name, extent{offset: v.offset, bytes: v.bytes})
		if err != nil {
			return nil, err
		}
		p.aliases = v.names()
		if err := p.probe(); err != nil {
			return nil, err
		}
		parts = append(parts, p)
	}
	return parts, nil
}
