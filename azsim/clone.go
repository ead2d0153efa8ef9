package azsim

import (
	"reflect"
	"time"
)

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
