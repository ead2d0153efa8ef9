package template

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// An instance is one resource, or one iteration of a copied one.
type instance struct {
	Resource
	at      evaluator
	body    map[string]any // of the template, only what a PUT carries
	depends []string       // evaluated dependsOn
	skipped bool           // its condition is false
}

// resources expands a list of resources.
func (m *model) resources(list []any) error {
	e := m.at(withVariables)
	for i, item := range list {
		source, ok := item.(map[string]any)
		if !ok {
			return invalidContent("Error converting value to type 'TemplateResource'. Path 'properties.template.resources[%d]'.", i)
		}
		if err := members(source, "TemplateResource", fmt.Sprintf("properties.template.resources[%d]", i), "comments", "metadata", "condition", "type",
			"apiVersion", "name", "scope", "dependsOn", "copy", "resources", "location", "tags", "sku", "kind", "plan", "zones", "identity",
			"scale", "extendedLocation", "managedBy", "properties"); err != nil {
			return err
		}
		copies, err := object(source, "copy")
		if err != nil {
			return err
		}
		if copies == nil {
			if _, err := m.resource(source, e); err != nil {
				return err
			}
			continue
		}
		if err := m.loop(source, copies, e); err != nil {
			return err
		}
	}
	return nil
}

// loop expands a resource with copy; its mode (parallel, serial) makes no difference.
func (m *model) loop(source, copies map[string]any, e evaluator) error {
	name, err := e.stringMember(copies, "name")
	if err != nil {
		return err
	}
	count, err := e.count(copies)
	if err != nil {
		return err
	}
	m.index[key(name)] = slices.Clip(m.index[key(name)]) // known, even with no iterations
	for i := range count {
		e.loop = &loop{name, int64(i)}
		made, err := m.resource(source, e)
		if err != nil {
			return err
		}
		m.call(name, made)
	}
	return nil
}

// key is how index spells a name.
func key(name string) string { return strings.ToLower(strings.Trim(name, "/")) }

// call adds a name that dependsOn and reference may call a resource.
func (m *model) call(name string, in *instance) {
	if name = key(name); !slices.Contains(m.index[name], in) {
		m.index[name] = append(m.index[name], in)
	}
}

// resource expands one resource.
func (m *model) resource(source map[string]any, e evaluator) (*instance, error) {
	name, err := e.stringMember(source, "name")
	if err != nil {
		return nil, err
	}
	kind, err := e.stringMember(source, "type")
	if err != nil {
		return nil, e.inResource(name, err)
	}
	in := &instance{at: e, body: maps.Clone(source)}
	if in.APIVersion, err = e.stringMember(source, "apiVersion"); err != nil {
		return nil, e.inResource(name, err)
	}
	in.Type, in.Name = kind, name
	if strings.EqualFold(kind, "Microsoft.Resources/deployments") {
		return nil, invalid("The template resource '%s' is not valid: nested deployments are not supported by this ARM.", name)
	}
	if children, _ := member(source, "resources"); children != nil && !reflect.DeepEqual(children, []any{}) {
		return nil, invalid("The template resource '%s' is not valid: azsim has no resources inside of resources; write them beside it.", name)
	}
	path, ok := interleave(kind, strings.Split(name, "/"))
	if !ok {
		return nil, invalid("The template resource '%s' of type '%s' has incorrect segment lengths. A nested resource type must have identical number of segments as its resource name. A root resource type must have segment length one greater than its resource name. Please see https://aka.ms/arm-template/#resources for usage details.", name, kind)
	}
	scope := e.group()
	if _, ok := member(source, "scope"); ok {
		if scope, err = e.stringMember(source, "scope"); err != nil {
			return nil, e.inResource(name, err)
		}
		if scope = strings.TrimSuffix(scope, "/"); !strings.HasPrefix(scope, "/") {
			scope = e.group() + "/providers/" + scope
		}
	}
	in.ID = scope + "/providers/" + path
	met, err := e.condition(source)
	if err != nil {
		return nil, e.inResource(name, err)
	}
	in.skipped = !met
	if in.depends, err = e.dependsOn(source); err != nil {
		return nil, e.inResource(name, err)
	}
	for key := range in.body {
		switch strings.ToLower(key) {
		case "comments", "metadata", "condition", "type", "apiversion", "name", "scope", "dependson", "copy", "resources", "scale":
			delete(in.body, key)
		}
	}
	in.Body = func(world World) (map[string]any, error) { return in.evaluate(world, nil) }
	if m.instances = append(m.instances, in); len(m.instances) > maxResources {
		return nil, invalid("The number of template resources limit exceeded. Limit: %d and actual: %d. Please see https://aka.ms/arm-template/#resources for usage details.", maxResources, len(m.instances))
	}
	for _, other := range m.index[key(in.ID)] {
		if !other.skipped && !in.skipped {
			return nil, invalid("The resource '%s' is defined multiple times in a template. Please see https://aka.ms/arm-template/#resources for usage details.", in.ID)
		}
	}
	for _, name := range []string{in.ID, path, kind + "/" + name, name} {
		m.call(name, in)
	}
	return in, nil
}

func (e evaluator) dependsOn(source map[string]any) ([]string, error) {
	raw, _ := member(source, "dependsOn")
	value, err := e.tree(raw)
	if err != nil || value == nil {
		return nil, err
	}
	list, ok := value.([]any)
	if !ok {
		return nil, refuse("The 'dependsOn' property must be an array.")
	}
	a := &arguments{name: "dependsOn", values: list}
	return a.strings(0), a.err
}

// inResource makes ARM's error of an error of the language in a resource.
func (e evaluator) inResource(name string, err error) error {
	var language expressionError
	if !errors.As(err, &language) {
		return err
	}
	return &Error{Code: "InvalidTemplate", Message: fmt.Sprintf("Unable to process template language expressions for resource '%s'. '%s'", name, language)}
}

// evaluate is Resource.Body; referred is called as evaluator.referred is.
func (in *instance) evaluate(world World, referred func(id string) error) (map[string]any, error) {
	e := in.at.in(withVariables | withRuntime)
	e.world, e.referred = world, referred
	value, err := e.tree(in.body)
	if err != nil {
		return nil, e.inResource(in.ID, err)
	}
	body := value.(map[string]any)
	// A null member at the top means a member left out: "zones": "[null()]".
	maps.DeleteFunc(body, func(_ string, value any) bool { return value == nil })
	return body, nil
}

// order finds all dependencies, evaluating bodies without a World for those that
// reference and list functions make, and refuses cycles.
func (m *model) order() error {
	for _, in := range m.instances {
		if in.skipped {
			continue
		}
		add := func(others ...*instance) {
			for _, other := range others {
				if !other.skipped && !slices.Contains(in.DependsOn, other.ID) {
					in.DependsOn = append(in.DependsOn, other.ID)
				}
			}
		}
		for _, name := range in.depends {
			found, ok := m.index[key(name)]
			if !ok {
				return invalid("The resource '%s' is not defined in the template. Please see https://aka.ms/arm-template for usage details.", name[strings.LastIndex(name, "/providers/")+1:])
			}
			add(found...)
		}
		if _, err := in.evaluate(nil, func(id string) error {
			if strings.EqualFold(id, in.ID) {
				return refuse("The template resource '%s' cannot reference itself. Please see https://aka.ms/arm-function-reference for usage details.", in.Name)
			}
			add(m.index[key(id)]...)
			return nil
		}); err != nil {
			return err
		}
	}
	const walking, done = 1, 2
	state := map[*instance]int{}
	var walk func(in *instance) error
	walk = func(in *instance) error {
		switch state[in] {
		case walking:
			return invalid("Circular dependency detected on resource: '%s'. Please see https://aka.ms/arm-syntax-resources for usage details.", in.ID)
		case done:
			return nil
		}
		state[in] = walking
		for _, id := range in.DependsOn {
			for _, other := range m.index[key(id)] {
				if err := walk(other); err != nil {
					return err
				}
			}
		}
		state[in] = done
		return nil
	}
	for _, in := range m.instances {
		if err := walk(in); err != nil {
			return err
		}
	}
	return nil
}
