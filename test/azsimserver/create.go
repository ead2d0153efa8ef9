package azsimserver

import (
	"context"
	"encoding/json"
	"fmt"
	"path"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"

	"github.com/ortet/ortet/azsim"
)

// Create makes a scale set as an operator does, by ARM, and returns when Azure
// has done it: its instances have booted. For pools whose customData names what
// is known only of an Azure that runs, such as its certificates.
func (a *Azure) Create(ctx context.Context, p Pool) error {
	text, err := json.Marshal(p.body())
	if err != nil {
		return fmt.Errorf("write the body of scale set %s: %w", p.Name, err)
	}
	var set armcompute.VirtualMachineScaleSet
	if err := json.Unmarshal(text, &set); err != nil {
		return fmt.Errorf("read the body of scale set %s: %w", p.Name, err)
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

// CreateIn makes the pool in an Azure of the caller's own, in none of Azure's time.
func (p Pool) CreateIn(ctx context.Context, s *azsim.Server) error {
	return s.Create(ctx, &azsim.Spec{ScaleSets: []azsim.ScaleSetSpec{{Name: p.Name, Body: p.body()}}})
}

// Bare is a Change to a pool without extensions, whose machines nobody makes nodes.
func Bare(body map[string]any) { delete(profileOf(body), "extensionProfile") }

// Flexible is a Change to a pool whose members are virtual machines.
func Flexible(body map[string]any) {
	properties, _ := body["properties"].(map[string]any)
	properties["orchestrationMode"], properties["singlePlacementGroup"] = "Flexible", false
	properties["platformFaultDomainCount"] = 1
	delete(properties, "overprovision")
	network, _ := profileOf(body)["networkProfile"].(map[string]any)
	network["networkApiVersion"] = "2020-11-01"
}

// Spot returns a Change to such a pool of spot instances, which Azure evicts by the policy:
// Deallocate or Delete.
func Spot(policy string) func(map[string]any) {
	return func(body map[string]any) {
		Bare(body)
		profile := profileOf(body)
		profile["priority"], profile["evictionPolicy"] = "Spot", policy
	}
}

func profileOf(body map[string]any) map[string]any {
	properties, _ := body["properties"].(map[string]any)
	profile, _ := properties["virtualMachineProfile"].(map[string]any)
	return profile
}

// Images names the image that each instance's OS disk was made from, by the provider
// id that its Node has, in lower case: publisher:offer:sku:version of the Marketplace,
// or the version's name in a gallery.
func (a *Azure) Images(ctx context.Context, pool string) (map[string]string, error) {
	set, err := a.Pool(ctx, pool)
	if err != nil {
		return nil, err
	}
	f, err := a.Clients()
	if err != nil {
		return nil, err
	}
	images := map[string]string{}
	note := func(id *string, storage *armcompute.StorageProfile) {
		if id == nil || storage == nil || storage.ImageReference == nil {
			return
		}
		image := storage.ImageReference
		name := ""
		if image.ID != nil {
			name = path.Base(*image.ID)
		} else if image.Publisher != nil && image.Offer != nil && image.SKU != nil && image.Version != nil {
			name = strings.Join([]string{*image.Publisher, *image.Offer, *image.SKU, *image.Version}, ":")
		}
		images["azure://"+strings.ToLower(*id)] = name
	}
	if mode := set.Properties.OrchestrationMode; mode != nil && *mode == armcompute.OrchestrationModeFlexible {
		members := "'virtualMachineScaleSet/id' eq '" + *set.ID + "'"
		pager := f.NewVirtualMachinesClient().NewListPager(a.Endpoint.ResourceGroup, &armcompute.VirtualMachinesClientListOptions{Filter: &members})
		for pager.More() {
			page, err := pager.NextPage(ctx)
			if err != nil {
				return nil, fmt.Errorf("list members of %s: %w", pool, err)
			}
			for _, vm := range page.Value {
				if vm.Properties != nil {
					note(vm.ID, vm.Properties.StorageProfile)
				}
			}
		}
		return images, nil
	}
	pager := f.NewVirtualMachineScaleSetVMsClient().NewListPager(a.Endpoint.ResourceGroup, pool, nil)
	for pager.More() {
		page, err := pager.NextPage(ctx)
		if err != nil {
			return nil, fmt.Errorf("list instances of %s: %w", pool, err)
		}
		for _, vm := range page.Value {
			if vm.Properties != nil {
				note(vm.ID, vm.Properties.StorageProfile)
			}
		}
	}
	return images, nil
}
