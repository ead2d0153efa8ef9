package azure

import (
	"slices"
	"strings"

	"github.com/ortet/ortet/internal/fleet"
)

// PoolChanges lists a zero change of every verb that only live configuration and
// ortet cluster use: no capture and no rollback needs their actions.
func PoolChanges() []fleet.Change {
	return []fleet.Change{
		fleet.SetModelUserData{}, fleet.SetUserData{}, fleet.SetSize{}, fleet.UpgradeInstances{}, fleet.DeleteInstances{},
		fleet.DeallocateScaleSet{}, fleet.StartScaleSet{}, fleet.ReimageInstance{}, fleet.RestartInstance{},
	}
}

// CanaryChanges lists a zero change of the verbs that a capture uses for a canary alone.
func CanaryChanges() []fleet.Change {
	return []fleet.Change{fleet.CreateCanary{}, fleet.DeleteScaleSet{}}
}

// The actions on other resources that whoever makes instances joined to them needs: Azure's
// linked checks of a scale set's PUT.
const (
	JoinSubnet        = "Microsoft.Network/virtualNetworks/subnets/join/action"
	JoinSecurityGroup = "Microsoft.Network/networkSecurityGroups/join/action"
	JoinBackendPool   = "Microsoft.Network/loadBalancers/backendAddressPools/join/action"
	JoinApplication   = "Microsoft.Network/applicationSecurityGroups/joinIpConfiguration/action"
	JoinPrefix        = "Microsoft.Network/publicIPPrefixes/join/action"
	AssignIdentity    = "Microsoft.ManagedIdentity/userAssignedIdentities/assign/action"
)

// JoinActions lists these.
func JoinActions() []string {
	return []string{JoinSubnet, JoinSecurityGroup, JoinBackendPool, JoinApplication, JoinPrefix, AssignIdentity}
}

// Changes lists a zero change of every other verb: for tables, and for tests that
// must leave none out.
func Changes() []fleet.Change {
	return []fleet.Change{
		fleet.StopInstance{}, fleet.StopInstance{Deallocate: true}, fleet.StartInstance{}, fleet.ProtectInstance{},
		fleet.CreateSnapshot{}, fleet.DeleteSnapshot{}, fleet.CreateDisk{}, fleet.DeleteDisk{},
		fleet.AttachDisk{}, fleet.DetachDisk{},
		fleet.CreateGallery{}, fleet.CreateDefinition{}, fleet.TagDefinition{},
		fleet.CreateVersion{}, fleet.TagVersion{}, fleet.PublishVersion{}, fleet.DeleteVersion{},
		fleet.PatchModel{}, fleet.DeleteExtension{}, fleet.WriteExtension{}, fleet.SetCapacity{},
	}
}

const (
	scaleSetActions = "Microsoft.Compute/virtualMachineScaleSets/"
	instanceActions = scaleSetActions + "virtualMachines/"
	machineActions  = "Microsoft.Compute/virtualMachines/"
	versionActions  = "Microsoft.Compute/galleries/images/versions/"
)

// Actions returns the Azure actions that a change of that verb needs, with those
// that it reads by, sorted; nil for an unknown verb. It is what
// docs/reference/azure-permissions.md documents, what preflight asks Reader.Denied for,
// and what the denial tests take away one by one.
//
// The beginGetAccess actions are Azure's linked check that the caller may read
// the bytes that it copies (documentation of disks and snapshots, "assign
// permissions"); versions/read is the linked check on the image that a model
// points at.
func Actions(verb string) []string {
	var a []string
	switch verb {
	case fleet.StopInstance{}.Verb():
		a = []string{instanceActions + "powerOff/action"}
	case fleet.StopInstance{Deallocate: true}.Verb():
		a = []string{instanceActions + "deallocate/action"}
	case fleet.StartInstance{}.Verb():
		a = []string{instanceActions + "start/action"}
	case fleet.ProtectInstance{}.Verb():
		a = []string{instanceActions + "read", instanceActions + "write"}
	case fleet.AttachDisk{}.Verb(), fleet.DetachDisk{}.Verb():
		a = []string{instanceActions + "read", instanceActions + "attachDetachDataDisks/action",
			"Microsoft.Compute/disks/read", "Microsoft.Compute/disks/write"}
	case fleet.CreateSnapshot{}.Verb():
		a = []string{"Microsoft.Compute/snapshots/read", "Microsoft.Compute/snapshots/write", "Microsoft.Compute/disks/beginGetAccess/action"}
	case fleet.DeleteSnapshot{}.Verb():
		a = []string{"Microsoft.Compute/snapshots/delete"}
	case fleet.CreateDisk{}.Verb():
		a = []string{"Microsoft.Compute/disks/read", "Microsoft.Compute/disks/write", "Microsoft.Compute/snapshots/beginGetAccess/action"}
	case fleet.DeleteDisk{}.Verb():
		a = []string{"Microsoft.Compute/disks/delete"}
	case fleet.CreateGallery{}.Verb():
		a = []string{"Microsoft.Compute/galleries/read", "Microsoft.Compute/galleries/write"}
	case fleet.CreateDefinition{}.Verb(), fleet.TagDefinition{}.Verb():
		a = []string{"Microsoft.Compute/galleries/images/read", "Microsoft.Compute/galleries/images/write"}
	case fleet.CreateVersion{}.Verb():
		a = []string{versionActions + "read", versionActions + "write", "Microsoft.Compute/snapshots/beginGetAccess/action"}
	case fleet.TagVersion{}.Verb(), fleet.PublishVersion{}.Verb():
		a = []string{versionActions + "read", versionActions + "write"}
	case fleet.DeleteVersion{}.Verb():
		a = []string{versionActions + "delete"}
	case fleet.PatchModel{}.Verb():
		a = []string{scaleSetActions + "write", versionActions + "read"}
	case fleet.CreateCanary{}.Verb():
		a = []string{scaleSetActions + "read", scaleSetActions + "write", versionActions + "read"}
	case fleet.DeleteExtension{}.Verb():
		a = []string{scaleSetActions + "extensions/delete"}
	case fleet.WriteExtension{}.Verb():
		a = []string{scaleSetActions + "extensions/write"}
	case fleet.SetCapacity{}.Verb(), fleet.SetSize{}.Verb():
		a = []string{scaleSetActions + "read", scaleSetActions + "write"}
	case fleet.SetModelUserData{}.Verb():
		a = []string{scaleSetActions + "write"}
	case fleet.SetUserData{}.Verb():
		a = []string{instanceActions + "write"}
	case fleet.UpgradeInstances{}.Verb():
		a = []string{scaleSetActions + "manualUpgrade/action"}
	case fleet.DeleteInstances{}.Verb():
		a = []string{scaleSetActions + "delete/action"}
	case fleet.DeallocateScaleSet{}.Verb():
		a = []string{scaleSetActions + "deallocate/action"}
	case fleet.StartScaleSet{}.Verb():
		a = []string{scaleSetActions + "start/action"}
	case fleet.DeleteScaleSet{}.Verb():
		a = []string{scaleSetActions + "delete"}
	case fleet.ReimageInstance{}.Verb():
		a = []string{instanceActions + "reimage/action"}
	case fleet.RestartInstance{}.Verb():
		a = []string{instanceActions + "restart/action"}
	}
	slices.Sort(a)
	return a
}

// ReadEncryptionSet is the action on a disk encryption set that reading it needs, and Azure's linked
// check of what is encrypted with it. The set may lie in another group.
const ReadEncryptionSet = "Microsoft.Compute/diskEncryptionSets/read"

// ReadActions returns the actions that Reader's methods need on the resource
// group, sorted.
func ReadActions() []string {
	return []string{
		"Microsoft.Authorization/permissions/read",
		ReadEncryptionSet,
		"Microsoft.Compute/disks/read",
		"Microsoft.Compute/galleries/images/read",
		"Microsoft.Compute/galleries/images/versions/read",
		"Microsoft.Compute/galleries/read",
		"Microsoft.Compute/snapshots/read",
		scaleSetActions + "read",
		instanceActions + "read",
		machineActions + "read",
	}
}

// SubscriptionReadActions returns the actions that are needed on the subscription:
// Reader.Size reads its catalogue of VM sizes.
func SubscriptionReadActions() []string { return []string{"Microsoft.Compute/skus/read"} }

// ActionsOf returns what reading and all the changes together need on the resource
// group, sorted and without repetition.
func ActionsOf(changes ...fleet.Change) []string {
	all := ReadActions()
	for _, c := range changes {
		all = append(all, Actions(c.Verb())...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// ActionsIn returns the actions that changes of a pool need on its group. That a disk encryption
// set may be read, reading it shows.
func ActionsIn(pool fleet.Pool, changes []fleet.Change) []string {
	all := slices.DeleteFunc(ActionsOf(changes...), func(a string) bool { return a == ReadEncryptionSet })
	if pool.Flexible() {
		all = OfFlexible(all)
	}
	return all
}

// OfFlexible returns the actions that the same changes need in a Flexible scale set,
// sorted: its members are virtual machines, but for their protection, which the scale
// set's API sets (documentation of instance protection, API version 2023-09-01).
func OfFlexible(actions []string) []string {
	protects := slices.Contains(actions, instanceActions+"write")
	var all []string
	for _, a := range actions {
		if verb, ok := strings.CutPrefix(a, instanceActions); ok {
			if protects && (verb == "read" || verb == "write") {
				all = append(all, a)
			}
			if verb == "write" {
				continue
			}
			a = machineActions + verb
		}
		all = append(all, a)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// ConfigurationActions returns the actions that a rollout of live configuration needs on
// the resource group, sorted.
func ConfigurationActions() []string {
	return []string{
		scaleSetActions + "read",
		instanceActions + "read",
		instanceActions + "write",
		scaleSetActions + "write",
	}
}
