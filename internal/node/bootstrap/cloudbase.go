package bootstrap

import (
	"bytes"
	"time"

	"github.com/ortet/ortet/internal/boots/verdict"
)

// cloudbaseInit is Windows' counterpart of cloud-init, as a service. It ends when the
// user's commands are done, and does not report their results.
const cloudbaseInit = "cloudbase-init"

// cloudbaseReboots is how long after its end cloudbase-init may have the machine
// reboot, which it does at once: until then its end is not the boot's.
const cloudbaseReboots = 30 * time.Second

// cloudbaseSeen is the state of cloudbase-init's service as cloud-init's part of the boot;
// nil where it is not on this node, or does not run in this boot. runs means that it does,
// or will; booted is when the machine was started.
func cloudbaseSeen(units map[string]unitSeen, booted time.Time) (c *verdict.CloudInit, runs bool) {
	u, ok := units[cloudbaseInit]
	if !ok || u.Missing {
		return nil, false
	}
	stage := verdict.Stage{Name: cloudbaseInit}
	if u.since.After(booted) {
		stage.Begin = u.since.Sub(booted).Milliseconds()
	}
	switch {
	case u.Active == "inactive" && u.Sub == "dead":
		c = &verdict.CloudInit{Done: true}
		if stage.Begin > 0 && u.ended.After(u.since) {
			stage.End = u.ended.Sub(booted).Milliseconds()
			c.Stages = []verdict.Stage{stage}
		}
		return c, true
	case u.Active == "active" || u.Active == "deactivating":
		c = &verdict.CloudInit{}
		if stage.Begin > 0 {
			c.Stages = []verdict.Stage{stage}
		}
		return c, true
	}
	return nil, u.Active == "activating"
}

// pythonBytes decodes what cloudbase-init logs of the user's commands: all output of a
// script on one line, as Python prints bytes, b'…', with line ends escaped. cut means that
// the text begins within such a line, or another.
func pythonBytes(text []byte, cut bool) []byte {
	var out bytes.Buffer
	out.Grow(len(text))
	for line := range bytes.Lines(text) {
		switch {
		case len(line) > 2 && line[0] == 'b' && (line[1] == '\'' || line[1] == '"'):
			unescape(&out, line[2:], line[1])
		case cut && (bytes.Contains(line, []byte(`\r\n`)) || bytes.Contains(line, []byte(`\n`))):
			unescape(&out, line, 0)
		default:
			out.Write(line)
		}
		cut = false
	}
	return out.Bytes()
}

// unescape writes out Python's escapes, up to the quote that ends them; what
// follows it goes into a line of its own. Nothing gets longer.
func unescape(out *bytes.Buffer, s []byte, quote byte) {
	for i := 0; i < len(s); i++ {
		c := s[i]
		if quote != 0 && c == quote {
			rest := s[i+1:]
			if len(bytes.TrimSpace(rest)) > 0 {
				out.WriteByte('\n')
				rest = bytes.TrimLeft(rest, " ")
			}
			out.Write(rest)
			return
		}
		if c != '\\' || i+1 == len(s) {
			out.WriteByte(c)
			continue
		}
		i++
		switch c = s[i]; c {
		case 'n':
			out.WriteByte('\n')
		case 'r':
			out.WriteByte('\r')
		case 't':
			out.WriteByte('\t')
		case '\\', '\'', '"':
			out.WriteByte(c)
		case 'x':
			if i+2 < len(s) && hexDigit(s[i+1]) >= 0 && hexDigit(s[i+2]) >= 0 {
				out.WriteByte(byte(hexDigit(s[i+1])<<4 | hexDigit(s[i+2])))
				i += 2
				continue
			}
			out.WriteString(`\x`)
		default:
			out.WriteByte('\\')
			out.WriteByte(c)
		}
	}
}

// hexDigit is a digit's value, -1 where it is none.
func hexDigit(c byte) int {
	switch {
	case c >= '0' && c <= '9':
		return int(c - '0')
	case c >= 'a' && c <= 'f':
		return int(c-'a') + 10
	case c >= 'A' && c <= 'F':
		return int(c-'A') + 10
	}
	return -1
}
