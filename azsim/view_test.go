package azsim

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"
)

func TestViewShowsWhatIsStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Server{}
		defer s.Close()
		l := newLab(t, s)
		s.Instant(true)
		l.create("p", pool(3))
		s.Instant(false)
		base := "/subscriptions/" + DefaultSubscription + "/resourceGroups/" + labGroup + "/providers/Microsoft.Compute/virtualMachineScaleSets/p"
		one := base + "/virtualMachines/1"
		if _, err := l.vms.BeginPowerOff(context.Background(), labGroup, "p", "1", nil); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		look := func() (ids []string, running bool, st InstanceState) {
			s.View(func(v *View) {
				v.Each(strings.ToUpper(instanceType), func(id string, body any) {
					if vm := body.(*armcompute.VirtualMachineScaleSetVM); val(vm.ID) != id {
						t.Errorf("%s has the id %s", id, val(vm.ID))
					}
					ids = append(ids, strings.TrimPrefix(id, base+"/virtualMachines/"))
				})
				if set, ok := v.Get(strings.ToUpper(base)).(*armcompute.VirtualMachineScaleSet); !ok || val(set.SKU.Capacity) != 3 {
					t.Errorf("scale set %v", set)
				}
				if v.Get(base+"/virtualMachines/9") != nil || v.Running(base+"/virtualMachines/9") || v.Running(base) {
					t.Error("there is what is not there")
				}
				running = v.Running(one)
				st, _ = v.Instance(one)
			})
			return ids, running, st
		}
		ids, running, st := look()
		wantList(t, "instances", ids, "0", "1", "2")
		if !running || st.Deleting || !strings.HasPrefix(st.Image, "Canonical:ubuntu-24_04-lts:server:") {
			t.Errorf("while it stops: running %v, %+v", running, st)
		}
		time.Sleep(10 * time.Minute)
		if _, running, _ := look(); running {
			t.Error("an operation is under way when it has stopped")
		}
	})
}

// While Instant is on nothing takes time; after it, everything does again.
func TestInstant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Server{}
		defer s.Close()
		l := newLab(t, s)
		ready := func() int {
			synctest.Wait()
			n := 0
			s.View(func(v *View) {
				v.Each(instanceType, func(_ string, body any) {
					if stateOf(body) == stateSucceeded {
						n++
					}
				})
			})
			return n
		}
		ctx := context.Background()
		s.Instant(true)
		if _, err := l.sets.BeginCreateOrUpdate(ctx, labGroup, "p", pool(5), nil); err != nil {
			t.Fatal(err)
		}
		if n := ready(); n != 5 {
			t.Errorf("%d instances at once, want 5", n)
		}
		s.Instant(false)
		if _, err := l.sets.BeginUpdate(ctx, labGroup, "p", armcompute.VirtualMachineScaleSetUpdate{SKU: &armcompute.SKU{Capacity: ptr(int64(7))}}, nil); err != nil {
			t.Fatal(err)
		}
		if n := ready(); n != 5 {
			t.Errorf("%d instances at once, want 5 as before", n)
		}
		time.Sleep(10 * time.Minute)
		if n := ready(); n != 7 {
			t.Errorf("%d instances in the end, want 7", n)
		}
	})
}
