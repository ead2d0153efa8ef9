package source

import (
	"io"
	"strings"

	"github.com/ortet/ortet/internal/wire"
)

const (
	sourceAgent = "waagent"
	sourceCSE   = "cse"
)

const unitAgent = "walinuxagent.service"

// AgentLog reads /var/log/waagent.log: when the agent and its extension handler
// started, what it waited for, its goal states with the time at which the
// platform made them (by the cloud's clock), and each extension with its
// commands. A boot begins where the agent's daemon does. Source: Azure/WALinuxAgent,
// azurelinuxagent/common/logger.py and ga/exthandlers.py.
func AgentLog(r io.Reader, o Options) []wire.BootReport {
	in := newLines(r, o)
	var boots []*agentLog
	current := newAgentLog()
	for in.next() {
		line := string(in.line)
		if len(line) > 10 && line[4] == '/' && line[7] == '/' { // until 2.2.45 or so
			line = line[:4] + "-" + line[5:7] + "-" + line[8:]
		}
		at, grain, rest, ok := stamp(line)
		if !ok {
			continue // the rest of a message of several lines
		}
		level, rest, ok := strings.Cut(strings.TrimLeft(rest, " "), " ")
		if !ok || !agentLevel(level) {
			in.bad++
			continue
		}
		if !o.covers(at) {
			in.other++
			continue
		}
		in.good++
		if strings.Contains(rest, "Azure Linux Agent Version: ") && !strings.Contains(rest, "Goal State Agent version") {
			if current.taken > 0 {
				boots = append(boots, current)
				boots = boots[max(0, len(boots)-maxBoots):]
				current = newAgentLog()
			}
			current.moment("start", at, grain, rest)
		}
		current.take(at, grain, level, rest)
	}
	if current.taken > 0 || len(boots) == 0 {
		boots = append(boots, current)
	}
	s := in.source(sourceAgent, o)
	if in.good == 0 && s.State == wire.SourceRead {
		s = nothing(s, "no line of the agent is in it")
	}
	reports := make([]wire.BootReport, 0, len(boots))
	for _, b := range boots {
		reports = append(reports, b.done(s))
	}
	return reports
}

func agentLevel(s string) bool {
	switch s {
	case "VERBOSE", "INFO", "WARNING", "ERROR":
		return true
	}
	return false
}

// agentLog gathers the agent's log of one boot.
type agentLog struct {
	*boot
	taken     int
	last      wire.Micros
	open      []wire.BootSpan
	extension string // that is handled now
}

func newAgentLog() *agentLog { return &agentLog{boot: newBoot()} }

func (l *agentLog) moment(name string, at, grain wire.Micros, text string) {
	l.span(wire.BootSpan{Source: sourceAgent, Name: name, Clock: wire.ClockWall, Start: at, End: at, Grain: grain, Unit: unitAgent, Detail: text})
}

func (l *agentLog) begin(name, parent string, at, grain wire.Micros, text string) {
	for i := range l.open {
		if l.open[i].Name == name {
			return
		}
	}
	if len(l.open) < maxOpen {
		l.open = append(l.open, wire.BootSpan{Source: sourceAgent, Name: name, Parent: parent, Clock: wire.ClockWall, Start: at, End: at, Grain: grain, Unit: unitAgent, Detail: text})
	}
}

func (l *agentLog) end(name string, at wire.Micros, result string) {
	for i := range l.open {
		if l.open[i].Name == name {
			s := l.open[i]
			s.End, s.Result = at, result
			l.open = append(l.open[:i], l.open[i+1:]...)
			l.span(s)
			return
		}
	}
}

func (l *agentLog) take(at, grain wire.Micros, level, text string) {
	l.taken++
	l.last = max(l.last, at)
	switch {
	case strings.Contains(text, "Goal State Agent version "):
		l.moment("exthandler-start", at, grain, "")
	case strings.Contains(text, "Running CloudInit provisioning handler"), strings.Contains(text, "Running default provisioning handler"):
		l.begin("provisioning", "", at, grain, "")
	case strings.HasSuffix(text, "Finished provisioning"), strings.HasSuffix(text, "Provisioning complete"):
		l.end("wait-ssh-host-key", at, "")
		l.end("provisioning", at, "")
	case strings.Contains(text, "Waiting for ssh host key be generated"):
		l.begin("wait-ssh-host-key", "provisioning", at, grain, "")
	case strings.Contains(text, "ssh host key found at"):
		l.end("wait-ssh-host-key", at, "")
	case strings.Contains(text, "Fetched a new incarnation for the WireServer goal state"):
		l.moment("goal-state", at, grain, after1(text, "goal state "))
	case strings.Contains(text, "ProcessExtensionsGoalState started ["):
		l.begin("extensions", "", at, grain, "")
		l.created(text)
	case strings.Contains(text, "ProcessExtensionsGoalState completed ["):
		l.closeExtension(at, "")
		l.end("extensions", at, "")
	case strings.Contains(text, "ProcessExtensionsGoalState failed ["):
		l.closeExtension(at, "")
		l.end("extensions", at, "failed")
	default:
		l.extensionSays(at, grain, level, text)
	}
}

func after1(text, what string) string {
	_, rest, _ := strings.Cut(text, what)
	return rest
}

// created keeps when the platform made a goal state: "… created: 2024-11-12T17:23:50.112233Z]"
func (l *agentLog) created(text string) {
	_, made, ok := strings.Cut(text, " created: ")
	if !ok {
		return
	}
	if at, grain, _, ok := stamp(made); ok {
		l.span(wire.BootSpan{Source: sourceAgent, Name: "goal-state-created", Clock: wire.ClockCloud, Start: at, End: at, Grain: grain})
	}
}

// extensionSays reads lines whose message begins with an extension's name:
//
//	ExtHandler [Microsoft.Azure.Extensions.CustomScript-2.1.10] Target handler state: enabled [incarnation_1]
//	ExtHandler [Microsoft.Azure.Extensions.CustomScript-2.1.10] Executing command: /var/lib/…/bin/custom-script-shim enable with environment variables: {…}
//	ExtHandler [Microsoft.Azure.Extensions.CustomScript-2.1.10] Command: bin/custom-script-shim enable
func (l *agentLog) extensionSays(at, grain wire.Micros, level, text string) {
	_, rest, ok := strings.Cut(text, " [")
	if !ok {
		rest, ok = strings.CutPrefix(text, "[")
	}
	if !ok {
		return
	}
	full, rest, ok := strings.Cut(rest, "] ")
	if !ok || len(full) > maxWord || !strings.Contains(full, ".") || strings.ContainsAny(full, " =/") {
		return
	}
	name := full
	if i := strings.LastIndexByte(full, '-'); i > 0 {
		name = full[:i] // without its version, which differs where the work is the same
	}
	span := "extension/" + word(name)
	if l.extension != "" && l.extension != span {
		l.closeExtension(at, "")
	}
	l.extension = span
	l.begin(span, "extensions", at, grain, full)
	switch {
	case strings.HasPrefix(rest, "Executing command: "):
		command := rest[len("Executing command: "):]
		command, _, _ = strings.Cut(command, " with environment")
		l.begin(span+"/"+operation(command), span, at, grain, "")
	case strings.HasPrefix(rest, "Command: "):
		command, _, _ := strings.Cut(rest[len("Command: "):], "\n")
		l.end(span+"/"+operation(command), at, "")
	case level == "ERROR":
		l.closeExtension(at, "failed")
	}
}

// operation is which of an extension's operations a command is.
func operation(command string) string {
	for _, op := range [...]string{"install", "enable", "update", "disable", "uninstall", "reset"} {
		if strings.HasSuffix(strings.TrimRight(command, " "), op) || strings.Contains(command, op+".") || strings.Contains(command, "-"+op+" ") {
			return op
		}
	}
	return "command"
}

func (l *agentLog) closeExtension(at wire.Micros, result string) {
	if l.extension == "" {
		return
	}
	for i := len(l.open) - 1; i >= 0; i-- {
		if name := l.open[i].Name; strings.HasPrefix(name, l.extension) {
			l.end(name, at, result)
		}
	}
	l.extension = ""
}

// abandon keeps what is open as what went on until the last line.
func (l *agentLog) abandon() {
	for _, o := range l.open {
		o.End, o.Open = max(l.last, o.Start), true
		l.span(o)
	}
	l.open = l.open[:0]
}

func (l *agentLog) done(s wire.BootSource) wire.BootReport {
	l.abandon()
	return l.boot.done(s)
}

// CSELog reads the custom script extension's handler.log
// (/var/log/azure/custom-script/handler.log): its operations, each with its
// downloads and its command. Source: Azure/custom-script-extension-linux,
// main/main.go and cmds.go.
func CSELog(r io.Reader, o Options) []wire.BootReport {
	in := newLines(r, o)
	l := newAgentLog()
	for in.next() {
		f, ok := readLogfmt(string(in.line))
		if !ok {
			continue // of a value of several lines
		}
		at, grain, _, ok := stamp(f.time)
		if !ok || f.operation == "" {
			in.bad++
			continue
		}
		if !o.covers(at) {
			in.other++
			continue
		}
		in.good++
		if f.event == "start" { // what has not ended by now never will
			l.abandon()
		}
		l.last = max(l.last, at)
		l.cse(at, grain, f)
	}
	s := in.source(sourceCSE, o)
	if in.good == 0 && s.State == wire.SourceRead {
		s = nothing(s, "no line of the extension is in it")
	}
	for i := range l.open {
		l.open[i].Source = sourceCSE
	}
	return []wire.BootReport{l.done(s)}
}

// logfmt is what is of use of the extension's lines.
type logfmt struct{ time, operation, event, file, err string }

// readLogfmt reads key=value pairs, of which values may be quoted.
func readLogfmt(line string) (f logfmt, ok bool) {
	if !strings.HasPrefix(line, "time=") {
		return f, false
	}
	for line != "" {
		key, rest, found := strings.Cut(line, "=")
		if !found {
			break
		}
		var value string
		if strings.HasPrefix(rest, `"`) {
			value, line = quoted(rest)
		} else {
			value, line, _ = strings.Cut(rest, " ")
		}
		switch strings.TrimSpace(key) {
		case "time":
			f.time = value
		case "operation":
			f.operation = value
		case "event":
			f.event = value
		case "file":
			f.file = value
		case "error":
			f.err = value
		}
	}
	return f, true
}

// quoted takes a text in quotes off the start of s.
func quoted(s string) (value, rest string) {
	b := make([]byte, 0, 32)
	for i := 1; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
			if i < len(s) {
				b = append(b, s[i])
			}
		case '"':
			return string(b), s[i+1:]
		default:
			b = append(b, s[i])
		}
	}
	return string(b), ""
}

func (l *agentLog) cse(at, grain wire.Micros, f logfmt) {
	op := word(strings.ToLower(f.operation))
	download := op + "/download/" + word(f.file)
	begin := func(name, parent string) {
		l.begin(name, parent, at, grain, "")
		for i := range l.open {
			l.open[i].Source, l.open[i].Unit = sourceCSE, ""
		}
	}
	switch f.event {
	case "start":
		begin(op, "")
	case "download start":
		begin(download, op)
	case "download complete":
		l.end(download, at, "")
	case "download failed":
		l.end(download, at, "failed")
	case "executing command":
		begin(op+"/command", op)
	case "executed command":
		l.end(op+"/command", at, "")
	case "failed to execute command":
		l.end(op+"/command", at, "failed")
	case "end", "exit":
		l.end(op, at, "")
	case "failed to handle", "pre-check failed":
		l.end(op, at, "failed")
	}
}
