package hollow_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/ortet/ortet/azsim"
	"github.com/ortet/ortet/azsim/hollow"
)

const image = "canonical:ubuntu-24_04-lts:server:24.04.202610010"

func paper(t *testing.T) *hollow.Substrate {
	t.Helper()
	s, err := hollow.New(hollow.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func create(t *testing.T, s *hollow.Substrate, v azsim.Volume, from azsim.Source) string {
	t.Helper()
	for range 2 { // the second changes nothing
		if err := s.CreateVolume(t.Context(), v, from); err != nil {
			t.Fatal(err)
		}
	}
	return s.Tree(v)
}

func TestCopyKeepsModesLinksAndTimes(t *testing.T) {
	s := paper(t)
	from := create(t, s, "/disks/a", azsim.Source{})
	then := time.Date(2020, 2, 3, 4, 5, 6, 0, time.UTC)
	write := func(name string, mode fs.FileMode) {
		t.Helper()
		p := filepath.Join(from, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(p, mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(p, then, then); err != nil {
			t.Fatal(err)
		}
	}
	write("etc/shadow", 0o640)
	write("usr/bin/su", 0o755|fs.ModeSetuid)
	write("dev/null", 0o644)
	write("var/dev/kept", 0o400)
	if err := os.Symlink("/etc/machine-id", filepath.Join(from, "var/link")); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(from, "var/dev"), 0o500); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Chmod(filepath.Join(from, "var/dev"), 0o700) })
	if err := os.Chtimes(filepath.Join(from, "etc"), then, then); err != nil {
		t.Fatal(err)
	}

	to := create(t, s, "/disks/b", azsim.Source{Volume: "/disks/a"})
	t.Cleanup(func() { _ = os.Chmod(filepath.Join(to, "var/dev"), 0o700) })
	for name, mode := range map[string]fs.FileMode{
		"etc/shadow": 0o640, "usr/bin/su": 0o755 | fs.ModeSetuid, "var/dev/kept": 0o400, "var/dev": 0o500 | fs.ModeDir,
	} {
		info, err := os.Lstat(filepath.Join(to, name))
		if err != nil {
			t.Error(err)
			continue
		}
		if info.Mode() != mode {
			t.Errorf("%s has mode %v, want %v", name, info.Mode(), mode)
		}
		if !info.IsDir() && !info.ModTime().Equal(then) {
			t.Errorf("%s is of %v", name, info.ModTime())
		}
	}
	if info, err := os.Stat(filepath.Join(to, "etc")); err != nil || !info.ModTime().Equal(then) {
		t.Errorf("folder's time: %v (%v)", info.ModTime(), err)
	}
	if link, err := os.Readlink(filepath.Join(to, "var/link")); err != nil || link != "/etc/machine-id" {
		t.Errorf("link to %q (%v)", link, err)
	}
	if entries, err := os.ReadDir(filepath.Join(to, "dev")); err != nil || len(entries) != 0 {
		t.Errorf("what is mounted on /dev was copied: %v (%v)", entries, err)
	}
	if err := os.WriteFile(filepath.Join(to, "etc/shadow"), []byte("changed"), 0o640); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(filepath.Join(from, "etc/shadow")); err != nil || string(got) != "etc/shadow" {
		t.Errorf("the source changed with its copy: %q (%v)", got, err)
	}
}

func TestVolumeErrors(t *testing.T) {
	s := paper(t)
	if err := s.CreateVolume(t.Context(), "/disks/b", azsim.Source{Volume: "/disks/absent"}); err == nil {
		t.Error("a copy of nothing was made")
	}
	if _, err := os.Stat(s.Tree("/disks/b")); err == nil {
		t.Error("a failed creation left a volume")
	}
	if err := s.CreateVolume(t.Context(), "/disks/c", azsim.Source{Platform: "ubuntu"}); err == nil {
		t.Error("an image without publisher was taken")
	}
	create(t, s, "/disks/d", azsim.Source{})
	for range 2 {
		if err := s.DeleteVolume(t.Context(), "/disks/d"); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Stat(s.Tree("/disks/d")); err == nil {
		t.Error("a deleted volume is there")
	}
	left, err := filepath.Glob(filepath.Join(filepath.Dir(s.Tree("/x")), ".*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v (%v)", left, err)
	}
}

// Without a cluster computers run all the same.
func TestBootWithoutCluster(t *testing.T) {
	s := paper(t)
	c := azsim.Computer{ID: "/vm/0", ResourceID: "/vm/0", VMID: "v", HostName: "host0", OSDisk: "/disks/os", Provision: true}
	if err := s.Boot(t.Context(), c); err == nil {
		t.Error("booted without a disk")
	}
	root := create(t, s, "/disks/os", azsim.Source{Platform: "debian:debian-12:12-gen2:latest"})
	if err := s.Boot(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(filepath.Join(root, "etc/hostname")); err != nil || string(got) != "host0\n" {
		t.Errorf("host name %q (%v)", got, err)
	}
	// D-Bus' copy of the id comes back when the other is emptied.
	id, err := os.ReadFile(filepath.Join(root, "etc/machine-id"))
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []error{
		s.Shutdown(t.Context(), c.ID, true), s.Shutdown(t.Context(), c.ID, true),
		os.Remove(filepath.Join(root, "var/lib/dbus/machine-id")), os.WriteFile(filepath.Join(root, "var/lib/dbus/machine-id"), id, 0o644),
		os.Remove(filepath.Join(root, "etc/machine-id")), s.Boot(t.Context(), c),
	} {
		if step != nil {
			t.Fatal(step)
		}
	}
	if got, err := os.ReadFile(filepath.Join(root, "etc/machine-id")); err != nil || string(got) != string(id) {
		t.Errorf("machine-id %q (%v), want D-Bus' %q", got, err, id)
	}
}

// A disk that was attached when the process died is there for the next one.
func TestAttachedDiskSurvivesDeath(t *testing.T) {
	dir := t.TempDir()
	start := func() *hollow.Substrate {
		t.Helper()
		s, err := hollow.New(hollow.Config{Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
		return s
	}
	s := start()
	create(t, s, "/disks/os", azsim.Source{Platform: image})
	data := create(t, s, "/disks/data", azsim.Source{})
	if err := os.WriteFile(filepath.Join(data, "precious"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	c := azsim.Computer{ID: "/vm/0", ResourceID: "/vm/0", VMID: "v", HostName: "host0", OSDisk: "/disks/os", Provision: true, DataDisks: map[int32]azsim.Volume{3: "/disks/data"}}
	if err := s.Boot(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(s.Tree("/disks/os"), "dev/disk/azure/scsi1/lun3/precious")); err != nil {
		t.Errorf("at its LUN: %v", err)
	}
	create(t, s, "/disks/copy", azsim.Source{Volume: "/disks/data"})
	again := start()
	for _, v := range []azsim.Volume{"/disks/data", "/disks/copy"} {
		if _, err := os.Stat(filepath.Join(again.Tree(v), "precious")); err != nil {
			t.Errorf("%s: %v", v, err)
		}
	}
	if info, err := os.Lstat(again.Tree("/disks/data")); err != nil || !info.IsDir() {
		t.Errorf("the disk is not where it belongs: %v (%v)", info, err)
	}
	if err := again.DeleteVolume(t.Context(), "/disks/os"); err != nil {
		t.Error(err)
	}
}
