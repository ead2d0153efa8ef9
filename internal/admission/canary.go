package admission

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/ortet/ortet/internal/fleet"
)

// ScaleSets reads scale sets; azure.Reader has it.
type ScaleSets interface {
	// Pool is fleet.KindNotFound if Azure has no such scale set.
	Pool(ctx context.Context, id fleet.ResourceID) (fleet.Pool, error)
}

const leaseSkew = 5 * time.Minute // between a capture's clock and ours

// ours reports whether a scale set is a configured one, or may be the canary of one.
func (s *Server) ours(set fleet.ResourceID) bool {
	return slices.ContainsFunc(s.config.Pools, func(pool fleet.ResourceID) bool {
		return set.Equal(pool) || set.Equal(fleet.CanaryOf(pool)) && s.config.ScaleSets != nil
	})
}

// admits refuses a machine of a canary, unless a process has the pool's Lease, which no
// right in Azure permits. Name and tags of a scale set prove nothing by themselves, since
// others may write them.
func (s *Server) admits(ctx context.Context, member fleet.Member) error {
	if slices.ContainsFunc(s.config.Pools, member.Pool.Equal) {
		return nil
	}
	i := slices.IndexFunc(s.config.Pools, func(pool fleet.ResourceID) bool { return member.Pool.Equal(fleet.CanaryOf(pool)) })
	if i < 0 || member.Flexible {
		return refuse(PoolNotAllowed, fmt.Errorf("the instance is of %.300q", member.Pool))
	}
	pool, now := s.config.Pools[i], s.config.Now()
	until, err := s.config.Cluster.HeldUntil(ctx, pool)
	if err != nil {
		return ofPort(ctx, ClusterUnavailable, err)
	}
	if !now.Before(until.Add(leaseSkew)) {
		return refuse(CanaryNotAdmitted, fmt.Errorf("no process has the Lease of %s", pool))
	}
	set, err := s.config.ScaleSets.Pool(ctx, member.Pool)
	if fleet.IgnoreNotFound(err) != nil {
		return ofPort(ctx, CloudUnavailable, err)
	}
	// Without a valid tag it is long expired.
	if _, expires, _ := set.Canary(); !now.Before(expires) || set.Capacity > fleet.MaxCanary {
		return refuse(CanaryNotAdmitted, fmt.Errorf("scale set %s of capacity %d has tag %s=%.50q", set.ID, set.Capacity,
			fleet.TagCanary, set.Tags[fleet.TagCanary]))
	}
	return nil
}
