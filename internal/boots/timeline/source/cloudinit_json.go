package source

import (
	"encoding/json"
	"errors"
	"io"
	"math"
	"strconv"
	"strings"

	"github.com/ortet/ortet/internal/wire"
)

const (
	sourceStatus = "cloud-init-status"
	sourceResult = "cloud-init-result"
	// epochBegins separates seconds since 1970 and seconds of uptime, of which cloud-init
	// writes the former until 24.1 and the latter since: no clock is before 1973, and no
	// boot takes three years.
	epochBegins = 1e8
)

// CloudInitEvents reads what `cloud-init analyze dump` prints, as CloudInitLog
// reads the log that it is made of; it has no uptimes.
func CloudInitEvents(r io.Reader, o Options) []wire.BootReport {
	type event struct {
		Name        string  `json:"name"`
		Description string  `json:"description"`
		Timestamp   float64 `json:"timestamp"`
		Type        string  `json:"event_type"`
		Result      string  `json:"result"`
	}
	var boots []*eventLog
	current := newEventLog()
	other := 0
	good, bad, cut := each(r, o, func(raw json.RawMessage) error {
		var e event
		if err := json.Unmarshal(raw, &e); err != nil {
			return err
		}
		at, ok := epoch(e.Timestamp)
		if !ok || e.Name == "" {
			return errors.New("no time")
		}
		if !o.covers(at) {
			other++
			return nil
		}
		if e.Type == "start" && e.Name == "init-local" && current.local && !current.runs("init-local") {
			boots = append(boots, current)
			boots = boots[max(0, len(boots)-maxBoots):]
			current = newEventLog()
		}
		current.local = current.local || e.Name == "init-local"
		switch e.Type {
		case "start":
			current.message(at, millisecond, "start: "+e.Name+": "+e.Description)
		case "finish":
			current.message(at, millisecond, "finish: "+e.Name+": "+e.Result+": "+e.Description)
		}
		return nil
	})
	s := sourceOf(sourceCloudInit, o, good, bad, other, cut)
	if current.taken > 0 || len(boots) == 0 {
		boots = append(boots, current)
	}
	reports := make([]wire.BootReport, 0, len(boots))
	for _, b := range boots {
		reports = append(reports, b.done(s))
	}
	return reports
}

// runs reports whether a stage is open.
func (l *eventLog) runs(stage string) bool {
	for i := range l.open {
		if l.open[i].Name == stage {
			return true
		}
	}
	return false
}

// epoch is a number of seconds since 1970.
func epoch(v float64) (wire.Micros, bool) {
	if math.IsNaN(v) || v < epochBegins || v > float64(maxWall)/1e6 {
		return 0, false
	}
	return wire.Micros(math.Round(v * 1e6)), true
}

// CloudInitStatus reads cloud-init's status.json: when each stage began and ended, in
// seconds since the kernel's start or since 1970, by its version. The file does not name
// the boot of its uptimes. The spans are those of CloudInitLog too; Merge keeps one of
// each.
func CloudInitStatus(r io.Reader, o Options) []wire.BootReport {
	var file struct {
		V1 map[string]json.RawMessage `json:"v1"`
	}
	b := newBoot()
	s := wire.BootSource{Name: sourceStatus, Path: o.Path, State: wire.SourceRead}
	if err := whole(r, &file); err != nil {
		return []wire.BootReport{b.done(nothing(s, detail(err.Error())))}
	}
	other := 0
	var datasource string
	_ = json.Unmarshal(file.V1["datasource"], &datasource) // null where there is none
	for _, said := range [...]string{"init-local", "init", "modules-init", "modules-config", "modules-final"} {
		var stage struct {
			Errors   []json.RawMessage `json:"errors"`
			Start    *float64          `json:"start"`
			Finished *float64          `json:"finished"`
			End      *float64          `json:"end"`
		}
		if file.V1[said] == nil {
			continue
		}
		if err := json.Unmarshal(file.V1[said], &stage); err != nil {
			s = nothing(s, said+" could not be understood")
			continue
		}
		if stage.Start == nil || *stage.Start <= 0 {
			continue // not begun
		}
		name, _ := stageName(strings.Replace(said, "modules-init", "modules:init", 1))
		span := wire.BootSpan{Source: sourceCloudInit, Name: name, Unit: stageUnit(name), Detail: datasource}
		var ok bool
		if span.Start, span.Clock, ok = uptimeOrEpoch(*stage.Start); !ok {
			continue
		}
		if span.Clock == wire.ClockMonotonic {
			span.Grain = 10 * millisecond // of /proc/uptime
		} else if !o.covers(span.Start) {
			other++
			continue
		}
		if stage.Finished == nil {
			stage.Finished = stage.End
		}
		span.End, span.Open = span.Start, true
		if stage.Finished != nil {
			if end, clock, ok := uptimeOrEpoch(*stage.Finished); ok && clock == span.Clock && end >= span.Start {
				span.End, span.Open = end, false
			}
		}
		if len(stage.Errors) > 0 {
			span.Result = "FAIL"
			var text string
			if json.Unmarshal(stage.Errors[0], &text) == nil {
				span.Detail = text
			}
		}
		b.span(span)
	}
	if len(b.report.Spans) == 0 && s.State == wire.SourceRead {
		s = nothing(s, "no stage has begun")
		if other > 0 {
			s.State, s.Detail = wire.SourceOther, "its stages are of another boot"
		}
	}
	return []wire.BootReport{b.done(s)}
}

func uptimeOrEpoch(v float64) (wire.Micros, wire.ClockKind, bool) {
	if at, ok := epoch(v); ok {
		return at, wire.ClockWall, true
	}
	if math.IsNaN(v) || v < 0 || v >= epochBegins {
		return 0, "", false
	}
	return wire.Micros(math.Round(v * 1e6)), wire.ClockMonotonic, true
}

// CloudInitResult reads cloud-init's result.json. It has no times: its errors are in the
// BootSource.
func CloudInitResult(r io.Reader, o Options) []wire.BootReport {
	var file struct {
		V1 struct {
			Datasource string            `json:"datasource"`
			Errors     []json.RawMessage `json:"errors"`
		} `json:"v1"`
	}
	s := wire.BootSource{Name: sourceResult, Path: o.Path, State: wire.SourceRead}
	if err := whole(r, &file); err != nil {
		s = nothing(s, detail(err.Error()))
	} else {
		s.Detail = detail(file.V1.Datasource + "; " + strconv.Itoa(len(file.V1.Errors)) + " errors")
	}
	return []wire.BootReport{newBoot().done(s)}
}
