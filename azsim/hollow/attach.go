package hollow

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"

	"github.com/ortet/ortet/azsim"
)

// plugged is where a running computer shows attached disks. A disk lies there
// for as long as it is attached, and a link in the substrate's volumes leads to
// it: a careful program confines itself to the host's tree, and would not follow
// a link out of it.
const plugged = "/dev/azsim"

// Attach implements azsim.Substrate.
func (s *Substrate) Attach(_ context.Context, id string, lun int32, v azsim.Volume) error {
	c, err := s.computer(id)
	if err != nil {
		return err
	}
	c.acting.Lock()
	defer c.acting.Unlock()
	s.mu.Lock()
	run := c.run
	there, taken := c.disks[lun]
	s.mu.Unlock()
	if taken && there != v {
		return fmt.Errorf("attach %s to %s: LUN %d holds %s", v, id, lun, there)
	}
	if run != nil {
		if err := run.plug(lun, v); err != nil {
			return fmt.Errorf("attach to %s: %w", id, err)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c.disks[lun] = v
	return nil
}

// Detach implements azsim.Substrate.
func (s *Substrate) Detach(_ context.Context, id string, lun int32) error {
	s.mu.Lock()
	c, ok := s.computers[id]
	s.mu.Unlock()
	if !ok {
		return nil
	}
	c.acting.Lock()
	defer c.acting.Unlock()
	s.mu.Lock()
	run := c.run
	v, taken := c.disks[lun]
	s.mu.Unlock()
	if !taken {
		return nil
	}
	if run != nil {
		if err := run.unplug(lun, v); err != nil {
			return fmt.Errorf("detach LUN %d of %s: %w", lun, id, err)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(c.disks, lun)
	return nil
}

// device is the name under which Azure's udev rules show the disk at lun.
func (r *running) device(lun int32) string {
	if r.computer.NVMe {
		return fmt.Sprintf("/dev/disk/azure/data/by-lun/%d", lun)
	}
	return fmt.Sprintf("/dev/disk/azure/scsi1/lun%d", lun)
}

// plug makes v appear at lun: where a real computer shows a block device, a
// hollow one shows the volume's tree.
func (r *running) plug(lun int32, v azsim.Volume) error {
	r.substrate.moving.Lock()
	defer r.substrate.moving.Unlock()
	home := r.substrate.volumeDir(v)
	name := filepath.Base(home)
	inside := filepath.Join(string(r.tree), plugged, name)
	if err := os.MkdirAll(filepath.Dir(inside), 0o755); err != nil {
		return err
	}
	switch at, err := os.Readlink(home); {
	case err == nil && at != inside:
		return fmt.Errorf("disk %s for LUN %d: it is attached already, at %s", v, lun, at)
	case err != nil:
		if err := os.Rename(home, inside); err != nil {
			return fmt.Errorf("disk %s for LUN %d: %w", v, lun, err)
		}
		if err := os.Symlink(inside, home); err != nil {
			return errors.Join(err, os.Rename(inside, home))
		}
	}
	device := r.device(lun)
	target, err := filepath.Rel(path.Dir(device), path.Join(plugged, name))
	if err != nil {
		return err
	}
	return r.tree.symlink(target, device)
}

// unplug takes v away from lun.
func (r *running) unplug(lun int32, v azsim.Volume) error {
	if err := r.tree.remove(r.device(lun)); err != nil {
		return err
	}
	r.substrate.moving.Lock()
	defer r.substrate.moving.Unlock()
	return r.substrate.bringHome(r.tree, filepath.Base(r.substrate.volumeDir(v)))
}

// bringHome moves a disk that is attached in t back to where volumes lie. The
// caller holds s.moving.
func (s *Substrate) bringHome(t tree, name string) error {
	home, inside := filepath.Join(s.volumes(), name), filepath.Join(string(t), plugged, name)
	if _, err := os.Lstat(inside); err != nil {
		return ignoreAbsent(err)
	}
	if _, err := os.Readlink(home); err == nil {
		if err := os.Remove(home); err != nil {
			return err
		}
	}
	return os.Rename(inside, home)
}

// unmount leaves of t what is on the disk: attached disks go home, and what only
// a running computer has, goes.
func (s *Substrate) unmount(t tree) error {
	s.moving.Lock()
	defer s.moving.Unlock()
	entries, err := os.ReadDir(filepath.Join(string(t), plugged))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, entry := range entries {
		// What could not be moved must not be emptied below.
		if err := s.bringHome(t, entry.Name()); err != nil {
			return err
		}
	}
	return t.unmount()
}

// recover puts back what a process that died left attached.
func (s *Substrate) recover() error {
	entries, err := os.ReadDir(s.volumes())
	if err != nil {
		return err
	}
	var errs []error
	for _, entry := range entries {
		if entry.IsDir() {
			errs = append(errs, s.unmount(tree(filepath.Join(s.volumes(), entry.Name()))))
		}
	}
	return errors.Join(errs...)
}

func (s *Substrate) volumes() string { return filepath.Join(s.config.Dir, "volumes") }
