package lifecycle

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/k3s"
	"github.com/ortet/ortet/internal/k3s/recipe"
)

// checkSizes refuses VM sizes by what Azure's catalogue says of them. Whether a size can be
// had is asked only for new machines: Azure keeps what runs.
func (m *Manager) checkSizes(ctx context.Context, o *observation, d *recipe.Documents, p *problems) error {
	type machine struct {
		field, size string
		exists      bool // with this size
		spot        bool
		needsTemp   string // the option that needs a temporary disk
		zones       []string
		gpu         bool // pods are to get its GPUs
	}
	spec := &m.Cluster.Spec
	swap, scratch := "", ""
	if spec.Options.SwapGB > 0 {
		swap = "options.swapGB"
		scratch = swap
	} else if spec.Options.Scratch {
		scratch = "options.scratch"
	}
	all := []machine{{
		field: "spec.server.size", size: spec.Server.Size, needsTemp: swap,
		exists: o.serverStays() && strings.EqualFold(o.server.Properties.HardwareProfile.VMSize, spec.Server.Size),
	}}
	for i, pool := range spec.Pools {
		set, exists := o.sets[pool.Name]
		if d.Pools[pool.Name].Size != pool.Size {
			continue // the file's size is not used
		}
		all = append(all, machine{
			field: fmt.Sprintf("spec.pools[%d].size", i), size: pool.Size, needsTemp: scratch, zones: pool.Zones, gpu: pool.GPU != nil,
			spot: pool.Priority == k3s.Spot, exists: exists && strings.EqualFold(set.SKU.Name, pool.Size),
		})
	}
	runs := spec.Server.Size // the server's size now
	if o.serverStays() {
		runs = o.server.Properties.HardwareProfile.VMSize
	}
	names := []string{runs}
	for _, one := range all {
		names = append(names, one.size)
	}
	sizes, err := m.Cloud.Sizes(ctx, m.Subscription, spec.Location, names...)
	if err != nil {
		return err
	}
	list := "use another size: az vm list-skus --output table --resource-type virtualMachines --location " + spec.Location
	was, known := sizes[strings.ToLower(runs)]
	will, offered := sizes[strings.ToLower(spec.Server.Size)]
	way := ", or make the server again, with its state: ortet cluster replace server"
	if !m.stateStays(o) {
		way = "; " + anotherCluster
	}
	if known && offered && was.NoTempDisk != will.NoTempDisk {
		p.add("SizeTempDiskFixed", m.serverID(), fmt.Sprintf("spec.server.size is %s, but the server has %s, and Azure changes no machine between sizes with and without a temporary disk",
			spec.Server.Size, runs), "write size: "+runs+way)
	}
	for _, one := range all {
		info, known := sizes[strings.ToLower(one.size)]
		refuse := func(code, why, wayOut string) {
			p.add(code, fleet.ResourceID(one.field), "size "+one.size+" "+why, wayOut)
		}
		if !known {
			if !one.exists {
				refuse("SizeUnknown", "is not offered in "+spec.Location, list)
			}
			continue
		}
		if info.Restricted != "" && !one.exists {
			refuse("SizeRestricted", "is not offered to this subscription in "+spec.Location+": "+info.Restricted, list)
		}
		for _, zone := range one.zones {
			if !one.exists && !slices.Contains(info.Zones, zone) {
				refuse("SizeNotInZone", "is not offered to this subscription in zone "+zone+" of "+spec.Location, "use other zones, or "+list)
			}
		}
		if one.spot && info.NoSpot {
			refuse("SizeNoSpot", "has no Spot in Azure", "use a size such as Standard_D2s_v5, or priority: Regular")
		}
		if why := noGPU(info); one.gpu && why != "" {
			refuse("SizeNoGPU", why, "delete gpu of the pool, or use a size such as Standard_NC4as_T4_v3: "+
				"az vm list-skus --size Standard_N --output table --location "+spec.Location)
		}
		if strings.EqualFold(info.Architecture, "Arm64") {
			refuse("SizeArm64", "is an Arm64 machine, but programs of spec.artifacts are for amd64",
				"use a size without p in its name, such as Standard_D2s_v5")
		}
		if one.needsTemp != "" && info.NoTempDisk {
			refuse("SizeNoTempDisk", "has no temporary disk, which "+one.needsTemp+" needs",
				"use a size such as Standard_D2ds_v5, or delete "+one.needsTemp)
		}
	}
	return nil
}
