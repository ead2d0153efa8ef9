package hollow

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ortet/ortet/azsim"
)

// volumeDir is where v lies. Its last name is kept for people; the digest makes
// it unique.
func (s *Substrate) volumeDir(v azsim.Volume) string {
	digest := sha256.Sum256([]byte(v))
	name := []byte(path.Base(string(v)))
	for i, c := range name {
		if !strings.ContainsRune("abcdefghijklmnopqrstuvwxyz0123456789._-", rune(c)) || (i == 0 && c == '.') {
			name[i] = '_'
		}
	}
	if len(name) > 80 {
		name = name[:80]
	}
	return filepath.Join(s.volumes(), fmt.Sprintf("%s-%s", name, hex.EncodeToString(digest[:6])))
}

// Tree returns the folder of v's files, for tests and for people who look.
func (s *Substrate) Tree(v azsim.Volume) string { return s.volumeDir(v) }

// CreateVolume implements azsim.Substrate.
func (s *Substrate) CreateVolume(ctx context.Context, v azsim.Volume, from azsim.Source) (err error) {
	target := s.volumeDir(v)
	if _, err := os.Stat(target); err == nil {
		return nil
	}
	fresh, err := os.MkdirTemp(filepath.Dir(target), ".new-")
	if err != nil {
		return fmt.Errorf("create volume %s: %w", v, err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(fresh)) }()
	// The copy takes its root's mode from the source.
	content := filepath.Join(fresh, "tree")
	switch {
	case from.Volume != "":
		err = s.copyVolume(ctx, from.Volume, content)
	case from.Platform != "":
		err = tree(content).layPlatform(from.Platform)
	default:
		err = errors.Join(os.Mkdir(content, 0o755), os.Mkdir(filepath.Join(content, "lost+found"), 0o700))
	}
	if err != nil {
		return fmt.Errorf("create volume %s from %s%s: %w", v, from.Volume, from.Platform, err)
	}
	if err := os.Rename(content, target); err != nil {
		if _, statErr := os.Stat(target); statErr == nil {
			return nil // the same call, repeated at the same time, was faster
		}
		return fmt.Errorf("create volume %s: %w", v, err)
	}
	return nil
}

// DeleteVolume implements azsim.Substrate.
func (s *Substrate) DeleteVolume(_ context.Context, v azsim.Volume) error {
	home := s.volumeDir(v)
	if at, err := os.Readlink(home); err == nil {
		return fmt.Errorf("delete volume %s: it is attached, at %s", v, at)
	}
	// Renamed first, so that nobody sees half of it.
	trash, err := os.MkdirTemp(s.volumes(), ".old-")
	if err != nil {
		return fmt.Errorf("delete volume %s: %w", v, err)
	}
	err = os.Rename(home, filepath.Join(trash, "tree"))
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if err := errors.Join(err, os.RemoveAll(trash)); err != nil {
		return fmt.Errorf("delete volume %s: %w", v, err)
	}
	return nil
}

// copyVolume copies a volume, wherever it lies.
func (s *Substrate) copyVolume(ctx context.Context, from azsim.Volume, to string) error {
	s.moving.RLock()
	defer s.moving.RUnlock()
	source, err := filepath.EvalSymlinks(s.volumeDir(from))
	if err != nil {
		return err
	}
	return copyTree(ctx, source, to)
}

// copyTree copies a tree with modes, links and times, without what is mounted
// over it. Files that vanish meanwhile are left out: a running computer's disk
// is copied as it happens to be.
func copyTree(ctx context.Context, from, to string) error {
	type folder struct {
		path string
		info fs.FileInfo
	}
	var folders []folder
	err := filepath.WalkDir(from, func(p string, entry fs.DirEntry, err error) error {
		if err != nil {
			if p != from && errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		relative, err := filepath.Rel(from, p)
		if err != nil {
			return err
		}
		target := filepath.Join(to, relative)
		info, err := entry.Info()
		if err != nil {
			return ignoreAbsent(err)
		}
		switch {
		case entry.IsDir():
			if err := os.Mkdir(target, 0o700); err != nil {
				return err
			}
			// Modes and times of folders come last: writing into them needs
			// the one and changes the other.
			folders = append(folders, folder{target, info})
			if slices.Contains(mountPoints, relative) {
				return fs.SkipDir
			}
			return nil
		case info.Mode()&fs.ModeSymlink != 0:
			link, err := os.Readlink(p)
			if err != nil {
				return ignoreAbsent(err)
			}
			return os.Symlink(link, target) // #nosec G122 -- both trees are ours, and the target is new
		case info.Mode().IsRegular():
			return ignoreAbsent(copyFile(p, target, info))
		}
		return nil // sockets and pipes mean nothing without who made them
	})
	if err != nil {
		return err
	}
	for _, f := range slices.Backward(folders) {
		if err := settle(f.path, f.info); err != nil {
			return err
		}
	}
	return nil
}

func ignoreAbsent(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func copyFile(from, to string, info fs.FileInfo) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	if err := errors.Join(err, out.Close()); err != nil {
		return err
	}
	return settle(to, info)
}

func settle(p string, info fs.FileInfo) error {
	mode := info.Mode() & (fs.ModePerm | fs.ModeSetuid | fs.ModeSetgid | fs.ModeSticky)
	return errors.Join(os.Chmod(p, mode), os.Chtimes(p, info.ModTime(), info.ModTime()))
}
