package capture

import (
	"reflect"
	"slices"
	"strings"
	"testing"
)

// Of two pieces' fields with one name a record has neither, without an error: what resumes lacks both.
func TestStateNames(t *testing.T) {
	all := jsonNames(reflect.TypeFor[state]())
	slices.Sort(all)
	if one := slices.Compact(slices.Clone(all)); len(one) != len(all) {
		t.Errorf("one name twice among %q", all)
	}
}

func jsonNames(of reflect.Type) (all []string) {
	for f := range of.Fields() {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); !f.Anonymous {
			all = append(all, name)
		} else {
			all = append(all, jsonNames(f.Type)...)
		}
	}
	return all
}
