package disk

import (
	"strconv"
	"strings"
)

// section is a block of LVM's metadata text: its values are int64, string,
// []any of both, and section.
type section map[string]any

func (s section) section(name string) section {
	sub, _ := s[name].(section)
	return sub
}

func (s section) text(name string) string {
	t, _ := s[name].(string)
	return t
}

// maxNesting bounds blocks within each other; real metadata has four levels.
const maxNesting = 8

// lvmReader goes through LVM's metadata text (lvm.conf(5), "Syntax").
type lvmReader struct {
	rest string
	bad  bool
}

// parseLVM reads a whole metadata text.
func parseLVM(text []byte) (section, error) {
	r := &lvmReader{rest: string(text)}
	s := r.block(0)
	if r.bad {
		return nil, errLVM
	}
	return s, nil
}

// next is the next token: a word, a quoted string with its first quote kept, or
// one of the signs; "" at the end.
func (r *lvmReader) next() string {
	for {
		r.rest = strings.TrimLeft(r.rest, " \t\r\n")
		if !strings.HasPrefix(r.rest, "#") {
			break
		}
		_, r.rest, _ = strings.Cut(r.rest, "\n")
	}
	if r.rest == "" {
		return ""
	}
	n := 1
	switch c := r.rest[0]; {
	case c == '"':
		for n < len(r.rest) && r.rest[n] != '"' {
			if r.rest[n] == '\\' {
				n++
			}
			n++
		}
		if n >= len(r.rest) {
			r.bad = true
			return ""
		}
		token := r.rest[:n]
		r.rest = r.rest[n+1:]
		return token
	case !strings.ContainsRune("{}[]=,", rune(c)):
		for n < len(r.rest) && !strings.ContainsRune("{}[]=, \t\r\n#\"", rune(r.rest[n])) {
			n++
		}
	}
	token := r.rest[:n]
	r.rest = r.rest[n:]
	return token
}

// block reads entries up to the closing brace, or to the end at the top.
func (r *lvmReader) block(depth int) section {
	s := section{}
	for !r.bad {
		name := r.next()
		if name == "" || name == "}" {
			r.bad = r.bad || (name == "}") != (depth > 0)
			return s
		}
		switch r.next() {
		case "{":
			if depth == maxNesting {
				r.bad = true
				return s
			}
			s[name] = r.block(depth + 1)
		case "=":
			s[name] = r.value()
		default:
			r.bad = true
		}
	}
	return s
}

func (r *lvmReader) value() any {
	token := r.next()
	if token != "[" {
		return r.scalar(token)
	}
	list := []any{}
	for !r.bad {
		switch token = r.next(); token {
		case "]":
			return list
		case ",":
		default:
			list = append(list, r.scalar(token))
		}
	}
	return list
}

func (r *lvmReader) scalar(token string) any {
	if s, ok := strings.CutPrefix(token, `"`); ok {
		return strings.NewReplacer(`\"`, `"`, `\\`, `\`).Replace(s)
	}
	n, err := strconv.ParseInt(token, 10, 64)
	if err != nil {
		// A number with a fraction, which nothing here needs, or no value.
		if _, err := strconv.ParseFloat(token, 64); err != nil {
			r.bad = true
		}
	}
	return n
}
