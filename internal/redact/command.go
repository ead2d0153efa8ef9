package redact

import "strings"

const (
	leastArgument = 7  // bytes; shorter arguments stay
	mostName      = 15 // bytes of a word of one case that stays
)

// rootFolders are what absolute paths begin with; base64 may begin with a slash too.
const rootFolders = " bin boot dev etc home lib lib64 media mnt opt proc root run sbin snap srv sys tmp usr var "

// commandArguments finds the arguments of commands that a shell traces (set -x), that
// Azure's script extension is given, and that sudo logs. All are hidden but those whose
// form shows what they are: nothing says which one is a password.
func commandArguments(s string, hide []span) []span {
	for i, begin := 0, textOf(s); i < len(s); i++ {
		if s[i] != '+' || i != begin && !beginsString(s[:i]) {
			continue
		}
		if n := tracePrefix(s[i:]); n > 0 {
			hide, i = argumentsFrom(s, i+n, hide)
		}
	}
	for at := 0; ; {
		_, rest, ok := strings.Cut(s[at:], "commandToExecute")
		if !ok {
			break
		}
		for at = len(s) - len(rest); at < len(s) && strings.IndexByte(`\"': =`, s[at]) >= 0; {
			at++
		}
		end := quoteEnd(s, at)
		hide, _ = argumentsFrom(s[:end], at, hide)
		at = end
	}
	if _, command, ok := strings.Cut(s, " COMMAND="); ok {
		hide, _ = argumentsFrom(s, len(s)-len(command), hide)
	}
	return hide
}

// beginsString says whether a traced line begins behind what is given: within a string of
// JSON, or behind a label, as in cloud-init's "Stderr: + …" and "[stderr] + …".
func beginsString(before string) bool {
	opening, ok := strings.CutSuffix(before, `"`)
	return strings.HasSuffix(before, `\n`) || strings.HasSuffix(before, ": ") || strings.HasSuffix(before, "] ") || strings.HasSuffix(before, ": '") || ok && opening != "" && strings.IndexByte(`:= [\`, opening[len(opening)-1]) >= 0
}

// tracePrefix is how long the pluses are, and the blank behind them, that a traced command
// begins with; 0 where there are none.
func tracePrefix(s string) int {
	n := 0
	for n < len(s) && s[n] == '+' {
		n++
	}
	if n == 0 || n >= len(s) || s[n] != ' ' {
		return 0
	}
	return n + 1
}

// quoteEnd is where the quotes end that a value at a place begins with, with the same
// number of backslashes; the end of the line where there are none.
func quoteEnd(s string, at int) int {
	if at == 0 || s[at-1] != '"' && s[at-1] != '\'' {
		return len(s)
	}
	escapes := backslashesBefore(s, at-1)
	for i := at; i < len(s); i++ {
		if s[i] == s[at-1] && backslashesBefore(s, i) == escapes {
			return i
		}
	}
	return len(s)
}

func backslashesBefore(s string, i int) int {
	return i - len(strings.TrimRight(s[:i], `\`))
}

// argumentsFrom hides the arguments of the command at a place, to the end of the text or
// the next trace within it, and gives where that is.
func argumentsFrom(s string, at int, hide []span) (found []span, end int) {
	if i := strings.Index(s[at:], `\n+`); i >= 0 {
		s = s[:at+i]
	}
	for program := false; at < len(s); at++ {
		from := at
		for at < len(s) && s[at] != ' ' && s[at] != '"' && s[at] != '\'' {
			at++
		}
		word := s[from:at]
		value := valueIn(word)
		if !program && value == word {
			program = word != ""
			continue
		}
		if !isPlainArgument(strings.Trim(value, `$()[]{}<>,;\`)) {
			hide = append(hide, span{at - len(value), at})
		}
	}
	return hide, len(s)
}

// valueIn is what follows the names of an argument: V of --set=a.b=V and of user:V.
func valueIn(word string) string {
	for url := strings.Contains(word, "://"); !url; {
		i := strings.IndexAny(word, "=:")
		if i < 1 || i+1 == len(word) {
			break
		}
		if name := strings.TrimLeft(word[:i], "-"); !isOneCase(name) && !isDotted(name) && name != "sha256" {
			break
		}
		word = word[i+1:]
	}
	return word
}

// isPlainArgument says whether an argument's form shows that it is no password: a flag, a
// path, an address, a number or version, the name of a unit or host, an identifier, or a
// short word of one case.
func isPlainArgument(v string) bool {
	flag, isFlag := strings.CutPrefix(v, "--")
	switch {
	case len(v) < leastArgument, strings.Contains(v, "[redacted"), strings.Contains(v, "://"), isUUID(v):
		return true
	case isFlag:
		return isOneCase(flag)
	case v[0] == '/':
		top, _, _ := strings.Cut(v[1:], "/")
		return strings.Contains(rootFolders, " "+top+" ")
	case strings.HasPrefix(v, "./"), strings.HasPrefix(v, "../"), strings.HasPrefix(v, "~/"):
		return true
	case strings.Trim(v, "0123456789.:-/%") == "", isVersion(v):
		return len(v) <= mostName || strings.ContainsAny(v, ".:")
	case isHex(v) && len(v) == 64: // a digest
		return true
	case strings.HasPrefix(v, "ERR_") && v == strings.ToUpper(v): // AKS' and others' exit codes by name
		return true
	case isDotted(v):
		return true
	}
	if registry, image, ok := strings.Cut(v, "/"); ok && isDotted(registry) {
		image, digest, _ := strings.Cut(image, "@sha256:")
		return isOneCase(image) && (digest == "" || isHex(digest) && len(digest) == 64)
	}
	return len(v) <= mostName && isOneCase(v)
}

// isOneCase says whether a word has letters of one case behind its first, and dashes and
// the like between, and no digits.
func isOneCase(v string) bool {
	if strings.ContainsFunc(v, func(c rune) bool { return c > 'z' || !isAlnum(byte(c)) && !strings.ContainsRune("-_./+", c) }) {
		return false
	}
	return v != "" && (ordinary(v) || v == strings.ToUpper(v) && ordinary(strings.ToLower(v)))
}

// isDotted says whether a word is the name of a host, a unit or a kernel's setting.
func isDotted(v string) bool {
	for i := 0; i < len(v); i++ {
		if c := v[i]; !(c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-' || c == '_' || c == '.' || c == '@') {
			return false
		}
	}
	for _, end := range [...]string{".service", ".socket", ".target", ".mount", ".timer", ".slice"} {
		if strings.HasSuffix(v, end) {
			return true
		}
	}
	dots := strings.Count(v, ".")
	return (dots > 1 || dots == 1 && ordinary(v)) && !strings.Contains(v, "..")
}

// inlineSecrets are the blocks of an OpenVPN profile that hold a secret in their lines.
var inlineSecrets = [...]string{"auth-user-pass", "key", "tls-auth", "tls-crypt", "tls-crypt-v2", "secret", "pkcs12", "http-proxy-user-pass"}

// inlineBlock is what ends the block that a line begins; "" where it begins none.
func inlineBlock(s string) string {
	tag := strings.TrimSpace(s[textOf(s):])
	for _, name := range inlineSecrets {
		if tag == "<"+name+">" {
			return "</" + name + ">"
		}
	}
	return ""
}

// inlineLines is how many lines such a block takes, with the line that ends it. Where none
// does, a name and a password take two, and keys are known by themselves.
func inlineLines(lines []string, end string) int {
	for i, l := range lines[:min(len(lines), MaxKeyLines)] {
		if strings.Contains(l, end) {
			return i + 1
		}
	}
	if endsUserPass(end) {
		return 2
	}
	return 0
}

// inlineBlocks finds such blocks that are written in one line, as in a string of JSON.
func inlineBlocks(s string, hide []span) []span {
	for _, name := range inlineSecrets {
		_, rest, ok := strings.Cut(s, "<"+name+`>\n`)
		if !ok {
			continue
		}
		from := len(s) - len(rest)
		to := len(s)
		if n := strings.Index(rest, "</"); n >= 0 {
			to = from + n
		}
		hide = append(hide, span{from, to})
	}
	return hide
}

// endsUserPass says whether a line ends a block of a name and a password.
func endsUserPass(s string) bool {
	tag := strings.TrimSpace(s[textOf(s):])
	return strings.HasPrefix(tag, "</") && strings.HasSuffix(tag, "-user-pass>")
}
