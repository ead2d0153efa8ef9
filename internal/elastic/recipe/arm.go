package recipe

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
)

// API versions of the resource types in the templates.
const (
	networkAPI       = "2024-05-01"
	storageAPI       = "2023-05-01"
	identityAPI      = "2023-01-31"
	authorizationAPI = "2022-04-01"
	computeAPI       = "2024-07-01"
	autoscaleAPI     = "2022-10-01"
)

const templateSchema = "https://schema.management.azure.com/schemas/2019-04-01/deploymentTemplate.json#"

type object = map[string]any

// A resource is a resource of a template.
func resource(kind, name, version string, properties object) object {
	return object{"type": kind, "name": name, "apiVersion": version, "location": "[resourceGroup().location]", "properties": properties}
}

// with gives r with additional members.
func with(r object, members object) object {
	maps.Copy(r, members)
	return r
}

// list makes a JSON array.
func list[T any](values ...T) []any {
	all := make([]any, 0, len(values))
	for _, v := range values {
		all = append(all, v)
	}
	return all
}

// call is a template function with its arguments, without the brackets around an
// expression; arguments that are not calls are to be quoted by the caller.
func call(function string, arguments ...string) string {
	return function + "(" + strings.Join(arguments, ", ") + ")"
}

func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }

func expression(s string) string { return "[" + s + "]" }

// idOf is the id of a resource in the deployment's group, as a call.
func idOf(kind string, names ...string) string { return idIn("", kind, names...) }

// idIn is the id of a resource in another group of the subscription, as a call.
func idIn(group, kind string, names ...string) string {
	var arguments []string
	if group != "" {
		arguments = append(arguments, quote(group))
	}
	arguments = append(arguments, quote(kind))
	for _, n := range names {
		arguments = append(arguments, quote(n))
	}
	return call("resourceId", arguments...)
}

func reference(id string) object { return object{"id": expression(id)} }

func template(parameters object, resources []any, outputs object) object {
	return object{
		"$schema": templateSchema, "contentVersion": "1.0.0.0",
		"parameters": parameters, "resources": resources, "outputs": outputs,
	}
}

// normal is v as encoding/json decodes it: maps, slices, strings, numbers and bools.
func normal(v object) (object, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encode the template: %w", err)
	}
	var out object
	if err := json.Unmarshal(text, &out); err != nil {
		return nil, fmt.Errorf("decode the template: %w", err)
	}
	return out, nil
}
