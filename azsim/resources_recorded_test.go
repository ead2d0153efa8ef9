package azsim

import (
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"
)

// The forms of answers in this file are recorded ones of Azure (test/recorded).

const vmSetTemplate = `{"$schema": "s", "contentVersion": "1.0.0.0", "variables": {}, "resources": [
	{"type": "Microsoft.Network/networkSecurityGroups", "apiVersion": "2024-05-01", "name": "zone", "location": "West Europe", "properties": {}},
	{"type": "Microsoft.Network/networkSecurityGroups/securityRules", "apiVersion": "2024-05-01", "name": "zone/ssh",
		"dependsOn": ["Microsoft.Network/networkSecurityGroups/zone"],
		"properties": {"protocol": "Tcp", "sourcePortRange": "*", "destinationPortRange": "22", "sourceAddressPrefix": "*",
			"destinationAddressPrefix": "*", "access": "Allow", "priority": 1000, "direction": "Inbound"}},
	{"type": "Microsoft.ManagedIdentity/userAssignedIdentities", "apiVersion": "2023-01-31", "name": "i", "location": "westeurope"}],
	"outputs": {"NewNSG": {"type": "string", "value": "[reference('zone').provisioningState]"},
		"VMSS": {"type": "string", "value": "[providers('Microsoft.ManagedIdentity', 'userAssignedIdentities').apiVersions[0]]"}}}`

func TestDeploymentAnswersAsRecorded(t *testing.T) {
	deployments2021(t, nil, func(b *deployBench) {
		body := deploying(vmSetTemplate, `{}`)
		valid := b.want(200, "POST", b.deployment("d")+"/validate", body)
		b.equal(valid, "properties.timestamp", "0001-01-01T00:00:00Z")
		b.equal(valid, "properties.duration", "PT0S")
		status, head, first := b.send("PUT", b.deployment("d"), body)
		if status != 201 || head.Get("Azure-AsyncOperation") == "" || head.Get("Location") != "" {
			t.Errorf("PUT: %d %v", status, head)
		}
		b.equal(first, "properties.provisioningState", "Accepted")
		time.Sleep(time.Hour) // until its resources are at rest
		for _, answer := range []any{valid, first, b.deploy("d2", body)} {
			b.equal(answer, "properties.parameters", nil) // the template has none
			b.equal(answer, "properties.templateHash", dig(valid, "properties.templateHash"))
			b.equal(answer, "properties.providers.0.namespace", "Microsoft.Network")
			b.equal(answer, "properties.providers.0.resourceTypes.0.resourceType", "networkSecurityGroups")
			b.equal(answer, "properties.providers.0.resourceTypes.0.locations", []any{"westeurope"})
			b.equal(answer, "properties.providers.0.resourceTypes.1.locations", []any{nil})
			b.equal(answer, "properties.providers.1.namespace", "Microsoft.ManagedIdentity")
			b.equal(answer, "properties.dependencies.0.resourceName", "zone/ssh")
			b.equal(answer, "properties.dependencies.0.dependsOn.0.resourceName", "zone")
		}
		done := b.want(200, "GET", b.deployment("d2"), "")
		b.equal(done, "properties.provisioningState", "Succeeded")
		b.equal(done, "properties.error", nil)
		b.equal(done, "properties.outputs.newNSG.value", "Succeeded")
		b.equal(done, "properties.outputs.vmss.value", "2024-11-30")
		b.equal(done, "properties.outputResources.0.id", inGroup+"/providers/Microsoft.ManagedIdentity/userAssignedIdentities/i")
		status, head, _ = b.send("DELETE", b.deployment("d2"), "")
		if status != 202 || head.Get("Location") == "" || head.Get("Azure-AsyncOperation") != "" {
			t.Errorf("DELETE: %d %v", status, head)
		}
	})
}

func TestDurationsOfDeployments(t *testing.T) {
	deployments2021(t, func(s *Server) { s.Speed = 0.02 }, func(b *deployBench) {
		got := b.deploy("d", deploying(twoDisks, `{}`))
		text, _ := dig(got, "properties.duration").(string)
		if !regexp.MustCompile(`^PT[0-9]+M[0-5]?[0-9](\.[0-9]+)?S$`).MatchString(text) {
			t.Errorf("duration %q", text)
		}
	})
}

func TestUnwantedTypesAreSaidNotToBeSimulated(t *testing.T) {
	deployments2021(t, nil, func(b *deployBench) {
		for typ, code := range map[string]string{"Microsoft.Network/applicationGateways": "InvalidResourceType", "Microsoft.KeyVault/vaults": "InvalidResourceNamespace"} {
			direct := dig(b.want(404, "PUT", inGroup+"/providers/"+typ+"/x", `{}`), "error")
			whole := deploying(`{"$schema": "s", "contentVersion": "1.0.0.0", "resources": [{"type": "`+typ+`", "apiVersion": "2022-01-01", "name": "x"}]}`, `{}`)
			inside := dig(b.want(400, "PUT", b.deployment("d"), whole), "error.details.0")
			for _, refused := range []any{direct, inside} {
				b.equal(refused, "code", code)
				if message, _ := dig(refused, "message").(string); !strings.Contains(message, "azsim does not simulate it") {
					t.Errorf("%s: %q", typ, message)
				}
			}
		}
	})
}

func TestGroupIsDeletedAsOftenAsAsked(t *testing.T) {
	deployments2021(t, nil, func(b *deployBench) {
		_, first, _ := b.send("DELETE", inGroup, "")
		status, second, _ := b.send("DELETE", inGroup, "")
		if status != 202 || second.Get("Location") != first.Get("Location") || second.Get("Location") == "" {
			t.Errorf("second DELETE: %d %v, first %v", status, second, first)
		}
	})
}

func TestStorageAccountAnswersAsRecorded(t *testing.T) {
	deployments2021(t, nil, func(b *deployBench) {
		at := func(name, version string) string {
			return inGroup + "/providers/Microsoft.Storage/storageAccounts/" + name + "?api-version=" + version
		}
		create := func(path, body string) any {
			t.Helper()
			status, head, first := b.send("PUT", path, body)
			if status != 202 || first != nil || head.Get("Azure-AsyncOperation") != "" || !strings.Contains(head.Get("Location"), "/asyncoperations/") {
				t.Fatalf("PUT: %d %v %v", status, head, first)
			}
			b.equal(b.want(200, "GET", path, ""), "properties.provisioningState", "Creating")
			b.want(202, "GET", head.Get("Location"), "")
			time.Sleep(time.Hour)
			return b.want(200, "GET", head.Get("Location"), "")
		}
		old := create(at("old", "2018-11-01"), `{"location": "westeurope", "kind": "Storage", "sku": {"name": "Standard_GRS"},
			"properties": {"networkAcls": {"bypass": "logging,metrics"}}}`)
		b.equal(old, "properties.provisioningState", "Succeeded")
		b.equal(old, "tags", map[string]any{})
		b.equal(old, "properties.supportsHttpsTrafficOnly", false)
		b.equal(old, "properties.networkAcls", map[string]any{"bypass": "Logging, Metrics", "virtualNetworkRules": []any{}, "ipRules": []any{}, "defaultAction": "Allow"})
		b.equal(old, "properties.encryption.services.file.enabled", true)
		b.equal(old, "properties.secondaryLocation", "northeurope")
		b.equal(old, "properties.secondaryEndpoints", nil)
		b.equal(old, "properties.accessTier", nil)
		listed := b.want(200, "GET", inGroup+"/resources", "")
		b.equal(listed, "value.0.sku", map[string]any{"name": "Standard_GRS", "tier": "Standard"})
		b.equal(listed, "value.0.kind", "Storage")

		recent := create(at("recent", "2022-09-01"), `{"location": "westeurope", "kind": "StorageV2", "sku": {"name": "Standard_RAGRS"}, "identity": {"type": "SystemAssigned"}}`)
		b.equal(recent, "properties.supportsHttpsTrafficOnly", true)
		b.equal(recent, "properties.accessTier", "Hot")
		b.equal(recent, "properties.secondaryEndpoints.dfs", "https://recent-secondary.dfs.azsim.invalid/")
		b.equal(recent, "properties.secondaryEndpoints.file", nil)
		if id, _ := dig(recent, "identity.principalId").(string); id == "" {
			t.Errorf("identity %v", dig(recent, "identity"))
		}
		status, head, changed := b.send("PATCH", at("recent", "2022-09-01"), `{"properties": {"supportsHttpsTrafficOnly": false}}`)
		if status != 200 || head.Get("Azure-AsyncOperation") != "" {
			t.Errorf("PATCH: %d %v", status, head)
		}
		b.equal(changed, "properties.provisioningState", "Succeeded")
		b.equal(changed, "identity", dig(recent, "identity"))
		b.equal(changed, "properties.encryption", dig(recent, "properties.encryption"))
		b.want(200, "PUT", at("recent", "2022-09-01"), `{"location": "westeurope", "kind": "StorageV2", "sku": {"name": "Standard_RAGRS"}}`)

		first := create(at("first", "2015-06-15"), `{"location": "westeurope", "properties": {"accountType": "Premium_LRS"}}`)
		b.equal(first, "sku.name", "Premium_LRS")
		b.equal(first, "properties.primaryEndpoints", map[string]any{"blob": "https://first.blob.azsim.invalid/"})
		b.want(200, "DELETE", at("first", "2015-06-15"), "")
		b.want(204, "DELETE", at("first", "2015-06-15"), "")
	})
}

func TestIdentitiesAndRolesAnswerAsRecorded(t *testing.T) {
	deployments2021(t, nil, func(b *deployBench) {
		id := inGroup + "/providers/Microsoft.ManagedIdentity/userAssignedIdentities/i"
		status, head, made := b.send("PUT", id+"?api-version=2023-01-31", `{"location": "westeurope"}`)
		spelled := strings.Replace(id, "/resourceGroups/", "/resourcegroups/", 1)
		if status != http.StatusCreated || head.Get("Location") != spelled {
			t.Errorf("identity: %d %v", status, head)
		}
		b.equal(made, "id", spelled)
		b.equal(made, "tags", map[string]any{})

		reader := b.want(200, "GET", inGroup+"/providers/Microsoft.Authorization/roleDefinitions?api-version=2022-04-01&$filter=roleName%20eq%20%27reader%27", "")
		b.equal(reader, "value.0.properties.description", "View all resources, but does not allow you to make any changes.")
		principal, _ := dig(made, "properties.principalId").(string)
		role, _ := dig(reader, "value.0.id").(string)
		assignment := inGroup + "/providers/Microsoft.Authorization/roleAssignments/11111111-0000-4000-8000-00000000000a?api-version=2022-04-01"
		granted := b.want(201, "PUT", assignment, `{"properties": {"principalId": "`+principal+`", "roleDefinitionId": "`+role+`", "principalType": "User", "description": "why"}}`)
		b.equal(granted, "properties.description", "why")
		b.equal(granted, "properties.principalType", "User")
		b.equal(granted, "properties.createdBy", nil)
		got := b.want(200, "GET", assignment, "")
		b.equal(got, "properties.createdBy", dig(granted, "properties.updatedBy"))
		if dig(got, "properties.createdBy") == nil {
			t.Errorf("assignment %v", got)
		}
	})
}
