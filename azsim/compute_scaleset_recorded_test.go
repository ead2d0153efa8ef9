package azsim_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/ortet/ortet/azsim"
)

// A recordedCloud is an Azure to ask as the recorded client did, and its last answer.
type recordedCloud struct {
	*testing.T
	azure   *azsim.Server
	version string
	status  int
	header  http.Header
	body    any
}

const (
	recordedCompute = "/subscriptions/" + azsim.DefaultSubscription + "/resourceGroups/" +
		azsim.DefaultResourceGroup + "/providers/Microsoft.Compute/"
	recordedSet = recordedCompute + "virtualMachineScaleSets/f"
	inRegion    = `{"location":"` + azsim.DefaultLocation + `",` // a body's beginning
)

// ask sends one request; path is a path below Microsoft.Compute, or a whole URL.
func (c *recordedCloud) ask(method, path, body string) {
	c.Helper()
	if !strings.HasPrefix(path, "http") {
		separator := "?"
		if strings.Contains(path, "?") {
			separator = "&"
		}
		path = azsim.InProcess + recordedCompute + path + separator + "api-version=" + c.version
	}
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	token, err := c.azure.Credential("").GetToken(context.Background(),
		policy.TokenRequestOptions{Scopes: []string{"https://management.azure.com/.default"}})
	if err != nil {
		c.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token.Token)
	w := httptest.NewRecorder()
	c.azure.ServeHTTP(w, r)
	c.status, c.header, c.body = w.Code, w.Header(), nil
	if w.Body.Len() > 0 {
		if err := json.Unmarshal(w.Body.Bytes(), &c.body); err != nil {
			c.Fatalf("%s %s: %v", method, path, err)
		}
	}
}

// do sends a request that is accepted, and follows its operation to its end.
func (c *recordedCloud) do(method, path, body string) time.Duration {
	c.Helper()
	c.ask(method, path, body)
	if c.status >= http.StatusMultipleChoices {
		c.Fatalf("%s %s: %d %v", method, path, c.status, c.body)
	}
	begun, follow := time.Now(), c.header.Get("Azure-AsyncOperation")
	for follow != "" {
		c.ask(http.MethodGet, follow, "")
		if state := c.text("status"); state != "InProgress" {
			c.same("status", "Succeeded")
			break
		}
		time.Sleep(time.Second)
	}
	return time.Since(begun)
}

// at is what lies at a path of the last answer; "0" and so on are places in a list.
func (c *recordedCloud) at(path string) any {
	v := c.body
	for step := range strings.SplitSeq(path, ".") {
		switch in := v.(type) {
		case map[string]any:
			v = in[step]
		case []any:
			n := 0
			if _, err := fmt.Sscan(step, &n); err != nil || n >= len(in) {
				return nil
			}
			v = in[n]
		default:
			return nil
		}
	}
	return v
}

func (c *recordedCloud) text(path string) string { return fmt.Sprint(c.at(path)) }

// same wants a value at a path of the last answer, in JSON's spelling; nil is none.
func (c *recordedCloud) same(path string, want any) {
	c.Helper()
	if got := c.at(path); fmt.Sprint(got) != fmt.Sprint(want) {
		c.Errorf("%s is %v, recorded %v", path, got, want)
	}
}

func (c *recordedCloud) like(path, pattern string) {
	c.Helper()
	if got := c.text(path); !regexp.MustCompile("^" + pattern + "$").MatchString(got) {
		c.Errorf("%s is %q, recorded like %q", path, got, pattern)
	}
}

// answered wants a status, and the headers of operations to be there or not.
func (c *recordedCloud) answered(status int, operation, location bool) {
	c.Helper()
	if c.status != status || (c.header.Get("Azure-AsyncOperation") != "") != operation || (c.header.Get("Location") != "") != location {
		c.Errorf("status %d, headers %v: recorded %d, Azure-AsyncOperation %t, Location %t", c.status, c.header, status, operation, location)
	}
}

// refused wants an error.
func (c *recordedCloud) refused(status int, code, message string) {
	c.Helper()
	if c.status != status || c.text("error.code") != code || !strings.Contains(c.text("error.message"), message) {
		c.Errorf("%d %v, recorded %d %s %q", c.status, c.body, status, code, message)
	}
}

// flexible makes the set "f" as the Azure CLI's templates do.
func (c *recordedCloud) flexible(capacity int, more string) {
	c.Helper()
	c.do(http.MethodPut, "virtualMachineScaleSets/f", fmt.Sprintf(`{"location":%q,"tags":{},"sku":{"name":"Standard_DS1_v2","capacity":%d},
		"properties":{
		"orchestrationMode":"Flexible","platformFaultDomainCount":1,"singlePlacementGroup":null,"virtualMachineProfile":{%s
		"storageProfile":{"osDisk":{"createOption":"FromImage","caching":"ReadWrite","managedDisk":{"storageAccountType":null}},
			"imageReference":{"publisher":"Canonical","offer":"0001-com-ubuntu-server-jammy","sku":"22_04-lts-gen2","version":"latest"}},
		"osProfile":{"computerNamePrefix":"clitestv","adminUsername":"vmtest","adminPassword":"Secret-of-a-test1"},
		"networkProfile":{"networkApiVersion":"2020-11-01","networkInterfaceConfigurations":[{"name":"nic","properties":{"primary":"true",
			"ipConfigurations":[{"name":"ip","properties":{}}]}}]}}}}`, azsim.DefaultLocation, capacity, more))
}

// uniform makes the Uniform set "u".
func (c *recordedCloud) uniform(capacity int, more string) {
	c.Helper()
	c.do(http.MethodPut, "virtualMachineScaleSets/u", fmt.Sprintf(`{"location":%q,"tags":{},"sku":{"name":"Standard_DS1_v2","capacity":%d},
		"properties":{
		"orchestrationMode":"Uniform","overprovision":true,"singlePlacementGroup":null,%s
		"upgradePolicy":{"mode":"manual","rollingUpgradePolicy":{}},
		"virtualMachineProfile":{"storageProfile":{
			"osDisk":{"createOption":"FromImage","caching":"ReadWrite","managedDisk":{"storageAccountType":null}},
			"imageReference":{"publisher":"Canonical","offer":"UbuntuServer","sku":"18.04-LTS","version":"latest"}},
		"osProfile":{"computerNamePrefix":"clitc2599","adminUsername":"vmtest","adminPassword":"Secret-of-a-test1"},
		"networkProfile":{"networkInterfaceConfigurations":[{"name":"nic","properties":{"primary":"true",
			"ipConfigurations":[{"name":"ip","properties":{}}]}}]}}}}`, azsim.DefaultLocation, capacity, more))
}

// member reads the first member of the set "f" as the machine that it is, and gives its name.
func (c *recordedCloud) member(query string) string {
	c.Helper()
	c.ask(http.MethodGet, "virtualMachineScaleSets/f/virtualMachines", "")
	name := c.text("value.0.name")
	c.ask(http.MethodGet, "virtualMachines/"+name+query, "")
	return name
}

// recordedFacts are what recordings of the real Azure, those of the Azure CLI's own tests,
// say of scale sets, mostly Flexible ones. Each names the recording, and the number of the
// interaction in it from 0.
var recordedFacts = []struct {
	recording, fact string
	holds           func(c *recordedCloud)
}{
	{"test_vmss_linux_patch_mode#9", "a PUT answers 200, Updating, with the new ETag, and no Location", func(c *recordedCloud) {
		c.flexible(0, "")
		c.ask(http.MethodGet, "virtualMachineScaleSets/f", "")
		was := c.text("etag")
		c.ask(http.MethodPut, "virtualMachineScaleSets/f", inRegion+`"tags":{"a":"b"}}`)
		c.answered(http.StatusOK, true, false)
		c.same("properties.provisioningState", "Updating")
		c.like("etag", `"\d+"`)
		if now := c.text("etag"); now == was || c.header.Get("ETag") != now {
			c.Errorf("ETag %s after %s, header %s", now, was, c.header.Get("ETag"))
		}
	}},
	{"test_vmss_reimage#15", "a POST answers 202 without a body, and Location is the operation with monitor=true", func(c *recordedCloud) {
		c.uniform(2, "")
		c.ask(http.MethodGet, "virtualMachineScaleSets/u/virtualMachines", "")
		ids := []string{c.text("value.0.instanceId"), c.text("value.1.instanceId")}
		c.ask(http.MethodPost, "virtualMachineScaleSets/u/reimageall", fmt.Sprintf(`{"instanceIds":[%q,%q]}`, ids[0], ids[1]))
		c.answered(http.StatusAccepted, true, true)
		location := c.header.Get("Location")
		if c.body != nil || !strings.Contains(location, "monitor=true") {
			c.Errorf("body %v, Location %s", c.body, location)
		}
		time.Sleep(time.Hour)
		c.ask(http.MethodGet, location, "")
		if c.status != http.StatusOK || c.body != nil {
			c.Errorf("Location: %d %v, recorded 200 without a body", c.status, c.body)
		}
	}},
	{"test_vmss_linux_patch_mode#22", "what Azure adds to a Flexible set's model", func(c *recordedCloud) {
		c.flexible(0, "")
		c.ask(http.MethodGet, "virtualMachineScaleSets/f", "")
		for path, want := range map[string]any{
			"sku.tier": "Standard", "properties.singlePlacementGroup": false, "properties.upgradePolicy.mode": "Manual",
			"properties.platformFaultDomainCount": 1, "properties.constrainedMaximumCapacity": false,
			"properties.overprovision": nil, "properties.doNotRunExtensionsOnOverprovisionedVMs": nil,
		} {
			c.same(path, want)
		}
		for path, want := range map[string]any{
			"storageProfile.osDisk.deleteOption": "Delete", "storageProfile.osDisk.diskSizeGB": 30, "storageProfile.osDisk.osType": "Linux",
			"storageProfile.osDisk.managedDisk.storageAccountType": "Premium_LRS", "storageProfile.imageReference.version": "latest",
			"storageProfile.imageReference.exactVersion": nil, "osProfile.secrets": []any{}, "osProfile.linuxConfiguration.provisionVMAgent": true,
			"osProfile.linuxConfiguration.patchSettings.patchMode":                          "ImageDefault",
			"networkProfile.networkInterfaceConfigurations.0.properties.deleteOption":       "Delete",
			"networkProfile.networkInterfaceConfigurations.0.properties.auxiliaryMode":      "None",
			"networkProfile.networkInterfaceConfigurations.0.properties.auxiliarySku":       "None",
			"networkProfile.networkInterfaceConfigurations.0.properties.primary":            true,
			"networkProfile.networkInterfaceConfigurations.0.properties.dnsSettings":        map[string]any{"dnsServers": []any{}},
			"networkProfile.networkInterfaceConfigurations.0.properties.enableIPForwarding": false,
		} {
			c.same("properties.virtualMachineProfile."+path, want)
		}
	}},
	{"test_vmss_linux_patch_mode#8 #22", "a change of the model, and nothing else, renews the profile's timeCreated", func(c *recordedCloud) {
		c.flexible(0, "")
		c.ask(http.MethodGet, "virtualMachineScaleSets/f", "")
		first := c.text("properties.virtualMachineProfile.timeCreated")
		time.Sleep(time.Minute)
		c.do(http.MethodPut, "virtualMachineScaleSets/f", inRegion+`"tags":{"a":"b"}}`)
		c.ask(http.MethodGet, "virtualMachineScaleSets/f", "")
		c.same("properties.virtualMachineProfile.timeCreated", first)
		c.do(http.MethodPut, "virtualMachineScaleSets/f", inRegion+`"sku":{"name":"Standard_DS2_v2"}}`)
		c.ask(http.MethodGet, "virtualMachineScaleSets/f", "")
		if c.text("properties.virtualMachineProfile.timeCreated") == first {
			c.Error("timeCreated is not renewed")
		}
	}},
	{"test_vmss_simple_orchestration_mode#13", "a Flexible set without profile and sku", func(c *recordedCloud) {
		c.do(http.MethodPut, "virtualMachineScaleSets/f", inRegion+`"properties":{"orchestrationMode":"Flexible","platformFaultDomainCount":3}}`)
		c.ask(http.MethodGet, "virtualMachineScaleSets/f", "")
		c.same("sku", nil)
		c.same("properties.virtualMachineProfile", nil)
	}},
	{"test_specialized_image#75", "a Flexible set needs platformFaultDomainCount", func(c *recordedCloud) {
		c.ask(http.MethodPut, "virtualMachineScaleSets/f", inRegion+`"properties":{"orchestrationMode":"Flexible"}}`)
		c.refused(http.StatusBadRequest, "InvalidParameter", "Required parameter 'platformFaultDomainCount' is missing (null).")
		c.same("error.target", "platformFaultDomainCount")
	}},
	{"test_create_flexible_vmss_with_priority_mix_policy#12", "a mix of Spot and regular priority is taken", func(c *recordedCloud) {
		c.flexible(2, `"priority":"Spot","evictionPolicy":"Deallocate","billingProfile":{"maxPrice":-1},`)
		c.do(http.MethodPatch, "virtualMachineScaleSets/f", `{"properties":{"priorityMixPolicy":{
			"baseRegularPriorityCount":1,"regularPriorityPercentageAboveBase":50}}}`)
	}},
	{"test_vmss_linux_patch_mode#23", "the list below a Flexible set: names, and a zone that is null", func(c *recordedCloud) {
		c.flexible(1, "")
		c.ask(http.MethodGet, "virtualMachineScaleSets/f/virtualMachines", "")
		name := c.text("value.0.name")
		c.same("value.0", map[string]any{
			"name": name, "instanceId": name, "id": recordedSet + "/virtualMachines/" + name, "location": azsim.DefaultLocation,
			"type": "Microsoft.Compute/virtualMachineScaleSets/virtualMachines", "zones": []any{nil},
		})
		c.same("nextLink", nil)
	}},
	{"test_vmss_vms#46", "the list of a set without instances is an empty list", func(c *recordedCloud) {
		c.uniform(0, "")
		c.ask(http.MethodGet, "virtualMachineScaleSets/u/virtualMachines", "")
		if list, isList := c.at("value").([]any); !isList || len(list) != 0 {
			c.Errorf("value is %v, recorded []", c.at("value"))
		}
	}},
	{"test_vmss_linux_patch_mode#24", "a member is a machine with names of its own", func(c *recordedCloud) {
		c.flexible(1, "")
		name := c.member("")
		c.like("name", `f_[0-9a-f]{8}`)
		c.like("properties.osProfile.computerName", `clitestv[0-9A-Z]{6}`)
		c.like("properties.storageProfile.osDisk.name", name+`_(disk1|OsDisk_1)_[0-9a-f]{32}`)
		c.like("properties.networkProfile.networkInterfaces.0.id", `.*/Microsoft\.Network/networkInterfaces/nic-[0-9a-f]{8}`)
		c.like("tags", `map\[VirtualMachineProfileTimeCreated:\d+/\d+/\d{4} \d+:\d\d:\d\d [AP]M \+00:00\]`)
		c.like("properties.storageProfile.imageReference.exactVersion", `[0-9.]+`)
		for path, want := range map[string]any{
			"properties.storageProfile.osDisk.deleteOption":            "Delete",
			"properties.storageProfile.imageReference.version":         "latest",
			"properties.networkProfile.networkInterfaces.0.properties": map[string]any{"primary": true, "deleteOption": "Delete"},
			"properties.virtualMachineScaleSet.id":                     recordedSet,
			"instanceId":                                               nil, "sku": nil, "properties.latestModelApplied": nil,
			"properties.protectionPolicy": nil, "properties.modelDefinitionApplied": nil,
		} {
			c.same(path, want)
		}
		if c.header.Get("ETag") == "" || c.header.Get("ETag") != c.text("etag") {
			c.Errorf("header ETag %q, etag %v", c.header.Get("ETag"), c.at("etag"))
		}
	}},
	{"test_vmss_linux_patch_mode#24", "an extension of the set is a resource below the member", func(c *recordedCloud) {
		c.flexible(1, `"extensionProfile":{"extensions":[
			{"name":"e","properties":{"publisher":"Microsoft.Azure.Extensions","type":"CustomScript","typeHandlerVersion":"2.0"}}]},`)
		name := c.member("")
		c.same("resources.0.id", recordedCompute+"virtualMachines/"+name+"/extensions/e")
		c.ask(http.MethodGet, "virtualMachineScaleSets/f", "")
		c.same("properties.virtualMachineProfile.extensionProfile.extensions.0.name", "e")
		c.same("properties.virtualMachineProfile.extensionProfile.extensions.0.id", nil)
	}},
	{"test_vmss_simple_orchestration_mode#29", "the view of a member that runs", func(c *recordedCloud) {
		c.flexible(1, "")
		c.member("/instanceView")
		for path, want := range map[string]any{
			"vmAgent.statuses.0.code": "ProvisioningState/succeeded", "vmAgent.statuses.0.displayStatus": "Ready",
			"vmAgent.statuses.0.message": "Guest Agent is running",
			"statuses.0.code":            "ProvisioningState/succeeded", "statuses.1.code": "PowerState/running",
			"osName": "ubuntu", "osVersion": "22.04", "hyperVGeneration": "V2",
		} {
			c.same(path, want)
		}
	}},
	{"test_vmss_update_vm_sku#15", "a Flexible set takes a new model at once, and leaves its members alone", func(c *recordedCloud) {
		c.flexible(1, "")
		if took := c.do(http.MethodPut, "virtualMachineScaleSets/f", inRegion+`"sku":{"name":"Standard_DS2_v2"}}`); took > time.Second {
			c.Errorf("it took %v, recorded 0.0 s", took)
		}
		c.member("")
		c.same("properties.hardwareProfile.vmSize", "Standard_DS1_v2")
	}},
	{"test_vmss_trusted#10", "a PUT without the image and without securityType keeps both", func(c *recordedCloud) {
		c.flexible(0, `"securityProfile":{"securityType":"TrustedLaunch","uefiSettings":{"secureBootEnabled":true,"vTpmEnabled":true}},`)
		c.do(http.MethodPut, "virtualMachineScaleSets/f", inRegion+`"properties":{"virtualMachineProfile":{
			"storageProfile":{"osDisk":{"createOption":"FromImage","caching":"ReadWrite"}},
			"securityProfile":{"uefiSettings":{"secureBootEnabled":false,"vTpmEnabled":true}}}}}`)
		c.ask(http.MethodGet, "virtualMachineScaleSets/f", "")
		c.same("properties.virtualMachineProfile.storageProfile.imageReference.sku", "22_04-lts-gen2")
		c.same("properties.virtualMachineProfile.securityProfile.securityType", "TrustedLaunch")
		c.same("properties.virtualMachineProfile.securityProfile.uefiSettings.secureBootEnabled", false)
	}},
	{"test_vmss_linux_patch_mode#17", "a PUT of the sku alone scales out, and shows the new capacity at once", func(c *recordedCloud) {
		c.flexible(0, "")
		body := inRegion + `"sku":{"name":"Standard_DS1_v2","tier":"Standard","capacity":1}}`
		c.ask(http.MethodPut, "virtualMachineScaleSets/f", body)
		c.same("sku.capacity", 1)
		c.do(http.MethodPut, "virtualMachineScaleSets/f", body)
		c.member("")
		c.same("properties.provisioningState", "Succeeded")
	}},
	{"test_vm_vmss_extension_autoupgrade#69", "manualupgrade brings a new extension to all members", func(c *recordedCloud) {
		c.flexible(1, "")
		c.do(http.MethodPatch, "virtualMachineScaleSets/f", `{"properties":{"virtualMachineProfile":{"extensionProfile":{"extensions":[
			{"name":"e","properties":{"publisher":"Microsoft.Azure.Extensions","type":"CustomScript","typeHandlerVersion":"2.0"}}]}}}}`)
		c.member("")
		c.same("resources", nil)
		c.do(http.MethodPost, "virtualMachineScaleSets/f/manualupgrade", `{"instanceIds":["*"]}`)
		c.member("")
		c.same("resources.0.name", "e")
	}},
	{"test_vmss_hibernate#16", "deallocate of a Flexible set takes all members, or those that it names", func(c *recordedCloud) {
		c.flexible(1, "")
		name := c.member("")
		c.do(http.MethodPost, "virtualMachineScaleSets/f/deallocate", `{"instanceIds":["`+name+`"]}`)
		c.member("/instanceView")
		c.same("statuses.1.code", "PowerState/deallocated")
	}},
	{"test_vmss_update_enable_auto_os_upgrade#39", "automatic OS upgrades of a Flexible set, with what Azure adds", func(c *recordedCloud) {
		c.flexible(0, `"extensionProfile":{"extensions":[
			{"name":"h","properties":{"publisher":"Microsoft.ManagedServices","type":"ApplicationHealthLinux","typeHandlerVersion":"1.0"}}]},`)
		c.do(http.MethodPut, "virtualMachineScaleSets/f", inRegion+`
			"properties":{"upgradePolicy":{"automaticOSUpgradePolicy":{"enableAutomaticOSUpgrade":true}}}}`)
		c.ask(http.MethodGet, "virtualMachineScaleSets/f", "")
		c.same("properties.upgradePolicy.automaticOSUpgradePolicy", map[string]any{
			"enableAutomaticOSUpgrade": true, "useRollingUpgradePolicy": false, "disableAutomaticRollback": false,
		})
	}},
	{"test_vmss_update_enable_auto_os_upgrade#15", "what Azure adds to a rolling upgrade policy", func(c *recordedCloud) {
		c.uniform(0, "")
		c.ask(http.MethodGet, "virtualMachineScaleSets/u", "")
		c.same("properties.upgradePolicy.rollingUpgradePolicy", map[string]any{
			"maxBatchInstancePercent": 20, "maxUnhealthyInstancePercent": 20, "maxUnhealthyUpgradedInstancePercent": 20,
			"pauseTimeBetweenBatches": "PT0S", "maxSurge": false, "rollbackFailedInstancesOnPolicyBreach": false,
		})
	}},
	{"test_vmss_terminate_notification#14", "a PUT with the timeout alone is taken", func(c *recordedCloud) {
		c.flexible(0, `"scheduledEventsProfile":{"terminateNotificationProfile":{"notBeforeTimeout":"PT5M","enable":true}},`)
		c.do(http.MethodPut, "virtualMachineScaleSets/f", inRegion+`"properties":{"virtualMachineProfile":{
			"scheduledEventsProfile":{"terminateNotificationProfile":{"notBeforeTimeout":"PT9M"}}}}}`)
		c.ask(http.MethodGet, "virtualMachineScaleSets/f", "")
		c.same("properties.virtualMachineProfile.scheduledEventsProfile.terminateNotificationProfile.notBeforeTimeout", "PT9M")
	}},
	{"test_vmss_reimage#14", "an instance of a Uniform set, for contrast", func(c *recordedCloud) {
		c.uniform(1, "")
		c.ask(http.MethodGet, "virtualMachineScaleSets/u/virtualMachines/0", "")
		c.like("properties.storageProfile.osDisk.name", `u_u_0_OsDisk_1_[0-9a-f]{32}`)
		c.like("properties.networkProfile.networkInterfaces.0.id",
			recordedCompute+"virtualMachineScaleSets/u/virtualMachines/0/networkInterfaces/nic")
		for path, want := range map[string]any{
			"properties.latestModelApplied": true, "properties.modelDefinitionApplied": "VirtualMachineScaleSet", "instanceId": 0, "name": "u_0",
			"properties.resilientVMDeletionStatus": "Disabled", "properties.osProfile.computerName": "clitc2599000000",
			"properties.networkProfileConfiguration.networkInterfaceConfigurations.0.name": "nic",
		} {
			c.same(path, want)
		}
		c.ask(http.MethodGet, "virtualMachineScaleSets/u/virtualMachines", "")
		c.same("value.0.properties.resilientVMDeletionStatus", nil)
	}},
	{"test_vmss_vms#28", "a stopped instance shows what its agent reported last", func(c *recordedCloud) {
		c.uniform(1, "")
		c.do(http.MethodPost, "virtualMachineScaleSets/u/poweroff?skipShutdown=false", `{"instanceIds":["*"]}`)
		c.ask(http.MethodGet, "virtualMachineScaleSets/u/virtualMachines/0/instanceView", "")
		c.same("statuses.1.code", "PowerState/stopped")
		c.same("vmAgent.statuses.0.displayStatus", "Ready")
		c.same("computerName", "clitc2599000000")
	}},
	{"test_vmss_vms#36 #40", "instances are deallocated with * in the path, and show no agent then", func(c *recordedCloud) {
		c.uniform(2, "")
		c.do(http.MethodPost, "virtualMachineScaleSets/u/virtualMachines/%2A/deallocate", "")
		c.ask(http.MethodGet, "virtualMachineScaleSets/u/virtualMachines", "")
		for _, id := range []string{c.text("value.0.instanceId"), c.text("value.1.instanceId")} {
			c.ask(http.MethodGet, "virtualMachineScaleSets/u/virtualMachines/"+id+"/instanceView", "")
			c.same("statuses.1.code", "PowerState/deallocated")
			c.same("vmAgent", nil)
			c.same("computerName", nil)
		}
	}},
	{"test_vmss_create_and_modify#18", "a set of 5 that overprovisions has 5 of 7 ids in the end", func(c *recordedCloud) {
		c.uniform(5, "")
		c.ask(http.MethodGet, "virtualMachineScaleSets/u/virtualMachines", "")
		c.same("value.5", nil)
		c.like("value.4.instanceId", "[4-6]")
		c.ask(http.MethodGet, "virtualMachineScaleSets/u", "")
		c.same("sku.capacity", 5)
	}},
	{"test_vmss_create_and_modify#30", "the view of a set counts provisioning alone", func(c *recordedCloud) {
		c.uniform(2, "")
		c.do(http.MethodPost, "virtualMachineScaleSets/u/poweroff", `{"instanceIds":["*"]}`)
		c.ask(http.MethodGet, "virtualMachineScaleSets/u/instanceView", "")
		c.same("virtualMachine.statusesSummary", []any{map[string]any{"code": "ProvisioningState/succeeded", "count": 2}})
	}},
	{"test_vmss_set_orchestration_service_state#39", "automatic repairs are suspended", func(c *recordedCloud) {
		c.uniform(0, `"automaticRepairsPolicy":{"enabled":"true","gracePeriod":"PT30M"},`)
		c.do(http.MethodPost, "virtualMachineScaleSets/u/setOrchestrationServiceState", `{"serviceName":"AutomaticRepairs","action":"Suspend"}`)
		c.ask(http.MethodGet, "virtualMachineScaleSets/u/instanceView", "")
		c.same("orchestrationServices.0", map[string]any{"serviceName": "AutomaticRepairs", "serviceState": "Suspended"})
	}},
	{"test_vmss_update#27", "protection is a PUT of the instance that answers both values and a new ETag", func(c *recordedCloud) {
		c.uniform(1, "")
		c.ask(http.MethodGet, "virtualMachineScaleSets/u/virtualMachines/0", "")
		was := c.text("etag")
		c.ask(http.MethodPut, "virtualMachineScaleSets/u/virtualMachines/0", inRegion+`
			"properties":{"protectionPolicy":{"protectFromScaleIn":true,"protectFromScaleSetActions":true}}}`)
		c.answered(http.StatusOK, true, false)
		c.same("properties.protectionPolicy", map[string]any{"protectFromScaleIn": true, "protectFromScaleSetActions": true})
		if c.text("etag") == was || c.header.Get("ETag") != c.text("etag") {
			c.Errorf("etag %s after %s, header %s", c.text("etag"), was, c.header.Get("ETag"))
		}
	}},
	{"test_vmss_create_user_data#24", "userData is shown where it is asked for, and by no PUT", func(c *recordedCloud) {
		c.uniform(1, "")
		c.ask(http.MethodPatch, "virtualMachineScaleSets/u", `{"properties":{"virtualMachineProfile":{"userData":"YQ=="}}}`)
		c.same("properties.virtualMachineProfile.userData", nil)
		time.Sleep(time.Hour)
		c.ask(http.MethodGet, "virtualMachineScaleSets/u?$expand=userData", "")
		c.same("properties.virtualMachineProfile.userData", "YQ==")
		c.do(http.MethodPatch, "virtualMachineScaleSets/u", `{"properties":{"virtualMachineProfile":{"userData":""}}}`)
		c.ask(http.MethodGet, "virtualMachineScaleSets/u?$expand=userData", "")
		c.same("properties.virtualMachineProfile.userData", nil)
	}},
	{"test_vmss_simulate_eviction", "only a Spot instance can be evicted", func(c *recordedCloud) {
		c.uniform(1, "")
		c.ask(http.MethodPost, "virtualMachineScaleSets/u/virtualMachines/0/simulateEviction", "")
		c.refused(http.StatusConflict, "OperationNotAllowed", "Operation 'simulateEviction' is allowed only for Spot Virtual Machines")
	}},
}

func TestRecordedFactsOfScaleSets(t *testing.T) {
	for _, f := range recordedFacts {
		t.Run(f.recording+" "+f.fact, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				azure := &azsim.Server{}
				defer azure.Close()
				f.holds(&recordedCloud{T: t, azure: azure, version: "2024-07-01"})
			})
		})
	}
}
