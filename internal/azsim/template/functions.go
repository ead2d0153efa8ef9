package template

import (
	"cmp"
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
	for _, some := range []map[string]function{stringFunctions(), arrayFunctions(), valueFunctions(), scopeFunctions()} {
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

func ofStrings(f func(s, t string) any) function {
	return function{2, 2, func(_ evaluator, a *arguments) any { return f(a.string(0), a.string(1)) }}
}

func ofInts(f func(x, y int64) int64) function {
	return function{2, 2, func(_ evaluator, a *arguments) any { return f(a.int(0), a.int(1)) }}
}

func constant(value any) function {
	return function{0, 0, func(evaluator, *arguments) any { return value }}
}

// compared compares two integers or two strings.
func compared(f func(order int) bool) function {
	return function{2, 2, func(_ evaluator, a *arguments) any {
		if s, ok := a.any(0).(string); ok {
			return f(strings.Compare(s, a.string(1)))
		}
		return f(cmp.Compare(a.int(0), a.int(1)))
	}}
}

// extreme is the least or greatest of integers, or of an array of integers.
func extreme(of func([]int64) int64) function {
	return function{1, -1, func(_ evaluator, a *arguments) any {
		if list, ok := a.any(0).([]any); ok && a.len() == 1 {
			a.values = list
		}
		if a.len() == 0 {
			a.fail("the array is empty")
			return nil
		}
		return of(rest[int64](a, 0, "Integer"))
	}}
}

// divided refuses to divide by zero.
func divided(f func(x, y int64) int64) function {
	return function{2, 2, func(_ evaluator, a *arguments) any {
		if a.int(1) == 0 {
			a.fail("division by zero")
			return nil
		}
		return f(a.int(0), a.int(1))
	}}
}

func valueFunctions() map[string]function {
	return map[string]function{
		"true": constant(true), "false": constant(false), "null": constant(nil),
		"add":             ofInts(func(x, y int64) int64 { return x + y }),
		"sub":             ofInts(func(x, y int64) int64 { return x - y }),
		"mul":             ofInts(func(x, y int64) int64 { return x * y }),
		"div":             divided(func(x, y int64) int64 { return x / y }),
		"mod":             divided(func(x, y int64) int64 { return x % y }),
		"min":             extreme(slices.Min[[]int64]),
		"max":             extreme(slices.Max[[]int64]),
		"less":            compared(func(order int) bool { return order < 0 }),
		"lessorequals":    compared(func(order int) bool { return order <= 0 }),
		"greater":         compared(func(order int) bool { return order > 0 }),
		"greaterorequals": compared(func(order int) bool { return order >= 0 }),
		"equals":          {2, 2, func(_ evaluator, a *arguments) any { return reflect.DeepEqual(a.any(0), a.any(1)) }},
		"not":             {1, 1, func(_ evaluator, a *arguments) any { return !a.bool(0) }},
		"and":             {2, -1, func(_ evaluator, a *arguments) any { return !slices.Contains(a.bools(), false) }},
		"or":              {2, -1, func(_ evaluator, a *arguments) any { return slices.Contains(a.bools(), true) }},
		"if": {3, 3, func(_ evaluator, a *arguments) any {
			if a.bool(0) {
				return a.any(1)
			}
			return a.any(2)
		}},
		"coalesce": {1, -1, func(_ evaluator, a *arguments) any {
			return append(slices.DeleteFunc(a.values, func(value any) bool { return value == nil }), nil)[0]
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
	for i := len(e.loops) - 1; i >= 0; i-- {
		if l := e.loops[i]; named && strings.EqualFold(l.name, name) || !named && l.unnamed {
			return l.index + offset
		}
	}
	if a.err == nil {
		a.err = refuse("The template function 'copyIndex' is not expected at this location. The function can only be used in a resource with copy specified. Please see https://aka.ms/arm-copy for usage details.")
	}
	return nil
}
