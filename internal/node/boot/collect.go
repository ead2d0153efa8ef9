package boot

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/ortet/ortet/internal/boots/timeline/source"
	"github.com/ortet/ortet/internal/node/bootstrap"
	"github.com/ortet/ortet/internal/wire"
)

// Metadata says whether Azure's metadata service is asked.
type Metadata string

// The values of Metadata.
const (
	MetadataAuto Metadata = "auto" // where the firmware says that this is Azure
	MetadataYes  Metadata = "yes"
	MetadataNo   Metadata = "no"
)

// Options say whose boot is collected.
type Options struct {
	// Root is the node's root; "" is this system's. Of another one only its files
	// are read: nobody there can be asked.
	Root     string
	Metadata Metadata // "" is MetadataAuto
}

func (o Options) under(path string) string { return bootstrap.Under(o.Root, path) }

// own tells whether the node is this system, with programs that can be asked.
func (o Options) own() bool { return o.Root == "" || o.Root == bootstrap.DefaultRoot() }

// Cost is what collecting took: processor time, and the most memory that was
// resident at once, in bytes; children are apart, which are
// systemctl and journalctl. Zero where the system does not tell.
type Cost struct {
	CPU, ChildrenCPU   time.Duration
	Peak, ChildrenPeak int64
}

// collection gathers the reports of all sources.
type collection struct {
	o      Options
	log    *slog.Logger
	who    wire.BootReport
	parts  []wire.BootReport
	began  wire.Micros // when the machine did, on the monotonic clock
	window source.Options
	read   wire.BootSource // what was read from the OS disk; without a name: unknown
}

// Collect reads all that tells of this boot. It always gives a report, which
// wire.BootReport.Validate takes: what is missing is told in its Sources. It asks
// only, and changes nothing. now is the node's clock.
func Collect(ctx context.Context, o Options, now time.Time, log *slog.Logger) wire.BootReport {
	c := &collection{o: o, log: log}
	c.who = wire.BootReport{Version: wire.BootReportVersion, At: now.UTC()}
	c.who.Node, c.who.VMID, c.who.BootID = bootstrap.Identify(o.Root)
	if !o.own() {
		c.who.Node = "" // that is ours
	}
	c.step("disk", c.disk)
	c.step("systemd", func() { c.units(ctx) })
	if c.read.Name != "" && c.began == 0 { // a container shares its disks and their counts
		c.say(c.read.Name, c.read.Path, c.read.State, c.read.Detail)
	}
	c.frame(now)
	c.step("journal", func() { c.journal(ctx) })
	c.step("earlier boots", func() { c.earlierBoots(ctx) })
	c.step("files", c.files)
	c.step("image", c.image)
	c.step("kubelet", func() { c.kubelet(ctx) })
	c.step("metadata", func() { c.metadata(ctx) })
	r := source.Merge(append([]wire.BootReport{c.who}, c.parts...)...)
	settleSkipped(r.Units)
	return c.sinceBegan(r)
}

// settleSkipped takes the journal's times from units whose conditions were not
// met: it tells of them as if they had been started, and systemd knows that they
// were not.
func settleSkipped(units []wire.BootUnit) {
	for i := range units {
		if u := &units[i]; u.Skipped && u.Grain > 0 {
			u.Activating, u.Activated, u.Deactivating, u.Deactivated, u.Grain = 0, 0, 0, 0, 0
		}
	}
}

// step does a part, and logs what it took.
func (c *collection) step(name string, do func()) {
	before, from := Used(), time.Now()
	do()
	after := Used()
	c.log.Debug("collected", "source", name, "took", time.Since(from).Round(time.Microsecond), "cpu", after.CPU-before.CPU, "childrensCPU", after.ChildrenCPU-before.ChildrenCPU)
}

// say tells what became of a source that no reader told of.
func (c *collection) say(name, path string, state wire.SourceState, why string) {
	c.parts = append(c.parts, wire.BootReport{Version: wire.BootReportVersion, Sources: []wire.BootSource{{Name: name, Path: path, State: state, Detail: why}}})
}

func (c *collection) units(ctx context.Context) {
	if !c.o.own() {
		c.say("systemd", showCommand, wire.SourceMissing, "the node's root is another than this system's, whose systemd is not asked")
		return
	}
	if _, err := os.Stat("/run/systemd/system"); err != nil {
		c.say("systemd", showCommand, wire.SourceMissing, "this system was not started by systemd")
		return
	}
	r, err := readSystemd(ctx)
	s := &r.Sources[0]
	switch {
	case err != nil && len(r.Units) > 0:
		s.State, s.Detail = wire.SourcePartial, err.Error()
	case err != nil:
		s.State, s.Detail = wire.SourceMissing, err.Error()
	case r.System.Finish == 0:
		s.State, s.Detail = wire.SourcePartial, "the start has not finished: not all of its jobs are done"
	case r.System.Container:
		s.Detail = "in a container: its boot begins with systemd's start"
	}
	if r.System.Container {
		c.began = r.System.Userspace
	}
	if now, ok := readClocks(); ok {
		r.Clocks = append(r.Clocks, now)
	}
	c.parts = append(c.parts, r)
}

// earlier is by how much before the boot's begin its first times are looked for:
// the machine's clock may have been set since.
const earlier = time.Minute

// frame says which times of the day are of this boot.
func (c *collection) frame(now time.Time) {
	c.window = source.Options{BootID: c.who.BootID, Bytes: maxLog, Until: now.Add(time.Second)}
	up := bootstrap.Uptime(c.o.Root)
	if up > 0 {
		c.window.Since = now.Add(-up).Add(-earlier)
	}
	var first *wire.ClockReading
	for i := range c.parts {
		for k := range c.parts[i].Clocks {
			if r := &c.parts[i].Clocks[k]; first == nil || r.Monotonic < first.Monotonic {
				first = r
			}
		}
	}
	if first == nil {
		return
	}
	// By the clock as it was then.
	if then := time.UnixMicro(int64(first.Wall - (first.Monotonic - c.began))); c.window.Since.IsZero() || c.began > 0 || then.Before(c.window.Since) {
		c.window.Since = then
	}
}

// sinceBegan leaves out of a container's report what the kernel said before.
func (c *collection) sinceBegan(r wire.BootReport) wire.BootReport {
	kept := r.Spans[:0]
	for _, s := range r.Spans {
		if s.Clock != wire.ClockMonotonic || s.Start >= c.began {
			kept = append(kept, s)
		}
	}
	r.Spans = kept
	if len(kept) == 0 {
		r.Spans = nil
	}
	return r
}

// missing is why a file was not read.
func missing(err error) string {
	if os.IsNotExist(err) {
		return "no such file"
	}
	return fmt.Sprint(err)
}
