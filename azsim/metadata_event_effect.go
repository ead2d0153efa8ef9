package azsim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"
)

// Schedule posts an event of that type for one instance: see ScheduleEvent. A notice
// of 0 is Azure's minimum.
func (s *Server) Schedule(instanceID, eventType string, notice time.Duration) (eventID string, err error) {
	return s.ScheduleEvent(Event{Type: eventType, Instances: []string{instanceID}, Notice: notice})
}

// ScheduleEvent posts an event and returns its id at once. When its notice is over,
// or it is approved, it begins: a Freeze does nothing that can be seen, a Reboot
// restarts the machines, a Redeploy starts them elsewhere from their OS disk, a
// Preempt evicts (as Evict) and a Terminate deletes. It is gone when that is done. An
// error says why an instance cannot have it.
func (s *Server) ScheduleEvent(v Event) (eventID string, err error) {
	s.init()
	s.mu.Lock()
	defer s.mu.Unlock()
	least, known := minimumNotice(v.Type)
	if !known {
		return "", fmt.Errorf("schedule an event: type %q: want Freeze, Reboot, Redeploy, Preempt or Terminate", v.Type)
	}
	list, err := s.concerned(v.Instances)
	if err != nil {
		return "", fmt.Errorf("schedule a %s: %w", v.Type, err)
	}
	if v.Notice < 0 {
		return "", fmt.Errorf("schedule a %s: a notice of %v", v.Type, v.Notice)
	}
	if v.Notice == 0 {
		v.Notice = least
		x, _ := instanceOf(list[0])
		if d, told := terminateNotice(x.profile); told && v.Type == EventTerminate {
			v.Notice = d
		}
	}
	for _, e := range list {
		if err := canHave(e, v.Type); err != nil {
			return "", fmt.Errorf("schedule a %s of %s: %w", v.Type, e.id.String(), err)
		}
	}
	return s.begin(v, list).EventID, nil
}

// concerned finds instances, which must be of one placement group.
func (s *Server) concerned(ids []string) ([]*entry, error) {
	var list []*entry
	for _, id := range ids {
		e := s.findID(id)
		x := (*instance)(nil)
		if e != nil {
			x, _ = e.extra.(*instance)
		}
		if x == nil {
			return nil, fmt.Errorf("%s: no such instance", id)
		}
		if len(list) > 0 {
			if first, _ := instanceOf(list[0]); s.boardOf(first) != s.boardOf(x) {
				return nil, fmt.Errorf("%s is not in the placement group of %s", id, ids[0])
			}
		}
		list = append(list, e)
	}
	if len(list) == 0 {
		return nil, errors.New("no instance is named")
	}
	return list, nil
}

// canHave says why an event of that type cannot happen to an instance.
func canHave(e *entry, eventType string) error {
	x, body := instanceOf(e)
	switch {
	case eventType == EventPreempt && !isSpot(x.profile):
		return conflict("Operation 'simulateEviction' is allowed only for Spot Virtual Machines.")
	case x.leaves() || x.power != powerRunning:
		return conflict("The VM '%s' is not running, so it cannot have a scheduled event.", val(body.Name))
	}
	return nil
}

// begin posts an event and sees to it. The caller holds the lock.
func (s *Server) begin(v Event, list []*entry) *postedEvent {
	p := s.post(v, list, time.Now())
	if v.Type == EventTerminate {
		for _, e := range list {
			s.tell(e, p)
			x, _ := instanceOf(e)
			s.lowerCapacity(cmp.Or(x.scaleSet(), x.set), 1)
		}
	}
	s.running.Add(1)
	go func() {
		defer s.running.Done()
		s.carryOut(p, list)
	}()
	return p
}

// carryOut waits for an event's time, then does it.
func (s *Server) carryOut(p *postedEvent, list []*entry) {
	if p.EventType == EventTerminate {
		s.carried(p, each(list, func(e *entry) error { return s.destroyInstance(s.ctx, e) }))
		return
	}
	ctx := s.ctx
	if x, _ := instanceOf(list[0]); len(list) == 1 {
		ctx = x.alive // nothing is left to do once it goes
	}
	if s.await(ctx, p) {
		s.carried(p, each(list, func(e *entry) error { return s.happen(p.EventType, e) }))
	}
	s.locked(p.end)
}

func (s *Server) carried(p *postedEvent, err error) {
	if err != nil && s.ctx.Err() == nil {
		s.Log.Error("scheduled event failed", "type", p.EventType, "resources", p.Resources, "error", err)
	}
}

// happen does to an instance what an event of the type does.
func (s *Server) happen(eventType string, e *entry) error {
	x, _ := instanceOf(e)
	switch eventType {
	case EventFreeze:
		return ignoreEnd(x, pause(x.alive, s.takes("event.freeze", e)))
	case EventPreempt:
		return s.takeAway(e)
	case EventRedeploy:
		return s.interrupt(e, false, "instance.redeploy")
	}
	return s.interrupt(e, true, "instance.restart")
}

// ignoreEnd is err but for an instance that was deleted meanwhile.
func ignoreEnd(x *instance, err error) error {
	select {
	case <-x.alive.Done():
		return nil
	default:
		return err
	}
}

// interrupt stops a running instance and starts it from the same disk, within about
// the named span. What a user began there ends first.
func (s *Server) interrupt(e *entry, graceful bool, span string) error {
	x, _ := instanceOf(e)
	for {
		var op *operation
		on := false
		s.locked(func() {
			if on = !x.gone && x.power == powerRunning; on && e.op != nil && e.op.running() {
				op = e.op
			} else if on && !graceful {
				x.setPower(powerStarting)
			}
		})
		if !on {
			return nil
		}
		if op == nil {
			break
		}
		select {
		case <-op.ended:
		case <-x.alive.Done():
			return nil
		}
	}
	begun, whole := time.Now(), s.takes(span, e)
	err := s.onSubstrate(x.alive, x, func(sub Substrate) error { return sub.Shutdown(x.alive, e.id.key(), graceful) })
	if err != nil {
		return ignoreEnd(x, err)
	}
	if err := pause(x.alive, whole/2); err != nil {
		return ignoreEnd(x, err)
	}
	if err := s.boot(x.alive, e); err != nil {
		return ignoreEnd(x, err)
	}
	return ignoreEnd(x, s.reach(x.alive, e, powerRunning, begun.Add(whole)))
}

// FailHardware lets the host of a running instance fail: it is off at once, a Reboot
// that has Started tells so, without a notice, and it starts again elsewhere.
func (s *Server) FailHardware(instanceID string) error {
	s.init()
	s.mu.Lock()
	defer s.mu.Unlock()
	list, err := s.concerned([]string{instanceID})
	if err == nil {
		err = canHave(list[0], EventReboot)
	}
	if err != nil {
		return fmt.Errorf("fail the hardware: %w", err)
	}
	p := s.post(Event{Type: EventReboot}, list, time.Now())
	p.Description = "Host server is undergoing an emergency repair."
	p.start()
	s.running.Add(1)
	go func() {
		defer s.running.Done()
		s.carried(p, s.interrupt(list[0], false, "instance.redeploy"))
		s.locked(p.end)
	}()
	return nil
}

// CancelEvent takes an event that has not begun from its board, as Azure sometimes
// does: what it told of does not happen. It says whether there was one. A Terminate
// cannot be canceled.
func (s *Server) CancelEvent(eventID string) bool {
	s.init()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, b := range s.scaleSets.events {
		for _, p := range b.events {
			if strings.EqualFold(p.EventID, eventID) && !p.begun && p.EventType != EventTerminate {
				p.begun = true
				close(p.canceled)
				return true
			}
		}
	}
	return false
}

// Events lists the scheduled events of all placement groups as they are, whether
// they are shown or not.
func (s *Server) Events() []any {
	s.init()
	s.mu.Lock()
	defer s.mu.Unlock()
	out := []any{}
	for _, k := range sortedKeys(s.scaleSets.events) {
		for _, p := range s.scaleSets.events[k].events {
			out = append(out, p.ScheduledEvent)
		}
	}
	return out
}

// Evict takes a Spot instance away as Azure does when it needs the capacity: a
// Preempt event, 30 s later (or as soon as it is approved) the end by the eviction
// policy: Deallocate keeps the instance, Delete removes it and lowers the
// capacity. It returns at once; an error says why it cannot.
func (s *Server) Evict(instanceID string) error {
	_, err := s.Schedule(instanceID, EventPreempt, 0)
	return err
}

// takeAway ends a Spot instance by its eviction policy.
func (s *Server) takeAway(e *entry) error {
	x, _ := instanceOf(e)
	remove, gone := false, false
	s.locked(func() {
		if gone = x.gone; gone {
			return
		}
		if remove = val(x.profile.EvictionPolicy) == armcompute.VirtualMachineEvictionPolicyTypesDelete; remove {
			s.markDeleting(e)
			s.lowerCapacity(cmp.Or(x.scaleSet(), x.set), 1)
			return
		}
		x.setPower(powerDeallocating)
	})
	switch {
	case gone:
		return nil
	case remove:
		return s.destroyInstance(s.ctx, e)
	}
	err := s.onSubstrate(x.alive, x, func(sub Substrate) error { return sub.Shutdown(x.alive, e.id.key(), false) })
	if err != nil && s.ctx.Err() == nil && context.Cause(x.alive) == nil {
		return err
	}
	s.locked(func() { x.setPower(powerDeallocated) })
	return nil
}

// simulateEviction is POST of simulateEviction on an instance.
func simulateEviction(c *call) (*reply, error) {
	e, err := c.need()
	if err != nil {
		return nil, err
	}
	if err := canHave(e, EventPreempt); err != nil {
		return nil, err
	}
	notice, _ := minimumNotice(EventPreempt)
	c.s.begin(Event{Type: EventPreempt, Notice: notice}, []*entry{e})
	return &reply{status: http.StatusNoContent}, nil
}

// leaves says whether an instance is on its way out: it is being deleted, or was
// told that it will be.
func (x *instance) leaves() bool { return x.gone || x.notice != nil }

// doom begins the deletion of instances: those that are to be told run on until
// their Terminate event begins, all others end now. destroyInstance does the rest.
// The caller holds the lock.
func (s *Server) doom(list ...*entry) {
	now := time.Now()
	for _, e := range list {
		x, _ := instanceOf(e)
		if x.leaves() {
			continue
		}
		notice, told := terminateNotice(x.profile)
		if !told || s.instant || !x.provisioned || x.power != powerRunning || e.op != nil && e.op.running() {
			s.markDeleting(e)
			continue
		}
		s.tell(e, s.post(Event{Type: EventTerminate, Notice: notice, User: true}, []*entry{e}, now))
	}
}

// tell marks an instance as one that was told of its deletion.
func (s *Server) tell(e *entry, p *postedEvent) {
	x, body := instanceOf(e)
	x.notice = p
	setState(body, stateDeleting)
}

// afterNotice does what an event tells of once that has begun; without an event at
// once.
func (s *Server) afterNotice(ctx context.Context, p *postedEvent, do func() error) error {
	if p == nil {
		return do()
	}
	defer s.locked(p.end)
	if !s.await(ctx, p) {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return preempted()
	}
	return do()
}

// giveNotice waits until a told instance is to go. end is called when it has gone.
func (s *Server) giveNotice(e *entry) (end func()) {
	x, _ := instanceOf(e)
	var p *postedEvent
	s.locked(func() { p = x.notice })
	if p == nil {
		return func() {}
	}
	s.await(x.alive, p)
	s.locked(func() {
		if s.ctx.Err() == nil {
			s.markDeleting(e)
		}
	})
	return p.end
}
