package explain

import (
	"cmp"
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/ortet/ortet/internal/boots/timeline/source"
)

// entries gives a journal as -o json or -o export prints it, and logs that other programs
// carry in JSON, as lines of text. Other lines stay as they are.
func entries(lines []Line) ([]Line, bool) {
	out := tail{lines: maxLines, bytes: maxKept}
	var export map[string]string
	at, boot, found := 0, "", false
	put := func(e map[string]string) bool {
		head, text := entry(e)
		if text == "" {
			return false
		}
		id := short(e["_BOOT_ID"])
		if id != "" && boot != "" && id != boot {
			out.add(Line{at, "-- Boot " + id + " --"})
		}
		boot, found = cmp.Or(id, boot), true
		for part := range strings.SplitSeq(text, "\n") {
			out.add(Line{at, head + part})
		}
		return true
	}
	for _, l := range lines {
		s := strings.TrimSpace(l.Text)
		key, value, field := strings.Cut(s, "=")
		if field && (key == "__CURSOR" || key == "__REALTIME_TIMESTAMP" && export == nil) {
			export, at = map[string]string{}, l.Number
		}
		switch {
		case export != nil && s == "":
			put(export)
			export = nil
		case export != nil:
			if export[key] = value; key == "MESSAGE" {
				at = l.Number
			}
		default:
			var object map[string]json.RawMessage
			if at = l.Number; strings.HasPrefix(s, "{") && strings.HasSuffix(s, "}") && json.Unmarshal([]byte(s), &object) == nil {
				e := map[string]string{}
				for key, raw := range object {
					e[key] = strings.ToValidUTF8(string(source.JournalField(raw)), "�")
				}
				if put(e) {
					continue
				}
			}
			out.add(l)
		}
	}
	put(export)
	return out.kept, found
}

// entry is an entry as journalctl prints it, with the head of each line of its text, or what a
// program wrote that a container runtime keeps; no text for what is neither.
func entry(e map[string]string) (head, text string) {
	if e["MESSAGE"] == "" && e["stream"] != "" { // Docker's
		return "", strings.TrimRight(e["log"], "\n")
	} else if e["MESSAGE"] == "" {
		return "", ""
	}
	micros, _ := strconv.ParseInt(e["__REALTIME_TIMESTAMP"], 10, 64)
	program := cmp.Or(short(e["SYSLOG_IDENTIFIER"]), "-")
	if pid := short(e["_PID"]); pid != "" && program != "kernel" {
		program += "[" + pid + "]"
	}
	return time.UnixMicro(micros).UTC().Format("Jan _2 15:04:05") + " " + cmp.Or(short(e["_HOSTNAME"]), "-") + " " + program + ": ", e["MESSAGE"]
}

// short is a name in an entry: Linux allows hosts 64 bytes, and others are no longer.
func short(name string) string { return strings.ToValidUTF8(name[:min(len(name), 64)], "") }
