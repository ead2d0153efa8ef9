package template

import (
	"maps"
	"reflect"
	"slices"
	"strings"
)

func arrayFunctions() map[string]function {
	return map[string]function{
		"concat": {1, -1, func(_ evaluator, a *arguments) any {
			if _, ok := a.any(0).([]any); ok {
				out := []any{}
				for i := range a.values {
					out = append(out, a.array(i)...)
				}
				return out
			}
			var out strings.Builder
			for i, value := range a.values {
				switch value.(type) {
				case []any, map[string]any, nil:
					a.string(i)
				}
				out.WriteString(text(value))
			}
			return out.String()
		}},
		"array": {1, 1, func(_ evaluator, a *arguments) any {
			if list, ok := a.any(0).([]any); ok {
				return list
			}
			return []any{a.any(0)}
		}},
		"createarray": {0, -1, func(_ evaluator, a *arguments) any { return append([]any{}, a.values...) }},
		"createobject": {0, -1, func(_ evaluator, a *arguments) any {
			if a.len()%2 != 0 {
				a.fail("the number of arguments must be even")
				return nil
			}
			out := map[string]any{}
			for i := 0; i < a.len(); i += 2 {
				out[a.string(i)] = a.any(i + 1)
			}
			return out
		}},
		"length": {1, 1, func(_ evaluator, a *arguments) any {
			switch v := a.any(0).(type) {
			case []any:
				return int64(len(v))
			case map[string]any:
				return int64(len(v))
			}
			return int64(len([]rune(a.string(0))))
		}},
		"empty": {1, 1, func(_ evaluator, a *arguments) any {
			switch v := a.any(0).(type) {
			case nil:
				return true
			case []any:
				return len(v) == 0
			case map[string]any:
				return len(v) == 0
			}
			return a.string(0) == ""
		}},
		"contains": {2, 2, func(_ evaluator, a *arguments) any {
			switch v := a.any(0).(type) {
			case []any:
				return slices.ContainsFunc(v, func(item any) bool { return reflect.DeepEqual(item, a.any(1)) })
			case map[string]any:
				_, ok := member(v, a.string(1))
				return ok
			}
			return strings.Contains(a.string(0), text(a.any(1)))
		}},
		"first": {1, 1, func(_ evaluator, a *arguments) any { return end(a, func(n int) int { return 0 }) }},
		"last":  {1, 1, func(_ evaluator, a *arguments) any { return end(a, func(n int) int { return n - 1 }) }},
		"take":  {2, 2, func(_ evaluator, a *arguments) any { return part(a, func(n, _ int) (int, int) { return 0, n }) }},
		"skip":  {2, 2, func(_ evaluator, a *arguments) any { return part(a, func(n, size int) (int, int) { return n, size }) }},
		"range": {2, 2, func(_ evaluator, a *arguments) any {
			start, count := a.int(0), a.int(1)
			if count < 0 || count > 10000 {
				a.fail("the count must be between 0 and 10000")
				return nil
			}
			out := make([]any, count)
			for i := range out {
				out[i] = start + int64(i)
			}
			return out
		}},
		"union": {2, -1, func(_ evaluator, a *arguments) any {
			if _, ok := a.any(0).(map[string]any); ok {
				out := map[string]any{}
				for i := range a.values {
					out = merge(out, argument[map[string]any](a, i, "Object"))
				}
				return out
			}
			seen, out := map[string]bool{}, []any{}
			for i := range a.values {
				for _, value := range a.array(i) {
					if key := typeName(value) + text(value); !seen[key] {
						seen[key] = true
						out = append(out, value)
					}
				}
			}
			return out
		}},
	}
}

// end is one element of an array, or one character of a string; nothing of nothing.
func end(a *arguments, at func(n int) int) any {
	if list, ok := a.any(0).([]any); ok {
		if len(list) == 0 {
			return nil
		}
		return list[at(len(list))]
	}
	s := []rune(a.string(0))
	if len(s) == 0 {
		return ""
	}
	return string(s[at(len(s))])
}

// part is a slice of an array or a string; out of bounds is less, not an error.
func part(a *arguments, bounds func(n, size int) (from, to int)) any {
	n := int(min(max(a.int(1), 0), maxValue))
	if list, ok := a.any(0).([]any); ok {
		from, to := bounds(min(n, len(list)), len(list))
		return list[from:to:to]
	}
	s := []rune(a.string(0))
	from, to := bounds(min(n, len(s)), len(s))
	return string(s[from:to])
}

// merge is the union of objects: later members win, nested objects are merged.
func merge(one, two map[string]any) map[string]any {
	out := maps.Clone(one)
	for key, value := range two {
		old, _ := out[key].(map[string]any)
		if object, ok := value.(map[string]any); ok && old != nil {
			value = merge(old, object)
		}
		out[key] = value
	}
	return out
}
