package template

import (
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"
)

// listFunctions are functions of arrays and objects, and of numbers (Microsoft's "ARM
// template functions").
func listFunctions() map[string]function {
	return map[string]function{
		"array": {1, 1, func(_ evaluator, a *arguments) any {
			if list, isList := a.any(0).([]any); isList {
				return list
			}
			return []any{a.any(0)}
		}},
		"first":        {1, 1, func(_ evaluator, a *arguments) any { return a.element(func(int) int { return 0 }) }},
		"last":         {1, 1, func(_ evaluator, a *arguments) any { return a.element(func(size int) int { return size - 1 }) }},
		"skip":         {2, 2, func(_ evaluator, a *arguments) any { return a.part(func(n, size int) (int, int) { return n, size }) }},
		"take":         {2, 2, func(_ evaluator, a *arguments) any { return a.part(func(n, _ int) (int, int) { return 0, n }) }},
		"range":        {2, 2, numberRange},
		"union":        {2, -1, func(_ evaluator, a *arguments) any { return a.combine(false) }},
		"intersection": {2, -1, func(_ evaluator, a *arguments) any { return a.combine(true) }},
		"items": {1, 1, func(_ evaluator, a *arguments) any {
			object, out := argument[map[string]any](a, 0, "Object"), []any{}
			for _, key := range slices.Sorted(maps.Keys(object)) {
				out = append(out, map[string]any{"key": key, "value": object[key]})
			}
			return out
		}},
		"objectkeys": {1, 1, func(_ evaluator, a *arguments) any {
			object, out := argument[map[string]any](a, 0, "Object"), []any{}
			for _, key := range slices.Sorted(maps.Keys(object)) {
				out = append(out, key)
			}
			return out
		}},
		"join": {2, 2, func(_ evaluator, a *arguments) any {
			var parts []string
			for _, item := range a.array(0) {
				parts = append(parts, text(item))
			}
			return strings.Join(parts, a.string(1))
		}},
		"coalesce": {1, -1, func(_ evaluator, a *arguments) any {
			for _, value := range a.values {
				if value != nil {
					return value
				}
			}
			return nil
		}},
		"less":            compared(func(order int) bool { return order < 0 }),
		"lessorequals":    compared(func(order int) bool { return order <= 0 }),
		"greater":         compared(func(order int) bool { return order > 0 }),
		"greaterorequals": compared(func(order int) bool { return order >= 0 }),
		"min":             {1, -1, func(_ evaluator, a *arguments) any { return a.extreme(func(x, best int64) bool { return x < best }) }},
		"max":             {1, -1, func(_ evaluator, a *arguments) any { return a.extreme(func(x, best int64) bool { return x > best }) }},
		"mul":             ofInts(func(x, y int64) int64 { return x * y }),
		"div":             divided(func(x, y int64) int64 { return x / y }),
		"mod":             divided(func(x, y int64) int64 { return x % y }),
		"bool": {1, 1, func(_ evaluator, a *arguments) any {
			switch v := a.any(0).(type) {
			case int64:
				return v != 0
			case string:
				if strings.EqualFold(v, "true") || v == "1" || strings.EqualFold(v, "false") || v == "0" {
					return strings.EqualFold(v, "true") || v == "1"
				}
			}
			return a.bool(0)
		}},
	}
}

// element is an element of an array, or a character of a string, at the place for its
// length; null or "" of an empty one.
func (a *arguments) element(place func(size int) int) any {
	if list, isList := a.any(0).([]any); isList {
		if len(list) == 0 {
			return nil
		}
		return list[place(len(list))]
	}
	letters := []rune(a.string(0))
	if len(letters) == 0 {
		return ""
	}
	return string(letters[place(len(letters))])
}

// part is the part of an array or string that bounds gives for a number and the length.
func (a *arguments) part(bounds func(n, size int) (from, to int)) any {
	cut := func(size int) (int, int) {
		from, to := bounds(int(min(max(a.int(1), 0), math.MaxInt32)), size)
		return min(from, size), min(to, size)
	}
	if list, isList := a.any(0).([]any); isList {
		from, to := cut(len(list))
		return slices.Clone(list[from:to])
	}
	letters := []rune(a.string(0))
	from, to := cut(len(letters))
	return string(letters[from:to])
}

// maxRange is ARM's limit of range's count.
const maxRange = 10000

func numberRange(_ evaluator, a *arguments) any {
	start, count := a.int(0), a.int(1)
	if count < 0 || count > maxRange || start > math.MaxInt32-count {
		a.fail("the count must be between 0 and %d, and the sum of both arguments at most %d", maxRange, math.MaxInt32)
		return nil
	}
	out := []any{}
	for i := range count {
		out = append(out, start+i)
	}
	return out
}

// combine is union or intersection: of arrays their elements without repeats, of objects
// their members, those of the last argument winning; union merges objects within.
func (a *arguments) combine(common bool) any {
	if _, isList := a.any(0).([]any); isList {
		out := []any{}
		has := func(list []any, item any) bool {
			return slices.ContainsFunc(list, func(other any) bool { return reflect.DeepEqual(item, other) })
		}
		for i := range a.values {
			for _, item := range a.array(i) {
				everywhere := !slices.ContainsFunc(a.values, func(v any) bool { list, _ := v.([]any); return !has(list, item) })
				if !has(out, item) && (!common || everywhere) {
					out = append(out, item)
				}
			}
		}
		return out
	}
	out := maps.Clone(argument[map[string]any](a, 0, "Object"))
	for i := 1; i < a.len(); i++ {
		next := argument[map[string]any](a, i, "Object")
		if common {
			maps.DeleteFunc(out, func(key string, value any) bool { return !reflect.DeepEqual(next[key], value) })
		} else {
			out, _ = merged(out, next).(map[string]any)
		}
	}
	return out
}

func merged(old, next any) any {
	into, ok1 := old.(map[string]any)
	from, ok2 := next.(map[string]any)
	if !ok1 || !ok2 {
		return next
	}
	out := maps.Clone(into)
	for key, value := range from {
		out[key] = merged(out[key], value)
	}
	return out
}

func compared(holds func(order int) bool) function {
	return function{2, 2, func(_ evaluator, a *arguments) any {
		if s, isText := a.any(0).(string); isText {
			return holds(strings.Compare(s, a.string(1)))
		}
		x, y := a.int(0), a.int(1)
		switch {
		case x < y:
			return holds(-1)
		case x > y:
			return holds(1)
		}
		return holds(0)
	}}
}

func divided(f func(x, y int64) int64) function {
	return function{2, 2, func(_ evaluator, a *arguments) any {
		if a.int(1) == 0 {
			a.fail("the divisor must not be 0")
			return nil
		}
		return f(a.int(0), a.int(1))
	}}
}

// extreme is min or max of an array of integers, or of the arguments.
func (a *arguments) extreme(better func(x, best int64) bool) any {
	numbers := a.values
	if list, isList := a.any(0).([]any); isList && a.len() == 1 {
		numbers = list
	}
	inner := &arguments{name: a.name, values: numbers}
	all := rest[int64](inner, 0, "Integer")
	if a.err = inner.err; a.err != nil || len(all) == 0 {
		a.fail("an integer is needed")
		return nil
	}
	best := all[0]
	for _, x := range all {
		if better(x, best) {
			best = x
		}
	}
	return best
}
