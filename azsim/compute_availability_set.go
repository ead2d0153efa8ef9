package azsim

import (
	"net/http"
	"strconv"
)

func availabilitySetType() *resourceType {
	rt := storedType("Microsoft.Compute/availabilitySets", append([]string{"2017-12-01"}, scaleSetVersions()...), &storedRules{
		tracked: true, derived: []string{"virtualMachines"},
		check: func(c *call, d *draft) error {
			p := d.properties()
			for _, m := range [][2]string{{"platformFaultDomainCount", "2"}, {"platformUpdateDomainCount", "5"}} {
				if n, _ := strconv.Atoi(m[1]); p[m[0]] == nil {
					p[m[0]] = n
				}
			}
			if d.next["sku"] == nil {
				d.next["sku"] = object{"name": "Classic"}
			}
			return c.checkPlacementGroup(d.next)
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
			delete(out["properties"].(object), "provisioningState")
		},
	})
	rt.views = map[string]handler{"vmsizes": func(c *call) (*reply, error) {
		if _, err := c.need(); err != nil {
			return nil, err
		}
		return sizeList(), nil
	}}
	return withoutMembers(rt, http.StatusOK, "virtualMachines") // a new one is 200, too (as recorded)
}

// machinesIn lists the ids of the machines of an availability set.
func (s *Server) machinesIn(set *entry) []string {
	var out []string
	for _, vm := range s.order {
		x, isInstance := vm.extra.(*instance)
		if isInstance && x.plain != nil && x.plain.inSet(set) {
			out = append(out, vm.id.String())
		}
	}
	return out
}
