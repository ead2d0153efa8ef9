package files_test

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/ortet/ortet/internal/node/config/files"
	"github.com/ortet/ortet/internal/node/tree"
)

// An inode is a file, link or folder of a disk. Inodes are numbered; 1 is the root.
type inode struct {
	mode     fs.FileMode
	uid, gid int
	content  []byte
	link     string
	entries  map[string]int
}

type disk map[int]inode

func (d disk) clone() disk {
	c := make(disk, len(d))
	for n, i := range d {
		i.entries = maps.Clone(i.entries)
		c[n] = i
	}
	return c
}

// String lists what can be reached, with all that a program can see.
func (d disk) String() string {
	var text strings.Builder
	d.walk(1, "/", func(name string, i inode) {
		fmt.Fprintf(&text, "%s %v %d:%d %q %q\n", name, i.mode, i.uid, i.gid, i.link, i.content)
	})
	return text.String()
}

func (d disk) walk(number int, name string, visit func(name string, i inode)) {
	i := d[number]
	visit(name, i)
	for _, e := range slices.Sorted(maps.Keys(i.entries)) {
		d.walk(i.entries[e], path.Join(name, e), visit)
	}
}

// change is lost in a power cut until its inode is synced.
type change struct {
	inode int
	apply func(disk)
}

// memory is a file system whose power can be cut: of the changes that were not synced any
// may be lost, whatever became of those before and after it. Content and attributes of a
// file count as changes of the file, names as changes of their folder.
type memory struct {
	live, durable disk
	pending       []change
	last          int // inode
	steps         int
	cut           int               // the step that fails, and all behind it; -1 for none
	skip          func(string) bool // syncs that do nothing: "Sync /a", "SyncDir /etc"
}

var errCut = errors.New("the power was cut")

func newMemory(d disk) *memory {
	last := 1
	for n := range d {
		last = max(last, n)
	}
	return &memory{live: d.clone(), durable: d, last: last, cut: -1}
}

func (m *memory) step() error {
	if m.cut >= 0 && m.steps >= m.cut {
		return errCut
	}
	m.steps++
	return nil
}

func (m *memory) change(number int, apply func(disk)) error {
	if err := m.step(); err != nil {
		return err
	}
	apply(m.live)
	m.pending = append(m.pending, change{number, apply})
	return nil
}

// add makes an inode that no name leads to, on both disks.
func (m *memory) add(i inode) int {
	m.last++
	m.live[m.last], m.durable[m.last] = i, i
	if i.entries != nil {
		i.entries = map[string]int{}
		m.durable[m.last] = i
	}
	return m.last
}

// survivor is the disk after a cut of which these pending changes were written.
func (m *memory) survivor(written func(int) bool) disk {
	d := m.durable.clone()
	for i, c := range m.pending {
		if written(i) {
			c.apply(d)
		}
	}
	return d
}

func (m *memory) find(name string) (int, error) {
	at := 1
	for part := range strings.SplitSeq(strings.Trim(name, "/"), "/") {
		if part == "" {
			continue
		}
		next, ok := m.live[at].entries[part]
		if !ok {
			return 0, fmt.Errorf("%s: %w", name, fs.ErrNotExist)
		}
		at = next
	}
	return at, nil
}

func (m *memory) Lstat(name string) (files.Info, error) {
	n, err := m.find(name)
	i := m.live[n]
	return files.Info{Mode: i.mode, UID: i.uid, GID: i.gid}, err
}

func (m *memory) Stat(name string) (files.Info, error) { return m.Lstat(name) }

func (m *memory) ReadFile(name string, limit int64) ([]byte, files.Info, error) {
	n, err := m.find(name)
	i := m.live[n]
	if int64(len(m.live[n].content)) > limit {
		err = tree.ErrTooLarge
	}
	return i.content, files.Info{Mode: i.mode, UID: i.uid, GID: i.gid}, err
}

func (m *memory) Readlink(name string) (string, error) {
	n, err := m.find(name)
	return m.live[n].link, err
}

// name gives an inode a name that must be new.
func (m *memory) name(name string, i inode) (int, error) {
	folder, err := m.find(path.Dir(name))
	if err != nil {
		return 0, err
	}
	base := path.Base(name)
	if _, ok := m.live[folder].entries[base]; ok {
		return 0, fmt.Errorf("%s: %w", name, fs.ErrExist)
	}
	n := m.add(i)
	return n, m.change(folder, func(d disk) { d[folder].entries[base] = n })
}

func (m *memory) Create(name string, content []byte, mode fs.FileMode, uid, gid int) error {
	n, err := m.name(name, inode{mode: 0o600})
	if err != nil {
		return err
	}
	content = slices.Clone(content)
	err = m.change(n, func(d disk) {
		i := d[n]
		i.content = content
		d[n] = i
	})
	if err != nil {
		return err
	}
	return m.change(n, func(d disk) {
		i := d[n]
		i.mode, i.uid, i.gid = mode, uid, gid
		d[n] = i
	})
}

func (m *memory) Symlink(target, name string) error {
	_, err := m.name(name, inode{mode: fs.ModeSymlink | 0o777, link: target})
	return err
}

func (m *memory) Mkdir(name string, mode fs.FileMode) error {
	_, err := m.name(name, inode{mode: fs.ModeDir | mode, entries: map[string]int{}})
	return err
}

func (m *memory) Rename(from, to string) error {
	n, err := m.find(from)
	if err != nil {
		return err
	}
	folder, err := m.find(path.Dir(to))
	if err != nil || path.Dir(from) != path.Dir(to) {
		return errors.Join(err, errors.New("rename across folders is not modelled"))
	}
	a, b := path.Base(from), path.Base(to)
	return m.change(folder, func(d disk) {
		delete(d[folder].entries, a)
		d[folder].entries[b] = n
	})
}

func (m *memory) Remove(name string) error {
	if _, err := m.find(name); err != nil {
		return err
	}
	folder, err := m.find(path.Dir(name))
	if err != nil {
		return err
	}
	base := path.Base(name)
	return m.change(folder, func(d disk) { delete(d[folder].entries, base) })
}

func (m *memory) Sync(name string) error    { return m.sync("Sync", name) }
func (m *memory) SyncDir(name string) error { return m.sync("SyncDir", name) }

func (m *memory) sync(verb, name string) error {
	n, err := m.find(name)
	if err != nil {
		return err
	}
	if err := m.step(); err != nil || m.skip != nil && m.skip(verb+" "+name) {
		return err
	}
	m.pending = slices.DeleteFunc(m.pending, func(c change) bool {
		if c.inode == n {
			c.apply(m.durable)
		}
		return c.inode == n
	})
	return nil
}
