package source

import (
	"encoding/json"
	"errors"
	"io"
	"strings"

	"github.com/ortet/ortet/internal/wire"
)

const (
	sourceAKS       = "aks"
	sourceProvision = "aks-provision"
)

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
