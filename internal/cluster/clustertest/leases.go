package clustertest

import (
	"fmt"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ortet/ortet/internal/cluster"
	"github.com/ortet/ortet/internal/fleet"
)

func (w *world) pool() string {
	return "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachineScaleSets/" + w.name
}

// leasesOf lists the Leases that name the holder.
func (w *world) leasesOf(holder string) []coordinationv1.Lease {
	w.Helper()
	list, err := w.admin.CoordinationV1().Leases(w.setup.Namespace).List(w.ctx, metav1.ListOptions{})
	w.must(err, "list leases")
	var out []coordinationv1.Lease
	for _, lease := range list.Items {
		if lease.Spec.HolderIdentity != nil && *lease.Spec.HolderIdentity == holder {
			out = append(out, lease)
		}
	}
	return out
}

func leaseOne(w *world) {
	pool, a, b := w.pool(), w.name+"/a", w.name+"/b"
	other := w.setup.Open(w.T, time.Now)
	first, err := w.under.Hold(w.ctx, pool, a, time.Minute)
	w.must(err, "take")
	if first.Holder != a || first.TookFrom != "" || first.Since.IsZero() {
		w.Errorf("%+v", first)
	}
	seen, err := other.Hold(w.ctx, strings.ToUpper(pool), b, time.Minute)
	w.wantKind(err, fleet.KindHeld, "take what is held, in other letter case")
	if seen.Holder != a || !strings.Contains(err.Error(), a) {
		w.Errorf("who holds it is not said: %+v, %v", seen, err)
	}
	if read, held, err := other.Holding(w.ctx, strings.ToUpper(pool)); err != nil || !held || read.Holder != a || !read.Since.Equal(seen.Since) {
		w.Errorf("read who holds it: %+v, %t, %v", read, held, err)
	}
	again, err := w.under.Hold(w.ctx, pool, a, time.Minute)
	w.must(err, "renew")
	if !again.Since.Equal(first.Since) || again.Renewed.Before(first.Renewed) || again.TookFrom != "" {
		w.Errorf("renewed: %+v, first %+v", again, first)
	}
	w.must(other.Release(w.ctx, pool, b), "release of what somebody else holds")
	if len(w.leasesOf(a)) != 1 {
		w.Error("somebody else's release took the hold")
	}
	if _, err := other.Hold(w.ctx, pool+"2", b, time.Minute); err != nil {
		w.Errorf("another pool's hold: %v", err)
	}
	w.must(other.Release(w.ctx, pool+"2", b), "release the other pool")
	w.must(w.under.Release(w.ctx, pool, a), "release")
	if n := len(w.leasesOf(a)) + len(w.leasesOf(b)); n != 0 {
		w.Errorf("%d leases are left", n)
	}
	if read, held, err := other.Holding(w.ctx, pool); err != nil || held {
		w.Errorf("read who holds what was released: %+v, %t, %v", read, held, err)
	}
	w.must(w.under.Release(w.ctx, pool, a), "release again")
	got, err := other.Hold(w.ctx, pool, b, time.Minute)
	w.must(err, "take what was released")
	if got.Holder != b || got.TookFrom != "" {
		w.Errorf("%+v", got)
	}
	w.must(other.Release(w.ctx, pool, b), "release")
}

// leaseRace has several take one Lease at once, over and over.
func leaseRace(w *world) {
	const contenders = 6
	for round := range 5 {
		pool := fmt.Sprintf("%s-%d", w.pool(), round)
		var group sync.WaitGroup
		won := make([]bool, contenders)
		for i := range contenders {
			under := w.setup.Open(w.T, time.Now)
			group.Go(func() {
				_, err := under.Hold(w.ctx, pool, fmt.Sprintf("%s/%d", w.name, i), time.Minute)
				won[i] = err == nil
				if err != nil && !fleet.Is(err, fleet.KindHeld) {
					w.Errorf("contender %d: %v", i, err)
				}
			})
		}
		group.Wait()
		winners := 0
		for i, ok := range won {
			if ok {
				winners++
				w.must(w.under.Release(w.ctx, pool, fmt.Sprintf("%s/%d", w.name, i)), "release")
			}
		}
		if winners != 1 {
			w.Fatalf("round %d: %d hold it", round, winners)
		}
	}
}

// clock is a clock that the test turns.
type clock struct {
	sync.Mutex
	at time.Time
}

func (c *clock) now() time.Time {
	c.Lock()
	defer c.Unlock()
	return c.at
}

func (c *clock) pass(d time.Duration) {
	c.Lock()
	defer c.Unlock()
	c.at = c.at.Add(d)
}

// leaseWatched takes over a Lease that was watched not being renewed, though the
// clocks are apart by minutes, and never one that is renewed.
func leaseWatched(w *world) {
	pool, a, b := w.pool(), w.name+"/a", w.name+"/b"
	holders := &clock{at: time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)}
	ours := &clock{at: holders.at.Add(3 * time.Minute)} // our clock is ahead
	under, other := w.setup.Open(w.T, holders.now), w.setup.Open(w.T, ours.now)
	_, err := under.Hold(w.ctx, pool, a, time.Minute)
	w.must(err, "take")
	for range 4 {
		_, err = other.Hold(w.ctx, pool, b, time.Minute)
		w.wantKind(err, fleet.KindHeld, "take what is renewed")
		holders.pass(40 * time.Second)
		ours.pass(40 * time.Second)
		_, err = under.Hold(w.ctx, pool, a, time.Minute)
		w.must(err, "renew")
	}
	_, err = other.Hold(w.ctx, pool, b, time.Minute)
	w.wantKind(err, fleet.KindHeld, "take before it ran out")
	ours.pass(59 * time.Second)
	_, err = other.Hold(w.ctx, pool, b, time.Minute)
	w.wantKind(err, fleet.KindHeld, "take just before it ran out")
	ours.pass(time.Second)
	got, err := other.Hold(w.ctx, pool, b, time.Minute)
	w.must(err, "take over")
	if got.TookFrom != a || got.Holder != b {
		w.Errorf("%+v", got)
	}
	var held cluster.Holding
	held, err = under.Hold(w.ctx, pool, a, time.Minute)
	w.wantKind(err, fleet.KindHeld, "renewal of what was taken over")
	if held.Holder != b {
		w.Errorf("%+v", held)
	}
	w.must(other.Release(w.ctx, pool, b), "release")
}

// leaseLongDead takes over at the first look what ran out long ago.
func leaseLongDead(w *world) {
	pool, a, b := w.pool(), w.name+"/a", w.name+"/b"
	time0 := &clock{at: time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)}
	_, err := w.setup.Open(w.T, time0.now).Hold(w.ctx, pool, a, time.Minute)
	w.must(err, "take")
	time0.pass(2 * time.Minute)
	_, err = w.setup.Open(w.T, time0.now).Hold(w.ctx, pool, b, time.Minute)
	w.wantKind(err, fleet.KindHeld, "first look at what ran out by less than clocks may be apart")
	time0.pass(time.Hour)
	got, err := w.setup.Open(w.T, time0.now).Hold(w.ctx, pool, b, time.Minute)
	w.must(err, "first look at what ran out long ago")
	if got.TookFrom != a {
		w.Errorf("%+v", got)
	}
	w.must(w.under.Release(w.ctx, pool, b), "release")
}
