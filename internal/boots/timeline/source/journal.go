package source

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"

	"github.com/ortet/ortet/internal/wire"
)

const (
	sourceJournal = "journal"
	sourceSystemd = "systemd"
	maxField      = 64 << 20 // bytes of a binary field; journald allows 768 MiB, of which none is of use here
	maxFieldName  = 64
)

// Message ids of systemd. Source: systemd, src/systemd/sd-messages.h.
const (
	idStarting  = "7d4958e842da4a758f6c1cdc7b36dcc5"
	idStarted   = "39f53479d3a045ac8e11786248231fbf"
	idFailed    = "be02cf6855d2428ba40df7e9d022f03d"
	idStopping  = "de5b426a63be47a7b6ac3eaac82e2f6f"
	idStopped   = "9d1aaa27d60140bd96365438aad20286"
	idDone      = "7ad2d189f7e94e70a38c781354912448" // deactivated successfully
	idResult    = "d9b373ed55a64feb8242e02dbe79a49c" // failed with result
	idSkipped   = "0e4284a0caca4bfc81c0bb6786972673" // its ExecCondition= said no
	idFinished  = "b07a249cd024414a82dd00cd181378ff"
	idTimeSet   = "c7a787079b354eaaa9e77b371893cd27"
	idRestarted = "5eb03494b6584870a536b337290809b3"
)

// entry is what is of use of a journal's entry. Its slices are good until the
// next one is read.
type entry struct {
	real, mono             wire.Micros
	sourceReal             wire.Micros
	kernel, initrd, uspace wire.Micros
	hasMono, finished      bool
	boot, id, unit         []byte
	message, ident, host   []byte
	speaker                []byte // its unit, by journald
	result                 []byte
}

func (e *entry) reset() {
	*e = entry{boot: e.boot[:0], id: e.id[:0], unit: e.unit[:0], message: e.message[:0], ident: e.ident[:0], host: e.host[:0], result: e.result[:0], speaker: e.speaker[:0]}
}

// set takes a field over, where it is of use.
func (e *entry) set(name, value []byte) {
	keep := func(to *[]byte) { *to = append((*to)[:0], value[:min(len(value), maxLine)]...) }
	number := func(to *wire.Micros) bool {
		v, ok := micros(value)
		if ok {
			*to = v
		}
		return ok
	}
	switch string(name) { // no allocation
	case "__REALTIME_TIMESTAMP":
		number(&e.real)
	case "__MONOTONIC_TIMESTAMP":
		e.hasMono = number(&e.mono)
	case "_SOURCE_REALTIME_TIMESTAMP":
		number(&e.sourceReal)
	case "_BOOT_ID":
		keep(&e.boot)
	case "MESSAGE_ID":
		keep(&e.id)
	case "UNIT":
		keep(&e.unit)
	case "MESSAGE":
		keep(&e.message)
	case "SYSLOG_IDENTIFIER":
		keep(&e.ident)
	case "_SYSTEMD_UNIT":
		keep(&e.speaker)
	case "_HOSTNAME":
		keep(&e.host)
	case "UNIT_RESULT", "JOB_RESULT":
		keep(&e.result)
	case "KERNEL_USEC":
		number(&e.kernel)
	case "INITRD_USEC":
		number(&e.initrd)
	case "USERSPACE_USEC":
		e.finished = number(&e.uspace)
	}
}

// at is when it was sent, on the monotonic clock: journald notes when it received
// it, which for what is sent while it starts, or is busy, is later.
func (e *entry) at() wire.Micros {
	if late := e.real - e.sourceReal; e.sourceReal > 0 && late > 0 && late < 120*second && late < e.mono {
		return e.mono - late
	}
	return e.mono
}

// Journal reads a journal as `journalctl -o export` or `-o json` prints it: a report for
// each boot in it, in their order, by systemd's messages about units and known messages of
// other programs (docs/reference/boot.md). Entries without a boot's id are dropped.
//
// What begins half an hour after the startup was finished is no part of the boot,
// and left out.
//
// Times are when a message was sent, which is up to about a millisecond after its event
// (Grain); systemd's own times (SystemctlShow) are better.
func Journal(r io.Reader, o Options) []wire.BootReport {
	in := newLines(r, o)
	j := newJournal(o)
	first, _ := in.r.Peek(64)
	if first = bytes.TrimLeft(first, " \r\n"); len(first) > 0 && first[0] == '{' {
		j.readJSON(in)
	} else {
		j.readExport(in)
	}
	return j.reports(in.source(sourceJournal, o))
}

// readExport reads the export format. Source of fact:
// systemd/docs/JOURNAL_EXPORT_FORMATS.md.
func (j *journal) readExport(in *lines) {
	var e entry
	var name [maxFieldName]byte
	fields, lost := 0, false
	end := func() {
		if fields > 0 && !lost {
			j.take(in, &e)
		} else if lost {
			in.bad++
		}
		e.reset()
		fields, lost = 0, false
	}
	for in.next() {
		line := in.line
		if len(line) == 0 {
			end()
			continue
		}
		if in.from.gap { // what comes is some middle of an entry
			in.from.gap = false
			lost = true
		}
		if lost {
			if !bytes.HasPrefix(line, []byte("__CURSOR=")) {
				continue
			}
			end()
		}
		if key, value, ok := bytes.Cut(line, []byte("=")); ok && isField(key) {
			e.set(key, value)
			fields++
			continue
		}
		if !isField(line) {
			lost = true
			continue
		}
		n := copy(name[:], line)
		if !j.binary(in, &e, name[:n]) {
			lost = true
			continue
		}
		fields++
	}
	if fields > 0 {
		// It ends within an entry, of which the rest may have been of use.
		if e.id != nil && len(e.boot) > 0 {
			j.take(in, &e)
		}
		if in.from.stopped != nil {
			in.bad++
		}
	}
}

// isField reports whether s can be the name of a journal's field.
func isField(s []byte) bool {
	if len(s) == 0 || len(s) > maxFieldName {
		return false
	}
	for _, c := range s {
		if (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '_' {
			return false
		}
	}
	return true
}

// binary reads the value of a field that is given by its length: eight bytes of
// it, lowest first, the value, a line's end.
func (j *journal) binary(in *lines, e *entry, name []byte) bool {
	var head [8]byte
	if _, err := io.ReadFull(in.r, head[:]); err != nil {
		return false
	}
	size := binary.LittleEndian.Uint64(head[:])
	if size > maxField {
		return false
	}
	keep := int(min(size, maxLine))
	if cap(j.value) < keep {
		j.value = make([]byte, maxLine)
	}
	value := j.value[:keep]
	if _, err := io.ReadFull(in.r, value); err != nil {
		return false
	}
	for rest := int(size) - keep; rest > 0; {
		n, err := in.r.Discard(min(rest, 1<<20))
		rest -= n
		if err != nil {
			return false
		}
	}
	e.set(name, value)
	c, err := in.r.ReadByte()
	return err == nil && c == '\n'
}

// readJSON reads an object a line, as `-o json` prints it; values that are no
// text are lists of bytes, repeated fields lists of values, and what is too long
// is null.
func (j *journal) readJSON(in *lines) {
	var e entry
	for in.next() {
		line := bytes.TrimLeft(bytes.TrimSpace(in.line), "\x1e") // json-seq
		if len(line) == 0 {
			continue
		}
		var v map[string]json.RawMessage
		if json.Unmarshal(line, &v) != nil || v == nil {
			in.bad++
			continue
		}
		e.reset()
		for _, name := range [...]string{
			"__REALTIME_TIMESTAMP", "__MONOTONIC_TIMESTAMP", "_SOURCE_REALTIME_TIMESTAMP", "_BOOT_ID", "MESSAGE_ID", "UNIT", "MESSAGE", "SYSLOG_IDENTIFIER",
			"_SYSTEMD_UNIT", "_HOSTNAME", "UNIT_RESULT", "JOB_RESULT", "KERNEL_USEC", "INITRD_USEC", "USERSPACE_USEC",
		} {
			if value := JournalField(v[name]); value != nil {
				e.set([]byte(name), value)
			}
		}
		j.take(in, &e)
	}
}

// JournalField is the value of a field of a journal as JSON, in whichever of the layouts; nil
// where it has none.
func JournalField(raw json.RawMessage) []byte {
	if len(raw) == 0 {
		return nil
	}
	switch raw[0] {
	case '"':
		if plain := raw[1 : len(raw)-1]; bytes.IndexByte(plain, '\\') < 0 {
			return plain
		}
		var s string
		if json.Unmarshal(raw, &s) != nil {
			return nil
		}
		return []byte(s)
	case '[':
		var list []json.RawMessage
		if json.Unmarshal(raw, &list) != nil || len(list) == 0 {
			return nil
		}
		if list[0][0] == '"' || list[0][0] == '[' {
			return JournalField(list[0])
		}
		text := make([]byte, 0, len(list))
		for _, n := range list {
			var v uint8
			if json.Unmarshal(n, &v) != nil {
				return nil
			}
			text = append(text, v)
		}
		return text
	case 'n':
		return nil
	}
	return raw
}

// journal sorts a journal's entries by boots.
type journal struct {
	o       Options
	dropped int // boots that made room for later ones
	boots   []*journalBoot
	last    *journalBoot // of the last entry
	value   []byte
}

func newJournal(o Options) *journal { return &journal{o: o} }

// take takes an entry over.
func (j *journal) take(in *lines, e *entry) {
	if !e.hasMono || len(e.boot) == 0 || e.mono > maxMonotonic || e.real > maxWall {
		in.bad++
		return
	}
	if j.o.BootID != "" && !j.o.wants(string(e.boot)) {
		in.other++
		return
	}
	in.good++
	b := j.of(e)
	// Early entries of a boot may have a time of day from before the clock was
	// set: one in the window is enough.
	b.covered = b.covered || j.o.covers(e.real)
	b.take(e)
}

// of is the boot of an entry.
func (j *journal) of(e *entry) *journalBoot {
	if j.last != nil && j.last.id == string(e.boot) {
		return j.last
	}
	for _, b := range j.boots {
		if b.id == string(e.boot) {
			j.last = b
			return b
		}
	}
	b := newJournalBoot(string(e.boot))
	if len(j.boots) >= maxBoots { // the oldest makes room
		oldest := 0
		for i, b := range j.boots {
			if b.firstWall < j.boots[oldest].firstWall {
				oldest = i
			}
		}
		j.boots = append(j.boots[:oldest], j.boots[oldest+1:]...)
		j.dropped++
	}
	j.boots = append(j.boots, b)
	j.last = b
	return b
}

// reports are the boots, by when they began.
func (j *journal) reports(s wire.BootSource) []wire.BootReport {
	if len(j.boots) == 0 {
		if s.State == wire.SourceRead {
			s = nothing(s, "no entry is in it")
		}
		return []wire.BootReport{newBoot().done(s)}
	}
	wanted := j.boots[:0]
	for _, b := range j.boots {
		if b.covered {
			wanted = append(wanted, b)
		}
	}
	if j.boots = wanted; len(wanted) == 0 {
		s.State, s.Detail = wire.SourceOther, join(s.Detail, "all of its entries are of other times")
		return []wire.BootReport{newBoot().done(s)}
	}
	for i := 1; i < len(j.boots); i++ { // there are few
		for k := i; k > 0 && j.boots[k].firstWall < j.boots[k-1].firstWall; k-- {
			j.boots[k], j.boots[k-1] = j.boots[k-1], j.boots[k]
		}
	}
	if j.dropped > 0 {
		s.State = wire.SourcePartial
		s.Detail = join(s.Detail, fmt.Sprintf("of more than %d boots the last are told", maxBoots))
	}
	reports := make([]wire.BootReport, 0, len(j.boots))
	for _, b := range j.boots {
		reports = append(reports, b.done(s))
	}
	return reports
}
