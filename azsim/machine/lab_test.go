//go:build linux

package machine

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ortet/ortet/azsim"
)

// labImage is the disk image that hack/lab/rootfs.sh made, or the reason aloud
// why this test cannot run here.
func labImage(t *testing.T) string {
	t.Helper()
	image := os.Getenv("ORTET_LAB_IMAGE")
	if image == "" || os.Getenv("ORTET_LAB") != "1" {
		t.Skip("NOT RUN: real machines need root on Debian, ORTET_LAB=1, and ORTET_LAB_IMAGE, the path that hack/lab/rootfs.sh prints")
	}
	return image
}

// labDir is a test's folder. Its name is the same in every run, so that the next
// run takes away what a killed one left.
func labDir(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(os.TempDir(), "ortet-machine-"+t.Name())
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

func newLab(t *testing.T, frontends ...Frontend) *Substrate {
	t.Helper()
	return newLabOf(t, Config{Images: map[string]string{"*": labImage(t)}, Frontends: frontends})
}

// newLabOf adds the folder and the log.
func newLabOf(t *testing.T, config Config) *Substrate {
	t.Helper()
	config.Dir, config.Log = labDir(t), slog.New(slog.NewTextHandler(testWriter{t}, nil))
	s, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return s
}

type testWriter struct{ t *testing.T }

func (w testWriter) Write(p []byte) (int, error) {
	w.t.Log(strings.TrimSpace(string(p)))
	return len(p), nil
}

// pool makes descriptions of computers as a scale set's instances are.
func instance(n int) azsim.Computer {
	id := fmt.Sprintf("/subscriptions/s/resourcegroups/rg/providers/microsoft.compute/virtualmachinescalesets/pool1/virtualmachines/%d", n)
	return azsim.Computer{
		ID:         id,
		ResourceID: id,
		VMID:       fmt.Sprintf("00000000-0000-4000-8000-%012d", n),
		Name:       fmt.Sprintf("pool1_%d", n),
		HostName:   fmt.Sprintf("pool1%06d", n),
		ScaleSet:   "pool1",
		Location:   "westeurope",
		OSDisk:     azsim.Volume(fmt.Sprintf("/disks/pool1_%d_osdisk", n)),
		CustomData: []byte("#cloud-config\nwrite_files:\n- {path: /etc/pool, content: from custom data}\nruncmd:\n- [touch, /var/lib/runcmd-ran]\n"),
		Provision:  true,

		AdminUsername: "azureuser",
		SSHKeys:       []string{"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBbb test"},
		IMDS: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = fmt.Fprintf(w, `{"compute":{"resourceId":%q,"location":"westeurope","zone":"1","name":"pool1_%d"}}`, id, n)
		}),
	}
}

func boot(ctx context.Context, t *testing.T, s *Substrate, c azsim.Computer, from azsim.Source) {
	t.Helper()
	if c.Provision {
		if err := s.CreateVolume(ctx, c.OSDisk, from); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	if err := s.Boot(ctx, c); err != nil {
		t.Fatal(err)
	}
}

func command(ctx context.Context, t *testing.T, s *Substrate, id string, argv ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	out, err := s.Exec(ctx, id, nil, argv...)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

func TestMachineBoots(t *testing.T) {
	s, ctx := newLab(t), t.Context()
	c := instance(1)
	boot(ctx, t, s, c, azsim.Source{Platform: "debian:debian-12:12-gen2:latest"})
	for _, tc := range []struct{ command, want string }{
		{"hostname", c.HostName},
		{"cat /etc/hostname", c.HostName},
		{"cat /etc/pool", "from custom data"},
		{"test -e /var/lib/runcmd-ran && echo ran", "ran"},
		{"stat -c %s /etc/machine-id", "33"},
		{"cat /sys/class/dmi/id/product_uuid", c.VMID},
		{"cat /sys/class/net/eth0/operstate", "up"},
		{"getent hosts " + c.HostName + " | awk '{print $2}'", c.HostName + "." + domain},
		{"getent hosts registry.mine.example || echo unknown", "unknown"},
		{"ls /etc/ssh/ssh_host_ed25519_key", "/etc/ssh/ssh_host_ed25519_key"},
		{"curl -s -H Metadata:true http://169.254.169.254/metadata/instance | grep -c pool1_1", "1"},
		{"grep -c '<CustomData>' /var/lib/waagent/ovf-env.xml", "1"},
		{"grep -c AAAAIBbb /home/azureuser/.ssh/authorized_keys", "1"},
		{"for l in /dev/disk/by-label/*; do test -b $l || echo no $l; done", ""},
		{"systemctl list-units --failed --plain --no-legend", ""},
	} {
		if got := command(ctx, t, s, c.ID, "sh", "-c", tc.command); got != tc.want {
			t.Errorf("%s: got %q, want %q", tc.command, got, tc.want)
		}
	}
	log, err := s.Console(ctx, c.ID)
	if err != nil || !strings.Contains(string(log), "Cloud-init") {
		t.Errorf("console: %v: %s", err, log)
	}
	if os.Getenv("ORTET_LAB_SHELL") != "" {
		t.Log(command(ctx, t, s, c.ID, "sh", "-c", os.Getenv("ORTET_LAB_SHELL")))
	}
	if err := s.Shutdown(ctx, c.ID, true); err != nil {
		t.Fatal(err)
	}
}
