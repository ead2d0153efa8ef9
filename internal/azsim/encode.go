package azsim

import (
	"encoding/json"
	"reflect"
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"
)

// The models of armcompute encode themselves into a map at every level, which is
// compacted again at every level above: most of the time that a simulation takes.
// encodeJSON gives the same bytes by walking the fields. What a field is called
// is known to the model's MarshalJSON alone, and is learned from it, once for each
// type. Types that are not of that form encode themselves.

// shapes remembers what was learned of types, which is the same in every process.
var shapes sync.Map // of *shape by reflect.Type

// A shape is how a struct type encodes itself; nil fields mean: by itself.
type shape struct {
	fields []shapeField // in the order of names, as a map is encoded
}

type shapeField struct {
	index int
	key   string // `"name":`
	time  bool   // in UTC
}

// encodeJSON gives the JSON of a reply's body, a model, or a tree of maps and
// lists of them.
func encodeJSON(v any) ([]byte, error) { return appendJSON(make([]byte, 0, 1024), v) }

func appendJSON(b []byte, v any) ([]byte, error) {
	var err error
	switch v := v.(type) {
	case nil:
		return append(b, "null"...), nil
	case string:
		return appendString(b, v), nil
	case bool:
		return strconv.AppendBool(b, v), nil
	case json.RawMessage:
		return append(b, v...), nil
	case int:
		return strconv.AppendInt(b, int64(v), 10), nil
	case map[string]any:
		if v == nil {
			return append(b, "null"...), nil
		}
		keys := make([]string, 0, 16)
		for k := range v {
			keys = append(keys, k)
		}
		slices.Sort(keys)
		b = append(b, '{')
		for i, k := range keys {
			if i > 0 {
				b = append(b, ',')
			}
			b = append(appendString(b, k), ':')
			if b, err = appendJSON(b, v[k]); err != nil {
				return b, err
			}
		}
		return append(b, '}'), nil
	case []any:
		if v == nil {
			return append(b, "null"...), nil
		}
		b = append(b, '[')
		for i, x := range v {
			if i > 0 {
				b = append(b, ',')
			}
			if b, err = appendJSON(b, x); err != nil {
				return b, err
			}
		}
		return append(b, ']'), nil
	case listedInstance:
		return appendJSON(b, renderInstance(v.c, v.e))
	}
	return appendValue(b, reflect.ValueOf(v))
}

// appendValue encodes what a field of a model can hold.
func appendValue(b []byte, v reflect.Value) ([]byte, error) {
	var err error
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			return append(b, "null"...), nil
		}
		return appendValue(b, v.Elem())
	case reflect.Interface:
		return appendJSON(b, v.Interface())
	case reflect.String:
		if v.Type() != reflect.TypeFor[json.Number]() {
			return appendString(b, v.String()), nil
		}
	case reflect.Bool:
		return strconv.AppendBool(b, v.Bool()), nil
	case reflect.Int, reflect.Int32, reflect.Int64:
		return strconv.AppendInt(b, v.Int(), 10), nil
	case reflect.Struct:
		if sh := shapeOf(v.Type()); sh.fields != nil {
			return appendStruct(b, v, sh)
		}
	case reflect.Slice:
		if v.IsNil() || v.Type().Elem().Kind() != reflect.Pointer {
			break
		}
		b = append(b, '[')
		for i := range v.Len() {
			if i > 0 {
				b = append(b, ',')
			}
			if b, err = appendValue(b, v.Index(i)); err != nil {
				return b, err
			}
		}
		return append(b, ']'), nil
	case reflect.Map:
		if v.IsNil() || v.Type().Key() != reflect.TypeFor[string]() {
			break
		}
		keys := make([]string, 0, 16)
		for it := v.MapRange(); it.Next(); {
			keys = append(keys, it.Key().String())
		}
		slices.Sort(keys)
		b = append(b, '{')
		for i, k := range keys {
			if i > 0 {
				b = append(b, ',')
			}
			b = append(appendString(b, k), ':')
			if b, err = appendValue(b, v.MapIndex(reflect.ValueOf(k))); err != nil {
				return b, err
			}
		}
		return append(b, '}'), nil
	}
	if v.CanAddr() { // as a pointer, so that a method of the pointer is found too
		v = v.Addr()
	}
	data, err := json.Marshal(v.Interface())
	return append(b, data...), err
}

func appendStruct(b []byte, v reflect.Value, sh *shape) ([]byte, error) {
	var err error
	b = append(b, '{')
	first := true
	for _, f := range sh.fields {
		x := v.Field(f.index)
		switch x.Kind() {
		case reflect.Pointer, reflect.Slice, reflect.Map, reflect.Interface:
			if x.IsNil() {
				continue
			}
		}
		if !first {
			b = append(b, ',')
		}
		first = false
		b = append(b, f.key...)
		if f.time {
			if at, ok := x.Interface().(*time.Time); ok {
				b = append(b, '"')
				b = at.UTC().AppendFormat(b, time.RFC3339Nano)
				b = append(b, '"')
				continue
			}
		}
		if b, err = appendValue(b, x); err != nil {
			return b, err
		}
	}
	return append(b, '}'), nil
}

func isTime(t reflect.Type) bool { return t == reflect.TypeFor[*time.Time]() }

// shapeOf learns how a struct type encodes itself.
func shapeOf(t reflect.Type) *shape {
	if known, ok := shapes.Load(t); ok {
		return known.(*shape)
	}
	sh := &shape{}
	if strings.HasSuffix(packageOf(t), "/armcompute") {
		if fields, ok := learn(t); ok {
			sh.fields = fields
		}
	}
	shapes.Store(t, sh)
	return sh
}

// packageOf is a type's package without the major version at its end.
func packageOf(t reflect.Type) string {
	path := t.PkgPath()
	if i := strings.LastIndex(path, "/v"); i > 0 {
		if _, err := strconv.Atoi(path[i+2:]); err == nil {
			return path[:i]
		}
	}
	return path
}

// learn encodes a value of t with one field set after the other, and says whether
// each gave one member with that value, and none gave none.
func learn(t reflect.Type) ([]shapeField, bool) {
	encode := func(v reflect.Value) map[string]json.RawMessage {
		data, err := json.Marshal(v.Interface())
		out := map[string]json.RawMessage{}
		if err != nil || json.Unmarshal(data, &out) != nil {
			return nil
		}
		return out
	}
	if none := encode(reflect.New(t)); none == nil || len(none) > 0 {
		return nil, false
	}
	fields := []shapeField{}
	for i := range t.NumField() {
		v := reflect.New(t)
		want, ok := sample(v.Elem().Field(i))
		one := encode(v)
		if !ok || len(one) != 1 {
			return nil, false
		}
		for name, value := range one {
			if want != "" && string(value) != want {
				return nil, false
			}
			fields = append(fields, shapeField{index: i, key: string(appendString(nil, name)) + ":", time: isTime(t.Field(i).Type)})
		}
	}
	sort.Slice(fields, func(i, j int) bool { return fields[i].key < fields[j].key })
	return fields, true
}

// sample sets a field and gives its JSON, "" where that is the field's own type's
// to say.
func sample(f reflect.Value) (want string, ok bool) {
	switch f.Kind() {
	case reflect.Pointer:
		f.Set(reflect.New(f.Type().Elem()))
		switch x := f.Elem(); x.Kind() {
		case reflect.String:
			x.SetString("azsim")
			return `"azsim"`, true
		case reflect.Bool:
			return "false", true
		case reflect.Int32, reflect.Int64, reflect.Float32, reflect.Float64:
			return "0", true
		case reflect.Struct:
			if at, isTime := f.Interface().(*time.Time); isTime {
				*at = time.Date(2000, 1, 1, 0, 0, 0, 0, time.FixedZone("", 3600))
				return `"1999-12-31T23:00:00Z"`, true
			}
			return "", true
		}
		return "", false
	case reflect.Slice:
		f.Set(reflect.MakeSlice(f.Type(), 0, 0))
		return "[]", true
	case reflect.Map:
		f.Set(reflect.MakeMap(f.Type()))
		return "{}", true
	case reflect.Interface:
		f.Set(reflect.ValueOf(true))
		return "true", true
	}
	return "", false
}

// appendString encodes a string as encoding/json does.
func appendString(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' || c >= utf8.RuneSelf {
			data, err := json.Marshal(s)
			if err != nil { // a string can always be encoded
				break
			}
			return append(b, data...)
		}
	}
	b = append(b, '"')
	b = append(b, s...)
	return append(b, '"')
}

// clone copies a model deeply.
func clone[T any](in *T) *T {
	if in == nil {
		return nil
	}
	out := new(T)
	copyDeep(reflect.ValueOf(out).Elem(), reflect.ValueOf(in).Elem())
	return out
}

// copyDeep copies src, so that nothing that can be changed is shared. Fields of
// type any hold decoded JSON, whose maps and lists are copied too.
func copyDeep(dst, src reflect.Value) {
	switch src.Kind() {
	case reflect.Pointer:
		if !src.IsNil() {
			dst.Set(reflect.New(src.Type().Elem()))
			copyDeep(dst.Elem(), src.Elem())
		}
	case reflect.Struct:
		if src.Type() == reflect.TypeFor[time.Time]() {
			dst.Set(src)
			return
		}
		for i := range src.NumField() {
			copyDeep(dst.Field(i), src.Field(i))
		}
	case reflect.Slice:
		if !src.IsNil() {
			dst.Set(reflect.MakeSlice(src.Type(), src.Len(), src.Len()))
			for i := range src.Len() {
				copyDeep(dst.Index(i), src.Index(i))
			}
		}
	case reflect.Map:
		if !src.IsNil() {
			dst.Set(reflect.MakeMapWithSize(src.Type(), src.Len()))
			for it := src.MapRange(); it.Next(); {
				v := reflect.New(src.Type().Elem()).Elem()
				copyDeep(v, it.Value())
				dst.SetMapIndex(it.Key(), v)
			}
		}
	case reflect.Interface:
		if !src.IsNil() {
			v := reflect.New(src.Elem().Type()).Elem()
			copyDeep(v, src.Elem())
			dst.Set(v)
		}
	default:
		dst.Set(src)
	}
}
