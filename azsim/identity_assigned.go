package azsim

const identityType = "Microsoft.ManagedIdentity/userAssignedIdentities"

func identityResourceType() *resourceType {
	return storedType(identityType, []string{"2018-11-30", "2022-01-31-preview", "2023-01-31", "2024-11-30"}, &storedRules{
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
		show: func(s *Server, e *entry, out object) {
			if p := s.identityAt(e.key); p != nil {
				props := out["properties"].(object)
				props["principalId"], props["clientId"], props["tenantId"] = p.ObjectID, p.ClientID, s.Tenant
			}
		},
	})
}
