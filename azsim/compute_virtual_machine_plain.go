package azsim

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"
)

// A virtual machine that is made by hand is in the server the only member of a
// Flexible scale set that is not stored, whose id is the machine's; it may join a stored
// one. Its network interfaces are stored resources.

// A plainMachine is what such a machine has beside what an instance has.
type plainMachine struct {
	model       *armcompute.VirtualMachine // as it was asked for, with defaults
	joined      *entry                     // the Flexible scale set that it joined, nil for none
	generalized bool
}

func (p *plainMachine) osDisk() *armcompute.OSDisk { return p.model.Properties.StorageProfile.OSDisk }

// unmanaged says whether the OS disk is a page blob of a storage account.
func (p *plainMachine) unmanaged() bool { return p.osDisk().Vhd != nil }

// attaches says whether the machine boots from a disk that there is already.
func (p *plainMachine) attaches() bool {
	return val(p.osDisk().CreateOption) == armcompute.DiskCreateOptionTypesAttach
}

// dropsOSDisk says whether the OS disk goes with the machine; a blob is no resource.
func (p *plainMachine) dropsOSDisk() bool {
	return p.unmanaged() || val(p.osDisk().DeleteOption) == armcompute.DiskDeleteOptionTypesDelete
}

// inSet says whether the machine is in that availability set.
func (p *plainMachine) inSet(set *entry) bool {
	ref := p.model.Properties.AvailabilitySet
	return ref != nil && strings.EqualFold(val(ref.ID), set.key)
}

// interfaces lists the ids of the network interfaces, the primary one first.
func (p *plainMachine) interfaces() []string {
	list := slices.Clone(networkOf(p.model))
	toFront(list, func(n *armcompute.NetworkInterfaceReference) bool {
		return n.Properties != nil && val(n.Properties.Primary)
	})
	var out []string
	for _, n := range list {
		out = append(out, val(n.ID))
	}
	return out
}

func networkOf(vm *armcompute.VirtualMachine) []*armcompute.NetworkInterfaceReference {
	if vm.Properties.NetworkProfile == nil {
		return nil
	}
	return vm.Properties.NetworkProfile.NetworkInterfaces
}

// droppedInterfaces lists the interfaces that go with the machine.
func (p *plainMachine) droppedInterfaces(s *Server) []*entry {
	if p == nil {
		return nil
	}
	var out []*entry
	for _, n := range networkOf(p.model) {
		if n.Properties != nil && val(n.Properties.DeleteOption) == armcompute.DeleteOptionsDelete {
			if e := s.findID(val(n.ID)); e != nil {
				out = append(out, e)
			}
		}
	}
	return out
}

// plugIn gives a machine its network interfaces as they are stored now.
func (s *Server) plugIn(x *instance) {
	tail := strings.ToUpper(strings.ReplaceAll(x.vmID, "-", "")[20:])
	x.nics = nil
	for i, id := range x.plain.interfaces() {
		if e := s.findID(id); e != nil {
			n := nic{name: e.id.name(), primary: i == 0, mac: tail, configs: slices.Clone(interfaceConfigs(e))}
			if i > 0 {
				n.mac = tail[:10] + "0" + string(rune('0'+i%10))
			}
			toFront(n.configs, func(c ipConfig) bool { return c.primary })
			x.nics = append(x.nics, n)
		}
	}
}

// machine reads a virtual machine's body; its properties are never nil.
func (c *call) machine() (*armcompute.VirtualMachine, error) {
	tree, err := c.tree()
	if err != nil {
		return nil, err
	}
	if err := cmp.Or(checkTags(tree), c.checkLinked(tree)); err != nil {
		return nil, err
	}
	next, err := fromTree[armcompute.VirtualMachine](tree)
	if err != nil {
		return nil, err
	}
	next.Properties = cmp.Or(next.Properties, &armcompute.VirtualMachineProperties{})
	spellDisks(next.Properties.StorageProfile)
	return next, nil
}

// putMachine makes a virtual machine, or changes what of one can be changed.
func putMachine(c *call) (*reply, error) {
	next, err := c.machine()
	if err != nil {
		return nil, err
	}
	if e := c.s.find(c.id); e != nil {
		return c.changeMachine(e, next)
	}
	if err := c.needLocation((*armcompute.VirtualMachine)(nil), next); err != nil {
		return nil, err
	}
	plain, img, err := c.plainMachine(next)
	if err != nil {
		return nil, err
	}
	set, err := c.machineSet(plain, next, img)
	if err != nil {
		return nil, err
	}
	_, model := setOf(set)
	if err := c.checkQuota(val(next.Location), newVCPUs(1, model)); err != nil {
		return nil, err
	}
	s := c.s
	vm := &armcompute.VirtualMachineScaleSetVM{
		ID: ptr(c.id.String()), Name: ptr(c.id.name()), Type: ptr(machineType), InstanceID: ptr(c.id.name()), Location: next.Location, Tags: next.Tags, Zones: next.Zones,
		Properties: &armcompute.VirtualMachineScaleSetVMProperties{TimeCreated: ptr(c.now), ProvisioningState: ptr(stateCreating)},
	}
	e, x := s.insertInstance(set, c.id, vm, 0, first(zonesOf(next.Zones)), c.now)
	x.plain, x.hostName = plain, c.id.name()
	s.join(x, plain.joined)
	if o := next.Properties.OSProfile; o != nil && val(o.ComputerName) != "" {
		x.hostName = *o.ComputerName
	}
	s.plugIn(x)
	if err := c.firstDisks(e, img); err != nil {
		x.end()
		s.delete(e)
		if plain.joined != nil {
			s.lowerCapacity(plain.joined, 1)
		}
		return nil, err
	}
	op := c.begin(e, work{run: func(context.Context) error {
		err := s.createInstance(e)
		s.republish() // one that did not boot is reached too
		return err
	}})
	return &reply{status: 201, body: renderMachine(c, e), op: op}, nil
}

// plainMachine checks what a new machine has of its own, and finds what it boots from.
func (c *call) plainMachine(next *armcompute.VirtualMachine) (*plainMachine, bootImage, error) {
	p := next.Properties
	if len(networkOf(next)) == 0 {
		return nil, bootImage{}, badParameter("networkProfile", "Required parameter 'networkProfile.networkInterfaces' is missing (null).")
	}
	out := &plainMachine{model: clone(next)}
	if ref := p.VirtualMachineScaleSet; ref != nil {
		var err error
		if out.joined, err = c.joinable(val(ref.ID), next); err != nil {
			return nil, bootImage{}, err
		}
	}
	img, err := c.checkOSDisk(out)
	if err != nil {
		return nil, img, err
	}
	fillMachine(out.model, img.os())
	if set := p.AvailabilitySet; set != nil && c.s.findID(val(set.ID)) == nil {
		return nil, img, badRequest("InvalidResourceReference", "Resource %s referenced by resource %s was not found.", val(set.ID), c.id.String())
	}
	return out, img, c.checkInterfaces(out.interfaces())
}

// checkInterfaces refuses network interfaces that the path's machine cannot have.
func (c *call) checkInterfaces(ids []string) error {
	for _, id := range ids {
		if err := c.checkLink(c.id, id); err != nil {
			return err
		}
		e := c.s.findID(id)
		if e == nil || e.rt.name != nicType {
			return badParameter("networkProfile.networkInterfaces", "'%s' is not the id of a network interface.", id)
		}
		if vm := c.s.machineWith(e); vm != nil && vm.key != c.id.key() {
			return nicInUse(e, vm)
		}
	}
	return nil
}

// machineSet is the scale set that a new machine is the only member of.
func (c *call) machineSet(plain *plainMachine, vm *armcompute.VirtualMachine, img bootImage) (*entry, error) {
	p := vm.Properties
	profile := &armcompute.VirtualMachineScaleSetVMProfile{
		Priority: p.Priority, EvictionPolicy: p.EvictionPolicy, BillingProfile: p.BillingProfile, DiagnosticsProfile: p.DiagnosticsProfile,
		SecurityProfile: p.SecurityProfile, LicenseType: p.LicenseType, UserData: p.UserData,
	}
	sp, d := plain.model.Properties.StorageProfile, plain.osDisk()
	profile.StorageProfile = &armcompute.VirtualMachineScaleSetStorageProfile{ImageReference: sp.ImageReference, OSDisk: &armcompute.VirtualMachineScaleSetOSDisk{
		CreateOption: d.CreateOption, OSType: d.OSType, Caching: d.Caching, DiskSizeGB: d.DiskSizeGB, DiffDiskSettings: d.DiffDiskSettings, ManagedDisk: setDisk(d.ManagedDisk)}}
	if size, known := findSize(string(val(sizeAsked(p)))); known && d.ManagedDisk == nil || d.ManagedDisk != nil && d.ManagedDisk.StorageAccountType == nil {
		profile.StorageProfile.OSDisk.ManagedDisk = orDefault(profile.StorageProfile.OSDisk.ManagedDisk, armcompute.VirtualMachineScaleSetManagedDiskParameters{})
		profile.StorageProfile.OSDisk.ManagedDisk.StorageAccountType = firstOf(img.sku, ptr(defaultAccountType(size)))
	}
	if sp.DiskControllerType != nil {
		profile.StorageProfile.DiskControllerType = ptr(string(*sp.DiskControllerType))
	}
	if o := p.OSProfile; o != nil {
		profile.OSProfile = &armcompute.VirtualMachineScaleSetOSProfile{
			ComputerNamePrefix: ptr(c.id.name()[:min(58, len(c.id.name()))]), AdminUsername: o.AdminUsername, AdminPassword: o.AdminPassword, CustomData: o.CustomData,
			LinuxConfiguration: o.LinuxConfiguration, WindowsConfiguration: o.WindowsConfiguration,
			AllowExtensionOperations: o.AllowExtensionOperations, RequireGuestProvisionSignal: o.RequireGuestProvisionSignal,
		}
	}
	body := &armcompute.VirtualMachineScaleSet{
		ID: ptr(c.id.String()), Name: ptr(c.id.name()), Location: vm.Location, Tags: vm.Tags, Zones: vm.Zones, SKU: &armcompute.SKU{Capacity: ptr(int64(1))},
		Properties: &armcompute.VirtualMachineScaleSetProperties{
			OrchestrationMode: ptr(armcompute.OrchestrationModeFlexible), SinglePlacementGroup: ptr(false), VirtualMachineProfile: profile, ProvisioningState: ptr(stateSucceeded),
		},
	}
	body.SKU.Name = ptr(string(val(sizeAsked(p))))
	body.Identity = setIdentity(vm.Identity)
	for _, check := range []func() error{
		func() error { return checkZones(c, body) }, func() error { return checkOSProfile(c, body) }, func() error { return checkSetUserData(c, body) },
		func() error { return c.checkMachineRecipe(plain, body, img) }, func() error { return c.fillScaleSet(nil, body) },
	} {
		if err := check(); err != nil {
			return nil, err
		}
	}
	return &entry{id: c.id, key: c.id.key(), rt: c.s.types[strings.ToLower(setType)], body: body, since: c.now}, nil
}

// sizeAsked is the size that a model names, nil for none.
func sizeAsked(p *armcompute.VirtualMachineProperties) *armcompute.VirtualMachineSizeTypes {
	if p.HardwareProfile == nil {
		return nil
	}
	return p.HardwareProfile.VMSize
}

func setDisk(d *armcompute.ManagedDiskParameters) *armcompute.VirtualMachineScaleSetManagedDiskParameters {
	if d == nil {
		return nil
	}
	return &armcompute.VirtualMachineScaleSetManagedDiskParameters{StorageAccountType: d.StorageAccountType, DiskEncryptionSet: d.DiskEncryptionSet}
}

func setIdentity(id *armcompute.VirtualMachineIdentity) *armcompute.VirtualMachineScaleSetIdentity {
	if id == nil {
		return nil
	}
	kind := id.Type
	if kind != nil && strings.Contains(string(*kind), ",") { // in Azure's spelling (recorded)
		kind = ptr(armcompute.ResourceIdentityTypeSystemAssignedUserAssigned)
	}
	return &armcompute.VirtualMachineScaleSetIdentity{Type: kind, UserAssignedIdentities: id.UserAssignedIdentities}
}
