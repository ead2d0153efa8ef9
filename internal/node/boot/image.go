package boot

import (
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
