package azsim

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"
)

// renderInstance is what a GET or list shows of an instance.
func renderInstance(c *call, e *entry) any {
	vm := c.s.showInstance(e, c.expands("instanceView"))
	c.spellVersion(vm.Properties.StorageProfile)
	if c.version >= "2024-07-01" && c.id.key() == e.key {
		vm.Properties.ResilientVMDeletionStatus = ptr(armcompute.ResilientVMDeletionStatusDisabled)
	}
	if c.expandsUserData(e) {
		x, _ := instanceOf(e)
		vm.Properties.UserData = x.profile.UserData
	}
	return vm
}

// spellVersion gives the image of an instance the form of older API versions, in which the
// version is that of the disk: later ones keep it as it was asked for, and have the disk's as
// exactVersion (recorded by azure-libraries-for-net and the Azure CLI).
func (c *call) spellVersion(p *armcompute.StorageProfile) {
	if c.version >= "2021" || p.ImageReference == nil || p.ImageReference.Version == nil || p.ImageReference.ExactVersion == nil {
		return
	}
	p.ImageReference.Version, p.ImageReference.ExactVersion = p.ImageReference.ExactVersion, nil
}

// showInstance is an instance as clients may see it. The caller holds the lock.
func (s *Server) showInstance(e *entry, view bool) *armcompute.VirtualMachineScaleSetVM {
	x, body := instanceOf(e)
	setX, set := setOf(x.set)
	out := *body
	props := *body.Properties
	out.Properties = &props
	size, _ := findSize(x.size)
	out.SKU = &armcompute.SKU{Name: ptr(x.size), Tier: ptr("Standard")}
	if set != nil {
		out.Identity = instanceIdentity(set)
	}
	props.LatestModelApplied = ptr(!x.custom && x.changed.Equal(setX.changed))
	props.ModelDefinitionApplied = ptr("VirtualMachineScaleSet")
	if x.custom {
		props.ModelDefinitionApplied = ptr("VirtualMachine")
	}
	p := x.profile // parts of it are shown as they are: answers are encoded under the lock
	props.HardwareProfile = &armcompute.HardwareProfile{VMSize: ptr(armcompute.VirtualMachineSizeTypes(x.size))}
	props.DiagnosticsProfile, props.SecurityProfile, props.LicenseType = p.DiagnosticsProfile, p.SecurityProfile, p.LicenseType
	props.StorageProfile = x.storage(p, dataDisksOf(body), size)
	if o := p.OSProfile; o != nil {
		props.OSProfile = &armcompute.OSProfile{
			ComputerName: ptr(x.hostName), AdminUsername: o.AdminUsername, LinuxConfiguration: o.LinuxConfiguration, WindowsConfiguration: o.WindowsConfiguration,
			Secrets: o.Secrets, AllowExtensionOperations: o.AllowExtensionOperations, RequireGuestProvisionSignal: o.RequireGuestProvisionSignal,
		}
	}
	if n := p.NetworkProfile; n != nil {
		props.NetworkProfile = &armcompute.NetworkProfile{}
		for _, nic := range n.NetworkInterfaceConfigurations {
			ref := &armcompute.NetworkInterfaceReference{ID: ptr(e.id.String() + "/networkInterfaces/" + val(nic.Name))}
			if x.flex {
				ref.ID = ptr(memberNIC(e, val(nic.Name)))
			}
			if nic.Properties != nil && (nic.Properties.Primary != nil || nic.Properties.DeleteOption != nil) {
				ref.Properties = &armcompute.NetworkInterfaceReferenceProperties{Primary: nic.Properties.Primary, DeleteOption: nic.Properties.DeleteOption}
			}
			props.NetworkProfile.NetworkInterfaces = append(props.NetworkProfile.NetworkInterfaces, ref)
		}
		props.NetworkProfileConfiguration = &armcompute.VirtualMachineScaleSetVMNetworkProfileConfiguration{NetworkInterfaceConfigurations: n.NetworkInterfaceConfigurations}
	}
	out.Resources = nil
	for _, ext := range x.extensions {
		shown := *ext
		ep := *ext.Properties
		ep.ProtectedSettings, ep.InstanceView = nil, nil
		shown.Properties = &ep
		out.Resources = append(out.Resources, &shown)
	}
	props.InstanceView = nil
	if view {
		props.InstanceView = x.instanceView(body, time.Now())
	}
	return &out
}

func instanceIdentity(set *armcompute.VirtualMachineScaleSet) *armcompute.VirtualMachineIdentity {
	if set.Identity == nil {
		return nil
	}
	return &armcompute.VirtualMachineIdentity{Type: set.Identity.Type, PrincipalID: set.Identity.PrincipalID, TenantID: set.Identity.TenantID,
		UserAssignedIdentities: set.Identity.UserAssignedIdentities}
}

// storage is an instance's storage profile: what it was made of, and the disks
// that it has.
func (x *instance) storage(p *armcompute.VirtualMachineScaleSetVMProfile, data []*armcompute.DataDisk, size vmSize) *armcompute.StorageProfile {
	out := &armcompute.StorageProfile{DataDisks: data}
	if data == nil {
		out.DataDisks = []*armcompute.DataDisk{}
	}
	if p.StorageProfile == nil {
		return out
	}
	if x.image.ref.ID != nil || x.image.ref.Publisher != nil {
		ref := x.image.ref
		out.ImageReference = &ref
	} else {
		out.ImageReference = p.StorageProfile.ImageReference
	}
	out.DiskControllerType = ptr(armcompute.DiskControllerTypesSCSI)
	if wantsNVMe(size, p) {
		out.DiskControllerType = ptr(armcompute.DiskControllerTypesNVMe)
	}
	d := p.StorageProfile.OSDisk
	if d == nil {
		return out
	}
	out.OSDisk = &armcompute.OSDisk{
		OSType: d.OSType, CreateOption: d.CreateOption, Caching: d.Caching, DiffDiskSettings: d.DiffDiskSettings, DiskSizeGB: d.DiskSizeGB,
		WriteAcceleratorEnabled: d.WriteAcceleratorEnabled, DeleteOption: d.DeleteOption,
	}
	if m := d.ManagedDisk; m != nil {
		out.OSDisk.ManagedDisk = &armcompute.ManagedDiskParameters{
			StorageAccountType: m.StorageAccountType, DiskEncryptionSet: m.DiskEncryptionSet,
		}
	}
	if x.osDisk != nil {
		out.OSDisk.Name = ptr(x.osDisk.id.name())
	}
	if x.osDisk != nil && out.OSDisk.ManagedDisk != nil {
		out.OSDisk.ManagedDisk.ID = ptr(x.osDisk.id.String())
		if disk, ok := x.osDisk.body.(*armcompute.Disk); ok {
			out.OSDisk.DiskSizeGB = disk.Properties.DiskSizeGB
		}
	}
	return out
}

// status is one status of an instance view.
func status(code, display string, level armcompute.StatusLevelTypes, at time.Time) *armcompute.InstanceViewStatus {
	st := &armcompute.InstanceViewStatus{Code: ptr(code), DisplayStatus: ptr(display), Level: ptr(level)}
	if !at.IsZero() {
		st.Time = ptr(at)
	}
	return st
}

// provisioningStatus is the status of a provisioning state; a failure adds its
// code, as Azure does.
func provisioningStatus(state string, failure *armError, at time.Time) *armcompute.InstanceViewStatus {
	code := "ProvisioningState/" + strings.ToLower(state)
	st := status(code, "Provisioning "+strings.ToLower(state), armcompute.StatusLevelTypesInfo, at)
	switch state {
	case stateFailed:
		st.Level = ptr(armcompute.StatusLevelTypesError)
		if failure != nil {
			st.Code, st.Message = ptr("ProvisioningState/failed/"+failure.code), ptr(failure.message)
		}
	case stateCreating, stateUpdating, stateDeleting:
		st.DisplayStatus = ptr(state)
	}
	return st
}

// instanceView is the instance's state in detail.
func (x *instance) instanceView(body *armcompute.VirtualMachineScaleSetVM, now time.Time) *armcompute.VirtualMachineScaleSetVMInstanceView {
	const info = armcompute.StatusLevelTypesInfo
	created := val(body.Properties.TimeCreated)
	v := &armcompute.VirtualMachineScaleSetVMInstanceView{
		PlacementGroupID: x.placementGroupID(), PlatformUpdateDomain: ptr(int32(x.id % 5)), PlatformFaultDomain: ptr(int32(x.faultDomain())),
		Statuses: []*armcompute.InstanceViewStatus{provisioningStatus(stateOf(body), x.failure, created)},
	}
	switch {
	case x.isGeneralized():
		v.Statuses = slices.Insert(v.Statuses, 0, status("OSState/generalized", "VM generalized", info, time.Time{}))
	case x.image.specialized && (x.plain == nil || !x.plain.attaches()):
		v.Statuses = slices.Insert(v.Statuses, 0, status("OSState/specialized", "VM specialized", info, time.Time{}))
	}
	if x.image.generation != "" {
		v.HyperVGeneration = ptr(armcompute.HyperVGeneration(x.image.generation))
	}
	if x.power != "" {
		v.Statuses = append(v.Statuses, status("PowerState/"+x.power, "VM "+x.power, info, time.Time{}))
	}
	if d := x.bootDiagnostics(); d != nil {
		v.BootDiagnostics = d.view(val(body.Name), x.vmID)
	}
	if x.osDisk != nil {
		v.Disks = append(v.Disks, &armcompute.DiskInstanceView{Name: ptr(x.osDiskName()),
			Statuses: []*armcompute.InstanceViewStatus{status("ProvisioningState/succeeded", "Provisioning succeeded", info, x.osDisk.since)}})
	}
	for _, d := range dataDisksOf(body) {
		v.Disks = append(v.Disks, &armcompute.DiskInstanceView{Name: d.Name,
			Statuses: []*armcompute.InstanceViewStatus{status("ProvisioningState/succeeded", "Provisioning succeeded", info, created)}})
	}
	for _, ext := range x.extensions {
		v.Extensions = append(v.Extensions, extensionView(ext))
	}
	if x.power == "" || x.power == powerDeallocated {
		return v // a machine that is only stopped still shows what it reported last
	}
	if x.power != powerRunning {
		now = x.powerAt
	}
	v.AssignedHost = nil
	if x.reported(now) {
		name, version := x.image.system()
		v.ComputerName, v.OSName, v.OSVersion = ptr(x.hostName), ptr(name), ptr(version)
	}
	v.VMAgent = x.agentView(now)
	return v
}

// bootTime is how long the system of a specialized disk takes to report, for which Azure
// does not wait (recorded: not after 18 s).
const bootTime = 30 * time.Second

// reported says whether the system on an instance has reported.
func (x *instance) reported(now time.Time) bool {
	return x.provisioned && (x.plain == nil || !x.image.specialized || x.agent != nil || now.Sub(x.powerAt) >= bootTime)
}

// osDiskName is the OS disk's name in the model; a blob's disk has one of its own.
func (x *instance) osDiskName() string {
	if x.plain != nil && x.plain.unmanaged() {
		return val(x.plain.osDisk().Name)
	}
	return x.osDisk.id.name()
}

// extensionView is the state of an extension on an instance.
func extensionView(ext *armcompute.VirtualMachineExtension) *armcompute.VirtualMachineExtensionInstanceView {
	if ext.Properties.InstanceView != nil {
		return ext.Properties.InstanceView
	}
	return &armcompute.VirtualMachineExtensionInstanceView{Name: ext.Name, Type: ptr(handlerName(ext)),
		TypeHandlerVersion: ext.Properties.TypeHandlerVersion,
		Statuses:           []*armcompute.InstanceViewStatus{provisioningStatus(val(ext.Properties.ProvisioningState), nil, time.Time{})}}
}

// getInstanceView is GET of an instance's instanceView.
func getInstanceView(c *call) (*reply, error) {
	e, err := c.need()
	if err != nil {
		return nil, err
	}
	return ok(c.s.showInstance(e, true).Properties.InstanceView), nil
}

// listInstances is the list of a scale set's instances, with $filter, $expand
// and $select as far as clients use them.
func listInstances(c *call) (*reply, error) {
	parent := c.s.find(c.id)
	if parent == nil {
		return nil, notFound(c.id)
	}
	keep, err := instanceFilter(c.query("$filter"))
	if err != nil {
		return nil, err
	}
	if isFlexible(parent) {
		return c.listFlexible(parent)
	}
	all := c.s.instancesOf(parent)
	var items []any
	for _, e := range all {
		x, body := instanceOf(e)
		if keep == nil || keep(x, c.s.showInstance(e, false), body) {
			items = append(items, listedInstance{c, e})
		}
	}
	return c.pageOf(items), nil
}

// A listedInstance is rendered when its page is encoded, so that a page of a
// large scale set does not cost the rendering of all of it.
type listedInstance struct {
	c *call
	e *entry
}

func (l listedInstance) MarshalJSON() ([]byte, error) { return json.Marshal(renderInstance(l.c, l.e)) }

type instancePredicate func(x *instance, shown, body *armcompute.VirtualMachineScaleSetVM) bool

// The terms of $filter that the documentation of the list gives as examples.
var (
	filterStatus = regexp.MustCompile(`(?i)^startswith\(instanceView/statuses/code,\s*'([^']*)'\)(?:\s+eq\s+true)?$`)
	filterModel  = regexp.MustCompile(`(?i)^properties/latestModelApplied\s+eq\s+(true|false)$`)
	filterState  = regexp.MustCompile(`(?i)^properties/provisioningState\s+(eq|ne)\s+'([^']*)'$`)
	filterAnd    = regexp.MustCompile(`(?i)\s+and\s+`)
)

// instanceFilter compiles $filter; it is nil for none.
func instanceFilter(filter string) (instancePredicate, error) {
	if strings.TrimSpace(filter) == "" {
		return nil, nil
	}
	var terms []instancePredicate
	for _, term := range filterAnd.Split(strings.TrimSpace(filter), -1) {
		if m := filterStatus.FindStringSubmatch(term); m != nil {
			terms = append(terms, func(x *instance, _, body *armcompute.VirtualMachineScaleSetVM) bool {
				for _, st := range x.instanceView(body, time.Time{}).Statuses {
					if strings.HasPrefix(strings.ToLower(val(st.Code)), strings.ToLower(m[1])) {
						return true
					}
				}
				return false
			})
			continue
		}
		if m := filterModel.FindStringSubmatch(term); m != nil {
			terms = append(terms, func(_ *instance, shown, _ *armcompute.VirtualMachineScaleSetVM) bool {
				return fmt.Sprint(val(shown.Properties.LatestModelApplied)) == strings.ToLower(m[1])
			})
			continue
		}
		if m := filterState.FindStringSubmatch(term); m != nil {
			terms = append(terms, func(_ *instance, _, body *armcompute.VirtualMachineScaleSetVM) bool {
				return strings.EqualFold(stateOf(body), m[2]) == strings.EqualFold(m[1], "eq")
			})
			continue
		}
		return nil, badRequest("InvalidParameter", "The filter '%s' is not supported: azsim knows startswith(instanceView/statuses/code, …), properties/latestModelApplied eq … and properties/provisioningState eq ….", filter)
	}
	return func(x *instance, shown, body *armcompute.VirtualMachineScaleSetVM) bool {
		for _, t := range terms {
			if !t(x, shown, body) {
				return false
			}
		}
		return true
	}, nil
}
