package azsim

import (
	"fmt"
	"strconv"
	"strings"
)

const standbyPoolType = "Microsoft.StandbyPool/standbyVirtualMachinePools"

// standbyPoolResourceType is stored: no machine is made in advance. Source: "Standby pools for
// Virtual Machine Scale Sets"; codes and texts are inferred.
func standbyPoolResourceType() *resourceType {
	return storedType(standbyPoolType, []string{"2023-12-01-preview", "2024-03-01-preview", "2024-03-01", "2025-03-01", "2025-10-01"}, &storedRules{
		tracked: true,
		check: func(c *call, d *draft) error {
			p := d.properties()
			id := text(p, "attachedVirtualMachineScaleSetId")
			set := c.s.findID(id)
			switch {
			case set == nil || set.rt.name != setType:
				return missingReference(id, d.id)
			case !isFlexible(set):
				return badRequest("BadRequest", "Standby pools are supported for Virtual Machine Scale Sets with orchestration mode 'Flexible' only.")
			}
			for _, e := range c.s.ofType(standbyPoolType, c.id.subscription, "") {
				if e.id.key() != d.id.key() && strings.EqualFold(text(e.body, "properties", "attachedVirtualMachineScaleSetId"), id) {
					return conflict("Virtual Machine Scale Set '%s' has the standby pool '%s' already.", set.id.name(), e.id.name())
				}
			}
			elastic, _ := p["elasticityProfile"].(object)
			if n, err := strconv.ParseFloat(fmt.Sprint(elastic["maxReadyCapacity"]), 64); err != nil || n < 0 || n > 2000 {
				return badRequest("BadRequest", "elasticityProfile.maxReadyCapacity must be between 0 and 2000.")
			}
			return nil
		},
	})
}
