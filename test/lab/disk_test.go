//go:build linux

package lab

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// volumeFile finds the file that holds the bytes of an ARM disk or snapshot, ""
// where there is none. File names begin with the resource's own.
func (m *machines) volumeFile(resource string) (string, error) {
	found, err := filepath.Glob(filepath.Join(m.dir, "volumes", strings.ToLower(path.Base(resource))+"-*.raw"))
	if err != nil {
		return "", err
	}
	switch len(found) {
	case 0:
		return "", nil
	case 1:
		return found[0], nil
	}
	return "", fmt.Errorf("several volumes are named %s: %v", resource, found)
}

// openWhenMade waits for a volume and opens it, so that its bytes can be read
// after it is deleted.
func (m *machines) openWhenMade(ctx context.Context, resource string) (*os.File, error) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		file, err := m.volumeFile(resource)
		if err != nil {
			return nil, err
		}
		if file != "" {
			return os.Open(file)
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for the volume of %s: %w", resource, ctx.Err())
		case <-tick.C:
		}
	}
}

// digest is a hash of a disk's bytes in which holes count as the zeros that they
// read as, without reading them.
func digest(f *os.File) (string, error) {
	const block = 64 << 10
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	sum := sha256.New()
	buf, zeros := make([]byte, block), make([]byte, block)
	for at := int64(0); at < info.Size(); {
		start, err := unix.Seek(int(f.Fd()), at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			break // only a hole is left
		}
		if err != nil {
			return "", err
		}
		end, err := unix.Seek(int(f.Fd()), start, unix.SEEK_HOLE)
		if err != nil {
			return "", err
		}
		for start -= start % block; start < end; start += block {
			n, err := f.ReadAt(buf, start)
			if err != nil && !errors.Is(err, io.EOF) {
				return "", err
			}
			if bytes.Equal(buf[:n], zeros[:n]) {
				continue
			}
			_ = binary.Write(sum, binary.LittleEndian, start) // a hash takes everything
			sum.Write(buf[:n])
		}
		at = max(end, start)
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// digestOf is the digest of the file at a path.
func digestOf(file string) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer f.Close()
	return digest(f)
}
