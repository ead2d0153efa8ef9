package azsim

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"
)

// overlayPut is what a PUT of an existing scale set leaves. Members of the levels
// named here that are absent keep their value: cluster-autoscaler changes the
// capacity by a PUT of name, sku and location alone, and azure-cli leaves the
// image reference out of every PUT that does not change it, and sends UEFI settings without
// the security type. A member that is
// there replaces the old one as a whole.
//
// Within the image reference, "az vmss update --set …imageReference.version=V"
// sends the version alone, and one of a gallery sends the id alone: the first
// keeps publisher, offer and SKU, the second takes them away.
func overlayPut(old any, tree map[string]any) map[string]any {
	out := overlayAt(old, tree, putLevels())
	ref, _ := at(tree, "properties", "virtualMachineProfile", "storageProfile", "imageReference").(map[string]any)
	was, _ := at(old, "properties", "virtualMachineProfile", "storageProfile", "imageReference").(map[string]any)
	storage, _ := at(out, "properties", "virtualMachineProfile", "storageProfile").(map[string]any)
	if ref == nil || ref["id"] != nil || storage == nil {
		return out
	}
	merged := overlay(was, ref)
	if len(ref) > 0 {
		delete(merged, "id")
	}
	storage["imageReference"] = merged
	return out
}

// A putLevel is an object within which a PUT keeps absent members.
type putLevel map[string]putLevel

func putLevels() putLevel {
	return putLevel{"sku": {}, "properties": {"upgradePolicy": {}, "virtualMachineProfile": {"storageProfile": {}, "securityProfile": {}}}}
}

func overlayAt(old any, tree map[string]any, level putLevel) map[string]any {
	was, _ := old.(map[string]any)
	out := overlay(was, tree)
	for name, below := range level {
		if part, ok := tree[name].(map[string]any); ok {
			out[name] = overlayAt(was[name], part, below)
		}
	}
	return out
}

func overlay(old, tree map[string]any) map[string]any {
	out := make(map[string]any, len(old)+len(tree))
	for k, v := range old {
		out[k] = v
	}
	for k, v := range tree {
		if v != nil {
			out[k] = v
		}
	}
	return out
}

// modelKey identifies the part of a scale set's model that its instances are
// made from: two models with the same key make the same instances. Capacity,
// tags and policies are no part of it.
func modelKey(set *armcompute.VirtualMachineScaleSet) string {
	profile := *profileOf(set)
	if len(extensionsOf(&profile)) == 0 {
		profile.ExtensionProfile = nil // an empty list is none
	}
	profile.TimeCreated = nil // it follows from the rest
	data, err := json.Marshal(map[string]any{"size": sizesOf(set), "profile": &profile})
	if err != nil {
		return ""
	}
	// The names of members and ids are compared as they are: ARM, too, sees a
	// changed model where only the letter case of an id has changed.
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

func sizeOf(set *armcompute.VirtualMachineScaleSet) string {
	if set == nil || set.SKU == nil {
		return ""
	}
	return val(set.SKU.Name)
}

func capacityOf(set *armcompute.VirtualMachineScaleSet) int {
	if set == nil || set.SKU == nil {
		return 0
	}
	return int(val(set.SKU.Capacity))
}

// profileOf returns the model's recipe for instances, never nil.
func profileOf(set *armcompute.VirtualMachineScaleSet) *armcompute.VirtualMachineScaleSetVMProfile {
	if set == nil || set.Properties == nil || set.Properties.VirtualMachineProfile == nil {
		return &armcompute.VirtualMachineScaleSetVMProfile{}
	}
	return set.Properties.VirtualMachineProfile
}

// imageOf is the recipe's image reference, nil without one.
func imageOf(p *armcompute.VirtualMachineScaleSetVMProfile) *armcompute.ImageReference {
	if p.StorageProfile == nil {
		return nil
	}
	return p.StorageProfile.ImageReference
}

func extensionsOf(p *armcompute.VirtualMachineScaleSetVMProfile) []*armcompute.VirtualMachineScaleSetExtension {
	if p.ExtensionProfile == nil {
		return nil
	}
	return p.ExtensionProfile.Extensions
}

func zonesOf(list []*string) []string {
	var out []string
	for _, z := range list {
		out = append(out, val(z))
	}
	return out
}

// isEphemeral tells whether the recipe's OS disk lies on the host.
func isEphemeral(p *armcompute.VirtualMachineScaleSetVMProfile) bool {
	return p.StorageProfile != nil && p.StorageProfile.OSDisk != nil && p.StorageProfile.OSDisk.DiffDiskSettings != nil &&
		val(p.StorageProfile.OSDisk.DiffDiskSettings.Option) == armcompute.DiffDiskOptionsLocal
}

func isSpot(p *armcompute.VirtualMachineScaleSetVMProfile) bool {
	v := val(p.Priority)
	return v == armcompute.VirtualMachinePriorityTypesSpot || v == armcompute.VirtualMachinePriorityTypesLow
}

// showScaleSet is a scale set as clients may see it: without custom data,
// passwords and protected settings, which no answer of Azure ever holds, and
// without user data unless that is asked for.
func showScaleSet(body *armcompute.VirtualMachineScaleSet, userData bool) any {
	out := *body
	if body.Properties == nil || body.Properties.VirtualMachineProfile == nil {
		return &out
	}
	// Copied is what differs; answers are encoded under the lock.
	props, p := *body.Properties, *body.Properties.VirtualMachineProfile
	out.Properties, props.VirtualMachineProfile = &props, &p
	if p.OSProfile != nil {
		os := *p.OSProfile
		os.CustomData, os.AdminPassword = nil, nil
		p.OSProfile = &os
	}
	if !userData {
		p.UserData = nil
	}
	if p.ExtensionProfile != nil {
		exts := *p.ExtensionProfile
		exts.Extensions = slices.Clone(exts.Extensions)
		for i, x := range exts.Extensions {
			if x.Properties != nil && x.Properties.ProtectedSettings != nil {
				shown, ep := *x, *x.Properties
				ep.ProtectedSettings, shown.Properties = nil, &ep
				exts.Extensions[i] = &shown
			}
		}
		p.ExtensionProfile = &exts
	}
	return &out
}

// carrySecrets keeps what a client cannot read back and therefore does not send
// again: the custom data, the password, and the protected settings of an
// extension of the same name.
func carrySecrets(old, next *armcompute.VirtualMachineScaleSet) {
	was, now := profileOf(old), profileOf(next)
	if was.OSProfile != nil && now.OSProfile != nil {
		if now.OSProfile.CustomData == nil {
			now.OSProfile.CustomData = was.OSProfile.CustomData
		}
		if now.OSProfile.AdminPassword == nil {
			now.OSProfile.AdminPassword = was.OSProfile.AdminPassword
		}
	}
	now.UserData = cmp.Or(now.UserData, was.UserData)
	for _, x := range extensionsOf(now) {
		before := findSetExtension(was, val(x.Name))
		if before == nil || before.Properties == nil || x.Properties == nil || x.Properties.ProtectedSettings != nil {
			continue
		}
		x.Properties.ProtectedSettings = before.Properties.ProtectedSettings
	}
}

// findSetExtension finds an extension of the recipe by name, in any letter case.
func findSetExtension(p *armcompute.VirtualMachineScaleSetVMProfile, name string) *armcompute.VirtualMachineScaleSetExtension {
	for _, x := range extensionsOf(p) {
		if strings.EqualFold(val(x.Name), name) {
			return x
		}
	}
	return nil
}

// extensionNeeds returns the recipe's extensions as extensionOrder takes them.
func extensionNeeds(p *armcompute.VirtualMachineScaleSetVMProfile) []extensionNeed {
	var out []extensionNeed
	for _, x := range extensionsOf(p) {
		n := extensionNeed{name: val(x.Name)}
		if x.Properties != nil {
			for _, a := range x.Properties.ProvisionAfterExtensions {
				n.after = append(n.after, val(a))
			}
		}
		out = append(out, n)
	}
	return out
}
