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
	out := make([]Line, 0, len(lines))
	var e map[string]any // of an export
	first, boot, found := 0, "", false
	put := func(n int, e map[string]any) bool {
		text, id, ok := entry(e)
		if !ok {
			return false
		}
		if id != "" && boot != "" && id != boot {
			out = append(out, Line{n, "-- Boot " + id + " --"})
		}
		if id != "" {
			boot = id
		}
		for part := range strings.SplitSeq(text, "\n") {
			out = append(out, Line{n, part})
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
		out = append(out, l)
	}
	if e != nil {
		put(first, e)
	}
	return out, found
}

// entry is an entry as journalctl prints it, or what a program wrote that a container
// runtime keeps.
func entry(e map[string]any) (text, boot string, ok bool) {
	word := func(key string) string { s, _ := e[key].(string); return s }
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
			return strings.TrimRight(log, "\n"), "", true
		}
		return "", "", false
	}
	at := time.Time{}
	var micros int64
	if _, err := fmt.Sscan(word("__REALTIME_TIMESTAMP"), &micros); err == nil {
		at = time.UnixMicro(micros).UTC()
	}
	host, program := word("_HOSTNAME"), word("SYSLOG_IDENTIFIER")
	if host == "" {
		host = "-"
	}
	if program == "" {
		program = "-"
	}
	if pid := word("_PID"); pid != "" && program != "kernel" {
		program += "[" + pid + "]"
	}
	head := at.Format("Jan _2 15:04:05") + " " + host + " " + program + ": "
	return head + strings.ReplaceAll(message, "\n", "\n"+head), word("_BOOT_ID"), true
}
