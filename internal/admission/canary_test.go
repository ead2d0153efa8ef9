package admission_test

import (
	"context"
	"net/http"
	"net/netip"
	"testing"
	"time"

	"github.com/ortet/ortet/internal/admission"
	"github.com/ortet/ortet/internal/fleet"
)

const (
	canary         = pool + "-canary"
	canaryInstance = canary + "/virtualMachines/0"
	sets           = group + "/providers/Microsoft.Compute/virtualMachineScaleSets/"
	elsewhere      = group + "2/providers/Microsoft.Compute/virtualMachineScaleSets/"
)

// scaleSets has one scale set.
type scaleSets struct {
	set  fleet.Pool
	err  error
	read int
}

func (s *scaleSets) Pool(_ context.Context, id fleet.ResourceID) (fleet.Pool, error) {
	if s.read++; s.err == nil && !s.set.ID.Equal(id) {
		return fleet.Pool{}, &fleet.Error{Op: "get scale set", Kind: fleet.KindNotFound}
	}
	return s.set, s.err
}

// TestCanary: machines of an admitted pool's canary join while somebody who may take the pool's
// Lease works on the pool. Who may only make and tag scale sets, or is a machine, gets nothing.
func TestCanary(t *testing.T) {
	member := func(instance, set fleet.ResourceID) fleet.Member {
		return fleet.Member{Instance: instance, Pool: set, HostName: "pool1c000000", VMID: vmID, Created: today.Add(-time.Minute), OfPrimary: 1,
			Addresses: []netip.Addr{netip.MustParseAddr("127.0.0.1")}}
	}
	// of makes a machine of a scale set ask that has all that a canary has.
	of := func(set fleet.ResourceID) func(*site, *scaleSets) {
		return func(s *site, sets *scaleSets) {
			instance := set.Child("virtualMachines", "0")
			s.node.resource, sets.set.ID = string(instance), set
			s.cloud.put(member(instance, set))
			s.cluster.held[set] = today.Add(time.Minute)
		}
	}
	for name, c := range map[string]struct {
		change func(*site, *scaleSets)
		want   admission.Reason // "" is a token
		reads  int              // of scale sets
	}{
		"of a capture at work": {nil, "", 1},
		"its capture's clock is behind": {func(s *site, _ *scaleSets) {
			s.cluster.held[pool] = today.Add(-4 * time.Minute)
		}, "", 1},
		"as large as one may be": {func(_ *site, a *scaleSets) { a.set.Capacity = 10 }, "", 1},
		"no capture is at work": {func(s *site, _ *scaleSets) {
			delete(s.cluster.held, pool)
		}, admission.CanaryNotAdmitted, 0},
		"its capture was killed": {func(s *site, _ *scaleSets) {
			s.cluster.held[pool] = today.Add(-6 * time.Minute)
		}, admission.CanaryNotAdmitted, 0},
		"another pool's capture": {func(s *site, _ *scaleSets) {
			s.cluster.held = map[fleet.ResourceID]time.Time{flexible: today.Add(time.Hour)}
		}, admission.CanaryNotAdmitted, 0},
		"a scale set that others made": {func(_ *site, a *scaleSets) {
			a.set.Tags = map[string]string{fleet.TagCapture: "capture-1"}
		}, admission.CanaryNotAdmitted, 1},
		"a tag that is no time": {func(_ *site, a *scaleSets) {
			a.set.Tags[fleet.TagCanary] = "yes"
		}, admission.CanaryNotAdmitted, 1},
		"expired": {func(_ *site, a *scaleSets) {
			a.set.Tags[fleet.TagCanary] = today.Format(time.RFC3339)
		}, admission.CanaryNotAdmitted, 1},
		"scaled out by others": {func(_ *site, a *scaleSets) {
			a.set.Capacity = 11
		}, admission.CanaryNotAdmitted, 1},
		"deleted since": {func(_ *site, a *scaleSets) {
			a.set.ID = flexible
		}, admission.CanaryNotAdmitted, 1},
		"Azure away": {func(_ *site, a *scaleSets) {
			a.err = &fleet.Error{Op: "get scale set", Kind: fleet.KindTimedOut}
		}, admission.CloudUnavailable, 1},
		"of a pool that is not admitted": {of(fleet.CanaryOf(sets + "pool2")), admission.PoolNotAllowed, 0},
		"of a canary":                    {of(fleet.CanaryOf(canary)), admission.PoolNotAllowed, 0},
		"another resource group's":       {of(elsewhere + "pool1-canary"), admission.PoolNotAllowed, 0},
		"a machine of a Flexible scale set": {func(s *site, _ *scaleSets) {
			const vm = group + "/providers/Microsoft.Compute/virtualMachines/pool1-canary_0a1b2c3d"
			m := member(vm, canary)
			s.node.resource, m.Flexible = vm, true
			s.cloud.put(m)
		}, admission.PoolNotAllowed, 0},
		"a node claims to be the canary's": {func(s *site, _ *scaleSets) {
			s.node.vmID = "00000000-1111-2222-3333-444444444444"
		}, admission.VMIDMismatch, 0},
	} {
		t.Run(name, func(t *testing.T) {
			azure := &scaleSets{set: fleet.Pool{ID: canary, Capacity: 2, Tags: map[string]string{
				fleet.TagCanary: today.Add(24 * time.Hour).Format(time.RFC3339), fleet.TagCapture: "capture-1",
			}}}
			s := newSite(t, func(c *admission.Config) { c.ScaleSets = azure })
			s.node.resource = canaryInstance
			s.cloud.put(member(canaryInstance, canary))
			s.cluster.held = map[fleet.ResourceID]time.Time{pool: today.Add(30 * time.Second)}
			if c.change != nil {
				c.change(s, azure)
			}
			r := s.join()
			if c.want != "" {
				s.refused(r, c.want)
			} else if r.status != http.StatusOK || s.cluster.granted() != 1 {
				t.Errorf("%d %s\n%s", r.status, r.body, s.log)
			}
			if azure.read != c.reads {
				t.Errorf("scale sets were read %d times, want %d", azure.read, c.reads)
			}
			if r.refusal.Final != (c.want == admission.PoolNotAllowed || c.want == admission.VMIDMismatch) {
				t.Errorf("final: %t", r.refusal.Final)
			}
		})
	}
}
