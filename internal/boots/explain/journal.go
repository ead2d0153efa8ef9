package explain

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// entries gives a journal as -o json or -o export prints it, and logs that other programs
// carry in JSON, as lines of text. Other lines stay as they are.
func entries(lines []Line) ([]Line, bool) {
	out := tail{lines: maxLines, bytes: maxKept}
	var e map[string]any // of an export
	first, boot, found := 0, "", false
	put := func(n int, e map[string]any) bool {
		head, text, id, ok := entry(e)
		if !ok {
			return false
		}
		if id != "" && boot != "" && id != boot {
			out.add(Line{n, "-- Boot " + id + " --"})
		}
		if id != "" {
			boot = id
		}
		for part := range strings.SplitSeq(text, "\n") {
			out.add(Line{n, head + part})
		}
		found = true
		return true
	}
	for _, l := range lines {
		s := strings.TrimSpace(l.Text)
		if strings.HasPrefix(s, "__CURSOR=") || strings.HasPrefix(s, "__REALTIME_TIMESTAMP=") && e == nil {
			e, first = map[string]any{}, l.Number
		}
		if e != nil {
			if key, value, ok := strings.Cut(s, "="); ok {
				e[key] = value
				if key == "MESSAGE" {
					first = l.Number
				}
			} else if s == "" {
				put(first, e)
				e = nil
			}
			continue
		}
		var object map[string]any
		if strings.HasPrefix(s, "{") && strings.HasSuffix(s, "}") && json.Unmarshal([]byte(s), &object) == nil && put(l.Number, object) {
			continue
		}
		out.add(l)
	}
	if e != nil {
		put(first, e)
	}
	return out.kept, found
}

// maxName is how long a name in an entry may be, in bytes: Linux allows hosts no more.
const maxName = 64

// entry is an entry as journalctl prints it, with a head before each line of its text, or
// what a program wrote that a container runtime keeps.
func entry(e map[string]any) (head, text, boot string, ok bool) {
	word := func(key string) string { s, _ := e[key].(string); return s }
	name := func(key string) string { s := word(key); return strings.ToValidUTF8(s[:min(len(s), maxName)], "") }
	message := word("MESSAGE")
	if bytes, is := e["MESSAGE"].([]any); is { // what is not UTF-8
		var b []byte
		for _, v := range bytes {
			n, _ := v.(float64)
			b = append(b, byte(n))
		}
		message = strings.ToValidUTF8(string(b), "�")
	}
	if message == "" {
		if log := word("log"); log != "" && word("stream") != "" { // Docker's
			return "", strings.TrimRight(log, "\n"), "", true
		}
		return "", "", "", false
	}
	at := time.Time{}
	var micros int64
	if _, err := fmt.Sscan(word("__REALTIME_TIMESTAMP"), &micros); err == nil {
		at = time.UnixMicro(micros).UTC()
	}
	host, program := name("_HOSTNAME"), name("SYSLOG_IDENTIFIER")
	if host == "" {
		host = "-"
	}
	if program == "" {
		program = "-"
	}
	if pid := name("_PID"); pid != "" && program != "kernel" {
		program += "[" + pid + "]"
	}
	head = at.Format("Jan _2 15:04:05") + " " + host + " " + program + ": "
	return head, message, name("_BOOT_ID"), true
}
