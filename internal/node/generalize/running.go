package generalize

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"

	"github.com/ortet/ortet/internal/node/tree"
	"github.com/ortet/ortet/internal/wire"
)

// maxInspectedFile is the largest file that an inspection opens: credentials and
// configuration are small.
const maxInspectedFile = 64 << 20

// errLimit ends an inspection at one of its limits.
var errLimit = errors.New("the inspection is at its limit")

// running is what a scan keeps of the running node that it inspects.
type running struct {
	files  int
	device uint64
	known  bool // device is
}

// scanRunning scans the root of a running node for what the scan of a copy of its
// disk would refuse. It changes nothing, and passes over what generalising changes.
func scanRunning(ctx context.Context, t *tree.Tree, o Options, found inspection, r *wire.GeneralizeReport, progress func(string), log *slog.Logger) error {
	r.DryRun = true
	if err := save(t, o, found, r); err != nil {
		return err
	}
	c := &cleaner{t: t, o: o, donor: found.donor, log: log, kubeadm: found.kubeadm, doomed: map[string]bool{}}
	for _, last := range []bool{false, true} {
		if err := c.doom(Table(), last, false); err != nil {
			return err
		}
	}
	if err := c.doomEdited(); err != nil {
		return err
	}
	r.Joins = c.staying(r.Joins)
	var err error
	if r.Elsewhere, err = elsewhere(t); err != nil {
		return err
	}
	progress("scanning the running node for secrets")
	limited, cancel := context.WithTimeout(ctx, o.Limits.Time)
	defer cancel()
	s, err := scan(limited, t, o, found.donor, c.doomed, nil, progress)
	if s == nil || ctx.Err() != nil {
		return err
	}
	r.Partial = err != nil
	return s.judge(t, r)
}

// elsewhere lists the kubelet's folder and those of container runtimes that lie on another disk.
func elsewhere(t *tree.Tree) (all []wire.ElsewhereFolder, err error) {
	root, err := t.Stat("/")
	if err != nil {
		return nil, err
	}
	device, known := deviceOf(root)
	runtimes, err := containerdRoots(t)
	if err != nil || !known {
		return nil, err
	}
	const kubelet = "var/lib/kubelet"
	seen := map[string]bool{}
	for _, name := range append([]string{kubelet, "var/lib/docker", "var/lib/containers/storage"}, runtimes...) {
		at, err := t.Resolve(name, true)
		if err != nil || seen[at] { // a folder that is not there, or cannot be followed, is on no disk
			continue
		}
		seen[at] = true
		if info, err := t.Stat(at); err != nil || !info.IsDir() {
			continue
		} else if on, _ := deviceOf(info); on == device {
			continue
		}
		dir, err := t.Root().Open(at)
		if err != nil {
			return nil, err
		}
		all = append(all, wire.ElsewhereFolder{Path: "/" + at, Bytes: usedBytes(dir), Kubelet: name == kubelet})
		if err := dir.Close(); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// doomEdited adds what the table's Edit rows change as a whole, and what container runtimes
// write while they run.
func (c *cleaner) doomEdited() error {
	patterns := []string{"/var/lib/docker", "/var/lib/containers/storage"}
	for _, row := range Table() {
		if row.Action == Edit && row.Path != "/" && row.What != wipesSwap && row.lines == nil {
			patterns = append(patterns, row.Path)
		}
	}
	swap, err := namedSwapFiles(c.t)
	if err != nil {
		return err
	}
	patterns = append(patterns, swap...)
	for _, p := range patterns {
		paths, err := c.t.Glob(p)
		if err != nil {
			return err
		}
		for _, at := range paths {
			c.doomed[at] = true
		}
	}
	roots, err := containerdRoots(c.t)
	for _, at := range roots {
		c.doomed[at] = true
	}
	return err
}

// likeliest scans the folders that credentials mostly lie in, so that a limit cuts off
// the rest.
func (s *scanner) likeliest(root *os.Root) error {
	for _, name := range []string{"etc", "root", "home", "opt"} {
		dir, err := root.OpenRoot(name)
		if err != nil {
			continue
		}
		if s.sameDisk(dir) {
			err = s.dir(dir, name, 1, "")
		}
		s.skip[name] = true
		if err := errors.Join(err, dir.Close()); err != nil {
			return err
		}
	}
	return nil
}

// inspects reports whether an inspection goes into a directory's entry: not where
// only the distribution's packages write.
func (s *scanner) inspects(e fs.DirEntry, at string) bool {
	return !e.IsDir() || !isVendor(at+"/")
}

// sameDisk reports whether a directory lies on the root's file system: what is
// mounted on a node is not on a copy of its disk, and may hang.
func (s *scanner) sameDisk(dir *os.Root) bool {
	info, err := dir.Stat(".")
	if err != nil {
		return false
	}
	device, known := deviceOf(info)
	return known == s.running.known && device == s.running.device
}

// opens counts a file that an inspection is about to read, and reports whether it is
// small enough.
func (s *scanner) opens(info fs.FileInfo) (bool, error) {
	if s.running.files >= s.o.Limits.Files {
		return false, errLimit
	}
	s.running.files++
	return info.Size() <= maxInspectedFile, nil
}
