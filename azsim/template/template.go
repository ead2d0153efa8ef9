// Package template is the language of ARM templates at group scope: it reads a
// template with its parameters, and expands it to resources. It is pure; what only
// the running Azure knows (reference, list functions) is asked of a World, when a
// resource's turn comes.
//
// The language is that of Microsoft's "Understand the structure and syntax of ARM
// templates" and "ARM template functions". In evaluated values integers are int64;
// other numbers are json.Number, as written.
package template

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// A Template is a parsed template.
type Template struct {
	tree   map[string]any
	source []byte // plain JSON
	hash   func() uint64
}

// A Scope is what functions say of where a deployment runs.
type Scope struct {
	Subscription string // id
	Tenant       string
	Group        string // name of the resource group
	Location     string // its location
	Tags         map[string]string
	Deployment   string         // name
	Environment  map[string]any // environment()
	// Provider is providers(namespace), nil for an unknown one; its member
	// resourceTypes lists objects with resourceType, locations and apiVersions.
	Provider func(namespace string) map[string]any
	Now      time.Time // utcNow(), only in default values of parameters
}

// A World answers what only the running Azure knows.
type World interface {
	// Reference is reference(id, version[, 'Full']): properties, or the whole resource.
	// version is "" where the template leaves it out, which is allowed for a resource
	// of the template.
	Reference(id, version string, full bool) (any, error)
	// List is a list function, "listKeys": POST id/listKeys.
	List(function, id, version string, body any) (any, error)
}

// An Error is a template that ARM refuses: InvalidTemplate and the like.
type Error struct{ Code, Message string }

func (e *Error) Error() string { return e.Code + ": " + e.Message }

// A Resource is one resource to deploy, copies expanded, those whose condition is
// false left out.
type Resource struct {
	ID         string // ARM id, in its scope
	Type       string // "Microsoft.Compute/virtualMachines"
	Name       string // "vm", or "vnet/subnet"
	APIVersion string
	DependsOn  []string // ids of resources of the same deployment, implicit ones (reference) too
	// Body evaluates what a PUT carries: location, tags, sku, properties, … . Without a
	// World expressions that need one stay as text, as in the results of what-if. Its
	// errors are *Error, or those of World.
	Body func(World) (map[string]any, error)
}

// A Deployment is a template with parameters in a scope, ready to run.
type Deployment struct {
	// Parameters are the values used, defaults too, in ARM's form: name to
	// {"type": …, "value": …}; secure ones without value.
	Parameters map[string]any
	Resources  []*Resource // in the template's order; dependencies are known and acyclic
	// Outputs evaluates the outputs: name to {"type": …, "value": …}.
	Outputs func(World) (map[string]any, error)
}

// maxResources is ARM's limit (Microsoft's "Template limits").
const maxResources = 800

// Parse reads a template: JSON with comments, trailing commas and multi-line strings,
// as the Azure CLI passes it on. Its errors are *Error.
func Parse(data []byte) (*Template, error) {
	plain, err := Clean(data)
	var value any
	if err == nil {
		value, err = decode(plain)
	}
	if err != nil {
		return nil, invalidContent("%s", err)
	}
	tree, ok := value.(map[string]any)
	if !ok {
		return nil, invalidContent("Error converting value to type 'Template'. Path 'properties.template'.")
	}
	if err := members(tree, "Template", "properties.template", "$schema", "contentVersion", "apiProfile", "languageVersion",
		"definitions", "metadata", "functions", "parameters", "variables", "resources", "outputs"); err != nil {
		return nil, err
	}
	for _, name := range []string{"$schema", "contentVersion", "resources"} {
		if _, ok := member(tree, name); !ok {
			return nil, invalidContent("Required property '%s' not found in JSON. Path 'properties.template'.", name)
		}
	}
	if version, ok := member(tree, "languageVersion"); ok && version != "1.0" {
		return nil, invalid("Language version '%v' is not supported: this ARM knows version 1.0 only.", version)
	}
	if functions, _ := member(tree, "functions"); functions != nil {
		if list, ok := functions.([]any); !ok || len(list) > 0 {
			return nil, invalid("User-defined functions are not supported by this ARM.")
		}
	}
	for _, name := range []string{"parameters", "variables", "outputs"} {
		if _, err := object(tree, name); err != nil {
			return nil, err
		}
	}
	resources, _ := member(tree, "resources")
	if _, ok := resources.([]any); !ok {
		return nil, invalidContent("Error converting value to type 'TemplateResource[]'. Path 'properties.template.resources'.")
	}
	t := &Template{tree: tree, source: plain}
	t.hash = sync.OnceValue(func() uint64 { return hash64(strings.ToUpper(string(t.Export()))) })
	return t, nil
}

// Declares says whether the template has a section, as "outputs".
func (t *Template) Declares(section string) bool {
	_, ok := member(t.tree, section)
	return ok
}

// member finds a member as ARM does: names ignore case.
func member(tree map[string]any, name string) (any, bool) {
	if value, ok := tree[name]; ok {
		return value, true
	}
	for key, value := range tree {
		if strings.EqualFold(key, name) {
			return value, true
		}
	}
	return nil, false
}

// object is a member that has to be an object, empty if missing.
func object(tree map[string]any, name string) (map[string]any, error) {
	value, _ := member(tree, name)
	if value == nil {
		return nil, nil
	}
	if result, ok := value.(map[string]any); ok {
		return result, nil
	}
	return nil, invalidContent("Error converting value of '%s' to an object.", name)
}

// members refuses an object with members that its type has not.
func members(tree map[string]any, kind, path string, names ...string) error {
	for _, key := range slices.Sorted(maps.Keys(tree)) {
		if !slices.ContainsFunc(names, func(name string) bool { return strings.EqualFold(name, key) }) {
			return invalidContent("Could not find member '%s' on object of type '%s'. Path '%s.%s'.", key, kind, path, key)
		}
	}
	return nil
}

func invalid(format string, args ...any) *Error {
	return &Error{Code: "InvalidTemplate", Message: "Deployment template validation failed: '" + fmt.Sprintf(format, args...) + "'."}
}

func invalidContent(format string, args ...any) *Error {
	return &Error{Code: "InvalidRequestContent", Message: "The request content was invalid and could not be deserialized: '" + fmt.Sprintf(format, args...) + "'."}
}
