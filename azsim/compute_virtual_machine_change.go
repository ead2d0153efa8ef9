package azsim

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"
)

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
	var merged *armcompute.VirtualMachine
	var newDisk *entry
	if x.plain != nil {
		var err error
		if merged, err = c.mergedMachine(x); err != nil {
			return nil, err
		}
		if newDisk, err = c.checkMerged(e, merged); err != nil {
			return nil, err
		}
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
		set.Identity = c.mergedIdentity(old.Identity, next.Identity)
		if err := c.fillIdentity(&old, set); err != nil {
			set.Identity = old.Identity
			return nil, err
		}
	}
	if next.Tags != nil {
		body.Tags = next.Tags
	}
	if merged != nil {
		merged.Properties.HardwareProfile = sizeProfile(merged.Properties.HardwareProfile, cmp.Or(size, x.size))
		x.takeModel(merged)
		c.s.plugIn(x)
	}
	if newDisk != nil {
		c.s.swapOSDisk(e, newDisk)
	}
	if plan != nil && x.plain != nil {
		c.s.showPlan(e, plan)
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
				x.unchanged(body)
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
	return nil
}

// checkMerged checks what a changed model asks of the machine, and returns the OS disk that
// is to take the place of the machine's, nil for none.
func (c *call) checkMerged(e *entry, next *armcompute.VirtualMachine) (*entry, error) {
	x, _ := instanceOf(e)
	was, now := x.plain.model.Properties, next.Properties
	same := slices.EqualFunc(networkOf(next), networkOf(x.plain.model), func(a, b *armcompute.NetworkInterfaceReference) bool { return strings.EqualFold(val(a.ID), val(b.ID)) })
	if !same {
		if x.power != powerDeallocated { // the code and text are Azure's
			return nil, refuse(http.StatusConflict, "AddingOrDeletingNetworkInterfacesOnARunningVirtualMachineNotSupported",
				"Secondary network interfaces cannot be added or deleted from a running virtual machine. Virtual Machine name: %s.", e.id.name())
		}
		m := plainMachine{model: next}
		if len(networkOf(next)) == 0 {
			return nil, badParameter("networkProfile", "Required parameter 'networkProfile.networkInterfaces' is missing (null).")
		}
		if err := c.checkInterfaces(m.interfaces()); err != nil {
			return nil, err
		}
	}
	if !sameReference(was.ProximityPlacementGroup, now.ProximityPlacementGroup) && x.power != powerDeallocated {
		return nil, conflict("Updating proximity placement group of VM %s is not allowed while the VM is running. Please stop/deallocate the VM and retry the operation.", e.id.name())
	}
	if !sameReference(was.AvailabilitySet, now.AvailabilitySet) {
		return nil, notChangeable("availabilitySet.id")
	}
	d := now.StorageProfile.OSDisk
	if x.osDisk != nil && d.Vhd == nil && val(d.DiskSizeGB) > val(diskOf(x.osDisk).Properties.DiskSizeGB) && x.power != powerDeallocated {
		return nil, resizeRefused()
	}
	if (d.Vhd == nil) != (x.plain.osDisk().Vhd == nil) {
		return nil, notChangeable("osDisk.vhd")
	}
	if d.Vhd != nil || d.ManagedDisk == nil || val(d.ManagedDisk.ID) == "" || x.osDisk == nil || strings.EqualFold(*d.ManagedDisk.ID, x.osDisk.id.String()) {
		return nil, nil
	}
	disk, _, err := c.freeOSDisk(d)
	if err == nil && (x.power == powerRunning || x.power == powerStarting) {
		return nil, conflict("OS disk of VM '%s' cannot be swapped while the VM is running. Stop or deallocate the VM and retry.", e.id.name())
	}
	return disk, err
}

func sameReference(a, b *armcompute.SubResource) bool {
	return (a == nil) == (b == nil) && (a == nil || strings.EqualFold(val(a.ID), val(b.ID)))
}

// takeModel brings a changed model to the machine, with what else is made of it.
func (x *instance) takeModel(next *armcompute.VirtualMachine) {
	x.plain.model = next
	if x.osDisk != nil {
		if asked := val(x.plain.osDisk().DiskSizeGB); asked > val(diskOf(x.osDisk).Properties.DiskSizeGB) {
			grow(diskOf(x.osDisk), asked)
		}
	}
	p := *x.profile
	p.DiagnosticsProfile, p.LicenseType = next.Properties.DiagnosticsProfile, next.Properties.LicenseType
	x.profile = &p
}

// unchanged takes back of a machine's model what a failed change did not bring about. The
// caller holds the lock.
func (x *instance) unchanged(body *armcompute.VirtualMachineScaleSetVM) {
	for _, d := range dataDisksOf(body) {
		d.ToBeDetached = ptr(false)
	}
	if x.plain != nil {
		p := x.plain.model.Properties
		p.HardwareProfile = sizeProfile(p.HardwareProfile, x.size)
	}
}

// sizeProfile is a hardware profile with a size.
func sizeProfile(h *armcompute.HardwareProfile, size string) *armcompute.HardwareProfile {
	out := armcompute.HardwareProfile{}
	if h != nil {
		out = *h
	}
	out.VMSize = ptr(armcompute.VirtualMachineSizeTypes(size))
	return &out
}

// diskOf is the model of a stored disk.
func diskOf(e *entry) *armcompute.Disk { return e.body.(*armcompute.Disk) }

// swapOSDisk gives a machine that does not run another OS disk. The caller holds the lock.
func (s *Server) swapOSDisk(e, next *entry) {
	x, _ := instanceOf(e)
	release(diskOf(x.osDisk))
	hold(diskOf(next), e.id, x.power != powerDeallocated)
	x.osDisk, x.provisioned = next, true
}
