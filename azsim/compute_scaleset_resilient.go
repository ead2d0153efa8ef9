package azsim

import (
	"slices"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"
)

// Times of resilient creation: how long a Linux instance may take to be provisioned, and for
// how long Azure makes others in its place (azure-compute-docs, resilient-vm-create-delete).
const (
	resilientTimeout = 8 * time.Minute
	resilientFor     = 30 * time.Minute
)

// recreates reports whether the set makes another instance in the place of one whose creation
// timed out.
func recreates(body *armcompute.VirtualMachineScaleSet) bool {
	p := body.Properties.ResiliencyPolicy
	return p != nil && p.ResilientVMCreationPolicy != nil && val(p.ResilientVMCreationPolicy.Enabled)
}

// recreated reports whether another instance would be made in this one's place; not of those
// that were made before, or one by one. The caller holds the lock.
func (x *instance) recreated() bool {
	if x.creation == nil || x.set == nil {
		return false
	}
	_, body := setOf(x.set)
	return recreates(body)
}

// createMember makes a new instance run. With resilient creation one that times out is deleted
// and another of a new name made, which shows Creating; it returns the last one.
func (s *Server) createMember(set, e *entry) (*entry, error) {
	for begun := time.Now(); ; {
		x, _ := instanceOf(e)
		start, err := time.Now(), s.bringUp(x.alive, e)
		if timedOut(err) {
			again := false
			s.locked(func() { again = x.recreated() })
			if again && pause(x.alive, s.scaled(resilientTimeout)-time.Since(start)) != nil {
				return e, s.settle(e, x.alive.Err())
			}
		}
		next := s.heir(set, e, err, begun)
		if next == nil {
			return e, s.settle(e, err)
		}
		if err := s.destroyInstance(s.ctx, e); err != nil {
			s.Log.Warn("instance whose creation timed out is left", "instance", e.id.String(), "error", err)
		}
		e = next
	}
}

func timedOut(err error) bool {
	return err != nil && slices.Contains([]string{"OSProvisioningTimedOut", "VMStartTimedOut"}, asARM(err).code)
}

// heir is the instance that is made in the place of one whose creation timed out; nil otherwise.
func (s *Server) heir(set, e *entry, failure error, begun time.Time) (next *entry) {
	s.locked(func() {
		x, _ := instanceOf(e)
		if !timedOut(failure) || x.gone || !x.recreated() || time.Since(begun) >= s.scaled(resilientFor) {
			return
		}
		next = s.newInstance(set, x.zone, time.Now())
		y, _ := instanceOf(next)
		y.creation, next.op, x.heir = x.creation, e.op, next
		x.creation, e.op = nil, nil
		s.markDeleting(e)
	})
	return next
}
