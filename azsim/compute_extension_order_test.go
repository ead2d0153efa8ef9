package azsim

import (
	"reflect"
	"testing"
)

func TestExtensionOrder(t *testing.T) {
	for _, c := range []struct {
		name    string
		exts    []extensionNeed
		order   []string
		missing map[string]string
		cycle   []string
	}{
		{name: "none", missing: map[string]string{}},
		{
			name:    "after in any letter case",
			exts:    []extensionNeed{{"run", []string{"CSE"}}, {"cse", nil}, {"log", []string{"run"}}},
			order:   []string{"cse", "run", "log"},
			missing: map[string]string{},
		},
		{
			name:    "one is missing",
			exts:    []extensionNeed{{"run", []string{"gone"}}},
			order:   []string{"run"},
			missing: map[string]string{"run": "gone"},
		},
		{
			name:    "a circle",
			exts:    []extensionNeed{{"a", []string{"b"}}, {"b", []string{"a"}}, {"c", nil}},
			order:   []string{"c"},
			missing: map[string]string{},
			cycle:   []string{"a", "b"},
		},
	} {
		order, missing, cycle := extensionOrder(c.exts)
		if !reflect.DeepEqual(order, c.order) || !reflect.DeepEqual(missing, c.missing) || !reflect.DeepEqual(cycle, c.cycle) {
			t.Errorf("%s: order %v missing %v cycle %v", c.name, order, missing, cycle)
		}
	}
}

func TestDependents(t *testing.T) {
	exts := []extensionNeed{{"a", []string{"b", "c"}}, {"b", nil}, {"d", []string{"B"}}}
	if got, want := dependents(exts, "b"), []string{"a", "d"}; !reflect.DeepEqual(got, want) {
		t.Errorf("dependents = %v, want %v", got, want)
	}
	if got := dependents(exts, "a"); got != nil {
		t.Errorf("dependents of a leaf = %v", got)
	}
}
