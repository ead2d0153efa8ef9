package azsim

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"
)

// beginScale and beginRemove send a request to pool1 and do not wait for its
// operation.
func (l *lab) beginScale(n int64) *runtime.Poller[armcompute.VirtualMachineScaleSetsClientUpdateResponse] {
	l.t.Helper()
	p, err := l.sets.BeginUpdate(context.Background(), labGroup, "pool1", armcompute.VirtualMachineScaleSetUpdate{SKU: &armcompute.SKU{Capacity: ptr(n)}}, nil)
	if err != nil {
		l.t.Fatal(err)
	}
	return p
}

func (l *lab) beginRemove(ids ...string) *runtime.Poller[armcompute.VirtualMachineScaleSetsClientDeleteInstancesResponse] {
	l.t.Helper()
	p, err := l.tryRemove(ids...)
	if err != nil {
		l.t.Fatal(err)
	}
	return p
}

func (l *lab) tryRemove(ids ...string) (*runtime.Poller[armcompute.VirtualMachineScaleSetsClientDeleteInstancesResponse], error) {
	body := armcompute.VirtualMachineScaleSetVMInstanceRequiredIDs{}
	for _, id := range ids {
		body.InstanceIDs = append(body.InstanceIDs, ptr(id))
	}
	return l.sets.BeginDeleteInstances(context.Background(), labGroup, "pool1", body, nil)
}

func newVersion() armcompute.VirtualMachineScaleSetUpdate {
	return armcompute.VirtualMachineScaleSetUpdate{Properties: &armcompute.VirtualMachineScaleSetUpdateProperties{
		VirtualMachineProfile: &armcompute.VirtualMachineScaleSetUpdateVMProfile{StorageProfile: &armcompute.VirtualMachineScaleSetUpdateStorageProfile{
			ImageReference: &armcompute.ImageReference{Version: ptr("24.04.202501010")}}}}}
}

// wantSet compares the set's provisioning state and capacity.
func (l *lab) wantSet(what, state string, capacity int64) {
	l.t.Helper()
	set := l.set("pool1")
	if got, n := val(set.Properties.ProvisioningState), val(set.SKU.Capacity); got != state || n != capacity {
		l.t.Errorf("%s: the set is %s with capacity %d, want %s with %d", what, got, n, state, capacity)
	}
}

func wantPreempted[T any](t *testing.T, p *runtime.Poller[T]) {
	t.Helper()
	_, err := tryDone(p, nil)
	wantRefusal(t, err, "OperationPreempted", "preempted by a more recent operation")
}

func TestNewerCapacityPreemptsTheOlder(t *testing.T) {
	withPool(t, 1, nil, func(t *testing.T, l *lab) {
		older := l.beginScale(3)
		time.Sleep(30 * time.Second)
		newer := l.beginScale(4)
		wantPreempted(t, older)
		l.wantSet("while the newer runs", stateUpdating, 4)
		done(t, newer, nil)
		l.wantSet("at the end", stateSucceeded, 4)
		wantList(t, "members", l.ids("pool1"), "0 Succeeded running", "1 Succeeded running", "2 Succeeded running", "3 Succeeded running")
		if b := l.sub.booted["pool1_1"]; len(b) != 1 {
			t.Errorf("a member that the older operation began was booted %d times", len(b))
		}
	})
}

func TestModelChangePreemptsAScaleUp(t *testing.T) {
	withPool(t, 1, nil, func(t *testing.T, l *lab) {
		older := l.beginScale(2)
		time.Sleep(30 * time.Second)
		if err := l.patch("pool1", newVersion()); err != nil {
			t.Fatal(err)
		}
		wantPreempted(t, older)
		l.wantSet("at the end", stateSucceeded, 2)
		wantList(t, "members", l.ids("pool1"), "0 Succeeded running", "1 Succeeded running")
		if val(l.vm("pool1", "1").Properties.LatestModelApplied) {
			t.Error("a member whose creation had begun has the newer model")
		}
	})
}

func TestScaleUpPreemptsADeletion(t *testing.T) {
	withPool(t, 2, nil, func(t *testing.T, l *lab) {
		deletion := l.beginRemove("0")
		time.Sleep(5 * time.Second)
		done(t, l.beginScale(2), nil)
		wantPreempted(t, deletion)
		l.wantSet("at the end", stateSucceeded, 2)
		wantList(t, "members", l.ids("pool1"), "1 Succeeded running", "2 Succeeded running")
		wantList(t, "computers", l.sub.names(), "pool1000001", "pool1000002")
	})
}

func TestConcurrentDeletionsConflict(t *testing.T) {
	withPool(t, 3, nil, func(t *testing.T, l *lab) {
		first := l.beginRemove("0")
		if err := l.s.AddFault(Fault{Action: setType + "/*", Effect: EffectConflict}); err != nil {
			t.Fatal(err)
		}
		_, err := l.tryRemove("1")
		wantRefusal(t, err, "Conflict", "conflict with a concurrent request")
		wantRefusal(t, l.scale("pool1", 5), "Conflict", "conflict with a concurrent request")
		l.wantSet("after the conflicts", stateUpdating, 2)
		done(t, first, nil)
		if err := l.scale("pool1", 2); err != nil {
			t.Errorf("a request to a quiet set: %v", err)
		}
		l.s.RemoveFault("")
		first, second := l.beginRemove("1"), l.beginRemove("2") // without the fault, side by side
		done(t, first, nil)
		done(t, second, nil)
		l.wantSet("at the end", stateSucceeded, 0)
	})
}

func TestSetIsUpdatingWhileMembersAreDeleted(t *testing.T) {
	withPool(t, 2, nil, func(t *testing.T, l *lab) {
		p := l.beginRemove("0")
		l.wantSet("while a member is deleted", stateUpdating, 1)
		done(t, p, nil)
		l.wantSet("at the end", stateSucceeded, 1)
		q, err := l.vms.BeginDelete(context.Background(), labGroup, "pool1", "1", nil)
		if err != nil {
			t.Fatal(err)
		}
		l.wantSet("while the instance itself is deleted", stateUpdating, 0)
		done(t, q, nil)
		l.wantSet("at the end", stateSucceeded, 0)
	})
}

func (l *lab) hangDeletions(n int) {
	l.t.Helper()
	if err := l.s.AddFault(Fault{Action: setType + "/delete/action", Effect: EffectNeverEnds, Count: n}); err != nil {
		l.t.Fatal(err)
	}
}

func TestScaleUpPassesAHangingDeletion(t *testing.T) {
	withPool(t, 2, nil, func(t *testing.T, l *lab) {
		l.hangDeletions(1)
		hangs := l.beginRemove("0")
		done(t, l.beginScale(3), nil)
		wantPreempted(t, hangs)
		wantList(t, "members", l.ids("pool1"), "0 Deleting running", "1 Succeeded running", "2 Succeeded running", "3 Succeeded running")
		done(t, l.beginRemove("0"), nil)
		wantList(t, "members", l.ids("pool1"), "1 Succeeded running", "2 Succeeded running", "3 Succeeded running")
		l.wantSet("at the end", stateSucceeded, 3)
	})
}

func TestDeletionTwiceIsOne(t *testing.T) {
	for _, hangs := range []bool{false, true} {
		withPool(t, 3, nil, func(t *testing.T, l *lab) {
			if hangs {
				l.hangDeletions(1)
			}
			first := l.beginRemove("0")
			second := l.beginRemove("0")
			l.wantSet("asked for twice", stateUpdating, 2)
			q, err := l.vms.BeginDelete(context.Background(), labGroup, "pool1", "0", nil)
			done(t, q, err)
			done(t, second, nil)
			if !hangs {
				done(t, first, nil)
				l.wantSet("at the end", stateSucceeded, 2)
			}
			wantList(t, "members", l.ids("pool1"), "1 Succeeded running", "2 Succeeded running")
		})
	}
}

func TestSetThatIsDeletedTakesNoChange(t *testing.T) {
	withPool(t, 2, nil, func(t *testing.T, l *lab) {
		older := l.beginScale(3)
		p, err := l.sets.BeginDelete(context.Background(), labGroup, "pool1", nil)
		if err != nil {
			t.Fatal(err)
		}
		wantPreempted(t, older)
		wantRefusal(t, l.scale("pool1", 4), "OperationNotAllowed", "another operation")
		_, err = l.tryRemove("0")
		wantRefusal(t, err, "OperationNotAllowed", "another operation")
		done(t, p, nil)
		if _, err := l.sets.Get(context.Background(), labGroup, "pool1", nil); code(err) != "ResourceNotFound" {
			t.Errorf("the set: %v", err)
		}
		if names := l.sub.names(); len(names) != 0 {
			t.Errorf("left behind: %v", names)
		}
	})
}

// A scale set whose instances' OS does not report is being created until Azure gives up, and
// can be deleted at any time before.
func TestCreateWaitsForProvisioning(t *testing.T) {
	silent := func(test func(l *lab, create *runtime.Poller[armcompute.VirtualMachineScaleSetsClientCreateOrUpdateResponse])) {
		synctest.Test(t, func(t *testing.T) {
			sub := newModelSubstrate()
			sub.silent = true
			s := &Server{Substrate: sub}
			defer s.Close()
			l := newLab(t, s)
			create, err := l.sets.BeginCreateOrUpdate(context.Background(), labGroup, "pool1", pool(2), nil)
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(15 * time.Minute)
			wantList(t, "while no OS has reported", l.ids("pool1"), "0 Creating running", "1 Creating running")
			if got := val(l.set("pool1").Properties.ProvisioningState); got != stateCreating && got != stateUpdating {
				t.Errorf("the set is %s", got)
			}
			test(l, create)
		})
	}
	silent(func(l *lab, create *runtime.Poller[armcompute.VirtualMachineScaleSetsClientCreateOrUpdateResponse]) {
		_, err := tryDone(create, nil)
		wantRefusal(l.t, err, "OSProvisioningTimedOut", "pool1_")
		wantList(l.t, "in the end", l.ids("pool1"), "0 Failed running", "1 Failed running")
	})
	silent(func(l *lab, create *runtime.Poller[armcompute.VirtualMachineScaleSetsClientCreateOrUpdateResponse]) {
		begun := time.Now()
		del, err := l.sets.BeginDelete(context.Background(), labGroup, "pool1",
			&armcompute.VirtualMachineScaleSetsClientBeginDeleteOptions{ForceDeletion: ptr(true)})
		if err != nil {
			l.t.Fatal(err)
		}
		wantPreempted(l.t, create)
		done(l.t, del, nil)
		if d := time.Since(begun); d > 3*time.Minute {
			l.t.Errorf("the deletion waited for the creation: %v", d)
		}
		if _, err := l.sets.Get(context.Background(), labGroup, "pool1", nil); code(err) != "ResourceNotFound" || len(l.sub.names()) != 0 {
			l.t.Errorf("left behind: %v, %v", err, l.sub.names())
		}
	})
}

func TestStaleETagChangesNothing(t *testing.T) {
	withPool(t, 1, nil, func(t *testing.T, l *lab) {
		stale := l.set("pool1").Etag
		older := l.beginScale(2)
		_, err := l.sets.BeginUpdate(context.Background(), labGroup, "pool1", newVersion(), &armcompute.VirtualMachineScaleSetsClientBeginUpdateOptions{IfMatch: stale})
		wantRefusal(t, err, "PreconditionFailed", "if-match")
		done(t, older, nil)
		l.wantSet("at the end", stateSucceeded, 2)
		if v := val(l.set("pool1").Properties.VirtualMachineProfile.StorageProfile.ImageReference.Version); v != "latest" {
			t.Errorf("version %s", v)
		}
	})
}

func TestFailedUpdateRestoresModelAndCapacity(t *testing.T) {
	withPool(t, 2, nil, func(t *testing.T, l *lab) {
		if err := l.s.AddFault(Fault{Method: http.MethodPatch, Action: setType + "/write", Effect: EffectFailAtEnd, Code: "AllocationFailed", Count: 2}); err != nil {
			t.Fatal(err)
		}
		before := val(l.set("pool1").Etag)
		wantRefusal(t, l.scale("pool1", 4), "AllocationFailed", "")
		l.wantSet("after a scale-up that failed", stateFailed, 2)
		wantRefusal(t, l.patch("pool1", newVersion()), "AllocationFailed", "")
		set := l.set("pool1")
		if v := val(set.Properties.VirtualMachineProfile.StorageProfile.ImageReference.Version); v != "latest" {
			t.Errorf("version %s after a model change that failed", v)
		}
		if val(set.Etag) == before {
			t.Error("the ETag is that of before")
		}
		wantList(t, "members", l.ids("pool1"), "0 Succeeded running", "1 Succeeded running")
		for _, id := range []string{"0", "1"} {
			if !val(l.vm("pool1", id).Properties.LatestModelApplied) {
				t.Errorf("member %s is behind the model", id)
			}
		}
		if err := l.scale("pool1", 3); err != nil {
			t.Error(err)
		}
		l.wantSet("at the end", stateSucceeded, 3)
	})
}
