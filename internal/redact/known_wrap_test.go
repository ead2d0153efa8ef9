package redact

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"math/rand/v2"
	"mime/quotedprintable"
	"net/url"
	"strings"
	"unicode/utf16"
)

// A wrapping writes bytes in another form.
type wrapping struct {
	name  string
	takes func(b []byte) bool
	wrap  func(r *rand.Rand, b []byte) []byte
}

func anything([]byte) bool { return true }

func isASCII(b []byte) bool {
	for _, c := range b {
		if c >= 0x7f || c < ' ' && c != '\n' && c != '\r' && c != '\t' {
			return false
		}
	}
	return true
}

// wrappings are all that Known says it undoes, each with its variants chosen by r.
func wrappings() []wrapping {
	return []wrapping{
		{"base64", anything, func(r *rand.Rand, b []byte) []byte {
			form := []*base64.Encoding{base64.StdEncoding, base64.RawStdEncoding, base64.URLEncoding, base64.RawURLEncoding}[r.IntN(4)]
			before := make([]byte, r.IntN(4)) // another offset
			return inLines(r, form.EncodeToString(append(before, b...)), 1)
		}},
		{"base64 in a line", anything, func(_ *rand.Rand, b []byte) []byte {
			return []byte(base64.StdEncoding.EncodeToString(b))
		}},
		{"base64 with its ends of lines lost", anything, func(r *rand.Rand, b []byte) []byte {
			return bytes.ReplaceAll(breakLines(base64.StdEncoding.EncodeToString(b), 12+r.IntN(80), "\n"), []byte("\n"), []byte(" "))
		}},
		{"hexadecimal", anything, func(r *rand.Rand, b []byte) []byte {
			text := hex.EncodeToString(b)
			if r.IntN(2) == 0 {
				text = strings.ToUpper(text)
			}
			between := []string{"", "", ":", " ", "\\x", ", 0x", "-"}[r.IntN(7)]
			if between != "" {
				var pairs []string
				for ; text != ""; text = text[2:] {
					pairs = append(pairs, text[:2])
				}
				text = strings.TrimSpace(strings.Trim(between, ",")) + strings.Join(pairs, between)
			}
			if strings.ContainsAny(between, "\\0") {
				return []byte(text)
			}
			return inLines(r, text, 2)
		}},
		{"array of bytes", anything, func(_ *rand.Rand, b []byte) []byte {
			var out strings.Builder
			for i, c := range b {
				if fmt.Fprintf(&out, "0x%02x,", c); i%12 == 11 {
					out.WriteString("\n\t")
				}
			}
			return []byte(out.String())
		}},
		{"JSON", isASCII, func(_ *rand.Rand, b []byte) []byte {
			text, err := json.Marshal(string(b))
			if err != nil {
				panic(err)
			}
			return text
		}},
		{"JSON with slashes escaped", isASCII, func(_ *rand.Rand, b []byte) []byte {
			text, err := json.Marshal(string(b))
			if err != nil {
				panic(err)
			}
			return bytes.ReplaceAll(text, []byte("/"), []byte("\\/"))
		}},
		{"quoted for a shell", isASCII, func(_ *rand.Rand, b []byte) []byte {
			var out []byte
			for _, c := range b {
				if strings.IndexByte("$`\"\\!&;|<>()# ", c) >= 0 {
					out = append(out, '\\')
				}
				out = append(out, c)
			}
			return out
		}},
		{"URL", anything, func(_ *rand.Rand, b []byte) []byte { return []byte(url.PathEscape(string(b))) }},
		{"URL, all of it", anything, func(_ *rand.Rand, b []byte) []byte {
			var out []byte
			for _, c := range b {
				out = fmt.Appendf(out, "%%%02X", c)
			}
			return out
		}},
		{"quoted-printable", anything, func(r *rand.Rand, b []byte) []byte {
			var out bytes.Buffer
			w := quotedprintable.NewWriter(&out)
			w.Binary = r.IntN(2) == 0 || !isASCII(b)
			_, _ = w.Write(b)
			_ = w.Close()
			return out.Bytes()
		}},
		{"XML", isASCII, func(_ *rand.Rand, b []byte) []byte {
			var out bytes.Buffer
			_ = xml.EscapeText(&out, b)
			return out.Bytes()
		}},
		{"UTF-16", isASCII, func(r *rand.Rand, b []byte) []byte {
			var out []byte
			big := r.IntN(2) == 0
			for _, u := range utf16.Encode([]rune("\ufeff" + string(b))) {
				if big {
					out = append(out, byte(u>>8), byte(u))
				} else {
					out = append(out, byte(u), byte(u>>8))
				}
			}
			return out
		}},
		{"UTF-32", isASCII, func(_ *rand.Rand, b []byte) []byte {
			var out []byte
			for _, c := range b {
				out = append(out, c, 0, 0, 0)
			}
			return out
		}},
		{"indented, CRLF", func(b []byte) bool {
			// Where a line's own blank comes after a soft break nobody can tell the two.
			return isASCII(b) && !bytes.Contains(b, []byte("=\r\n "))
		}, func(r *rand.Rand, b []byte) []byte {
			return bytes.ReplaceAll(b, []byte("\n"), []byte("\r\n"+strings.Repeat(" ", r.IntN(12))))
		}},
		{"gzip", anything, func(r *rand.Rand, b []byte) []byte {
			var out bytes.Buffer
			w, err := gzip.NewWriterLevel(&out, r.IntN(10))
			if err != nil {
				panic(err)
			}
			if r.IntN(2) == 0 {
				w.Name, w.Comment, w.Extra = "key.pem", "of a node", []byte("xxxx")
			}
			_, _ = w.Write(b)
			_ = w.Close()
			return out.Bytes()
		}},
	}
}

// inLines breaks a text at some length, or not, and indents it, or not.
func inLines(r *rand.Rand, text string, least int) []byte {
	if r.IntN(3) == 0 {
		return []byte(text)
	}
	length := []int{64, 76, 70, least * (1 + r.IntN(100))}[r.IntN(4)]
	return breakLines(text, length, []string{"\n", "\r\n"}[r.IntN(2)]+strings.Repeat(" ", []int{0, 0, r.IntN(20)}[r.IntN(3)]))
}

func breakLines(text string, length int, between string) []byte {
	var out strings.Builder
	for ; len(text) > length; text = text[length:] {
		out.WriteString(text[:length] + between)
	}
	out.WriteString(text)
	return []byte(out.String())
}

// amid puts bytes into a file that has other things too.
func amid(r *rand.Rand, b []byte) []byte {
	line := func() string {
		return []string{
			"#cloud-config\nwrite_files:\n- path: /etc/x\n  encoding: b64\n  content: ", "{\"a\": [1, 2.5, -3e7], \"b\": \"", "export KEY='",
			"-----BEGIN PRIVATE KEY-----\n", "lorem ipsum dolor sit amet, 100 % of it = 3\n", "C:\\Windows\\new\\table &amp; more <a href=\"/x?y=%20z\">\n", "\x00\x01\x02\xff\xfe",
			"deadbeef 00:11:22:33\n", "\"", "\n\n", "", "abcdefghijklmnopqrstuvwxyz0123456789\n",
		}[r.IntN(12)]
	}
	out := []byte(line() + line())
	out = append(append(out, b...), '\n')
	return append(out, line()...)
}

// wrapped puts a value into up to most wrappings within each other, with other text
// around some of them, and says which.
func wrapped(r *rand.Rand, value []byte, most int) (data []byte, how string) {
	all, packed, names := wrappings(), 0, []string{}
	data = value
	for range r.IntN(most + 1) {
		w := all[r.IntN(len(all))]
		if !w.takes(data) || w.name == "gzip" && packed == maxPacked || len(data) > 200<<10 {
			continue
		}
		if w.name == "gzip" {
			packed++
		}
		if data = w.wrap(r, data); r.IntN(2) == 0 {
			data = amid(r, data)
		}
		names = append(names, w.name)
	}
	return amid(r, data), strings.Join(names, ", in ")
}
