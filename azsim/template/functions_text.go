package template

import (
	"encoding/base64"
	"net/url"
	"strings"
	"unicode"
)

// textFunctions are more functions of strings (Microsoft's "String functions for ARM
// templates").
func textFunctions() map[string]function {
	return map[string]function{
		"trim":       ofString(func(s string) any { return strings.TrimSpace(s) }),
		"startswith": ofStrings(func(s, part string) any { return strings.HasPrefix(strings.ToLower(s), strings.ToLower(part)) }),
		"endswith":   ofStrings(func(s, part string) any { return strings.HasSuffix(strings.ToLower(s), strings.ToLower(part)) }),
		"indexof": ofStrings(func(s, part string) any {
			return letterAt(s, strings.Index(strings.ToLower(s), strings.ToLower(part)))
		}),
		"lastindexof": ofStrings(func(s, part string) any {
			return letterAt(s, strings.LastIndex(strings.ToLower(s), strings.ToLower(part)))
		}),
		"split": {2, 2, func(_ evaluator, a *arguments) any {
			delimiters := []string{}
			if list, isList := a.any(1).([]any); isList {
				inner := &arguments{name: a.name, values: list}
				delimiters, a.err = inner.strings(0), inner.err
			} else {
				delimiters = append(delimiters, a.string(1))
			}
			parts := []string{a.string(0)}
			for _, delimiter := range delimiters {
				var next []string
				for _, part := range parts {
					if delimiter == "" {
						next = append(next, part)
						continue
					}
					next = append(next, strings.Split(part, delimiter)...)
				}
				parts = next
			}
			out := []any{}
			for _, part := range parts {
				out = append(out, part)
			}
			return out
		}},
		"padleft": {2, 3, func(_ evaluator, a *arguments) any {
			s, width, pad := text(a.any(0)), a.int(1), " "
			if a.len() == 3 {
				pad = a.string(2)
			}
			if width > 256 || len([]rune(pad)) != 1 {
				a.fail("the length is at most 256, and the padding one character")
				return nil
			}
			return strings.Repeat(pad, max(0, int(width)-len([]rune(s)))) + s
		}},
		"json":           {1, 1, func(_ evaluator, a *arguments) any { return a.parsed(a.string(0)) }},
		"base64tostring": {1, 1, func(_ evaluator, a *arguments) any { return a.unpacked(a.string(0)) }},
		"base64tojson":   {1, 1, func(_ evaluator, a *arguments) any { return a.parsed(a.unpacked(a.string(0))) }},
		"datauri": ofString(func(s string) any {
			return "data:text/plain;charset=utf8;base64," + base64.StdEncoding.EncodeToString([]byte(s))
		}),
		"datauritostring": {1, 1, func(_ evaluator, a *arguments) any {
			_, data, isURI := strings.Cut(a.string(0), ";base64,")
			if !isURI {
				a.fail("the value is no data URI in base64")
			}
			return a.unpacked(data)
		}},
		"uricomponent": ofString(func(s string) any { return strings.ReplaceAll(url.QueryEscape(s), "+", "%20") }),
		"uricomponenttostring": {1, 1, func(_ evaluator, a *arguments) any {
			s, err := url.PathUnescape(a.string(0))
			if err != nil {
				a.fail("the value '%s' is no URI component", a.any(0))
			}
			return s
		}},
		"uri": {2, 2, func(_ evaluator, a *arguments) any {
			base, err1 := url.Parse(a.string(0))
			relative, err2 := url.Parse(a.string(1))
			if err1 != nil || err2 != nil || !base.IsAbs() {
				a.fail("the arguments are a base URI and a relative one")
				return nil
			}
			return base.ResolveReference(relative).String()
		}},
	}
}

func ofStrings(f func(s, part string) any) function {
	return function{2, 2, func(_ evaluator, a *arguments) any { return f(a.string(0), a.string(1)) }}
}

// letterAt is the number of the letter at a byte, -1 for -1.
func letterAt(s string, at int) int64 {
	if at < 0 {
		return -1
	}
	return int64(len([]rune(strings.Map(unicode.ToLower, s)[:at])))
}

func (a *arguments) parsed(s string) any {
	value, err := decode([]byte(s))
	if err != nil && a.err == nil {
		a.fail("the value is not valid JSON: %v", err)
	}
	return value
}

func (a *arguments) unpacked(s string) string {
	data, err := base64.StdEncoding.DecodeString(s)
	if err != nil {
		a.fail("the value is not valid base64")
	}
	return string(data)
}
