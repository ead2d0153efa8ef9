package recorded

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

func TestCompare(t *testing.T) {
	const vm = `/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/`
	for _, c := range []struct {
		name, typ, chosen, recorded, got string
		want                             []string
	}{
		{"same", "", `{}`, `{"a": [1, {"b": null}]}`, `{"a": [1, {"b": null, "more": 1}], "c": true}`, nil},
		{"missing object is one difference", "", `{}`, `{"a": {"b": 1, "c": 2}}`, `{}`, []string{"a missing"}},
		{"other value, and other kind", "", `{}`, `{"a": "x", "b": "1", "c": {}}`, `{"a": "X", "b": 1, "c": []}`,
			[]string{"a other value", "b other value", "c other value"}},
		{"list in another order", "", `{}`, `{"v": [{"name": "a", "n": 1}, {"name": "b", "n": 2}]}`,
			`{"v": [{"name": "b", "n": 2}, {"name": "a", "n": 3}]}`,
			[]string{"v[].n other value"}},
		{"list too short, too long", "", `{}`, `{"v": [1, 2], "w": [1]}`, `{"v": [1], "w": [1, 2]}`, []string{"v[] missing", "w[] one too many"}},
		{"keys of tags are no members", "", `{}`, `{"tags": {"secret": "x"}}`, `{"tags": {}}`, []string{"tags.* missing"}},
		{"times", "", `{}`, `{"t": "2023-05-25T14:00:18Z"}`, `{"t": "2000-01-01T00:00:00.5Z"}`, nil},
		{"time that is none", "", `{}`, `{"t": "2023-05-25T14:00:18Z"}`, `{"t": "soon"}`, []string{"t other value"}},
		{"GUIDs", "", `{}`, `{"g": "` + madeUpID + `"}`, `{"g": "44444444-0000-4000-8000-00000000000d"}`, nil},
		{"GUID that the client chose", "", `{"g": "` + madeUpID + `"}`, `{"g": "` + madeUpID + `"}`,
			`{"g": "44444444-0000-4000-8000-00000000000d"}`, []string{"g other value"}},
		{"name with a GUID", "", `{}`, `{"g": "name-` + madeUpID + `"}`, `{"g": "name-44444444-0000-4000-8000-00000000000d"}`, nil},
		{"other name with a GUID", "", `{}`, `{"g": "name-` + madeUpID + `"}`, `{"g": "nome-44444444-0000-4000-8000-00000000000d"}`,
			[]string{"g other value"}},
		{"addresses", "", `{}`, `{"a": "10.0.0.4", "m": "00-0D-3A-00-00-01"}`, `{"a": "10.0.0.5", "m": "00-0D-3A-00-00-02"}`, nil},
		{"address that the client chose", "", `{"a": "10.0.0.4"}`, `{"a": "10.0.0.4"}`, `{"a": "10.0.0.5"}`, []string{"a other value"}},
		{"GUID and name", "", `{}`, `{"u": "` + madeUpID + `-GALLERY"}`, `{"u": "44444444-0000-4000-8000-00000000000d-G1"}`, nil},
		{"GUID and a name that the client chose", "", `{"name": "gallery"}`, `{"u": "` + madeUpID + `-GALLERY"}`,
			`{"u": "44444444-0000-4000-8000-00000000000d-G1"}`, []string{"u other value"}},
		{"no GUID before the name", "", `{}`, `{"u": "` + madeUpID + `-GALLERY"}`, `{"u": "GALLERY"}`, []string{"u other value"}},
		{"version that is not the learned one", publishersType, `{}`, `{"name": "1.0.1"}`, `{"name": "1.0.2"}`, []string{"name other value"}},
		{"version that was learned", publishersType, `{}`,
			`{"a": {"id": "/subscriptions/s/Versions/1.0.1"}, "name": "1.0.1"}`, `{"a": {"id": "/subscriptions/s/Versions/1.0.2"}, "name": "1.0.2"}`,
			[]string{"name other value, excused"}},
		{"generated names", "", `{}`, `{"name": "x1", "d": [{"name": "x2"}]}`, `{"name": "y1", "d": [{"name": "y2"}]}`, nil},
		{"generated domain of a virtual network", "", `{}`, `{"s": "js2gwxjvqxoezoesua2xrgjk0d.dx.internal.cloudapp.net"}`,
			`{"s": "0123456789abcdef0123456789.bx.internal.cloudapp.net"}`, nil},
		{"host name in a generated domain", "", `{}`, `{"s": "a.js2gwxjvqxoezoesua2xrgjk0d.dx.internal.cloudapp.net"}`,
			`{"s": "b.js2gwxjvqxoezoesua2xrgjk0d.dx.internal.cloudapp.net"}`, []string{"s other value"}},
		{"no domain", "", `{}`, `{"s": "js2gwxjvqxoezoesua2xrgjk0d.dx.internal.cloudapp.net"}`, `{"s": ""}`, []string{"s other value"}},
		{"name of a SKU is not generated", "", `{}`, `{"sku": {"name": "Standard"}}`, `{"sku": {"name": "Basic"}}`,
			[]string{"sku.name other value"}},
		{"ids", "", `{"n": "` + vm + `m"}`, `{"id": "` + vm + `m"}`, `{"id": "` + strings.ToUpper(vm) + `m"}`, nil},
		{"id of something else", "", `{"n": "` + vm + `m"}`, `{"id": "` + vm + `m"}`, `{"id": "` + vm + `n"}`,
			[]string{"id other value"}},
		{"id with a generated name", "", `{"n": "` + vm + `"}`, `{"id": "` + vm + `x_1a2b"}`, `{"id": "` + vm + `x_3c4d"}`, nil},
		{"durations", "", `{}`, `{"duration": "PT1M4.83S", "timeout": "PT30M"}`, `{"duration": "PT9S", "timeout": "PT9M"}`,
			[]string{"timeout other value"}},
		{"duration that is none", "", `{}`, `{"duration": "PT1M"}`, `{"duration": "soon"}`, []string{"duration other value"}},
		{"hash of a template", "", `{}`, `{"templateHash": "12", "hash": "12"}`, `{"templateHash": "13", "hash": "13"}`, []string{"hash other value"}},
		{"no hash of a template", "", `{}`, `{"templateHash": "12"}`, `{"templateHash": ""}`, []string{"templateHash other value"}},
		{"the cloud's domain", "", `{}`, `{"blob": "https://a.blob.core.windows.net/"}`, `{"blob": "https://a.blob.azsim.invalid/"}`, nil},
		{"other host in the cloud's domain", "", `{}`, `{"blob": "https://a.blob.core.windows.net/"}`, `{"blob": "https://b.blob.azsim.invalid/"}`,
			[]string{"blob other value"}},
		{"rule of a member", resourceType, `{}`, `{"nextLink": "1"}`, `{}`, []string{"nextLink missing, excused"}},
		{"rule of a member of another type", machineType, `{}`, `{"nextLink": "1"}`, `{}`, []string{"nextLink missing"}},
		{"others' resources in a list", machineType, `{"n": "` + vm + `m"}`,
			`{"value": [{"id": "` + strings.Replace(vm, "/g/", "/others/", 1) + `z"}]}`, `{"value": []}`, []string{"value[] missing, excused"}},
		{"resource of the session is missing in a list", machineType, `{"n": "` + vm + `m"}`,
			`{"value": [{"id": "` + vm + `m", "name": "m"}]}`, `{"value": [{"name": "z"}]}`, []string{"value[] missing", "value[] one too many"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			parse := func(text string) (v any) {
				if err := json.Unmarshal([]byte(text), &v); err != nil {
					t.Fatal(err)
				}
				return v
			}
			m := newMapping()
			m.chooseBody(parse(c.chosen))
			compared := &comparison{mapping: m, typ: c.typ}
			compared.member("", parse(c.recorded), parse(c.got))
			var got []string
			for _, d := range compared.found {
				if d.excused != "" {
					d.rule += ", excused"
				}
				got = append(got, d.rule)
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("differences %q, want %q", got, c.want)
			}
		})
	}
}

// A rule names one member with its reason.
func TestMemberRulesHaveReasons(t *testing.T) {
	for _, r := range memberRules {
		if r.reason == "" || r.member == "" || strings.ContainsAny(r.member, "*") {
			t.Errorf("rule %+v needs one member and a reason", r)
		}
	}
}
