package play

import (
	"slices"
	"strconv"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"

	"github.com/ortet/ortet/internal/azsim"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/prototype"
)

// references says who refers to a version: a model, also by its definition, or an
// instance that runs it, whatever its own reference says. "" is nobody.
func (w *world) references(id fleet.ResourceID) (by string) {
	if w.model().Equal(id) {
		return "the model"
	}
	w.azure.View(func(v *azsim.View) {
		v.Each("Microsoft.Compute/virtualMachineScaleSets/virtualMachines", func(vm string, _ any) {
			if i, ok := v.Instance(vm); ok && fleet.ResourceID(i.Image).Equal(id) {
				by = "instance " + fleet.ResourceID(vm).Name()
			}
		})
	})
	return by
}

// latest is what a reference to the definition comes to: of the versions that are
// not excluded, the one whose numbers are highest.
func latest(v *azsim.View, definition fleet.ResourceID) (best fleet.ResourceID) {
	v.Each("Microsoft.Compute/galleries/images/versions", func(id string, body any) {
		r, ok := body.(*armcompute.GalleryImageVersion)
		if !ok || !fleet.ResourceID(id).Parent().Equal(definition) || r.Properties == nil || r.Properties.ProvisioningState == nil {
			return
		}
		state := string(*r.Properties.ProvisioningState)
		if state != prototype.Succeeded && state != "Updating" {
			return
		}
		if p := r.Properties.PublishingProfile; p != nil && p.ExcludeFromLatest != nil && *p.ExcludeFromLatest {
			return
		}
		if best == "" || slices.Compare(numbersOf(best.Name()), numbersOf(fleet.ResourceID(id).Name())) < 0 {
			best = fleet.ResourceID(id)
		}
	})
	return best
}

func numbersOf(version string) (all []int) {
	for part := range strings.SplitSeq(version, ".") {
		n, _ := strconv.Atoi(part) // Azure takes nothing else
		all = append(all, n)
	}
	return all
}

func imageOf(set *armcompute.VirtualMachineScaleSet) string {
	p := set.Properties
	if p == nil || p.VirtualMachineProfile == nil || p.VirtualMachineProfile.StorageProfile == nil ||
		p.VirtualMachineProfile.StorageProfile.ImageReference == nil || p.VirtualMachineProfile.StorageProfile.ImageReference.ID == nil {
		return ""
	}
	return *p.VirtualMachineProfile.StorageProfile.ImageReference.ID
}

// model gives the id of the image version that the model uses, "" for a Marketplace
// image.
func (w *world) model() (id fleet.ResourceID) {
	w.azure.View(func(v *azsim.View) {
		if set, ok := v.Get(string(w.pool)).(*armcompute.VirtualMachineScaleSet); ok {
			id = fleet.ResourceID(imageOf(set))
		}
		if id.Equal(w.names.Definition) {
			id = latest(v, id)
		}
	})
	return id
}

// bootstraps reports whether the model has an extension that goes with a capture.
func (w *world) bootstraps() (there bool) {
	w.azure.View(func(v *azsim.View) {
		set, ok := v.Get(string(w.pool)).(*armcompute.VirtualMachineScaleSet)
		if !ok || set.Properties == nil || set.Properties.VirtualMachineProfile == nil || set.Properties.VirtualMachineProfile.ExtensionProfile == nil {
			return
		}
		for _, e := range set.Properties.VirtualMachineProfile.ExtensionProfile.Extensions {
			there = there || e.Properties != nil && e.Properties.Type != nil && *e.Properties.Type == "CustomScript"
		}
	})
	return there
}

// extensionNames gives those of the model's extensions.
func (w *world) extensionNames() (names []string) {
	w.azure.View(func(v *azsim.View) {
		set, ok := v.Get(string(w.pool)).(*armcompute.VirtualMachineScaleSet)
		if !ok || set.Properties == nil || set.Properties.VirtualMachineProfile == nil || set.Properties.VirtualMachineProfile.ExtensionProfile == nil {
			return
		}
		for _, e := range set.Properties.VirtualMachineProfile.ExtensionProfile.Extensions {
			if e.Name != nil {
				names = append(names, *e.Name)
			}
		}
	})
	return names
}

func (w *world) tagsOf(id fleet.ResourceID) (tags map[string]*string, there bool) {
	w.azure.View(func(v *azsim.View) {
		switch r := v.Get(string(id)).(type) {
		case *armcompute.Snapshot:
			tags, there = r.Tags, true
		case *armcompute.Disk:
			tags, there = r.Tags, true
		case *armcompute.GalleryImageVersion:
			tags, there = r.Tags, true
		}
	})
	return tags, there
}

// stateOf gives a version's provisioning state, "" where there is none.
func (w *world) stateOf(id fleet.ResourceID) (state string) {
	w.azure.View(func(v *azsim.View) {
		if r, ok := v.Get(string(id)).(*armcompute.GalleryImageVersion); ok && r.Properties != nil && r.Properties.ProvisioningState != nil {
			state = string(*r.Properties.ProvisioningState)
		}
	})
	return state
}
