package azsim

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"
)

// markedForDeletion refuses an action on an instance whose deletion has begun.
func markedForDeletion(action, name string) *armError {
	return conflict("Operation '%s' is not allowed on VM '%s' since the VM is marked for deletion. You can only retry the Delete operation (or wait for an ongoing one to complete).", action, name)
}

// markDeleting begins an instance's deletion: what runs on it ends, and it takes
// no more requests. The caller holds the lock.
func (s *Server) markDeleting(e *entry) {
	x, body := instanceOf(e)
	if x.gone {
		return
	}
	x.gone = true
	if e.op != nil && e.op.target.key() == e.id.key() {
		s.preempt(e.op, preempted())
	}
	x.end()
	setState(body, stateDeleting)
}

// destroyInstance waits for the deletion of an instance that is doomed, or for ctx,
// and begins it unless it is under way: a deletion that is asked for twice is one.
func (s *Server) destroyInstance(ctx context.Context, e *entry) error {
	x, body := instanceOf(e)
	var t *task
	s.locked(func() {
		if x.deletion == nil && ctx.Err() == nil {
			x.deletion = s.spawn(func() error { return s.destroy(s.ctx, e) }, func(err error) {
				if err != nil {
					x.deletion = nil // it can be asked for again
					setState(body, stateFailed)
				}
			})
		}
		t = x.deletion
	})
	if t == nil {
		return ctx.Err()
	}
	return t.wait(ctx)
}

// destroy deletes an instance, once its notice is over: the computer, its OS disk and
// the data disks that were made with it. Attached disks are let go.
func (s *Server) destroy(ctx context.Context, e *entry) error {
	x, body := instanceOf(e)
	end := s.giveNotice(e)
	defer s.locked(end)
	if err := ctx.Err(); err != nil {
		return err
	}
	start := time.Now()
	span := s.takes("instance.delete", e)
	err := s.onSubstrate(ctx, x, func(sub Substrate) error { return sub.Remove(ctx, e.id.key()) })
	if err != nil {
		return fmt.Errorf("remove %s: %w", e.id.String(), err)
	}
	var doomed []*entry
	s.locked(func() {
		switch {
		case x.osDisk == nil:
		case x.plain != nil && !x.plain.dropsOSDisk():
			if disk, ok := x.osDisk.body.(*armcompute.Disk); ok {
				release(disk)
			}
		default:
			doomed = append(doomed, x.osDisk)
		}
		for _, d := range dataDisksOf(body) {
			de, disk := load[armcompute.Disk](s, diskIDOf(d))
			if disk == nil {
				continue
			}
			release(disk)
			if val(d.DeleteOption) == armcompute.DiskDeleteOptionTypesDelete {
				doomed = append(doomed, de)
			}
		}
	})
	var volumes []Volume
	for _, d := range doomed {
		volumes = append(volumes, d.volume())
	}
	if run := s.dropVolumes(volumes...); run != nil {
		if err := run(ctx); err != nil {
			return err
		}
	}
	if err := pause(ctx, span-time.Since(start)); err != nil {
		return err
	}
	s.locked(func() {
		for _, d := range doomed {
			s.delete(d)
		}
		x.disconnect()
		s.delete(e)
		for _, nic := range x.plain.droppedInterfaces(s) {
			s.discard(nic)
		}
	})
	s.republish()
	return nil
}

// dropInstance ends the computer of an instance that goes with its resource
// group, without Azure's ceremony. The caller holds the lock.
func dropInstance(s *Server, e *entry) {
	x, body := instanceOf(e)
	if x.gone || x.end == nil {
		return
	}
	x.gone = true
	for _, d := range dataDisksOf(body) { // those of other groups
		de, disk := load[armcompute.Disk](s, diskIDOf(d))
		if disk == nil {
			continue
		}
		release(disk)
		if val(d.DeleteOption) == armcompute.DiskDeleteOptionTypesDelete {
			s.delete(de)
			dropVolume(s, de)
		}
	}
	x.disconnect()
	x.end()
	s.inBackground(s.republished)
	if s.Substrate == nil || s.ctx.Err() != nil {
		return
	}
	s.running.Add(1)
	go func() {
		defer s.running.Done()
		err := s.onSubstrate(s.ctx, x, func(sub Substrate) error { return sub.Remove(s.ctx, e.id.key()) })
		if err != nil {
			s.Log.Error("computer left behind", "instance", e.id.String(), "error", err)
		}
	}()
}

// removeInstance is DELETE of one instance. The capacity falls with it.
func removeInstance(c *call) (*reply, error) {
	s := c.s
	e := s.find(c.id)
	if e == nil {
		return &reply{status: http.StatusNoContent}, nil
	}
	if err := c.precondition(e); err != nil {
		return nil, err
	}
	x, _ := instanceOf(e)
	return c.deleteMembers(cmp.Or(x.scaleSet(), x.set), []*entry{e})
}

// deleteMembers begins the deletion of members by their ids: beside others, and of
// those that are being deleted already as well. The set is Updating meanwhile, and
// its capacity falls at once.
func (c *call) deleteMembers(set *entry, list []*entry) (*reply, error) {
	s := c.s
	if err := c.busy(set); err != nil {
		return nil, err
	}
	lost := 0
	for _, e := range list {
		if x, _ := instanceOf(e); !x.leaves() {
			s.doom(e)
			lost++
		}
	}
	s.lowerCapacity(set, lost)
	x, _ := setOf(set)
	var op *operation
	op = c.begin(nil, work{
		yields: true,
		run: func(ctx context.Context) error {
			return each(list, func(e *entry) error { return s.destroyInstance(ctx, e) })
		},
		done: func(failure *armError) {
			x.deletions = slices.DeleteFunc(x.deletions, func(o *operation) bool { return o == op })
			switch {
			case op.superseded || set.underWay() || stateOf(set.body) != stateUpdating:
			case failure != nil:
				setState(set.body, stateFailed)
			default:
				setState(set.body, stateSucceeded)
			}
		},
	})
	x.deletions = append(x.deletions, op)
	setState(set.body, stateUpdating)
	return accepted(op), nil
}

// supersedeDeletions preempts the deletions of members by their ids, in favour of a
// write to the set: what they began goes on. The caller holds the lock.
func (s *Server) supersedeDeletions(set *scaleSet) {
	for _, op := range set.deletions {
		s.supersede(op)
	}
	set.deletions = nil
}

// lowerCapacity notes instances that were deleted one by one.
func (s *Server) lowerCapacity(set *entry, n int) {
	_, body := setOf(set)
	if n == 0 || body == nil || body.SKU == nil {
		return
	}
	body.SKU.Capacity = ptr(max(0, val(body.SKU.Capacity)-int64(n)))
	s.stampEtag(body, set.key)
}
