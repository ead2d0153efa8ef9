package admission

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"

	"github.com/ortet/ortet/azsim"
	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/azure/arm"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/test/azsimserver"
)

const simPools = fleet.ResourceID("/subscriptions/" + azsim.DefaultSubscription + "/resourceGroups/" + azsim.DefaultResourceGroup + "/providers/Microsoft.Compute/virtualMachineScaleSets/")

// An azsimWorld is a simulated Azure with a pool, and the real adapter to it.
type azsimWorld struct {
	*testing.T
	sim     *azsim.Server
	arm     *arm.Cloud
	compute *armcompute.ClientFactory
	members azure.Members
}

func at[T any](v T) *T { return &v }

func newAzsimWorld(t *testing.T) *azsimWorld {
	t.Helper()
	s := &azsim.Server{Seed: 1}
	c, err := arm.New(arm.Options{Cloud: azsim.Cloud(azsim.InProcess), Credential: s.Credential(""), Transport: s.Transport(), Version: "test"})
	if err != nil {
		t.Fatal(err)
	}
	compute, err := armcompute.NewClientFactory(azsim.DefaultSubscription, s.Credential(""), s.ClientOptions())
	if err != nil {
		t.Fatal(err)
	}
	return &azsimWorld{t, s, c, compute, azure.LimitMembers(c, azure.Limits{})}
}

// pool makes a Uniform scale set.
func (w *azsimWorld) pool(name string, instances int64, spot bool) fleet.ResourceID {
	w.Helper()
	p := azsimserver.Pool{Name: name, Capacity: instances, Change: azsimserver.Bare}
	if spot {
		p.Change = azsimserver.Spot("Delete")
	}
	if err := p.CreateIn(w.Context(), w.sim); err != nil {
		w.Fatal(err)
	}
	return simPools + fleet.ResourceID(name)
}

func settle[T any](w *azsimWorld, p *runtime.Poller[T], err error) {
	w.Helper()
	if err == nil {
		_, err = p.PollUntilDone(w.Context(), &runtime.PollUntilDoneOptions{Frequency: time.Second})
	}
	if err != nil {
		w.Fatal(err)
	}
}

// scale is what a person does.
func (w *azsimWorld) scale(pool fleet.ResourceID, n int64) {
	w.Helper()
	p, err := w.compute.NewVirtualMachineScaleSetsClient().BeginUpdate(w.Context(), azsim.DefaultResourceGroup, pool.Name(),
		armcompute.VirtualMachineScaleSetUpdate{SKU: &armcompute.SKU{Name: at("Standard_D2s_v5"), Capacity: at(n)}}, nil)
	settle(w, p, err)
}

// vms returns the pool's machines by name.
func (w *azsimWorld) vms(pool fleet.ResourceID) map[string]fleet.Member {
	w.Helper()
	list, err := w.members.Members(w.Context(), pool, false)
	if err != nil {
		w.Fatal(err)
	}
	out := map[string]fleet.Member{}
	for _, m := range list {
		out[m.Name] = m
	}
	return out
}

func (w *azsimWorld) wantCapacity(pool fleet.ResourceID, n int64) {
	w.Helper()
	p, err := w.arm.Pool(w.Context(), pool)
	if err != nil {
		w.Fatal(err)
	}
	if vms := w.vms(pool); p.Capacity != n || len(vms) != int(n) {
		w.Errorf("a capacity of %d with %d instances, want %d", p.Capacity, len(vms), n)
	}
}

// TestEvictedCapacityComesBack: Spot machines of a scale set that deletes what is
// evicted come back, as many as were wanted, and what a person wants afterwards holds.
func TestEvictedCapacityComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newAzsimWorld(t)
		defer w.sim.Close()
		pool := w.pool("spot", 4, true)
		d := &memoryDesires{}
		keeper, err := NewKeeper(KeeperConfig{Desires: d, Scaler: w.arm, Members: w.members, Pools: []fleet.ResourceID{fleet.ResourceID(strings.ToUpper(string(pool)))}, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- keeper.Run(ctx) }()
		defer func() {
			cancel()
			if err := <-ended; !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		}()
		time.Sleep(time.Minute)
		before := w.vms(pool)

		evict := func(tells bool, names ...string) {
			t.Helper()
			for _, name := range names {
				m := w.vms(pool)[name]
				if err := w.sim.Evict(string(m.Instance)); err != nil {
					t.Fatal(err)
				}
				if tells {
					if err := keeper.Evicted(t.Context(), m); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
		names := slices.Sorted(maps.Keys(before))
		evict(true, names[0], names[2])
		time.Sleep(15 * time.Minute)
		w.wantCapacity(pool, 4)
		after := w.vms(pool)
		for i, name := range names {
			if m, there := after[name]; i%2 == 0 && there && m.VMID == before[name].VMID || i%2 == 1 && m.VMID != before[name].VMID {
				t.Errorf("%s: %+v, was %+v", name, m, before[name])
			}
		}

		// A person wants fewer, and then one is evicted: fewer it stays.
		w.scale(pool, 2)
		time.Sleep(5 * time.Minute)
		w.wantCapacity(pool, 2)
		evict(true, slices.Sorted(maps.Keys(w.vms(pool)))[0])
		time.Sleep(15 * time.Minute)
		w.wantCapacity(pool, 2)

		// One that could not tell is not told from a person's wish.
		evict(false, slices.Sorted(maps.Keys(w.vms(pool)))[0])
		time.Sleep(15 * time.Minute)
		w.wantCapacity(pool, 1)
		w.scale(pool, 3)
		time.Sleep(5 * time.Minute)
		w.wantCapacity(pool, 3)
		if got := d.kept[keyOf(pool)]; got.Capacity != 3 || got.Seen != 3 {
			t.Errorf("%+v", got)
		}
	})
}

// TestHole08: a capacity that an eviction lowered is restored once a scale-up of others has
// ended, which it does not preempt.
func TestHole08CapacityDuringAScaleUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newAzsimWorld(t)
		defer w.sim.Close()
		pool := w.pool("spot", 3, true)
		d := &memoryDesires{}
		keeper, err := NewKeeper(KeeperConfig{Desires: d, Scaler: w.arm, Members: w.members, Pools: []fleet.ResourceID{pool}, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		round := func() {
			t.Helper()
			if err := keeper.Round(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		round()
		up, err := w.compute.NewVirtualMachineScaleSetsClient().BeginUpdate(t.Context(), azsim.DefaultResourceGroup, pool.Name(),
			armcompute.VirtualMachineScaleSetUpdate{SKU: &armcompute.SKU{Name: at("Standard_D2s_v5"), Capacity: at(int64(6))}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		round()
		want, err := d.Desire(t.Context(), pool)
		if err != nil {
			t.Fatal(err)
		}
		want.Capacity = 7 // an eviction took one
		if err := d.SetDesire(t.Context(), pool, want); err != nil {
			t.Fatal(err)
		}
		for range 60 {
			round()
			time.Sleep(DefaultKeepInterval)
		}
		if _, err := up.PollUntilDone(t.Context(), nil); err != nil {
			t.Errorf("the keeper ended the scale-up: %v", err)
		}
		w.wantCapacity(pool, 7)
	})
}
