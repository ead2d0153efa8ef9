package azsim

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"
)

// livingOf lists the instances that are not being deleted, and what balancing
// needs to know of them. The caller holds the lock.
func (s *Server) livingOf(set *entry) (list []*entry, members []member) {
	for _, e := range s.instancesOf(set) {
		x, body := instanceOf(e)
		if x.leaves() {
			continue
		}
		list = append(list, e)
		members = append(members, member{id: x.id, zone: x.zone, protected: protectedFromScaleIn(body)})
	}
	return list, members
}

// spareInstances is how many more instances than are missing an overprovisioning scale set
// makes: of 2 instances the ids 0 to 3 were recorded, of 5 the ids 0 to 6.
const spareInstances = 2

// reconcile makes as many instances as the capacity says, all at once, and spare ones if
// the set overprovisions, or deletes surplus ones by the scale-in policy. It ends with the
// first failure of one, when all are done, those that an older operation began among them;
// or with ctx, and they go on.
func (s *Server) reconcile(ctx context.Context, set *entry) error {
	var (
		waits     []func(context.Context) error
		made      []*entry
		creations []*task
		spare     int
		short     error
	)
	s.locked(func() {
		if ctx.Err() != nil {
			return // preempted: set.op is another
		}
		_, body := setOf(set)
		if body.Properties.VirtualMachineProfile == nil {
			return // it makes and deletes none: its members join by hand
		}
		list, members := s.livingOf(set)
		want := capacityOf(body)
		more := max(0, want-len(list))
		if more > 0 && val(body.Properties.Overprovision) && !s.instant { // a spec's world is at rest
			more += spareInstances
		}
		for _, zone := range placeZones(zonesOf(body.Zones), members, more) {
			e := s.newInstance(set, zone, time.Now())
			x, _ := instanceOf(e)
			last := e
			x.creation = s.spawn(func() (err error) {
				last, err = s.createMember(set, e)
				return err
			}, func(error) {
				x, _ := instanceOf(last)
				last.op, x.creation = nil, nil
			})
			list = append(list, e)
		}
		for _, e := range list {
			if x, _ := instanceOf(e); x.creation != nil {
				e.op = set.op
				made, creations = append(made, e), append(creations, x.creation)
			}
		}
		if val(body.Properties.Overprovision) { // also what an older operation makes
			spare = min(max(0, len(list)-want), len(creations))
		}
		if surplus := len(list) - want - spare; surplus > 0 {
			byID := map[int]*entry{}
			for _, e := range list {
				x, _ := instanceOf(e)
				byID[x.id] = e
			}
			if spare > 0 { // all that are being made, which keepFirst deletes
				members = slices.DeleteFunc(members, func(m member) bool { return slices.Contains(made, byID[m.id]) })
			}
			victims := scaleInVictims(members, surplus, scaleInRules(body))
			for _, id := range victims {
				s.doom(byID[id])
				waits = append(waits, func(ctx context.Context) error { return s.destroyInstance(ctx, byID[id]) })
			}
			if kept := surplus - len(victims); kept > 0 {
				body.SKU.Capacity = ptr(int64(want + kept))
				s.stampEtag(body, set.key)
				short = conflict("Scale set '%s' cannot be scaled in to %d instances: %d instances are protected from scale-in.", set.id.name(), want, kept)
			}
		}
	})
	if spare > 0 {
		waits = append(waits, func(ctx context.Context) error {
			return s.keepFirst(ctx, set, made, creations, len(creations)-spare)
		})
	} else {
		for _, t := range creations {
			waits = append(waits, t.wait)
		}
	}
	if err := each(waits, func(wait func(context.Context) error) error { return wait(ctx) }); err != nil {
		return err
	}
	return short
}

// keepFirst waits until n creations of new instances succeeded, and deletes those of them then
// that the capacity does not have, what is not provisioned first. It fails if fewer can succeed.
func (s *Server) keepFirst(ctx context.Context, set *entry, made []*entry, creations []*task, n int) error {
	ended := make(chan error, len(creations))
	for _, t := range creations {
		go func() { ended <- t.wait(ctx) }()
	}
	var failure error
	for left := len(creations); left > 0 && n > 0; left-- {
		if err := <-ended; err != nil {
			failure = err
		} else {
			n--
		}
	}
	if n > 0 {
		return failure
	}
	var surplus []*entry
	s.locked(func() {
		if ctx.Err() != nil {
			return
		}
		_, body := setOf(set)
		list, _ := s.livingOf(set)
		for i, e := range made {
			for x, _ := instanceOf(e); x.heir != nil; x, _ = instanceOf(made[i]) {
				made[i] = x.heir
			}
		}
		slices.SortStableFunc(made, func(a, b *entry) int {
			return cmp.Compare(creationRank(b), creationRank(a))
		})
		for _, e := range made {
			if x, _ := instanceOf(e); len(surplus) < len(list)-capacityOf(body) && !x.leaves() {
				surplus = append(surplus, e)
			}
		}
		s.doom(surplus...)
	})
	return each(surplus, func(e *entry) error { return s.destroyInstance(ctx, e) })
}

// creationRank is 1 of an instance that is not provisioned.
func creationRank(e *entry) int {
	if _, body := instanceOf(e); val(body.Properties.ProvisioningState) != stateSucceeded {
		return 1
	}
	return 0
}

func scaleInRules(body *armcompute.VirtualMachineScaleSet) []string {
	var out []string
	if p := body.Properties.ScaleInPolicy; p != nil {
		for _, r := range p.Rules {
			out = append(out, string(val(r)))
		}
	}
	return out
}

// upgradeByPolicy brings a new model to the instances where the upgrade policy
// does that by itself: all at once with Automatic, in batches with Rolling.
func (s *Server) upgradeByPolicy(ctx context.Context, set *entry) error {
	var mode armcompute.UpgradeMode
	var rolling *armcompute.RollingUpgradePolicy
	var old []*entry
	var op *operation
	s.locked(func() {
		if ctx.Err() != nil {
			return // preempted: set.op is another
		}
		op = set.op
		x, body := setOf(set)
		mode, rolling = val(body.Properties.UpgradePolicy.Mode), body.Properties.UpgradePolicy.RollingUpgradePolicy
		list, _ := s.livingOf(set)
		for _, e := range list {
			i, vm := instanceOf(e)
			behind := i.plain == nil && !i.changed.Equal(x.changed)
			if behind && !protectedFromActions(vm) && (e.op == nil || e.op.superseded) {
				e.op = op
				old = append(old, e)
			}
		}
	})
	all := old
	defer s.locked(func() {
		for _, e := range all {
			if e.op == op {
				e.op = nil
			}
		}
	})
	size, gap := len(old), time.Duration(0)
	switch mode {
	case armcompute.UpgradeModeAutomatic:
	case armcompute.UpgradeModeRolling:
		percent := 20
		if rolling != nil && rolling.MaxBatchInstancePercent != nil {
			percent = int(*rolling.MaxBatchInstancePercent)
		}
		size = max(1, len(old)*percent/100)
		if rolling != nil {
			gap = isoSeconds(val(rolling.PauseTimeBetweenBatches))
		}
	default:
		return nil
	}
	for len(old) > 0 {
		batch := old[:min(size, len(old))]
		old = old[len(batch):]
		if err := each(batch, func(e *entry) error { return s.upgradeOne(ctx, e) }); err != nil {
			return fmt.Errorf("upgrade of scale set %s stopped: %w", set.id.name(), err)
		}
		if len(old) > 0 {
			if err := pause(ctx, gap); err != nil {
				return err
			}
		}
	}
	return nil
}

// upgradeOne brings the model to one instance, after an upgrade that a preempted
// operation began.
func (s *Server) upgradeOne(ctx context.Context, e *entry) error {
	x, body := instanceOf(e)
	var t *task
	s.locked(func() {
		if ctx.Err() != nil {
			return
		}
		before, span := x.upgrade, s.duration("instance.upgrade", e.key)
		setState(body, stateUpdating)
		x.upgrade = s.spawn(func() error {
			if before != nil {
				<-before.ended
			}
			return s.settle(e, s.renew(x.alive, e, actionOptions{span: span}))
		}, func(error) {})
		t = x.upgrade
	})
	if t == nil {
		return ctx.Err()
	}
	return t.wait(ctx)
}
