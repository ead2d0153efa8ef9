package lifecycle

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// differences are the properties that a deployment changes. What-if's own delta has
// noise (Azure/arm-template-whatif, label "noise"): what the service has set by itself
// looks deleted, lists in another order look changed, and functions that run only in
// the deployment look like values. Tags alone are replaced as a whole.
func differences(path string, before, after any) []string {
	switch a := after.(type) {
	case map[string]any:
		b, isObject := before.(map[string]any)
		if !isObject && before != nil {
			return []string{change(path, before, after)}
		}
		var all []string
		keys := maps.Clone(a)
		if path == "tags" {
			maps.Copy(keys, b)
		}
		for _, k := range sorted(keys) {
			if k == "id" || k == "etag" || k == "provisioningState" || k == "apiVersion" {
				continue
			}
			if v, exists := b[k]; !exists {
				if a[k] != nil && !isFunction(a[k]) {
					all = append(all, change(below(path, k), nil, a[k]))
				}
			} else {
				all = append(all, differences(below(path, k), v, a[k])...)
			}
		}
		return all
	case []any:
		b, isList := before.([]any)
		if !isList && before != nil {
			return []string{change(path, before, after)}
		}
		return listDifferences(path, b, a)
	}
	if sameValue(before, after) {
		return nil
	}
	return []string{change(path, before, after)}
}

// listDifferences compares lists of named objects by name, and others as sets.
func listDifferences(path string, before, after []any) []string {
	olds, news := named(before), named(after)
	if len(olds) == len(before) && len(news) == len(after) {
		var all []string
		for _, name := range sorted(news) {
			if olds[name] == nil {
				all = append(all, change(below(path, name), nil, "new"))
				continue
			}
			all = append(all, differences(below(path, name), olds[name], news[name])...)
		}
		for _, name := range sorted(olds) {
			if news[name] == nil {
				all = append(all, change(below(path, name), "present", nil))
			}
		}
		return all
	}
	rest := slices.Clone(before)
	for _, v := range after {
		i := slices.IndexFunc(rest, func(old any) bool { return len(differences("", old, v)) == 0 })
		if i < 0 {
			return []string{change(path, before, after)}
		}
		rest = slices.Delete(rest, i, i+1)
	}
	if len(rest) > 0 {
		return []string{change(path, before, after)}
	}
	return nil
}

// named are the objects of a list by their names.
func named(list []any) map[string]any {
	all := map[string]any{}
	for _, v := range list {
		if o, ok := v.(map[string]any); ok {
			if name, ok := o["name"].(string); ok {
				all[name] = o
			}
		}
	}
	return all
}

func isFunction(v any) bool {
	text, ok := v.(string)
	return ok && strings.HasPrefix(text, "[") && strings.HasSuffix(text, "]")
}

// sameValue: Azure does not keep the letter case of ids and locations.
func sameValue(before, after any) bool {
	if isFunction(after) || after == nil {
		return true
	}
	a, aText := before.(string)
	b, bText := after.(string)
	if aText && bText {
		return strings.EqualFold(a, b)
	}
	return reflect.DeepEqual(before, after)
}

func below(path, name string) string { return strings.TrimPrefix(path+"."+name, ".") }

func change(path string, before, after any) string {
	return fmt.Sprintf("%s: %s -> %s", strings.TrimPrefix(strings.ReplaceAll(path, ".properties.", "."), "properties."), brief(before), brief(after))
}

// brief is a value in at most some dozen characters.
func brief(v any) string {
	const limit = 40
	if v == nil {
		return "none"
	}
	text, isText := v.(string)
	if !isText {
		data, err := json.Marshal(v)
		if err != nil {
			return "?"
		}
		text = string(data)
	}
	if r := []rune(text); len(r) > limit {
		return string(r[:limit-1]) + "…"
	}
	return text
}
