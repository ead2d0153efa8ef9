package azsim

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

func TestParsePath(t *testing.T) {
	for _, c := range []struct {
		path, id, typ, tail, scope string
	}{
		{"/subscriptions", "", "", "subscriptions", ""},
		{"/subscriptions/S/resourceGroups/G", "/subscriptions/S/resourceGroups/G", "", "", ""},
		{"/subscriptions/S/providers/N.C/disks", "/subscriptions/S/providers/N.C", "N.C", "disks", ""},
		{"/subscriptions/S/resourcegroups/G/providers/N.C/a/b/c/d", "/subscriptions/S/resourceGroups/G/providers/N.C/a/b/c/d", "N.C/a/c", "", ""},
		{"/subscriptions/S/resourceGroups/G/providers/N.C/vmss/v/start", "/subscriptions/S/resourceGroups/G/providers/N.C/vmss/v", "N.C/vmss", "start", ""},
		{"/subscriptions/S/providers/N.C/locations/l/operations/o", "/subscriptions/S/providers/N.C/locations/l/operations/o", "N.C/locations/operations", "", ""},
		{"/subscriptions/S/resourceGroups/G/providers/N.C/a/b/providers/N.A/permissions", "/subscriptions/S/resourceGroups/G/providers/N.C/a/b/providers/N.A", "N.A", "permissions", "/subscriptions/S/resourceGroups/G/providers/N.C/a/b"},
		{"/subscriptions/S/operationresults/o", "/subscriptions/S/operationresults/o", "operationresults", "", ""},
		{"/subscriptions/S/resourcegroups/G/deployments/d/operations", "/subscriptions/S/resourceGroups/G/providers/Microsoft.Resources/deployments/d", "Microsoft.Resources/deployments", "operations", ""},
	} {
		id, err := parsePath(c.path)
		if err != nil {
			t.Errorf("%s: %v", c.path, err)
			continue
		}
		if id.String() != c.id || id.typeName() != c.typ || id.tail != c.tail || id.scope != c.scope {
			t.Errorf("%s: %q, %q, %q, %q", c.path, id.String(), id.typeName(), id.tail, id.scope)
		}
	}
	for _, bad := range []string{"/subscriptions//a", "/subscriptions/%2e%2e/x", "/a/b/c", "/subscriptions/s/a/b/c", "/subscriptions/%zz", "/subscriptions/a%2Fb"} {
		if id, err := parsePath(bad); err == nil {
			t.Errorf("%s: accepted as %+v", bad, id)
		}
	}
}

// What is parsed and printed parses to the same again.
func FuzzParsePath(f *testing.F) {
	for _, s := range []string{"/", "/subscriptions/S/resourceGroups/G/providers/N.C/a/b/c", "/providers/N.C", "/subscriptions/S/resourceGroups/G/providers/N.C/a/b/providers/N.A/x/y"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, path string) {
		id, err := parsePath(path)
		if err != nil || id.tail != "" || strings.ContainsAny(id.String(), "%?#") {
			return
		}
		again, err := parsePath(id.String())
		if err != nil {
			t.Fatalf("%q printed as %q: %v", path, id.String(), err)
		}
		if again.key() != id.key() {
			t.Errorf("%q: %q, then %q", path, id.key(), again.key())
		}
	})
}

func TestMergePatch(t *testing.T) {
	for _, c := range []struct{ target, patch, want string }{
		{`{"a":1,"b":2}`, `{"a":3}`, `{"a":3,"b":2}`},
		{`{"a":1,"b":2}`, `{"a":null}`, `{"b":2}`},
		{`{"a":[1,2]}`, `{"a":[3]}`, `{"a":[3]}`},
		{`{"a":{"x":1,"y":2}}`, `{"a":{"x":null,"z":3}}`, `{"a":{"y":2,"z":3}}`},
		{`{"a":1}`, `{"a":{"x":null}}`, `{"a":{}}`},
		{`{}`, `{"a":{"b":null,"c":1}}`, `{"a":{"c":1}}`},
	} {
		target, patch := mustDecode(t, c.target), mustDecode(t, c.patch)
		if got := mergePatch(target, patch, false); !reflect.DeepEqual(got, mustDecode(t, c.want)) {
			t.Errorf("%s + %s = %v", c.target, c.patch, got)
		}
		if !reflect.DeepEqual(target, mustDecode(t, c.target)) {
			t.Errorf("%s was changed", c.target)
		}
	}
}

func mustDecode(t *testing.T, s string) any {
	t.Helper()
	v, err := decodeJSON([]byte(s))
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// A merge leaves its inputs alone, has no null in what the patch brought, and
// done twice is done once.
func FuzzMergePatch(f *testing.F) {
	f.Add([]byte(`{"a":{"b":1}}`), []byte(`{"a":{"b":null,"c":[null]}}`))
	f.Fuzz(func(t *testing.T, a, b []byte) {
		target, err1 := decodeJSON(a)
		patch, err2 := decodeJSON(b)
		if err1 != nil || err2 != nil {
			return
		}
		before, err := json.Marshal(target)
		if err != nil {
			return
		}
		once := mergePatch(target, patch, false)
		if twice := mergePatch(once, patch, false); !reflect.DeepEqual(once, twice) {
			t.Errorf("%s + %s: %v, then %v", a, b, once, twice)
		}
		if after, _ := json.Marshal(target); string(after) != string(before) {
			t.Errorf("%s became %s", before, after)
		}
	})
}
