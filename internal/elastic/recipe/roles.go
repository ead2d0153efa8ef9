package recipe

import (
	"slices"
	"strings"

	"github.com/ortet/ortet/internal/azure"
)

// A Grant is a custom role of a cluster and where it is assigned.
type Grant struct {
	// Name is that of the role definition, before a GUID that makes it unique in the
	// tenant, as Azure requires.
	Name string
	// Identity is ServerIdentity or AgentIdentity.
	Identity string
	// Scope is "account", "group" (the compute group) or "server" (its VM).
	Scope   string
	Actions []string
}

// Scopes of a Grant.
const (
	scopeAccount = "account"
	scopeGroup   = "group"
	scopeServer  = "server"
)

// Actions lists what the identities of a cluster may do in Azure: exactly the actions
// that boot.py and the admission server use.
func Actions() []Grant {
	keys := []string{"Microsoft.Storage/storageAccounts/listKeys/action"}
	const readServer = "Microsoft.Compute/virtualMachines/read"
	// Pools are Uniform scale sets, so admission needs no right on plain VMs.
	admission := slices.DeleteFunc(azure.MemberActions(), func(a string) bool {
		return !strings.HasPrefix(a, "Microsoft.Compute/virtualMachineScaleSets/")
	})
	slices.Sort(admission)
	return []Grant{
		{"server-share", ServerIdentity, scopeAccount, keys},
		{"agent-share", AgentIdentity, scopeAccount, keys},
		{"server-admission", ServerIdentity, scopeGroup, append(admission, "Microsoft.Network/publicIPAddresses/read")},
		{"server-tags", ServerIdentity, scopeServer, []string{readServer, "Microsoft.Resources/tags/write"}},
		{"agent-server", AgentIdentity, scopeServer, []string{readServer}},
	}
}

const (
	definitionType = "Microsoft.Authorization/roleDefinitions"
	assignmentType = "Microsoft.Authorization/roleAssignments"
	identityType   = "Microsoft.ManagedIdentity/userAssignedIdentities"
)

// roles are a definition and an assignment for each grant of these scopes. Both are
// named by GUIDs that are the same in each deployment to a group.
func (r *renderer) roles(scopes ...string) []any {
	var all []any
	for _, g := range Actions() {
		if !slices.Contains(scopes, g.Scope) {
			continue
		}
		definition := call("guid", "resourceGroup().id", quote("ortet role "+g.Name))
		all = append(all, object{
			"type": definitionType, "apiVersion": authorizationAPI, "name": expression(definition),
			"properties": object{
				"roleName":    expression(call("concat", quote("Ortet "+r.c.Metadata.Name+" "+g.Name+" "), definition)),
				"description": "Used by the machines of the Ortet cluster " + r.c.Metadata.Name + ".",
				"type":        "CustomRole",
				"permissions": list(object{"actions": g.Actions, "notActions": []any{}}),
				// A custom role can be assigned here and below.
				"assignableScopes": list("[resourceGroup().id]"),
			},
		})
		assignment := object{
			"type": assignmentType, "apiVersion": authorizationAPI,
			"name": expression(call("guid", "resourceGroup().id", quote("ortet assignment "+g.Name))),
			"properties": object{
				"roleDefinitionId": expression(call("subscriptionResourceId", quote(definitionType), definition)),
				"principalId":      expression(call("reference", r.identity(g.Identity), quote(identityAPI)) + ".principalId"),
				// Without it a principal that Entra has not replicated yet is refused.
				"principalType": "ServicePrincipal",
			},
		}
		needs := []any{expression(call("resourceId", quote(definitionType), definition))}
		switch g.Scope {
		case scopeAccount:
			assignment["scope"] = accountType + "/" + r.c.Spec.Storage.Account
			if !r.c.Spec.Storage.Existing {
				needs = append(needs, expression(idOf(accountType, r.c.Spec.Storage.Account)))
			}
			needs = append(needs, expression(r.identity(g.Identity)))
		case scopeServer:
			assignment["scope"] = machineType + "/" + ServerName
			needs = append(needs, expression(idOf(machineType, ServerName)))
		}
		assignment["dependsOn"] = needs
		all = append(all, assignment)
	}
	return all
}

// identity is the id of a managed identity, as a call; they are in the storage group.
func (r *renderer) identity(name string) string {
	return idIn(r.c.Spec.Groups.Storage, identityType, name)
}

// identities is a machine's reference to its identity.
func (r *renderer) identities(name string) object {
	return object{"type": "UserAssigned", "userAssignedIdentities": object{expression(r.identity(name)): object{}}}
}
