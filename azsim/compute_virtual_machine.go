package azsim

import (
	"encoding/json"
	"regexp"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"
)

const (
	machineType    = "Microsoft.Compute/virtualMachines"
	machineExtType = machineType + "/extensions"
)

// virtualMachineType is that of machines outside Uniform scale sets: members of
// Flexible ones, and those made by hand (compute_virtual_machine_plain.go).
func virtualMachineType() *resourceType {
	return &resourceType{
		name: machineType, versions: machineVersions(), global: true,
		put: putMachine, patch: patchMachine, remove: removeInstance, list: listMachines, render: renderMachine,
		views:   map[string]handler{"instanceview": getMachineView, "vmsizes": listMachineSizes},
		actions: machineActions(),
		drop:    dropInstance,
	}
}

// machineVersions has those of old clients too; 2017-12-01 is Azure Stack's.
func machineVersions() []string {
	return append([]string{"2017-03-30", "2017-12-01", "2018-04-01", "2018-06-01"}, scaleSetVersions()...)
}

func machineExtensionType() *resourceType {
	return &resourceType{
		name: machineExtType, versions: machineVersions(),
		get: getInstanceExtension, list: listInstanceExtensions, put: putInstanceExtension, patch: patchInstanceExtension, remove: removeInstanceExtension,
	}
}

// renderMachine is what a GET shows of a virtual machine.
func renderMachine(c *call, e *entry) any {
	vm := c.s.showMachine(e, c.expands("instanceView"))
	if c.expandsUserData(e) {
		x, _ := instanceOf(e)
		vm.Properties.UserData = x.profile.UserData
	}
	return vm
}

// showMachine is a member of a Flexible set as clients may see it. The caller
// holds the lock.
func (s *Server) showMachine(e *entry, view bool) *armcompute.VirtualMachine {
	in := s.showInstance(e, view)
	x, _ := instanceOf(e)
	p := in.Properties
	out := &armcompute.VirtualMachine{
		ID: in.ID, Name: in.Name, Type: in.Type, Location: in.Location, Tags: in.Tags, Zones: in.Zones, Etag: in.Etag, Identity: in.Identity, Resources: in.Resources,
		Properties: &armcompute.VirtualMachineProperties{
			VMID: p.VMID, ProvisioningState: p.ProvisioningState, TimeCreated: p.TimeCreated,
			HardwareProfile: &armcompute.HardwareProfile{VMSize: ptr(armcompute.VirtualMachineSizeTypes(x.size))},
			StorageProfile:  p.StorageProfile, OSProfile: p.OSProfile, NetworkProfile: p.NetworkProfile,
			DiagnosticsProfile: p.DiagnosticsProfile, SecurityProfile: p.SecurityProfile, LicenseType: p.LicenseType,
			Priority: x.profile.Priority, EvictionPolicy: x.profile.EvictionPolicy,
		},
	}
	if set := x.scaleSet(); set != nil {
		out.Properties.VirtualMachineScaleSet = &armcompute.SubResource{ID: ptr(set.id.String())}
	}
	if x.profile.ExtensionProfile != nil {
		out.Properties.ExtensionsTimeBudget = x.profile.ExtensionProfile.ExtensionsTimeBudget
	}
	if x.plain != nil {
		s.showPlain(e, out)
	}
	if p.InstanceView != nil {
		out.Properties.InstanceView = machineView(p.InstanceView)
	}
	return out
}

// machineView is an instance view in the form of a virtual machine's.
func machineView(v *armcompute.VirtualMachineScaleSetVMInstanceView) *armcompute.VirtualMachineInstanceView {
	out := &armcompute.VirtualMachineInstanceView{
		BootDiagnostics: v.BootDiagnostics, ComputerName: v.ComputerName, Disks: v.Disks, Extensions: v.Extensions,
		OSName: v.OSName, OSVersion: v.OSVersion, PlatformFaultDomain: v.PlatformFaultDomain, PlatformUpdateDomain: v.PlatformUpdateDomain,
		Statuses: v.Statuses, VMAgent: v.VMAgent, VMHealth: v.VMHealth,
	}
	if v.HyperVGeneration != nil {
		out.HyperVGeneration = ptr(armcompute.HyperVGenerationType(*v.HyperVGeneration))
	}
	return out
}

func getMachineView(c *call) (*reply, error) {
	e, err := c.need()
	if err != nil {
		return nil, err
	}
	return ok(c.s.showMachine(e, true).Properties.InstanceView), nil
}

// machineFilter is the one $filter that the list of virtual machines knows
// (documentation of the list; cloud-provider-azure quotes the member).
var machineFilter = regexp.MustCompile(`(?i)^'?virtualMachineScaleSet/id'?\s+eq\s+'([^']*)'$`)

// listMachines is the list of virtual machines of a group or the subscription.
// $expand needs $filter; statusOnly is the subscription's.
func listMachines(c *call) (*reply, error) {
	all := c.s.ofType(machineType, c.id.subscription, c.id.group)
	filter := strings.TrimSpace(c.query("$filter"))
	if filter != "" {
		m := machineFilter.FindStringSubmatch(filter)
		if m == nil {
			return nil, badParameter("$filter", "The value of parameter $filter is invalid: '%s'. Allowed value is 'virtualMachineScaleSet/id' eq '{id}'.", filter)
		}
		set := c.s.findID(m[1])
		var kept []*entry
		for _, e := range all {
			if x, _ := instanceOf(e); set != nil && x.scaleSet() == set {
				kept = append(kept, e)
			}
		}
		all = kept
	}
	if c.expands("instanceView") && filter == "" {
		return nil, badParameter("$expand", "The $expand parameter can only be specified if a valid $filter option is specified.")
	}
	statusOnly := c.id.group == "" && strings.EqualFold(c.query("statusOnly"), "true")
	var items []any
	for _, e := range all {
		items = append(items, listedMachine{c, e, statusOnly})
	}
	return c.pageOf(items), nil
}

// A listedMachine is rendered when its page is encoded, as a listedInstance is.
type listedMachine struct {
	c          *call
	e          *entry
	statusOnly bool
}

func (l listedMachine) MarshalJSON() ([]byte, error) {
	if !l.statusOnly {
		return json.Marshal(renderMachine(l.c, l.e))
	}
	whole := l.c.s.showMachine(l.e, true)
	p := whole.Properties
	return json.Marshal(&armcompute.VirtualMachine{
		ID: whole.ID, Name: whole.Name, Type: whole.Type, Location: whole.Location,
		Properties: &armcompute.VirtualMachineProperties{VMID: p.VMID, InstanceView: p.InstanceView, ProvisioningState: p.ProvisioningState, VirtualMachineScaleSet: p.VirtualMachineScaleSet},
	})
}
