package source

import (
	"io"
	"strings"

	"github.com/ortet/ortet/internal/wire"
)

const sourceCloudInit = "cloud-init"

// maxOpen bounds how many spans may be open at once.
const maxOpen = 1024

// stageNames are cloud-init's names of its stages in its log, and those of their spans, as
// in `cloud-init analyze`. Source: cloud-init, cloudinit/cmd/main.py and analyze/dump.py.
var stageNames = [...][2]string{
	{"init-local", "init-local"},
	{"init", "init-network"},
	{"init-network", "init-network"},
	{"modules:init", "modules-init"},
	{"modules:config", "modules-config"},
	{"modules:final", "modules-final"},
	{"modules-config", "modules-config"},
	{"modules-final", "modules-final"},
}

func stageName(said string) (string, bool) {
	for _, n := range stageNames {
		if n[0] == said {
			return n[1], true
		}
	}
	return "", false
}

// stageUnit is the unit that a stage runs in. Until 24.2 the network stage was
// cloud-init.service; this machine's units show which.
func stageUnit(stage string) string {
	switch stage {
	case "init-local":
		return "cloud-init-local.service"
	case "modules-config":
		return "cloud-config.service"
	case "modules-final":
		return "cloud-final.service"
	}
	return ""
}

// CloudInitLog reads /var/log/cloud-init.log: a report for each boot in it that is within
// the window, whose spans have cloud-init's names of its events (docs/reference/boot.md). A
// boot begins with the stage init-local. Times are the node's time of day, to the
// millisecond. Each stage's uptime is a reading of both clocks, of which the best is kept;
// it is off by as long as cloud-init takes to read its configuration.
func CloudInitLog(r io.Reader, o Options) []wire.BootReport {
	in := newLines(r, o)
	var boots []*eventLog
	current := newEventLog()
	finish := func() {
		if current.taken > 0 {
			boots = append(boots, current)
			if len(boots) > maxBoots {
				boots = boots[1:]
			}
		}
	}
	for in.next() {
		line := string(in.line)
		at, grain, rest, ok := stamp(line)
		if !ok {
			continue // a traceback, or what a command said
		}
		rest, ok = strings.CutPrefix(rest, " - ")
		if !ok {
			continue
		}
		// "util.py[DEBUG]: " before the message
		where, message, ok := strings.Cut(rest, "]: ")
		if !ok || len(where) > 128 || strings.IndexByte(where, '[') < 0 {
			in.bad++
			continue
		}
		if !o.covers(at) {
			in.other++
			continue
		}
		in.good++
		if stage, up, ok := stageRuns(message); ok {
			if stage == "init-local" && current.taken > 0 {
				finish()
				current = newEventLog()
			}
			current.stage(stage, at, up, grain)
			continue
		}
		current.message(at, grain, message)
	}
	finish()
	s := in.source(sourceCloudInit, o)
	if len(boots) == 0 {
		if s.State == wire.SourceRead {
			s = nothing(s, "no line of a boot is in it")
		}
		return []wire.BootReport{newBoot().done(s)}
	}
	reports := make([]wire.BootReport, 0, len(boots))
	for i, b := range boots {
		s := s
		if !b.local && i == 0 {
			s.State = wire.SourcePartial
			s.Detail = join(s.Detail, "the start of its first boot is not in it")
		}
		reports = append(reports, b.done(s))
	}
	return reports
}

// stageRuns reads "Cloud-init v. 24.1.3-0ubuntu1 running 'init-local' at Tue, 12
// Nov 2024 17:23:37 +0000. Up 4.52 seconds."
func stageRuns(message string) (stage string, up wire.Micros, ok bool) {
	if !strings.HasPrefix(message, "Cloud-init v. ") {
		return "", 0, false
	}
	_, rest, ok := strings.Cut(message, " running '")
	if !ok {
		return "", 0, false
	}
	said, rest, ok := strings.Cut(rest, "'")
	if !ok {
		return "", 0, false
	}
	if stage, ok = stageName(said); !ok {
		return "", 0, false
	}
	if _, after, found := strings.Cut(rest, " Up "); found {
		number, _, _ := strings.Cut(after, " ")
		up, _ = seconds(number)
	}
	return stage, up, true
}

// eventLog gathers the events of one boot of cloud-init, in their order.
type eventLog struct {
	*boot
	taken  int
	local  bool // the stage init-local began in it
	last   wire.Micros
	at     string // the stage that runs
	open   []wire.BootSpan
	lost   int // events of which the start is missing
	clocks []wire.ClockReading
}

func newEventLog() *eventLog { return &eventLog{boot: newBoot()} }

// stage begins a stage; up is 0 where unknown.
func (l *eventLog) stage(name string, at, up, grain wire.Micros) {
	l.taken++
	l.last = max(l.last, at)
	l.local = l.local || name == "init-local"
	l.at = name
	if up > 0 {
		l.clocks = append(l.clocks, wire.ClockReading{Monotonic: up, Wall: at})
	}
	l.begin(name, "", at, grain)
}

// message takes a line's message over.
func (l *eventLog) message(at, grain wire.Micros, text string) {
	l.taken++
	l.last = max(l.last, at)
	switch {
	case strings.HasPrefix(text, "start: "):
		name, description, _ := strings.Cut(text[len("start: "):], ": ")
		l.begin(name, description, at, grain)
	case strings.HasPrefix(text, "finish: "):
		name, rest, _ := strings.Cut(text[len("finish: "):], ": ")
		result, description, _ := strings.Cut(rest, ": ")
		var took wire.Micros
		if i := strings.LastIndex(description, " (duration: "); i >= 0 {
			number, _, _ := strings.Cut(description[i+len(" (duration: "):], "s)")
			if d, ok := seconds(number); ok {
				took, description = d, description[:i]
			}
		}
		l.end(name, result, description, at, took, grain)
	case strings.HasPrefix(text, "PPS type: "):
		l.pps(at, grain, text[len("PPS type: "):])
	case strings.HasPrefix(text, "Creating a marker file to report ready"):
		l.moment("reported-ready", at, grain, "")
	case strings.HasPrefix(text, "Cloud-init v. ") && strings.Contains(text, " finished at "):
		l.moment("finished", at, grain, text)
		if _, after, ok := strings.Cut(text, " Up "); ok {
			number, _, _ := strings.Cut(after, " ")
			if up, ok := seconds(number); ok && up > 0 {
				l.clocks = append(l.clocks, wire.ClockReading{Monotonic: up, Wall: at})
			}
		}
	case strings.Contains(text, "ould not get lock /var/lib/"):
		l.locked(at, grain, text)
	}
}

// locked records a wait for a lock of apt's or dpkg's, which repeats a line while it lasts.
func (l *eventLog) locked(at, grain wire.Micros, text string) {
	for i := range l.open {
		if o := &l.open[i]; o.Source == sourceAPT {
			if at-o.End <= 30*second {
				o.End = max(o.End, at)
				return
			}
			l.span(*o)
			*o = wire.BootSpan{Source: sourceAPT, Name: "lock", Clock: wire.ClockWall, Start: at, End: at, Grain: grain, Unit: o.Unit, Detail: text}
			return
		}
	}
	if len(l.open) < maxOpen {
		l.open = append(l.open, wire.BootSpan{Source: sourceAPT, Name: "lock", Clock: wire.ClockWall, Start: at, End: at, Grain: grain, Unit: stageUnit(l.at), Detail: text})
	}
}

// pps keeps how the machine was preprovisioned, as cloud-init found out.
func (l *eventLog) pps(at, grain wire.Micros, kind string) {
	kind = word(kind)
	if kind == "" {
		return
	}
	l.span(wire.BootSpan{Source: sourceCloudInit, Name: "pps-type", Clock: wire.ClockWall, Start: at, End: at, Grain: grain, Unit: stageUnit("init-local"), Detail: kind})
}

func (l *eventLog) moment(name string, at, grain wire.Micros, text string) {
	l.span(wire.BootSpan{Source: sourceCloudInit, Name: name, Clock: wire.ClockWall, Start: at, End: at, Grain: grain, Detail: text})
}

// eventName is an event's name as it is kept, and what it is a part of.
func (l *eventLog) eventName(said string) (name, parent string) {
	name = strings.TrimSpace(said)
	if name == "" || len(name) > maxWord || strings.ContainsAny(name, " \t") {
		return "", ""
	}
	if stage, ok := stageName(name); ok {
		return stage, ""
	}
	// Such as modules-final/config-scripts_user; what has no stage in its name is
	// of the one that runs.
	name = word(name)
	if before, _, ok := strings.Cut(name, "/"); ok {
		if stage, ok := stageName(before); ok {
			return stage + name[len(before):], stage
		}
		if before == "azure-ds" {
			return name, l.at
		}
		return name, before
	}
	return name, l.at
}

func (l *eventLog) begin(said, description string, at, grain wire.Micros) {
	name, parent := l.eventName(said)
	if name == "" {
		return
	}
	if stage, ok := stageName(name); ok {
		// The event of a stage's beginning comes after the stage's line.
		for i := range l.open {
			if l.open[i].Name == stage {
				return
			}
		}
		l.at = stage
	}
	if len(l.open) >= maxOpen {
		l.over++
		return
	}
	s := wire.BootSpan{Source: sourceCloudInit, Name: name, Parent: parent, Clock: wire.ClockWall, Start: at, End: at, Grain: grain, Unit: stageUnit(l.at), Detail: description}
	if stage, ok := stageName(parent); ok {
		l.at, s.Unit = stage, stageUnit(stage)
	}
	if parent == name {
		s.Parent = ""
	}
	l.open = append(l.open, s)
}

func (l *eventLog) end(said, result, description string, at, took, grain wire.Micros) {
	name, parent := l.eventName(said)
	if name == "" {
		return
	}
	s := wire.BootSpan{Source: sourceCloudInit, Name: name, Parent: parent, Clock: wire.ClockWall, Start: at, Grain: grain, Unit: stageUnit(l.at)}
	found := false
	for i := len(l.open) - 1; i >= 0 && !found; i-- {
		if l.open[i].Name == name {
			s, found = l.open[i], true
			l.open = append(l.open[:i], l.open[i+1:]...)
		}
	}
	if !found {
		if took == 0 || took > at {
			l.lost++
			return
		}
		s.Start = at - took // by the clock as it is now: where it was set meanwhile, that is not what it showed
	}
	s.End = at
	if result != "SUCCESS" && result != "" {
		s.Result = word(result)
	}
	if description != "" {
		s.Detail = description
	}
	l.span(s)
}

// done is the boot's report. What has not ended went on until the last line.
func (l *eventLog) done(s wire.BootSource) wire.BootReport {
	for _, o := range l.open {
		if o.Source == sourceCloudInit {
			o.End, o.Open = max(l.last, o.Start), true
		}
		l.span(o)
	}
	if l.lost > 0 {
		s.State = wire.SourcePartial
		s.Detail = join(s.Detail, "events end in it whose start is not there")
	}
	l.report.Clocks = bestReadings(l.clocks)
	return l.boot.done(s)
}

// bestReadings are those of cloud-init's readings that are worth keeping. The
// uptime is read first and written down later, so the smallest offset is the
// best; only where one is greater by seconds was the clock set meanwhile.
func bestReadings(all []wire.ClockReading) []wire.ClockReading {
	var kept []wire.ClockReading
	for _, c := range all {
		offset := c.Wall - c.Monotonic
		if n := len(kept); n > 0 {
			by := offset - (kept[n-1].Wall - kept[n-1].Monotonic)
			if by > -2*second && by < 2*second {
				if by < 0 {
					kept[n-1] = c
				}
				continue
			}
		}
		if len(kept) < 64 {
			kept = append(kept, c)
		}
	}
	sortClocks(kept)
	return kept
}
