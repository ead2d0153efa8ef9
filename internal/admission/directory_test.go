package admission_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ortet/ortet/internal/admission"
	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/fleet"
)

const (
	poolA = fleet.ResourceID("/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachineScaleSets/a")
	poolF = fleet.ResourceID("/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachineScaleSets/flex")
)

func inPool(pool fleet.ResourceID, n int) fleet.ResourceID {
	if pool == poolF {
		return pool.In("virtualMachines", fmt.Sprintf("flex_%08x", n))
	}
	return pool.Child("virtualMachines", strconv.Itoa(n))
}

// A moving cloud answers with the time at which it was asked: in Created, so that it
// shows which answers are from before a question.
type moving struct {
	mu      sync.Mutex
	takes   time.Duration
	have    map[fleet.ResourceID]int // instances of a pool
	gone    map[string]bool
	listErr error
	getErr  error
	lists   int
	gets    int
	running int
	ended   []error // of the requests' contexts
	bare    map[string]bool
}

func (m *moving) ask(ctx context.Context, n *int) (time.Time, error) {
	m.mu.Lock()
	*n++
	m.running++
	began := time.Now()
	m.mu.Unlock()
	t := time.NewTimer(m.takes)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.running--
	if err := ctx.Err(); err != nil {
		m.ended = append(m.ended, err)
		return began, &fleet.Error{Op: "get", Err: err}
	}
	return began, nil
}

func memberAt(id, pool fleet.ResourceID, began time.Time) fleet.Member {
	return fleet.Member{Instance: fleet.ResourceID(strings.ToUpper(string(id))), Pool: pool, VMID: "vm of " + id.Name(), HostName: "h", Created: began, Addresses: []netip.Addr{netip.AddrFrom4([4]byte{10, 0, 0, 4})}}
}

func (m *moving) poolOf(id fleet.ResourceID) fleet.ResourceID {
	if id.Segment("virtualMachineScaleSets") == "" {
		return poolF
	}
	return id.Parent()
}

func (m *moving) Member(ctx context.Context, id fleet.ResourceID) (fleet.Member, error) {
	began, err := m.ask(ctx, &m.gets)
	if err == nil {
		err = m.getErr
	}
	if err != nil {
		return fleet.Member{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.gone[strings.ToLower(string(id))] {
		return fleet.Member{}, &fleet.Error{Op: "get member", Resource: string(id), Kind: fleet.KindNotFound}
	}
	return memberAt(id, m.poolOf(id), began), nil
}

func (m *moving) Members(ctx context.Context, pool fleet.ResourceID, _ bool) ([]fleet.Member, error) {
	began, err := m.ask(ctx, &m.lists)
	if err == nil {
		err = m.listErr
	}
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []fleet.Member
	for n := range m.have[pool] {
		id := inPool(pool, n)
		if m.gone[strings.ToLower(string(id))] {
			continue
		}
		x := memberAt(id, pool, began)
		if m.bare[string(id)] {
			x.Addresses = nil
		}
		out = append(out, x)
	}
	return out, nil
}

func (m *moving) asked() (lists, gets int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.lists, m.gets
}

// wantFresh asks and says whether the answer is right: about the instance, and begun
// after it was asked for.
func wantFresh(t *testing.T, d admission.Directory, id fleet.ResourceID) {
	t.Helper()
	asked := time.Now()
	got, err := d.Member(t.Context(), id)
	if err != nil || !got.Instance.Equal(id) || got.VMID != "vm of "+id.Name() || len(got.Addresses) != 1 {
		t.Errorf("%s: %+v, %v", id, got, err)
	}
	if got.Created.Before(asked) {
		t.Errorf("%s: asked at %v, and the answer was begun at %v", id, asked, got.Created)
	}
}

// A wave of a thousand nodes within ten seconds costs a few lists, everybody has a
// fresh answer within seconds, and all of it passes under Azure's limits.
func TestDirectoryWave(t *testing.T) {
	for _, pool := range []fleet.ResourceID{poolA, poolF} {
		for _, takes := range []time.Duration{20 * time.Millisecond, 1500 * time.Millisecond} {
			t.Run(pool.Name()+" "+takes.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					m := &moving{takes: takes, have: map[fleet.ResourceID]int{pool: 1000}}
					counted := map[string]int{}
					var mu sync.Mutex
					d := admission.NewDirectory(azure.LimitMembers(m, azure.Limits{}), admission.DirectoryOptions{Pools: []fleet.ResourceID{poolA, poolF}, Asked: func(kind string) {
						mu.Lock()
						defer mu.Unlock()
						counted[kind]++
					}})
					longest := make([]time.Duration, 1000)
					var wg sync.WaitGroup
					for n := range 1000 {
						wg.Go(func() {
							time.Sleep(time.Duration(n) * 10 * time.Millisecond)
							asked := time.Now()
							wantFresh(t, d, inPool(pool, n))
							longest[n] = time.Since(asked)
						})
					}
					wg.Wait()
					lists, gets := m.asked()
					// One who comes alone right after a list may be asked for by himself.
					if lists > 10 || gets > lists {
						t.Errorf("%d lists and %d gets", lists, gets)
					}
					if !maps.Equal(counted, map[string]int{"list": lists, "get": gets}) {
						t.Errorf("counted %v of %d lists and %d gets", counted, lists, gets)
					}
					if worst := slices.Max(longest); worst > 2*takes+2*time.Second+time.Millisecond {
						t.Errorf("somebody waited for %v", worst)
					}
				})
			})
		}
	}
}

// One who asks alone costs a look at one instance, and one instance that many ask for
// too.
func TestDirectoryAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &moving{takes: time.Second, have: map[fleet.ResourceID]int{poolA: 1000}}
		d := admission.NewDirectory(m, admission.DirectoryOptions{})
		wantFresh(t, d, inPool(poolA, 1))
		wantFresh(t, d, inPool(poolA, 1))
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() { wantFresh(t, d, inPool(poolA, 2)) })
		}
		wg.Wait()
		// Nobody knows the pool of this one: it is asked for by itself, beside others.
		for n := range 3 {
			wg.Go(func() { wantFresh(t, d, inPool(poolF, n)) })
		}
		wg.Wait()
		if lists, gets := m.asked(); lists > 0 || gets < 6 || gets > 7 {
			t.Errorf("%d lists, %d gets", lists, gets)
		}
	})
}

// What is deleted while a request is on its way is gone for who asks after that, and
// one that is gone is gone for who asked for it alone.
func TestDirectoryErrorsAreOnesOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &moving{takes: time.Second, have: map[fleet.ResourceID]int{poolA: 10}, gone: map[string]bool{}, bare: map[string]bool{string(inPool(poolA, 5)): true}}
		d := admission.NewDirectory(m, admission.DirectoryOptions{})
		var wg sync.WaitGroup
		wg.Go(func() { wantFresh(t, d, inPool(poolA, 0)) })
		time.Sleep(100 * time.Millisecond)
		m.mu.Lock()
		m.gone[strings.ToLower(string(inPool(poolA, 3)))] = true
		m.mu.Unlock()
		for _, n := range []int{1, 2, 5, 11} { // 5 has no addresses in the list, 11 is not in it (yet)
			wg.Go(func() { wantFresh(t, d, inPool(poolA, n)) })
		}
		for range 2 {
			wg.Go(func() {
				got, err := d.Member(t.Context(), inPool(poolA, 3))
				var e *fleet.Error
				if !fleet.Is(err, fleet.KindNotFound) || got.VMID != "" || !errors.As(err, &e) || e.Resource != string(inPool(poolA, 3)) {
					t.Errorf("%+v, %v", got, err)
				}
			})
		}
		wg.Wait()
		if lists, gets := m.asked(); lists != 1 || gets != 4 {
			t.Errorf("%d lists, %d gets", lists, gets)
		}
		// A list that fails fails for all who wait for it, and for nobody after them.
		m.listErr = &fleet.Error{Op: "list", Kind: fleet.KindDenied, Resource: string(poolA)}
		for n := range 3 {
			wg.Go(func() {
				if _, err := d.Member(t.Context(), inPool(poolA, n)); n > 0 && err != nil && !fleet.Is(err, fleet.KindDenied) {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		m.listErr = nil
		wantFresh(t, d, inPool(poolA, 1))
		// That the pool is not there is no word about who is in it.
		m.listErr = &fleet.Error{Op: "list", Kind: fleet.KindNotFound, Resource: string(poolA)}
		for n := range 3 {
			wg.Go(func() { wantFresh(t, d, inPool(poolA, n)) })
		}
		wg.Wait()
	})
}

// However many ask for what is not there, Azure is not asked for all of it.
func TestDirectoryStrangers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &moving{takes: time.Second, have: map[fleet.ResourceID]int{poolA: 1}}
		d := admission.NewDirectory(m, admission.DirectoryOptions{})
		var wg sync.WaitGroup
		var mu sync.Mutex
		refused := 0
		for n := range 500 {
			wg.Go(func() {
				if n > 0 {
					time.Sleep(time.Millisecond)
				}
				if _, err := d.Member(t.Context(), inPool(poolA, n)); fleet.Is(err, fleet.KindThrottled) {
					mu.Lock()
					defer mu.Unlock()
					refused++
				} else if err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if lists, gets := m.asked(); lists != 1 || gets != 33 || refused != 499-32 {
			t.Errorf("%d lists, %d gets, %d refused", lists, gets, refused)
		}
	})
}

// Who goes away does not take the others' request along; who goes last does.
func TestDirectoryGoingAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &moving{takes: 10 * time.Second, have: map[fleet.ResourceID]int{poolA: 10}}
		d := admission.NewDirectory(m, admission.DirectoryOptions{})
		var wg sync.WaitGroup
		impatient := func(n int, patience time.Duration) {
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				if _, err := d.Member(ctx, inPool(poolA, n)); !fleet.Is(err, fleet.KindTimedOut) || !errors.Is(err, context.DeadlineExceeded) {
					t.Error(err)
				}
			})
		}
		impatient(0, time.Second)
		wg.Wait()
		synctest.Wait()
		if m.running != 0 || len(m.ended) != 1 || !errors.Is(m.ended[0], context.Canceled) {
			t.Errorf("%d requests run for nobody: %v", m.running, m.ended)
		}
		wg.Go(func() { wantFresh(t, d, inPool(poolA, 1)) }) // 0 to 10 s
		time.Sleep(time.Millisecond)
		impatient(2, time.Second) // goes before its request begins
		wg.Go(func() { wantFresh(t, d, inPool(poolA, 3)) })
		impatient(4, 15*time.Second) // goes in the middle of its request
		wg.Wait()
		if len(m.ended) != 1 {
			t.Errorf("%v", m.ended)
		}
		// A request has an end of its own too.
		m.takes = time.Hour
		if _, err := d.Member(t.Context(), inPool(poolA, 1)); err == nil {
			t.Error("an answer from a request that never ended")
		}
	})
}

// A machine can use up what Azure lets be asked of its own instance. That keeps nobody
// else of the scale set from joining; where it is of several, it is the scale set's.
func TestDirectoryThrottledOfOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &moving{takes: 100 * time.Millisecond, have: map[fleet.ResourceID]int{poolA: 10}}
		noisy := map[fleet.ResourceID]bool{inPool(poolA, 7): true}
		d := admission.NewDirectory(throttling{m, noisy}, admission.DirectoryOptions{})
		wantThrottled := func(n int) {
			t.Helper()
			if _, err := d.Member(t.Context(), inPool(poolA, n)); !fleet.Is(err, fleet.KindThrottled) {
				t.Errorf("instance %d: %v", n, err)
			}
		}
		for range 3 {
			var wg sync.WaitGroup
			for range 3 {
				wg.Go(func() { wantThrottled(7) })
				time.Sleep(10 * time.Millisecond)
			}
			wg.Wait()
			before := time.Now()
			wantFresh(t, d, inPool(poolA, 1))
			if w := time.Since(before); w > time.Second {
				t.Errorf("another one waited for %v", w)
			}
		}
		time.Sleep(time.Minute)
		delete(noisy, inPool(poolA, 7))
		wantFresh(t, d, inPool(poolA, 7))
		for n := range 4 {
			noisy[inPool(poolA, n)] = true
			wantThrottled(n)
		}
		wantThrottled(8)
	})
}

// throttling throttles the looks at some instances by themselves.
type throttling struct {
	*moving
	these map[fleet.ResourceID]bool
}

func (t throttling) Member(ctx context.Context, id fleet.ResourceID) (fleet.Member, error) {
	if t.these[id] {
		_, _ = t.moving.Member(ctx, id) // it takes as long
		return fleet.Member{}, &fleet.Error{Op: "get", Kind: fleet.KindThrottled, RetryAfter: 40 * time.Second}
	}
	return t.moving.Member(ctx, id)
}

// While Azure throttles a scale set it is asked nothing of it, who comes is told when to
// come again, and other sets are not in it.
func TestDirectoryThrottled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &moving{takes: 100 * time.Millisecond, have: map[fleet.ResourceID]int{poolA: 10, poolF: 10}, getErr: &fleet.Error{Op: "get", Kind: fleet.KindThrottled, RetryAfter: 40 * time.Second}}
		d := admission.NewDirectory(m, admission.DirectoryOptions{})
		wantThrottled := func(after time.Duration) {
			t.Helper()
			var e *fleet.Error
			if _, err := d.Member(t.Context(), inPool(poolA, 1)); !errors.As(err, &e) || e.Kind != fleet.KindThrottled || e.RetryAfter != after {
				t.Errorf("%+v, want %v", err, after)
			}
		}
		wantThrottled(40 * time.Second)
		synctest.Wait()
		time.Sleep(10 * time.Second)
		wantThrottled(30 * time.Second)
		if _, gets := m.asked(); gets != 1 {
			t.Errorf("%d gets", gets)
		}
		m.getErr = nil
		wantFresh(t, d, inPool(poolF, 1))
		time.Sleep(26 * time.Second)
		before := time.Now()
		wantFresh(t, d, inPool(poolA, 1)) // four seconds are waited for
		if w := time.Since(before); w < 3*time.Second {
			t.Errorf("asked again after %v", w)
		}
		m.getErr = &fleet.Error{Op: "get", Err: fmt.Errorf("deep: %w", &fleet.Error{Kind: fleet.KindThrottled})}
		wantThrottled(10 * time.Second)
		time.Sleep(time.Minute)
		m.getErr = &fleet.Error{Op: "get", Kind: fleet.KindThrottled, RetryAfter: 24 * time.Hour}
		wantThrottled(5 * time.Minute)
	})
}
