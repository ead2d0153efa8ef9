package azsim

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"
)

// slowAttach is a substrate whose attaching takes a minute.
type slowAttach struct{ *modelSubstrate }

func (s slowAttach) Attach(ctx context.Context, id string, lun int32, v Volume) error {
	time.Sleep(time.Minute)
	return s.modelSubstrate.Attach(ctx, id, lun, v)
}

// A disk is attached to no instance whose deletion has begun, and to none in the end
// where the deletion begins while it is being attached.
func TestInstanceIsDeletedWhileDisksAreAttached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		model := newModelSubstrate()
		s := &Server{Substrate: slowAttach{model}}
		defer s.Close()
		l := newLab(t, s)
		l.sub = model
		l.create("pool1", pool(2))
		b := newBench(t, s, "")
		request := armcompute.AttachDetachDataDisksRequest{}
		for lun, name := range []string{"d1", "d2"} {
			request.DataDisksToAttach = append(request.DataDisksToAttach, &armcompute.DataDisksToAttach{DiskID: b.disk(name, 4).ID, Lun: ptr(int32(lun))})
		}
		p, err := l.vms.BeginAttachDetachDataDisks(b.ctx, labGroup, "pool1", "0", request, nil)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		deletion := l.beginRemove("0")
		_, err = l.vms.BeginAttachDetachDataDisks(b.ctx, labGroup, "pool1", "0", request, nil)
		wantRefusal(t, err, "OperationNotAllowed", "marked for deletion")
		wantList(t, "while it is deleted", l.ids("pool1"), "0 Deleting running", "1 Succeeded running")
		done(t, deletion, nil)
		wantPreempted(t, p)
		wantList(t, "the rest", l.ids("pool1"), "1 Succeeded running")
		for _, name := range []string{"d1", "d2"} {
			disk, err := l.disks.Get(b.ctx, labGroup, name, nil)
			if err != nil || disk.ManagedBy != nil || val(disk.Properties.DiskState) != armcompute.DiskStateUnattached {
				t.Errorf("disk %s is managed by %q, %v", name, val(disk.ManagedBy), err)
			}
		}
	})
}
