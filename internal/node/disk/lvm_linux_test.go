package disk

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ortet/ortet/internal/node/tree"
)

// withVolumes puts a volume group with the given logical volumes (name → first
// extent and count, of 4 MiB) on a loop device. The metadata is written by LVM's
// own vgcfgrestore, which needs no device mapper.
func withVolumes(t *testing.T, loop string, volumes map[string][][2]int) {
	t.Helper()
	quiet := "devices{scan=\"/dev\" use_devicesfile=0} global{use_lvmlockd=0} backup{backup=0 archive=0}"
	command(t, "", "pvcreate", "-q", "-f", "--config", quiet, loop)
	command(t, "", "vgcreate", "-q", "--config", quiet, "ortet-test", loop)
	file := filepath.Join(t.TempDir(), "metadata")
	command(t, "", "vgcfgbackup", "-q", "--config", quiet, "-f", file, "ortet-test")
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var lvs strings.Builder
	lvs.WriteString("logical_volumes {\n")
	n := 0
	for name, segments := range volumes {
		n++
		fmt.Fprintf(&lvs, "%s {\nid = \"%06d-0000-0000-0000-0000-0000-000000\"\nstatus = [\"READ\", \"WRITE\", \"VISIBLE\"]\nsegment_count = %d\n", name, n, len(segments))
		at := 0
		for i, s := range segments {
			fmt.Fprintf(&lvs, "segment%d {\nstart_extent = %d\nextent_count = %d\ntype = \"striped\"\nstripe_count = 1\nstripes = [\n\"pv0\", %d\n]\n}\n", i+1, at, s[1], s[0])
			at += s[1]
		}
		lvs.WriteString("}\n")
	}
	lvs.WriteString("}\n")
	end := regexp.MustCompile(`(?s)\n}\s*$`).FindIndex(data)
	if end == nil {
		t.Fatalf("unexpected metadata: %s", data)
	}
	edited := string(data[:end[0]]) + "\n" + lvs.String() + "}\n"
	if err := os.WriteFile(file, []byte(edited), 0o600); err != nil {
		t.Fatal(err)
	}
	command(t, "", "vgcfgrestore", "-q", "-f", file, "--config", quiet, "ortet-test")
}

// A system on LVM, as Red Hat's images have it, is reached without activating
// anything, and volumes that its fstab names are there.
func TestLVM(t *testing.T) {
	if !ownNamespace(t) {
		return
	}
	for _, tool := range []string{"pvcreate", "vgcfgrestore"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("NOT TESTED with LVM: %s is not installed", tool)
		}
	}
	image := filepath.Join(t.TempDir(), "image")
	if err := errors.Join(os.WriteFile(image, nil, 0o600), os.Truncate(image, 96<<20)); err != nil {
		t.Fatal(err)
	}
	loop := attach(t, image, 0)
	// Two segments that follow each other are one piece.
	withVolumes(t, loop, map[string][][2]int{"rootlv": {{0, 4}, {4, 4}}, "var-lv": {{10, 6}}})
	const start = 1 << 20 // LVM's default alignment
	volume := func(first, count int) string {
		l := command(t, "", "losetup", "-f", "--show", "-o", fmt.Sprint(start+first<<22), "--sizelimit", fmt.Sprint(count<<22), image)
		t.Cleanup(func() { _ = exec.Command("losetup", "-d", l).Run() })
		return l
	}
	fill := func(device string, files map[string]string) {
		command(t, "", "mkfs.ext4", "-q", device)
		dir := mountAt(t, device, "ext4")
		write(t, dir, files)
		if err := unix.Unmount(dir, 0); err != nil {
			t.Fatal(err)
		}
		command(t, "", "losetup", "-d", device)
	}
	fill(volume(0, 8), map[string]string{"etc/os-release": "x", "etc/fstab": "/dev/mapper/ortet--test-var--lv /var ext4 defaults 0 2\n", "var/.keep": ""})
	fill(volume(10, 6), map[string]string{"lib/x": "on the other volume"})

	r := realRequest(hostWith(t, loop))
	worked := false
	r.Work = func(tr *tree.Tree) error {
		worked = true
		if got, err := tr.ReadFile("/var/lib/x", 100); err != nil || string(got) != "on the other volume" {
			t.Errorf("/var: %q, %v", got, err)
		}
		_, err := tr.Remove("/var/lib/x")
		return err
	}
	if err := With(t.Context(), r); err != nil || !worked {
		t.Fatalf("%v, worked: %v", err, worked)
	}
	idle(t, loop)
	dir := mountAt(t, volume(10, 6), "ext4")
	if _, err := os.Stat(dir + "/lib/x"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the change did not reach the volume: %v", err)
	}
}

func TestScatteredVolumesAreRefused(t *testing.T) {
	if !ownNamespace(t) {
		return
	}
	if _, err := exec.LookPath("vgcfgrestore"); err != nil {
		t.Skip("NOT TESTED with LVM: vgcfgrestore is not installed")
	}
	image := filepath.Join(t.TempDir(), "image")
	if err := errors.Join(os.WriteFile(image, nil, 0o600), os.Truncate(image, 64<<20)); err != nil {
		t.Fatal(err)
	}
	loop := attach(t, image, 0)
	withVolumes(t, loop, map[string][][2]int{"rootlv": {{0, 4}, {8, 4}}})
	refusal := (*RefusedError)(nil)
	if err := With(t.Context(), realRequest(hostWith(t, loop))); !errors.As(err, &refusal) || !strings.Contains(err.Error(), "ortet-test/rootlv") {
		t.Fatalf("error %v, want a refusal that names the volume", err)
	}
	idle(t, loop)
}
