package azsim

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

const fullSpec = `
subscription: 11111111-1111-4111-8111-111111111111
resourceGroup: rg
locations:
- {name: westeurope, displayName: West Europe, zones: ["1", "2"]}
- {name: westcentralus}
principals:
- {clientId: 00000000-0000-4000-8000-000000000001, secret: s, roles: [{role: Owner}]}
- clientId: 00000000-0000-4000-8000-000000000002
  subject: system:serviceaccount:kube-system:ortet
  roles: [{role: capture, actions: ["Microsoft.Compute/*"]}]
profile:
  version.create: {min: 10s, max: 20s}
faults:
- {name: lie, action: Microsoft.Compute/snapshots/delete, effect: reportSuccess, count: 1}
resourceGroups: [{name: other, location: westcentralus}]
galleries:
- name: g
  images:
  - name: i
    body: {properties: {osType: Linux, osState: Generalized, identifier: {publisher: p, offer: o, sku: s}}}
resources:
- type: Microsoft.Compute/disks
  name: d
  body: {properties: {diskSizeGB: 4, creationData: {createOption: Empty}}}
`

func TestSpecIsThereAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		spec, err := ParseSpec([]byte(fullSpec))
		if err != nil {
			t.Fatal(err)
		}
		s := &Server{}
		defer s.Close()
		if err := spec.Apply(s); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if err := s.Create(context.Background(), spec); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("it took %v", took)
		}
		b := &bench{T: t, s: s, ctx: context.Background()}
		for _, path := range []string{"other", "rg/providers/Microsoft.Compute/galleries/g/images/i", "rg/providers/Microsoft.Compute/disks/d"} {
			r := b.sendAbsolute(http.MethodGet, "/subscriptions/11111111-1111-4111-8111-111111111111/resourceGroups/"+path, "2022-03-03", "")
			if strings.Contains(path, "disks") {
				r = b.sendAbsolute(http.MethodGet, "/subscriptions/11111111-1111-4111-8111-111111111111/resourceGroups/"+path, "2022-07-02", "")
			}
			if r.StatusCode != http.StatusOK {
				t.Errorf("%s: %d", path, r.StatusCode)
			}
		}
	})
}

func TestSpecProblemsComeAllAtOnce(t *testing.T) {
	_, err := ParseSpec([]byte(`
locatoin: x
principals: [{secret: s}, {clientId: x, roles: [{role: Nobody}]}]
profile: {none: {min: 1s}, disk.create: {min: 5s, max: 1s}}
faults: [{effect: boom}]
scaleSets: [{name: v, body: {}, typo: 1}, {body: {}}]
resources: [{type: Microsoft.Compute/disks, name: a/b}]
`))
	if err == nil {
		t.Fatal("it is accepted")
	}
	for _, part := range []string{"locatoin", "principals[0]: clientId", "Nobody", `"none" is not an operation`, "disk.create: want 0", "boom", "typo", "scaleSets[1]: name", "resources[0]"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q is not in:\n%v", part, err)
		}
	}
}

func TestSpecResourceThatCannotBe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Server{}
		defer s.Close()
		err := s.Create(context.Background(), &Spec{Resources: []ResourceSpec{
			{Type: "Microsoft.Compute/disks", Name: "d"}, {Type: "Microsoft.Compute/galleries", Name: "a-b"}, {Type: "Microsoft.Web/sites", Name: "w"},
		}})
		for _, part := range []string{"create Microsoft.Compute/disks d: InvalidParameter", "galleries a-b", "Microsoft.Web/sites"} {
			if err == nil || !strings.Contains(err.Error(), part) {
				t.Errorf("%q is not in %v", part, err)
			}
		}
	})
}

func FuzzSpec(f *testing.F) {
	f.Add([]byte(fullSpec))
	f.Add([]byte("profile: {disk.create: {min: 1s}}"))
	f.Fuzz(func(_ *testing.T, data []byte) {
		spec, err := ParseSpec(data)
		if err != nil {
			return
		}
		_ = spec.Apply(&Server{}) // it must not panic
	})
}
