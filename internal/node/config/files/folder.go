package files

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"
)

// maxLinks bounds symbolic links on one path, as the kernel's limit does.
const maxLinks = 40

// ErrUnsafe says that a user who is not root can lead a path to what belongs to another.
var ErrUnsafe = errors.New("path is unsafe")

// crosses says whether a step of a path goes from what a user owns to what is another's:
// then the user decides where it goes. Root may lead to all. It is systemd-tmpfiles' rule
// (systemd's chase.c, unsafe_transition); folders that others may write need none of their
// own, since a link or folder that another made there is that user's.
func crosses(from, to int) bool { return from != 0 && to != from }

// A step is what was passed on the way along a path: a folder or a link.
type step struct {
	name string
	uid  int
}

func (s *step) to(next step) error {
	if crosses(s.uid, next.uid) {
		return fmt.Errorf("%w: %s belongs to user %d, who leads it to %s of user %d; give both to one owner, or choose another path", ErrUnsafe, s.name, s.uid, next.name, next.uid)
	}
	*s = next
	return nil
}

// folder calls do with the folder that a name leads to. Each component is opened in the
// folder before it and judged as it was opened, so that a swap behind it changes nothing.
func (m *machine) folder(name string, do func(folder *os.Root) error) error {
	open := []*os.Root{m.top} // from the top, each in the one before
	defer func() {
		for _, folder := range open[1:] {
			_ = folder.Close() // only looked up in
		}
	}()
	var last step
	// enter judges the innermost open folder.
	enter := func() error {
		folder := open[len(open)-1]
		info, err := folder.Stat(".")
		if err != nil {
			return err
		}
		return last.to(step{m.shown(folder), m.info(info).UID})
	}
	if err := enter(); err != nil {
		return err
	}
	links := 0
	for pending := strings.Split(name, "/"); len(pending) > 0; {
		c := pending[0]
		pending = pending[1:]
		switch c {
		case "", ".":
			continue
		case "..":
			if len(open) > 1 {
				_ = open[len(open)-1].Close()
				open = open[:len(open)-1]
			}
			if err := enter(); err != nil {
				return err
			}
			continue
		}
		here := open[len(open)-1]
		info, target, err := look(here, c)
		switch {
		case err != nil:
			return err
		case info.Mode().Type() == fs.ModeSymlink:
			if links++; links > maxLinks {
				return fmt.Errorf("%s: %w", name, syscall.ELOOP)
			}
			if err := last.to(step{path.Join(m.shown(here), c), m.info(info).UID}); err != nil {
				return err
			}
			if path.IsAbs(target) {
				for _, folder := range open[1:] {
					_ = folder.Close()
				}
				open = open[:1]
				if err := enter(); err != nil {
					return err
				}
			}
			pending = append(strings.Split(target, "/"), pending...)
		case !info.IsDir() && len(pending) > 0:
			return fmt.Errorf("%s: %s: %w", name, path.Join(m.shown(here), c), fs.ErrNotExist)
		case !info.IsDir():
			return fmt.Errorf("%s %w", path.Join(m.shown(here), c), errParent)
		default:
			// With "/." what took the folder's place is not opened: a FIFO would block.
			next, err := here.OpenRoot(c + "/.")
			if err != nil {
				return err
			}
			open = append(open, next)
			if opened, err := next.Stat("."); err != nil || !os.SameFile(info, opened) {
				return errors.Join(fmt.Errorf("%w: %s changed while it was opened; try again", ErrUnsafe, m.shown(next)), err)
			}
			if err := enter(); err != nil {
				return err
			}
		}
	}
	return do(open[len(open)-1])
}

// shown is a folder's path from the top.
func (m *machine) shown(folder *os.Root) string {
	return path.Join("/", strings.TrimPrefix(folder.Name(), m.top.Name()))
}
