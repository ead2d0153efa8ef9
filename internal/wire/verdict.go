package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"strings"
	"time"
)

// Outcome is how a node's boot ended.
type Outcome string

// The outcomes.
const (
	Succeeded Outcome = "Succeeded" // the node came up
	Failed    Outcome = "Failed"    // it did not
	Degraded  Outcome = "Degraded"  // it came up, with errors that were ignored on the way
	TimedOut  Outcome = "TimedOut"  // at the deadline it had neither come up nor failed
)

// Owner is who can repair a failure.
type Owner string

// The owners.
const (
	OwnerUser     Owner = "user"     // who wrote the configuration: commands, tokens, flags
	OwnerImage    Owner = "image"    // who built the image: binaries, units, versions
	OwnerNetwork  Owner = "network"  // who runs the network: DNS, routes, firewalls, the API server's address
	OwnerPlatform Owner = "platform" // Azure, or the hardware
)

// ReasonUnknown is the reason of a failure for which there is evidence, and none
// of the catalogue's labels.
const ReasonUnknown = "Unknown"

// Verdict reports whether a node came up in one boot, and if not, why. It holds no secrets:
// whoever makes one redacts what it quotes.
type Verdict struct {
	Outcome Outcome `json:"outcome"`
	// Reason is a name of the catalogue (docs/reference/reasons.md); "" where Succeeded.
	Reason string `json:"reason,omitempty"`
	// Owner is "" without a known cause: Succeeded, Unknown, and reasons that only name
	// what did not happen.
	Owner Owner `json:"owner,omitempty"`
	// Retryable means that the same boot may succeed in a retry.
	Retryable bool   `json:"retryable,omitempty"`
	Message   string `json:"message,omitempty"` // what happened, for a person; up to 1 KiB
	Remedy    string `json:"remedy,omitempty"`  // what to do, one line
	// Where it broke, as far as it is known.
	Stage    string `json:"stage,omitempty"`    // "init-local", "init", "modules-config", "modules-final", "kubelet", "node", or a unit
	Module   string `json:"module,omitempty"`   // cloud-init's, as "runcmd"
	Phase    string `json:"phase,omitempty"`    // kubeadm's, as "preflight"
	ExitCode *int   `json:"exitCode,omitempty"` // of the program that failed
	// Ignored are the errors that did not keep a Degraded node from coming up, one
	// line each.
	Ignored []string `json:"ignored,omitempty"`

	Node   string `json:"node,omitempty"`   // host name in lower case
	VMID   string `json:"vmId,omitempty"`   // Azure's, in lower case
	BootID string `json:"bootId,omitempty"` // of this boot; "" on Windows
	// At is the node's own clock, which may be wrong; Uptime is how long after the
	// kernel's start that was, in milliseconds.
	At     time.Time   `json:"at"`
	Uptime int64       `json:"uptimeMillis"`
	Stages []StageTime `json:"stages,omitempty"`

	Evidence []Excerpt `json:"evidence,omitempty"`
}

// StageTime is when a stage ran, in milliseconds after the kernel's start.
type StageTime struct {
	Name  string `json:"name"`
	Begin int64  `json:"beginMillis"`
	End   int64  `json:"endMillis"` // 0 where it has not ended
}

// Excerpt is lines that show what happened, quoted from a log or a file.
type Excerpt struct {
	Source string   `json:"source"` // "/var/log/cloud-init-output.log", "journal kubelet.service"
	Lines  []string `json:"lines"`
	Cut    bool     `json:"cut,omitempty"` // there was more than is quoted
}

// Bounds of a Verdict.
const (
	MaxVerdict     = 64 << 10 // bytes of its JSON
	maxMessage     = 1 << 10
	maxExcerpts    = 16
	maxLines       = 200 // of one excerpt
	maxQuoted      = 1 << 10
	maxIgnored     = 32
	maxStages      = 32
	maxUptime      = int64(100 * 365 * 24 * time.Hour / time.Millisecond)
	maxConsoleLine = 1 << 10
)

// ParseVerdict reads a verdict strictly: no unknown field, nothing after the
// object, every bound checked. It may come from anybody who can reach the
// server; what is returned can be printed and stored.
func ParseVerdict(text []byte) (Verdict, error) {
	if len(text) > MaxVerdict {
		return Verdict{}, fmt.Errorf("a verdict of %d bytes, more than %d", len(text), MaxVerdict)
	}
	var v Verdict
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&v); err != nil {
		return Verdict{}, fmt.Errorf("reading a verdict: %w", err)
	}
	if rest := bytes.TrimSpace(text[d.InputOffset():]); len(rest) > 0 {
		return Verdict{}, errors.New("reading a verdict: something follows the object")
	}
	if err := v.Validate(); err != nil {
		return Verdict{}, fmt.Errorf("a verdict: %w", err)
	}
	return v, nil
}

// Validate returns what is wrong with a verdict; nil when nothing is.
func (v Verdict) Validate() error {
	switch v.Outcome {
	case Succeeded, Failed, Degraded, TimedOut:
	default:
		return fmt.Errorf("unknown outcome %q", clip(string(v.Outcome)))
	}
	if (v.Outcome == Succeeded) != (v.Reason == "") {
		return fmt.Errorf("the outcome is %s, and the reason %q", v.Outcome, clip(v.Reason))
	}
	switch v.Owner {
	case "", OwnerUser, OwnerImage, OwnerNetwork, OwnerPlatform:
	default:
		return fmt.Errorf("unknown owner %q", clip(string(v.Owner)))
	}
	if !camelCase(v.Reason) {
		return fmt.Errorf("a reason %q, which is not CamelCase", clip(v.Reason))
	}
	if v.At.IsZero() || v.At.Year() > 9999 || v.Uptime < 0 || v.Uptime > maxUptime {
		return errors.New("times out of bounds")
	}
	if len(v.Ignored) > maxIgnored || len(v.Stages) > maxStages || len(v.Evidence) > maxExcerpts {
		return errors.New("lists out of bounds")
	}
	errs := []error{
		checkText("reason", v.Reason, maxName), checkText("message", v.Message, maxMessage), checkText("remedy", v.Remedy, maxMessage),
		checkText("stage", v.Stage, maxName), checkText("module", v.Module, maxName), checkText("phase", v.Phase, maxName),
		checkText("node", v.Node, maxName), checkText("vmId", v.VMID, maxName), checkText("bootId", v.BootID, maxName),
	}
	for _, s := range v.Ignored {
		errs = append(errs, checkText("ignored", s, maxQuoted))
	}
	for _, s := range v.Stages {
		errs = append(errs, checkText("stage", s.Name, maxName))
		if s.Begin < 0 || s.End < 0 || s.Begin > maxUptime || s.End > maxUptime {
			errs = append(errs, errors.New("a stage's times are out of bounds"))
		}
	}
	for _, e := range v.Evidence {
		errs = append(errs, e.validate())
	}
	return errors.Join(errs...)
}

func (e Excerpt) validate() error {
	if len(e.Lines) > maxLines {
		return fmt.Errorf("an excerpt of %d lines, more than %d", len(e.Lines), maxLines)
	}
	errs := []error{checkText("source", e.Source, maxPath)}
	for _, l := range e.Lines {
		errs = append(errs, checkText("line", l, maxQuoted))
	}
	return errors.Join(errs...)
}

func camelCase(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return (r < 'A' || r > 'Z') && (r < 'a' || r > 'z') && (r < '0' || r > '9') })
}

// consoleMark begins the line on the serial console.
const consoleMark = "ortet.io/verdict"

// ConsoleLine is the verdict in one line of printable ASCII of up to 1 KiB, without
// evidence, for a serial console: the mark, the JSON, and its CRC-32 in hexadecimal, since
// others write to the console at the same time. What does not fit is left out: what was
// ignored, then the remedy, then the message.
func (v Verdict) ConsoleLine() string {
	v.Evidence, v.Stages = nil, nil
	for _, shorten := range []func(){
		func() {}, func() { v.Ignored = nil }, func() { v.Remedy = "" }, func() { v.Message = clip(v.Message) }, func() { v.Message = "" },
		func() {
			v = Verdict{Outcome: v.Outcome, Reason: v.Reason, Owner: v.Owner, Retryable: v.Retryable, At: v.At, Uptime: v.Uptime}
		},
	} {
		shorten()
		text, err := json.Marshal(v)
		if err != nil {
			continue // a time that JSON cannot hold
		}
		text = ascii(text)
		line := fmt.Sprintf("%s %s %08x", consoleMark, text, crc32.ChecksumIEEE(text))
		if len(line) <= maxConsoleLine {
			return line
		}
	}
	return ""
}

// ascii escapes what JSON lets stand beyond ASCII.
func ascii(text []byte) []byte {
	var b bytes.Buffer
	for _, r := range string(text) {
		switch {
		case r < 0x80:
			b.WriteByte(byte(r))
		case r > 0xffff:
			r -= 0x10000
			fmt.Fprintf(&b, `\u%04x\u%04x`, 0xd800+r>>10, 0xdc00+r&0x3ff)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.Bytes()
}

// FindVerdict returns the last verdict in a serial log: lines may begin with
// anything and end with carriage returns, and those that others wrote into are
// passed over.
func FindVerdict(log []byte) (v Verdict, ok bool) {
	for rest := log; ; {
		i := bytes.LastIndex(rest, []byte(consoleMark+" {"))
		if i < 0 {
			return Verdict{}, false
		}
		line := rest[i+len(consoleMark)+1:]
		line = line[:min(len(line), maxConsoleLine)]
		if end := bytes.IndexAny(line, "\r\n"); end >= 0 {
			line = line[:end]
		}
		rest = rest[:i]
		end := bytes.LastIndexByte(line, '}')
		if end < 0 {
			continue
		}
		text, sum := line[:end+1], strings.TrimSpace(string(line[end+1:]))
		if sum != fmt.Sprintf("%08x", crc32.ChecksumIEEE(text)) {
			continue
		}
		if v, err := ParseVerdict(text); err == nil {
			return v, true
		}
	}
}
