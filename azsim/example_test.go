package azsim_test

import (
	"context"
	"fmt"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"

	"github.com/ortet/ortet/azsim"
)

func ExampleServer() {
	var azure azsim.Server
	defer azure.Close()
	_ = azure.Create(context.Background(), &azsim.Spec{})
	disks, _ := armcompute.NewDisksClient(azsim.DefaultSubscription, azure.Credential(""), azure.ClientOptions())
	work, err := disks.BeginCreateOrUpdate(context.Background(), azsim.DefaultResourceGroup, "d", armcompute.Disk{Location: to.Ptr(azsim.DefaultLocation),
		Properties: &armcompute.DiskProperties{DiskSizeGB: to.Ptr[int32](4), CreationData: &armcompute.CreationData{CreateOption: to.Ptr(armcompute.DiskCreateOptionEmpty)}}}, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	disk, err := work.PollUntilDone(context.Background(), nil)
	fmt.Println(*disk.Name, *disk.Properties.ProvisioningState, err)
	// Output: d Succeeded <nil>
}
