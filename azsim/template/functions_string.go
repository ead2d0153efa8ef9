package template

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"math/bits"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
)

// guidNamespace is the namespace of guid(), a UUID of version 5 over the arguments
// joined by hyphens (Microsoft's "String functions for Bicep", guid).
const guidNamespace = "11fb06fb-712d-4ddd-98c7-e71bbd588830"

func stringFunctions() map[string]function {
	return map[string]function{
		"tolower": ofString(func(s string) any { return strings.ToLower(s) }),
		"toupper": ofString(func(s string) any { return strings.ToUpper(s) }),
		"base64":  ofString(func(s string) any { return base64.StdEncoding.EncodeToString([]byte(s)) }),
		"string":  {1, 1, func(_ evaluator, a *arguments) any { return text(a.any(0)) }},
		"int": {1, 1, func(_ evaluator, a *arguments) any {
			if s, ok := a.any(0).(string); ok {
				n, err := strconv.ParseInt(strings.TrimSpace(s), 10, 64)
				if err != nil {
					a.fail("the value '%s' cannot be converted to an integer", s)
				}
				return n
			}
			return a.int(0)
		}},
		"replace": {3, 3, func(_ evaluator, a *arguments) any {
			s, old, by := a.string(0), a.string(1), a.string(2)
			if old == "" {
				a.fail("the string to replace is empty")
				return ""
			}
			return strings.ReplaceAll(s, old, by)
		}},
		"substring": {2, 3, func(_ evaluator, a *arguments) any {
			s, start := []rune(a.string(0)), a.int(1)
			length := int64(len(s)) - start
			if a.len() == 3 {
				length = a.int(2)
			}
			if start < 0 || length < 0 || start > int64(len(s)) || length > int64(len(s))-start {
				a.fail("the index and length parameters must refer to a location within the string. The index parameter: '%d', the length parameter: '%d', the length of the string parameter: '%d'", start, length, len(s))
				return ""
			}
			return string(s[start : start+length])
		}},
		"format": {1, -1, func(_ evaluator, a *arguments) any { return format(a) }},
		"uniquestring": {1, -1, func(_ evaluator, a *arguments) any {
			return uniqueString(strings.Join(a.strings(0), "-"))
		}},
		"guid": {1, -1, func(_ evaluator, a *arguments) any {
			space, _ := uuid.Parse(guidNamespace)
			return uuid.NewSHA1(space, []byte(strings.Join(a.strings(0), "-"))).String()
		}},
		"utcnow": {0, 1, func(e evaluator, a *arguments) any {
			if !a.allowed(e, withClock) {
				return nil
			}
			layout := "yyyyMMddTHHmmssZ"
			if a.len() == 1 {
				layout = a.string(0)
			}
			return formatTime(e.scope.Now.UTC(), layout)
		}},
	}
}

// text is a value as a string: JSON for arrays and objects (members sorted), True and
// False as .NET writes them.
func text(value any) string {
	switch v := value.(type) {
	case nil:
		return ""
	case string:
		return v
	case bool:
		if v {
			return "True"
		}
		return "False"
	}
	return toJSON(value)
}

// toJSON is a value as JSON, with < and & as they are; "" where it has no JSON.
func toJSON(value any) string {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return ""
	}
	return strings.TrimSuffix(out.String(), "\n")
}

// format is .NET's composite format without styles: {n}; {{ and }} are braces.
func format(a *arguments) string {
	var out strings.Builder
	s := a.string(0)
	for s != "" {
		i := strings.IndexAny(s, "{}")
		if i < 0 {
			break
		}
		out.WriteString(s[:i])
		if i+1 < len(s) && s[i] == s[i+1] {
			out.WriteByte(s[i])
			s = s[i+2:]
			continue
		}
		item, rest, ok := strings.Cut(s[i+1:], "}")
		n, err := strconv.Atoi(item)
		if s[i] == '}' || !ok || err != nil || n < 0 || n+1 >= a.len() {
			a.fail("the format is invalid: '%s'", s[i:])
			return ""
		}
		out.WriteString(text(a.any(n + 1)))
		s = rest
	}
	return out.String() + s
}

// uniqueString is 64 bits of a hash in base 32.
func uniqueString(s string) string {
	hash, out := hash64(s), make([]byte, 13)
	for i := range out {
		out[i] = "abcdefghijklmnopqrstuvwxyz234567"[hash>>59]
		hash <<= 5
	}
	return string(out)
}

// hash64 is a 64-bit MurmurHash3 made of two 32-bit lanes, as in Microsoft's ResourceStack
// library.
func hash64(s string) uint64 {
	const a, b = 0x239b961b, 0xab0e9789
	first := func(k uint32) uint32 { return bits.RotateLeft32(k*a, 15) * b }
	second := func(k uint32) uint32 { return bits.RotateLeft32(k*b, 17) * a }
	final := func(h uint32) uint32 {
		h = (h ^ h>>16) * 0x85ebca6b
		h = (h ^ h>>13) * 0xc2b2ae35
		return h ^ h>>16
	}
	var h1, h2 uint32
	data := []byte(s)
	for ; len(data) >= 8; data = data[8:] {
		h1 = bits.RotateLeft32(h1^first(binary.LittleEndian.Uint32(data)), 19) + h2
		h1 = h1*5 + 0x561ccd1b
		h2 = bits.RotateLeft32(h2^second(binary.LittleEndian.Uint32(data[4:])), 13) + h1
		h2 = h2*5 + 0x0bcaa747
	}
	// A zero lane leaves its hash alone, so the tail may be padded with zeros.
	var tail [8]byte
	copy(tail[:], data)
	h1 ^= first(binary.LittleEndian.Uint32(tail[:])) ^ uint32(len(s))
	h2 ^= second(binary.LittleEndian.Uint32(tail[4:])) ^ uint32(len(s))
	h1 += h2
	h2 += h1
	h1, h2 = final(h1), final(h2)
	h1 += h2
	h2 += h1
	return uint64(h2)<<32 | uint64(h1)
}

// formatTime understands the custom format strings of .NET that have a Go equivalent.
func formatTime(t time.Time, layout string) string {
	return t.Format(strings.NewReplacer("yyyy", "2006", "yy", "06", "MMMM", "January", "MMM", "Jan", "MM", "01", "M", "1",
		"dddd", "Monday", "ddd", "Mon", "dd", "02", "d", "2", "HH", "15", "hh", "03", "h", "3", "mm", "04", "m", "4",
		"ss", "05", "s", "5", ".fff", ".000", "tt", "PM").Replace(layout))
}
