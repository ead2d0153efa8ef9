package azsim

import (
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"
)

// az vm create asks for the latest version of an image, and what that is.
func TestMarketplaceImageVersions(t *testing.T) {
	inVirtualTime(t, nil, func(b *bench) {
		images := b.f.NewVirtualMachineImagesClient()
		list, err := images.List(b.ctx, DefaultLocation, "Canonical", "ubuntu-24_04-lts", "server",
			&armcompute.VirtualMachineImagesClientListOptions{Top: ptr(int32(1)), Orderby: ptr("name desc")})
		if err != nil || len(list.VirtualMachineImageResourceArray) != 1 {
			t.Fatalf("%v %v", list.VirtualMachineImageResourceArray, err)
		}
		version := val(list.VirtualMachineImageResourceArray[0].Name)
		one, err := images.Get(b.ctx, DefaultLocation, "Canonical", "ubuntu-24_04-lts", "server", version, nil)
		if err != nil || val(one.Properties.HyperVGeneration) != "V2" || val(one.Properties.OSDiskImage.OperatingSystem) != "Linux" {
			t.Errorf("%v %v", one.Properties, err)
		}
		old, err := images.Get(b.ctx, DefaultLocation, "OpenLogic", "CentOS", "7.5", "7.5.201808150", nil)
		if err != nil || val(old.Properties.HyperVGeneration) != "V1" ||
			!val(old.Properties.AutomaticOSUpgradeProperties.AutomaticOSUpgradeSupported) {
			t.Errorf("%v %v", old.Properties, err)
		}
		_, err = images.Get(b.ctx, DefaultLocation, "Canonical", "ubuntu-24_04-lts", "server", "latest", nil)
		wantRefusal(t, err, "NotFound", "VMImage")
		_, err = images.List(b.ctx, "nowhere", "Canonical", "ubuntu-24_04-lts", "server", nil)
		wantRefusal(t, err, "NoRegisteredProviderFound", "nowhere")
		_, err = images.ListPublishers(b.ctx, DefaultLocation, nil)
		wantRefusal(t, err, "NotSimulated", "publisher")
		_, err = b.f.NewVirtualMachineExtensionImagesClient().ListTypes(b.ctx, DefaultLocation, "Microsoft.Azure.Extensions", nil)
		wantRefusal(t, err, "NotSimulated", "extension type")
	})
}
