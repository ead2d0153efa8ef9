package play

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// content is what is on a disk, and what the world knows of it. It is never changed:
// disks that are copies of each other share it.
type content struct {
	files    map[string]entry // by path without a leading slash
	plants   []plant
	joinBy   []plant // what a clone joins by without customData: all of these
	preserve bool    // cloud-init keeps the host name
	unserved bool    // its node came with the no-op as customData
}

type entry struct {
	data string
	link string // target of a symbolic link
	mode fs.FileMode
}

// A class is what an image may have of a plant.
type class string

const (
	identity class = "identity" // nothing, by value, in any file
	trace    class = "trace"    // nothing, by value, in configuration and state
	gone     class = "gone"     // no file at the path: a first boot is told from others by it
	rejoins  class = "rejoins"  // no file at the path, where clones join by customData
	shared   class = "shared"   // a credential of the pool: only where it was accepted
	private  class = "private"  // another secret: only where it was accepted
	stays    class = "stays"    // the value, in the file at the path
)

// A plant is something of which the world knows whose it is.
type plant struct {
	class class
	path  string
	value string
	what  string
	needs bool // private: the file is one that --remove-secrets leaves
	stray bool // identity that lies where generalising does not remove it
}

// holds reports whether the plant is where it was put.
func (c *content) holds(p plant) bool { return strings.Contains(c.files[p.path].data, p.value) }

// some gives the plants of a class that are where they were put.
func (c *content) some(of class) (all []plant) {
	for _, p := range c.plants {
		if p.class == of && c.holds(p) {
			all = append(all, p)
		}
	}
	return all
}

// joinsAlone reports whether a clone joins by what is on the disk.
func (c *content) joinsAlone() bool {
	return len(c.joinBy) > 0 && !slices.ContainsFunc(c.joinBy, func(p plant) bool { return !c.holds(p) })
}

// with gives the same with other files.
func (c *content) with(files map[string]entry) *content {
	other := *c
	other.files = files
	return &other
}

// memory is a folder in memory where the machine has one: a disk's latency would be most
// of what a pod takes.
func memory() string {
	const shared = "/dev/shm"
	if info, err := os.Stat(shared); err == nil && info.IsDir() {
		return shared
	}
	return ""
}

// put writes the files below a folder.
func (c *content) put(dir string) error {
	made := map[string]bool{}
	for _, at := range slices.Sorted(maps.Keys(c.files)) {
		e, to := c.files[at], filepath.Join(dir, at)
		if parent := path.Dir(at); !made[parent] {
			if err := os.MkdirAll(filepath.Join(dir, parent), 0o755); err != nil {
				return err
			}
			made[parent] = true
		}
		if e.link != "" {
			if err := os.Symlink(e.link, to); err != nil {
				return err
			}
			continue
		}
		f, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, e.mode)
		if err != nil {
			return err
		}
		_, err = f.WriteString(e.data)
		if err := errors.Join(err, f.Chmod(e.mode), f.Close()); err != nil {
			return err
		}
	}
	return nil
}

// filesBelow reads what is below a folder.
func filesBelow(dir string) (map[string]entry, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }()
	files := map[string]entry{}
	err = fs.WalkDir(root.FS(), ".", func(at string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		e := entry{mode: info.Mode().Perm()}
		if info.Mode()&fs.ModeSymlink != 0 {
			e.link, err = root.Readlink(at)
			e.mode = 0
		} else {
			var data []byte
			data, err = root.ReadFile(at)
			e.data = string(data)
		}
		files[at] = e
		return err
	})
	return files, err
}

// contentOf gives what is on a disk, and has its computer's first boot make what is
// missing where that was not done yet. w.mu is held.
func (w *world) contentOf(d *disk) *content {
	if b := d.birth; b != nil {
		booted, err := w.firstBoot(d.content, *b)
		if err != nil {
			w.violations = append(w.violations, "what is on a disk cannot be made: "+err.Error())
		}
		d.content, d.birth = booted, nil
		w.onNode[strings.ToLower(b.host)] = booted
	}
	return d.content
}

// A birth is the first boot of a disk, of which nobody has looked at the effect.
type birth struct{ host, customData string }

// contentOfNode gives what is on the OS disk of a node, also of one that is gone.
func (w *world) contentOfNode(node string) *content {
	c := w.computerOf(node)
	w.mu.Lock()
	defer w.mu.Unlock()
	if c != nil && w.hasFiles() {
		if d := w.disks[c.OSDisk]; d != nil {
			return w.contentOf(d)
		}
	}
	return w.onNode[node]
}
