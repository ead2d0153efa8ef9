package azsim

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// A role is a role definition.
type role struct {
	id         string // GUID
	name       string
	builtin    bool
	actions    []string
	notActions []string

	description string
	created     time.Time // of a custom one
	updated     time.Time
	createdBy   string
	updatedBy   string
	scopes      []string // where it can be assigned; nil: the subscription
}

// An assignment gives a role to a principal at a scope.
type assignment struct {
	id    string // GUID
	role  *role
	scope string // lower case
	shown string // as spelled
	given object // what the client gave: condition, description and the like

	created, updated     time.Time
	createdBy, updatedBy string // object ids; "" for null
}

// The GUIDs of the built-in roles are Azure's own (the built-in roles page of
// its documentation).
func builtinRoles() []*role {
	return []*role{
		{id: "8e3af657-a8ff-443c-a75c-2fe8c4bcb635", name: "Owner", builtin: true, description: "Grants full access to manage all resources, including the ability to assign roles in Azure RBAC.", actions: []string{"*"}},
		{id: "b24988ac-6180-42a0-ab88-20f7382dd24c", name: "Contributor", builtin: true, description: "Grants full access to manage all resources, but does not allow you to assign roles in Azure RBAC, manage assignments in Azure Blueprints, or share image galleries.", actions: []string{"*"}, notActions: []string{
			"Microsoft.Authorization/*/Delete", "Microsoft.Authorization/*/Write", "Microsoft.Authorization/elevateAccess/Action",
			"Microsoft.Blueprint/blueprintAssignments/write", "Microsoft.Blueprint/blueprintAssignments/delete",
			"Microsoft.Compute/galleries/share/action", "Microsoft.Purview/consents/write", "Microsoft.Purview/consents/delete",
			"Microsoft.Resources/deploymentStacks/manageDenySetting/action"}},
		{id: "acdd72a7-3385-48ef-bd42-f606fba81ae7", name: "Reader", builtin: true, description: "View all resources, but does not allow you to make any changes.", actions: []string{"*/read"}},
		{id: "9980e02c-c2be-4d73-94e8-173b1dc7cf3c", name: "Virtual Machine Contributor", builtin: true, description: "Lets you manage virtual machines, but not access to them, and not the virtual network or storage account they're connected to.", actions: []string{
			"Microsoft.Authorization/*/read", "Microsoft.Compute/availabilitySets/*", "Microsoft.Compute/locations/*", "Microsoft.Compute/virtualMachines/*",
			"Microsoft.Compute/virtualMachineScaleSets/*", "Microsoft.Compute/cloudServices/*", "Microsoft.Compute/disks/write", "Microsoft.Compute/disks/read", "Microsoft.Compute/disks/delete",
			"Microsoft.Insights/alertRules/*", "Microsoft.Network/applicationGateways/backendAddressPools/join/action", "Microsoft.Network/loadBalancers/backendAddressPools/join/action",
			"Microsoft.Network/loadBalancers/inboundNatPools/join/action", "Microsoft.Network/loadBalancers/inboundNatRules/join/action", "Microsoft.Network/loadBalancers/probes/join/action",
			"Microsoft.Network/loadBalancers/read", "Microsoft.Network/locations/*", "Microsoft.Network/networkInterfaces/*", "Microsoft.Network/networkSecurityGroups/join/action",
			"Microsoft.Network/networkSecurityGroups/read", "Microsoft.Network/publicIPAddresses/join/action", "Microsoft.Network/publicIPAddresses/read",
			"Microsoft.Network/virtualNetworks/read", "Microsoft.Network/virtualNetworks/subnets/join/action", "Microsoft.ResourceHealth/availabilityStatuses/read",
			"Microsoft.Resources/deployments/*", "Microsoft.Resources/subscriptions/resourceGroups/read", "Microsoft.Storage/storageAccounts/listKeys/action", "Microsoft.Storage/storageAccounts/read"}},
		{id: "81a9662b-bebf-436f-a333-f67b29880f12", name: "Storage Account Key Operator Service Role", builtin: true, description: "Storage Account Key Operators are allowed to list and regenerate keys on Storage Accounts", actions: []string{
			"Microsoft.Storage/storageAccounts/listkeys/action", "Microsoft.Storage/storageAccounts/regeneratekey/action"}},
		{id: "c12c1c16-33a1-487b-954d-41c89c60f349", name: "Reader and Data Access", builtin: true, description: "Lets you view everything but will not let you delete or create a storage account or contained resource. It will also allow read/write access to all data contained in a storage account via access to storage account keys.", actions: []string{
			"Microsoft.Storage/storageAccounts/listKeys/action", "Microsoft.Storage/storageAccounts/ListAccountSas/action", "Microsoft.Storage/storageAccounts/read"}},
		{id: "4a9ae827-6dc8-4573-8ac7-8239d42aa03f", name: "Tag Contributor", builtin: true, description: "Lets you manage tags on entities, without providing access to the entities themselves.", actions: []string{
			"Microsoft.Authorization/*/read", "Microsoft.Insights/alertRules/*", "Microsoft.Resources/deployments/*", "Microsoft.Resources/subscriptions/resourceGroups/read",
			"Microsoft.Resources/subscriptions/resourceGroups/resources/read", "Microsoft.Resources/subscriptions/resources/read", "Microsoft.Support/*", "Microsoft.Resources/tags/*"}},
		{id: "f58310d9-a9f6-439a-9e8d-f62e7b41a168", name: "Role Based Access Control Administrator", builtin: true, description: "Manage access to Azure resources by assigning roles using Azure RBAC. This role does not allow you to manage access using other ways, such as Azure Policy.", actions: []string{
			"Microsoft.Authorization/roleAssignments/write", "Microsoft.Authorization/roleAssignments/delete", "*/read", "Microsoft.Support/*"}},
	}
}

// actionMatches says whether an action pattern, in which each * stands for any
// text, covers an action. Letter case does not count.
func actionMatches(pattern, action string) bool {
	p, a := strings.ToLower(pattern), strings.ToLower(action)
	parts := strings.Split(p, "*")
	if len(parts) == 1 {
		return p == a
	}
	if !strings.HasPrefix(a, parts[0]) {
		return false
	}
	a = a[len(parts[0]):]
	last := parts[len(parts)-1]
	for _, mid := range parts[1 : len(parts)-1] {
		i := strings.Index(a, mid)
		if i < 0 {
			return false
		}
		a = a[i+len(mid):]
	}
	return strings.HasSuffix(a, last)
}

// grant gives a principal a role. The caller holds the lock, or the server is
// not yet in use.
func (s *Server) grant(p *principal, g Grant) {
	r := s.roleNamed(g.Role)
	if len(g.Actions) > 0 || r == nil {
		name := cmp.Or(g.Role, p.Name+" custom role")
		sum := sha256.Sum256([]byte("role " + p.ClientID + fmt.Sprint(len(s.roles)) + name))
		r = &role{id: uuidOf(sum[:]), name: name, actions: g.Actions, notActions: g.NotActions}
		s.roles = append(s.roles, r)
	}
	scope := cmp.Or(strings.TrimRight(g.Scope, "/"), "/subscriptions/"+s.Subscription)
	sum := sha256.Sum256([]byte("assignment " + p.ObjectID + r.id + strings.ToLower(scope)))
	p.grants = append(p.grants, &assignment{id: uuidOf(sum[:]), role: r, scope: strings.ToLower(scope), shown: scope})
}

func (s *Server) roleNamed(name string) *role {
	if s.roles == nil {
		s.roles = builtinRoles()
	}
	for _, r := range s.roles {
		if strings.EqualFold(r.name, name) {
			return r
		}
	}
	return nil
}

// covers says whether an assignment's scope contains a resource.
func (a *assignment) covers(key string) bool {
	return key == a.scope || strings.HasPrefix(key, a.scope+"/")
}

// allowed says whether the principal may do the action on the resource.
func (p *principal) allowed(action, key string) bool {
	for _, a := range p.grants {
		if a.covers(key) && a.role.allows(action) {
			return true
		}
	}
	return false
}

func (r *role) allows(action string) bool {
	for _, no := range r.notActions {
		if actionMatches(no, action) {
			return false
		}
	}
	for _, yes := range r.actions {
		if actionMatches(yes, action) {
			return true
		}
	}
	return false
}

// authorize refuses what the principal may not do.
func (c *call) authorize(action string, on resourceID) error {
	if c.principal.allowed(action, on.key()) {
		return nil
	}
	return refuse(http.StatusForbidden, "AuthorizationFailed",
		"The client '%s' with object id '%s' does not have authorization to perform action '%s' over scope '%s' or the scope is invalid. If access was recently granted, please refresh your credentials.",
		c.principal.ClientID, c.principal.ObjectID, action, on.String())
}

// authorizeLinked refuses a request that needs an action on another resource,
// which the request's body names, if the principal may not do that.
func (c *call) authorizeLinked(action string, on resourceID) error {
	if c.principal.allowed(action, on.key()) {
		return nil
	}
	return refuse(http.StatusForbidden, "LinkedAuthorizationFailed",
		"The client '%s' with object id '%s' has permission to perform action '%s' on scope '%s'; however, it does not have permission to perform action(s) '%s' on the linked scope(s) '%s' or the linked scope(s) are invalid.",
		c.principal.ClientID, c.principal.ObjectID, c.action, c.id.String(), action, on.String())
}
