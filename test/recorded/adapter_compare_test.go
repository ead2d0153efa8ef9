package recorded

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/ortet/ortet/internal/fleet"
)

// A tree is an object of JSON.
type tree map[string]any

// all returns the values at a path: "properties.disks[].name" has one of each disk.
func (t tree) all(path string) []any {
	values := []any{map[string]any(t)}
	for step := range strings.SplitSeq(path, ".") {
		name, each := strings.CutSuffix(step, "[]")
		var next []any
		for _, v := range values {
			object, _ := v.(map[string]any)
			inner, ok := object[name]
			switch list, isList := inner.([]any); {
			case !ok || inner == nil:
			case each && isList:
				next = append(next, list...)
			case !each:
				next = append(next, inner)
			}
		}
		values = next
	}
	return values
}

// first is the value at the first of the paths that has one which is not empty.
func (t tree) first(paths ...string) any {
	for _, path := range paths {
		for _, v := range t.all(path) {
			if v != nil && v != "" {
				return v
			}
		}
	}
	return nil
}

func (t tree) text(paths ...string) string {
	text, _ := t.first(paths...).(string)
	return text
}

// with is the tree with one more member in an object of it.
func (t tree) with(object, member string, value any) tree {
	inner, _ := t[object].(map[string]any)
	out := maps.Clone(t)
	if inner = maps.Clone(inner); inner == nil {
		inner = map[string]any{}
	}
	inner[member], out[object] = value, inner
	return out
}

func (t tree) has(path string) bool { return len(t.all(path)) > 0 }

// A field is where a field of Ortet's own structs comes from.
type field struct {
	name    string   // of the struct: "Model.Image.ID"; "" where it only decides about others
	members []string // the first that is there counts; none: it is the argument's
	want    func(tree) any
	each    []field // of a list's elements
}

// flatten lists fields with those of lists' elements, by whole paths of members.
func flatten(fields []field, prefix string) (all []field) {
	for _, f := range fields {
		whole := f
		whole.members = nil
		for _, m := range f.members {
			whole.members = append(whole.members, prefix+m)
		}
		all = append(all, whole)
		if f.each != nil {
			all = append(all, flatten(f.each, prefix+f.members[0]+"[].")...)
		}
	}
	return all
}

func note(seen map[string]int, name string, fields []field, body tree) {
	for _, f := range flatten(fields, "") {
		for _, m := range f.members {
			if body.has(m) {
				seen[name+" "+m]++
			}
		}
	}
}

// compareFields lists where a struct is not what the recorded body says.
func compareFields(fields []field, got any, body tree) (differences []string) {
	for _, f := range fields {
		if f.name == "" || f.members == nil {
			continue
		}
		have, ok := at(reflect.ValueOf(got), f.name)
		if !ok {
			continue // another door's
		}
		if f.each != nil {
			elements := body.all(f.members[0] + "[]")
			if have.Len() != len(elements) {
				differences = append(differences, fmt.Sprintf("%s: %d elements, recorded %d", f.name, have.Len(), len(elements)))
				continue
			}
			for n, e := range elements {
				object, _ := e.(map[string]any)
				for _, d := range compareFields(f.each, have.Index(n).Interface(), object) {
					differences = append(differences, fmt.Sprintf("%s[%d].%s", f.name, n, d))
				}
			}
			continue
		}
		want := body.first(f.members...)
		if f.want != nil {
			want = f.want(body)
		}
		if a, b := plain(have.Interface()), plain(as(want, have.Type())); a != b {
			differences = append(differences, fmt.Sprintf("%s is %s, recorded %s", f.name, a, b))
		}
	}
	return differences
}

// at follows names of fields; a nil pointer is the zero value.
func at(v reflect.Value, path string) (reflect.Value, bool) {
	for name := range strings.SplitSeq(path, ".") {
		if v.Kind() == reflect.Pointer {
			if v.IsNil() {
				v = reflect.New(v.Type().Elem())
			}
			v = v.Elem()
		}
		if v = v.FieldByName(name); !v.IsValid() {
			return v, false
		}
	}
	return v, true
}

// as turns a value of JSON into a field's type.
func as(v any, typ reflect.Type) any {
	if typ == reflect.TypeFor[time.Time]() {
		if at, ok := v.(time.Time); ok {
			return at
		}
		text, _ := v.(string)
		at, _ := time.Parse(time.RFC3339Nano, text)
		return at
	}
	if v == nil {
		return reflect.Zero(typ).Interface()
	}
	if value := reflect.ValueOf(v); value.Type() != typ && value.CanConvert(typ) && value.Kind() != reflect.Slice {
		return value.Convert(typ).Interface()
	}
	return v
}

// plain writes a value so that no list and an empty one, and a time in any zone, compare.
func plain(v any) string {
	switch x := v.(type) {
	case time.Time:
		return x.UTC().Format(time.RFC3339Nano)
	case fleet.Secret:
		return fmt.Sprintf("%q", x.Reveal())
	case bool, string:
		return fmt.Sprintf("%q", fmt.Sprint(x))
	}
	text, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	if slices.Contains([]string{"[]", "{}", "null"}, string(text)) {
		return "none"
	}
	return string(text)
}

// missingFields lists the fields of what a kind's doors return that have no row.
func missingFields(k kind) (missing []string) {
	have := map[string][]field{}
	for _, f := range k.fields {
		have[f.name] = f.each
	}
	if k.returns == nil {
		return nil
	}
	return unnamed(k.returns, "", have)
}

func unnamed(typ reflect.Type, prefix string, have map[string][]field) (missing []string) {
	for n := range typ.NumField() {
		f := typ.Field(n)
		name, inner := prefix+f.Name, f.Type
		each, ok := have[name]
		switch {
		case ok && each != nil:
			of := map[string][]field{}
			for _, e := range each {
				of[e.name] = e.each
			}
			for _, m := range unnamed(inner.Elem(), "", of) {
				missing = append(missing, name+"[]."+m)
			}
		case ok:
		case inner.Kind() == reflect.Pointer && inner.Elem().Kind() == reflect.Struct:
			missing = append(missing, unnamed(inner.Elem(), name+".", have)...)
		case inner.Kind() == reflect.Struct && inner.PkgPath() == typ.PkgPath():
			missing = append(missing, unnamed(inner, name+".", have)...)
		default:
			missing = append(missing, name)
		}
	}
	return missing
}
