package controller

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/boots/assess"
	"github.com/ortet/ortet/internal/fleet"
)

// How often the cloud is asked, where the budget allows.
const (
	DefaultInterval = 30 * time.Second
	// A pool in which nothing happens is listed this many times more rarely. It is
	// listed at once when its scale set or one of its Nodes changes.
	quietTimes = 10
	// workers is how many requests may be under way.
	workers = 4
	// patience is the longest that a list waits for what goes before it.
	patience = 15 * time.Minute
	// listTimeout bounds one list, which is read by pages.
	listTimeout = 5 * time.Minute
)

// A poolState is what the Poller knows of a pool.
type poolState struct {
	pool   fleet.Pool
	last   time.Time // when it was listed, zero before
	failed time.Time // when that failed last, zero where it did not
	fails  int       // how often since it was listed
	wanted bool      // something changed: list it now
	busy   bool
	cost   int // requests of a list
}

// PollerConfig is what a Poller needs. Boots, Budget, Fleet and Now are required.
type PollerConfig struct {
	Boots  azure.Boots
	Budget *Budget
	Fleet  *Fleet
	// Metered is that the requests are counted where they are sent (by
	// Budget.Meter); otherwise a call counts as one.
	Metered bool
	// Groups are the resource groups whose scale sets are polled; more are added by
	// AddGroup. Pools, if any, and their canaries are polled instead of all.
	Groups, Pools []fleet.ResourceID
	Interval      time.Duration // 0 is DefaultInterval
	Log           *slog.Logger
	Now           func() time.Time
	// Changed is called with the instances that changed, or are gone. It must not block
	// for long. It may be nil.
	Changed func(keys []fleet.Key)
	// Asked is called after each call of the cloud: "pools", "boots" or "serial", and its
	// error. It may be nil.
	Asked func(what string, err error)
}

// A Poller asks the cloud what it knows of instances: first what is needed most,
// and never more than its budget allows.
type Poller struct {
	c      PollerConfig
	wake   chan struct{}
	flying sync.WaitGroup

	mu     sync.Mutex
	groups map[fleet.Key]*groupState
	only   map[fleet.Key]bool
	turn   bool // a serial log was read last, so a list goes first
	n      int  // under way
}

type groupState struct {
	id     fleet.ResourceID
	last   time.Time
	busy   bool
	cost   int
	listed bool // once at least
	fails  int  // how often it was not, since it was
}

// NewPoller makes a Poller. It asks nothing before Run.
func NewPoller(c PollerConfig) *Poller {
	if c.Interval <= 0 {
		c.Interval = DefaultInterval
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Changed == nil {
		c.Changed = func([]fleet.Key) {}
	}
	if c.Asked == nil {
		c.Asked = func(string, error) {}
	}
	p := &Poller{c: c, wake: make(chan struct{}, 1), groups: map[fleet.Key]*groupState{}, only: map[fleet.Key]bool{}}
	for _, id := range c.Pools {
		p.only[fleet.KeyOf(id)] = true
		p.AddGroup(id.Group())
	}
	for _, g := range c.Groups {
		p.AddGroup(g)
	}
	return p
}

// AddGroup makes it poll the scale sets of a resource group too.
func (p *Poller) AddGroup(group fleet.ResourceID) {
	p.mu.Lock()
	k := fleet.KeyOf(group)
	if p.groups[k] == nil {
		p.groups[k] = &groupState{id: group, cost: 1}
	}
	p.mu.Unlock()
	p.Wake()
}

// Hurry makes a pool be listed as soon as may be: something happened to one of its
// instances.
func (p *Poller) Hurry(pool fleet.ResourceID) {
	f := p.c.Fleet
	f.mu.Lock()
	s := f.pools[fleet.KeyOf(pool)]
	if s != nil {
		s.wanted = true
	}
	f.mu.Unlock()
	if s != nil {
		p.Wake()
	}
}

// Wake makes it choose again what is to be asked.
func (p *Poller) Wake() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// Complete reports whether every pool was listed once, and that there is something
// to poll.
func (p *Poller) Complete() bool {
	p.mu.Lock()
	listed := len(p.groups) > 0
	for _, g := range p.groups {
		listed = listed && g.listed
	}
	p.mu.Unlock()
	if !listed {
		return false
	}
	f := p.c.Fleet
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range f.pools {
		if s.last.IsZero() {
			return false
		}
	}
	return true
}

// Run asks until ctx ends, which is no error.
func (p *Poller) Run(ctx context.Context) {
	defer p.flying.Wait()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		wait := p.begin(ctx)
		timer.Reset(wait)
		select {
		case <-ctx.Done():
			return
		case <-p.wake:
		case <-timer.C:
		}
	}
}

// begin starts what is due and may be sent, and returns how long to wait.
func (p *Poller) begin(ctx context.Context) time.Duration {
	for {
		p.mu.Lock()
		if p.n >= workers {
			p.mu.Unlock()
			return p.c.Interval // the next that ends wakes us
		}
		t, at := p.next(p.c.Now())
		if t == nil {
			p.mu.Unlock()
			return min(max(at.Sub(p.c.Now()), time.Millisecond), p.c.Interval)
		}
		if wait := p.c.Budget.reserve(t.cost); wait > 0 {
			p.mu.Unlock()
			return wait
		}
		t.mark(true)
		p.n++
		p.turn = t.serial
		p.mu.Unlock()
		p.flying.Go(func() {
			t.do(ctx)
			p.c.Budget.release(t.cost)
			p.mu.Lock()
			t.mark(false)
			p.n--
			p.mu.Unlock()
			p.Wake()
		})
	}
}

// A task is a call that could be made. mark is called with the Poller locked.
type task struct {
	class  int // less goes first
	due    time.Time
	cost   int
	serial bool
	mark   func(busy bool)
	do     func(context.Context)
}

// The classes of tasks.
const (
	classGroup = iota
	classWanted
	classFailed // the serial log of a boot that failed
	classLively
	classSilent // the serial log of an instance that reports nothing
	classQuiet
	classReady // the serial log of an instance that came up
)

// next returns what to do now; if there is nothing, when there will be.
func (p *Poller) next(now time.Time) (*task, time.Time) {
	var list, serial *task
	soon := now.Add(p.c.Interval)
	offer := func(t task) {
		if t.due.After(now) {
			if t.due.Before(soon) {
				soon = t.due
			}
			return
		}
		if now.Sub(t.due) > patience && t.class != classReady {
			t.class = min(t.class, classWanted)
		}
		best := &list
		if t.serial {
			best = &serial
		}
		if *best == nil || cmp.Or(cmp.Compare(t.class, (*best).class), t.due.Compare((*best).due)) < 0 {
			*best = &t
		}
	}
	for _, g := range p.groups {
		if !g.busy {
			offer(task{class: classGroup, due: g.last.Add(p.pause(g.fails)), cost: g.cost,
				mark: func(b bool) { g.busy = b }, do: func(ctx context.Context) { p.listPools(ctx, g) }})
		}
	}
	f := p.c.Fleet
	f.mu.Lock()
	defer f.mu.Unlock()
	lively := map[fleet.Key]bool{}
	for key, s := range f.all {
		a := s.assessment
		if !a.State.Final() && a.State != assess.Stopped && a.State != assess.Unclear {
			lively[fleet.KeyOf(s.boot.Pool)] = true
		}
		if !s.reads.wants(s.boot, a, now) {
			continue
		}
		class := classSilent
		switch {
		case a.State.Bad():
			class = classFailed
		case a.State == assess.Succeeded:
			class = classReady
		}
		offer(task{class: class, due: s.reads.due(s.boot, a, now), cost: 1, serial: true,
			mark: func(b bool) { p.onInstance(key, func(s *instanceState) { s.reads.busy = b }) },
			do:   func(ctx context.Context) { p.readSerial(ctx, key) }})
	}
	for key, s := range f.pools {
		if s.busy {
			continue
		}
		class, due := classQuiet, s.last.Add(quietTimes*p.c.Interval)
		switch {
		case s.last.IsZero() && s.failed.IsZero():
			class, due = classWanted, time.Time{}
		case s.wanted && s.failed.IsZero():
			class, due = classWanted, s.last.Add(min(5*time.Second, p.c.Interval))
		case s.wanted || lively[key]:
			class, due = classLively, s.last.Add(p.c.Interval)
		}
		if again := s.failed.Add(p.pause(s.fails)); !s.failed.IsZero() && again.After(due) {
			due = again
		}
		if due.IsZero() {
			due = now
		}
		offer(task{class: class, due: due, cost: s.cost,
			mark: func(b bool) { p.onPool(key, func(s *poolState) { s.busy = b }) },
			do:   func(ctx context.Context) { p.listBoots(ctx, key) }})
	}
	// Neither serial logs nor lists keep the other from their turn, but for the logs
	// of what came up.
	if serial == nil || list != nil && (list.class == classGroup || serial.class == classReady || p.turn) {
		return list, soon
	}
	return serial, soon
}

// mark is called between locks, so these acquire the Fleet's again.
func (p *Poller) onPool(key fleet.Key, do func(*poolState)) {
	p.c.Fleet.mu.Lock()
	defer p.c.Fleet.mu.Unlock()
	if s := p.c.Fleet.pools[key]; s != nil {
		do(s)
	}
}

func (p *Poller) onInstance(key fleet.Key, do func(*instanceState)) {
	p.c.Fleet.mu.Lock()
	defer p.c.Fleet.mu.Unlock()
	if s := p.c.Fleet.all[key]; s != nil {
		do(s)
	}
}

// pause is how long after so many failures something is asked again: where access
// was taken away, what cannot be read must not use up the budget of what can.
func (p *Poller) pause(fails int) time.Duration {
	return min(p.c.Interval<<min(max(fails-1, 0), 10), quietTimes*p.c.Interval)
}

// asked does what follows from any call.
func (p *Poller) asked(ctx context.Context, what string, on fleet.ResourceID, err error) {
	if !p.c.Metered {
		p.c.Budget.spend()
	}
	p.c.Asked(what, err)
	if err == nil || ctx.Err() != nil {
		return
	}
	if fleet.Is(err, fleet.KindThrottled) {
		wait := time.Minute
		if e := new(fleet.Error); errors.As(err, &e) && e.RetryAfter > 0 {
			wait = min(e.RetryAfter, 10*time.Minute)
		}
		p.c.Budget.block(wait)
	}
	p.c.Log.WarnContext(ctx, "cloud not read", "what", what, "on", string(on), "error", err)
}

// listPools learns which scale sets there are, and which changed.
func (p *Poller) listPools(ctx context.Context, g *groupState) {
	within, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	before := p.c.Budget.Spent()
	list, err := p.c.Boots.Pools(within, g.id)
	p.asked(ctx, "pools", g.id, err)
	now := p.c.Now()
	p.mu.Lock()
	g.last = now
	if err == nil || fleet.Is(err, fleet.KindNotFound) {
		g.listed, g.fails = true, 0
	} else {
		g.fails++
	}
	if n := p.c.Budget.Spent() - before; err == nil && p.n == 1 && n > 0 {
		g.cost = int(n)
	}
	p.mu.Unlock()
	if err != nil && !fleet.Is(err, fleet.KindNotFound) {
		return
	}
	var gone []fleet.Key
	f := p.c.Fleet
	f.mu.Lock()
	seen := map[fleet.Key]bool{}
	for _, pool := range list {
		k := fleet.KeyOf(pool.ID)
		of, _, _ := pool.Canary()
		if len(p.only) > 0 && !p.only[k] && !p.only[fleet.KeyOf(of)] {
			continue
		}
		seen[k] = true
		s := f.pools[k]
		if s == nil {
			s = &poolState{cost: 1}
			f.pools[k] = s
		} else if s.pool.Etag != pool.Etag || s.pool.Capacity != pool.Capacity || s.pool.ProvisioningState != pool.ProvisioningState {
			s.wanted = true
		}
		s.pool = fleet.Pool{
			ID: pool.ID, Name: pool.Name, Orchestration: pool.Orchestration,
			Etag: pool.Etag, Capacity: pool.Capacity, ProvisioningState: pool.ProvisioningState,
			Overprovision: pool.Overprovision, Recreates: pool.Recreates,
		}
	}
	for k, s := range f.pools {
		if fleet.KeyOf(s.pool.ID.Group()) == fleet.KeyOf(g.id) && !seen[k] && !s.busy {
			delete(f.pools, k)
			for i, x := range f.all {
				if fleet.KeyOf(x.boot.Pool) == k {
					f.drop(i, x)
					gone = append(gone, i)
				}
			}
		}
	}
	f.mu.Unlock()
	slices.Sort(gone)
	p.notify(gone)
}

func (p *Poller) notify(keys []fleet.Key) {
	if len(keys) > 0 {
		p.c.Changed(keys)
	}
}

// listBoots lists a pool.
func (p *Poller) listBoots(ctx context.Context, key fleet.Key) {
	var pool fleet.Pool
	p.onPool(key, func(s *poolState) { pool, s.wanted = s.pool, false })
	within, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	list, err := p.c.Boots.Boots(within, pool)
	p.asked(ctx, "boots", pool.ID, err)
	now := p.c.Now()
	missing := fleet.Is(err, fleet.KindNotFound)
	p.onPool(key, func(s *poolState) {
		if err != nil && !missing {
			s.failed, s.wanted = now, true
			s.fails++
			return
		}
		s.failed, s.fails = time.Time{}, 0
		s.last = now
		s.cost = max(1, (len(list)+instancesPerPage-1)/instancesPerPage)
	})
	if err != nil && !missing {
		return
	}
	changed, gone := p.c.Fleet.took(key, list)
	p.notify(append(changed, gone...))
}

// instancesPerPage is how many instances Azure returns in a page, as a guess of
// what a list will cost: what it really cost is counted.
const instancesPerPage = 50

// readSerial reads an instance's serial log for whoever assesses it.
func (p *Poller) readSerial(ctx context.Context, key fleet.Key) {
	known, ok := p.c.Fleet.Get(key)
	if !ok {
		return
	}
	within, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	log, err := p.c.Boots.SerialLog(within, known.Boot.Instance)
	unsupported, missing := fleet.Is(err, fleet.KindUnsupported), fleet.Is(err, fleet.KindNotFound)
	if unsupported || missing {
		p.asked(ctx, "serial", known.Boot.Instance, nil)
	} else {
		p.asked(ctx, "serial", known.Boot.Instance, err)
	}
	now := p.c.Now()
	denied := fleet.Is(err, fleet.KindDenied)
	p.onInstance(key, func(s *instanceState) {
		s.reads.last = now
		if err != nil && !unsupported && !missing && !denied {
			s.reads.failed++
			return
		}
		s.reads.n++
		s.reads.failed = 0
		s.reads.never = unsupported || denied
		if err == nil && len(log) > 0 {
			s.serial = log
		}
	})
	p.notify([]fleet.Key{key}) // also that there was nothing to read
}
