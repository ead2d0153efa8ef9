package live

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

var (
	percentForm = regexp.MustCompile("[^\\s\"'`]*%[0-9A-Fa-f]{2}[^\\s\"'`]*")
	escapeForm  = regexp.MustCompile(`%[0-9A-Fa-f]{2}`)
	jsonForm    = regexp.MustCompile(`\\(?:u[0-9A-Fa-f]{4}|["/\\])`)
	tokenForm   = regexp.MustCompile(`[A-Za-z0-9+/_-]{16,}={0,2}`)
)

// decoded replaces what is found in what a text has as JSON, JSON's escapes, URL escapes and
// base64, at most so deep. What is not found stays as it is encoded.
func (c *scrubber) decoded(s string, depth int) string {
	if depth == 0 {
		return s
	}
	if t := strings.TrimSpace(s); strings.HasPrefix(t, "{") || strings.HasPrefix(t, "[") || strings.HasPrefix(t, `"`) {
		var v any
		d := json.NewDecoder(strings.NewReader(t))
		if d.UseNumber(); d.Decode(&v) == nil && !d.More() {
			clean := c.found(c.body("", v, false))
			if text := (&bytes.Buffer{}); !reflect.DeepEqual(v, clean) {
				e := json.NewEncoder(text)
				if e.SetEscapeHTML(false); e.Encode(clean) == nil {
					return strings.TrimSpace(text.String())
				}
			}
			return s
		}
	}
	// Each decoding is of a text without blanks, or of the whole.
	within := func(encoded, plain string, encode func(string) string) string {
		if clean := c.secrets(c.plain(c.decoded(plain, depth-1))); clean != plain {
			return encode(clean)
		}
		return encoded
	}
	same := func(s string) string { return s }
	if jsonForm.MatchString(s) {
		s = within(s, jsonForm.ReplaceAllStringFunc(s, func(e string) string {
			if e[1] != 'u' {
				return e[1:]
			}
			r, _ := strconv.ParseUint(e[2:], 16, 16)
			return string(rune(r))
		}), same)
	}
	s = percentForm.ReplaceAllStringFunc(s, func(token string) string {
		return within(token, escapeForm.ReplaceAllStringFunc(strings.ReplaceAll(token, "+", " "), func(e string) string {
			b, _ := strconv.ParseUint(e[1:], 16, 8)
			return string([]byte{byte(b)})
		}), same)
	})
	return tokenForm.ReplaceAllStringFunc(s, func(token string) string {
		encoding := base64.RawStdEncoding
		if strings.ContainsAny(token, "-_") {
			encoding = base64.RawURLEncoding
		}
		if strings.HasSuffix(token, "=") {
			encoding = encoding.WithPadding(base64.StdPadding)
		}
		plain, err := encoding.DecodeString(token)
		unprintable := func(r rune) bool { return !unicode.IsPrint(r) && !unicode.IsSpace(r) }
		if err != nil || !utf8.Valid(plain) || bytes.ContainsFunc(plain, unprintable) {
			return token
		}
		return within(token, string(plain), func(s string) string { return encoding.EncodeToString([]byte(s)) })
	})
}
