package azure

import (
	"context"
	"slices"

	"github.com/ortet/ortet/internal/fleet"
)

// MaxSerialLog is how much of a serial log is read: its end.
const MaxSerialLog = 1 << 20

// Boots looks at how instances start, as the cloud itself sees it. It changes
// nothing. Errors are *fleet.Error as those of Reader.
type Boots interface {
	// Pools lists the scale sets of a resource group, Uniform and Flexible, in no
	// order. It is a request per page.
	Pools(ctx context.Context, group fleet.ResourceID) ([]fleet.Pool, error)
	// Boots lists the pool's instances with what their instance views say, in no
	// order: a request per page, none per instance. Of the pool only id and
	// orchestration mode count. A Uniform pool that does not exist is
	// fleet.KindNotFound; a Flexible one has no instances.
	Boots(ctx context.Context, pool fleet.Pool) ([]fleet.Boot, error)
	// SerialLog returns the end of what an instance (fleet.Boot.Instance) wrote to
	// its serial console, at most MaxSerialLog bytes, as they are: it may hold
	// anything, secrets too. Where there is no log yet it is
	// fleet.KindNotFound, and where none is kept that could be read
	// fleet.KindUnsupported.
	SerialLog(ctx context.Context, instance fleet.ResourceID) ([]byte, error)
}

// BootActions returns the actions that Boots' methods need on the resource group,
// sorted.
func BootActions() []string {
	a := []string{
		"Microsoft.Compute/virtualMachineScaleSets/read",
		instanceActions + "read",
		instanceActions + "retrieveBootDiagnosticsData/action",
		"Microsoft.Compute/virtualMachines/read",
		"Microsoft.Compute/virtualMachines/retrieveBootDiagnosticsData/action",
	}
	slices.Sort(a)
	return a
}

// RetryBoots is Retry for Boots.
func RetryBoots(boots Boots, policy RetryPolicy) Boots {
	return bootsAround{boots, &retrier{policy.withDefaults()}}
}

// LimitBoots is Limit for Boots, with limits of its own: what looks and what
// changes are different processes.
func LimitBoots(boots Boots, limits Limits) Boots { return bootsAround{boots, newLimiter(limits)} }

// bootsAround is a Boots with a layer about it.
type bootsAround struct {
	next  Boots
	layer layer
}

func (a bootsAround) Pools(ctx context.Context, group fleet.ResourceID) (out []fleet.Pool, err error) {
	err = a.layer.around(ctx, request{name: "list scale sets"}, func(ctx context.Context) (err error) {
		out, err = a.next.Pools(ctx, group)
		return err
	})
	return out, err
}

func (a bootsAround) Boots(ctx context.Context, pool fleet.Pool) (out []fleet.Boot, err error) {
	err = a.layer.around(ctx, request{name: "list boots"}, func(ctx context.Context) (err error) {
		out, err = a.next.Boots(ctx, pool)
		return err
	})
	return out, err
}

func (a bootsAround) SerialLog(ctx context.Context, instance fleet.ResourceID) (out []byte, err error) {
	err = a.layer.around(ctx, request{name: "read serial log"}, func(ctx context.Context) (err error) {
		out, err = a.next.SerialLog(ctx, instance)
		return err
	})
	return out, err
}
