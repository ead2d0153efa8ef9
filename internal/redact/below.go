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

// below finds values in the lines below: name: DB_PASSWORD, then value: …; chpasswd's
// list of user:password; a here-document; a block of YAML.
func (f *finder) below(s string, to int) {
	next := to + 1
	if next >= len(f.Data) || isComment(s) {
		return
	}
	t := strings.Trim(s, " -")
	if _, name, ok := strings.Cut(t, "name:"); ok && strings.HasPrefix(t, "name:") {
		name = strings.Trim(name, ` "'`)
		var buf [64]byte
		if flat := string(flatten(&buf, name)); secretName(flat) == secretValue || isShouted(name) {
			a, b := f.lineAt(next)
			below := f.plainLine(a, b)
			if i := strings.Index(below, "value:"); i >= 0 && strings.TrimLeft(below[:i], " ") == "" {
				least := mixed
				if isPasswordName(flat) {
					least = word
				}
				f.value(f.ruleOf(flat, name, false), below, wordAt(below, skipBlanks(below, i+len("value:"))), a, least)
			}
		}
		return
	}
	if name, ok := strings.CutSuffix(t, "</name>"); ok && strings.HasPrefix(name, "<name>") { // of Hadoop
		a, b := f.lineAt(next)
		below := f.plainLine(a, b)
		name = name[len("<name>"):]
		var buf [64]byte
		flat := string(flatten(&buf, name))
		if i := strings.Index(below, "<value>"); i >= 0 && (secretName(flat) == secretValue || strings.Contains(flat, "accountkey")) {
			if v, ok := tagged(below, i+1, i+len("<value")); ok {
				f.value(ruleNamed, below, v, a, mixed)
			}
		}
		return
	}
	if flagAlone(s) {
		a, b := f.lineAt(next)
		below := f.plainLine(a, b)
		v := wordAt(below, len(below)-len(strings.TrimLeft(below, " -")))
		if strings.Trim(below[v.to:], ` ,"'`) == "" {
			f.value(ruleCommand, below, v, a, mixed)
			for _, v := range bootstrapTokens(below, nil) {
				f.hit(ruleBootstrap, a+v.from-7, a+v.to)
			}
		}
		return
	}
	if hereDocument(s) != "" && strings.HasPrefix(t, "passwd ") {
		a, b := f.lineAt(next)
		below := f.plainLine(a, b)
		f.value(ruleCommand, below, span{0, len(below)}, a, word)
		return
	}
	list := strings.Contains(s, "chpasswd") && (strings.HasSuffix(t, "chpasswd:") || hereDocument(s) != "") || strings.HasSuffix(t, "list: |")
	if list && to < f.seen {
		return
	}
	if h := headingOf(s); list || h.names {
		rule := ruleCloudInit
		if !list {
			rule = f.ruleOf(string(flatten(new([64]byte), strings.Trim(strings.TrimRight(s, " |>-"), ` "':-`))), s, false)
		}
		for n := 0; n < maxHereLines && next < len(f.Data); n++ {
			a, b := f.lineAt(next)
			next = b + 1
			if list {
				f.seen = max(f.seen, b)
			}
			below := f.plainLine(a, b)
			v := span{len(below) - len(strings.TrimLeft(below, " -\"'")), len(strings.TrimRight(below, " \"'"))}
			if v.from >= v.to {
				continue
			}
			if !list {
				if !h.covers(below) || strings.Contains(below[v.from:v.to], " ") {
					return
				}
				if rule != "" {
					f.value(rule, below, v, a, mixed)
				}
				return
			}
			value := below[v.from:v.to]
			user, password, ok := strings.Cut(value, ":")
			if !ok || strings.Contains(value, " ") {
				if strings.HasPrefix(value, "list:") || strings.HasPrefix(value, "expire") {
					continue
				}
				return
			}
			v.from += len(user) + 1
			if password == "R" || password == "RANDOM" || strings.HasPrefix(password, "$") {
				continue
			}
			f.value(rule, below, v, a, word)
		}
	}
}
