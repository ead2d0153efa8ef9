package admission

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ortet/ortet/internal/fleet"
)

func evictionOf(n int, ago time.Duration, counted bool) Eviction {
	return Eviction{Instance: reapInstance(n), VMID: oldVM, At: reapNow.Add(-ago), Counted: counted}
}

func TestDecideCapacity(t *testing.T) {
	kept := func(capacity, seen int64, evictions ...Eviction) Desire {
		return Desire{Capacity: capacity, Seen: seen, Evictions: evictions, Version: "1"}
	}
	gone := func(instances ...int) map[string]bool {
		out := map[string]bool{}
		for _, n := range instances {
			out[keyOf(reapInstance(n))] = true
		}
		return out
	}
	m := time.Minute
	for name, tc := range map[string]struct {
		d        Desire
		capacity int64
		gone     map[string]bool
		want     Desire
		to       int64
	}{
		"the first look":                       {Desire{}, 5, nil, Desire{Capacity: 5, Seen: 5}, 0},
		"the first look, at nothing":           {Desire{}, 0, nil, Desire{}, 0},
		"the first look, after a word":         {Desire{Evictions: []Eviction{evictionOf(1, m, false)}, Version: "1"}, 5, nil, kept(5, 5, evictionOf(1, m, false)), 0},
		"nothing happened":                     {kept(5, 5), 5, nil, kept(5, 5), 0},
		"somebody raised":                      {kept(5, 5), 7, nil, kept(7, 7), 0},
		"somebody lowered":                     {kept(5, 5), 3, nil, kept(3, 3), 0},
		"somebody set 0":                       {kept(5, 5), 0, nil, kept(0, 0), 0},
		"an eviction is to come":               {kept(5, 5, evictionOf(1, m, false)), 5, nil, kept(5, 5, evictionOf(1, m, false)), 0},
		"an eviction":                          {kept(5, 5, evictionOf(1, m, false)), 4, gone(1), kept(5, 4, evictionOf(1, m, true)), 5},
		"two evictions":                        {kept(5, 5, evictionOf(1, m, false), evictionOf(2, m, false)), 3, gone(1, 2), kept(5, 3, evictionOf(1, m, true), evictionOf(2, m, true)), 5},
		"two, of which one is seen":            {kept(5, 5, evictionOf(1, m, false), evictionOf(2, m, false)), 4, gone(1, 2), kept(5, 4, evictionOf(1, m, true), evictionOf(2, m, false)), 5},
		"an eviction and a person":             {kept(5, 5, evictionOf(1, m, false)), 3, gone(1), kept(3, 3, evictionOf(1, m, true)), 0},
		"a person before an eviction":          {kept(5, 5, evictionOf(1, m, false)), 4, gone(), kept(4, 4, evictionOf(1, m, false)), 0},
		"and the eviction":                     {kept(4, 4, evictionOf(1, m, false)), 3, gone(1), kept(4, 3, evictionOf(1, m, true)), 4},
		"a fall that was counted before":       {kept(5, 5, evictionOf(1, m, true)), 4, gone(1), kept(4, 4, evictionOf(1, m, true)), 0},
		"an eviction long ago":                 {kept(5, 5, evictionOf(1, 16*m, false)), 4, gone(1), kept(4, 4), 0},
		"instances that cannot be asked for":   {kept(5, 5, evictionOf(1, m, false)), 4, nil, kept(5, 5, evictionOf(1, m, false)), 0},
		"not restored yet":                     {kept(5, 4, evictionOf(1, m, true)), 4, nil, kept(5, 4, evictionOf(1, m, true)), 5},
		"restored":                             {kept(5, 4, evictionOf(1, m, true)), 5, nil, kept(5, 5, evictionOf(1, m, true)), 0},
		"somebody raised before":               {kept(5, 3), 4, nil, kept(4, 4), 0},
		"somebody raised beyond":               {kept(5, 3), 8, nil, kept(8, 8), 0},
		"somebody lowered before":              {kept(5, 3), 2, nil, kept(2, 2), 0},
		"another eviction before":              {kept(5, 4, evictionOf(1, m, true), evictionOf(2, m, false)), 3, gone(1, 2), kept(5, 3, evictionOf(1, m, true), evictionOf(2, m, true)), 5},
		"it failed just now":                   {Desire{Capacity: 5, Seen: 4, Failures: 1, NotBefore: reapNow.Add(m), Version: "1"}, 4, nil, Desire{Capacity: 5, Seen: 4, Failures: 1, NotBefore: reapNow.Add(m), Version: "1"}, 0},
		"it failed a while ago":                {Desire{Capacity: 5, Seen: 4, Failures: 1, NotBefore: reapNow, Version: "1"}, 4, nil, Desire{Capacity: 5, Seen: 4, Failures: 1, NotBefore: reapNow, Version: "1"}, 5},
		"it failed again and again":            {Desire{Capacity: 5, Seen: 4, Failures: tooManyFailures, Version: "1"}, 4, nil, Desire{Capacity: 5, Seen: 4, Failures: tooManyFailures, Version: "1"}, 0},
		"it failed, and somebody set a number": {Desire{Capacity: 5, Seen: 4, Failures: tooManyFailures, NotBefore: reapNow.Add(m), Version: "1"}, 3, nil, kept(3, 3), 0},
	} {
		if tc.capacity > 0 && name != "the first look" || name == "somebody set 0" {
			tc.want.Version = "1"
		}
		got, to := decideCapacity(tc.d, capacitySeen{tc.capacity, tc.gone}, reapNow)
		if len(got.Evictions) == 0 {
			got.Evictions = nil
		}
		if !reflect.DeepEqual(got, tc.want) || to != tc.to {
			t.Errorf("%s: %+v, to %d\nwant %+v, to %d", name, got, to, tc.want, tc.to)
		}
	}

	d := kept(5, 5)
	for n, want := range []time.Duration{2, 4, 8, 16, 32, 60, 60, 60} {
		d = failedToRestore(d, 4, reapNow)
		if d.Failures != n+1 || d.NotBefore.Sub(reapNow) != want*time.Minute || d.Seen != 4 || d.Capacity != 5 {
			t.Errorf("%+v, want %v min", d, int(want))
		}
	}
}

// memoryDesires are Desires in memory.
type memoryDesires struct {
	mu   sync.Mutex
	kept map[string]Desire
	n    int
	err  error
}

func (m *memoryDesires) Desire(_ context.Context, pool fleet.ResourceID) (Desire, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	d := m.kept[keyOf(pool)]
	d.Evictions = slices.Clone(d.Evictions)
	return d, m.err
}

func (m *memoryDesires) SetDesire(_ context.Context, pool fleet.ResourceID, d Desire) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err != nil {
		return m.err
	}
	if m.kept[keyOf(pool)].Version != d.Version {
		return &fleet.Error{Op: "keep", Kind: fleet.KindStale}
	}
	if m.kept == nil {
		m.kept = map[string]Desire{}
	}
	m.n++
	d.Version = strings.Repeat("v", m.n)
	m.kept[keyOf(pool)] = d
	return nil
}

// A spotSet is a Spot scale set with the eviction policy Delete, which does at once what
// it is told.
type spotSet struct {
	have     map[string]fleet.Member
	next     int
	capacity int64
	set      []int64 // what the Keeper set
	etag     int
	policy   string
	flexible bool
	refuse   error // of Begin
	fails    error // of Poll, with the capacity as it was
	before   int64
	listErr  error
	// between is called between a read and the change that was decided on it.
	between func()
	// looked is called at each look.
	looked func()
}

func newSpotSet(n int64) *spotSet {
	s := &spotSet{have: map[string]fleet.Member{}, policy: "Delete"}
	s.scale(n)
	return s
}

// scale is what a person or an autoscaler does.
func (s *spotSet) scale(n int64) {
	s.etag++
	for ; s.capacity < n; s.capacity++ {
		id := reapInstance(s.next)
		s.next++
		s.have[keyOf(id)] = fleet.Member{Instance: id, Pool: reapPool, VMID: "vm of " + id.Name(), ProvisioningState: "Succeeded"}
	}
	for _, key := range slices.Sorted(maps.Keys(s.have)) {
		if s.capacity <= n {
			break
		}
		delete(s.have, key)
		s.capacity--
	}
}

// evict takes one away.
func (s *spotSet) evict(m fleet.Member) {
	if _, there := s.have[keyOf(m.Instance)]; !there {
		return
	}
	s.etag++
	delete(s.have, keyOf(m.Instance))
	s.capacity--
}

func (s *spotSet) any() fleet.Member {
	for _, key := range slices.Sorted(maps.Keys(s.have)) {
		return s.have[key]
	}
	return fleet.Member{}
}

func (s *spotSet) Pool(context.Context, fleet.ResourceID) (fleet.Pool, error) {
	if s.looked != nil {
		s.looked()
	}
	p := fleet.Pool{ID: reapPool, Name: "agents", Capacity: s.capacity, Spot: true, EvictionPolicy: s.policy, Etag: strings.Repeat("e", s.etag), Orchestration: fleet.Uniform}
	if s.flexible {
		p.Orchestration = "Flexible"
	}
	return p, nil
}

func (s *spotSet) Begin(_ context.Context, change fleet.Change) (fleet.Token, error) {
	if s.between != nil {
		s.between()
	}
	c, ok := change.(fleet.SetCapacity)
	switch {
	case !ok || !c.Pool.Equal(reapPool):
		return "", errors.New("no change of a Keeper's")
	case c.Etag != strings.Repeat("e", s.etag):
		return "", &fleet.Error{Op: c.Verb(), Kind: fleet.KindStale}
	case s.refuse != nil:
		return "", s.refuse
	}
	s.set = append(s.set, c.Capacity)
	s.before = s.capacity
	s.scale(c.Capacity)
	return "token", nil
}

func (s *spotSet) Poll(context.Context, fleet.Token) (fleet.Progress, error) {
	if s.fails != nil {
		s.scale(s.before)
	}
	return fleet.Progress{Done: true}, s.fails
}

func (s *spotSet) Member(context.Context, fleet.ResourceID) (fleet.Member, error) {
	return fleet.Member{}, errors.New("not asked for")
}

func (s *spotSet) Members(context.Context, fleet.ResourceID, bool) ([]fleet.Member, error) {
	return slices.Collect(maps.Values(s.have)), s.listErr
}

type keeperWorld struct {
	t *testing.T
	*Keeper
	set *spotSet
	d   *memoryDesires
	now time.Time
}

// Instances returns none: each change takes effect at once.
func (s *spotSet) Instances(context.Context, fleet.ResourceID) ([]fleet.Instance, error) {
	return nil, nil
}

// TestHole08: Azure lists no machines below a Flexible scale set, whose capacity comes back
// all the same.
func TestHole08CapacityOfAFlexiblePool(t *testing.T) {
	w := newKeeperWorld(t, 3)
	w.set.flexible = true
	m := w.set.any()
	if err := w.Evicted(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	w.set.evict(m)
	w.round()
	w.round()
	if w.set.capacity != 3 {
		t.Errorf("a capacity of %d, want 3", w.set.capacity)
	}
}

func newKeeperWorld(t *testing.T, n int64) *keeperWorld {
	t.Helper()
	w := &keeperWorld{t: t, set: newSpotSet(n), d: &memoryDesires{}, now: reapNow}
	w.start()
	w.round()
	return w
}

// start is a new process.
func (w *keeperWorld) start() {
	w.t.Helper()
	k, err := NewKeeper(KeeperConfig{Desires: w.d, Scaler: w.set, Members: w.set, Pools: []fleet.ResourceID{reapPool}, Log: slog.New(slog.DiscardHandler), Now: func() time.Time { return w.now }})
	if err != nil {
		w.t.Fatal(err)
	}
	w.Keeper = k
}

func (w *keeperWorld) round() {
	w.t.Helper()
	w.now = w.now.Add(30 * time.Second)
	if err := w.Round(w.t.Context()); err != nil {
		w.t.Error(err)
	}
}

// told has the node tell of its eviction, which comes.
func (w *keeperWorld) told(m fleet.Member) {
	w.t.Helper()
	if err := w.Evicted(w.t.Context(), m); err != nil {
		w.t.Error(err)
	}
	w.set.evict(m)
}

func (w *keeperWorld) want(capacity int64, set ...int64) {
	w.t.Helper()
	if w.set.capacity != capacity || !slices.Equal(w.set.set, set) {
		w.t.Errorf("the capacity is %d, set to %v; want %d, %v", w.set.capacity, w.set.set, capacity, set)
	}
}

func TestKeeperRestores(t *testing.T) {
	w := newKeeperWorld(t, 5)
	w.told(w.set.any())
	w.round()
	w.want(5, 5)
	w.round()
	w.want(5, 5)
	// Several, told of twice, through a restart of the process.
	for range 3 {
		m := w.set.any()
		if err := w.Evicted(t.Context(), m); err != nil {
			t.Error(err)
		}
		w.start()
		w.told(m)
	}
	w.round()
	w.want(5, 5, 5)
	// A wish is followed, up and down, and evictions after it are restored to it.
	w.set.scale(8)
	w.round()
	w.set.scale(2)
	w.round()
	w.want(2, 5, 5)
	w.told(w.set.any())
	w.round()
	w.want(2, 5, 5, 2)
	// One that told of nothing is not told from a wish.
	w.set.evict(w.set.any())
	w.round()
	w.round()
	w.want(1, 5, 5, 2)
	// Of another scale set nothing is kept.
	if err := w.Evicted(t.Context(), fleet.Member{Instance: reapOther.Child("virtualMachines", "1"), Pool: reapOther}); err != nil || len(w.d.kept) != 1 {
		t.Errorf("%v, %v", err, w.d.kept)
	}
}

// An autoscaler that lowers in the same moment is followed, or contradicted once.
func TestKeeperFightsNobody(t *testing.T) {
	w := newKeeperWorld(t, 5)
	// It lowers while an eviction is still to come: it is followed.
	last := slices.Sorted(maps.Keys(w.set.have))[4]
	m := w.set.have[last]
	if err := w.Evicted(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	w.set.scale(4)
	w.round()
	w.want(4)
	w.set.evict(m)
	w.round()
	w.want(4, 4)
	// It wants one less, and an eviction was as quick: it is contradicted, and then not
	// any more.
	w.told(w.set.any())
	w.round()
	w.want(4, 4, 4)
	w.set.scale(3)
	w.round()
	w.round()
	w.want(3, 4, 4)
	// Somebody sets a number between our look and our change.
	w.told(w.set.any())
	w.set.between = func() { w.set.scale(1) }
	w.round()
	w.set.between = nil
	w.round()
	w.round()
	w.want(1, 4, 4)
}

// What fails is tried again later, and not for ever; what cannot be found out changes
// nothing.
func TestKeeperFailures(t *testing.T) {
	w := newKeeperWorld(t, 5)
	w.set.fails = &fleet.Error{Op: "set capacity", Kind: fleet.KindBlocked, Code: "AllocationFailed"}
	w.told(w.set.any())
	for range 10 * 60 * 2 {
		w.round()
	}
	if n := len(w.set.set); n != tooManyFailures || w.set.capacity != 4 {
		t.Errorf("tried %d times, capacity %d", n, w.set.capacity)
	}
	w.set.fails = nil
	w.told(w.set.any())
	w.round()
	w.round()
	if w.set.capacity != 5 {
		t.Errorf("capacity %d after another eviction", w.set.capacity)
	}
	// Refused at once, for want of quota.
	w.set.set = nil
	w.set.refuse = &fleet.Error{Op: "set capacity", Kind: fleet.KindBlocked}
	w.told(w.set.any())
	w.round()
	w.round()
	w.set.refuse = nil
	w.round()
	w.want(4)
	for range 4 {
		w.round()
	}
	w.want(5, 5)
	// Without an answer about the instances nothing is concluded.
	w.set.set = nil
	w.told(w.set.any())
	w.set.listErr = &fleet.Error{Op: "list", Kind: fleet.KindTransient}
	if err := w.Round(t.Context()); !fleet.Is(err, fleet.KindTransient) {
		t.Error(err)
	}
	w.set.listErr = nil
	w.round()
	w.want(5, 5)
	// Nor while the cluster cannot be asked.
	w.told(w.set.any())
	w.d.err = errors.New("the API server is away")
	if err := w.Round(t.Context()); !errors.Is(err, w.d.err) || w.set.capacity != 4 {
		t.Error(err)
	}
	w.d.err = nil
	w.round()
	w.want(5, 5, 5)
	// A scale set that keeps its capacity by itself.
	w.set.policy = "Deallocate"
	if err := w.Round(t.Context()); !fleet.Is(err, fleet.KindUnsupported) {
		t.Error(err)
	}
}

// Whatever happens in whatever order, nothing is raised above what somebody set, and a
// wish is the end of it.
func TestKeeperAtRandom(t *testing.T) {
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 1))
		w := newKeeperWorld(t, 5)
		most := int64(5) // of all wishes
		for range 60 {
			switch random.IntN(6) {
			case 0:
				wish := random.Int64N(9)
				most = max(most, wish)
				w.set.scale(wish)
			case 1, 2:
				w.told(w.set.any())
			case 3:
				w.start()
			default:
				before := len(w.set.set)
				desired := w.d.kept[keyOf(reapPool)].Capacity
				w.round()
				if len(w.set.set) > before && w.set.capacity != desired {
					t.Fatalf("seed %d: set to %d, and %d was desired", seed, w.set.capacity, desired)
				}
			}
			if w.set.capacity > most {
				t.Fatalf("seed %d: a capacity of %d, which nobody ever set", seed, w.set.capacity)
			}
		}
		// In peace, the last wish holds.
		w.now = w.now.Add(time.Hour)
		w.round()
		w.set.scale(3)
		w.round()
		w.told(w.set.any())
		w.round()
		w.round()
		if w.set.capacity != 3 {
			t.Fatalf("seed %d: %d instances, want 3", seed, w.set.capacity)
		}
	}
}

func TestKeeperRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newKeeperWorld(t, 3)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		looks := 0
		w.set.looked = func() {
			if looks++; looks == 3 {
				w.told(w.set.any())
			}
		}
		if err := w.Run(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		w.want(3, 3)
	})
	if _, err := NewKeeper(KeeperConfig{}); !fleet.Is(err, fleet.KindInvalid) {
		t.Error(err)
	}
}
