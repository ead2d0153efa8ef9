package azsim

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"sort"
	"strconv"
	"strings"
)

// mergePatch applies ARM's PATCH rules to a decoded JSON value: a member that
// is absent keeps its value, null removes it, an object is merged, and anything
// else (arrays too) replaces the whole. With ignoreNull, null keeps the value:
// the bug that some resource providers have.
func mergePatch(target, patch any, ignoreNull bool) any {
	p, ok := patch.(map[string]any)
	if !ok {
		return patch
	}
	t, _ := target.(map[string]any)
	out := make(map[string]any, len(t)+len(p))
	for k, v := range t {
		out[k] = v
	}
	for k, v := range p {
		if v == nil {
			if !ignoreNull {
				delete(out, k)
			}
			continue
		}
		out[k] = mergePatch(out[k], v, ignoreNull)
	}
	return out
}

// decodeJSON reads one JSON value with numbers kept exact.
func decodeJSON(data []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("more than one JSON value")
	}
	return v, nil
}

// toTree turns a model into what decodeJSON would read from its JSON.
func toTree(model any) (any, error) {
	data, err := json.Marshal(model)
	if err != nil {
		return nil, err
	}
	return decodeJSON(data)
}

// fromTree fills a new T from a decoded JSON value. A member that T does not
// have is an error that names it, as Compute's deserialiser says it; a null
// member counts as absent, and a null in an array is an error: the models' lists
// hold no holes.
func fromTree[T any](tree any) (*T, error) {
	tree = lenient(tree, reflect.TypeFor[T]())
	if at, hole := findHole(tree, ""); hole {
		return nil, badRequest("InvalidRequestContent", "The request content was invalid and could not be deserialized: '%s' is null.", at)
	}
	data, err := json.Marshal(tree)
	if err != nil {
		return nil, err
	}
	out := new(T)
	if err := json.Unmarshal(data, out); err != nil {
		return nil, badRequest("InvalidRequestContent", "The request content was invalid and could not be deserialized: '%s'.", err)
	}
	back, err := toTree(out)
	if err != nil {
		return nil, err
	}
	if name, path := lostMember(tree, back, ""); name != "" {
		return nil, badRequest("BadRequest", "Could not find member '%s' on object of type '%s'. Path '%s'.", name, typeWord(out), path)
	}
	return out, nil
}

// lenient turns text into the boolean or number that the model has there, as Compute's
// deserialiser does: templates of the Azure CLI say "true" (recordings of its tests).
func lenient(v any, t reflect.Type) any {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch v := v.(type) {
	case string:
		switch _, err := strconv.ParseInt(v, 10, 64); {
		case t.Kind() == reflect.Bool && (strings.EqualFold(v, "true") || strings.EqualFold(v, "false")):
			return strings.EqualFold(v, "true")
		case (t.Kind() == reflect.Int32 || t.Kind() == reflect.Int64) && err == nil:
			return json.Number(v)
		}
	case []any:
		if t.Kind() != reflect.Slice {
			return v
		}
		out := make([]any, len(v))
		for i, inner := range v {
			out[i] = lenient(inner, t.Elem())
		}
		return out
	case map[string]any:
		out := make(map[string]any, len(v))
		for k, inner := range v {
			out[k] = inner
			if t.Kind() == reflect.Map {
				out[k] = lenient(inner, t.Elem())
			} else if t.Kind() == reflect.Struct {
				if f, ok := t.FieldByNameFunc(func(name string) bool { return strings.EqualFold(name, k) }); ok {
					out[k] = lenient(inner, f.Type)
				}
			}
		}
		return out
	}
	return v
}

// findHole finds a null in an array.
func findHole(tree any, path string) (at string, hole bool) {
	switch tree := tree.(type) {
	case map[string]any:
		for k, v := range tree {
			if at, hole := findHole(v, path+"."+k); hole {
				return at, true
			}
		}
	case []any:
		for i, v := range tree {
			at := fmt.Sprintf("%s[%d]", path, i)
			if v == nil {
				return strings.TrimPrefix(at, "."), true
			}
			if at, hole := findHole(v, at); hole {
				return at, true
			}
		}
	}
	return "", false
}

// lostMember finds the first member of in, in order of name, that out lacks.
func lostMember(in, out any, path string) (name, at string) {
	switch in := in.(type) {
	case map[string]any:
		o, ok := out.(map[string]any)
		if !ok {
			return "", ""
		}
		keys := make([]string, 0, len(in))
		for k := range in {
			keys = append(keys, k)
		}
		sort.Strings(keys)
		for _, k := range keys {
			if in[k] == nil {
				continue
			}
			p := strings.TrimPrefix(path+"."+k, ".")
			v, ok := o[k]
			if !ok {
				return k, p
			}
			if n, at := lostMember(in[k], v, p); n != "" {
				return n, at
			}
		}
	case []any:
		o, ok := out.([]any)
		if !ok {
			return "", ""
		}
		for i := range min(len(in), len(o)) {
			if n, at := lostMember(in[i], o[i], fmt.Sprintf("%s[%d]", path, i)); n != "" {
				return n, at
			}
		}
	}
	return "", ""
}

// typeWord is the bare name of a model's type: "Disk".
func typeWord(v any) string {
	s := fmt.Sprintf("%T", v)
	return s[strings.LastIndexByte(s, '.')+1:]
}
