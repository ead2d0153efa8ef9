package azsim

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"testing"
	"testing/synctest"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"
)

// failAllocations lets the next n allocations of instances fail.
func (l *lab) failAllocations(n int) {
	l.t.Helper()
	if err := l.s.AddFault(Fault{Action: instanceType + "/allocate", Effect: EffectError, Count: n}); err != nil {
		l.t.Fatal(err)
	}
}

// cluster-autoscaler deletes a member that is Failed and has no power state, and
// leaves one that runs.
func TestAllocationFailureLeavesFailedMembers(t *testing.T) {
	withPool(t, 1, func(b *armcompute.VirtualMachineScaleSet) { b.Zones = []*string{ptr("1")} }, func(t *testing.T, l *lab) {
		l.failAllocations(2)
		wantRefusal(t, l.scale("pool1", 3), "ZonalAllocationFailed", "sufficient capacity for the requested VM size in this zone")
		wantList(t, "members", l.ids("pool1"), "0 Succeeded running", "1 Failed ", "2 Failed ")
		l.wantSet("after it", stateFailed, 3)
		if st := l.vm("pool1", "1").Properties.InstanceView.Statuses[0]; val(st.Code) != "ProvisioningState/failed/ZonalAllocationFailed" {
			t.Errorf("status %+v", st)
		}
		wantList(t, "computers", l.sub.names(), "pool1000000")
		done(t, l.beginRemove("1", "2"), nil)
		if err := l.scale("pool1", 2); err != nil {
			t.Error(err)
		}
		wantList(t, "members", l.ids("pool1"), "0 Succeeded running", "3 Succeeded running")
		l.wantSet("at the end", stateSucceeded, 2)
	})
}

func TestFailedMemberCannotBeStarted(t *testing.T) {
	withPool(t, 1, nil, func(t *testing.T, l *lab) {
		l.failAllocations(1)
		wantRefusal(t, l.scale("pool1", 2), "AllocationFailed", "in this region")
		ctx := context.Background()
		_, err := l.vms.BeginStart(ctx, labGroup, "pool1", "1", nil)
		wantRefusal(t, err, "OperationNotAllowed", "allocation failed")
		_, err = l.vms.BeginPowerOff(ctx, labGroup, "pool1", "1", nil)
		wantRefusal(t, err, "OperationNotAllowed", "allocation failed")
		wantList(t, "members", l.ids("pool1"), "0 Succeeded running", "1 Failed ")
	})
}

// What the instance view shows, the machine's metadata and its Node agree on.
func TestFaultDomainIsTheSameEverywhere(t *testing.T) {
	for _, zones := range [][]*string{nil, {ptr("2")}} {
		withPool(t, 3, func(b *armcompute.VirtualMachineScaleSet) { b.Zones = zones }, func(t *testing.T, l *lab) {
			for id := range 3 {
				vm := l.vm("pool1", strconv.Itoa(id))
				c := l.sub.computer(t, "pool100000"+strconv.Itoa(id))
				shown := strconv.Itoa(int(val(vm.Properties.InstanceView.PlatformFaultDomain)))
				var metadata struct {
					Compute struct{ PlatformFaultDomain, Zone string }
				}
				if err := json.Unmarshal(ask(c.IMDS, http.MethodGet, "/metadata/instance?api-version=2021-02-01", "").Body.Bytes(), &metadata); err != nil {
					t.Fatal(err)
				}
				if c.FaultDomain != shown || metadata.Compute.PlatformFaultDomain != shown || metadata.Compute.Zone != c.Zone {
					t.Errorf("instance %d in zones %v: the view says %s, the computer %q in zone %q, its metadata %+v", id, vm.Zones, shown, c.FaultDomain, c.Zone, metadata.Compute)
				}
			}
		})
	}
}

// A fault whose path names an instance fails that one, and the others come up: at their
// allocation or at their boot.
func TestOneInstanceOfACreationFails(t *testing.T) {
	for step, want := range map[string]string{"allocate": "1 Failed ", "provision": "1 Failed running"} {
		synctest.Test(t, func(t *testing.T) {
			fault := Fault{Action: instanceType + "/" + step, Path: "/pool1/virtualMachines/1$", Effect: EffectError,
				Status: http.StatusConflict, Code: "Planned"}
			s := &Server{Substrate: newModelSubstrate(), Faults: []Fault{fault}}
			defer s.Close()
			l := newLab(t, s)
			p, err := l.sets.BeginCreateOrUpdate(context.Background(), labGroup, "pool1", pool(3), nil)
			_, err = tryDone(p, err)
			wantRefusal(t, err, "Planned", "")
			wantList(t, step, l.ids("pool1"), "0 Succeeded running", want, "2 Succeeded running")
			wantList(t, "computers", l.sub.names(), "pool1000000", "pool1000002")
			l.wantSet(step, stateFailed, 3)
		})
	}
}
