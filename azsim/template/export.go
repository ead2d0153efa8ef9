package template

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
)

// The members that Azure writes first, in its order; others follow in the template's.
// The order was found by the hashes that Azure returned (Azure CLI's recordings
// test_group_deployment and test_resource_group_deployment); places of condition, copy,
// limits of parameters and what stands between tags and properties are inferred.
func memberOrder() map[string][]string {
	return map[string][]string{
		"template":  {"$schema", "contentVersion", "apiProfile", "metadata", "functions", "parameters", "variables", "resources", "outputs"},
		"parameter": {"defaultValue", "allowedValues", "minValue", "maxValue", "minLength", "maxLength", "type", "metadata"},
		"resource": {"condition", "copy", "type", "apiVersion", "name", "scope", "location", "dependsOn", "tags", "sku", "kind", "plan",
			"zones", "identity", "properties", "resources"},
		"output": {"condition", "type", "value"},
	}
}

// A pair is one member of an object whose order counts.
type pair struct {
	key   string
	value any // pairs, []any or a scalar
}

type pairs []pair

// Export is the template as Azure keeps it: without comments, its own members in Azure's
// order and types in Azure's spelling. t is not changed.
func (t *Template) Export() json.RawMessage {
	d := json.NewDecoder(bytes.NewReader(t.source))
	d.UseNumber()
	root, _ := readOrdered(d).(pairs) // Parse has decoded it before
	order := memberOrder()
	for i, section := range root {
		switch strings.ToLower(section.key) {
		case "parameters":
			each(section.value, func(p pairs) pairs { return spellType(arrange(p, order["parameter"])) })
		case "outputs":
			each(section.value, func(p pairs) pairs { return spellType(arrange(p, order["output"])) })
		case "resources":
			root[i].value = arrangeResources(section.value, order["resource"])
		}
	}
	var out bytes.Buffer
	writeOrdered(&out, arrange(root, order["template"]))
	return out.Bytes()
}

// Hash is Azure's templateHash: the hash of uniqueString over the exported template in
// upper case (the result minifiedTemplate of Calculate Template Hash shows that).
func (t *Template) Hash() uint64 { return t.hash() }

func arrangeResources(list any, order []string) any {
	resources, _ := list.([]any)
	for i, r := range resources {
		p, isObject := r.(pairs)
		if !isObject {
			continue
		}
		for j, m := range p {
			if strings.EqualFold(m.key, "resources") {
				p[j].value = arrangeResources(m.value, order)
			}
		}
		resources[i] = arrange(p, order)
	}
	return list
}

// each replaces the objects that are an object's members.
func each(section any, by func(pairs) pairs) {
	list, _ := section.(pairs)
	for i := range list {
		if p, isObject := list[i].value.(pairs); isObject {
			list[i].value = by(p)
		}
	}
}

// arrange sorts members by their place in order, those not in it behind.
func arrange(p pairs, order []string) pairs {
	place := func(m pair) int {
		if i := slices.IndexFunc(order, func(name string) bool { return strings.EqualFold(name, m.key) }); i >= 0 {
			return i
		}
		return len(order)
	}
	slices.SortStableFunc(p, func(a, b pair) int { return place(a) - place(b) })
	return p
}

func spellType(p pairs) pairs {
	for i, m := range p {
		kind, _ := m.value.(string)
		if known, ok := parameterTypes()[strings.ToLower(kind)]; ok && strings.EqualFold(m.key, "type") {
			p[i].value = known[0]
		}
	}
	return p
}

// readOrdered decodes a JSON value with the order of members; nil on an error.
func readOrdered(d *json.Decoder) any {
	token, err := d.Token()
	delim, isDelim := token.(json.Delim)
	switch {
	case err != nil:
		return nil
	case !isDelim:
		return token
	case delim == '[':
		list := []any{}
		for d.More() {
			list = append(list, readOrdered(d))
		}
		_, _ = d.Token()
		return list
	}
	out := pairs{}
	for d.More() {
		key, _ := d.Token()
		name, _ := key.(string)
		out = append(out, pair{name, readOrdered(d)})
	}
	_, _ = d.Token()
	return out
}

func writeOrdered(out *bytes.Buffer, value any) {
	switch v := value.(type) {
	case pairs:
		out.WriteByte('{')
		for i, m := range v {
			if i > 0 {
				out.WriteByte(',')
			}
			out.WriteString(toJSON(m.key) + ":")
			writeOrdered(out, m.value)
		}
		out.WriteByte('}')
	case []any:
		out.WriteByte('[')
		for i, item := range v {
			if i > 0 {
				out.WriteByte(',')
			}
			writeOrdered(out, item)
		}
		out.WriteByte(']')
	default:
		out.WriteString(toJSON(v))
	}
}
