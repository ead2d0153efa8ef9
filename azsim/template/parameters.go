package template

import (
	"maps"
	"reflect"
	"slices"
	"strings"
)

// A lazy is a parameter or variable, evaluated when first needed.
type lazy struct {
	name          string
	kind          string // type of a parameter, lower case
	make          func() (any, error)
	running, done bool
	value         any
	err           error
}

func (l *lazy) get() (any, error) {
	if l.running {
		return nil, refuse("Circular dependency detected in template language expression: '%s'.", l.name)
	}
	if !l.done {
		l.running = true
		l.value, l.err = l.make()
		l.running, l.done = false, true
	}
	return l.value, l.err
}

const parameterHelp = "Please see https://aka.ms/arm-create-parameter-file for usage details."

// parameterTypes are ARM's types by lower-case name, with the type of their values.
func parameterTypes() map[string][2]string {
	return map[string][2]string{
		"string": {"String", "String"}, "securestring": {"SecureString", "String"}, "int": {"Int", "Integer"},
		"bool": {"Bool", "Boolean"}, "object": {"Object", "Object"}, "secureobject": {"SecureObject", "Object"},
		"array": {"Array", "Array"},
	}
}

// declare checks the given parameters against the template's and makes them known.
func (m *model) declare(declared, given map[string]any) error {
	for _, name := range slices.Sorted(maps.Keys(declared)) {
		definition, ok := declared[name].(map[string]any)
		if !ok {
			return invalidContent("Error converting value of parameter '%s' to type 'TemplateInputParameter'.", name)
		}
		if err := members(definition, "TemplateInputParameter", "properties.template.parameters."+name, "type", "defaultValue",
			"allowedValues", "minValue", "maxValue", "minLength", "maxLength", "metadata"); err != nil {
			return err
		}
		kind, _ := member(definition, "type")
		text, _ := kind.(string)
		if _, ok := parameterTypes()[strings.ToLower(text)]; !ok {
			return invalid("The template parameter '%s' has no valid type: '%v'. Please see https://aka.ms/arm-template/#parameters for usage details.", name, kind)
		}
		m.parameters[strings.ToLower(name)] = &lazy{name: name, kind: strings.ToLower(text), make: func() (any, error) {
			return m.parameter(name, definition, given)
		}}
	}
	var unknown []string
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if _, ok := m.parameters[strings.ToLower(name)]; !ok {
			unknown = append(unknown, name)
		}
	}
	if len(unknown) > 0 {
		return invalid("The template parameters '%s' in the parameters file are not valid; they are not present in the original template and can therefore not be provided at deployment time. The only supported parameters for this template are '%s'. %s",
			strings.Join(unknown, ", "), strings.Join(slices.Sorted(maps.Keys(declared)), ", "), parameterHelp)
	}
	return nil
}

// parameter is the value of one parameter, checked.
func (m *model) parameter(name string, definition, given map[string]any) (any, error) {
	var value any
	if raw, ok := member(given, name); ok {
		wrapped, _ := raw.(map[string]any)
		if value, ok = member(wrapped, "value"); !ok {
			return nil, refuse("The value for the template parameter '%s' is not provided: values other than {\"value\": …} are not supported. %s", name, parameterHelp)
		}
		value = normalize(value)
	} else if raw, ok := member(definition, "defaultValue"); ok {
		var err error
		if value, err = m.at(withClock).tree(raw); err != nil {
			return nil, err
		}
	} else {
		return nil, refuse("The value for the template parameter '%s' is not provided. %s", name, parameterHelp)
	}
	kind, _ := member(definition, "type")
	wanted := parameterTypes()[strings.ToLower(text(kind))][1]
	if typeName(value) != wanted {
		return nil, refuse("The provided value for the template parameter '%s' is not valid. Expected a value of type '%s', but received a value of type '%s'. %s", name, wanted, typeName(value), parameterHelp)
	}
	return value, constrain(name, definition, value)
}

// constrain checks allowedValues, which ignore case, and limits of value and length.
func constrain(name string, definition map[string]any, value any) error {
	if raw, _ := member(definition, "allowedValues"); raw != nil {
		allowed, _ := raw.([]any)
		has := func(item any) bool {
			return slices.ContainsFunc(allowed, func(one any) bool {
				return reflect.DeepEqual(one, item) || typeName(one) == "String" && typeName(item) == "String" && strings.EqualFold(text(one), text(item))
			})
		}
		list, isList := value.([]any)
		subset := isList && !slices.ContainsFunc(list, func(item any) bool { return !has(item) })
		if !has(value) && !subset {
			var texts []string
			for _, one := range allowed {
				texts = append(texts, text(one))
			}
			return refuse("The provided value for the template parameter '%s' is not valid. The value '%s' is not part of the allowed value(s): '%s'.", name, text(value), strings.Join(texts, ","))
		}
	}
	measure, what, suffix := int64(0), "Length of the value", "Length"
	switch v := value.(type) {
	case int64:
		measure, what, suffix = v, "The value", "Value"
	case string:
		measure = int64(len([]rune(v)))
	case []any:
		measure = int64(len(v))
	default:
		return nil
	}
	for _, side := range []struct {
		name, order string
		wrong       func(limit int64) bool
	}{
		{"min", "greater", func(limit int64) bool { return measure < limit }},
		{"max", "less", func(limit int64) bool { return measure > limit }},
	} {
		limit, _ := member(definition, side.name+suffix)
		if n, ok := limit.(int64); limit != nil && (!ok || side.wrong(n)) {
			return refuse("The provided value for the template parameter '%s' is not valid. %s should be %s than or equal to '%v'. %s", name, what, side.order, limit, parameterHelp)
		}
	}
	return nil
}

// define makes the template's variables known.
func (m *model) define(variables map[string]any) {
	for name, raw := range variables {
		m.variables[strings.ToLower(name)] = &lazy{name: name, make: func() (any, error) {
			value, err := m.at(withVariables).tree(map[string]any{name: raw})
			section, _ := value.(map[string]any)
			return section[name], err
		}}
	}
}
