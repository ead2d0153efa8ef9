package assess

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ortet/ortet/internal/boots/verdict"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/wire"
)

// Bounds of the texts that are kept.
const (
	maxNote    = 1 << 10
	maxQuoted  = 8 << 10 // of what an extension reported
	maxConsole = 400     // lines of a serial log that are kept as evidence
)

// SerialConsole is the source of excerpts of an instance's serial log.
const SerialConsole = "serial console"

// platformFailed is judged on each poll: Azure may withdraw what it reported.
var platformFailed = bootRule{
	name: "Azure, or an extension that makes the node, reports a failure",
	when: func(o *observed) bool {
		sign, _ := broken(o.boot)
		return sign != ""
	},
	decide: (*observed).judgePlatform,
}

func (o *observed) judgePlatform(a *Assessment) {
	j := judgement{source: FromPlatform}
	j.basis, j.facts.Why = broken(o.boot)
	if strings.EqualFold(o.boot.Provisioning.Reason, provisioningTimedOut) {
		j.facts.Sign = provisioningTimedOut
	}
	j.note = clip(verdict.RedactText(j.facts.Why), maxNote)
	o.judge(a, j)
}

var consoleStuck = bootRule{
	name:   "the serial log shows that the boot cannot go on",
	when:   func(o *observed) bool { return len(o.serial) > 0 && stuck(o.serial) },
	decide: (*observed).judgeConsole,
}

// consoleStuckBefore: a kernel that stopped stays stopped.
var consoleStuckBefore = bootRule{
	name:   "the serial log showed before that the boot cannot go on",
	when:   func(o *observed) bool { return o.previous.Basis == basisConsole },
	decide: (*observed).judgeConsole,
}

func (o *observed) judgeConsole(a *Assessment) {
	o.judge(a, judgement{basis: basisConsole, source: FromLog})
}

// A Node whose Ready condition changed in time, but before it was first observed, may have
// been Ready, or have failed and fallen silent. Nothing is published until the Node is
// Ready, its own report is found (the serial log is read for it), or Azure or an extension
// reports a failure. A boot that was watched is clear: becoming Ready would have been seen.
var deadlineUnclear = bootRule{
	name:   "the deadline is over, and the Node may have been Ready before it was first observed",
	when:   func(o *observed) bool { return o.overdue() && o.missed && o.previous.State != TimedOut },
	decide: (*observed).leaveUnclear,
}

func (o *observed) leaveUnclear(a *Assessment) {
	a.State, a.Basis = Unclear, basisDeadline
	a.Note = "the Node is not Ready; whether it was before it was first looked at is not known" + o.why()
}

// A Node whose Ready condition never changed since it was registered did not come up, nor
// did one of which no kubelet ever reported.
var deadlineMissed = bootRule{
	name:   "the deadline is over",
	when:   (*observed).overdue,
	decide: (*observed).judgeDeadline,
}

func (o *observed) overdue() bool { return !o.now.Before(o.deadline()) }

func (o *observed) judgeDeadline(a *Assessment) {
	j := judgement{
		basis:  basisDeadline,
		source: FromNode,
		facts:  verdict.Facts{Deadline: true},
		note:   fmt.Sprintf("no Node %s after it was started", o.deadlines.Boot),
	}
	if o.node != nil {
		j.facts.Sign = verdict.NotReadyReason(o.node.Why) // as the node itself would report
		j.note = fmt.Sprintf("the Node was not Ready %s after it was started", o.deadlines.Boot) + o.why()
	}
	o.judge(a, j)
}

// why is the reason why the Node is not Ready, in brackets.
func (o *observed) why() string {
	if o.node == nil || o.node.Why == "" {
		return ""
	}
	return " (" + verdict.RedactText(o.node.Why) + ")"
}

// What a verdict from outside is based on, besides what broken returns.
const (
	basisConsole  = "console"
	basisDeadline = "deadline"
)

// A judgement is what a rule finds out of a boot that has no report.
type judgement struct {
	basis  string
	source Source
	facts  verdict.Facts
	note   string
}

// judge finds the cause of a failure in all that there is. A verdict of the same basis stays if
// the log was not read: a new one would have less evidence.
func (o *observed) judge(a *Assessment, j judgement) {
	a.Basis = j.basis
	if p := o.previous; o.serial == nil && p.Basis == j.basis && p.Verdict != nil {
		a.State, a.Source, a.Verdict, a.Note = p.State, p.Source, p.Verdict, p.Note
		return
	}
	j.facts.Outside = true
	j.facts.Logs = logsOf(o.boot, o.serial)
	j.facts.Provision = provisionOf(o.boot)
	v := verdict.Judge(j.facts).Verdict
	v.Node, v.VMID, v.At = a.HostName, a.VMID, o.now
	if j.basis == basisDeadline {
		v.Outcome = wire.TimedOut
	}
	if v.Reason != wire.ReasonUnknown && v.Reason != j.facts.Sign && len(o.serial) > 0 && j.source != FromPlatform {
		j.source = FromLog
	}
	a.State, a.Source, a.Verdict, a.Note = State(v.Outcome), j.source, &v, j.note
}

// bootstrapTypes are parts of the types of extensions that make a node: their
// failure is the boot's. CAPZ's is a clone of CustomScript (CAPZ
// azure/services/scalesets; publisher Microsoft.Azure.ContainerUpstream).
var bootstrapTypes = [...]string{"customscript", "capz.linux.bootstrapping", "capz.windows.bootstrapping", "ortet"}

func makesNode(e fleet.ExtensionStatus) bool {
	kind := strings.ToLower(e.Type)
	for _, t := range bootstrapTypes {
		if strings.Contains(kind, t) {
			return true
		}
	}
	return false
}

// broken returns what Azure, or an extension that makes the node, reports of a boot that
// failed: the sign changes with what it is based on, and is "" where nothing
// is. The text is not redacted.
func broken(boot fleet.Boot) (sign, why string) {
	for _, e := range boot.Extensions {
		if !makesNode(e) {
			continue
		}
		for _, st := range e.Statuses {
			if st.Failed() {
				return "extension " + e.Name + " " + st.Reason, "extension " + e.Name + " failed: " + oneLine(st.Message)
			}
		}
	}
	if strings.EqualFold(boot.ProvisioningState, fleetFailed) || boot.Provisioning.State == "failed" {
		what := cmp.Or(boot.Provisioning.Reason, boot.Provisioning.Display, "provisioning failed")
		return "provisioning " + boot.Provisioning.Reason, "Azure says " + what + ": " + oneLine(boot.Provisioning.Message)
	}
	return "", ""
}

const (
	fleetFailed = "Failed" // a provisioning state
	// provisioningTimedOut is Azure's code where the system did not report in time
	// that it was provisioned, and the catalogue's reason.
	provisioningTimedOut = "OSProvisioningTimedOut"
)

// logsOf returns what was written in the form that the judge reads.
func logsOf(boot fleet.Boot, serial []byte) []verdict.Log {
	var logs []verdict.Log
	if len(serial) > 0 {
		logs = append(logs, verdict.Log{Source: SerialConsole, Lines: lastBoot(serial)})
	}
	for _, e := range boot.Extensions {
		var text strings.Builder
		for _, st := range append(slices.Clone(e.Statuses), e.Substatuses...) {
			if st.Message != "" && (st.Failed() || makesNode(e)) {
				text.WriteString(st.Message)
				text.WriteByte('\n')
			}
		}
		if text.Len() > 0 {
			logs = append(logs, verdict.Log{Source: "extension " + e.Name, Lines: lines([]byte(text.String()))})
		}
	}
	return logs
}

// stuck reports whether a serial log shows that the boot cannot go on.
func stuck(serial []byte) bool {
	j := verdict.Judge(verdict.Facts{Logs: []verdict.Log{{Source: "serial console kernel", Lines: lastBoot(serial)}}})
	switch j.Reason {
	case "KernelPanic", "EmergencyMode", "FilesystemCorrupt":
		return true
	}
	return false
}

// lastBoot returns the lines of a serial log from where the kernel last began.
func lastBoot(serial []byte) []string {
	if i := bytes.LastIndex(serial, []byte("] Linux version ")); i >= 0 {
		serial = serial[bytes.LastIndexByte(serial[:i], '\n')+1:]
	}
	return lines(serial)
}

// lines breaks a text that may hold anything: serial consoles end lines with
// carriage returns, and nobody promises UTF-8 or an end of line.
func lines(text []byte) []string {
	var out []string
	for l := range bytes.Lines(text) {
		l = bytes.TrimRight(l, "\r\n")
		if i := bytes.LastIndexByte(l, '\r'); i >= 0 { // what was overwritten is not seen
			l = l[i+1:]
		}
		out = append(out, strings.Clone(strings.ToValidUTF8(string(head(l, maxQuoted)), "�")))
	}
	return out
}

// head returns the beginning of a line that may be long, without the token that a cut
// goes through, which may be the first half of a secret. The rest is left out: a
// secret in it may have its name before the cut, and would not be known for one.
func head(line []byte, n int) []byte {
	if len(line) <= n {
		return line
	}
	return append(slices.Clone(line[:bytes.LastIndexAny(line[:n], " \t")+1]), "…"...)
}

// tail is the end of a text that may be long, in whole lines: secrets are known by
// what is before them, also in lines before, so they are redacted first. The
// verdict's line has none, and stays.
func tail(text string, n int) string {
	if len(text) <= n {
		return text
	}
	all := strings.Split(text, "\n")
	size := 0
	shown := verdict.Redact(all)
	for i := len(all) - 1; i >= 0; i-- {
		if strings.Contains(all[i], verdictMark) {
			shown[i] = all[i]
		}
		if size += len(shown[i]) + 1; size > n {
			return strings.Join(shown[i+1:], "\n")
		}
	}
	return strings.Join(shown, "\n")
}

// Relevant returns the part of a serial log that is worth showing, redacted: the
// end of the last boot, at most n lines of it, and of what was before them those
// that the judge would quote. The line of a verdict is for programs, and left out.
func Relevant(serial []byte, n int) []string {
	all := slices.DeleteFunc(lastBoot(serial), func(l string) bool {
		_, ok := wire.FindVerdict([]byte(l))
		return ok
	})
	// A private key, or what shows that a value is secret, may be above the end.
	from := max(0, len(all)-n)
	top := max(0, from-linesAbove)
	end := verdict.Redact(all[top:])[from-top:]
	var out []string
	if len(end) < len(all) {
		j := verdict.Judge(verdict.Facts{Deadline: true, Logs: []verdict.Log{{Source: SerialConsole, Lines: all}}})
		for _, e := range j.Evidence {
			for _, l := range e.Lines {
				if !slices.Contains(end, l) {
					out = append(out, l)
				}
			}
		}
		if len(out) > 0 {
			out = append(out, "[…]")
		}
	}
	out = append(out, end...)
	for i, l := range out {
		out[i] = flat(l)
	}
	return out
}

// linesAbove is how many lines above what is shown are searched for what is secret in
// it: as many as the longest private key has to verdict.Redact.
const linesAbove = 256

// provisionOf finds the answer of AKS's provisioning script in what an extension
// reported: it prints what it writes to provision.json.
func provisionOf(boot fleet.Boot) *verdict.Provision {
	var found *verdict.Provision
	eachMessage(boot, func(st fleet.BootStatus) {
		at := strings.Index(st.Message, `"ExitCode"`)
		if at < 0 {
			return
		}
		at = strings.LastIndexByte(st.Message[:at], '{')
		if at < 0 {
			return
		}
		var p struct{ ExitCode, Output, Error string }
		if json.NewDecoder(strings.NewReader(st.Message[at:])).Decode(&p) == nil && p.ExitCode != "" {
			found = &verdict.Provision{ExitCode: p.ExitCode, Output: p.Output, Error: p.Error}
		}
	})
	return found
}

// stagesOf reads when stages ran from the substatuses that our extension reports,
// as the agent writes it (wire.StageTime.Text).
func stagesOf(boot fleet.Boot) []wire.StageTime {
	var out []wire.StageTime
	for _, e := range boot.Extensions {
		for _, st := range e.Substatuses {
			if s, ok := wire.ParseStageTime(st.Name, st.Message); ok && len(out) < maxStages {
				out = append(out, s)
			}
		}
	}
	return out
}

// maxStages bounds what is taken over of them.
const maxStages = 16

// oneLine makes a message fit a sentence.
func oneLine(s string) string { return strings.Join(strings.Fields(flat(s)), " ") }

// flat makes a text one line that can be printed.
func flat(s string) string { return verdict.Plain(s, maxNote) }

func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n-len("…")], "") + "…"
}

func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// earliest of two times leaves out those that are not known.
func earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
