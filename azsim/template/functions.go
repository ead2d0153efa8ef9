package template

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// A function of the language. max -1 is any number of arguments.
type function struct {
	min, max int
	call     func(e evaluator, a *arguments) any
}

func (f function) arity() string {
	switch {
	case f.max < 0:
		return fmt.Sprintf("at least '%d'", f.min)
	case f.min == f.max:
		return fmt.Sprintf("'%d'", f.min)
	}
	return fmt.Sprintf("'%d' to '%d'", f.min, f.max)
}

// functions are all of them by lower-case name; list functions match by prefix.
func functions() map[string]function {
	all := map[string]function{}
	for _, some := range []map[string]function{stringFunctions(), valueFunctions(), listFunctions(), textFunctions(), scopeFunctions()} {
		maps.Copy(all, some)
	}
	return all
}

// arguments are the values of one call. The first argument of a wrong type is the
// call's error, so functions need not check; they get a zero value.
type arguments struct {
	name   string
	values []any
	err    error
}

func (a *arguments) fail(format string, args ...any) {
	if a.err == nil {
		a.err = refuse("Unable to evaluate template language function '%s': %s. Please see https://aka.ms/arm-functions/#%s for usage details.", a.name, fmt.Sprintf(format, args...), strings.ToLower(a.name))
	}
}

func (a *arguments) len() int { return len(a.values) }

func (a *arguments) any(i int) any {
	if i < len(a.values) {
		return a.values[i]
	}
	return nil
}

func argument[T any](a *arguments, i int, kind string) T {
	value, ok := a.any(i).(T)
	if !ok {
		a.fail("argument %d must be of type '%s', but is of type '%s'", i+1, kind, typeName(a.any(i)))
	}
	return value
}

func (a *arguments) string(i int) string { return argument[string](a, i, "String") }
func (a *arguments) int(i int) int64     { return argument[int64](a, i, "Integer") }
func (a *arguments) bool(i int) bool     { return argument[bool](a, i, "Boolean") }
func (a *arguments) array(i int) []any   { return argument[[]any](a, i, "Array") }

// rest are all arguments from i on.
func rest[T any](a *arguments, i int, kind string) []T {
	var out []T
	for ; i < a.len(); i++ {
		out = append(out, argument[T](a, i, kind))
	}
	return out
}

func (a *arguments) strings(i int) []string { return rest[string](a, i, "String") }
func (a *arguments) bools() []bool          { return rest[bool](a, 0, "Boolean") }

// Wrappers for the most frequent shapes.

func ofString(f func(string) any) function {
	return function{1, 1, func(_ evaluator, a *arguments) any { return f(a.string(0)) }}
}

func ofInts(f func(x, y int64) int64) function {
	return function{2, 2, func(_ evaluator, a *arguments) any { return f(a.int(0), a.int(1)) }}
}

func constant(value any) function {
	return function{0, 0, func(evaluator, *arguments) any { return value }}
}

func valueFunctions() map[string]function {
	return map[string]function{
		"true": constant(true), "false": constant(false), "null": constant(nil),
		"add":    ofInts(func(x, y int64) int64 { return x + y }),
		"sub":    ofInts(func(x, y int64) int64 { return x - y }),
		"equals": {2, 2, func(_ evaluator, a *arguments) any { return reflect.DeepEqual(a.any(0), a.any(1)) }},
		"not":    {1, 1, func(_ evaluator, a *arguments) any { return !a.bool(0) }},
		"and":    {2, -1, func(_ evaluator, a *arguments) any { return !slices.Contains(a.bools(), false) }},
		"or":     {2, -1, func(_ evaluator, a *arguments) any { return slices.Contains(a.bools(), true) }},
		"if": {3, 3, func(_ evaluator, a *arguments) any {
			if a.bool(0) {
				return a.any(1)
			}
			return a.any(2)
		}},
		"parameters": {1, 1, func(e evaluator, a *arguments) any {
			if found := a.lookup(e.parameters); found != nil {
				return a.get(found)
			}
			return nil
		}},
		"variables": {1, 1, func(e evaluator, a *arguments) any {
			if found := a.lookup(e.variables); found != nil && a.allowed(e, withVariables) {
				return a.get(found)
			}
			return nil
		}},
		"copyindex": {0, 2, copyIndex},
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
	}
}

// lookup finds the parameter or variable that the first argument names, or nil.
func (a *arguments) lookup(from map[string]*lazy) *lazy {
	found, section := from[strings.ToLower(a.string(0))], strings.ToLower(a.name)
	if found == nil && a.err == nil {
		a.err = refuse("The template %s '%s' is not found. Please see https://aka.ms/arm-template/#%s for usage details.", strings.TrimSuffix(section, "s"), a.any(0), section)
	}
	return found
}

func (a *arguments) get(l *lazy) any {
	value, err := l.get()
	if err != nil {
		a.err = err
	}
	return value
}

// allowed refuses a function in a place where ARM does not have it.
func (a *arguments) allowed(e evaluator, needed place) bool {
	if e.place&needed == 0 {
		a.err = refuse("The template function '%s' is not expected at this location. Please see https://aka.ms/arm-functions for usage details.", a.name)
	}
	return a.err == nil
}

// copyIndex is copyIndex([loop], [offset]).
func copyIndex(e evaluator, a *arguments) any {
	values, name, named := a.values, "", false
	if len(values) > 0 {
		if name, named = values[0].(string); named {
			values = values[1:]
		}
	}
	numbers := &arguments{name: a.name, values: values}
	var offset int64
	if len(values) > 0 {
		offset = numbers.int(0)
	}
	if len(values) > 1 || numbers.err != nil {
		a.fail("arguments are the name of a loop and an integer")
	}
	if l := e.loop; l != nil && (!named || strings.EqualFold(l.name, name)) {
		return l.index + offset
	}
	if a.err == nil {
		a.err = refuse("The template function 'copyIndex' is not expected at this location. The function can only be used in a resource with copy specified. Please see https://aka.ms/arm-copy for usage details.")
	}
	return nil
}
