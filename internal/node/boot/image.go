package boot

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ortet/ortet/internal/node/generalize/tune"
	disk "github.com/ortet/ortet/internal/node/tree"
	"github.com/ortet/ortet/internal/wire"
)

const maxPublicKey = 16 << 10

// image reads what a capture's tunings left on the disk, and the public SSH host keys.
func (c *collection) image() {
	t, err := disk.Open(c.o.under("/"))
	if err != nil {
		c.say(wire.SourceTuning, "/"+tune.List, wire.SourceMissing, missing(err))
		return
	}
	defer func() { _ = t.Close() }() // it was only read
	c.baked(t)
	files, err := tune.Read(t)
	if err != nil {
		c.say(wire.SourceTuning, "/"+tune.List, wire.SourcePartial, err.Error())
	}
	for _, f := range files {
		if state, err := f.State(t); err == nil {
			c.say(wire.SourceTuning, "/"+f.Path, state, f.Tuning)
		}
	}
	keys, err := t.Glob("/etc/ssh/ssh_host_*_key.pub")
	if err != nil || len(keys) == 0 {
		c.say(wire.SourceSSHHostKey, "/etc/ssh", wire.SourceMissing, "")
	}
	for _, at := range keys {
		text, err := t.ReadFile(at, maxPublicKey)
		if key := wire.SSHHostKey(string(text)); err == nil && key != "" {
			c.say(wire.SourceSSHHostKey, "/"+at, wire.SourceRead, key)
		}
	}
}

// baked reports a clone whose customData is the no-op of --bootstrap baked, if the gate of kubelet-early
// (tune/early.sh) would let its kubelet start before cloud-init's network stage. That the disk was made
// larger cannot be seen any more.
func (c *collection) baked(t *disk.Tree) {
	ancestry, _ := t.Lstat("var/log/ancestry.log") // a capture writes it on each clone
	user, err := t.ReadFile("var/lib/cloud/instance/user-data.txt", maxPublicKey)
	if ancestry == nil || err != nil || strings.TrimSpace(string(user)) != "#cloud-config" {
		return
	}
	mounts, _ := readSmall(c.o.under("/proc/self/mountinfo"))
	number, btrfs := rootDevice(mounts)
	block := func(name ...string) string {
		return filepath.Join(c.o.under("/sys/class/block"), filepath.Join(name...))
	}
	missing := func(path string) bool { _, err := os.Stat(path); return err != nil }
	own := ""
	if dir, err := filepath.EvalSymlinks(c.o.under("/sys/dev/block/" + number)); err == nil && !missing(filepath.Join(dir, "partition")) {
		own = filepath.Base(filepath.Dir(dir))
	}
	sd, _ := filepath.Glob(c.o.under("/dev/sd*"))
	nvme, _ := filepath.Glob(c.o.under("/dev/nvme*n*"))
	other := func(path string) bool {
		name := filepath.Base(path)
		return !missing(block(name)) && missing(block(name, "partition")) && name != own
	}
	if number != "" && !btrfs && !slices.ContainsFunc(slices.Concat(sd, nvme), other) {
		c.say(wire.SourceBaked, "", wire.SourceRead, "")
	}
}
