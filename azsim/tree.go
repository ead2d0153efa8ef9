package azsim

import (
	"encoding/json"
	"strings"
)

// at walks into a decoded JSON object by names; nil where the way ends.
func at(v any, names ...string) any {
	for _, n := range names {
		m, ok := v.(map[string]any)
		if !ok {
			return nil
		}
		v = m[n]
	}
	return v
}

// walk visits every member of a decoded JSON value, in the order of names.
func walk(v any, visit func(key string, v any)) {
	switch v := v.(type) {
	case map[string]any:
		for _, k := range sortedKeys(v) {
			visit(k, v[k])
			walk(v[k], visit)
		}
	case []any:
		for _, inner := range v {
			walk(inner, visit)
		}
	}
}

// text is the string at a path; "" if it is missing.
func text(v any, path ...string) string {
	out, _ := at(v, path...).(string)
	return out
}

// texts are the strings of the list at a path.
func texts(v any, path ...string) []string {
	list, _ := at(v, path...).([]any)
	var out []string
	for _, x := range list {
		if t, ok := x.(string); ok {
			out = append(out, t)
		}
	}
	return out
}

// number is the whole number at a path; 0 if it is missing.
func number(v any, path ...string) int64 {
	n, _ := at(v, path...).(json.Number)
	out, _ := n.Int64()
	return out
}

// stringMembers makes strings of numbers, as Azure does where it documents a string.
func stringMembers(v any, names ...string) {
	m, _ := v.(object)
	for _, name := range names {
		if n, ok := m[name].(json.Number); ok {
			m[name] = n.String()
		}
	}
}

// idList is ids as references to resources.
func idList(ids []string) []any {
	var out []any
	for _, id := range ids {
		out = append(out, object{"id": id})
	}
	return out
}

// names says whether a decoded JSON value has that id in it.
func names(v any, key string) (found bool) {
	walk(v, func(member string, v any) {
		text, _ := v.(string)
		found = found || member == "id" && strings.EqualFold(text, key)
	})
	return found
}
