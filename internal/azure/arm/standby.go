package arm

import (
	"context"
	"errors"

	"github.com/ortet/ortet/internal/fleet"
)

// standbyVersion is the newest API version of standby pools that was no preview when this was
// written ("Microsoft.StandbyPool standbyVirtualMachinePools").
const standbyVersion = "2025-03-01"

// standbyAnswer is what is wanted of a StandbyVirtualMachinePoolResource.
type standbyAnswer struct {
	ID         string `json:"id"`
	Properties struct {
		Attached   string `json:"attachedVirtualMachineScaleSetId"`
		State      string `json:"virtualMachineState"`
		Elasticity struct {
			MaxReadyCapacity int64 `json:"maxReadyCapacity"`
		} `json:"elasticityProfile"`
	} `json:"properties"`
}

// StandbyPools lists the standby pools of a scale set that are in its resource group. A
// subscription that has not registered their provider has none.
func (c *Cloud) StandbyPools(ctx context.Context, pool fleet.ResourceID) (all []fleet.StandbyPool, err error) {
	const op = "list standby pools"
	p, err := c.at(pool, typeScaleSet)
	if err != nil {
		return nil, failed(ctx, op, pool, err)
	}
	on := pool.Group() + "/providers/Microsoft.StandbyPool/standbyVirtualMachinePools"
	err = failed(ctx, op, on, list(ctx, c, c.address(on, standbyVersion), func(s *standbyAnswer) error {
		if fleet.ResourceID(s.Properties.Attached).Equal(p.id) {
			all = append(all, fleet.StandbyPool{ID: fleet.ResourceID(s.ID), Machines: s.Properties.Elasticity.MaxReadyCapacity, State: s.Properties.State})
		}
		return nil
	}))
	if e := new(fleet.Error); errors.As(err, &e) && (e.Kind == fleet.KindNotFound || e.Code == "MissingSubscriptionRegistration") {
		return nil, nil
	}
	return all, err
}
