package source

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strconv"
	"strings"

	"github.com/ortet/ortet/internal/wire"
)

const (
	sourceKVP = "hyperv-kvp"
	kvpKey    = 512
	kvpRecord = kvpKey + 2048
)

// KVP reads a pool of Hyper-V's key-value pairs, into which cloud-init writes its events
// (/var/lib/hyperv/.kvp_pool_1): records of 2,560 bytes, a key of 512 and a value of 2,048,
// both ended by zeros. Spans have CloudInitLog's names and source, and times to the
// microsecond; Merge knows that they are the same. Each key has the start of its boot, to
// the second. Source: cloud-init, cloudinit/reporting/handlers.py.
func KVP(r io.Reader, o Options) []wire.BootReport {
	from := limit(r, o.bytes()/kvpRecord*kvpRecord)
	var boots []*eventLog
	var began []int64
	good, bad, other := 0, 0, 0
	var last error
	for {
		var record [kvpRecord]byte
		if _, last = io.ReadFull(from, record[:]); last != nil {
			break
		}
		key, value := text(record[:kvpKey]), text(record[kvpKey:])
		e, ok := kvpRead(key, value)
		if !ok {
			bad++
			continue
		}
		if e.skip {
			continue
		}
		if !o.covers(e.at) {
			other++
			continue
		}
		good++
		to := -1
		for i := range began {
			// Each process computes it for itself; a report of provisioning has none.
			if d := began[i] - e.boot; d >= -2 && d <= 2 || e.boot == 0 || began[i] == 0 {
				to = i
			}
		}
		if to < 0 {
			if len(boots) >= maxBoots {
				bad++
				continue
			}
			to = len(boots)
			boots, began = append(boots, newEventLog()), append(began, e.boot)
			boots[to].report.VMID = e.vm
		}
		began[to] = max(began[to], e.boot)
		e.tell(boots[to])
	}
	s := wire.BootSource{Name: sourceKVP, Path: o.Path, State: wire.SourceRead}
	if errors.Is(last, io.ErrUnexpectedEOF) || from.cut {
		s = nothing(s, "it ends within a record, or was cut")
	}
	if bad > 0 {
		s = nothing(s, strconv.Itoa(bad)+" records could not be understood")
	}
	if good == 0 && s.State == wire.SourceRead {
		s = nothing(s, "no event is in it")
	}
	if good == 0 && other > 0 {
		s.State, s.Detail = wire.SourceOther, "all of its events are of other boots"
	}
	if len(boots) == 0 {
		return []wire.BootReport{newBoot().done(s)}
	}
	reports := make([]wire.BootReport, 0, len(boots))
	for i, b := range boots {
		if began[i] > epochBegins {
			b.clocks = append(b.clocks, wire.ClockReading{Wall: wire.Micros(began[i]) * second})
		}
		reports = append(reports, b.done(s))
	}
	return reports
}

// text is what stands before the zeros.
func text(field []byte) string {
	field, _, _ = bytes.Cut(field, []byte{0})
	return strings.ToValidUTF8(string(field), "?")
}

// kvpEvent is an event of a pool.
type kvpEvent struct {
	boot         int64 // seconds since the epoch
	vm           string
	at           wire.Micros
	kind, name   string
	result, text string
	took         wire.Micros
	skip         bool // the rest of an event that was reported already
}

// kvpRead reads a record: key CLOUD_INIT|boot|type|name|vm|uuid, value JSON. A long
// message is split over records with "|n" behind the key, of which the first has
// all that is of use.
func kvpRead(key, value string) (kvpEvent, bool) {
	if key == "PROVISIONING_REPORT" {
		return provisioningReport(value)
	}
	f := strings.Split(key, "|")
	if len(f) < 6 || f[0] != "CLOUD_INIT" {
		// Other programs write here too.
		return kvpEvent{skip: true}, key != ""
	}
	var e kvpEvent
	var err error
	if e.boot, err = strconv.ParseInt(f[1], 10, 64); err != nil {
		return kvpEvent{}, false
	}
	if len(f) > 6 && f[6] != "0" {
		return kvpEvent{skip: true}, true
	}
	var v struct {
		Name     string   `json:"name"`
		Type     string   `json:"type"`
		TS       string   `json:"ts"`
		Result   string   `json:"result"`
		Duration *float64 `json:"duration"`
		Msg      string   `json:"msg"`
	}
	if err := json.Unmarshal([]byte(value), &v); err != nil {
		// One that was split may end within an escape.
		if i := strings.Index(value, `,"msg":`); i < 0 || json.Unmarshal([]byte(value[:i]+"}"), &v) != nil {
			return kvpEvent{}, false
		}
	}
	at, _, _, ok := stamp(v.TS)
	if !ok {
		return kvpEvent{}, false
	}
	e.at, e.kind, e.name, e.result, e.text, e.vm = at, v.Type, v.Name, v.Result, v.Msg, strings.ToLower(word(f[4]))
	if v.Duration != nil && *v.Duration > 0 && *v.Duration < 1e6 {
		e.took = wire.Micros(*v.Duration * 1e6)
	}
	return e, true
}

// provisioningReport is "result=success|agent=Cloud-Init/24.1|pps_type=None|vm_id=…|timestamp=2024-11-12T17:23:42.123456".
// Source: cloud-init, cloudinit/sources/azure/kvp.py.
func provisioningReport(value string) (kvpEvent, bool) {
	e := kvpEvent{kind: "report"}
	for pair := range strings.SplitSeq(value, "|") {
		k, v, _ := strings.Cut(pair, "=")
		switch k {
		case "result":
			e.result = v
		case "pps_type":
			e.text = v
		case "timestamp":
			e.at, _, _, _ = stamp(v)
		case "vm_id":
			e.vm = strings.ToLower(word(v))
		}
	}
	return e, e.at > 0
}

// tell adds the event to a boot.
func (e kvpEvent) tell(l *eventLog) {
	switch e.kind {
	case "start":
		l.message(e.at, 0, "start: "+e.name+": "+e.text)
	case "finish":
		l.taken++
		l.last = max(l.last, e.at)
		l.end(e.name, e.result, e.text, e.at, e.took, 0)
	case "diagnostic":
		if strings.HasPrefix(e.text, "PPS type: ") {
			l.message(e.at, 0, e.text)
		}
	case "report":
		result := ""
		if e.result != "success" {
			result = word(e.result)
		}
		l.span(wire.BootSpan{Source: sourceCloudInit, Name: "provisioning-report", Clock: wire.ClockWall, Start: e.at, End: e.at, Result: result, Detail: "PPS type: " + e.text})
	}
}
