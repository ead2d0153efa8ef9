package azsim

import (
	"strconv"
	"strings"
)

const identityType = "Microsoft.ManagedIdentity/userAssignedIdentities"

// storedOtherTypes lists identities, autoscale settings and availability sets.
func storedOtherTypes() []*resourceType {
	identities := storedType(identityType, []string{"2018-11-30", "2022-01-31-preview", "2023-01-31", "2024-11-30"}, &storedRules{
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
	return []*resourceType{
		identities,
		storedType("Microsoft.Insights/autoscaleSettings", []string{"2015-04-01", "2022-10-01"}, &storedRules{tracked: true, check: checkAutoscale}),
		storedType("Microsoft.Compute/availabilitySets", append([]string{"2017-12-01"}, scaleSetVersions()...), &storedRules{
			tracked: true, derived: []string{"virtualMachines"},
			check: func(_ *call, d *draft) error {
				p := d.properties()
				for _, m := range [][2]string{{"platformFaultDomainCount", "2"}, {"platformUpdateDomainCount", "5"}} {
					if n, _ := strconv.Atoi(m[1]); p[m[0]] == nil {
						p[m[0]] = n
					}
				}
				if d.next["sku"] == nil {
					d.next["sku"] = object{"name": "Classic"}
				}
				return nil
			},
			inUse: func(s *Server, e *entry) error {
				if list := s.machinesIn(e); len(list) > 0 {
					return conflict("Availability Set '%s' cannot be deleted. Before deleting an Availability Set please ensure that it does not contain any VM.", e.id.name())
				}
				return nil
			},
			show: func(s *Server, e *entry, out object) {
				list := append([]any{}, idList(s.machinesIn(e))...)
				out["properties"].(object)["virtualMachines"] = list
			},
		}),
	}
}

// machinesIn lists the ids of the machines of an availability set.
func (s *Server) machinesIn(set *entry) []string {
	var out []string
	for _, vm := range s.order {
		x, isInstance := vm.extra.(*instance)
		if isInstance && x.plain != nil && x.plain.availabilitySet != nil && strings.EqualFold(val(x.plain.availabilitySet.ID), set.key) {
			out = append(out, vm.id.String())
		}
	}
	return out
}

// checkAutoscale wants min ≤ default ≤ max, as Azure does.
func checkAutoscale(_ *call, d *draft) error {
	profiles, _ := d.properties()["profiles"].([]any)
	if len(profiles) == 0 {
		return badRequest("BadRequest", "The autoscale setting '%s' has no profiles: at least one is needed.", d.id.name())
	}
	for _, v := range profiles {
		stringMembers(at(v, "capacity"), "minimum", "default", "maximum")
		var n [3]int
		for i, m := range []string{"minimum", "default", "maximum"} {
			var err error
			if n[i], err = strconv.Atoi(text(v, "capacity", m)); err != nil {
				return badRequest("BadRequest", "The value of capacity.%s in profile '%s' must be a string that holds a number.", m, text(v, "name"))
			}
		}
		if n[0] > n[1] || n[1] > n[2] {
			return badRequest("BadRequest", "The capacity of profile '%s' is invalid: want minimum (%d) ≤ default (%d) ≤ maximum (%d).", text(v, "name"), n[0], n[1], n[2])
		}
	}
	return nil
}
