package azsim

import (
	"reflect"
	"strings"
)

// The armcompute models share member names but no interfaces, so what is common
// to all of them (id, name, type, location, provisioningState) is reached by
// the name of the field.

// memberPath is the JSON form of a dotted path of fields, for stored types.
func memberPath(path string) []string {
	names := strings.Split(path, ".")
	for i, n := range names {
		names[i] = strings.ToLower(n[:1]) + n[1:]
	}
	return names
}

// field walks a dotted path of struct fields. With grow it makes what is nil on
// the way; without, it gives the zero Value where the path ends early.
func field(model any, path string, grow bool) reflect.Value {
	v := reflect.ValueOf(model)
	for _, name := range strings.Split(path, ".") {
		for v.Kind() == reflect.Pointer {
			if v.IsNil() {
				if !grow || !v.CanSet() {
					return reflect.Value{}
				}
				v.Set(reflect.New(v.Type().Elem()))
			}
			v = v.Elem()
		}
		if v.Kind() != reflect.Struct {
			return reflect.Value{}
		}
		if v = v.FieldByName(name); !v.IsValid() {
			return reflect.Value{}
		}
	}
	return v
}

// withoutProperties copies a model, but for its properties, which are most of its size.
func withoutProperties(model any) any {
	v := reflect.ValueOf(model)
	if v.Kind() != reflect.Pointer || v.Elem().Kind() != reflect.Struct {
		return model
	}
	out := reflect.New(v.Type().Elem())
	out.Elem().Set(v.Elem())
	if p := out.Elem().FieldByName("Properties"); p.IsValid() {
		p.SetZero()
	}
	return out.Interface()
}

// hasField says whether the model's type has the field, set or not.
func hasField(model any, path string) bool {
	if m, ok := model.(object); ok {
		return at(m, memberPath(path)...) != nil
	}
	t := reflect.TypeOf(model)
	for _, name := range strings.Split(path, ".") {
		for t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
		if t.Kind() != reflect.Struct {
			return false
		}
		f, ok := t.FieldByName(name)
		if !ok {
			return false
		}
		t = f.Type
	}
	return true
}

// getField reads a field that is a pointer to a string, of any named type; ""
// where it is absent.
func getField(model any, path string) string {
	if m, ok := model.(object); ok {
		return text(m, memberPath(path)...)
	}
	v := field(model, path, false)
	if !v.IsValid() || v.Kind() != reflect.Pointer || v.IsNil() || v.Elem().Kind() != reflect.String {
		return ""
	}
	return v.Elem().String()
}

// setField sets a pointer field, if the model's type has it, to value: a string
// for a pointer to any string type, or a pointer of the field's own type.
func setField(model any, path string, value any) {
	if m, ok := model.(object); ok {
		names := memberPath(path)
		for _, n := range names[:len(names)-1] {
			inner, _ := m[n].(object)
			if inner == nil {
				inner = object{}
				m[n] = inner
			}
			m = inner
		}
		m[names[len(names)-1]] = value
		return
	}
	if !hasField(model, path) {
		return
	}
	v := field(model, path, true)
	if !v.IsValid() || v.Kind() != reflect.Pointer {
		return
	}
	in := reflect.ValueOf(value)
	if in.Kind() == reflect.String && v.Type().Elem().Kind() == reflect.String {
		p := reflect.New(v.Type().Elem())
		p.Elem().SetString(in.String())
		v.Set(p)
		return
	}
	if in.Type().AssignableTo(v.Type()) {
		v.Set(in)
	}
}

// copyField sets a field of dst to src's, where both have it and src's is set.
func copyField(dst, src any, path string) {
	from := field(src, path, false)
	if !from.IsValid() || from.Kind() != reflect.Pointer || from.IsNil() {
		return
	}
	if to := field(dst, path, true); to.IsValid() && to.Type() == from.Type() {
		to.Set(from)
	}
}

// stamp sets a model's id, name and type.
func stamp(model any, id resourceID, typ string) {
	id.tail = ""
	setField(model, "ID", id.String())
	setField(model, "Name", id.name())
	setField(model, "Type", typ)
}

// setState sets a model's provisioningState.
func setState(model any, state string) { setField(model, "Properties.ProvisioningState", state) }

// stateOf reads a model's provisioningState.
func stateOf(model any) string { return getField(model, "Properties.ProvisioningState") }

// val reads an optional member, the zero value where it is absent.
func val[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}

// ptr is the way to an optional member's value.
func ptr[T any](v T) *T { return &v }

// canon gives an enumeration's value the spelling of the API, which takes it in
// any letter case. It says whether the value is one that there is; an absent one is.
func canon[T ~string](p *T, possible []T) bool {
	if p == nil {
		return true
	}
	for _, v := range possible {
		if strings.EqualFold(string(v), string(*p)) {
			*p = v
			return true
		}
	}
	return false
}
