package template

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
)

// Clean makes plain JSON of what ARM accepts as JSON: comments, trailing commas, line
// breaks and other control characters in strings, and unquoted keys. The Azure CLI
// writes {"properties": {…, template:<file>}} with the template's file as it is
// (azure-cli, JsonCTemplatePolicy).
func Clean(data []byte) ([]byte, error) {
	out := make([]byte, 0, len(data)+16)
	comma := -1 // where out has a comma with only white space behind it
	for i := 0; i < len(data); {
		c := data[i]
		switch {
		case c == '"':
			end, ok := stringEnd(data, i)
			if !ok {
				return nil, fmt.Errorf("unterminated string at position %d", i)
			}
			out, comma = appendString(out, data[i:end]), -1
			i = end
		case bytes.HasPrefix(data[i:], []byte("//")):
			length := bytes.IndexByte(data[i:], '\n')
			if length < 0 {
				length = len(data) - i
			}
			i += length
		case bytes.HasPrefix(data[i:], []byte("/*")):
			length := bytes.Index(data[i+2:], []byte("*/"))
			if length < 0 {
				return nil, fmt.Errorf("unterminated comment at position %d", i)
			}
			i += 2 + length + 2
		case bytes.HasPrefix(data[i:], []byte("\ufeff")):
			i += len("\ufeff")
		case c == ' ' || c == '\t' || c == '\r' || c == '\n':
			out = append(out, c)
			i++
		case c == ',':
			comma = len(out)
			out = append(out, c)
			i++
		case c == '}' || c == ']':
			if comma >= 0 {
				out[comma] = ' '
			}
			out, comma = append(out, c), -1
			i++
		case nameByte(c):
			end := i
			for end < len(data) && nameByte(data[end]) {
				end++
			}
			name := data[i:end]
			if next := bytes.TrimLeft(data[end:], " \t\r\n"); len(next) > 0 && next[0] == ':' {
				name = []byte(strconv.Quote(string(name)))
			}
			out, comma = append(out, name...), -1
			i = end
		default:
			out, comma = append(out, c), -1
			i++
		}
	}
	if _, err := decode(out); err != nil {
		return nil, err
	}
	return out, nil
}

func nameByte(c byte) bool {
	return c == '_' || c == '$' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
}

// stringEnd is the index after the string that starts at i.
func stringEnd(data []byte, i int) (int, bool) {
	for i++; i < len(data); i++ {
		switch data[i] {
		case '\\':
			i++
		case '"':
			return i + 1, true
		}
	}
	return 0, false
}

// appendString escapes the control characters that JSON forbids in strings.
func appendString(out, quoted []byte) []byte {
	for _, c := range quoted {
		switch {
		case c == '\n':
			out = append(out, `\n`...)
		case c < ' ':
			out = fmt.Appendf(out, `\u%04x`, c)
		default:
			out = append(out, c)
		}
	}
	return out
}

// decode reads one JSON value; integers become int64, other numbers json.Number.
func decode(data []byte) (any, error) {
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil {
		return nil, err
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("additional text found after the JSON value")
	}
	return normalize(value), nil
}

// normalize gives decoded JSON the types that functions know.
func normalize(value any) any {
	switch v := value.(type) {
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return n
		}
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = normalize(v[i])
		}
		return out
	case map[string]any:
		out := make(map[string]any, len(v))
		for key := range v {
			out[key] = normalize(v[key])
		}
		return out
	}
	return value
}
