//go:build linux

package machine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// copyChunk bounds how long a copy goes on after its context ended.
const copyChunk = 64 << 20

// copySparse makes to a copy of from, of at least size bytes, with holes where
// from has holes; data is shared where the file system can (reflink). The copy
// appears under its name only when it is whole.
func copySparse(ctx context.Context, from, to string, size int64) (err error) {
	src, err := os.Open(from)
	if err != nil {
		return err
	}
	defer src.Close()
	info, err := src.Stat()
	if err != nil {
		return err
	}
	part := to + ".part"
	dst, err := os.OpenFile(part, os.O_CREATE|os.O_TRUNC|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if cerr := dst.Close(); err == nil {
			err = cerr
		}
		if err == nil {
			err = os.Rename(part, to)
		}
		if err != nil {
			err = errors.Join(fmt.Errorf("copy %s to %s: %w", from, to, err), removeIfThere(part))
		}
	}()
	if unix.IoctlFileClone(int(dst.Fd()), int(src.Fd())) != nil {
		if err := copyExtents(ctx, src, dst, info.Size()); err != nil {
			return err
		}
	}
	return dst.Truncate(max(size, info.Size()))
}

// copyExtents copies what is not a hole in the first size bytes.
func copyExtents(ctx context.Context, src, dst *os.File, size int64) error {
	for at := int64(0); at < size; {
		start, err := unix.Seek(int(src.Fd()), at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			return nil // only a hole is left
		}
		if err != nil {
			return fmt.Errorf("find data: %w", err)
		}
		end, err := unix.Seek(int(src.Fd()), start, unix.SEEK_HOLE)
		if err != nil {
			return fmt.Errorf("find the end of data: %w", err)
		}
		for start < end {
			if err := ctx.Err(); err != nil {
				return err
			}
			n, err := copyRange(src, dst, start, min(end-start, copyChunk))
			if err != nil {
				return err
			}
			if n == 0 {
				return io.ErrUnexpectedEOF
			}
			start += n
		}
		at = end
	}
	return nil
}

func copyRange(src, dst *os.File, at, length int64) (int64, error) {
	in, out := at, at
	n, err := unix.CopyFileRange(int(src.Fd()), &in, int(dst.Fd()), &out, int(length), 0)
	if err == nil {
		return int64(n), nil
	}
	// Between file systems, or where one of them cannot.
	if !errors.Is(err, unix.EXDEV) && !errors.Is(err, unix.EOPNOTSUPP) && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOSYS) {
		return 0, err
	}
	return io.Copy(io.NewOffsetWriter(dst, at), io.NewSectionReader(src, at, length))
}

func removeIfThere(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}
