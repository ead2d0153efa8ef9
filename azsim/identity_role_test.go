package azsim

import (
	"strings"
	"testing"
)

// Built-in roles, assigned by their ids, allow what Azure's do and no more.
func TestBuiltInRoles(t *testing.T) {
	const (
		v            = "2022-04-01"
		subscription = "/subscriptions/" + DefaultSubscription
		group        = subscription + "/resourceGroups/" + DefaultResourceGroup
		account      = "Microsoft.Storage/storageAccounts/mine"
		disk         = "Microsoft.Compute/disks/d"
		tags         = "/providers/Microsoft.Resources/tags/default"
		assignments  = "/providers/Microsoft.Authorization/roleAssignments/"
		definitions  = "/providers/Microsoft.Authorization/roleDefinitions/"
		diskBody     = `{"location":"westeurope","properties":{"diskSizeGB":4,"creationData":{"createOption":"Empty"}}}`
	)
	type try struct {
		method, path, version, body string
		want                        int
	}
	patch := `{"operation":"Merge","properties":{"tags":{"x":"y"}}}`
	custom := `{"properties":{"roleName":"r","assignableScopes":["` + group + `"],"permissions":[{"actions":["*/read"]}]}}`
	for role, tc := range map[string]struct {
		name, scope string
		tries       []try
	}{
		"acdd72a7-3385-48ef-bd42-f606fba81ae7": {"Reader", group, []try{
			{"GET", groupID(account), "2023-05-01", "", 200}, {"GET", groupID(disk), "2023-10-02", "", 200}, {"POST", groupID(account) + "/listKeys", "2023-05-01", "", 403},
			{"PATCH", groupID(disk) + tags, "2021-04-01", patch, 403}}},
		"c12c1c16-33a1-487b-954d-41c89c60f349": {"Reader and Data Access", groupID(account), []try{
			{"GET", groupID(account), "2023-05-01", "", 200}, {"POST", groupID(account) + "/listKeys", "2023-05-01", "", 200},
			{"POST", groupID(account) + "/regenerateKey", "2023-05-01", `{"keyName":"key1"}`, 403}, {"GET", groupID(disk), "2023-10-02", "", 403}, {"DELETE", groupID(account), "2023-05-01", "", 403}}},
		"4a9ae827-6dc8-4573-8ac7-8239d42aa03f": {"Tag Contributor", groupID(disk), []try{
			{"PATCH", groupID(disk) + tags, "2021-04-01", patch, 200}, {"GET", groupID(disk) + tags, "2021-04-01", "", 200}, {"GET", groupID(disk), "2023-10-02", "", 403},
			{"PATCH", groupID(disk), "2023-10-02", `{"tags":{"x":"z"}}`, 403}, {"PATCH", groupID(account) + tags, "2021-04-01", patch, 403}}},
		"b24988ac-6180-42a0-ab88-20f7382dd24c": {"Contributor", group, []try{
			{"PUT", groupID(disk), "2023-10-02", diskBody, 202}, {"PUT", group + assignments + "11111111-0000-4000-8000-0000000000a1", v, "SELF", 403}, {"PUT", group + definitions + "11111111-0000-4000-8000-0000000000a2", v, custom, 403}}},
		"f58310d9-a9f6-439a-9e8d-f62e7b41a168": {"Role Based Access Control Administrator", group, []try{
			{"PUT", group + assignments + "11111111-0000-4000-8000-0000000000b1", v, "SELF", 201}, {"PUT", group + definitions + "11111111-0000-4000-8000-0000000000b2", v, custom, 403},
			{"GET", groupID(disk), "2023-10-02", "", 200}, {"PUT", groupID(disk), "2023-10-02", diskBody, 403}, {"DELETE", group + assignments + "11111111-0000-4000-8000-0000000000b1", v, "", 200}}},
	} {
		inVirtualTime(t, nil, func(b *bench) {
			b.made("PUT", account, "2023-05-01", `{"location":"westeurope","sku":{"name":"Standard_LRS"},"kind":"StorageV2"}`)
			b.made("PUT", disk, "2023-10-02", diskBody)
			identity := b.made("PUT", "Microsoft.ManagedIdentity/userAssignedIdentities/i", "2023-01-31", `{"location":"westeurope"}`)
			if got := b.get(subscription+definitions+role, v); text(got, "properties", "roleName") != tc.name || text(got, "properties", "type") != "BuiltInRole" {
				t.Errorf("definition %s: %v", role, got)
			}
			if list := b.get(subscription+definitions[:len(definitions)-1]+"?$filter=roleName%20eq%20'"+strings.ReplaceAll(tc.name, " ", "%20")+"'", v)["value"].([]any); len(list) != 1 || text(list[0], "name") != role {
				t.Errorf("definitions named %s: %v", tc.name, list)
			}
			body := func(role string) string {
				return `{"properties":{"principalType":"ServicePrincipal","principalId":"` + text(identity, "properties", "principalId") + `","roleDefinitionId":"` + subscription + definitions + role + `"}}`
			}
			const name = "11111111-0000-4000-8000-000000000001"
			b.made("PUT", tc.scope+assignments+name, v, body(role))
			if got := b.get(tc.scope+assignments+name, v); !strings.EqualFold(text(got, "properties", "roleDefinitionId"), subscription+definitions+role) {
				t.Errorf("assignment %v", got)
			}
			for _, try := range tc.tries {
				sent := strings.Replace(try.body, "SELF", body("acdd72a7-3385-48ef-bd42-f606fba81ae7"), 1)
				if got := b.as(text(identity, "properties", "clientId"), try.method, try.path, try.version, sent).StatusCode; got != try.want {
					t.Errorf("%s: %s %s: %d, want %d", tc.name, try.method, try.path, got, try.want)
				}
			}
		})
	}
}
