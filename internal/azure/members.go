package azure

import (
	"context"
	"slices"

	"github.com/ortet/ortet/internal/fleet"
)

// Members tells who the instances of pools are. It changes nothing. Errors are
// *fleet.Error as those of Reader, and reads as fresh.
type Members interface {
	// Member gives one instance by its own id, of a Uniform or a Flexible pool, with
	// its addresses and power state. One that Azure does not have is
	// fleet.KindNotFound; a virtual machine of no scale set is fleet.KindInvalid.
	Member(ctx context.Context, instance fleet.ResourceID) (fleet.Member, error)
	// Members lists a pool's instances with their addresses, in no order: a request
	// per page of instances and one per page of network interfaces, none per
	// instance. Power states are in it where views is true, which costs smaller pages.
	// A pool that does not exist is fleet.KindNotFound.
	Members(ctx context.Context, pool fleet.ResourceID, views bool) ([]fleet.Member, error)
}

// MemberActions gives the actions that Members' methods need on the resource group,
// sorted.
func MemberActions() []string {
	a := []string{
		"Microsoft.Compute/virtualMachineScaleSets/read",
		instanceActions + "read",
		instanceActions + "networkInterfaces/read",
		"Microsoft.Compute/virtualMachineScaleSets/networkInterfaces/read",
		"Microsoft.Compute/virtualMachines/read",
		"Microsoft.Network/networkInterfaces/read",
	}
	slices.Sort(a)
	return a
}
