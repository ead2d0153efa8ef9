//go:build linux

package machine

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/ortet/ortet/azsim"
)

// store keeps the volumes as image files in one folder.
//
// A copy of a volume that nobody writes to is a hard link, so that the way from
// a snapshot over an image version to a disk costs one copy and not three.
// Before a file with several names is written to, its volume gets a copy of its
// own: see claim.
type store struct {
	dir    string
	images map[string]string

	mu   sync.Mutex
	each map[azsim.Volume]*volume
}

// volume is what is known of one volume beside its bytes. The mutex is held
// while it is copied, claimed, released or deleted.
type volume struct {
	sync.Mutex
	disk       *loopDisk // nil unless a computer has it
	mountpoint string    // of its root partition on the host, "" unless mounted
	holder     string    // id of the computer
}

func newStore(dir string, images map[string]string) *store {
	return &store{dir: dir, images: images, each: map[azsim.Volume]*volume{}}
}

// file is where v's bytes lie: a readable name, and a hash of the whole id,
// which is longer than a file name may be.
func (s *store) file(v azsim.Volume) string {
	sum := sha256.Sum256([]byte(v))
	name := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '-' || r == '_' || r == '.' {
			return r
		}
		return '_'
	}, strings.ToLower(path.Base(string(v))))
	if len(name) > 100 {
		name = name[:100]
	}
	return filepath.Join(s.dir, name+"-"+hex.EncodeToString(sum[:8])+".raw")
}

// lock locks volumes in an order that all callers share, and returns them with
// what unlocks them.
func (s *store) lock(vs ...azsim.Volume) ([]*volume, func()) {
	s.mu.Lock()
	locked := make([]*volume, len(vs))
	for i, v := range vs {
		s.each[v] = cmp.Or(s.each[v], &volume{})
		locked[i] = s.each[v]
	}
	s.mu.Unlock()
	order := append([]*volume(nil), locked...)
	if len(vs) == 2 && vs[0] > vs[1] {
		order[0], order[1] = order[1], order[0]
	}
	for _, v := range order {
		v.Lock()
	}
	return locked, func() {
		for _, v := range order {
			v.Unlock()
		}
	}
}

func (s *store) create(ctx context.Context, v azsim.Volume, from azsim.Source) error {
	to, size := s.file(v), int64(from.SizeGB)<<30
	if from.Volume == v {
		return fmt.Errorf("create volume %s: it cannot be a copy of itself", v)
	}
	if from.Volume == "" {
		_, unlock := s.lock(v)
		defer unlock()
		if exists(to) {
			return nil
		}
		if from.Platform == "" {
			return createEmpty(to, size)
		}
		image, err := s.platform(from.Platform)
		if err != nil {
			return err
		}
		return copySparse(ctx, image, to, size)
	}

	both, unlock := s.lock(v, from.Volume)
	defer unlock()
	if exists(to) {
		return nil
	}
	source, file := both[1], s.file(from.Volume)
	info, err := os.Stat(file)
	if err != nil {
		return fmt.Errorf("create volume %s from %s: there is no such volume: %w", v, from.Volume, err)
	}
	if source.disk == nil && size <= info.Size() {
		return os.Link(file, to)
	}
	return source.frozen(func() error { return copySparse(ctx, file, to, size) })
}

// frozen runs f while the file holds what the computer wrote so far and no
// more: what Azure calls crash consistent.
func (v *volume) frozen(f func() error) (err error) {
	if v.disk == nil {
		return f()
	}
	busy, err := v.disk.inUse()
	if err != nil {
		return err
	}
	mountpoint := v.mountpoint
	if busy && mountpoint == "" {
		// The computer has a data disk mounted. A second mount shares the file system, and
		// freezing it stops both.
		dir := v.disk.File + ".frozen"
		defer func() { err = errors.Join(err, removeIfThere(dir+".node"), os.Remove(dir)) }()
		if mountRoot(v.disk.blockDevice, dir) == nil {
			defer func() { err = errors.Join(err, unix.Unmount(dir, 0)) }()
			mountpoint = dir
		}
	}
	if mountpoint != "" {
		if err := freeze(mountpoint); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, thaw(mountpoint)) }()
	}
	if err := v.disk.flush(); err != nil {
		return err
	}
	return f()
}

// GrowVolume implements azsim.Grower.
func (s *Substrate) GrowVolume(ctx context.Context, v azsim.Volume, sizeGB int32) error {
	locked, unlock := s.volumes.lock(v)
	defer unlock()
	if locked[0].disk != nil {
		return fmt.Errorf("grow volume %s: computer %s runs with it", v, locked[0].holder)
	}
	file, size := s.volumes.file(v), int64(sizeGB)<<30
	info, err := os.Stat(file)
	if err != nil || info.Size() >= size {
		return err
	}
	return copySparse(ctx, file, file, size) // other names of the file keep its size
}

func createEmpty(file string, size int64) error {
	if size == 0 {
		return fmt.Errorf("create volume: an empty one needs a size")
	}
	part := file + ".part"
	f, err := os.OpenFile(part, os.O_CREATE|os.O_TRUNC|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	if err := errors.Join(f.Truncate(size), f.Close()); err != nil {
		return errors.Join(err, removeIfThere(part))
	}
	return os.Rename(part, file)
}

// platform finds the file of a marketplace image: by its whole name, by its
// name with the version "latest", or the one that stands for all, "*".
func (s *store) platform(name string) (string, error) {
	unversioned := name
	if i := strings.LastIndexByte(name, ':'); i >= 0 {
		unversioned = name[:i]
	}
	for _, k := range []string{name, unversioned + ":latest", "*"} {
		if file, ok := s.images[k]; ok {
			return file, nil
		}
	}
	return "", fmt.Errorf("platform image %s: unknown; known are those in Config.Images", name)
}

func (s *store) delete(v azsim.Volume) error {
	locked, unlock := s.lock(v)
	defer unlock()
	if locked[0].disk != nil {
		return fmt.Errorf("delete volume %s: computer %s has it; detach it first", v, locked[0].holder)
	}
	return removeIfThere(s.file(v))
}

// claim makes v a block device for a computer that may write to it. Claiming
// again for the same computer returns the same device.
func (s *store) claim(ctx context.Context, v azsim.Volume, holder string) (*loopDisk, error) {
	locked, unlock := s.lock(v)
	defer unlock()
	own, file := locked[0], s.file(v)
	if own.disk != nil {
		if own.holder != holder {
			return nil, fmt.Errorf("volume %s: computer %s has it already", v, own.holder)
		}
		return own.disk, nil
	}
	var stat unix.Stat_t
	if err := unix.Stat(file, &stat); err != nil {
		return nil, fmt.Errorf("volume %s: there is no such volume: %w", v, err)
	}
	if stat.Nlink > 1 {
		if err := copySparse(ctx, file, file, 0); err != nil {
			return nil, err
		}
	}
	disk, err := attachLoop(ctx, file)
	if err != nil {
		return nil, err
	}
	own.disk, own.holder = disk, holder
	return disk, nil
}

// mount mounts the root partition of a claimed volume at dir.
func (s *store) mount(v azsim.Volume, dir string) error {
	locked, unlock := s.lock(v)
	defer unlock()
	own := locked[0]
	if own.mountpoint != "" {
		return nil
	}
	root, err := own.disk.root()
	if err != nil {
		return err
	}
	if err := mountRoot(root, dir); err != nil {
		return fmt.Errorf("volume %s: %w", v, err)
	}
	own.mountpoint = dir
	return nil
}

// release unmounts v and takes its block device away. When it returns, the file
// holds all that the computer wrote, and nobody writes to it.
func (s *store) release(ctx context.Context, v azsim.Volume) error {
	locked, unlock := s.lock(v)
	defer unlock()
	own := locked[0]
	if own.mountpoint != "" {
		if err := unmount(ctx, own.mountpoint); err != nil {
			return fmt.Errorf("volume %s: %w", v, err)
		}
		own.mountpoint = ""
	}
	if own.disk == nil {
		return nil
	}
	if err := errors.Join(own.disk.flush(), detachLoop(ctx, own.disk.Name, own.disk.File)); err != nil {
		return fmt.Errorf("volume %s: %w", v, err)
	}
	own.disk, own.holder = nil, ""
	return nil
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}
