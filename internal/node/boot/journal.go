package boot

import (
	"context"
	"io"
	"strings"
	"time"

	"github.com/ortet/ortet/internal/boots/timeline/source"
	"github.com/ortet/ortet/internal/wire"
)

const (
	journalTimeout = 20 * time.Second
	maxJournal     = 32 << 20 // bytes of what journalctl prints
)

// journalFields are those that source.Journal reads.
func journalFields() string {
	return strings.Join([]string{"_BOOT_ID", "MESSAGE_ID", "UNIT", "MESSAGE", "SYSLOG_IDENTIFIER", "_SYSTEMD_UNIT", "_HOSTNAME",
		"UNIT_RESULT", "JOB_RESULT", "_SOURCE_REALTIME_TIMESTAMP", "KERNEL_USEC", "INITRD_USEC", "USERSPACE_USEC"}, ",")
}

// journalSpeakers are whose messages it knows; systemd's own are among them by
// its name. cloud-init's tell of package managers that wait for their locks.
func journalSpeakers() []string {
	var all []string
	for _, name := range []string{"systemd", "kernel", "systemd-networkd", "dhclient", "NetworkManager", "dhcpcd", "containerd", "kubelet",
		"cloud-init", "apt-helper", "apt.systemd.daily", "unattended-upgr"} {
		all = append(all, "SYSLOG_IDENTIFIER="+name)
	}
	// Who sets the clock has another name in each version.
	return append(all, "+", "MESSAGE_ID=c7a787079b354eaaa9e77b371893cd27",
		"+", "_SYSTEMD_UNIT=ortet-boot.service") // which speaks as python3
}

// journal has journalctl print this boot's entries, and reads them as they come.
func (c *collection) journal(ctx context.Context) {
	const name = "journal"
	if !c.o.own() {
		c.say(name, "", wire.SourceMissing, "the node's root is another than this system's: give its journal's export to ortet boot analyze")
		return
	}
	program, err := find("journalctl")
	if err != nil {
		c.say(name, "", wire.SourceMissing, err.Error())
		return
	}
	o := c.window
	o.Path, o.Bytes = "", maxJournal
	args := append([]string{"--boot", "--no-pager", "--quiet", "--output=export", "--output-fields=" + journalFields()}, journalSpeakers()...)
	read := false
	err = run(ctx, journalTimeout, program, args, func(out io.Reader) {
		c.parts, read = append(c.parts, source.Journal(out, o)...), true
	})
	switch {
	case !read:
		c.say(name, program, wire.SourceMissing, err.Error())
	case err != nil: // what was read counts
		c.log.Debug("journalctl did not end well", "error", err)
	}
}
