package azsim

import (
	"strings"

	"github.com/ortet/ortet/azsim/deployments"
)

const identityType = "Microsoft.ManagedIdentity/userAssignedIdentities"

func identityResourceType() *resourceType {
	return storedType(identityType, []string{"2018-11-30", "2021-09-30-preview", "2022-01-31-preview", "2023-01-31", "2024-11-30"}, &storedRules{
		tracked: true, derived: []string{"principalId", "clientId", "tenantId"},
		written: func(s *Server, e *entry) {
			if s.identityAt(e.key) == nil {
				s.principals = append(s.principals, &principal{Principal: Principal{
					Name: e.id.name(), ClientID: s.newUUID("client", e.key), ObjectID: s.newUUID("object", e.key), ResourceID: e.id.String()}})
			}
		},
		// Role assignments outlive their principal.
		gone: func(s *Server, e *entry) {
			if p := s.identityAt(e.key); p != nil {
				p.gone = true
			}
		},
		check: func(_ *call, d *draft) error {
			fillMember(d.next, "tags", object{})
			return nil
		},
		located: true,
		show: func(s *Server, e *entry, out object) {
			out["id"] = identityID(e)
			if p := s.identityAt(e.key); p != nil {
				props := out["properties"].(object)
				props["principalId"], props["clientId"], props["tenantId"] = p.ObjectID, p.ClientID, s.Tenant
			}
		},
	})
}

// identityID is the id as its provider spells it, with resourcegroups in lower case.
func identityID(e *entry) string {
	return strings.Replace(e.id.String(), "/resourceGroups/", "/resourcegroups/", 1)
}

// checkIdentity refuses a user-assigned identity that does not exist, and makes the
// principal of a system-assigned one. showIdentity shows both.
func (c *call) checkIdentity(d *draft) error {
	identity, _ := d.next["identity"].(object)
	kind := text(identity, "type")
	if !strings.Contains(kind, "UserAssigned") {
		delete(identity, "userAssignedIdentities")
	}
	assigned, _ := identity["userAssignedIdentities"].(object)
	for _, id := range sortedKeys(assigned) {
		if c.s.identityAt(id) == nil {
			return badRequest("FailedIdentityOperation",
				"Identity operation for resource '%s' failed with error 'Failed to perform resource identity operation. Status: 'BadRequest'. Response: '{\"error\":{\"code\":\"BadRequest\",\"message\":\"Resource '%s' was not found.\"}}'.'.",
				d.id.String(), id)
		}
	}
	delete(identity, "principalId")
	delete(identity, "tenantId")
	if !strings.Contains(kind, "SystemAssigned") || c.check != deployments.Perform {
		return nil
	}
	object := text(d.old, "identity", "principalId")
	if object == "" {
		object = c.s.newUUID("object", d.id.key())
		c.s.principals = append(c.s.principals, &principal{Principal: Principal{
			Name: d.id.name(), ClientID: c.s.newUUID("client", d.id.key()), ObjectID: object}})
	}
	identity["principalId"], identity["tenantId"] = object, c.s.Tenant
	return nil
}

// showIdentity adds the ids of user-assigned identities to a copy of a stored body.
func (s *Server) showIdentity(out object) {
	identity, _ := out["identity"].(object)
	assigned, _ := identity["userAssignedIdentities"].(object)
	for id := range assigned {
		if p := s.identityAt(id); p != nil {
			assigned[id] = object{"principalId": p.ObjectID, "clientId": p.ClientID, "tenantId": s.Tenant}
		}
	}
}
