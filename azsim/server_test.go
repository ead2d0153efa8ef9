package azsim

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"
)

func TestZeroServerMakesADisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s Server
		defer s.Close()
		c, err := armcompute.NewDisksClient(DefaultSubscription, s.Credential(""), s.ClientOptions())
		if err != nil {
			t.Fatal(err)
		}
		ctx := context.Background()
		p, err := c.BeginCreateOrUpdate(ctx, "AZSIM", "d1", armcompute.Disk{
			Location:   ptr("West Europe"),
			Properties: &armcompute.DiskProperties{DiskSizeGB: ptr(int32(4)), CreationData: &armcompute.CreationData{CreateOption: ptr(armcompute.DiskCreateOptionEmpty)}},
		}, nil)
		if err != nil {
			t.Fatal(err)
		}
		got, err := p.PollUntilDone(ctx, &runtime.PollUntilDoneOptions{Frequency: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		if id := val(got.ID); id != "/subscriptions/"+DefaultSubscription+"/resourceGroups/azsim/providers/Microsoft.Compute/disks/d1" {
			t.Errorf("id %s", id)
		}
		if s := val(got.Properties.ProvisioningState); s != stateSucceeded {
			t.Errorf("state %s", s)
		}
	})
}

// A panic is answered with 500, and the next request is served.
func TestPanicKeepsNoLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, &Server{}, "")
		defer b.s.Close()
		b.s.init()
		b.s.types["microsoft.compute/disks"].put = func(*call) (*reply, error) { panic("planted") }
		b.refused("InternalExecutionError", "PUT", "Microsoft.Compute/disks/d", "2023-04-02", `{"location":"westeurope"}`)
		b.refused("ResourceNotFound", "GET", "Microsoft.Compute/disks/d", "2023-04-02", "")
	})
}
