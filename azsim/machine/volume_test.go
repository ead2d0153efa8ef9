//go:build linux

package machine

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ortet/ortet/azsim"
)

func newTestStore(t *testing.T) *store {
	t.Helper()
	dir := t.TempDir()
	image := filepath.Join(dir, "image.raw")
	if err := os.WriteFile(image, bytes.Repeat([]byte("os"), 4096), 0o600); err != nil {
		t.Fatal(err)
	}
	volumes := filepath.Join(dir, "volumes")
	if err := os.Mkdir(volumes, 0o700); err != nil {
		t.Fatal(err)
	}
	return newStore(volumes, map[string]string{"debian:debian-12:12-gen2:latest": image})
}

func TestVolumes(t *testing.T) {
	s, ctx := newTestStore(t), t.Context()
	const disk, snapshot = azsim.Volume("/disks/a"), azsim.Volume("/snapshots/a")
	for range 2 {
		if err := s.create(ctx, disk, azsim.Source{Platform: "debian:debian-12:12-gen2:0.20250101.1"}); err != nil {
			t.Fatal(err)
		}
		if err := s.create(ctx, snapshot, azsim.Source{Volume: disk}); err != nil {
			t.Fatal(err)
		}
	}
	var stat unix.Stat_t
	if err := unix.Stat(s.file(snapshot), &stat); err != nil || stat.Nlink != 2 {
		t.Errorf("a copy of an idle volume has bytes of its own: %d links, %v", stat.Nlink, err)
	}
	// A larger copy must not make the source larger.
	if err := s.create(ctx, "/disks/large", azsim.Source{Volume: snapshot, SizeGB: 1}); err != nil {
		t.Fatal(err)
	}
	for v, want := range map[azsim.Volume]int64{"/disks/large": 1 << 30, snapshot: 8192, disk: 8192} {
		if info, err := os.Stat(s.file(v)); err != nil || info.Size() != want {
			t.Errorf("%s: %d bytes, want %d; %v", v, info.Size(), want, err)
		}
	}
	for range 2 {
		if err := s.delete(disk); err != nil {
			t.Fatal(err)
		}
	}
	if b, err := os.ReadFile(s.file(snapshot)); err != nil || !bytes.HasPrefix(b, []byte("osos")) {
		t.Errorf("the snapshot went with its disk: %v", err)
	}
}

func TestVolumesThatCannotBe(t *testing.T) {
	for name, from := range map[string]azsim.Source{
		"of nothing":                 {},
		"of an unknown volume":       {Volume: "/disks/none"},
		"of itself":                  {Volume: "/disks/new"},
		"of an unknown image":        {Platform: "canonical:ubuntu:22:latest"},
		"of an image without a name": {Platform: ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := newTestStore(t)
			if err := s.create(t.Context(), "/disks/new", from); err == nil {
				t.Error("was made")
			}
			if all, err := os.ReadDir(s.dir); err != nil || len(all) > 0 {
				t.Errorf("left %v, %v", all, err)
			}
		})
	}
}

func TestVolumeFiles(t *testing.T) {
	s := newTestStore(t)
	long := azsim.Volume("/subscriptions/s/" + strings.Repeat("x", 300))
	seen := map[string]bool{}
	for _, v := range []azsim.Volume{"/a/disk", "/b/disk", "/b/../etc", "/b/..", long, long + "y"} {
		file := s.file(v)
		if filepath.Dir(file) != s.dir || len(filepath.Base(file)) > 255 || seen[file] {
			t.Errorf("%s lies in %s", v, file)
		}
		seen[file] = true
	}
}

func TestConsoleKeepsItsTail(t *testing.T) {
	c, err := openConsole(filepath.Join(t.TempDir(), "console.log"))
	if err != nil {
		t.Fatal(err)
	}
	if tail, err := c.tail(); err != nil || len(tail) != 0 {
		t.Errorf("a new console says %q, %v", tail, err)
	}
	line := bytes.Repeat([]byte("x"), 1<<16-1)
	line = append(line, '\n')
	for range 7 * 16 { // 7 MiB
		if _, err := c.Write(line); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.Write([]byte("last words\n")); err != nil {
		t.Fatal(err)
	}
	tail, err := c.tail()
	if err != nil || len(tail) != consoleTail || !bytes.HasSuffix(tail, []byte("x\nlast words\n")) {
		t.Errorf("tail of %d bytes, %v", len(tail), err)
	}
	if info, err := os.Stat(c.path); err != nil || info.Size() > 5*consoleTail {
		t.Errorf("the file has %d bytes, %v", info.Size(), err)
	}
	again, err := openConsole(c.path)
	if err != nil {
		t.Fatal(err)
	}
	if now, err := again.tail(); err != nil || !bytes.Equal(now, tail) {
		t.Errorf("another tail after reopening: %v", err)
	}
}

func TestLUNLinks(t *testing.T) {
	part := blockDevice{Name: "loop3p1", Number: 1}
	for _, tc := range []struct {
		nvme bool
		want string
	}{
		{false, "disk/azure/data/by-lun/7-part1 disk/azure/scsi1/lun7-part1"},
		{true, "disk/azure/data/by-lun/7-part1"},
	} {
		if got := strings.Join(linkNames(part, lunLinks(tc.nvme, 7)), " "); got != tc.want {
			t.Errorf("NVMe %v: %s", tc.nvme, got)
		}
	}
}

func TestOneProcessPerFolder(t *testing.T) {
	dir := t.TempDir()
	_, lock, err := take(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := take(dir); !errors.Is(err, ErrInUse) {
		t.Errorf("taken twice: %v", err)
	}
	if err := lock.Close(); err != nil {
		t.Fatal(err)
	}
	_, lock, err = take(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := lock.Close(); err != nil {
		t.Error(err)
	}
}

func TestInitPID(t *testing.T) {
	for state, want := range map[string]int{`{"init_process_pid": 42}`: 42, `{}`: 0, `{`: 0, ``: 0} {
		if got := parseInitPID([]byte(state)); got != want {
			t.Errorf("%q: %d", state, got)
		}
	}
}
