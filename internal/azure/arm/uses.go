package arm

import (
	"context"
	"slices"
	"strings"

	"github.com/ortet/ortet/internal/fleet"
)

// Uses lists who refers to definitions of one gallery or to one of their versions.
func (c *Cloud) Uses(ctx context.Context, definitions ...fleet.ResourceID) ([]fleet.ImageUse, error) {
	const op = "list who uses an image"
	definition := definitions[0]
	p, err := c.at(definition, typeDefinition)
	if err != nil {
		return nil, failed(ctx, op, definition, err)
	}
	var out []fleet.ImageUse
	note := func(image *imageAnswer, by string) {
		ref := imageOf(image)
		for _, id := range []fleet.ResourceID{ref.ID, ref.Exact()} {
			use := fleet.ImageUse{Image: id, By: fleet.ResourceID(by)}
			if slices.ContainsFunc(definitions, func(d fleet.ResourceID) bool { return within(id, d) }) && (len(out) == 0 || out[len(out)-1] != use) {
				out = append(out, use)
			}
		}
	}

	var sets []fleet.ResourceID
	if err := list(ctx, c, c.address(p.below+typeScaleSet, computeVersion), func(v *setAnswer) error {
		if q := v.Properties; q != nil && q.VirtualMachineProfile != nil {
			note(q.VirtualMachineProfile.StorageProfile.ImageReference, v.ID)
		}
		if !v.flexible() { // a Flexible set's instances are virtual machines
			sets = append(sets, fleet.ResourceID(v.ID))
		}
		return nil
	}); err != nil {
		return nil, failed(ctx, op, definition, err)
	}
	for _, set := range sets {
		err := c.eachInstance(ctx, set, false, false, func(vm *instanceAnswer) {
			note(vm.Properties.StorageProfile.ImageReference, vm.ID)
		})
		if err != nil && !fleet.Is(err, fleet.KindNotFound) {
			return nil, err
		}
	}

	if err := list(ctx, c, c.address(p.below+typeMachine, computeVersion), func(vm *instanceAnswer) error {
		note(vm.Properties.StorageProfile.ImageReference, vm.ID)
		return nil
	}); err != nil {
		return nil, failed(ctx, op, definition, err)
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
