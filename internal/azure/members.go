package azure

import (
	"context"
	"slices"

	"github.com/ortet/ortet/internal/fleet"
)

// Members tells who the instances of pools are. It changes nothing. Errors are
// *fleet.Error as those of Reader, and reads as fresh.
type Members interface {
	// Member returns one instance by its own id, of a Uniform or a Flexible pool, with
	// its addresses and power state. One that Azure does not have is
	// fleet.KindNotFound, and nothing else is: one that has no addresses (yet) has none
	// here. A virtual machine of no scale set is fleet.KindInvalid.
	//
	// What Azure does not say, or not as it should be, is left zero: VMID, HostName.
	// HostName is what the machine was made with: a machine of a specialized image has
	// none, since what such a machine calls itself is its own word.
	Member(ctx context.Context, instance fleet.ResourceID) (fleet.Member, error)
	// Members lists a pool's instances with their addresses, in no order: a request
	// for the pool, one per page of instances and one per page of network interfaces,
	// none per instance. Power states are in it where views is true, which costs
	// smaller pages. It is all of them or an error; a pool that does not exist is
	// fleet.KindNotFound. Network interfaces of a Flexible pool's machines that lie in
	// another resource group are not seen: their machines have no Addresses here.
	Members(ctx context.Context, pool fleet.ResourceID, views bool) ([]fleet.Member, error)
}

// MemberActions returns the actions that Members' methods need on the resource group,
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

// LimitMembers is Limit for Members, with limits of its own. They are those that Azure
// publishes for what Members asks ("Compute throttling limits", per subscription and
// region; buckets that are refilled by a rate a minute up to a burst):
//
//   - an instance of a Uniform pool: 12 and 36 for each, 2,000 and 6,000 for all
//     ("Get scale set VMs")
//   - a machine of a Flexible pool: 12 and 36 for each, 8,000 and 24,000 for all ("Low
//     Cost Get VM")
//   - a scale set: 12 and 36 for each, 800 and 2,400 for all ("Low Cost Get")
//   - a page of a Flexible pool's machines: 300 and 900 for all ("High Cost Get VM").
//     The list of a Uniform pool's instances is not in the tables; it is taken for the
//     dearest of what is there, a scale set's "High Cost Get": 10 and 30 for each, 360
//     and 1,080 for all
//
// beside Azure Resource Manager's own 250 reads at once, refilled by 25 a second. A
// Member is up to two requests at each, and a list as many as it has pages, which
// follow each other; the zero Limits stay below all of it.
func LimitMembers(members Members, limits Limits) Members {
	return membersAround{members, newLimiter(limits)}
}

// membersAround is a Members with a layer about it.
type membersAround struct {
	next  Members
	layer layer
}

func (a membersAround) Member(ctx context.Context, instance fleet.ResourceID) (out fleet.Member, err error) {
	err = a.layer.around(ctx, request{name: "get member", on: instance}, func(ctx context.Context) (err error) {
		out, err = a.next.Member(ctx, instance)
		return err
	})
	return out, err
}

func (a membersAround) Members(ctx context.Context, pool fleet.ResourceID, views bool) (out []fleet.Member, err error) {
	err = a.layer.around(ctx, request{name: "list members", on: pool}, func(ctx context.Context) (err error) {
		out, err = a.next.Members(ctx, pool, views)
		return err
	})
	return out, err
}
