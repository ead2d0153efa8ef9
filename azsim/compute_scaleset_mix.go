package azsim

import (
	"cmp"
	"slices"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"
)

// mixName is the sku's name of a scale set with an instance mix, whose sizes its skuProfile
// has ("Instance mix overview"). The texts of refusals are inferred.
const mixName = "Mix"

func isMix(set *armcompute.VirtualMachineScaleSet) bool { return sizeOf(set) == mixName }

// sizesOf lists the sizes that new instances may have, those to be taken first at the beginning.
func sizesOf(set *armcompute.VirtualMachineScaleSet) []string {
	if !isMix(set) || set.Properties.SKUProfile == nil {
		return []string{sizeOf(set)}
	}
	sizes := slices.Clone(set.Properties.SKUProfile.VMSizes)
	slices.SortStableFunc(sizes, func(a, b *armcompute.SKUProfileVMSize) int { return cmp.Compare(val(a.Rank), val(b.Rank)) })
	var names []string
	for _, z := range sizes {
		names = append(names, val(z.Name))
	}
	return names
}

// sizeFor is the size of a scale set's n-th instance. Nothing has a price or runs out here: by
// strategy CapacityOptimized sizes take turns, by another one all instances have the first.
func sizeFor(set *armcompute.VirtualMachineScaleSet, n int) string {
	sizes := sizesOf(set)
	if !isMix(set) || val(set.Properties.SKUProfile.AllocationStrategy) != armcompute.AllocationStrategyCapacityOptimized {
		n = 0
	}
	return sizes[n%len(sizes)]
}

// sizeIn is the size that the instance has by the scale set's model: its own, if that is in the mix.
func (x *instance) sizeIn(set *armcompute.VirtualMachineScaleSet) string {
	if slices.Contains(sizesOf(set), x.size) {
		return x.size
	}
	return sizeFor(set, x.id)
}

// checkMix settles an instance mix: one to five sizes, in Flexible sets only.
func checkMix(_ *call, next *armcompute.VirtualMachineScaleSet) error {
	p := next.Properties.SKUProfile
	switch {
	case p == nil && !isMix(next):
		return nil
	case p == nil || !isMix(next):
		return badParameter("skuProfile", "Properties 'sku.name' '%s' and 'skuProfile' do not fit: 'skuProfile' is for 'sku.name' 'Mix' alone.", sizeOf(next))
	case val(next.Properties.OrchestrationMode) != armcompute.OrchestrationModeFlexible:
		return badParameter("skuProfile", "Property 'skuProfile' is supported for Virtual Machine Scale Sets with orchestration mode 'Flexible' only.")
	case len(p.VMSizes) < 1 || len(p.VMSizes) > 5:
		return badParameter("skuProfile.vmSizes", "Property 'skuProfile.vmSizes' has %d sizes: it must have 1 to 5.", len(p.VMSizes))
	}
	p.AllocationStrategy = orDefault(p.AllocationStrategy, armcompute.AllocationStrategyLowestPrice)
	if !canon(p.AllocationStrategy, armcompute.PossibleAllocationStrategyValues()) {
		return badParameter("skuProfile.allocationStrategy", "The value of parameter skuProfile.allocationStrategy is invalid.")
	}
	for _, z := range p.VMSizes {
		if z == nil || val(z.Name) == "" || z.Rank != nil && *p.AllocationStrategy != armcompute.AllocationStrategyPrioritized {
			return badParameter("skuProfile.vmSizes", "A member of 'skuProfile.vmSizes' has no name, or a rank without strategy 'Prioritized'.")
		}
	}
	return nil
}
