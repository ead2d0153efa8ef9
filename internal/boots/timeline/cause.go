package timeline

import (
	"fmt"
	"strings"

	"github.com/ortet/ortet/internal/wire"
)

// Causes of waits.
const (
	causeQueue    = "systemd's job queue"
	causeJob      = "another unit's job"
	causeReload   = "a reload of systemd"
	causeRestart  = "its own restarts"
	causeSocket   = "a connection to its socket"
	causeTimer    = "its timer"
	causePath     = "a change of a file"
	causeDevice   = "the device"
	causeNetwork  = "the network"
	causeLock     = "a lock"
	causePull     = "an image pull"
	causeGoal     = "the agent's next look at the goal state"
	causePool     = "preprovisioned"
	causeFirmware = "the machine's start"
	causeItself   = "the program itself"
)

const (
	// queued is the longest time that systemd takes to get to a job that waits for nothing.
	queued = second / 50
	// goalState is the agent's poll interval, with the duration of a poll. Source:
	// WALinuxAgent, GOAL_STATE_PERIOD_DEFAULT, 6 s.
	goalState = 8 * second
)

// cause is what delayed i from start to end, and its evidence. It is "" without evidence.
// last is what i came after, -1: nothing.
func (b *boot) cause(i, last int32, start, end wire.Micros) (cause, evidence string) {
	it := &b.items[i]
	if u := it.unit; u != nil {
		if u.Restarts > 0 {
			return causeRestart, fmt.Sprintf("%s was restarted %d times, and only its last start is known", it.name, u.Restarts)
		}
		if end-start > queued {
			if cause, evidence := b.triggered(it); cause != "" {
				return cause, evidence
			}
		}
	}
	if cause, evidence := b.during(i, start, end); cause != "" {
		return cause, evidence
	}
	if (it.source == sourceCSE || it.source == sourceAgent && (it.name == "goal-state" || isOrIn(it.name, "extensions") || isOrIn(it.name, "extension"))) &&
		end-start <= goalState && (last < 0 || b.items[last].name != "exthandler-start") { // its first poll is at once
		return causeGoal, "the agent looks every 6 s, and had nothing else to do"
	}
	if it.unit == nil {
		return b.ran(it, last, start, end)
	}
	switch {
	case strings.HasSuffix(it.name, ".device"):
		return causeDevice, "a unit of a device is active once the kernel has found it and udev has settled it"
	case last >= 0 && strings.HasPrefix(b.items[last].id, "azure/"):
		return causeFirmware, ""
	case end-start <= queued+it.grain*2:
		return causeQueue, "as long as systemd takes to get to a job that nothing holds"
	}
	return b.released(i, start, end)
}

// ran is for what a program does that its unit has started: its unreported time is its own.
func (b *boot) ran(it *item, last int32, start, end wire.Micros) (cause, evidence string) {
	switch {
	case end-start <= it.about:
		return "", "not longer than what its time may be off by, " + b.duration(it.about)
	case it.span == nil || last < 0:
		return "", ""
	case b.items[last].unit != nil && b.items[last].name == b.unitOf(it.span), b.items[last].source == it.source && (it.source == sourceKubelet || it.source == sourceAgent):
		return causeItself, b.items[last].name + " was done; no source reports what " + it.source + " did before " + it.name
	}
	return "", ""
}

// triggered is for a unit that is not started with the boot, but when something
// happens.
func (b *boot) triggered(it *item) (cause, evidence string) {
	for _, name := range it.unit.TriggeredBy {
		d, ok := b.byUnit[name]
		if !ok || b.items[d].start > it.start {
			continue
		}
		switch {
		case strings.HasSuffix(name, ".socket"):
			return causeSocket, name + " was listening, and starts it when something connects"
		case strings.HasSuffix(name, ".timer"):
			return causeTimer, name + " starts it"
		case strings.HasSuffix(name, ".path"):
			return causePath, name + " starts it"
		}
	}
	return "", ""
}

// during searches for a span that covers most of a wait and delays others by its kind.
func (b *boot) during(i int32, start, end wire.Micros) (cause, evidence string) {
	best := (end - start) / 2
	for k := range b.items {
		x := &b.items[k]
		if x.start >= end {
			break
		}
		if int32(k) == i || x.end <= start || x.parent == i || b.items[i].unit != nil && (x.source == sourceAPT || x.kind == KindPull) {
			continue // systemd starts units whatever is locked or pulled
		}
		if x.open || x.end > end+queued+x.about+b.items[i].about {
			continue // it went on after that, so it did not hold it
		}
		covers := min(x.end, end) - max(x.start, start)
		if covers <= best {
			continue
		}
		if c := b.holds(x); c != "" {
			best, cause = covers, c
			evidence = fmt.Sprintf("%s went on for %s of it", x.name, b.duration(covers))
		}
	}
	return cause, evidence
}

// waiting is what a span waited for that is no work itself; "" for all others.
func waiting(x *item) string {
	switch {
	case x.span == nil:
		return ""
	case isPoolWait(x.name):
		return causePool
	case x.source == sourceAPT && x.name == "lock":
		return "a lock of dpkg"
	}
	name := x.name[strings.LastIndexByte(x.name, '/')+1:]
	if what, ok := strings.CutPrefix(name, "wait-"); ok && (x.source == sourceAgent || x.source == sourceCloudInit) {
		return strings.ReplaceAll(strings.TrimPrefix(what, "for-"), "-", " ")
	}
	return ""
}

// holds is what others wait for while x goes on; "" for most.
func (b *boot) holds(x *item) string {
	name := x.name
	switch {
	case x.id == idIdle || x.span != nil && isPoolWait(name):
		return causePool
	case x.kind == KindPull:
		return causePull
	case x.source == "systemd" && x.unit == nil && strings.Contains(name, "reload"):
		return causeReload
	case x.span != nil && (name == "lock" || strings.Contains(name, "-lock") || strings.Contains(name, "lock ") || strings.Contains(x.detail, "lock-frontend")):
		if x.source == "apt" || strings.Contains(name+x.detail, "dpkg") || strings.Contains(name+x.detail, "apt") {
			return "a lock of dpkg"
		}
		return causeLock
	case strings.HasSuffix(name, "-wait-online.service"), x.span != nil && (x.source == "network" || strings.Contains(name, "dhcp") || strings.Contains(name, "imds") ||
		strings.Contains(name, "metadata") || strings.Contains(name, "wireserver") || strings.Contains(name, "connectivity")):
		return causeNetwork
	}
	return ""
}

// released searches for a unit after whose end i began at once, without a known ordering
// after it: systemd delayed i's job for that one's.
func (b *boot) released(i int32, start, end wire.Micros) (cause, evidence string) {
	best := int32(-1)
	for k := range b.items {
		x := &b.items[k]
		if x.start >= end {
			break
		}
		if int32(k) == i || x.unit == nil || x.open || x.end > end || end-x.end > queued || x.end-max(x.start, start) < (end-start)/2 {
			continue
		}
		if best < 0 || x.end > b.items[best].end {
			best = int32(k)
		}
	}
	if best < 0 {
		return "", ""
	}
	return causeJob, fmt.Sprintf("it began %s after %s was done, though it is not ordered after it", b.duration(end-b.items[best].end), b.items[best].name)
}
