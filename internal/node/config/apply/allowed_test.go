package apply

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/ortet/ortet/internal/nodeconfig"
	"github.com/ortet/ortet/internal/wire"
)

// A document that another program signed: the node has the list of ortet config validate,
// names all that is refused, and changes nothing.
func TestHole04NodeRefusesWhatValidateRefuses(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.write("/etc/motd", "image")
	for link, target := range map[string]string{"usr/local/tools": "bin", "srv/etc": "/etc"} {
		at := filepath.Join(w.root, link)
		if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), os.MkdirAll(filepath.Join(w.root, "usr/local/bin"), 0o755), os.Symlink(target, at)); err != nil {
			t.Fatal(err)
		}
	}
	c := motd("next")
	names := []string{"/usr/local/bin/ortet-node", "/etc/shadow", "/etc/fstab", "/usr/bin/kubelet", "/bin/kubelet", "/etc/kubernetes/azure.json",
		"/usr/local/tools/ortet-node", "/srv/etc/shadow"} // by the machine's own links
	for _, name := range names {
		c.Files = append(c.Files, nodeconfig.File{Path: name})
	}
	w.did(w.bad(1, c, wire.ConfigurationFailed, wire.ReasonInvalid, names...))
	c = motd("next")
	c.Files[0].Restart = []string{"ortet-config"}
	c.Kubelet = map[string]any{"staticPodURL": "https://pods.example", "healthzPort": 1}
	c.Units = []nodeconfig.Unit{
		{Name: "ortet-config.service", DropIns: []nodeconfig.DropIn{{Name: "a.conf", Content: "[Service]\n"}}},
		{Name: "kubelet.service", DropIns: []nodeconfig.DropIn{{Name: "a.conf", Content: "[Service]\nExecStart=\nExecStart=/bin/true\n"}}},
		{Name: "app.service", Enabled: no(), Content: "[Install]\nAlias=app2.service\nAlso=kubelet.service\n"},
	}
	w.did(w.bad(1, c, wire.ConfigurationFailed, wire.ReasonInvalid, "restart: ortet-config", "kubelet: staticPodURL", "kubelet: healthzPort", "unit ortet-config.service", "unit kubelet.service", "unit app.service"))
	if got := w.read("/etc/motd"); got != "image" {
		t.Errorf("a file beside them was written: %q", got)
	}
}
