package controller

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ortet/ortet/azsim"
	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/azure/arm"
	"github.com/ortet/ortet/internal/boots/assess"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/wire"
	"github.com/ortet/ortet/test/azsimserver"
)

// cloud is an azure.Boots that the test fills.
type cloud struct {
	mu    sync.Mutex
	boots []fleet.Boot
	logs  map[fleet.ResourceID]string
}

func (c *cloud) Pools(context.Context, fleet.ResourceID) ([]fleet.Pool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return []fleet.Pool{{ID: somePool, Name: somePool.Name(), Orchestration: fleet.Uniform, Capacity: int64(len(c.boots)), Etag: fmt.Sprint(len(c.boots))}}, nil
}

func (c *cloud) Boots(context.Context, fleet.Pool) ([]fleet.Boot, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.boots), nil
}

func (c *cloud) SerialLog(_ context.Context, id fleet.ResourceID) ([]byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if text, ok := c.logs[id]; ok {
		return []byte(text), nil
	}
	return nil, &fleet.Error{Op: "read serial log", Kind: fleet.KindNotFound}
}

// consoles is a Substrate whose computers write what they are given to their serial
// consoles, and nothing else.
type consoles struct {
	azsim.NopSubstrate
	mu  sync.Mutex
	log map[string]string
}

func (c *consoles) Console(_ context.Context, id string) ([]byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return []byte(c.log[id]), nil
}

// write is what a computer writes next; id is its ARM id in lower case.
func (c *consoles) write(id fleet.Key, text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.log == nil {
		c.log = map[string]string{}
	}
	c.log[string(id)] += text
}

const someGroup = fleet.ResourceID("/subscriptions/" + azsim.DefaultSubscription + "/resourceGroups/" + azsim.DefaultResourceGroup)

// newPools makes pools of so many instances each, that boot at once.
func newPools(t testing.TB, s *azsim.Server, pools, each int) {
	t.Helper()
	for i := range pools {
		if err := (azsimserver.Pool{Name: fmt.Sprintf("pool%02d", i), Capacity: int64(each), Change: azsimserver.Bare}).CreateIn(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
}

// newBoots polls a simulated Azure through the real adapter, the requests
// counted by the budget.
func newBoots(t testing.TB, s *azsim.Server, budget *Budget) azure.Boots {
	t.Helper()
	client := &http.Client{Transport: budget.Meter(roundTripper{s.Transport()}, hostOf(s))}
	c, err := arm.New(arm.Options{Cloud: s.ClientOptions().Cloud, Credential: s.Credential(""), Transport: client, Version: "test"})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

type roundTripper struct{ *azsim.Transport }

func (r roundTripper) RoundTrip(q *http.Request) (*http.Response, error) { return r.Do(q) }

func hostOf(s *azsim.Server) string {
	for _, c := range s.ClientOptions().Cloud.Services {
		q, err := http.NewRequest(http.MethodGet, c.Endpoint, nil)
		if err == nil && q.URL.Host != "" {
			return q.URL.Host
		}
	}
	return ""
}

// A world is a poller before a simulated Azure, with whoever assesses what it
// finds; Nodes are played by the test.
type world struct {
	azure    *azsim.Server
	consoles *consoles
	fleet    *Fleet
	poller   *Poller
	budget   *Budget

	mu    sync.Mutex
	times []time.Time
	nodes map[fleet.Key]*assess.NodeView
}

func newWorld(t *testing.T, pools, each, perMinute int) *world {
	w := &world{consoles: &consoles{}, fleet: NewFleet(), nodes: map[fleet.Key]*assess.NodeView{}}
	var counting atomic.Bool
	w.azure = &azsim.Server{Substrate: w.consoles, OnRequest: func(r azsim.Request) {
		if r.Action == "" || !counting.Load() {
			return
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		w.times = append(w.times, time.Now())
	}}
	newPools(t, w.azure, pools, each)
	counting.Store(true)
	w.budget = NewBudget(perMinute, time.Now)
	w.poller = NewPoller(PollerConfig{
		Boots: newBoots(t, w.azure, w.budget), Metered: true, Budget: w.budget, Fleet: w.fleet, Groups: []fleet.ResourceID{someGroup}, Now: time.Now,
		Changed: func(keys []fleet.Key) {
			for _, k := range keys {
				w.assess(k)
			}
		},
	})
	return w
}

func (w *world) assess(k fleet.Key) assess.Assessment {
	known, ok := w.fleet.Get(k)
	if !ok {
		return assess.Assessment{}
	}
	w.mu.Lock()
	node := w.nodes[k]
	w.mu.Unlock()
	a := assess.Assess(known.Boot, node, known.Serial, known.Previous, time.Now(), assess.Deadlines{})
	w.fleet.Decided(k, a, known.Serial)
	return a
}

// ready plays a Node that is.
func (w *world) ready(k fleet.Key) {
	w.mu.Lock()
	w.nodes[k] = &assess.NodeView{Name: string(k), Ready: true, ReadySince: time.Now()}
	w.mu.Unlock()
	w.assess(k)
}

// most returns how many requests came in any minute at most.
func (w *world) most() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	most := 0
	for i := range w.times {
		n := 0
		for j := i; j < len(w.times) && w.times[j].Sub(w.times[i]) < time.Minute; j++ {
			n++
		}
		most = max(most, n)
	}
	return most
}

func (w *world) forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.times = nil
}

func (w *world) all() []fleet.Key {
	var out []fleet.Key
	for i := range 1000 {
		for j := range 1000 {
			k := fleet.KeyOf(fleet.ResourceID(fmt.Sprintf("%s/providers/Microsoft.Compute/virtualMachineScaleSets/pool%02d/virtualMachines/%d", someGroup, i, j)))
			if _, ok := w.fleet.Get(k); !ok {
				if j == 0 {
					return out
				}
				break
			}
			out = append(out, k)
		}
	}
	return out
}

// Five thousand instances cost no more than sixty requests in any minute, whether
// nothing happens, all is new, or a hundred of them fail; and what fails is known
// all the same.
func TestBudgetWithManyInstances(t *testing.T) {
	// A thousand instances with a fifth of the default budget: five thousand with all
	// of it take the same course, for longer.
	const pools, each, budget = 20, 50, 12
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, pools, each, budget)
		defer w.azure.Close()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { w.poller.Run(ctx); close(done) }()
		defer func() { cancel(); <-done }()

		begin := time.Now()
		for !w.poller.Complete() {
			time.Sleep(time.Second)
			if time.Since(begin) > time.Hour {
				t.Fatal("not every pool was listed within an hour")
			}
		}
		t.Logf("all %d pools listed after %s, at most %d requests in a minute", pools, time.Since(begin), w.most())
		keys := w.all()
		if len(keys) != pools*each {
			t.Fatalf("%d instances known", len(keys))
		}
		// All boot, and all but a few come up.
		bad := map[fleet.Key]bool{}
		for i, k := range keys {
			if i%50 == 7 {
				bad[k] = true
				known, _ := w.fleet.Get(k)
				v := aVerdict(wire.Failed, time.Minute, func(v *wire.Verdict) { v.VMID, v.Node, v.At = known.Boot.VMID, "", time.Now() })
				w.consoles.write(k, v.ConsoleLine()+"\r\n")
				continue
			}
			w.ready(k)
		}
		begin = time.Now()
		for left := len(bad); left > 0; {
			time.Sleep(time.Second)
			left = 0
			for k := range bad {
				if known, _ := w.fleet.Get(k); known.Previous.State != assess.Failed {
					left++
				}
			}
			if time.Since(begin) > time.Hour {
				t.Fatalf("%d failures not known after an hour", left)
			}
		}
		t.Logf("%d failures known after %s", len(bad), time.Since(begin))
		if n := w.most(); n > budget {
			t.Errorf("%d requests in a minute", n)
		}
		// What came up is looked at once while it is news, when nothing else is to be
		// done; then nothing happens.
		time.Sleep(30 * time.Minute)
		if n := w.most(); n > budget {
			t.Errorf("%d requests in a minute", n)
		}
		w.forget()
		time.Sleep(30 * time.Minute)
		w.mu.Lock()
		n := len(w.times)
		w.mu.Unlock()
		t.Logf("quiet: %.1f requests a minute, at most %d in one", float64(n)/30, w.most())
		if w.most() > budget || n == 0 {
			t.Errorf("%d requests in half an hour, %d in a minute", n, w.most())
		}
	})
}

// What a boot cost that ended with a Ready node, or that it did not last, is found
// on the serial console where no extension has it.
func TestSerialLogsOfReadyNodesAreReadOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1, 3, 60)
		defer w.azure.Close()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { w.poller.Run(ctx); close(done) }()
		defer func() { cancel(); <-done }()
		for !w.poller.Complete() {
			time.Sleep(time.Second)
		}
		keys := w.all()
		for i, outcome := range []wire.Outcome{wire.Succeeded, wire.Degraded, wire.Failed} {
			known, _ := w.fleet.Get(keys[i])
			w.ready(keys[i])
			v := aVerdict(outcome, time.Minute, func(v *wire.Verdict) { v.VMID, v.Node, v.At = known.Boot.VMID, "", time.Now() })
			w.consoles.write(keys[i], v.ConsoleLine()+"\r\n")
		}
		w.mu.Lock()
		w.nodes[keys[2]] = &assess.NodeView{Name: string(keys[2]), CameUp: true, ReadySince: time.Now()} // its kubelet crash-loops
		w.mu.Unlock()
		time.Sleep(5 * time.Minute)
		for i, want := range []assess.State{assess.Succeeded, assess.Degraded, assess.Failed} {
			known, _ := w.fleet.Get(keys[i])
			if a := known.Previous; a.State != want || a.Source != assess.FromConsole {
				t.Errorf("%s by %s, want %s by the console", a.State, a.Source, want)
			}
		}
		w.forget()
		time.Sleep(time.Hour)
		w.mu.Lock()
		n := len(w.times)
		w.mu.Unlock()
		if n > 160 { // groups every 30 s, the pool every 5 min
			t.Errorf("%d requests in an hour in which nothing happened", n)
		}
	})
}

// busy is an Azure that asks to wait before it gives a serial log.
type busy struct {
	*cloud
	refuse int
	asked  []time.Time
}

func (b *busy) SerialLog(ctx context.Context, id fleet.ResourceID) ([]byte, error) {
	b.asked = append(b.asked, time.Now())
	if len(b.asked) <= b.refuse {
		return nil, &fleet.Error{Op: "read serial log", Kind: fleet.KindThrottled, RetryAfter: 10 * time.Second}
	}
	return b.cloud.SerialLog(ctx, id)
}

// A failure waits for its serial log also where Azure asked to wait first, which is
// no reading of it.
func TestSerialLogIsAskedForAgain(t *testing.T) {
	for _, c := range []struct {
		refuse int
		inTime bool
	}{{1, true}, {3, true}, {100, false}} {
		synctest.Test(t, func(t *testing.T) {
			b := aBoot(func(b *fleet.Boot) { b.ProvisioningState, b.Created = "Failed", time.Now() })
			boots := &busy{cloud: &cloud{boots: []fleet.Boot{b}, logs: map[fleet.ResourceID]string{b.Instance: "[ 1.0] hello\r\n"}}, refuse: c.refuse}
			f := NewFleet()
			f.pools[fleet.KeyOf(somePool)] = &poolState{}
			f.took(fleet.KeyOf(somePool), boots.boots)
			a := assess.Assess(b, nil, nil, assess.Assessment{}, time.Now(), assess.Deadlines{})
			f.Decided(fleet.KeyOf(b.Instance), a, nil)
			p := NewPoller(PollerConfig{Boots: boots, Budget: NewBudget(60, time.Now), Fleet: f, Groups: []fleet.ResourceID{someGroup}, Now: time.Now})
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan struct{})
			go func() { p.Run(ctx); close(done) }()
			begin := time.Now()
			for f.serialPending(fleet.KeyOf(b.Instance), a, time.Now()) {
				time.Sleep(time.Second)
			}
			known, ok := f.Get(fleet.KeyOf(b.Instance))
			if waited := time.Since(begin); !ok || (len(known.Serial) > 0) != c.inTime || waited > serialPatience {
				t.Errorf("refused %d times: published after %s, with a log of %d bytes", c.refuse, waited, len(known.Serial))
			}
			time.Sleep(24 * time.Hour)
			if !c.inTime && len(boots.asked) > 2*maxReads {
				t.Errorf("asked %d times for what is always refused", len(boots.asked))
			}
			cancel()
			<-done
		})
	}
}

// denied is an Azure that lists scale sets and does not let anybody look at them.
type denied struct {
	sets  int
	mu    sync.Mutex
	lists map[fleet.ResourceID]int
}

func (d *denied) Pools(context.Context, fleet.ResourceID) ([]fleet.Pool, error) {
	var out []fleet.Pool
	for i := range d.sets {
		id := someGroup.In("virtualMachineScaleSets", fmt.Sprint("pool", i))
		out = append(out, fleet.Pool{ID: id, Name: id.Name()})
	}
	return out, nil
}

func (d *denied) Boots(_ context.Context, pool fleet.Pool) ([]fleet.Boot, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lists[pool.ID]++
	if pool.Name == "pool0" { // in which something happens
		return []fleet.Boot{aBoot(func(b *fleet.Boot) {
			b.Instance, b.Pool, b.Console = pool.ID.Child("virtualMachines", "0"), pool.ID, false
		})}, nil
	}
	return nil, &fleet.Error{Op: "list instances", Kind: fleet.KindDenied}
}

func (*denied) SerialLog(context.Context, fleet.ResourceID) ([]byte, error) {
	return nil, &fleet.Error{Op: "read serial log", Kind: fleet.KindDenied}
}

// listing is a cloud with these scale sets, and keeps which of them were listed.
type listing struct {
	cloud
	sets   []fleet.Pool
	listed map[string]bool
}

func (l *listing) Pools(context.Context, fleet.ResourceID) ([]fleet.Pool, error) { return l.sets, nil }

func (l *listing) Boots(_ context.Context, pool fleet.Pool) ([]fleet.Boot, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.listed[pool.ID.Name()] = true
	return nil, nil
}

// Of the named pools and their canaries, all is looked at; a scale set that only has a canary's
// name is another's.
func TestNamedPools(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &listing{listed: map[string]bool{}}
		for name, tag := range map[string]string{
			"web": "", "web-canary": "2026-11-27T12:00:00Z", "api": "", "api-canary": "", "db": "", "db-canary": "2026-11-27T12:00:00Z",
		} {
			l.sets = append(l.sets, fleet.Pool{ID: someGroup.In("virtualMachineScaleSets", name), Tags: map[string]string{fleet.TagCanary: tag}})
		}
		p := NewPoller(PollerConfig{Boots: l, Budget: NewBudget(60, time.Now), Fleet: NewFleet(), Now: time.Now,
			Pools: []fleet.ResourceID{someGroup.In("virtualMachineScaleSets", "web"), someGroup.In("virtualMachineScaleSets", "api")}})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { p.Run(ctx); close(done) }()
		time.Sleep(10 * time.Minute)
		cancel()
		<-done
		if got := slices.Sorted(maps.Keys(l.listed)); !slices.Equal(got, []string{"api", "web", "web-canary"}) {
			t.Errorf("listed were %v", got)
		}
	})
}

// What may not be read is asked for rarely, and does not keep the rest waiting.
func TestDeniedPoolsAreAskedForRarely(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		boots := &denied{sets: 50, lists: map[fleet.ResourceID]int{}}
		p := NewPoller(PollerConfig{Boots: boots, Budget: NewBudget(60, time.Now), Fleet: NewFleet(), Groups: []fleet.ResourceID{someGroup}, Now: time.Now})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { p.Run(ctx); close(done) }()
		time.Sleep(30 * time.Minute)
		boots.mu.Lock()
		clear(boots.lists)
		boots.mu.Unlock()
		time.Sleep(time.Hour)
		cancel()
		<-done
		all := 0
		for _, n := range boots.lists {
			all += n
		}
		lively := boots.lists[someGroup.In("virtualMachineScaleSets", "pool0")]
		if all-lively > 49*13 || lively < 110 {
			t.Errorf("in an hour %d lists that are denied, and %d of the pool in which something happens", all-lively, lively)
		}
	})
}
