package arm

import (
	"context"
	"strings"

	"github.com/ortet/ortet/internal/fleet"
)

// Uses lists who refers to a definition or one of its versions.
func (c *Cloud) Uses(ctx context.Context, definition fleet.ResourceID) ([]fleet.ImageUse, error) {
	const op = "list who uses an image"
	p, err := c.at(definition, typeDefinition)
	if err != nil {
		return nil, failed(ctx, op, definition, err)
	}
	var out []fleet.ImageUse
	note := func(image *imageAnswer, by string) {
		ref := imageOf(image)
		for _, id := range []fleet.ResourceID{ref.ID, ref.Exact()} {
			use := fleet.ImageUse{Image: id, By: fleet.ResourceID(by)}
			if within(id, definition) && (len(out) == 0 || out[len(out)-1] != use) {
				out = append(out, use)
			}
		}
	}

	var sets []fleet.ResourceID
	pager := p.NewVirtualMachineScaleSetsClient().NewListPager(p.group, nil)
	for n := 0; pager.More(); n++ {
		if n == maxPages {
			return nil, endless(op, definition)
		}
		var list page[setAnswer]
		if _, err := pager.NextPage(reading(ctx, &list)); err != nil {
			return nil, failed(ctx, op, definition, err)
		}
		for _, v := range list.Value {
			if v == nil {
				continue
			}
			flexible := false
			if q := v.Properties; q != nil {
				flexible = strings.EqualFold(q.OrchestrationMode, "Flexible")
				if q.VirtualMachineProfile != nil {
					note(q.VirtualMachineProfile.StorageProfile.ImageReference, v.ID)
				}
			}
			if !flexible { // a Flexible set's instances are virtual machines
				sets = append(sets, fleet.ResourceID(v.ID))
			}
		}
	}
	for _, set := range sets {
		err := c.eachInstance(ctx, set, "", func(vm *instanceAnswer) {
			note(vm.Properties.StorageProfile.ImageReference, vm.ID)
		})
		if err != nil && !fleet.Is(err, fleet.KindNotFound) {
			return nil, err
		}
	}

	vms := p.NewVirtualMachinesClient().NewListPager(p.group, nil)
	for n := 0; vms.More(); n++ {
		if n == maxPages {
			return nil, endless(op, definition)
		}
		var list page[instanceAnswer]
		if _, err := vms.NextPage(reading(ctx, &list)); err != nil {
			return nil, failed(ctx, op, definition, err)
		}
		for _, vm := range list.Value {
			if vm != nil {
				note(vm.Properties.StorageProfile.ImageReference, vm.ID)
			}
		}
	}
	return out, nil
}

// within reports whether an image is the definition or one of its versions.
func within(image, definition fleet.ResourceID) bool {
	if image.Equal(definition) {
		return true
	}
	prefix := string(definition) + "/"
	return len(image) > len(prefix) && strings.EqualFold(string(image[:len(prefix)]), prefix)
}
