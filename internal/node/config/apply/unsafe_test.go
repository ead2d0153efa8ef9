package apply

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/ortet/ortet/internal/nodeconfig"
	"github.com/ortet/ortet/internal/wire"
)

// A file below a folder that a user can lead to root's is refused by name, at once with
// others; nothing is written, and a corrected document is applied.
func TestHole03UsersFolderIsRefusedByName(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("NOT TESTED with a user's folder: another owner needs root; files.TestHole03OnlyRootLeadsElsewhere has the rule")
	}
	w := newWorld(t)
	const user = 65534
	for link, target := range map[string]string{"conf.d": "/etc/sudoers.d", "units": "/etc/systemd/system/kubelet.service.d", "ssh": "/root/.ssh"} {
		at := filepath.Join(w.root, "var/lib/app", link)
		if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), os.MkdirAll(filepath.Join(w.root, target), 0o755), os.Symlink(target, at), os.Lchown(at, user, user), os.Chown(filepath.Dir(at), user, user)); err != nil {
			t.Fatal(err)
		}
	}
	c := motd("next")
	for _, name := range []string{"/var/lib/app/conf.d/x", "/var/lib/app/ssh/authorized_keys"} {
		c.Files = append(c.Files, nodeconfig.File{Path: name, Content: "x"})
	}
	w.did(w.bad(1, c, wire.ConfigurationFailed, wire.ReasonInvalid, "/var/lib/app/conf.d/x", "/var/lib/app/ssh/authorized_keys", "belongs to user 65534"))
	c.Files[1].Path = "/var/lib/app/units/x"
	w.did(w.bad(2, c, wire.ConfigurationFailed, wire.ReasonInvalid, "/var/lib/app/units/x"))
	for _, name := range []string{"/etc/sudoers.d/x", "/root/.ssh/authorized_keys", "/etc/systemd/system/kubelet.service.d/x", "/etc/motd"} {
		if got := w.read(name); got != "" {
			t.Errorf("%s was written: %q", name, got)
		}
	}
	c = motd("next")
	c.Files = append(c.Files, nodeconfig.File{Path: "/var/lib/app/x", Content: "x"})
	w.good(3, c)
	w.good(4, nodeconfig.Config{})
}
