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
