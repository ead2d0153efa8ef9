package template

import (
	"errors"
	"maps"
	"slices"
	"strings"
)

// A model is a template in a scope with its parameters: what evaluators share.
type model struct {
	scope      Scope
	functions  map[string]function
	parameters map[string]*lazy // by lower-case name
	variables  map[string]*lazy
	instances  []*instance
	// index finds resources by all that dependsOn and reference may call them, lower
	// case: id, TYPE/NAME, name, name of a copy loop.
	index map[string][]*instance
}

func (m *model) at(p place) evaluator { return evaluator{model: m, place: p} }

// Expand checks parameters and expands the template. parameters are in ARM's form,
// name to {"value": …}. Its errors are *Error.
func (t *Template) Expand(scope Scope, parameters map[string]any) (*Deployment, error) {
	d, err := t.expand(scope, parameters)
	if err != nil {
		return nil, inTemplate(err)
	}
	return d, nil
}

// inTemplate makes ARM's error of an error of the language.
func inTemplate(err error) error {
	var language expressionError
	if errors.As(err, &language) {
		return invalid("%s", language)
	}
	return err
}

// explain puts an error of the language into a sentence with a name.
func explain(err error, format, name string) error {
	var language expressionError
	if errors.As(err, &language) {
		return refuse(format, name, language)
	}
	return err
}

func (t *Template) expand(scope Scope, given map[string]any) (*Deployment, error) {
	m := &model{scope: scope, functions: functions(), parameters: map[string]*lazy{}, variables: map[string]*lazy{}, index: map[string][]*instance{}}
	declared, _ := object(t.tree, "parameters")
	if err := m.declare(declared, given); err != nil {
		return nil, err
	}
	variables, _ := object(t.tree, "variables")
	m.define(variables)
	d := &Deployment{Parameters: map[string]any{}}
	for _, key := range slices.Sorted(maps.Keys(m.parameters)) {
		p := m.parameters[key]
		value, err := p.get()
		if err != nil {
			return nil, err
		}
		d.Parameters[p.name] = typed(p.kind, value)
	}
	for _, key := range slices.Sorted(maps.Keys(m.variables)) {
		if _, err := m.variables[key].get(); err != nil {
			return nil, explain(err, "The template variable '%s' is not valid: %s", m.variables[key].name)
		}
	}
	resources, _ := member(t.tree, "resources")
	if err := m.resources(resources.([]any)); err != nil {
		return nil, err
	}
	if err := m.order(); err != nil {
		return nil, err
	}
	for _, in := range m.instances {
		if !in.skipped {
			d.Resources = append(d.Resources, &in.Resource)
		}
	}
	outputs, _ := object(t.tree, "outputs")
	d.Outputs = func(world World) (map[string]any, error) {
		e := m.at(withVariables | withRuntime)
		e.world = world
		values, err := e.outputs(outputs)
		var language expressionError
		if errors.As(err, &language) {
			err = &Error{Code: "DeploymentOutputEvaluationFailed", Message: string(language)}
		}
		return values, err
	}
	_, err := m.at(withVariables | withRuntime).outputs(outputs)
	return d, err
}

// typed is a value in ARM's form; secure ones are left out.
func typed(kind string, value any) map[string]any {
	out := map[string]any{"type": parameterTypes()[kind][0]}
	if !strings.HasPrefix(kind, "secure") {
		out["value"] = value
	}
	return out
}

// outputs evaluates the outputs whose condition is true. Without a World those that
// need one are left out.
func (e evaluator) outputs(declared map[string]any) (map[string]any, error) {
	values := map[string]any{}
	for _, name := range slices.Sorted(maps.Keys(declared)) {
		output, ok := declared[name].(map[string]any)
		if !ok {
			return nil, invalidContent("Error converting value of output '%s' to type 'TemplateOutputParameter'.", name)
		}
		if err := members(output, "TemplateOutputParameter", "properties.template.outputs."+name, "type", "value", "condition", "metadata"); err != nil {
			return nil, err
		}
		value, err := e.output(output)
		if err != nil {
			return nil, explain(err, "The template output '%s' is not valid: %s", name)
		}
		if value != nil {
			values[name] = value
		}
	}
	return values, nil
}

func (e evaluator) output(source map[string]any) (any, error) {
	raw, _ := member(source, "type")
	kind := strings.ToLower(text(raw))
	types, ok := parameterTypes()[kind]
	if !ok {
		return nil, refuse("the type '%v' is unknown. Please see https://aka.ms/arm-template/#outputs for usage details.", raw)
	}
	if met, err := e.condition(source); err != nil || !met {
		return nil, err
	}
	raw, _ = member(source, "value")
	value, err := e.tree(raw)
	if source, _ := raw.(string); err != nil || e.world == nil && isExpression(source) && value == source {
		return nil, err
	}
	if typeName(value) != types[1] {
		return nil, refuse("the value is of type '%s', but '%s' is expected. Please see https://aka.ms/arm-template/#outputs for usage details.", typeName(value), types[1])
	}
	return typed(kind, value), nil
}

// condition is true if missing.
func (e evaluator) condition(source map[string]any) (bool, error) {
	raw, ok := member(source, "condition")
	if !ok {
		return true, nil
	}
	value, err := e.in(e.place &^ withRuntime).tree(raw)
	if err != nil {
		return false, err
	}
	result, ok := value.(bool)
	if !ok {
		return false, refuse("The condition '%v' must be a boolean, but is of type '%s'. Please see https://aka.ms/arm-template/#resources for usage details.", raw, typeName(value))
	}
	return result, nil
}
