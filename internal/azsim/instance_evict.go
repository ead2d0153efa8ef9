package azsim

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"
)

// preemptNotice is how long before its eviction a Spot instance is told.
const preemptNotice = 30 * time.Second

// An eventBoard holds the scheduled events of one scale set. Events reach every
// instance of it, since Azure shows them to the whole placement group.
type eventBoard struct {
	incarnation int
	events      []*postedEvent
}

type postedEvent struct {
	scheduledEvent
	approved chan struct{}
	early    bool
}

// boardOf is the scale set's board. The caller holds the lock.
func (s *Server) boardOf(set *entry) *eventBoard {
	if s.scaleSets.events == nil {
		s.scaleSets.events = map[string]*eventBoard{}
	}
	key := set.id.key()
	b := s.scaleSets.events[key]
	if b == nil {
		b = &eventBoard{incarnation: 1}
		s.scaleSets.events[key] = b
	}
	return b
}

func (s *Server) eventsFor(e *entry) (int, []scheduledEvent) {
	s.mu.Lock()
	defer s.mu.Unlock()
	x, _ := instanceOf(e)
	b := s.boardOf(x.set)
	var out []scheduledEvent
	for _, p := range b.events {
		out = append(out, p.scheduledEvent)
	}
	return b.incarnation, out
}

func (s *Server) approveEvents(e *entry, ids []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	x, _ := instanceOf(e)
	for _, p := range s.boardOf(x.set).events {
		if !p.early && slices.Contains(ids, p.EventID) {
			p.early = true
			close(p.approved)
		}
	}
}

// Evict takes a Spot instance away as Azure does when it needs the capacity: a
// Preempt event, 30 s later (or as soon as it is approved) the end by the eviction
// policy: Deallocate keeps the instance, Delete removes it and lowers the
// capacity. It returns at once; an error says why it cannot.
func (s *Server) Evict(instanceID string) error {
	s.init()
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.findID(instanceID)
	if e == nil {
		return fmt.Errorf("evict %s: no such instance", instanceID)
	}
	if err := s.evict(e); err != nil {
		return fmt.Errorf("evict %s: %w", instanceID, err)
	}
	return nil
}

func (s *Server) evict(e *entry) error {
	x, body := instanceOf(e)
	if !isSpot(x.profile) {
		return conflict("The VM '%s' is not an Azure Spot VM. Only Azure Spot VMs can be evicted.", val(body.Name))
	}
	if x.gone || x.power != powerRunning {
		return conflict("The VM '%s' is not running, so it cannot be evicted.", val(body.Name))
	}
	now := time.Now()
	b := s.boardOf(x.set)
	p := &postedEvent{approved: make(chan struct{}), scheduledEvent: scheduledEvent{
		EventID: s.newUUID("event", e.key), EventType: "Preempt", ResourceType: "VirtualMachine", Resources: []string{val(body.Name)}, EventStatus: "Scheduled",
		NotBefore: now.Add(preemptNotice).UTC().Format(http.TimeFormat), EventSource: "Platform", DurationInSeconds: -1,
	}}
	b.events = append(b.events, p)
	b.incarnation++
	s.running.Add(1)
	go func() {
		defer s.running.Done()
		s.carryOut(e, b, p)
	}()
	return nil
}

// carryOut waits for the time of an eviction, then does it.
func (s *Server) carryOut(e *entry, b *eventBoard, p *postedEvent) {
	x, body := instanceOf(e)
	t := time.NewTimer(preemptNotice)
	defer t.Stop()
	select {
	case <-t.C:
	case <-p.approved:
	case <-x.alive.Done():
	}
	remove := false
	s.locked(func() {
		p.EventStatus, p.NotBefore = "Started", ""
		b.incarnation++
		if x.gone || s.ctx.Err() != nil {
			return
		}
		if remove = val(x.profile.EvictionPolicy) == armcompute.VirtualMachineEvictionPolicyTypesDelete; remove {
			s.markDeleting(e)
			s.lowerCapacity(x.set, 1)
			return
		}
		x.setPower(powerDeallocating)
	})
	if s.ctx.Err() == nil {
		if err := s.takeAway(e, remove); err != nil {
			s.Log.Error("eviction failed", "instance", val(body.Name), "error", err)
		}
	}
	s.locked(func() {
		b.events = slices.DeleteFunc(b.events, func(o *postedEvent) bool { return o == p })
		b.incarnation++
	})
}

func (s *Server) takeAway(e *entry, remove bool) error {
	x, _ := instanceOf(e)
	if x.gone && !remove {
		return nil
	}
	if remove {
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
	if err := c.s.evict(e); err != nil {
		return nil, err
	}
	return &reply{status: http.StatusNoContent}, nil
}
