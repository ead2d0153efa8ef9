package azsim

import (
	"encoding/json"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"
)

// fill sets what a model can hold, each optional member with the probability of a
// half, as far down as depth.
func fill(r *rand.Rand, v reflect.Value, depth int) {
	text := func() string {
		return []string{"", "a", "x<y>&z", "quote\" back\\slash", "Zürich ☃", "line\nbreak\u2028"}[r.IntN(6)]
	}
	switch v.Kind() {
	case reflect.Pointer:
		if depth > 0 && r.IntN(2) == 0 {
			v.Set(reflect.New(v.Type().Elem()))
			fill(r, v.Elem(), depth-1)
		}
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			at := time.Unix(r.Int64N(4e9), r.Int64N(1e9)).In(time.FixedZone("", 3600*r.IntN(3)))
			v.Set(reflect.ValueOf(at))
			return
		}
		for i := range v.NumField() {
			fill(r, v.Field(i), depth)
		}
	case reflect.Slice:
		if r.IntN(2) == 0 {
			v.Set(reflect.MakeSlice(v.Type(), r.IntN(3), 3))
			for i := range v.Len() {
				fill(r, v.Index(i), depth-1)
			}
		}
	case reflect.Map:
		if r.IntN(2) == 0 {
			v.Set(reflect.MakeMap(v.Type()))
			for range r.IntN(4) {
				x := reflect.New(v.Type().Elem()).Elem()
				fill(r, x, depth-1)
				v.SetMapIndex(reflect.ValueOf(text()), x)
			}
		}
	case reflect.Interface:
		if r.IntN(2) == 0 {
			v.Set(reflect.ValueOf([]any{text(), true, json.Number("1.5"), map[string]any{"k": []any{nil, 7}}, 2.25}[r.IntN(5)]))
		}
	case reflect.String:
		v.SetString(text())
	case reflect.Bool:
		v.SetBool(r.IntN(2) == 0)
	case reflect.Int32, reflect.Int64:
		v.SetInt(int64(r.Int32()))
	case reflect.Float32, reflect.Float64:
		v.SetFloat(float64(r.IntN(1000)) / 8)
	}
}

// A clone is equal, and shares nothing that can be changed.
func TestCloneSharesNothing(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 50 {
		var in armcompute.VirtualMachineScaleSet
		fill(r, reflect.ValueOf(&in).Elem(), 12)
		before, err := json.Marshal(in)
		if err != nil {
			t.Fatal(err)
		}
		out := clone(&in)
		if !reflect.DeepEqual(&in, out) {
			t.Fatal("a clone differs")
		}
		overwrite(reflect.ValueOf(out).Elem())
		if after, err := json.Marshal(in); err != nil || string(after) != string(before) {
			t.Fatalf("%v: the original has changed with its clone", err)
		}
	}
}

// overwrite changes in place whatever can be reached.
func overwrite(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			overwrite(v.Elem())
		}
	case reflect.Interface:
		if m, ok := v.Interface().(map[string]any); ok {
			m["changed"] = true
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Field(i).CanSet() {
				overwrite(v.Field(i))
			}
		}
	case reflect.Slice:
		for i := range v.Len() {
			overwrite(v.Index(i))
		}
	case reflect.Map:
		for _, k := range v.MapKeys() {
			overwrite(v.MapIndex(k))
			v.SetMapIndex(k, reflect.Zero(v.Type().Elem()))
		}
	case reflect.String:
		v.SetString(v.String() + " changed")
	case reflect.Bool:
		v.SetBool(!v.Bool())
	case reflect.Int32, reflect.Int64:
		v.SetInt(v.Int() + 1)
	}
}
