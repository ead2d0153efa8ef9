package admission

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/fleet"
)

// DirectoryOptions are what a Directory needs beside azure.Members.
type DirectoryOptions struct {
	// Pools are the allowed scale sets. The id of a Flexible pool's machine does not name
	// its pool, but its name begins with the pool's: waiters are grouped by that, and a
	// machine that is not found by its name is read by itself.
	Pools []fleet.ResourceID
	// Timeout bounds one request with all its pages; 0 means 30 s.
	Timeout time.Duration
	// Asked is called for every request, by several goroutines: "get" of an instance or
	// "list" of a scale set. It may be nil.
	Asked func(kind string)
}

// Costs of lists of one scale set. Their number is kept below azure.LimitMembers' own limit
// here, by waiting before the list is begun, so that later callers still join it; they
// could not join a begun list that waits for the limiter.
const (
	listsAtOnce = 15
	listEvery   = 12 * time.Second // refills one; with the reaper's it is half of what Azure allows
	// listApart is at least between two, and twice that once half of them are used up, so
	// that a wave of nodes has few, and one that goes on is not left without any: a list
	// of a thousand instances is about twenty requests, of the 250 that Azure Resource
	// Manager takes at once.
	listApart = time.Second
	// loners limits the instances that are read by themselves after a list without them.
	loners         = 32
	lonersAtOnce   = 8
	patience       = 5 * time.Second  // longer waits for Azure's throttling are the nodes' own
	throttledFor   = 10 * time.Second // where Azure names no time
	longestBackOff = 5 * time.Minute
	// fewHeld is for how many instances Azure may throttle the reads of them alone, as one
	// machine can cause by itself, before the scale set counts as throttled.
	fewHeld  = 3
	keptSets = 256
)

// NewDirectory makes a Directory of azure.Members, which should be one with
// azure.LimitMembers about it.
//
// For each scale set one request runs at a time, and callers wait together for the next:
// one instance costs a read of that instance, several a list of the set. The request ends
// early only when it has no waiters. When Azure throttles, the scale set's next request is
// begun no earlier than it asks for, and callers with a long wait get an error at once
// (fleet.KindThrottled with RetryAfter). A throttled read of one instance counts for this
// instance alone: its limit can be used up by its own machine.
func NewDirectory(members azure.Members, options DirectoryOptions) Directory {
	if options.Timeout <= 0 {
		options.Timeout = 30 * time.Second
	}
	if options.Asked == nil {
		options.Asked = func(string) {}
	}
	return &directory{members: members, options: options, sets: map[string]*waitingRoom{}}
}

type directory struct {
	members azure.Members
	options DirectoryOptions

	mu   sync.Mutex
	sets map[string]*waitingRoom // by what is asked together
}

// A waitingRoom is where those wait who ask of one scale set.
type waitingRoom struct {
	pool    fleet.ResourceID // to list; "" where it is not known
	waiting []*waiter
	busy    bool                 // somebody serves it
	until   time.Time            // Azure's Retry-After
	held    map[string]time.Time // nor of these instances by themselves
	lists   turns
}

type waiter struct {
	instance fleet.ResourceID
	answer   chan found // of one
	batch    *batch     // of the request that is for it, once that is begun
}

type found struct {
	member fleet.Member
	err    error
}

// A batch is for whom a request is.
type batch struct {
	waiters map[string][]*waiter // by instance
	left    int                  // of them who did not go away
	cancel  context.CancelFunc
}

func keyOf(id fleet.ResourceID) string { return strings.ToLower(string(id)) }

// Member waits for a request that is begun from now on.
func (d *directory) Member(ctx context.Context, instance fleet.ResourceID) (fleet.Member, error) {
	w := &waiter{instance: instance, answer: make(chan found, 1)}
	if err := d.enter(w); err != nil {
		return fleet.Member{}, err
	}
	select {
	case f := <-w.answer:
		return f.member, f.err
	case <-ctx.Done():
		d.leave(w)
		e := &fleet.Error{Op: "look up instance", Resource: string(instance), Err: ctx.Err()}
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			e.Kind = fleet.KindTimedOut
		}
		return fleet.Member{}, e
	}
}

// roomOf returns with which callers an instance is read.
func (d *directory) roomOf(instance fleet.ResourceID) (pool fleet.ResourceID, key string) {
	if instance.Segment("virtualMachineScaleSets") != "" {
		return instance.Parent(), keyOf(instance.Parent())
	}
	for _, p := range d.options.Pools {
		if p.Group().Equal(instance.Group()) && strings.HasPrefix(strings.ToLower(instance.Name()), strings.ToLower(p.Name())+"_") {
			return p, keyOf(p)
		}
	}
	return "", keyOf(instance)
}

func (d *directory) enter(w *waiter) error {
	pool, key := d.roomOf(w.instance)
	now := time.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	room := d.sets[key]
	if room == nil {
		if len(d.sets) >= keptSets {
			maps.DeleteFunc(d.sets, func(_ string, r *waitingRoom) bool { return r.asNew(now) })
		}
		room = &waitingRoom{pool: pool, held: map[string]time.Time{}}
		d.sets[key] = room
	}
	if wait := max(room.until.Sub(now), room.held[keyOf(w.instance)].Sub(now)); wait > patience {
		return throttled(w.instance, wait)
	}
	room.waiting = append(room.waiting, w)
	if !room.busy {
		room.busy = true
		go d.serve(room)
	}
	return nil
}

func throttled(instance fleet.ResourceID, wait time.Duration) error {
	return &fleet.Error{Op: "look up instance", Resource: string(instance), Kind: fleet.KindThrottled, RetryAfter: wait,
		Err: errors.New("fewer requests were asked for by Azure")}
}

// leave removes a waiter, and ends a request without other waiters.
func (d *directory) leave(w *waiter) {
	_, key := d.roomOf(w.instance)
	d.mu.Lock()
	defer d.mu.Unlock()
	if b := w.batch; b != nil {
		if b.left--; b.left == 0 {
			b.cancel()
		}
		return
	}
	if room := d.sets[key]; room != nil {
		room.waiting = slices.DeleteFunc(room.waiting, func(o *waiter) bool { return o == w })
	}
}

// asNew reports that nothing would be lost with the room.
func (r *waitingRoom) asNew(now time.Time) bool {
	for _, until := range r.held {
		if until.After(now) {
			return false
		}
	}
	return !r.busy && len(r.waiting) == 0 && !r.until.After(now) && r.lists.full(now)
}

// throttled takes down what Azure does not want to be asked for a while: the scale set,
// or instances by themselves.
func (r *waitingRoom) throttled(now time.Time, all error, each map[string]error) {
	if all != nil {
		r.until = now.Add(backOff(all))
	}
	if len(each) == 0 {
		return
	}
	maps.DeleteFunc(r.held, func(_ string, until time.Time) bool { return !until.After(now) })
	longest := time.Time{}
	for key, err := range each {
		r.held[key] = now.Add(backOff(err))
		if r.held[key].After(longest) {
			longest = r.held[key]
		}
	}
	if len(r.held) > fewHeld && longest.After(r.until) {
		r.until = longest
	}
}

// dismiss makes those retry later who wait for instances that are throttled for long.
func (r *waitingRoom) dismiss(now time.Time) {
	r.waiting = slices.DeleteFunc(r.waiting, func(w *waiter) bool {
		wait := r.held[keyOf(w.instance)].Sub(now)
		if wait <= patience {
			return false
		}
		w.answer <- found{err: throttled(w.instance, wait)} // of one answer each
		return true
	})
}

// wait is how long it is until the next request may begin.
func (r *waitingRoom) wait(now time.Time) time.Duration {
	wait, instances := r.until.Sub(now), distinct(r.waiting)
	if len(instances) > 1 && r.pool != "" {
		return max(wait, r.lists.wait(now))
	}
	for key := range instances {
		wait = max(wait, r.held[key].Sub(now))
	}
	return wait
}

// serve begins one request after the other for as long as anybody waits.
func (d *directory) serve(room *waitingRoom) {
	for {
		now := time.Now()
		d.mu.Lock()
		room.dismiss(now)
		if len(room.waiting) == 0 {
			room.busy = false
			d.mu.Unlock()
			return
		}
		if wait := room.until.Sub(now); wait > patience {
			late := room.waiting
			room.waiting, room.busy = nil, false
			d.mu.Unlock()
			for _, w := range late {
				w.answer <- found{err: throttled(w.instance, wait)}
			}
			return
		}
		if wait := room.wait(now); wait > 0 {
			d.mu.Unlock()
			time.Sleep(wait) // up to listEvery, and later callers join
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), d.options.Timeout)
		b := &batch{waiters: map[string][]*waiter{}, left: len(room.waiting), cancel: cancel}
		instances := distinct(room.waiting)
		for _, w := range room.waiting {
			w.batch = b
			b.waiters[keyOf(w.instance)] = append(b.waiters[keyOf(w.instance)], w)
		}
		room.waiting = nil
		if len(instances) > 1 && room.pool != "" {
			room.lists.take(now)
		}
		d.mu.Unlock()
		each, all := d.ask(ctx, room.pool, b, instances)
		cancel()
		d.mu.Lock()
		room.throttled(time.Now(), all, each)
		d.mu.Unlock()
	}
}

// backOff is how long Azure is left alone after it throttled.
func backOff(err error) time.Duration {
	longest := time.Duration(0)
	for e := (*fleet.Error)(nil); errors.As(err, &e); err = e.Err {
		longest = max(longest, e.RetryAfter)
	}
	longest = cmp.Or(longest, throttledFor)
	return min(longest, longestBackOff)
}

// distinct returns the instances that are waited for, by key.
func distinct(waiters []*waiter) map[string]fleet.ResourceID {
	out := make(map[string]fleet.ResourceID, len(waiters))
	for _, w := range waiters {
		out[keyOf(w.instance)] = w.instance
	}
	return out
}

// ask answers a batch, and returns the errors with which Azure throttled: each of instances
// by themselves, all of the scale set.
func (d *directory) ask(ctx context.Context, pool fleet.ResourceID, b *batch, instances map[string]fleet.ResourceID) (each map[string]error, all error) {
	if len(instances) > 1 && pool != "" {
		d.options.Asked("list")
		list, err := d.members.Members(ctx, pool, false)
		if err != nil && !fleet.Is(err, fleet.KindNotFound) {
			for key := range instances {
				b.tell(key, found{err: err})
			}
			return nil, throttling(err)
		}
		for _, m := range list {
			key := keyOf(m.Instance)
			// One whose addresses the list does not know is looked at more closely.
			if _, asked := instances[key]; asked && len(m.Addresses) > 0 && m.VMID != "" {
				b.tell(key, found{member: m})
				delete(instances, key)
			}
		}
	}
	return d.each(ctx, b, instances), nil
}

// each reads instances one by one, and returns those for which Azure throttled.
func (d *directory) each(ctx context.Context, b *batch, instances map[string]fleet.ResourceID) map[string]error {
	tooOften := map[string]error{}
	var wg sync.WaitGroup
	var mu sync.Mutex
	slots := make(chan struct{}, lonersAtOnce)
	n := 0
	for key, instance := range instances {
		if n++; n > loners {
			b.tell(key, found{err: &fleet.Error{Kind: fleet.KindThrottled, RetryAfter: listApart, Err: errors.New("too many instances at once that the scale set's list does not tell of")}})
			continue
		}
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			d.options.Asked("get")
			m, err := d.members.Member(ctx, instance)
			if err != nil {
				m = fleet.Member{}
				if fleet.Is(err, fleet.KindThrottled) {
					mu.Lock()
					tooOften[key] = err
					mu.Unlock()
				}
			}
			b.tell(key, found{m, err})
		})
	}
	wg.Wait()
	return tooOften
}

func throttling(err error) error {
	if fleet.Is(err, fleet.KindThrottled) {
		return err
	}
	return nil
}

// tell answers those who wait for an instance, each with an error of its own.
func (b *batch) tell(key string, f found) {
	for _, w := range b.waiters[key] {
		own := f
		if f.err != nil {
			e := &fleet.Error{Op: "look up instance", Resource: string(w.instance), Kind: fleet.KindOf(f.err), Err: f.err}
			if e.Kind == fleet.KindThrottled {
				e.RetryAfter = backOff(f.err)
			}
			own.err = e
		}
		w.answer <- own // of one answer each
	}
}

// turns limit one scale set's lists: a burst, a refill interval, and a minimum distance.
type turns struct {
	used float64
	at   time.Time // of the last
}

// usedAt is how many of the turns are taken.
func (t *turns) usedAt(now time.Time) float64 {
	return max(0, t.used-now.Sub(t.at).Seconds()/listEvery.Seconds())
}

func (t *turns) wait(now time.Time) time.Duration {
	if t.at.IsZero() {
		return 0
	}
	used := t.usedAt(now)
	apart := listApart
	if used >= listsAtOnce/2 {
		apart *= 2
	}
	wait := t.at.Add(apart).Sub(now)
	if over := used - (listsAtOnce - 1); over > 0 {
		// Rounded up: what is left over of a turn is no turn.
		wait = max(wait, time.Duration(over*float64(listEvery))+time.Millisecond)
	}
	return wait
}

func (t *turns) take(now time.Time) {
	if !t.at.IsZero() {
		t.used = t.usedAt(now)
	}
	t.used++
	t.at = now
}

func (t *turns) full(now time.Time) bool { return t.at.IsZero() || t.usedAt(now) == 0 }
