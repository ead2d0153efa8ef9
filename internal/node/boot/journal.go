package boot

import (
	"context"
	"io"
	"os"
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

// earlierBoots reads whether the machine booted before, as where Azure's driver extension restarted it.
// Once a boot was reported, a later one is no part of the machine's first start.
func (c *collection) earlierBoots(ctx context.Context) {
	kept, _ := os.ReadDir(c.o.under(reports)) // without the folder there is none
	for _, k := range kept {
		if k.Name() != c.who.BootID+".json" {
			return
		}
	}
	program, err := find("journalctl")
	if err != nil || !c.o.own() {
		return
	}
	var list []byte
	err = run(ctx, journalTimeout, program, []string{"--list-boots", "--utc", "--no-pager", "--quiet"}, func(out io.Reader) {
		list, _ = io.ReadAll(io.LimitReader(out, maxBootList)) // what was read counts
	})
	if s := bootsBefore(string(list), c.who.BootID); err == nil && s.Name != "" {
		s.Path = program
		c.parts = append(c.parts, wire.BootReport{Version: wire.BootReportVersion, Sources: []wire.BootSource{s}})
	}
}

const maxBootList = 64 << 10 // bytes, of some 600 boots

// bootsBefore reads what journalctl --list-boots prints, the oldest first, each as
// "-1 0123… Mon 2026-11-30 06:00:01 UTC—Mon 2026-11-30 06:09:59 UTC". No name is no such boot.
func bootsBefore(list, bootID string) (s wire.BootSource) {
	var first time.Time
	n := 0
	for line := range strings.Lines(list) {
		f := strings.Fields(line)
		if len(f) < 5 {
			continue
		}
		at, err := time.Parse(time.DateTime, f[3]+" "+f[4])
		if err != nil {
			continue // a heading
		}
		if n == 0 {
			first = at
		}
		if f[1] == strings.ReplaceAll(bootID, "-", "") {
			found := wire.BootSource{Name: wire.SourceEarlierBoots, State: wire.SourceRead,
				Detail: wire.EarlierBoots(n, wire.MicrosOf(at.Sub(first)))}
			if _, _, ok := wire.ParseEarlierBoots(found); ok {
				s = found
			}
			return s
		}
		n++
	}
	return s
}
