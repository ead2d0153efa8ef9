package lifecycle

import (
	"slices"

	"github.com/ortet/ortet/internal/elastic/agents"
)

// ScopeSubscription is a Grant's scope beside RoleStorage and RoleCompute, which are the
// groups of the cluster.
const ScopeSubscription = "subscription"

// A Grant is what who runs a command of ortet cluster needs in Azure at a scope.
type Grant struct {
	Command string // "up"
	Scope   string // ScopeSubscription, RoleStorage or RoleCompute
	Actions []string
}

// CommandStatus is the command whose actions all others need besides their own.
const CommandStatus = "status"

// Actions lists what the commands do in Azure, from their requests and from the linked
// actions that Resource Manager checks on what the templates' resources refer to.
func Actions() []Grant {
	const (
		resources     = "Microsoft.Resources/"
		groups        = resources + "subscriptions/resourceGroups/"
		compute       = "Microsoft.Compute/"
		network       = "Microsoft.Network/"
		storage       = "Microsoft.Storage/storageAccounts/"
		identities    = "Microsoft.ManagedIdentity/userAssignedIdentities/"
		authorization = "Microsoft.Authorization/"
	)
	checks := []string{resources + "subscriptions/providers/read", "Microsoft.Storage/checknameavailability/read"}
	what := []string{resources + "deployments/whatIf/action", authorization + "roleAssignments/read", authorization + "roleDefinitions/read"}
	deploy := []string{
		groups + "write", resources + "deployments/validate/action", resources + "deployments/write", resources + "deployments/operations/read",
		authorization + "roleAssignments/write", authorization + "roleDefinitions/write", identities + "read",
	}
	remove := []string{
		groups + "delete", compute + "disks/read", authorization + "roleAssignments/read", authorization + "roleAssignments/delete",
		authorization + "roleDefinitions/read", authorization + "roleDefinitions/delete",
	}
	look := []string{groups + "read", groups + "resources/read", resources + "deployments/read"}
	all := []Grant{
		{CommandStatus, RoleStorage, append([]string{storage + "read", storage + "fileServices/shares/read"}, look...)},
		{CommandStatus, RoleCompute, append([]string{
			compute + "virtualMachines/read", compute + "virtualMachines/instanceView/read", compute + "virtualMachineScaleSets/read",
			compute + "virtualMachineScaleSets/virtualMachines/read", network + "publicIPAddresses/read",
		}, look...)},
		{"plan", ScopeSubscription, checks},
		{"plan", RoleStorage, append([]string{identities + "read"}, what...)},
		{"plan", RoleCompute, append([]string{
			network + "natGateways/read", network + "networkInterfaces/read", network + "networkSecurityGroups/read",
			network + "virtualNetworks/read", "Microsoft.Insights/autoscaleSettings/read",
		}, what...)},
		{"up", ScopeSubscription, checks},
		{"up", RoleStorage, append([]string{
			storage + "write", storage + "fileServices/shares/write", identities + "write", identities + "assign/action",
		}, deploy...)},
		{"up", RoleCompute, append([]string{
			compute + "virtualMachines/write", compute + "virtualMachineScaleSets/write", "Microsoft.Insights/autoscaleSettings/write",
			network + "natGateways/write", network + "natGateways/join/action", network + "networkInterfaces/write", network + "networkInterfaces/join/action",
			network + "networkSecurityGroups/write", network + "networkSecurityGroups/join/action", network + "publicIPAddresses/write",
			network + "publicIPAddresses/join/action", network + "virtualNetworks/write", network + "virtualNetworks/subnets/join/action",
		}, deploy[:len(deploy)-1]...)}, // the identities are in the storage group
		{"up --prune", RoleCompute, []string{compute + "virtualMachineScaleSets/delete", "Microsoft.Insights/autoscaleSettings/delete"}},
		{"down", RoleStorage, remove},
		{"down", RoleCompute, remove},
	}
	for _, c := range agents.Actions() {
		all = append(all, Grant{c.Name, RoleCompute, c.Actions})
	}
	for i := range all {
		all[i].Actions = slices.Clone(all[i].Actions)
		slices.Sort(all[i].Actions)
	}
	return all
}
