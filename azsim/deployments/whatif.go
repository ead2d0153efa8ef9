package deployments

import (
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/ortet/ortet/azsim/template"
)

// secrets are members that no GET gives. What-if shows them neither before nor
// after, so a change of customData is hidden (arm-template-whatif #108).
var secrets = []string{"customData", "userData", "adminPassword", "protectedSettings"}

// WhatIf compares the template with what exists. Its result is that of Azure's
// what-if operation, its error an *Error.
func (p *Plan) WhatIf(ctx context.Context, caller Caller) (map[string]any, error) {
	if err := p.Validate(ctx, caller); err != nil {
		return nil, err
	}
	w := world{ctx, caller, p}
	changes := []any{}
	for _, r := range p.expanded.Resources {
		change, err := p.change(w, r)
		if err != nil {
			return nil, asError(err)
		}
		changes = append(changes, change)
	}
	rest, err := p.ignored(w)
	if err != nil {
		return nil, asError(err)
	}
	return map[string]any{"status": stateSucceeded, "properties": map[string]any{"changes": append(changes, rest...)}}, nil
}

// change is what the deployment would do to one resource.
func (p *Plan) change(w world, r *template.Resource) (map[string]any, error) {
	out := map[string]any{"resourceId": r.ID, "changeType": "Deploy"}
	if p.IDsOnly {
		return out, nil
	}
	got, err := w.do(Request{Method: http.MethodGet, Path: r.ID + "?api-version=" + r.APIVersion})
	if err != nil {
		return nil, err
	}
	exists := got.Status == http.StatusOK
	if e := got.refusal(); e != nil && e.Status != http.StatusNotFound {
		return nil, e
	}
	identity := map[string]any{"id": r.ID, "name": r.Name[strings.LastIndexByte(r.Name, '/')+1:], "type": r.Type, "apiVersion": r.APIVersion}
	if p.scope.Group != "" {
		identity["resourceGroup"] = p.scope.Group
	}
	body, err := r.Body(w)
	if err != nil { // it refers to what does not exist yet: expressions are shown as they are
		if body, err = r.Body(nil); err != nil {
			return nil, err
		}
	}
	tree, err := plain(body)
	if err != nil {
		return nil, err
	}
	if !exists {
		out["changeType"] = "Create"
		after, _ := public(tree).(map[string]any)
		maps.Copy(after, identity)
		out["after"] = after
		return out, nil
	}
	before, _ := public(got.Body).(map[string]any)
	if before == nil {
		before = map[string]any{}
	}
	maps.Copy(before, identity)
	after, _ := merged(before, public(tree)).(map[string]any)
	if tags := member(tree, "tags"); tags != nil { // a PUT replaces them
		after["tags"] = tags
	}
	maps.Copy(after, identity)
	delta := members("", before, after)
	out["before"], out["after"], out["delta"], out["changeType"] = before, after, delta, "Modify"
	if len(delta) == 0 {
		out["changeType"] = "NoChange"
	}
	return out, nil
}

// ignored lists the group's resources that the template does not have.
func (p *Plan) ignored(w world) ([]any, error) {
	out := []any{}
	group, _, _ := strings.Cut(p.ID, "/providers/")
	for path := group + "/resources?api-version=2021-04-01"; path != ""; {
		body, err := w.ask(Request{Method: http.MethodGet, Path: path})
		if err != nil {
			return nil, err
		}
		list, _ := member(body, "value").([]any)
		for _, item := range list {
			id := text(item, "id")
			known := slices.ContainsFunc(p.expanded.Resources, func(r *template.Resource) bool {
				return strings.EqualFold(r.ID, id) || strings.HasPrefix(strings.ToLower(id), strings.ToLower(r.ID)+"/")
			})
			if !known {
				out = append(out, map[string]any{"resourceId": id, "changeType": "Ignore", "before": item, "after": item})
			}
		}
		path = text(body, "nextLink")
	}
	return out, nil
}

// plain makes decoded JSON of any value.
func plain(v any) (any, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	return decode(data)
}

// public is a decoded JSON value without nulls and secrets, copied.
func public(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for k, x := range v {
			hidden := slices.ContainsFunc(secrets, func(s string) bool { return strings.EqualFold(s, k) })
			if x != nil && !hidden {
				out[k] = public(x)
			}
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, x := range v {
			out[i] = public(x)
		}
		return out
	}
	return v
}

// merged is what a PUT of next makes of what exists: what it does not name is
// read-only or a default, and stays. Names of members ignore case. Elements of lists
// belong together by name, else by position.
func merged(before, next any) any {
	switch next := next.(type) {
	case map[string]any:
		was, isObject := before.(map[string]any)
		if !isObject {
			return next
		}
		out := maps.Clone(was)
		for k, x := range next {
			for known := range was {
				if strings.EqualFold(known, k) {
					k = known
				}
			}
			out[k] = merged(was[k], x)
		}
		return out
	case []any:
		was, _ := before.([]any)
		out := make([]any, len(next))
		for i, x := range next {
			var old any
			if i < len(was) {
				old = was[i]
			}
			if name := text(x, "name"); name != "" {
				old = nil
				if j := slices.IndexFunc(was, func(o any) bool { return strings.EqualFold(text(o, "name"), name) }); j >= 0 {
					old = was[j]
				}
			}
			out[i] = merged(old, x)
		}
		return out
	}
	return next
}

// differences are the changes of a property: those of nested objects by their dotted
// path, those of lists as children. Missing values are nil.
func differences(path string, before, after any) []any {
	change := map[string]any{"path": path, "before": before, "after": after, "propertyChangeType": "Modify"}
	wasMap, ok1 := before.(map[string]any)
	isMap, ok2 := after.(map[string]any)
	wasList, ok3 := before.([]any)
	isList, ok4 := after.([]any)
	switch {
	case same(path, before, after):
		return nil
	case before == nil:
		change["propertyChangeType"] = "Create"
	case after == nil:
		change["propertyChangeType"] = "Delete"
	case ok1 && ok2:
		return members(path, wasMap, isMap)
	case ok3 && ok4:
		children := []any{}
		for i := range max(len(wasList), len(isList)) {
			children = append(children, element(strconv.Itoa(i), at(wasList, i), at(isList, i))...)
		}
		if len(children) == 0 {
			return nil
		}
		change["propertyChangeType"], change["children"] = "Array", children
	}
	return []any{change}
}

// members are the differences of two objects' members.
func members(path string, before, after map[string]any) []any {
	all := maps.Clone(before)
	maps.Copy(all, after)
	out := []any{}
	for _, k := range slices.Sorted(maps.Keys(all)) {
		out = append(out, differences(strings.TrimPrefix(path+"."+k, "."), before[k], after[k])...)
	}
	return out
}

// element are the changes of a list's element; those of an object are its children.
func element(path string, before, after any) []any {
	was, ok1 := before.(map[string]any)
	is, ok2 := after.(map[string]any)
	if !ok1 || !ok2 {
		return differences(path, before, after)
	}
	children := members("", was, is)
	if len(children) == 0 {
		return nil
	}
	return []any{map[string]any{"path": path, "propertyChangeType": "Modify", "before": before, "after": after, "children": children}}
}

func at(list []any, i int) any {
	if i < len(list) {
		return list[i]
	}
	return nil
}

// same compares two scalars; locations and ids in any letter case, and numbers with
// strings, since providers convert them.
func same(path string, a, b any) bool {
	x, ok1 := scalar(a)
	y, ok2 := scalar(b)
	switch {
	case !ok1 || !ok2:
		return reflect.DeepEqual(a, b)
	case path == "location":
		return strings.EqualFold(strings.ReplaceAll(x, " ", ""), strings.ReplaceAll(y, " ", ""))
	case strings.HasPrefix(x, "/"):
		return strings.EqualFold(x, y)
	}
	return x == y
}

// scalar is a string, or a number's text.
func scalar(v any) (string, bool) {
	if n, ok := v.(json.Number); ok {
		return n.String(), true
	}
	s, ok := v.(string)
	return s, ok
}
