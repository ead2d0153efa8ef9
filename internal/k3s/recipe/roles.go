package recipe

import (
	"strings"

	"github.com/google/uuid"
)

// A Role is a built-in role of Azure's, by the name of its definition: "Azure built-in
// roles", the same in all clouds.
type Role struct{ Name, ID string }

var (
	reader         = Role{"Reader", "acdd72a7-3385-48ef-bd42-f606fba81ae7"}
	readerAndData  = Role{"Reader and Data Access", "c12c1c16-33a1-487b-954d-41c89c60f349"} // the account's keys
	tagContributor = Role{"Tag Contributor", "4a9ae827-6dc8-4573-8ac7-8239d42aa03f"}
	// vmContributor is on a scale set. Its write, without which nobody scales, is root on the
	// agents already, so a role of our own would be no less, and needs roleDefinitions/write.
	vmContributor = Role{"Virtual Machine Contributor", "9980e02c-c2be-4d73-94e8-173b1dc7cf3c"}
)

// A Grant is an assignment of a role to an identity of a cluster.
type Grant struct {
	Name     string // unique in the cluster
	Identity string // ServerIdentity, AgentIdentity or AutoscalerIdentity
	Scope    string // "account", "group" (the compute group), "server" (its VM) or "pool NAME" (a scale set)
	Role     Role
}

// Scopes of a Grant.
const (
	scopeAccount = "account"
	scopeGroup   = "group"
	scopeServer  = "server"
	scopePool    = "pool "
)

// Pool is the pool whose scale set is the scope, or "".
func (g Grant) Pool() string {
	name, _ := strings.CutPrefix(g.Scope, scopePool)
	if name == g.Scope {
		return ""
	}
	return name
}

// Grants lists what the identities of a cluster may do in Azure, in which cluster-autoscaler
// scales these pools.
func Grants(pools ...string) []Grant {
	all := []Grant{
		{"server-share", ServerIdentity, scopeAccount, readerAndData},
		{"agent-share", AgentIdentity, scopeAccount, readerAndData},
		{"server-group", ServerIdentity, scopeGroup, reader},
		{"server-tags", ServerIdentity, scopeServer, tagContributor},
		{"agent-server", AgentIdentity, scopeServer, reader},
	}
	for i, name := range pools {
		if i == 0 {
			all = append(all, Grant{"autoscaler-group", AutoscalerIdentity, scopeGroup, reader})
		}
		all = append(all, Grant{"autoscaler-" + name, AutoscalerIdentity, scopePool + name, vmContributor})
	}
	return all
}

// guidSpace is the namespace of ARM's guid(), a UUID of version 5 of its arguments with
// hyphens between (Microsoft's "String functions for ARM templates", guid).
var guidSpace = uuid.MustParse("11fb06fb-712d-4ddd-98c7-e71bbd588830")

// Assignments are the ARM ids of the role assignments in one of a cluster's groups, as
// roles.yaml names them: in that of storage, which has the account, or in that of compute
// ("" for the account) with the pools of Grants. A name cannot have the identity's principal in it: ARM refuses
// reference() there.
func Assignments(group, account string, pools ...string) (ids []string) {
	for _, g := range Grants(pools...) {
		scope := group
		switch g.Scope {
		case scopePool + g.Pool():
			scope += "/providers/Microsoft.Compute/virtualMachineScaleSets/" + g.Pool()
		case scopeAccount:
			scope += "/providers/Microsoft.Storage/storageAccounts/" + account
		case scopeServer:
			scope += "/providers/Microsoft.Compute/virtualMachines/" + ServerName
		}
		if (g.Scope == scopeAccount) == (account != "") {
			name := uuid.NewSHA1(guidSpace, []byte(strings.ToLower(group)+"-ortet grant "+g.Name)).String()
			ids = append(ids, scope+"/providers/Microsoft.Authorization/roleAssignments/"+name)
		}
	}
	return ids
}
