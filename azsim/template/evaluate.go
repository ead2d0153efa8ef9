package template

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// A place is what functions may be used where an expression stands.
type place uint8

const (
	withVariables place = 1 << iota
	withRuntime         // reference and list functions
	withClock           // utcNow
)

// deferred is the value of what needs a World when there is none.
type deferred struct{}

// A loop is one iteration of the copy loop around an expression.
type loop struct {
	name  string
	index int64
}

// An evaluator evaluates expressions in one place.
type evaluator struct {
	*model
	place place
	world World // nil defers
	loop  *loop // nil: none
	// referred is called with each id of reference and list functions; may be nil.
	referred func(id string) error
}

func (e evaluator) in(p place) evaluator { e.place = p; return e }

// text evaluates one string of the template.
func (e evaluator) text(s string) (any, error) {
	if !isExpression(s) {
		return plainText(s), nil
	}
	n, err := e.parse(s)
	if err != nil {
		return nil, err
	}
	return e.eval(n)
}

func (e evaluator) eval(n node) (any, error) {
	switch n := n.(type) {
	case literal:
		return n.value, nil
	case access:
		target, err := e.eval(n.target)
		if err != nil {
			return nil, err
		}
		index, err := e.eval(n.index)
		if err != nil {
			return nil, err
		}
		return property(target, index)
	case call:
		return e.call(n)
	}
	return nil, nil
}

func (e evaluator) call(c call) (any, error) {
	name := strings.ToLower(c.name)
	args := make([]any, len(c.args))
	later := false
	for i, arg := range c.args {
		// The branch not taken may fail, as in [if(empty(x), '', x[0])].
		if name == "if" && i > 0 && !later && args[0] == (i == 2) {
			continue
		}
		var err error
		if args[i], err = e.eval(arg); err != nil {
			return nil, err
		}
		if args[i] == (deferred{}) {
			later = true
		}
	}
	if later {
		return deferred{}, nil
	}
	a := &arguments{name: c.name, values: args}
	value := c.function.call(e, a)
	if a.err != nil {
		return nil, a.err
	}
	return value, nil
}

// property is target.index or target[index].
func property(target, index any) (any, error) {
	if target == (deferred{}) || index == (deferred{}) {
		return deferred{}, nil
	}
	switch t := target.(type) {
	case map[string]any:
		name, ok := index.(string)
		if !ok {
			return nil, refuse("The language expression property '%v' can't be evaluated, property name must be a string.", index)
		}
		if value, ok := member(t, name); ok {
			return value, nil
		}
		return nil, refuse("The language expression property '%s' doesn't exist, available properties are '%s'. Please see https://aka.ms/arm-template-expressions for usage details.", name, strings.Join(slices.Sorted(maps.Keys(t)), ", "))
	case []any:
		i, ok := index.(int64)
		if !ok {
			return nil, refuse("The language expression property '%v' can't be evaluated, property of an array must be an integer.", index)
		}
		if i < 0 || i >= int64(len(t)) {
			return nil, refuse("The language expression property array index '%d' is out of bounds.", i)
		}
		return t[i], nil
	}
	return nil, refuse("The language expression property '%v' can't be evaluated, the value is of type '%s'.", index, typeName(target))
}

// tree evaluates all expressions in a value, in keys too. What is deferred keeps its
// text.
func (e evaluator) tree(value any) (any, error) {
	switch v := value.(type) {
	case string:
		result, err := e.text(v)
		if result == (deferred{}) {
			result = v
		}
		return result, err
	case []any:
		out := make([]any, len(v))
		for i := range v {
			var err error
			if out[i], err = e.tree(v[i]); err != nil {
				return nil, err
			}
		}
		return out, nil
	case map[string]any:
		out := make(map[string]any, len(v))
		for _, key := range slices.Sorted(maps.Keys(v)) {
			if _, isLoop := v[key].([]any); isLoop && strings.EqualFold(key, "copy") {
				return nil, refuse("azsim has copy loops of resources only, not of properties and variables.")
			}
			name, err := e.tree(key)
			if err != nil {
				return nil, err
			}
			text, ok := name.(string)
			if !ok {
				return nil, refuse("The property name '%s' must evaluate to a string.", key)
			}
			if out[text], err = e.tree(v[key]); err != nil {
				return nil, err
			}
		}
		return out, nil
	}
	return value, nil
}

// count is the count of a copy object, 0 to 800.
func (e evaluator) count(source map[string]any) (int, error) {
	raw, _ := member(source, "count")
	value, err := e.in(e.place &^ withRuntime).tree(raw)
	if err != nil {
		return 0, err
	}
	n, ok := value.(int64)
	if !ok || n < 0 || n > maxResources {
		return 0, refuse("The copy count '%v' must be an integer value between 0 and %d. Please see https://aka.ms/arm-resource-loops for usage details.", value, maxResources)
	}
	return int(n), nil
}

// stringMember evaluates a member that has to be a string and not empty.
func (e evaluator) stringMember(source map[string]any, name string) (string, error) {
	raw, _ := member(source, name)
	value, err := e.in(e.place &^ withRuntime).tree(raw)
	if err != nil {
		return "", err
	}
	if s, ok := value.(string); ok && s != "" {
		return s, nil
	}
	return "", refuse("The '%s' property is required and must be a string that is not empty; its value is of type '%s'.", name, typeName(value))
}

// typeName is the name that ARM's messages have for a value's type.
func typeName(value any) string {
	switch value.(type) {
	case nil:
		return "Null"
	case string:
		return "String"
	case int64:
		return "Integer"
	case json.Number:
		return "Float"
	case bool:
		return "Boolean"
	case []any:
		return "Array"
	case map[string]any:
		return "Object"
	}
	return fmt.Sprintf("%T", value)
}
