package play

import (
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/test/scenario"
)

// Kinds of pools.
const (
	trusted    = "trusted"
	nvme       = "nvme"
	spot       = "spot"
	spotDelete = "spotdelete"
)

// ofKind makes a scale set's body one of the pool's kind, and a reason to refuse where
// the model is one.
func ofKind(p scenario.Pool, body object) {
	properties := body["properties"].(object)
	profile := properties["virtualMachineProfile"].(object)
	security := func(of string) {
		profile["securityProfile"] = object{"securityType": of, "uefiSettings": object{"secureBootEnabled": true, "vTpmEnabled": true}}
	}
	switch p.Kind {
	case trusted:
		security("TrustedLaunch")
	case nvme:
		body["sku"].(object)["name"] = "Standard_D2s_v6"
	case spot:
		profile["priority"], profile["evictionPolicy"] = "Spot", "Deallocate"
	case spotDelete:
		profile["priority"], profile["evictionPolicy"] = "Spot", "Delete"
	}
	switch p.Refuses {
	case "repairs":
		properties["automaticRepairsPolicy"] = object{"enabled": true, "gracePeriod": "PT30M"}
	case "osupgrade":
		properties["upgradePolicy"].(object)["automaticOSUpgradePolicy"] = object{"enableAutomaticOSUpgrade": true}
	case "ephemeral":
		body["sku"].(object)["name"] = "Standard_D2ds_v5"
		profile["storageProfile"].(object)["osDisk"] = object{"createOption": "FromImage", "caching": "ReadOnly", "diffDiskSettings": object{"option": "Local", "placement": "ResourceDisk"}}
	case "confidential":
		body["sku"].(object)["name"] = "Standard_DC2as_v5"
		security("ConfidentialVM")
	}
}

// reportsHealth tells whether Azure wants to know how the instances are.
func reportsHealth(p scenario.Pool) bool {
	return p.Upgrade == "Rolling" || p.Refuses == "repairs" || p.Refuses == "osupgrade"
}

// features are those of the pool's image definition.
func features(p scenario.Pool) []object {
	switch {
	case p.Kind == trusted:
		return []object{{"name": "SecurityType", "value": "TrustedLaunch"}}
	case p.Kind == nvme:
		return []object{{"name": "SecurityType", "value": "Standard"}, {"name": "DiskControllerTypes", "value": "SCSI, NVMe"}}
	case p.Refuses == "confidential":
		return []object{{"name": "SecurityType", "value": "TrustedLaunchAndConfidentialVmSupported"}}
	}
	return nil
}

// highestLUN is that of the pool's size, which takes four data disks, or eight.
func (w *world) highestLUN() int32 {
	if w.story.Pool.Kind == nvme {
		return 7
	}
	return maxLUN
}

// evict has Azure take a Spot instance away: the event 30 s before it comes, too.
func (w *world) evict(node string) {
	c := w.computerOf(node)
	if c == nil || w.azure.Evict(c.ResourceID) != nil {
		return
	}
	w.theirs(node)
	if w.story.Pool.Kind == spotDelete {
		w.gone(fleet.ResourceID(c.ResourceID))
	}
}
