package simulation

import (
	"context"
	"encoding/json"
	"fmt"
	"path"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"
)

// Create makes a scale set as an operator does, by ARM, and returns when Azure
// has done it: its instances have booted. For pools whose customData names what
// is known only of an Azure that runs, such as its certificates.
func (a *Azure) Create(ctx context.Context, p Pool) error {
	set, err := p.ScaleSet()
	if err != nil {
		return err
	}
	f, err := a.Clients()
	if err != nil {
		return err
	}
	poller, err := f.NewVirtualMachineScaleSetsClient().BeginCreateOrUpdate(ctx, a.Endpoint.ResourceGroup, p.Name, set, nil)
	if err != nil {
		return err
	}
	_, err = poller.PollUntilDone(ctx, nil)
	return err
}

// ScaleSet is the pool as Azure's client gives it to ARM, for those who have an Azure
// of their own.
func (p Pool) ScaleSet() (set armcompute.VirtualMachineScaleSet, err error) {
	text, err := json.Marshal(p.body())
	if err != nil {
		return set, fmt.Errorf("write the body of scale set %s: %w", p.Name, err)
	}
	if err := json.Unmarshal(text, &set); err != nil {
		return set, fmt.Errorf("read the body of scale set %s: %w", p.Name, err)
	}
	return set, nil
}

// Bare is a Change to a pool without extensions, whose machines nobody makes nodes.
func Bare(body map[string]any) {
	if properties, ok := body["properties"].(map[string]any); ok {
		if profile, ok := properties["virtualMachineProfile"].(map[string]any); ok {
			delete(profile, "extensionProfile")
		}
	}
}

// Images names the image that each instance's OS disk was made from, by the provider
// id that its Node has, in lower case: publisher:offer:sku:version of the Marketplace,
// or the version's name in a gallery.
func (a *Azure) Images(ctx context.Context, pool string) (map[string]string, error) {
	f, err := a.Clients()
	if err != nil {
		return nil, err
	}
	images := map[string]string{}
	pager := f.NewVirtualMachineScaleSetVMsClient().NewListPager(a.Endpoint.ResourceGroup, pool, nil)
	for pager.More() {
		page, err := pager.NextPage(ctx)
		if err != nil {
			return nil, fmt.Errorf("list instances of %s: %w", pool, err)
		}
		for _, vm := range page.Value {
			if vm.ID == nil || vm.Properties == nil || vm.Properties.StorageProfile == nil || vm.Properties.StorageProfile.ImageReference == nil {
				continue
			}
			image := vm.Properties.StorageProfile.ImageReference
			name := ""
			if image.ID != nil {
				name = path.Base(*image.ID)
			} else if image.Publisher != nil && image.Offer != nil && image.SKU != nil && image.Version != nil {
				name = strings.Join([]string{*image.Publisher, *image.Offer, *image.SKU, *image.Version}, ":")
			}
			images["azure://"+strings.ToLower(*vm.ID)] = name
		}
	}
	return images, nil
}
