package azsim_test

import (
	"net/http"
	"testing"
	"testing/synctest"

	"github.com/ortet/ortet/azsim"
)

// Azure counts changes of a model: latestModelApplied stays false once the model says again
// what the instance was made from (recorded by the Azure CLI: test_vmss_update#27 to #33, seven
// answers; test_vmss_create_user_data#23). A PUT of the capacity is no change
// (vm-vmss_create_and_modify#36 and #41).
func TestRecordedLatestModelApplied(t *testing.T) {
	const list, set = "virtualMachineScaleSets/u/virtualMachines", "virtualMachineScaleSets/u"
	image := func(version string) string {
		return `{"properties":{"virtualMachineProfile":{"storageProfile":{"imageReference":{"version":"` + version + `"}}}}}`
	}
	for name, c := range map[string]struct {
		do     func(c *recordedCloud)
		latest []any
	}{
		"vm-vmss_create_and_modify#41: the capacity alone": {func(c *recordedCloud) {
			c.do(http.MethodPut, set, inRegion+`"sku":{"name":"Standard_DS1_v2","tier":"Standard","capacity":3}}`)
		}, []any{true, true, true}},
		"test_vmss_update#27: A, B and A again": {func(c *recordedCloud) {
			c.do(http.MethodPatch, set, image("18.04.202401010"))
			c.do(http.MethodPatch, set, image("latest"))
		}, []any{false, false}},
		"test_vmss_create_user_data#23: another userData": {func(c *recordedCloud) {
			c.do(http.MethodPatch, set, `{"properties":{"virtualMachineProfile":{"userData":"Yg=="}}}`)
		}, []any{false, false}},
		"assumed: a PATCH of what the model has": {func(c *recordedCloud) {
			c.do(http.MethodPatch, set, image("latest"))
		}, []any{true, true}},
		"assumed: an upgrade of one to the model": {func(c *recordedCloud) {
			c.do(http.MethodPatch, set, `{"properties":{"virtualMachineProfile":{"userData":"Yg=="}}}`)
			c.do(http.MethodPatch, set, `{"properties":{"virtualMachineProfile":{"userData":""}}}`)
			c.ask(http.MethodGet, list, "")
			c.do(http.MethodPost, set+"/manualupgrade", `{"instanceIds":["`+c.text("value.0.instanceId")+`"]}`)
		}, []any{true, false}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &azsim.Server{}
				defer s.Close()
				r := &recordedCloud{T: t, azure: s, version: "2024-07-01"}
				r.uniform(2, "")
				c.do(r)
				r.ask(http.MethodGet, list, "")
				got, _ := r.at("value").([]any)
				if len(got) != len(c.latest) {
					t.Fatalf("%d instances, want %d", len(got), len(c.latest))
				}
				for i, want := range c.latest {
					r.same("value."+string(rune('0'+i))+".properties.latestModelApplied", want)
				}
			})
		})
	}
}
