package extension

import (
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/ortet/ortet/internal/boots/verdict"
	"github.com/ortet/ortet/internal/wire"
)

// Bounds of what a status says, in bytes. The first KiB of the message holds what
// is needed, since that much is shown everywhere.
const (
	maxSaid    = 400 // of the verdict's message and remedy each, in the status's
	maxShown   = 2 << 10
	maxQuoting = 8 << 10
)

// verdictPart and evidencePart name parts that are no stages.
const (
	verdictPart  = "verdict" // wire.ConsoleLine, for programs (wire.FindVerdict)
	evidencePart = "evidence"
)

// bootStages are the stages that a node's boot goes through, in order: cloud-init's
// on Linux, or cloudbase-init on Windows, and then the same on both.
func bootStages() []string {
	return []string{"init-local", "init", "modules-config", "modules-final", "cloudbase-init", "kubelet", "node"}
}

// stateOf is the state that a verdict gives a status: a node that came up with
// errors on the way is no failed deployment.
func stateOf(v *wire.Verdict) string {
	if v.Outcome == wire.Succeeded || v.Outcome == wire.Degraded {
		return success
	}
	return failure
}

// report is a verdict as a status. Its code is the exit code that the verdict has
// elsewhere too.
func report(v wire.Verdict, code int, note string) status {
	s := status{State: stateOf(&v), Code: code, Message: say(summary(&v, note)), Subparts: stageParts(&v, code)}
	if line := v.ConsoleLine(); line != "" {
		s.Subparts = append(s.Subparts, subpart{verdictPart, s.State, code, say(line)})
	}
	if text := quote(v.Evidence, maxQuoting); text != "" {
		s.Subparts = append(s.Subparts, subpart{evidencePart, warning, 0, say(text)})
	}
	return s
}

// summary is a verdict for whoever sees nothing else: what, whose, what to do,
// where, and a few of the lines that show it.
func summary(v *wire.Verdict, note string) string {
	var b strings.Builder
	b.WriteString(string(v.Outcome))
	if v.Reason != "" {
		b.WriteString(": " + v.Reason)
	}
	var aside []string
	if v.Owner != "" {
		aside = append(aside, "owner: "+string(v.Owner))
	}
	if sure := verdict.ConfidenceOf(v.Reason); sure != "" {
		aside = append(aside, "confidence: "+string(sure))
	}
	if v.Retryable {
		aside = append(aside, "trying again may help")
	}
	if len(aside) > 0 {
		b.WriteString(" (" + strings.Join(aside, "; ") + ")")
	}
	for _, text := range []string{head(v.Message, maxSaid), label("Remedy: ", head(v.Remedy, maxSaid)), label("Where: ", where(v)), note} {
		if text != "" {
			b.WriteString("\n" + text)
		}
	}
	if len(v.Evidence) > 0 {
		if text := quote(v.Evidence[:1], maxShown); text != "" {
			b.WriteString("\n" + text)
		}
	}
	return b.String()
}

func label(name, text string) string {
	if text == "" {
		return ""
	}
	return name + text
}

func where(v *wire.Verdict) string {
	parts := make([]string, 0, 4)
	for _, p := range []struct{ name, text string }{{"stage ", v.Stage}, {"module ", v.Module}, {"kubeadm phase ", v.Phase}} {
		if p.text != "" {
			parts = append(parts, p.name+p.text)
		}
	}
	if v.ExitCode != nil {
		parts = append(parts, "exit code "+strconv.Itoa(*v.ExitCode))
	}
	return strings.Join(parts, ", ")
}

// stageParts are the stages of which something is known: the one that broke, those
// that ended before, and those that it kept from coming.
func stageParts(v *wire.Verdict, code int) []subpart {
	names := bootStages()
	times := map[string]wire.StageTime{}
	for _, t := range v.Stages {
		times[t.Name] = t
	}
	came := stateOf(v) == success
	known := false
	for _, name := range names {
		known = known || name == v.Stage
	}
	if v.Stage != "" && !known {
		names = append(names, v.Stage)
	}
	var parts []subpart
	for _, name := range names {
		t, timed := times[name]
		p := subpart{Name: name, State: success}
		switch {
		case name == v.Stage && !came:
			p.State, p.Code, p.Message = failure, code, say(strings.TrimSpace(v.Reason+": "+v.Message))
		case name == v.Stage:
			p.State, p.Message = warning, say(v.Message)
		case timed:
			p.Message = say(t.Text()) // wire.ParseStageTime reads it
			if t.End <= 0 {
				p.State = warning
			}
		case name == "node" && came:
			p.Message = say("came up " + seconds(v.Uptime) + " after the kernel's start")
		case name == "node":
			p.State, p.Message = failure, say("did not come up")
			p.Code = code
		default:
			continue // nothing is known of it
		}
		parts = append(parts, p)
	}
	return parts
}

// seconds is a number of milliseconds for a person.
func seconds(millis int64) string {
	return (time.Duration(millis) * time.Millisecond).Round(100 * time.Millisecond).String()
}

// quote is the end of each excerpt, as much of each as room allows.
func quote(excerpts []wire.Excerpt, room int) string {
	if len(excerpts) == 0 {
		return ""
	}
	var b strings.Builder
	each := room / len(excerpts)
	for _, e := range excerpts {
		first, used := len(e.Lines), len(e.Source)+2
		for first > 0 && used+len(e.Lines[first-1])+3 <= each {
			first--
			used += len(e.Lines[first]) + 3
		}
		if first == len(e.Lines) {
			continue
		}
		if b.Len() > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(e.Source + ":")
		for _, line := range e.Lines[first:] {
			b.WriteString("\n  " + line)
		}
	}
	return b.String()
}

// head is the beginning of a text, at most n bytes of it.
func head(text string, n int) string {
	if len(text) <= n {
		return text
	}
	const more = "…"
	n = max(n-len(more), 0)
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:n] + more
}
