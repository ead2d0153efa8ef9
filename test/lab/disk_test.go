//go:build e2e && linux

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
	"os/exec"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
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

// mounts says how often the root file system on a machine's disk was mounted to
// be written to, by its own count, and fails where the file system is not as an
// orderly end leaves it. The disk must be one that nobody writes to.
func mounts(ctx context.Context, disk *os.File) (string, error) {
	run := func(argv ...string) (string, error) {
		cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
		cmd.ExtraFiles = []*os.File{disk} // the file may have no name any more
		out, err := cmd.CombinedOutput()
		if err != nil {
			return "", fmt.Errorf("%v: %w: %s", argv, err, out)
		}
		return strings.TrimSpace(string(out)), nil
	}
	const name = "/proc/self/fd/3"
	sector, err := run("partx", "--noheadings", "--raw", "--output", "START", "--nr", "1", name)
	if err != nil {
		return "", err
	}
	start, err := strconv.ParseInt(sector, 10, 64)
	if err != nil {
		return "", fmt.Errorf("the first partition's start: %w", err)
	}
	partition := fmt.Sprintf("%s?offset=%d", name, start*512)
	if _, err := run("e2fsck", "-f", "-n", partition); err != nil {
		return "", err
	}
	head, err := run("dumpe2fs", "-h", partition)
	if err != nil {
		return "", err
	}
	return mountCount(head)
}

// mountCount finds it in what dumpe2fs prints.
func mountCount(head string) (string, error) {
	for line := range strings.Lines(head) {
		if value, found := strings.CutPrefix(line, "Mount count:"); found {
			return strings.TrimSpace(value), nil
		}
	}
	return "", fmt.Errorf("dumpe2fs says nothing of mounts: %s", head)
}

func TestDigestTakesHolesForZeros(t *testing.T) {
	const size = 1 << 20
	content := make([]byte, size)
	copy(content[300_000:], "something")
	write := func(name string, content []byte, at int64) *os.File {
		f, err := os.Create(filepath.Join(t.TempDir(), name))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = f.Close() })
		if err := f.Truncate(size); err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteAt(content, at); err != nil {
			t.Fatal(err)
		}
		return f
	}
	digests := map[string]string{}
	for name, f := range map[string]*os.File{
		"whole": write("whole", content, 0), "sparse": write("sparse", []byte("something"), 300_000),
		"moved": write("moved", []byte("something"), 300_001), "other": write("other", []byte("Something"), 300_000),
	} {
		d, err := digest(f)
		if err != nil {
			t.Fatal(err)
		}
		digests[name] = d
	}
	if digests["whole"] != digests["sparse"] {
		t.Error("the same bytes with and without holes have different digests")
	}
	if digests["moved"] == digests["sparse"] || digests["other"] == digests["sparse"] {
		t.Error("different bytes have the same digest")
	}
}
