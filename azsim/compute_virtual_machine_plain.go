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
	network         *armcompute.NetworkProfile
	availabilitySet *armcompute.SubResource
	joined          *entry // the Flexible scale set that it joined, nil for none
	osDiskName      string // "" is made up
	osDiskDelete    string // "Delete" or "Detach"
}

func (p *plainMachine) dropsOSDisk() bool { return strings.EqualFold(p.osDiskDelete, "Delete") }

// interfaces lists the ids of the network interfaces, the primary one first.
func (p *plainMachine) interfaces() []string {
	list := slices.Clone(p.network.NetworkInterfaces)
	toFront(list, func(n *armcompute.NetworkInterfaceReference) bool {
		return n.Properties != nil && val(n.Properties.Primary)
	})
	var out []string
	for _, n := range list {
		out = append(out, val(n.ID))
	}
	return out
}

// droppedInterfaces lists the interfaces that go with the machine.
func (p *plainMachine) droppedInterfaces(s *Server) []*entry {
	if p == nil {
		return nil
	}
	var out []*entry
	for _, n := range p.network.NetworkInterfaces {
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
	if next.Properties == nil {
		next.Properties = &armcompute.VirtualMachineProperties{}
	}
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
	plain, err := c.plainMachine(next)
	if err != nil {
		return nil, err
	}
	set, err := c.machineSet(next)
	if err != nil {
		return nil, err
	}
	_, model := setOf(set)
	if err := c.checkQuota(val(next.Location), newVCPUs(1, model)); err != nil {
		return nil, err
	}
	s := c.s
	p := next.Properties
	vm := &armcompute.VirtualMachineScaleSetVM{
		ID: ptr(c.id.String()), Name: ptr(c.id.name()), Type: ptr(machineType), InstanceID: ptr(c.id.name()), Location: next.Location, Tags: next.Tags, Zones: next.Zones,
		Properties: &armcompute.VirtualMachineScaleSetVMProperties{TimeCreated: ptr(c.now), ProvisioningState: ptr(stateCreating)},
	}
	e, x := s.insertInstance(set, c.id, vm, 0, first(zonesOf(next.Zones)), c.now)
	x.plain, x.hostName = plain, c.id.name()
	s.join(x, plain.joined)
	if p.OSProfile != nil && val(p.OSProfile.ComputerName) != "" {
		x.hostName = *p.OSProfile.ComputerName
	}
	s.plugIn(x)
	if err := c.attachNew(e, p.StorageProfile); err != nil {
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

// attachNew attaches the disks that exist already to a machine that is made: they are
// there when it boots. The caller holds the lock.
func (c *call) attachNew(e *entry, sp *armcompute.StorageProfile) error {
	if sp == nil {
		return nil
	}
	isNew := func(d *armcompute.DataDisk) bool {
		return val(d.CreateOption) != armcompute.DiskCreateOptionTypesAttach
	}
	plan, err := c.planDisks(e, slices.DeleteFunc(slices.Clone(sp.DataDisks), isNew))
	if err != nil || len(plan.attach) == 0 {
		return err
	}
	for _, d := range plan.attach {
		if _, disk := load[armcompute.Disk](c.s, diskIDOf(d)); disk != nil {
			hold(disk, e.id, true)
		}
	}
	_, body := instanceOf(e)
	body.Properties.StorageProfile = &armcompute.StorageProfile{DataDisks: plan.attach}
	return nil
}

// plainMachine checks what a new machine has of its own.
func (c *call) plainMachine(next *armcompute.VirtualMachine) (*plainMachine, error) {
	p := next.Properties
	if p.NetworkProfile == nil || len(p.NetworkProfile.NetworkInterfaces) == 0 {
		return nil, badParameter("networkProfile", "Required parameter 'networkProfile.networkInterfaces' is missing (null).")
	}
	out := &plainMachine{network: p.NetworkProfile, availabilitySet: p.AvailabilitySet, osDiskDelete: "Detach"}
	if ref := p.VirtualMachineScaleSet; ref != nil {
		var err error
		if out.joined, err = c.joinable(val(ref.ID), next); err != nil {
			return nil, err
		}
	}
	if sp := p.StorageProfile; sp != nil && sp.OSDisk != nil {
		out.osDiskName = val(sp.OSDisk.Name)
		if sp.OSDisk.DeleteOption != nil {
			out.osDiskDelete = string(*sp.OSDisk.DeleteOption)
		}
		if out.osDiskName != "" {
			id := resourceID{subscription: c.id.subscription, group: c.id.group, namespace: "Microsoft.Compute", types: []string{"disks"}, names: []string{out.osDiskName}}
			if c.s.find(id) != nil {
				return nil, refuse(409, "ConflictingUserInput", "Disk %s already exists in resource group %s. Only CreateOption.Attach is supported.", out.osDiskName, strings.ToUpper(c.id.group))
			}
		}
	}
	if out.availabilitySet != nil && c.s.findID(val(out.availabilitySet.ID)) == nil {
		return nil, badRequest("InvalidResourceReference", "Resource %s referenced by resource %s was not found.", val(out.availabilitySet.ID), c.id.String())
	}
	for _, id := range out.interfaces() {
		if err := c.checkLink(c.id, id); err != nil {
			return nil, err
		}
		e := c.s.findID(id)
		if e == nil || e.rt.name != nicType {
			return nil, badParameter("networkProfile.networkInterfaces", "'%s' is not the id of a network interface.", id)
		}
		if vm := c.s.machineWith(e); vm != nil {
			return nil, nicInUse(e, vm)
		}
	}
	return out, nil
}

// machineSet is the scale set that a new machine is the only member of.
func (c *call) machineSet(vm *armcompute.VirtualMachine) (*entry, error) {
	p := vm.Properties
	profile := &armcompute.VirtualMachineScaleSetVMProfile{
		Priority: p.Priority, EvictionPolicy: p.EvictionPolicy, BillingProfile: p.BillingProfile, DiagnosticsProfile: p.DiagnosticsProfile,
		SecurityProfile: p.SecurityProfile, LicenseType: p.LicenseType, UserData: p.UserData,
	}
	if sp := p.StorageProfile; sp != nil {
		out := &armcompute.VirtualMachineScaleSetStorageProfile{ImageReference: sp.ImageReference}
		if sp.DiskControllerType != nil {
			out.DiskControllerType = ptr(string(*sp.DiskControllerType))
		}
		if d := sp.OSDisk; d != nil {
			out.OSDisk = &armcompute.VirtualMachineScaleSetOSDisk{CreateOption: d.CreateOption, OSType: d.OSType, Caching: d.Caching, DiskSizeGB: d.DiskSizeGB,
				DiffDiskSettings: d.DiffDiskSettings, ManagedDisk: setDisk(d.ManagedDisk)}
		}
		for _, d := range sp.DataDisks {
			if val(d.CreateOption) == armcompute.DiskCreateOptionTypesAttach {
				continue // attachNew's
			}
			if val(d.CreateOption) != armcompute.DiskCreateOptionTypesEmpty {
				return nil, badParameter("dataDisk.createOption", "azsim makes machines with Empty and Attach data disks, not '%s'.", val(d.CreateOption))
			}
			out.DataDisks = append(out.DataDisks, &armcompute.VirtualMachineScaleSetDataDisk{Lun: d.Lun, Name: d.Name, CreateOption: d.CreateOption, Caching: d.Caching, DiskSizeGB: d.DiskSizeGB, ManagedDisk: setDisk(d.ManagedDisk)})
		}
		profile.StorageProfile = out
	}
	if o := p.OSProfile; o != nil {
		profile.OSProfile = &armcompute.VirtualMachineScaleSetOSProfile{
			ComputerNamePrefix: ptr(c.id.name()), AdminUsername: o.AdminUsername, AdminPassword: o.AdminPassword, CustomData: o.CustomData, LinuxConfiguration: o.LinuxConfiguration,
			AllowExtensionOperations: o.AllowExtensionOperations, RequireGuestProvisionSignal: o.RequireGuestProvisionSignal,
		}
	}
	body := &armcompute.VirtualMachineScaleSet{
		ID: ptr(c.id.String()), Name: ptr(c.id.name()), Location: vm.Location, Tags: vm.Tags, Zones: vm.Zones, SKU: &armcompute.SKU{Capacity: ptr(int64(1))},
		Properties: &armcompute.VirtualMachineScaleSetProperties{
			OrchestrationMode: ptr(armcompute.OrchestrationModeFlexible), SinglePlacementGroup: ptr(false), VirtualMachineProfile: profile, ProvisioningState: ptr(stateSucceeded),
		},
	}
	if h := p.HardwareProfile; h != nil && h.VMSize != nil {
		body.SKU.Name = ptr(string(*h.VMSize))
	}
	body.Identity = setIdentity(vm.Identity)
	for _, check := range []func() error{
		func() error { return checkZones(c, body) }, func() error { return checkOSProfile(c, body) }, func() error { return checkSetUserData(c, body) },
		func() error { return c.checkRecipe(nil, body) }, func() error { return c.fillScaleSet(nil, body) },
	} {
		if err := check(); err != nil {
			return nil, err
		}
	}
	set := &entry{id: c.id, key: c.id.key(), rt: c.s.types[strings.ToLower(setType)], body: body, since: c.now}
	x, _ := setOf(set)
	x.key = modelKey(body)
	return set, nil
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
	return &armcompute.VirtualMachineScaleSetIdentity{Type: id.Type, UserAssignedIdentities: id.UserAssignedIdentities}
}

// patchMachine changes tags, identity, userData and data disks of a virtual machine.
func patchMachine(c *call) (*reply, error) {
	e, err := c.need()
	if err != nil {
		return nil, err
	}
	next, err := c.machine()
	if err != nil {
		return nil, err
	}
	return c.changeMachine(e, next)
}

// changeMachine refuses changes of what is fixed at creation, and begins the others.
// What the body does not hold keeps its value.
func (c *call) changeMachine(e *entry, next *armcompute.VirtualMachine) (*reply, error) {
	x, body := instanceOf(e)
	if x.leaves() {
		return nil, markedForDeletion(c.verb, val(body.Name))
	}
	if err := c.busy(e); err != nil {
		return nil, err
	}
	if err := c.precondition(e); err != nil {
		return nil, err
	}
	if err := unchangedMachine(x, next.Properties); err != nil {
		return nil, err
	}
	if next.Location != nil && normLocation(*next.Location) != normLocation(val(body.Location)) {
		return nil, notChangeable("location")
	}
	if err := checkUserData(next.Properties.UserData); err != nil {
		return nil, err
	}
	var plan *diskPlan
	var err error
	if sp := next.Properties.StorageProfile; sp != nil && sp.DataDisks != nil {
		if plan, err = c.planDisks(e, sp.DataDisks); err != nil {
			return nil, err
		}
	}
	size, err := c.newSize(x, next)
	if err != nil {
		return nil, err
	}
	_, set := setOf(x.set)
	if next.Identity != nil && x.plain != nil {
		old := *set
		set.Identity = setIdentity(next.Identity)
		if err := c.fillIdentity(&old, set); err != nil {
			set.Identity = old.Identity
			return nil, err
		}
	}
	if next.Tags != nil {
		body.Tags = next.Tags
	}
	if n := next.Properties.NetworkProfile; n != nil && x.plain != nil {
		for i, one := range n.NetworkInterfaces { // the same ones, with another deleteOption
			if one.Properties != nil {
				x.plain.network.NetworkInterfaces[i].Properties = one.Properties
			}
		}
	}
	span, restart := c.duration("instance.update"), size != "" && x.power == powerRunning
	if restart {
		span = c.duration("instance.restart")
	}
	c.setUserData(x, next.Properties.UserData, span)
	c.s.stampEtag(body, e.key)
	setState(body, stateUpdating)
	op := c.begin(e, work{
		span: span,
		run: func(ctx context.Context) error {
			err := c.s.moveDisks(ctx, e, plan)
			if err == nil && restart {
				err = c.s.allocate(e)
			}
			if err != nil || size == "" {
				return err
			}
			c.s.locked(func() {
				x.size, x.custom = size, x.plain == nil
				if x.plain != nil {
					set.SKU.Name = &size
					x.key = modelKey(set)
				}
			})
			if !restart {
				return nil
			}
			return c.s.cycle(x.alive, e, true, actionOptions{span: span})
		},
		done: func(failure *armError) {
			if x.gone {
				return
			}
			setState(body, stateSucceeded)
			if x.failure = failure; failure != nil {
				setState(body, stateFailed)
			}
		},
	})
	return &reply{status: 200, body: renderMachine(c, e), op: op}, nil
}

// newSize is the size that a change asks for, "" where that is the machine's. A running
// machine restarts for it, another only changes ("Change the size of a virtual machine" in
// Azure's documentation, as that sizes with and without a temporary disk do not mix).
func (c *call) newSize(x *instance, next *armcompute.VirtualMachine) (string, error) {
	h := next.Properties.HardwareProfile
	if h == nil || h.VMSize == nil || strings.EqualFold(string(*h.VMSize), x.size) {
		return "", nil
	}
	size, ok := findSize(string(*h.VMSize))
	if !ok {
		return "", unknownSize(string(*h.VMSize))
	}
	if old, _ := findSize(x.size); (old.tempMB == 0) != (size.tempMB == 0) {
		return "", conflict("Unable to resize VM '%s' between sizes with and without a resource disk.", c.id.name()).withTarget("vmSize")
	}
	if err := cmp.Or(c.s.checkRestricted(size, c.s.locationOf(x.set)), checkBootImage(x.image, size, x.profile)); err != nil {
		return "", err
	}
	if x.power == powerDeallocated {
		return size.name, nil
	}
	more := vCPUs{}
	more.add(1, size.name, isSpot(x.profile))
	more.add(-1, x.size, isSpot(x.profile))
	return size.name, c.checkQuota(c.s.locationOf(x.set), more)
}

// unchangedMachine refuses changes of what is fixed at creation. Custom data is
// compared too, although no client can read it (acs-engine issue 132).
func unchangedMachine(x *instance, p *armcompute.VirtualMachineProperties) error {
	o, was := p.OSProfile, x.profile.OSProfile
	if o != nil && was != nil {
		for _, m := range []struct {
			name     string
			now, was *string
		}{{"computerName", o.ComputerName, &x.hostName}, {"adminUsername", o.AdminUsername, was.AdminUsername}, {"customData", o.CustomData, was.CustomData}} {
			if m.now != nil && val(m.now) != val(m.was) {
				return notChangeable("osProfile." + m.name)
			}
		}
	}
	if ref, had := p.StorageProfile, imageOf(x.profile); ref != nil && ref.ImageReference != nil && had != nil {
		r := ref.ImageReference
		if !strings.EqualFold(val(r.ID), val(had.ID)) || !strings.EqualFold(val(r.Publisher), val(had.Publisher)) || !strings.EqualFold(val(r.Offer), val(had.Offer)) ||
			!strings.EqualFold(val(r.SKU), val(had.SKU)) || !strings.EqualFold(val(r.Version), val(had.Version)) {
			return notChangeable("imageReference")
		}
	}
	if set := x.scaleSet(); p.VirtualMachineScaleSet != nil && (set == nil || !strings.EqualFold(val(p.VirtualMachineScaleSet.ID), set.id.String())) {
		return notChangeable("virtualMachineScaleSet.id")
	}
	if x.plain == nil || p.NetworkProfile == nil {
		return nil
	}
	same := slices.EqualFunc(p.NetworkProfile.NetworkInterfaces, x.plain.network.NetworkInterfaces, func(a, b *armcompute.NetworkInterfaceReference) bool { return strings.EqualFold(val(a.ID), val(b.ID)) })
	if !same {
		return refuse(501, "NotImplemented", "azsim does not change the network interfaces of a virtual machine.")
	}
	return nil
}
