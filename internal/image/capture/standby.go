package capture

import (
	"context"
	"fmt"
	"strings"

	"github.com/ortet/ortet/internal/fleet"
)

// Standby says which standby pools a Flexible scale set has, and how to renew their machines, which
// keep the image that they were made of (inferred); "" for none. It asks Azure once, and for no
// Uniform set, which cannot have one.
func (c Config) Standby(ctx context.Context, pool fleet.Pool) string {
	if !pool.Flexible() {
		return ""
	}
	all, err := c.Cloud.StandbyPools(ctx, pool.ID)
	if err != nil {
		return fmt.Sprintf("whether the scale set has a standby pool could not be read: %v", err)
	}
	return strings.Join(fleet.Each(all, func(s fleet.StandbyPool) string {
		return fmt.Sprintf("standby pool %s holds up to %s (%s), which come into the scale set with the image that they were made of; to renew them: "+
			"az standby-vm-pool update --name %s --resource-group %s --max-ready-capacity 0, and again with %d", s.ID.Name(), fleet.Count(int(s.Machines), "machine"),
			s.State, s.ID.Name(), s.ID.Segment("resourceGroups"), s.Machines)
	}), "; ")
}
