package azsim_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"

	"github.com/ortet/ortet/azsim"
)

// must keeps the examples short: an error ends them.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// emptyDisk is the body of a disk of so many GiB.
func emptyDisk(gib int32) armcompute.Disk {
	return armcompute.Disk{Location: to.Ptr(azsim.DefaultLocation), Properties: &armcompute.DiskProperties{
		DiskSizeGB: to.Ptr(gib), CreationData: &armcompute.CreationData{CreateOption: to.Ptr(armcompute.DiskCreateOptionEmpty)},
	}}
}

func ExampleServer() {
	azure := azsim.Server{Speed: 1000} // the zero value works, too, at Azure's speed
	defer azure.Close()
	ctx := context.Background()

	disks := must(armcompute.NewDisksClient(azsim.DefaultSubscription, azure.Credential(""), azure.ClientOptions()))
	work := must(disks.BeginCreateOrUpdate(ctx, azsim.DefaultResourceGroup, "data", emptyDisk(4), nil))
	disk := must(work.PollUntilDone(ctx, nil))
	fmt.Println(*disk.Name, *disk.Properties.ProvisioningState)
	// Output: data Succeeded
}

// A region runs out of room: a scale-out fails, and leaves its new instance Failed.
func ExampleServer_AddFault() {
	azure := azsim.Server{Speed: 1000}
	defer azure.Close()
	ctx := context.Background()
	spec := must(azsim.ParseSpec([]byte(`
scaleSets:
- name: pool1
  capacity: 1
  body:
    sku: {name: Standard_D2s_v5}
    properties:
      upgradePolicy: {mode: Manual}
      overprovision: false
      virtualMachineProfile:
        osProfile: {computerNamePrefix: pool1, adminUsername: azureuser, adminPassword: Secret-of-an-example}
        storageProfile: {imageReference: {publisher: Debian, offer: debian-12, sku: 12-gen2, version: latest}}
`)))
	must(0, azure.Create(ctx, spec))
	must(0, azure.AddFault(azsim.Fault{
		Action: "Microsoft.Compute/virtualMachineScaleSets/virtualMachines/allocate",
		Effect: azsim.EffectError, Code: "OverconstrainedAllocationRequest", Count: 1,
	}))

	compute := must(armcompute.NewClientFactory(azsim.DefaultSubscription, azure.Credential(""), azure.ClientOptions()))
	two := armcompute.VirtualMachineScaleSetUpdate{SKU: &armcompute.SKU{Capacity: to.Ptr[int64](2)}}
	work := must(compute.NewVirtualMachineScaleSetsClient().BeginUpdate(ctx, azsim.DefaultResourceGroup, "pool1", two, nil))
	_, err := work.PollUntilDone(ctx, nil)
	var refused *azcore.ResponseError
	if errors.As(err, &refused) {
		fmt.Println(refused.ErrorCode)
	}
	instances := compute.NewVirtualMachineScaleSetVMsClient().NewListPager(azsim.DefaultResourceGroup, "pool1", nil)
	for _, vm := range must(instances.NextPage(ctx)).Value {
		fmt.Println(*vm.InstanceID, *vm.Properties.ProvisioningState)
	}
	// Output:
	// OverconstrainedAllocationRequest
	// 0 Succeeded
	// 1 Failed
}

// Virtual time needs a *testing.T, so that this example is a test: an hour of Azure's
// passes in milliseconds.
func TestServerInVirtualTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		azure := azsim.Server{Profile: azsim.Profile{"disk.create": {Min: time.Hour, Max: time.Hour}}}
		defer azure.Close()
		start := time.Now()

		disks := must(armcompute.NewDisksClient(azsim.DefaultSubscription, azure.Credential(""), azure.ClientOptions()))
		work := must(disks.BeginCreateOrUpdate(t.Context(), azsim.DefaultResourceGroup, "data", emptyDisk(4), nil))
		must(work.PollUntilDone(t.Context(), nil))
		if took := time.Since(start); took < time.Hour || took > time.Hour+time.Minute {
			t.Errorf("the disk took %v, want an hour", took)
		}
	})
}
