package generalize

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/ortet/ortet/internal/wire"
)

// Nothing on the disk can make the run read, change or wait on what lies
// outside of it.
func TestHostileDisk(t *testing.T) {
	t.Parallel()
	d := newDonor(t).capz()
	outside := t.TempDir()
	secret := filepath.Join(outside, "secret")
	if err := os.WriteFile(secret, []byte("host's"), 0o644); err != nil {
		t.Fatal(err)
	}
	for link, target := range map[string]string{
		"etc/nvme":                      outside,
		"var/lib/systemd/random-seed":   secret,
		"var/lib/dbus/machine-id":       secret,
		"etc/iscsi/initiatorname.iscsi": secret,
		"var/lib/calico":                "../../../../../../../../../../" + outside,
		"var/lib/dhcp":                  outside,
		"var/crash":                     "/proc/self/root" + outside,
		"etc/fstab":                     secret,
		"swapfile":                      secret,
		"srv/loop":                      "loop",
	} {
		at := filepath.Join(d.dir, link)
		if err := os.RemoveAll(at); err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(target, at); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"hostid", "hostnqn", "nodename", "leases"} {
		if err := os.WriteFile(filepath.Join(outside, name), []byte("host's"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, fifo := range []string{"etc/kubernetes/fifo.conf", "var/log/fifo", "etc/netplan/fifo", "srv/fifo"} {
		if err := syscall.Mkfifo(filepath.Join(d.dir, fifo), 0o644); err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
	}
	// The machine's own null device, where one may be made.
	if err := syscall.Mknod(filepath.Join(d.dir, "var/lib/NetworkManager/zero"), syscall.S_IFCHR|0o666, 1<<8|5); err != nil && os.Getuid() == 0 {
		t.Logf("without a device node: %v", err)
	}
	wantOutcome(t, d.run(nil), wire.Generalized)
	for _, name := range []string{"secret", "hostid", "hostnqn", "nodename", "leases"} {
		if got, err := os.ReadFile(filepath.Join(outside, name)); err != nil || string(got) != "host's" {
			t.Errorf("%s outside the tree: %q, %v", name, got, err)
		}
	}
}
