package redact

import "strings"

// A heading is a line of YAML that names a secret and has no value beside it, as
// printed by a program or by a log with something in front.
type heading struct {
	names  bool
	prefix int  // bytes of what a log has in front of each line
	indent int  // of the name, behind that
	block  bool // its value is text as it stands, whatever it looks like
}

func headingOf(s string) (h heading) {
	s = strings.TrimRight(s, " ")
	if i := strings.LastIndexByte(s, ' '); i > 0 && s[i-1] == ':' && len(s)-i <= 4 && (s[i+1] == '|' || s[i+1] == '>') {
		s, h.block = s[:i], true
	}
	s, ok := strings.CutSuffix(s, ":")
	if !ok {
		return heading{}
	}
	s = strings.TrimRight(s, `"'`)
	from := len(s)
	for from > 0 && isNameByte(s[from-1]) {
		from--
	}
	name := s[from:]
	before := strings.TrimRight(s[:from], `"'`)
	// What stands between is indentation, and the dashes of lists.
	if i := strings.LastIndex(before, ": "); i >= 0 {
		h.prefix = i + len(": ")
	}
	if strings.Trim(before[h.prefix:], " -") != "" {
		return heading{}
	}
	h.indent = len(before) - h.prefix
	var buf [64]byte
	kind := secretName(string(flatten(&buf, name)))
	h.names = name != "" && name[0] != '-' && (kind == secretValue || kind == secretToEnd)
	return h
}

// covers says whether a line is of the heading's value: it stands further in, or is of
// a list, and is no map with names of its own, which tell what they are.
func (h heading) covers(s string) bool {
	if strings.Trim(s, " ") == "" || len(s) == h.prefix-1 && s[len(s)-1] == ':' {
		return h.block // a paragraph ends, and not the text
	}
	if h.prefix > 0 && (len(s) < h.prefix || s[h.prefix-2:h.prefix] != ": ") {
		return false
	}
	text := strings.TrimLeft(s[min(h.prefix, len(s)):], " ")
	if text == "" {
		return h.block
	}
	// YAML lets a list begin where its name does.
	if in := len(s) - len(text) - h.prefix; in < h.indent || in == h.indent && (h.block || !strings.HasPrefix(text, "- ")) {
		return false
	}
	name := strings.TrimLeft(text, "- ")
	end := 0
	for end < len(name) && isNameByte(name[end]) {
		end++
	}
	isMap := end > 0 && (strings.HasPrefix(name[end:], ": ") || name[end:] == ":")
	return h.block || !isMap
}
