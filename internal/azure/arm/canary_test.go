package arm_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/ortet/ortet/internal/fleet"
)

// TestCanaryOf sends the PUT of a canary whose pool has all that may not be there twice, or not
// without what the canary lacks.
func TestCanaryOf(t *testing.T) {
	const of = `{"location":"westeurope","zones":["1","2"],"plan":{"name":"n","publisher":"p","product":"q"},
		"sku":{"name":"Standard_D2s_v5","capacity":7},
		"identity":{"type":"SystemAssigned, UserAssigned","principalId":"x",
		"userAssignedIdentities":{"/id":{"principalId":"y","clientId":"z"}}},
		"properties":{"singlePlacementGroup":false,"zoneBalance":true,"upgradePolicy":{"mode":"Rolling"},
		"automaticRepairsPolicy":{"enabled":true},
		"additionalCapabilities":{"ultraSSDEnabled":true,"hibernationEnabled":true},
		"resiliencyPolicy":{"automaticZoneRebalancingPolicy":{"enabled":true},"resilientVMCreationPolicy":{"enabled":true}},
		"virtualMachineProfile":{"priority":"Spot","evictionPolicy":"Delete","billingProfile":{"maxPrice":-1},"userData":"dTE=",
		"securityProfile":{"securityType":"TrustedLaunch","encryptionAtHost":true,
		"uefiSettings":{"secureBootEnabled":true,"vTpmEnabled":true}},
		"capacityReservation":{"capacityReservationGroup":{"id":"/crg"}},
		"storageProfile":{"imageReference":{"id":"/old"},
		"osDisk":{"createOption":"FromImage","managedDisk":{"diskEncryptionSet":{"id":"/des"}}},
		"dataDisks":[{"lun":0,"createOption":"Empty","diskSizeGB":8}]},
		"osProfile":{"computerNamePrefix":"p","adminUsername":"u",
		"linuxConfiguration":{"disablePasswordAuthentication":true,"ssh":{"publicKeys":[{"path":"/k","keyData":"ssh-rsa A"}]}}},
		"networkProfile":{"networkInterfaceConfigurations":[{"name":"n","properties":{"primary":true,"ipConfigurations":[
		{"name":"v4","properties":{"subnet":{"id":"/subnet"},"loadBalancerInboundNatPools":[{"id":"/nat"}],
		"publicIPAddressConfiguration":{"name":"pub",
		"properties":{"publicIPPrefix":{"id":"/prefix"},"dnsSettings":{"domainNameLabel":"pool"}}}}},
		{"name":"v6","properties":{"privateIPAddressVersion":"IPv6","subnet":{"id":"/subnet"}}}]}}]},
		"extensionProfile":{"extensions":[{"name":"cse","properties":{"type":"CustomScript"}},
		{"name":"health","properties":{"type":"ApplicationHealthLinux"}},
		{"name":"agent","properties":{"type":"Agent","provisionAfterExtensions":["cse"],"settings":{"a":1}}}]}}}}`
	begins := accepted()
	begins.status, begins.body = 200, `{"properties":{"provisioningState":"Creating"}}`
	c, s := newCloud(t, refusal(404, "ResourceNotFound", ""), answer{status: 200, body: of}, begins)
	change := fleet.CreateCanary{ID: pool + "-canary", Pool: pool, Image: version, Instances: 2,
		HostPrefix: "p-c", Without: []string{"CSE", "health"},
		Protected: map[string]fleet.Secret{"agent": fleet.NewSecret(`{"k":"v"}`)}, Tags: map[string]string{"t": "v"}}
	if _, err := c.Begin(t.Context(), change); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(s.sent[len(s.sent)-1].body)
	if err != nil {
		t.Fatal(err)
	}
	for _, has := range []string{`"zones":["1","2"]`, `"plan":{`, `"capacity":2`, `"/id":{}`, `"type":"UserAssigned"`, `"mode":"Manual"`,
		`"ultraSSDEnabled":true`, `"hibernationEnabled":true`, `"priority":"Spot"`,
		`"maxPrice":-1`, `"userData":"dTE="`, `"securityType":"TrustedLaunch"`, `"/crg"`, string(version),
		`"/des"`, `"dataDisks":[{`, `"ssh-rsa A"`, `"computerNamePrefix":"p-c"`, `"/prefix"`, `"IPv6"`,
		`"name":"agent"`, `"protectedSettings":{"k":"v"}`, `"tags":{"t":"v"}`} {
		if !strings.Contains(string(text), has) {
			t.Errorf("no %s in %s", has, text)
		}
	}
	for _, hasNot := range []string{"SystemAssigned", "principalId", "/old", "automaticRepairsPolicy", "inboundNat", "/nat",
		"adminPassword", "cse", "health",
		"domainNameLabel", "automaticZoneRebalancingPolicy"} {
		if strings.Contains(string(text), hasNot) {
			t.Errorf("%s is in %s", hasNot, text)
		}
	}
}
