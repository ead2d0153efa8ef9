package redact

import "strings"

// strength is how much like a secret a value looks by itself.
type strength int

const (
	noSecret strength = iota // a variable, placeholder, path, keyword
	word                     // may be a password, or a word
	mixed                    // letters and digits, or both cases within: 8 bytes or more
	random                   // 12 bytes or more that nobody would write as a name
)

// strengthOf judges the value that configuration gives a name.
func strengthOf(v string) strength {
	if len(v) < 4 || len(v) > 8<<10 || isPlaceholder(v) {
		return noSecret
	}
	var upper, lower, digit, other, blank, changes int
	distinct, seen := 0, [256]bool{}
	last := byte(0)
	for i := 0; i < len(v); i++ {
		c := v[i]
		class := byte(0)
		switch {
		case c >= 'A' && c <= 'Z':
			upper++
			class = 1
		case c >= 'a' && c <= 'z':
			lower++
			class = 2
		case c >= '0' && c <= '9':
			digit++
			class = 3
		case c == ' ':
			blank++
		default:
			other++
		}
		if class != last {
			changes++
		}
		last = class
		if !seen[c] {
			seen[c] = true
			distinct++
		}
	}
	letters := upper + lower
	switch {
	case distinct < 4 || letters == 0 && digit < 6 || letters+digit == 0:
		return noSecret
	case blank > 0 && (digit == 0 || blank > 3):
		return noSecret // a sentence
	case digit < 3 && digit > 0 && upper > 1 && isCamel(v): // DataLakeGen2SharedKey
		return word
	case letters == 0 || len(v) < 8, digit == 0 && (upper == 0 || changes < 4 || isCamel(v)):
		return word
	case len(v) < 12, digit < 2, changes*4 < len(v) && !isHex(v):
		return mixed
	}
	return random
}

// placeholders are parts of values that documentation has instead of secrets.
const placeholders = "example|changeme|changeit|change_me|change-me|placeholder|your|xxxx|dummy|redacted|replace|<|${|$(|{{|}}|%(|***|...|not_set|notset|undefined|insert|todo|fixme|sample|devstoreaccount|eby8vdm02xnocqf"

// keywords are values that are no secrets.
const keywords = " password passwd passphrase passwort kennwort contraseña wachtwoord senha secret token pass foobar test testing default null none true false required optional enabled disabled enable disable prompt file files string bytes integer boolean" +
	" basic bearer plain digest md5 sha1 sha256 sha512 scram-sha-256 auto never always compat systemd nis ldap manual ignore forbidden-value keyring unset empty self plaintext random user root public private" +
	" md5-password encrypted cleartext service-account-token kubernetes.io/service-account-token opaque allow deny without-password prohibit-password publickey sufficient requisite include external internal "

func isPlaceholder(v string) bool {
	low := strings.ToLower(v)
	for rest := placeholders; rest != ""; {
		var p string
		p, rest, _ = strings.Cut(rest, "|")
		if strings.Contains(low, p) {
			return true
		}
	}
	if len(v) <= len("kubernetes.io/service-account-token") && strings.Contains(keywords, " "+low+" ") {
		return true
	}
	switch v[0] {
	case '$': // a variable; crypt's hashes have a second $
		return isVariable(v[1:])
	case '%', '@': // %s, %PASSWORD%, @PASSWORD@
		return len(v) < 3 || isVariable(strings.TrimRight(v[1:], "%@"))
	case '/', '.', '~':
		return looksLikePath(v)
	case '{': // {xor}…, {AES}…, and what Maven and Jenkins have in braces
		end := strings.IndexByte(v, '}')
		return !(end == len(v)-1 && end > 20 && allBase64(v[1:end]) || end > 2 && end < 12 && len(v)-end > 12 && allBase64(v[1:end]))
	case '[':
		return !strings.HasPrefix(low, "[md5]")
	case '\\', '*', '!', '&', '`', '|', '>', '(', '#', '=':
		return true
	}
	for _, scheme := range [...]string{"file:", "env:", "vault:", "secret:", "arn:", "op://", "http://", "https://", "kms:", "sha256:", "sha512:", "ref+", "keyring:", "[redacted", "enc[", "var.", "local.", "module."} {
		if strings.HasPrefix(low, scheme) {
			return true
		}
	}
	for _, end := range [...]string{".pem", ".key", ".crt", ".json", ".yaml", ".yml", ".txt", ".conf", ".pub", ".py", ".sh", ".service", ".so", ".cfg", ".ini"} {
		if strings.HasSuffix(low, end) {
			return true
		}
	}
	return strings.HasPrefix(low[1:], `:\`) || strings.HasPrefix(low, "--")
}

// isVariable says whether a name may be one of a variable.
func isVariable(name string) bool {
	for i := 0; i < len(name); i++ {
		if c := name[i]; !isAlnum(c) && c != '_' {
			return false
		}
	}
	return true
}

// looksLikePath says whether a value that begins like a path is one: base64 may too.
func looksLikePath(v string) bool {
	if isPath(v) || v[0] != '/' {
		return true
	}
	if strings.ContainsAny(v, "+=") {
		return false
	}
	return strings.Count(v, "/") > 1 || len(v) < 24
}

// isCamel says whether a value is words that are written as one, each with a capital.
func isCamel(v string) bool {
	run := 0
	for i := 0; i < len(v); i++ {
		switch c := v[i]; {
		case c >= 'a' && c <= 'z':
			run++
		case c >= 'A' && c <= 'Z':
			if i > 0 && run == 1 {
				return false
			}
			run = 0
		case c == '.' || c == '_' || c == '-' || c == '/':
			run = 2
		case c >= '0' && c <= '9' && i > 3 && i < len(v)-3 && run > 1:
		default:
			return false
		}
	}
	return true
}

// looksNamed says whether a value may be the name of an object: words of small letters
// and short numbers with dashes between.
func looksNamed(v string) bool {
	if n := len(v) - 36; n > 0 && isUUID(v[n:]) { // us:5b3c…: of a region
		return false
	}
	part, parts := 0, 1
	digits := false
	for i := 0; i < len(v); i++ {
		switch c := v[i]; {
		case c == '-' || c == '.' || c == '_' || c == '/' || c == ':':
			part, digits = 0, false
			parts++
		case c >= 'a' && c <= 'z' || c >= '0' && c <= '9':
			part++
			digits = digits || c <= '9'
			if part > 14 && digits {
				return false
			}
		default:
			return false
		}
	}
	return parts > 1 && !isUUID(v)
}

func isUUID(v string) bool {
	return len(v) == 36 && v[8] == '-' && v[13] == '-' && v[18] == '-' && v[23] == '-' && isHex(strings.ReplaceAll(v, "-", ""))
}

func isHex(v string) bool {
	for i := 0; i < len(v); i++ {
		if c := v[i]; (c < '0' || c > '9') && (c|0x20 < 'a' || c|0x20 > 'f') {
			return false
		}
	}
	return v != ""
}

// isVersion says whether a value is one of a release, or a date.
func isVersion(v string) bool {
	v = strings.TrimPrefix(v, "v")
	dots := 0
	for i := 0; i < len(v) && (v[i] >= '0' && v[i] <= '9' || v[i] == '.' || v[i] == ':'); i++ {
		if v[i] != v[0] && (v[i] == '.' || v[i] == ':') {
			dots++
		}
	}
	return v != "" && v[0] >= '0' && v[0] <= '9' && dots > 1
}
