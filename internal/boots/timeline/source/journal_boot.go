package source

import (
	"bytes"
	"slices"
	"strings"

	"github.com/ortet/ortet/internal/wire"
)

// journalBoot gathers a journal's entries of one boot.
type journalBoot struct {
	*boot
	id        string
	host      string
	covered   bool // the window has entries of it
	firstWall wire.Micros
	lastMono  wire.Micros
	starts    map[string][]start // of units, in their order
	clocks    clockFilter
	marks     marks
}

// start is one of a unit's starts.
type start struct {
	starting, started, stopping, stopped wire.Micros
	result                               string
	oneshot                              bool
}

// maxStarts bounds how many of a unit's starts are looked at.
const maxStarts = 16

func newJournalBoot(id string) *journalBoot {
	b := &journalBoot{boot: newBoot(), id: id, starts: map[string][]start{}}
	b.report.BootID = dashed(id)
	return b
}

func (b *journalBoot) take(e *entry) {
	if b.firstWall == 0 || e.real < b.firstWall {
		b.firstWall = e.real
	}
	b.lastMono = max(b.lastMono, e.mono)
	// The last name counts: a machine gets its own only while it boots.
	if len(e.host) > 0 && b.host != string(e.host) && string(e.host) != "localhost" {
		b.host = string(e.host)
		b.report.Node = strings.ToLower(word(b.host))
	}
	if e.real > 0 {
		b.clocks.take(wire.ClockReading{Monotonic: e.mono, Wall: e.real})
	}
	if len(e.id) == 32 && b.unitSays(e) {
		return
	}
	if !b.late(e.mono) {
		b.marks.take(b.boot, e)
	}
}

// settled is how long after its startup was finished a boot is over for sure:
// until then extensions and the kubelet may start.
const settled = 30 * 60 * second

// late reports what is no part of the boot.
func (b *journalBoot) late(at wire.Micros) bool {
	finish := b.report.System.Finish
	return finish > 0 && at > finish+settled
}

// unitSays reads systemd's message about a unit, or about itself.
func (b *journalBoot) unitSays(e *entry) bool {
	switch string(e.id) {
	case idFinished:
		if e.finished && b.report.System.Finish == 0 {
			t := &b.report.System
			t.Userspace = e.kernel + e.initrd
			if e.initrd > 0 {
				t.InitRD = e.kernel
			}
			t.Finish = t.Userspace + e.uspace
		}
		return true
	case idTimeSet:
		b.span(wire.BootSpan{Source: sourceClock, Name: "set", Clock: wire.ClockMonotonic, Start: e.at(), End: e.at(), Grain: millisecond, Detail: string(e.message)})
		return true
	}
	if len(e.unit) == 0 {
		return false
	}
	list, known := b.starts[string(e.unit)]
	if !known && b.late(e.mono) {
		return true
	}
	if !known && !isUnit(string(e.unit)) {
		return false
	}
	if !known && len(b.starts) >= wire.MaxBootUnits {
		b.over++
		return false
	}
	at := e.at()
	var last *start
	if len(list) > 0 {
		last = &list[len(list)-1]
	}
	fresh := func() *start {
		switch {
		case len(list) < maxStarts:
			list = append(list, start{})
		case list[len(list)-1].started > 0:
			return &start{} // what comes later is no part of the boot
		default:
			list[len(list)-1] = start{} // of many that failed the last one counts
		}
		return &list[len(list)-1]
	}
	once := func(to *wire.Micros) {
		if *to == 0 {
			*to = at
		}
	}
	switch string(e.id) {
	case idStarting:
		fresh().starting = at
	case idStarted:
		if unmet(e.message) {
			if u := b.unit(string(e.unit)); u != nil {
				u.Skipped = true
			}
			return true
		}
		if last == nil || last.started > 0 || last.stopped > 0 {
			last = fresh() // it has no starting of its own
			last.starting = at
		}
		last.started = at
		last.oneshot = bytes.HasPrefix(e.message, []byte("Finished "))
	case idFailed, idResult:
		if last == nil {
			last = fresh()
		}
		once(&last.stopped)
		if last.result == "" {
			last.result = "failed"
		}
		if len(e.result) > 0 && string(e.result) != "done" && string(e.id) == idResult {
			last.result = shorten(string(e.result), maxWord)
		}
	case idStopping:
		if last == nil {
			last = fresh()
		}
		once(&last.stopping)
	case idStopped, idDone:
		if last == nil {
			last = fresh()
		}
		once(&last.stopped)
	case idSkipped:
		if u := b.unit(string(e.unit)); u != nil {
			u.Skipped = true
		}
		return true
	case idRestarted:
		return true
	default:
		return false
	}
	b.starts[string(e.unit)] = list
	return true
}

// unmet reports that a message with the id of a start means no start: a condition was not
// met, and the job was done by that. Source: systemd, src/core/job.c,
// job_done_message_format and job_done_mid; since 250 in the first form.
func unmet(message []byte) bool {
	return bytes.Contains(message, []byte(" was skipped because ")) ||
		bytes.HasPrefix(message, []byte("Condition check resulted in ")) && bytes.HasSuffix(message, []byte(" being skipped."))
}

// done is the boot's report: of each unit its first start that came to something,
// else the first; not those in the initrd, which are of other instances of it;
// later ones are no part of the boot.
func (b *journalBoot) done(s wire.BootSource) wire.BootReport {
	names := make([]string, 0, len(b.starts))
	for name := range b.starts {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		list := b.starts[name]
		pick, tries, before := -1, 0, 0
		for i := range list {
			if begun := max(list[i].starting, list[i].started); begun == 0 || begun < b.report.System.Userspace {
				continue
			}
			if pick < 0 || list[pick].started == 0 && list[i].started > 0 {
				pick, before = i, tries
			}
			tries++
		}
		if pick < 0 {
			pick = len(list) - 1
		}
		u := b.unit(name)
		if u == nil {
			continue
		}
		l := list[pick]
		u.Activating, u.Activated, u.Deactivating, u.Deactivated = l.starting, l.started, l.stopping, l.stopped
		u.Result, u.Oneshot, u.Grain = l.result, l.oneshot, millisecond
		u.Skipped = u.Skipped && l.started == 0 // met at another time
		u.Restarts = before
	}
	last := b.lastMono
	if b.late(last) {
		last = b.report.System.Finish + settled
	}
	b.marks.done(b.boot, last)
	b.report.Clocks = b.clocks.readings()
	return b.boot.done(s)
}
