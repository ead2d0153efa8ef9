package azsim

import (
	"strings"
	"testing"
)

// A template of a cluster's kind deploys as often as it is asked for, what-if then
// finds no change, and validation reads the bodies of stored types.
func TestDeploymentOfStoredTypes(t *testing.T) {
	const template = `{"$schema": "https://schema.management.azure.com/schemas/2019-04-01/deploymentTemplate.json#", "contentVersion": "1.0.0.0",
	"variables": {"vnet": "[resourceId('Microsoft.Network/virtualNetworks','ortet')]"},
	"resources": [
	{"type":"Microsoft.Network/networkSecurityGroups","apiVersion":"2024-05-01","name":"nsg","location":"westeurope","properties":{"securityRules":[{"name":"ssh","properties":{"priority":100,"direction":"Inbound","access":"Allow","protocol":"Tcp","sourceAddressPrefix":"*","sourcePortRange":"*","destinationAddressPrefix":"*","destinationPortRange":"22"}}]}},
	{"type":"Microsoft.Network/virtualNetworks","apiVersion":"2024-05-01","name":"ortet","location":"westeurope","dependsOn":["nsg"],"properties":{"addressSpace":{"addressPrefixes":["10.9.0.0/24"]},"subnets":[{"name":"servers","properties":{"addressPrefix":"10.9.0.0/26","networkSecurityGroup":{"id":"[resourceId('Microsoft.Network/networkSecurityGroups','nsg')]"}}}]}},
	{"type":"Microsoft.Network/publicIPAddresses","apiVersion":"2024-05-01","name":"ip","location":"westeurope","sku":{"name":"Standard"},"properties":{"publicIPAllocationMethod":"Static","dnsSettings":{"domainNameLabel":"ortet1"}}},
	{"type":"Microsoft.Network/networkInterfaces","apiVersion":"2024-05-01","name":"nic","location":"westeurope","dependsOn":["ortet","ip"],"properties":{"ipConfigurations":[{"name":"a","properties":{"primary":true,"privateIPAllocationMethod":"Static","privateIPAddress":"10.9.0.10","subnet":{"id":"[concat(variables('vnet'),'/subnets/servers')]"},"publicIPAddress":{"id":"[resourceId('Microsoft.Network/publicIPAddresses','ip')]"}}}]}},
	{"type":"Microsoft.Storage/storageAccounts","apiVersion":"2023-05-01","name":"ortetaccount1","location":"westeurope","sku":{"name":"Standard_LRS"},"kind":"StorageV2","properties":{}},
	{"type":"Microsoft.Storage/storageAccounts/fileServices/shares","apiVersion":"2023-05-01","name":"ortetaccount1/default/data","dependsOn":["ortetaccount1"],"properties":{"shareQuota":10}},
	{"type":"Microsoft.ManagedIdentity/userAssignedIdentities","apiVersion":"2023-01-31","name":"ortet-agent","location":"westeurope"},
	{"type":"Microsoft.Authorization/roleDefinitions","apiVersion":"2022-04-01","name":"[guid(resourceGroup().id,'r')]","properties":{"roleName":"ortet keys","type":"CustomRole","assignableScopes":["[resourceGroup().id]"],"permissions":[{"actions":["Microsoft.Storage/storageAccounts/listKeys/action"],"notActions":[]}]}},
	{"type":"Microsoft.Authorization/roleAssignments","apiVersion":"2022-04-01","name":"[guid(resourceGroup().id,'a')]","dependsOn":["[resourceId('Microsoft.Authorization/roleDefinitions',guid(resourceGroup().id,'r'))]"],"properties":{"principalType":"ServicePrincipal","roleDefinitionId":"[subscriptionResourceId('Microsoft.Authorization/roleDefinitions',guid(resourceGroup().id,'r'))]","principalId":"[reference('ortet-agent').principalId]"}}
	],
	"outputs":{"fqdn":{"type":"string","value":"[reference('ip').dnsSettings.fqdn]"},"key":{"type":"string","value":"[listKeys(resourceId('Microsoft.Storage/storageAccounts','ortetaccount1'),'2023-05-01').keys[0].keyName]"}}}`
	deployments2021(t, nil, func(b *deployBench) {
		for _, want := range []string{"Create", "NoChange", "NoChange"} {
			changes := b.whatIf(deploying(template, "{}"))
			for name, change := range changes {
				if dig(change, "changeType") != want {
					b.Errorf("%s is %v, want %s: %v", name, dig(change, "changeType"), want, dig(change, "delta"))
				}
			}
			if len(changes) != 9 {
				b.Errorf("%d changes", len(changes))
			}
			got := b.deploy("d", deploying(template, "{}"))
			b.equal(got, "properties.provisioningState", "Succeeded")
			b.equal(got, "properties.outputs.fqdn.value", "ortet1.westeurope.cloudapp.azure.com")
			b.equal(got, "properties.outputs.key.value", "key1")
		}
		bad := strings.ReplaceAll(template, `"priority":100`, `"priority":99`)
		b.equal(b.want(400, "POST", b.deployment("d")+"/validate", deploying(bad, "{}")), "error.code", "InvalidTemplateDeployment")
	})
}

// A machine with a disk that another deployment made, and with userData, deploys again
// without a change; its disk is left out by its condition once it exists.
func TestDeploymentOfAMachineWithItsDisk(t *testing.T) {
	const template = `{"$schema": "https://schema.management.azure.com/schemas/2019-04-01/deploymentTemplate.json#", "contentVersion": "1.0.0.0",
	"parameters": {"stateExists": {"type": "bool"}, "settings": {"type": "string"}},
	"resources": [
	{"type":"Microsoft.Compute/disks","apiVersion":"2023-10-02","name":"state","location":"westeurope","condition":"[not(parameters('stateExists'))]","tags":{"role":"state"},"sku":{"name":"StandardSSD_LRS"},"properties":{"diskSizeGB":8,"creationData":{"createOption":"Empty"}}},
	{"type":"Microsoft.Network/virtualNetworks","apiVersion":"2024-05-01","name":"v","location":"westeurope","properties":{"addressSpace":{"addressPrefixes":["10.9.0.0/24"]},"subnets":[{"name":"servers","properties":{"addressPrefix":"10.9.0.0/26"}}]}},
	{"type":"Microsoft.Network/networkInterfaces","apiVersion":"2024-05-01","name":"nic","location":"westeurope","dependsOn":["v"],"properties":{"ipConfigurations":[{"name":"a","properties":{"privateIPAllocationMethod":"Dynamic","subnet":{"id":"[resourceId('Microsoft.Network/virtualNetworks/subnets','v','servers')]"}}}]}},
	{"type":"Microsoft.Compute/virtualMachines","apiVersion":"2024-07-01","name":"server","location":"westeurope","dependsOn":["nic","[resourceId('Microsoft.Compute/disks','state')]"],"properties":{
		"hardwareProfile":{"vmSize":"Standard_D2s_v5"},"userData":"[base64(parameters('settings'))]",
		"storageProfile":{"imageReference":{"publisher":"Debian","offer":"debian-12","sku":"12-gen2","version":"latest"},"osDisk":{"createOption":"FromImage","deleteOption":"Delete"},
			"dataDisks":[{"lun":0,"createOption":"Attach","caching":"None","deleteOption":"Detach","managedDisk":{"id":"[resourceId('Microsoft.Compute/disks','state')]"}}]},
		"osProfile":{"computerName":"server","adminUsername":"azureuser","customData":"I2Nsb3VkLWNvbmZpZwo=","linuxConfiguration":{"disablePasswordAuthentication":true,"ssh":{"publicKeys":[{"path":"/home/azureuser/.ssh/authorized_keys","keyData":"ssh-ed25519 AAAA"}]}}},
		"networkProfile":{"networkInterfaces":[{"id":"[resourceId('Microsoft.Network/networkInterfaces','nic')]"}]}}}]}`
	deployments2021(t, nil, func(b *deployBench) {
		for n, parameters := range []string{`{"stateExists":{"value":false},"settings":{"value":"one"}}`, `{"stateExists":{"value":false},"settings":{"value":"one"}}`,
			`{"stateExists":{"value":true},"settings":{"value":"one"}}`, `{"stateExists":{"value":true},"settings":{"value":"two"}}`} {
			for name, change := range b.whatIf(deploying(template, parameters)) {
				want := "NoChange"
				switch {
				case n == 0:
					want = "Create"
				case strings.HasPrefix(name, "server_OsDisk"), name == "state" && n > 1:
					want = "Ignore"
				}
				if dig(change, "changeType") != want {
					b.Errorf("%d: %s is %v, want %s: %v", n, name, dig(change, "changeType"), want, dig(change, "delta"))
				}
			}
			b.equal(b.want(200, "POST", b.deployment("d")+"/validate", deploying(template, parameters)), "error", nil)
			b.equal(b.deploy("d", deploying(template, parameters)), "properties.provisioningState", "Succeeded")
			vm := b.want(200, "GET", inGroup+"/providers/Microsoft.Compute/virtualMachines/server?api-version=2024-07-01&$expand=userData", "")
			b.equal(vm, "properties.userData", map[bool]string{false: "b25l", true: "dHdv"}[n == 3])
			b.equal(vm, "properties.storageProfile.dataDisks.0.diskSizeGB", 8)
			b.equal(b.want(200, "GET", inGroup+"/providers/Microsoft.Compute/disks/state?api-version=2023-10-02", ""), "properties.diskState", "Attached")
		}
	})
}
