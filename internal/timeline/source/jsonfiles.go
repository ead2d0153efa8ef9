package source

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math"
	"strconv"
	"strings"

	"github.com/ortet/ortet/internal/wire"
)

const (
	sourceStatus    = "cloud-init-status"
	sourceResult    = "cloud-init-result"
	sourceAKS       = "aks"
	sourceProvision = "aks-provision"

	maxJSON    = 32 << 20 // bytes of a list of objects, which are read one by one
	maxObjects = 1 << 16
	maxFile    = 1 << 20 // bytes of a file that is one object
	// epochBegins tells apart seconds since 1970 and seconds of uptime, of which
	// cloud-init writes the former until 24.1 and the latter since: no clock
	// is before 1973, and no boot takes three years.
	epochBegins = 1e8
)

// each reads the objects of a text one by one: those of a list, or that follow
// each other. It says how many could not be understood, and whether the text ends
// too early.
func each(r io.Reader, o Options, read func(raw json.RawMessage) error) (good, bad int, cut bool) {
	// What is cut out of its middle is no JSON: so the start is read, not the end.
	from := &limited{r: r, left: min(o.bytes(), maxJSON)}
	d := json.NewDecoder(from)
	list := false
	for good+bad < maxObjects {
		if list && !d.More() {
			_, err := d.Token()
			if err != nil {
				return good, bad, true
			}
			list = false
			continue
		}
		var raw json.RawMessage
		if !list {
			// A list's start has to be taken off before its objects come.
			c, err := nextByte(d)
			if err != nil {
				return good, bad, from.cut || !errors.Is(err, io.EOF)
			}
			if c == '[' {
				if _, err := d.Token(); err != nil {
					return good, bad, true
				}
				list = true
				continue
			}
		}
		if err := d.Decode(&raw); err != nil {
			return good, bad, true // what follows a broken one is not known
		}
		if read(raw) != nil {
			bad++
		} else {
			good++
		}
	}
	return good, bad, true
}

// nextByte is the first byte of what a decoder reads next.
func nextByte(d *json.Decoder) (byte, error) {
	// More skips blanks, and only tells whether there is something; what it is
	// stands at the start of what is buffered.
	if !d.More() {
		return 0, io.EOF
	}
	var one [64]byte
	b := d.Buffered()
	for {
		n, err := b.Read(one[:])
		for _, c := range one[:n] {
			if c != ' ' && c != '\t' && c != '\n' && c != '\r' {
				return c, nil
			}
		}
		if err != nil {
			return 0, err
		}
	}
}

// whole reads a text that is one object.
func whole(r io.Reader, to any) error {
	text, err := io.ReadAll(io.LimitReader(r, maxFile+1))
	if err != nil {
		return err
	}
	if len(text) > maxFile {
		return errors.New("more than " + strconv.Itoa(maxFile>>10) + " KiB")
	}
	if err := json.Unmarshal(bytes.TrimPrefix(text, []byte("\ufeff")), to); err != nil {
		return errors.New("broken or cut off: " + err.Error())
	}
	return nil
}

// sourceOf says what became of reading objects.
func sourceOf(name string, o Options, good, bad, other int, cut bool) wire.BootSource {
	s := wire.BootSource{Name: name, Path: o.Path, State: wire.SourceRead}
	switch {
	case cut:
		s = nothing(s, "broken or cut off after "+strconv.Itoa(good+bad)+" entries")
	case good == 0 && other == 0:
		s = nothing(s, "nothing of use is in it")
	}
	if bad > 0 {
		s = nothing(s, strconv.Itoa(bad)+" entries could not be understood")
	}
	if other > 0 && good == other {
		s.State = wire.SourceOther
		s.Detail = join(s.Detail, "all of its entries are of other boots")
	}
	return s
}

// Plot reads what `systemd-analyze plot --json=short` (or pretty) prints, of
// systemd 253 or later. Its times are exact, but systemd limits them to the
// boot's finish: what is given as the last of all times may be later, or may not
// have come, and is not kept, except where a unit became active just then. It
// has no After.
func Plot(r io.Reader, o Options) []wire.BootReport {
	type unit struct {
		Name         string `json:"name"`
		Activated    *int64 `json:"activated"`
		Activating   *int64 `json:"activating"`
		Time         *int64 `json:"time"`
		Deactivated  *int64 `json:"deactivated"`
		Deactivating *int64 `json:"deactivating"`
	}
	b := newBoot()
	took := []wire.Micros{}
	var finish wire.Micros
	good, bad, cut := each(r, o, func(raw json.RawMessage) error {
		var u unit
		if err := json.Unmarshal(raw, &u); err != nil {
			return err
		}
		_, again := b.units[u.Name]
		to := b.unit(u.Name)
		if to == nil || again {
			return errors.New("no unit")
		}
		to.Activating, to.Activated = known64(u.Activating), known64(u.Activated)
		to.Deactivating, to.Deactivated = known64(u.Deactivating), known64(u.Deactivated)
		took = append(took, known64(u.Time))
		finish = max(finish, to.Activated, to.Deactivating, to.Deactivated)
		return nil
	})
	if finish > 0 && !cut {
		b.report.System.Finish = finish
	}
	for i := range b.report.Units {
		u := &b.report.Units[i]
		if u.Deactivated == finish {
			u.Deactivated = 0
		}
		if u.Deactivating == finish {
			u.Deactivating = 0
		}
		if u.Activated == finish && u.Activating+took[i] != finish {
			u.Activated = 0
		}
	}
	return []wire.BootReport{b.done(sourceOf(sourcePlot, o, good, bad, 0, cut))}
}

func known64(v *int64) wire.Micros {
	if v == nil {
		return 0
	}
	at := wire.Micros(*v)
	clamp(&at)
	return at
}

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

// runs tells whether a stage is open.
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

// CloudInitStatus reads cloud-init's status.json: when each stage began and
// ended, in seconds since the kernel's start or since 1970, by its version. Of
// whose boot uptimes are, the file does not say. The spans are those that
// CloudInitLog tells of too; Merge keeps one of each.
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

// CloudInitResult reads cloud-init's result.json. It has no times: what it says
// of errors is in the BootSource.
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

// AKSEvents reads what AKS's provisioning scripts write for the agent's telemetry
// (/var/log/azure/Microsoft.Azure.Extensions.CustomScript/events/*.json): an
// object for each task, of which Timestamp is the start and OperationId the end,
// one or more in a file. Times have no zone; they are taken for UTC, which is
// what AKS's images are set to. Source: Azure/AgentBaker,
// parts/linux/cloud-init/artifacts/cse_helpers.sh.
func AKSEvents(r io.Reader, o Options) []wire.BootReport {
	type event struct {
		Timestamp   string          `json:"Timestamp"`
		OperationID string          `json:"OperationId"`
		TaskName    string          `json:"TaskName"`
		EventLevel  string          `json:"EventLevel"`
		Message     json.RawMessage `json:"Message"`
	}
	b := newBoot()
	other := 0
	good, bad, cut := each(r, o, func(raw json.RawMessage) error {
		var e event
		if err := json.Unmarshal(raw, &e); err != nil {
			return err
		}
		from, ok1 := dateText(e.Timestamp)
		to, ok2 := dateText(e.OperationID)
		if !ok1 || e.TaskName == "" {
			return errors.New("no task")
		}
		if !o.covers(from) {
			other++
			return nil
		}
		var message string
		_ = json.Unmarshal(e.Message, &message) // the agent wants texts; other events have none
		name := word(e.TaskName)
		s := wire.BootSpan{Source: sourceAKS, Name: name, Parent: taskParent(name), Clock: wire.ClockWall, Start: from, End: to, Grain: millisecond, Detail: message}
		if !ok2 {
			s.End, s.Open = from, true
		}
		if e.EventLevel == "Error" || e.EventLevel == "Critical" {
			s.Result = e.EventLevel
		}
		var points map[string]json.RawMessage
		if json.Unmarshal([]byte(message), &points) == nil && len(points) > 0 {
			b.provisioned(points, o)
			if code := scalar(points["ExitCode"]); code != "" && code != "0" {
				s.Result = "exit " + word(code)
			}
			s.Detail = ""
		}
		b.span(s)
		return nil
	})
	return []wire.BootReport{b.done(sourceOf("aks-events", o, good, bad, other, cut))}
}

// taskAll is the task that is all of AKS's script.
const taskAll = "AKS.CSE.cse_start"

// taskParent is the task that a task is a part of: AKS's scripts call those that
// others run by longer names, and all run within cse_start.
func taskParent(name string) string {
	if name == taskAll || !strings.HasPrefix(name, "AKS.CSE.") {
		return ""
	}
	if i := strings.LastIndexByte(name, '.'); i > len("AKS.CSE.") {
		return name[:i]
	}
	return taskAll
}

// AKSProvision reads AKS's provision.json (/var/log/azure/aks): when units and the
// script started, to the second, in the two layouts of systemctl and date. A
// time that is midnight to the second is left out: the script makes that out of
// a time that there is none of.
func AKSProvision(r io.Reader, o Options) []wire.BootReport {
	b := newBoot()
	s := wire.BootSource{Name: sourceProvision, Path: o.Path, State: wire.SourceRead}
	var file map[string]json.RawMessage
	if err := whole(r, &file); err != nil {
		return []wire.BootReport{b.done(nothing(s, detail(err.Error())))}
	}
	other := b.provisioned(file, o)
	var points map[string]json.RawMessage
	if json.Unmarshal(file["BootDatapoints"], &points) == nil {
		other += b.provisioned(points, o)
	}
	var summary string
	if json.Unmarshal(file["SystemdSummary"], &summary) == nil {
		for line := range strings.SplitSeq(summary, "\n") {
			if t, ok := startupTimes(line); ok && !t.Relative {
				b.report.System = t
			}
		}
	}
	switch {
	case len(b.report.Spans) == 0 && other > 0:
		b = newBoot()
		s.State, s.Detail = wire.SourceOther, "its times are of another boot"
	case len(b.report.Spans) == 0:
		s = nothing(s, "no time is in it")
	}
	b.report.Spans = distinctMoments(b.report.Spans)
	return []wire.BootReport{b.done(s)}
}

func distinctMoments(spans []wire.BootSpan) []wire.BootSpan {
	sortSpans(spans)
	return distinct(spans)
}

// provisionNames are the keys of AKS's data points, what their moments are
// called, and the units that they are the starts of.
var provisionNames = [...][3]string{
	{"KernelStartTime", "kernel-start", ""},
	{"CloudInitLocalStartTime", "cloud-init-local-start", "cloud-init-local.service"},
	{"CloudInitStartTime", "cloud-init-start", "cloud-init.service"},
	{"CloudFinalStartTime", "cloud-final-start", "cloud-final.service"},
	{"NetworkdStartTime", "networkd-start", "systemd-networkd.service"},
	{"GuestAgentStartTime", "agent-start", "walinuxagent.service"},
	{"KubeletStartTime", "kubelet-start", "kubelet.service"},
	{"KubeletReadyTime", "kubelet-ready", "kubelet.service"},
}

const day = 24 * 3600 * second

// provisioned keeps AKS's data points; other is how many were of another boot.
func (b *boot) provisioned(points map[string]json.RawMessage, o Options) (other int) {
	for _, n := range provisionNames {
		at, ok := dateText(scalar(points[n[0]]))
		if !ok || at%day == 0 {
			continue
		}
		if !o.covers(at) {
			other++
			continue
		}
		grain := second
		if at%second != 0 {
			grain = millisecond
		}
		b.span(wire.BootSpan{Source: sourceProvision, Name: n[1], Clock: wire.ClockWall, Start: at, End: at, Grain: grain, Unit: n[2]})
		if n[0] == "KernelStartTime" && len(b.report.Clocks) == 0 {
			b.report.Clocks = append(b.report.Clocks, wire.ClockReading{Wall: at})
		}
	}
	at, ok := dateText(scalar(points["CSEStartTime"]))
	if !ok || at%day == 0 {
		return other
	}
	if !o.covers(at) {
		return other + 1
	}
	s := wire.BootSpan{Source: sourceAKS, Name: taskAll, Clock: wire.ClockWall, Start: at, End: at, Grain: second, Open: true}
	if took, ok := seconds(scalar(points["ExecDuration"])); ok {
		s.End, s.Open = at+took, false
	}
	if code := scalar(points["ExitCode"]); code != "" && code != "0" {
		s.Result = "exit " + word(code)
	}
	b.span(s)
	return other
}

// scalar is a text, or a number as it is written.
func scalar(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return strings.TrimSpace(s[:min(len(s), 256)])
	}
	var n json.Number
	if json.Unmarshal(raw, &n) == nil {
		return n.String()
	}
	return ""
}
