package azsim

import (
	"context"
	"crypto/sha256"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"

	"github.com/ortet/ortet/azsim/metadata"
)

// The types of scheduled events.
const (
	EventFreeze    = "Freeze"
	EventReboot    = "Reboot"
	EventRedeploy  = "Redeploy"
	EventPreempt   = "Preempt"
	EventTerminate = "Terminate"
)

const (
	eventScheduled = "Scheduled"
	eventStarted   = "Started"
)

// eventsIdle is how long the service stays enabled for a placement group that does
// not ask for events ("Enabling and disabling Scheduled Events").
const eventsIdle = 24 * time.Hour

// minimumNotice is how long before it begins an event is told at least ("Event
// scheduling"; a Terminate's is configured). It is not divided by Server.Speed: what
// the machines do with it is not either.
func minimumNotice(eventType string) (time.Duration, bool) {
	notice, known := map[string]time.Duration{
		EventFreeze: 15 * time.Minute, EventReboot: 15 * time.Minute, EventRedeploy: 10 * time.Minute,
		EventPreempt: 30 * time.Second, EventTerminate: 5 * time.Minute,
	}[eventType]
	return notice, known
}

// An eventBoard holds the scheduled events of one placement group, which Azure shows
// to all instances in it.
type eventBoard struct {
	incarnation int
	events      []*postedEvent
	asked       time.Time // when an instance asked last; zero: never
	from        time.Time // when events are shown, once somebody asks
	shown       bool
}

type postedEvent struct {
	metadata.ScheduledEvent
	board    *eventBoard
	when     time.Time // when it begins at the latest
	approved bool
	begun    bool
	begin    chan struct{} // closed: it may begin before its time
	canceled chan struct{} // closed: it does not begin at all
}

// groupSize is how many instances a placement group has at most.
const groupSize = 100

// placementGroup is the number of an instance's placement group in its scale set.
func placementGroup(x *instance) int {
	if _, set := setOf(x.set); x.flex || set == nil || set.Properties == nil || val(set.Properties.SinglePlacementGroup) {
		return 0
	}
	return x.id / groupSize
}

// placementGroupID names the placement group of a Uniform set's instance; nil for others.
func (x *instance) placementGroupID() *string {
	_, set := setOf(x.set)
	if x.flex || set == nil || set.Properties == nil {
		return nil
	}
	id := val(set.Properties.UniqueID)
	if !val(set.Properties.SinglePlacementGroup) {
		sum := sha256.Sum256([]byte(id + "#" + strconv.Itoa(placementGroup(x))))
		id = uuidOf(sum[:])
	}
	return &id
}

// boardOf is the board of an instance's placement group. The caller holds the lock.
func (s *Server) boardOf(x *instance) *eventBoard {
	if s.scaleSets.events == nil {
		s.scaleSets.events = map[string]*eventBoard{}
	}
	key := boardPrefix(x.set) + strconv.Itoa(placementGroup(x))
	b := s.scaleSets.events[key]
	if b == nil {
		b = &eventBoard{incarnation: 1}
		s.scaleSets.events[key] = b
	}
	return b
}

func boardPrefix(set *entry) string { return set.id.key() + "#" }

// enabled says whether anybody hears of events.
func (b *eventBoard) enabled(now time.Time) bool {
	return !b.asked.IsZero() && now.Sub(b.asked) < eventsIdle && !now.Before(b.from)
}

// ask notes that an instance asks for the events, and gives how long its answer
// takes: the first enables the service. The caller holds the lock.
func (s *Server) ask(e *entry, now time.Time) (delay time.Duration) {
	x, _ := instanceOf(e)
	b := s.boardOf(x)
	if b.asked.IsZero() || now.Sub(b.asked) >= eventsIdle {
		delay = s.duration("events.first", e.key)
		b.from, b.shown = now.Add(s.duration("events.enable", e.key)), false
	}
	b.asked = now
	return delay
}

// read returns the document that an instance is shown. The caller holds the lock.
func (s *Server) read(e *entry, now time.Time) (incarnation int, events []metadata.ScheduledEvent) {
	x, _ := instanceOf(e)
	b := s.boardOf(x)
	if now.Before(b.from) {
		return b.incarnation, nil
	}
	if !b.shown {
		b.shown = true
		if len(b.events) > 0 {
			b.incarnation++ // those that were not shown so far
		}
	}
	for _, p := range b.events {
		events = append(events, p.ScheduledEvent)
	}
	return b.incarnation, events
}

// approveEvents lets events begin before their time, for all of their resources. It
// does nothing, and says so, where one of them is not there.
func (s *Server) approveEvents(e *entry, ids []string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	x, _ := instanceOf(e)
	b := s.boardOf(x)
	var found []*postedEvent
	for _, id := range ids {
		i := slices.IndexFunc(b.events, func(p *postedEvent) bool { return strings.EqualFold(p.EventID, id) })
		if i < 0 {
			return false
		}
		found = append(found, b.events[i])
	}
	for _, p := range found {
		p.approved = true
	}
	b.release()
	return true
}

// release lets begin what was approved. Deletions wait for each other: none begins
// early while another one of the group is told and not approved (documentation of
// terminate notifications, "Approve all pending deletes"). The caller holds the lock.
func (b *eventBoard) release() {
	held := slices.ContainsFunc(b.events, func(p *postedEvent) bool { return p.EventType == EventTerminate && !p.begun && !p.approved })
	for _, p := range b.events {
		if p.approved && !p.begun && (p.EventType != EventTerminate || !held) {
			p.begun = true
			close(p.begin)
		}
	}
}

// An Event is a scheduled event to post.
type Event struct {
	Type      string   // EventFreeze…
	Instances []string // their ids, of one placement group
	// Notice is how long before it begins the event is told; 0 means Azure's
	// minimum, and of a Terminate what the instance's recipe says. Not divided by
	// Server.Speed.
	Notice time.Duration
	// User says that a user wants it, and not the platform.
	User bool
	// Seconds is how long it takes, as told; 0 means unknown, but for a Freeze.
	Seconds int
}

// post puts an event on the board of its first instance. The caller holds the lock.
func (s *Server) post(v Event, list []*entry, now time.Time) *postedEvent {
	x, _ := instanceOf(list[0])
	b := s.boardOf(x)
	p := &postedEvent{board: b, when: now.Add(v.Notice), begin: make(chan struct{}), canceled: make(chan struct{})}
	p.ScheduledEvent = metadata.ScheduledEvent{
		EventID: s.newUUID("event", list[0].key), EventStatus: eventScheduled, EventType: v.Type, ResourceType: "VirtualMachine",
		NotBefore: p.when.UTC().Format(http.TimeFormat), Description: eventDescription(v), EventSource: "Platform", DurationInSeconds: v.Seconds,
	}
	if v.User {
		p.EventSource = "User"
	}
	if p.DurationInSeconds == 0 {
		p.DurationInSeconds = -1
		if v.Type == EventFreeze {
			p.DurationInSeconds = 5
		}
	}
	for _, e := range list {
		_, body := instanceOf(e)
		p.Resources = append(p.Resources, val(body.Name))
	}
	b.events = append(b.events, p)
	b.incarnation++
	return p
}

// eventDescription is the documentation's where it has one.
func eventDescription(v Event) string {
	switch {
	case v.Type == EventFreeze:
		return "Virtual machine is being paused because of a memory-preserving Live Migration operation."
	case v.Type == EventReboot && v.User:
		return "Virtual machine is going to be restarted as requested by authorized user."
	case v.Type == EventRedeploy && v.User:
		return "Virtual machine is going to be redeployed as requested by authorized user."
	case v.Type == EventReboot, v.Type == EventRedeploy:
		return "Host server is undergoing maintenance."
	}
	return ""
}

// await waits until the event begins, and says so on the board. It is false where it
// does not begin any more: it was canceled, or ctx ended.
func (s *Server) await(ctx context.Context, p *postedEvent) bool {
	t := time.NewTimer(time.Until(p.when))
	defer t.Stop()
	select {
	case <-t.C:
	case <-p.begin:
	case <-p.canceled:
		return false
	case <-ctx.Done():
		return false
	case <-s.ctx.Done():
		return false
	}
	s.locked(p.start)
	return true
}

// start says that the event has begun. The caller holds the lock.
func (p *postedEvent) start() {
	if p.EventStatus == eventStarted {
		return // of several instances, the first
	}
	p.EventStatus, p.NotBefore, p.begun = eventStarted, "", true
	p.board.incarnation++
	p.board.release()
}

// end takes the event from its board. The caller holds the lock.
func (p *postedEvent) end() {
	if !slices.Contains(p.board.events, p) {
		return
	}
	p.board.events = slices.DeleteFunc(p.board.events, func(o *postedEvent) bool { return o == p })
	p.board.incarnation++
	p.begun = true
	p.board.release()
}

// terminateNotice is how long before its deletion an instance is told; false where
// it is not told: "Terminate notifications cannot be enabled on Spot instances".
func terminateNotice(p *armcompute.VirtualMachineScaleSetVMProfile) (time.Duration, bool) {
	if p.ScheduledEventsProfile == nil || isSpot(p) {
		return 0, false
	}
	t := p.ScheduledEventsProfile.TerminateNotificationProfile
	if t == nil || !val(t.Enable) {
		return 0, false
	}
	if d := isoSeconds(val(t.NotBeforeTimeout)); d > 0 {
		return d, true
	}
	least, _ := minimumNotice(EventTerminate)
	return least, true
}
