package boot

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/ortet/ortet/internal/timeline/source"
	"github.com/ortet/ortet/internal/wire"
)

const (
	journalTimeout = 20 * time.Second
	maxJournal     = 32 << 20 // bytes of what journalctl prints
)

// journalFields are those that source.Journal reads.
func journalFields() string {
	return strings.Join([]string{"_BOOT_ID", "MESSAGE_ID", "UNIT", "MESSAGE", "SYSLOG_IDENTIFIER", "_HOSTNAME", "UNIT_RESULT", "JOB_RESULT",
		"_SOURCE_REALTIME_TIMESTAMP", "KERNEL_USEC", "INITRD_USEC", "USERSPACE_USEC"}, ",")
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
	return append(all, "+", "MESSAGE_ID=c7a787079b354eaaa9e77b371893cd27")
}

// journal has journalctl print this boot's entries, and reads them as they come.
func (c *collection) journal(ctx context.Context) {
	const name = "journal"
	if !c.o.own() {
		c.say(name, "", wire.SourceMissing, "the node's root is another than this system's: give its journal's export to ortet boot analyze")
		return
	}
	program := ""
	for _, p := range []string{"/usr/bin/journalctl", "/bin/journalctl"} {
		if info, err := os.Stat(p); err == nil && info.Mode().IsRegular() {
			program = p
			break
		}
	}
	if program == "" {
		c.say(name, "", wire.SourceMissing, "there is no journalctl")
		return
	}
	ctx, cancel := context.WithTimeout(ctx, journalTimeout)
	defer cancel()
	args := append([]string{"--boot", "--no-pager", "--quiet", "--output=export", "--output-fields=" + journalFields()}, journalSpeakers()...)
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = []string{"LC_ALL=C.UTF-8", "SYSTEMD_COLORS=0"}
	cmd.WaitDelay = time.Second
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		c.say(name, program, wire.SourceMissing, fmt.Sprintf("running %s: %v", program, err))
		return
	}
	o := c.window
	o.Path, o.Bytes = "", maxJournal
	reports := source.Journal(out, o)
	// What was read counts; of more than is read it would wait for ever.
	cancel()
	err = cmd.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) && !errors.Is(err, context.Canceled) {
		c.log.Debug("journalctl did not end well", "error", err)
	}
	c.parts = append(c.parts, reports...)
}
