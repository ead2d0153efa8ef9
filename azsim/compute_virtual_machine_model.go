package azsim

import (
	"cmp"
	"slices"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"
)

// fillMachine spells a machine's model as Azure does, and fills in what Azure does
// (recorded). What only the platform knows is no part of it.
func fillMachine(vm *armcompute.VirtualMachine, osType armcompute.OperatingSystemTypes) {
	p := vm.Properties
	p.ProvisioningState, p.VMID, p.TimeCreated, p.InstanceView, vm.Resources, vm.Identity = nil, nil, nil, nil, nil, nil
	p.UserData = nil // shown on request alone
	p.StorageProfile = cmp.Or(p.StorageProfile, &armcompute.StorageProfile{})
	d := p.StorageProfile.OSDisk
	d.CreateOption = orDefault(d.CreateOption, armcompute.DiskCreateOptionTypesFromImage)
	canon(d.CreateOption, armcompute.PossibleDiskCreateOptionTypesValues())
	d.OSType = orDefault(d.OSType, osType)
	d.Caching = orDefault(d.Caching, armcompute.CachingTypesReadWrite)
	d.DeleteOption = orDefault(d.DeleteOption, armcompute.DiskDeleteOptionTypesDetach)
	if p.OSProfile != nil {
		fillOSProfile(p.OSProfile, *d.OSType)
	}
}

// fillOSProfile takes out what Azure never shows, and fills in the defaults.
func fillOSProfile(o *armcompute.OSProfile, osType armcompute.OperatingSystemTypes) {
	o.AdminPassword, o.CustomData = nil, nil
	o.AllowExtensionOperations = orDefault(o.AllowExtensionOperations, true)
	o.RequireGuestProvisionSignal = orDefault(o.RequireGuestProvisionSignal, true)
	if o.Secrets == nil {
		o.Secrets = []*armcompute.VaultSecretGroup{}
	}
	if osType == armcompute.OperatingSystemTypesWindows {
		fillWindows(&o.WindowsConfiguration, true)
		return
	}
	fillLinux(&o.LinuxConfiguration, true)
}

// fillWindows fills in the defaults of machines and models; patch gives patch settings, too.
func fillWindows(config **armcompute.WindowsConfiguration, patch bool) {
	*config = cmp.Or(*config, &armcompute.WindowsConfiguration{})
	w := *config
	w.ProvisionVMAgent = orDefault(w.ProvisionVMAgent, true)
	w.EnableAutomaticUpdates = orDefault(w.EnableAutomaticUpdates, true)
	w.EnableVMAgentPlatformUpdates = orDefault(w.EnableVMAgentPlatformUpdates, false)
	if !patch {
		return
	}
	w.PatchSettings = cmp.Or(w.PatchSettings, &armcompute.PatchSettings{})
	w.PatchSettings.PatchMode = orDefault(w.PatchSettings.PatchMode, armcompute.WindowsVMGuestPatchModeAutomaticByOS)
	w.PatchSettings.AssessmentMode = orDefault(w.PatchSettings.AssessmentMode, armcompute.WindowsPatchAssessmentModeImageDefault)
}

// fillLinux is fillWindows for Linux.
func fillLinux(config **armcompute.LinuxConfiguration, patch bool) {
	*config = cmp.Or(*config, &armcompute.LinuxConfiguration{})
	l := *config
	l.DisablePasswordAuthentication = orDefault(l.DisablePasswordAuthentication, false)
	l.ProvisionVMAgent = orDefault(l.ProvisionVMAgent, true)
	l.EnableVMAgentPlatformUpdates = orDefault(l.EnableVMAgentPlatformUpdates, false)
	if !patch {
		return
	}
	l.PatchSettings = cmp.Or(l.PatchSettings, &armcompute.LinuxPatchSettings{})
	l.PatchSettings.PatchMode = orDefault(l.PatchSettings.PatchMode, armcompute.LinuxVMGuestPatchModeImageDefault)
	l.PatchSettings.AssessmentMode = orDefault(l.PatchSettings.AssessmentMode, armcompute.LinuxPatchAssessmentModeImageDefault)
}

// spellDisks gives what a machine's disks are made of Azure's spelling: clients send it in
// lower case, too (vm_custom_image#48, vm_create_with_specialized_unmanaged_disk#14).
func spellDisks(sp *armcompute.StorageProfile) {
	if sp == nil {
		return
	}
	account := func(d *armcompute.ManagedDiskParameters) {
		if d != nil {
			canon(d.StorageAccountType, armcompute.PossibleStorageAccountTypesValues())
		}
	}
	if d := sp.OSDisk; d != nil {
		canon(d.OSType, armcompute.PossibleOperatingSystemTypesValues())
		canon(d.Caching, armcompute.PossibleCachingTypesValues())
		account(d.ManagedDisk)
	}
	for _, d := range sp.DataDisks {
		canon(d.CreateOption, armcompute.PossibleDiskCreateOptionTypesValues())
		canon(d.Caching, armcompute.PossibleCachingTypesValues())
		account(d.ManagedDisk)
	}
}

// showPlain is what a machine that was made by hand shows of its model and its state.
func (s *Server) showPlain(e *entry, out *armcompute.VirtualMachine) {
	x, body := instanceOf(e)
	state := out.Properties
	p := *x.plain.model.Properties
	p.VMID, p.ProvisioningState, p.TimeCreated = state.VMID, state.ProvisioningState, state.TimeCreated
	p.StorageProfile = s.plainStorage(x, body)
	out.Properties, out.Plan, out.ExtendedLocation = &p, x.plain.model.Plan, x.plain.model.ExtendedLocation
}

// plainStorage is a machine's storage profile with the disks as they are now.
func (s *Server) plainStorage(x *instance, body *armcompute.VirtualMachineScaleSetVM) *armcompute.StorageProfile {
	sp := *x.plain.model.Properties.StorageProfile
	if ref := sp.ImageReference; ref != nil && x.osDisk != nil {
		exact := *ref
		exact.ExactVersion = x.image.ref.ExactVersion
		sp.ImageReference = &exact
	}
	d := *sp.OSDisk
	if x.osDisk == nil {
		d.DiskSizeGB = firstOf(d.DiskSizeGB, ptr(x.image.sizeGB))
	} else {
		d.DiskSizeGB = diskOf(x.osDisk).Properties.DiskSizeGB
		if d.Vhd == nil {
			d.Name, d.ManagedDisk = ptr(x.osDisk.id.name()), managedDisk(d.ManagedDisk, x.osDisk, diskOf(x.osDisk))
		}
	}
	sp.OSDisk = &d
	sp.DataDisks = []*armcompute.DataDisk{}
	for _, one := range dataDisksOf(body) {
		shown := *one
		if de, disk := load[armcompute.Disk](s, diskIDOf(one)); disk != nil {
			shown.DiskSizeGB, shown.ManagedDisk = disk.Properties.DiskSizeGB, managedDisk(one.ManagedDisk, de, disk)
		}
		sp.DataDisks = append(sp.DataDisks, &shown)
	}
	return &sp
}

// managedDisk is a reference to a disk with what its model says of it.
func managedDisk(asked *armcompute.ManagedDiskParameters, e *entry, disk *armcompute.Disk) *armcompute.ManagedDiskParameters {
	out := armcompute.ManagedDiskParameters{}
	if asked != nil {
		out = *asked
	}
	out.ID, out.StorageAccountType = ptr(e.id.String()), accountType(disk)
	return &out
}

// mergedMachine is a machine's model with a change: what the body does not hold keeps its
// value, in a PUT too (recorded for image reference and identity).
func (c *call) mergedMachine(x *instance) (*armcompute.VirtualMachine, error) {
	change, err := c.tree()
	if err != nil {
		return nil, err
	}
	was, err := toTree(x.plain.model)
	if err != nil {
		return nil, err
	}
	out, err := fromTree[armcompute.VirtualMachine](mergePatch(was, change, c.ignoreNull))
	if err != nil {
		return nil, err
	}
	if out.Properties == nil || out.Properties.StorageProfile == nil {
		return nil, badParameter("storageProfile", "Required parameter 'storageProfile' is missing (null).")
	}
	if out.Properties.StorageProfile.OSDisk == nil {
		out.Properties.StorageProfile.OSDisk = x.plain.model.Properties.StorageProfile.OSDisk
	}
	spellDisks(out.Properties.StorageProfile)
	fillMachine(out, *x.plain.model.Properties.StorageProfile.OSDisk.OSType)
	out.Properties.StorageProfile.DataDisks = nil // the instance's
	for _, now := range networkOf(out) {
		for _, had := range networkOf(x.plain.model) { // what is not said of an interface stays
			if strings.EqualFold(val(had.ID), val(now.ID)) && had.Properties != nil {
				now.Properties = cmp.Or(now.Properties, &armcompute.NetworkInterfaceReferenceProperties{})
				now.Properties.DeleteOption = firstOf(now.Properties.DeleteOption, had.Properties.DeleteOption)
				now.Properties.Primary = firstOf(now.Properties.Primary, had.Properties.Primary)
			}
		}
	}
	return out, nil
}

// mergedIdentity is a machine's identity with a change: user-assigned ones are added, or
// taken away by null (recorded).
func (c *call) mergedIdentity(was *armcompute.VirtualMachineScaleSetIdentity, change *armcompute.VirtualMachineIdentity) *armcompute.VirtualMachineScaleSetIdentity {
	next := setIdentity(change)
	if val(next.Type) == armcompute.ResourceIdentityTypeNone {
		return nil
	}
	if !strings.Contains(string(val(next.Type)), "UserAssigned") {
		next.UserAssignedIdentities = nil
		return next
	}
	merged := map[string]*armcompute.UserAssignedIdentitiesValue{}
	if was != nil {
		for id, v := range was.UserAssignedIdentities {
			merged[id] = v
		}
	}
	tree, _ := c.tree() // it was decoded before
	asked, _ := at(tree, "identity", "userAssignedIdentities").(map[string]any)
	for id, v := range asked {
		same := slices.IndexFunc(sortedKeys(merged), func(have string) bool { return strings.EqualFold(have, id) })
		key := id
		if same >= 0 {
			key = sortedKeys(merged)[same]
		}
		if v == nil {
			delete(merged, key)
		} else if same < 0 {
			merged[id] = &armcompute.UserAssignedIdentitiesValue{}
		}
	}
	next.UserAssignedIdentities = merged
	return next
}
