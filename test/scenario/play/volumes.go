package play

import (
	"fmt"
	"net/http"
	"strings"
	"testing/synctest"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"

	"github.com/ortet/ortet/internal/azsim"
	"github.com/ortet/ortet/internal/fleet"
)

// full are benches with a disk of others at each LUN.
const full = "full"

// A hung one is a data disk that others have attached.
type hung struct {
	instance, disk fleet.ResourceID
	lun            int32
}

// setUpVolumes has others attach data disks to the pool's first nodes, the donor among
// them: a volume driver at the lowest LUNs, a person at the highest.
func (w *world) setUpVolumes() error {
	const some = 8 // nodes
	high, low := int32(1), int32(0)
	switch w.story.Pool.Volumes {
	case "low":
	case "high":
		high, low = w.highestLUN(), w.highestLUN()
	default:
		return nil
	}
	for i := range min(some, w.story.Pool.Instances) {
		if w.story.Pool.Benches == full && i > 0 {
			break
		}
		if err := w.hangVolumes(i, high, low); err != nil {
			return err
		}
	}
	return nil
}

// hangVolumes attaches a data disk at each LUN of a range to the n-th instance.
func (w *world) hangVolumes(n int, high, low int32) error {
	for lun := low; lun <= high; lun++ {
		v := hung{w.instance(n), w.pool.In("disks", fmt.Sprintf("pvc-%d-%d", n, lun)), lun}
		body := object{
			"location": location, "properties": object{"creationData": object{"createOption": "Empty"}, "diskSizeGB": 4}, "sku": object{"name": "Premium_LRS"},
		}
		if c := w.computerOf(w.node(n)); c != nil && c.Zone != "" {
			body["zones"] = []string{c.Zone}
		}
		err := w.request(http.MethodPut, string(v.disk), "2024-03-02", body)
		synctest.Wait()
		if err == nil {
			err = w.request(http.MethodPost, string(v.instance)+"/attachDetachDataDisks", apiYear, object{
				"dataDisksToAttach": []object{{"diskId": string(v.disk), "lun": lun}},
			})
			synctest.Wait() // it is busy until then, and refuses the next
		}
		if err != nil {
			return fmt.Errorf("attach %s: %w", v.disk.Name(), err)
		}
		w.volumes = append(w.volumes, v)
	}
	return nil
}

// freeLUN is the highest LUN that nobody uses.
func (w *world) freeLUN(c *computer) int32 {
	w.mu.Lock()
	defer w.mu.Unlock()
	for lun := w.highestLUN(); lun > 0; lun-- {
		if _, taken := c.theirs[lun]; !taken {
			return lun
		}
	}
	return 0
}

// checkVolumes: the disks of others hang where they hung.
func (w *world) checkVolumes(p *process) {
	w.azure.View(func(view *azsim.View) {
		for _, v := range w.volumes {
			i, ok := view.Get(string(v.instance)).(*armcompute.VirtualMachineScaleSetVM)
			if !ok || i.Properties == nil || i.Properties.StorageProfile == nil {
				continue
			}
			there := false
			for _, d := range i.Properties.StorageProfile.DataDisks {
				there = there || d.ManagedDisk != nil && d.ManagedDisk.ID != nil && strings.EqualFold(*d.ManagedDisk.ID, string(v.disk)) && d.Lun != nil && *d.Lun == v.lun
			}
			if !there {
				defer w.broken("%s ends, and the disk %s of others does not hang at LUN %d of %s any more", p.name, v.disk.Name(), v.lun, v.instance.Name())
			}
		}
	})
}
