package elastic

import (
	"encoding/json"
	"reflect"
)

// Schema is the JSON schema of cluster.yaml (draft 2020-12), for editors. Parse checks
// more: what concerns several fields, and Kubernetes' rules of labels and taints.
func Schema() []byte {
	defs := map[string]any{}
	root := object(reflect.TypeFor[Cluster](), defs)
	root["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	root["$id"] = "https://ortet.io/schema/cluster.v1alpha1.json"
	root["title"] = "Cluster"
	root["description"] = "A k3s cluster on Azure, for ortet cluster."
	root["$defs"] = defs
	out, _ := json.MarshalIndent(root, "", "  ") // maps of strings and numbers: cannot fail
	return append(out, '\n')
}

func object(t reflect.Type, defs map[string]any) map[string]any {
	properties, required := map[string]any{}, []string{}
	for i := range t.NumField() {
		name, must := jsonField(t.Field(i))
		if must {
			required = append(required, name)
		}
		properties[name] = property(t.Field(i).Type, t.Name()+"."+name, defs)
	}
	o := map[string]any{"type": "object", "additionalProperties": false, "properties": properties}
	if len(required) > 0 {
		o["required"] = required
	}
	return o
}

func property(t reflect.Type, key string, defs map[string]any) map[string]any {
	f, p := fields[key], map[string]any{}
	if f.doc != "" {
		p["description"] = f.doc
	}
	limits := func(min, max string) {
		if f.min > 0 {
			p[min] = f.min
		}
		if f.max > 0 {
			p[max] = f.max
		}
	}
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch t.Kind() {
	case reflect.Struct:
		if defs[t.Name()] == nil {
			defs[t.Name()] = object(t, defs)
		}
		p["$ref"] = "#/$defs/" + t.Name()
	case reflect.Map:
		p["type"], p["additionalProperties"] = "object", property(t.Elem(), key+"[]", defs)
	case reflect.Slice:
		p["type"], p["items"] = "array", property(t.Elem(), key+"[]", defs)
		p["uniqueItems"] = true
		limits("minItems", "maxItems")
	case reflect.Int:
		p["type"], p["minimum"], p["maximum"] = "integer", f.min, f.max
	case reflect.Bool:
		p["type"] = "boolean"
	case reflect.String:
		p["type"] = "string"
		limits("minLength", "maxLength")
		if f.pattern != "" {
			p["pattern"] = f.pattern
		}
		if f.enum != nil {
			p["enum"] = f.enum
		}
	}
	return p
}
