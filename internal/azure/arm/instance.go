package arm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"

	"github.com/ortet/ortet/internal/fleet"
)

const (
	typeScaleSet = "virtualMachineScaleSets"
	typeInstance = "virtualMachineScaleSets/virtualMachines"
)

// Instances lists a pool's instances with their instance views. Protection of a Flexible
// pool's is in no list.
func (c *Cloud) Instances(ctx context.Context, pool fleet.ResourceID) ([]fleet.Instance, error) {
	if flexible, known := c.flexible.Load(strings.ToLower(string(pool))); known {
		out, err := c.instancesOf(ctx, pool, flexible == true)
		// A set that was deleted, and perhaps made again in the other mode, answers a
		// Flexible set's list with nothing, and refuses a Uniform set's.
		if fleet.Is(err, fleet.KindInvalid) || err == nil && flexible == true && len(out) == 0 {
			c.flexible.Delete(strings.ToLower(string(pool)))
		} else {
			return out, err
		}
	}
	set, err := c.scaleSet(ctx, pool)
	if err != nil {
		return nil, err
	}
	return c.instancesOf(ctx, pool, set.flexible())
}

func (c *Cloud) instancesOf(ctx context.Context, pool fleet.ResourceID, flexible bool) (out []fleet.Instance, err error) {
	err = c.eachInstance(ctx, pool, flexible, true, func(vm *instanceAnswer) {
		if !flexible || pool.Equal(fleet.ResourceID(vm.Properties.VirtualMachineScaleSet.ID)) { // should the filter have been ignored
			out = append(out, instanceOf(vm, pool))
		}
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// eachInstance pages through a scale set's instances.
func (c *Cloud) eachInstance(ctx context.Context, pool fleet.ResourceID, flexible, views bool, do func(*instanceAnswer)) error {
	const op = "list instances"
	p, err := c.at(pool, typeScaleSet)
	if err != nil {
		return failed(ctx, op, pool, err)
	}
	return failed(ctx, op, pool, list(ctx, c, c.instances(p, pool, flexible, views), func(vm *instanceAnswer) error {
		do(vm)
		return nil
	}))
}

// Machines lists a resource group's virtual machines, with their scale sets.
func (c *Cloud) Machines(ctx context.Context, group fleet.ResourceID) (map[fleet.ResourceID]fleet.ResourceID, error) {
	const op = "list virtual machines"
	p, err := c.at(group.In(typeMachine, "any"), typeMachine)
	if err != nil {
		return nil, failed(ctx, op, group, err)
	}
	out := map[fleet.ResourceID]fleet.ResourceID{}
	err = list(ctx, c, c.address(p.below+typeMachine, computeVersion), func(vm *instanceAnswer) error {
		out[fleet.ResourceID(strings.ToLower(vm.ID))] = fleet.ResourceID(vm.Properties.VirtualMachineScaleSet.ID)
		return nil
	})
	if err != nil {
		return nil, failed(ctx, op, group, err)
	}
	return out, nil
}

func endless(op string, on fleet.ResourceID) error {
	return &fleet.Error{Op: op, Resource: string(on), Kind: fleet.KindInvalid, Err: fmt.Errorf("the list has more than %d pages", maxPages)}
}

// Instance returns one instance with its instance view. The protection of a virtual machine
// is a second GET: it stands below the set alone, by Azure's documentation; no recording has it.
func (c *Cloud) Instance(ctx context.Context, id fleet.ResourceID) (fleet.Instance, error) {
	i, err := c.unprotected(ctx, id)
	if err != nil || i.Pool == "" || id.UniformPool() != "" {
		return i, err
	}
	var below instanceAnswer
	p, err := c.at(i.Pool.Child("virtualMachines", i.Name), typeInstance)
	if err == nil {
		err = c.get(ctx, c.address(p.id, computeVersion), &below)
	}
	if err = failed(ctx, "get instance", id, err); err != nil && !refusesProtection(err) && !fleet.Is(err, fleet.KindDenied) {
		return fleet.Instance{}, err
	}
	i.Protection = protectionOf(&below)
	return i, nil
}

// unprotected is Instance without the protection of a virtual machine.
func (c *Cloud) unprotected(ctx context.Context, id fleet.ResourceID) (fleet.Instance, error) {
	const op = "get instance"
	m, err := c.machine(id)
	if err != nil {
		return fleet.Instance{}, failed(ctx, op, id, err)
	}
	var vm instanceAnswer
	if err := c.get(ctx, c.address(m.id, computeVersion, "$expand", "instanceView"), &vm); err != nil {
		return fleet.Instance{}, failed(ctx, op, id, err)
	}
	return instanceOf(&vm, cmp.Or(id.UniformPool(), fleet.ResourceID(vm.Properties.VirtualMachineScaleSet.ID))), nil
}

// refusesProtection reports that Azure does not have a Flexible set's member, which it has
// elsewhere, below the set.
func refusesProtection(err error) bool {
	return slices.Contains([]fleet.Kind{fleet.KindInvalid, fleet.KindNotFound, fleet.KindUnsupported}, fleet.KindOf(err))
}

// A machine is what can be done to an instance of a Uniform scale set and, by another
// client, to a virtual machine.
type machine struct {
	place
	uniform bool
}

func (c *Cloud) machine(id fleet.ResourceID) (machine, error) {
	uniform, typ := id.UniformPool() != "", typeMachine
	if uniform {
		typ = typeInstance
	}
	p, err := c.at(id, typ)
	return machine{p, uniform}, err
}

func instanceOf(vm *instanceAnswer, pool fleet.ResourceID) fleet.Instance {
	p := &vm.Properties
	i := fleet.Instance{
		ID:                 fleet.ResourceID(vm.ID),
		Pool:               pool,
		InstanceID:         cmp.Or(vm.InstanceID, vm.Name),
		Name:               vm.Name,
		Size:               cmp.Or(vm.SKU.Name, p.HardwareProfile.VMSize),
		VMID:               p.VMID,
		Created:            p.TimeCreated.Time,
		ProvisioningState:  p.ProvisioningState,
		LatestModelApplied: p.LatestModelApplied,
		Tags:               vm.Tags,
		OSDiskSizeGB:       p.StorageProfile.OSDisk.DiskSizeGB,
		ModelCreated:       modelTime(vm.Tags["VirtualMachineProfileTimeCreated"]),
		HostName:           p.OSProfile.ComputerName,
		SecurityType:       p.SecurityProfile.SecurityType,
		Image:              imageOf(p.StorageProfile.ImageReference),
		Generation:         p.InstanceView.HyperVGeneration,
	}
	i.Protection = protectionOf(vm)
	if len(vm.Zones) > 0 {
		i.Zone = vm.Zones[0]
	}
	if d := p.StorageProfile.OSDisk; d.DiffDiskSettings == nil {
		i.OSDisk = fleet.ResourceID(d.ManagedDisk.ID)
	}
	for _, d := range p.StorageProfile.DataDisks {
		if d != nil && d.ManagedDisk != nil {
			i.DataDisks = append(i.DataDisks, fleet.AttachedDisk{LUN: d.LUN, Disk: fleet.ResourceID(d.ManagedDisk.ID)})
		}
	}
	for _, st := range p.InstanceView.Statuses {
		if st == nil {
			continue
		}
		if kind, state, ok := strings.Cut(st.Code, "/"); ok && strings.EqualFold(kind, "PowerState") {
			i.Power = fleet.PowerState(strings.ToLower(state))
		}
	}
	return i
}

func protectionOf(vm *instanceAnswer) (p fleet.Protection) {
	if policy := vm.Properties.ProtectionPolicy; policy != nil {
		p = fleet.Protection{ScaleIn: policy.ProtectFromScaleIn, ScaleSetActions: policy.ProtectFromScaleSetActions}
		p.Off = !p.Protects()
	}
	return p
}

// modelTime reads when the model of a Flexible set was made from which a member was made,
// as Azure writes it into the member's tag: "8/26/2024 9:42:41 AM +00:00". The user may
// change the tag; what is no time is none.
func modelTime(tag string) time.Time {
	t, err := time.Parse("1/2/2006 3:04:05 PM -07:00", tag)
	if err != nil {
		return time.Time{}
	}
	return t
}

func (c *Cloud) stop(ctx context.Context, ch fleet.StopInstance) (fleet.Token, error) {
	p, err := c.machine(ch.Instance)
	if err != nil {
		return "", failed(ctx, ch.Verb(), ch.Instance, err)
	}
	if !p.uniform {
		client := p.NewVirtualMachinesClient()
		if ch.Deallocate {
			op, err := client.BeginDeallocate(ctx, p.group, p.names[0], nil)
			return begun(ctx, ch, op, err)
		}
		op, err := client.BeginPowerOff(ctx, p.group, p.names[0], &armcompute.VirtualMachinesClientBeginPowerOffOptions{SkipShutdown: ptr(false)})
		return begun(ctx, ch, op, err)
	}
	client := p.NewVirtualMachineScaleSetVMsClient()
	if ch.Deallocate {
		op, err := client.BeginDeallocate(ctx, p.group, p.names[0], p.names[1], nil)
		return begun(ctx, ch, op, err)
	}
	op, err := client.BeginPowerOff(ctx, p.group, p.names[0], p.names[1],
		&armcompute.VirtualMachineScaleSetVMsClientBeginPowerOffOptions{SkipShutdown: ptr(false)})
	return begun(ctx, ch, op, err)
}

func (c *Cloud) start(ctx context.Context, ch fleet.StartInstance) (fleet.Token, error) {
	p, err := c.machine(ch.Instance)
	if err != nil {
		return "", failed(ctx, ch.Verb(), ch.Instance, err)
	}
	if !p.uniform {
		op, err := p.NewVirtualMachinesClient().BeginStart(ctx, p.group, p.names[0], nil)
		return begun(ctx, ch, op, err)
	}
	op, err := p.NewVirtualMachineScaleSetVMsClient().BeginStart(ctx, p.group, p.names[0], p.names[1], nil)
	return begun(ctx, ch, op, err)
}

func (c *Cloud) restart(ctx context.Context, ch fleet.RestartInstance) (fleet.Token, error) {
	p, err := c.at(ch.Instance, typeInstance)
	if err != nil {
		return "", failed(ctx, ch.Verb(), ch.Instance, err)
	}
	op, err := p.NewVirtualMachineScaleSetVMsClient().BeginRestart(ctx, p.group, p.names[0], p.names[1], nil)
	return begun(ctx, ch, op, err)
}

func (c *Cloud) reimage(ctx context.Context, ch fleet.ReimageInstance) (fleet.Token, error) {
	p, err := c.at(ch.Instance, typeInstance)
	if err != nil {
		return "", failed(ctx, ch.Verb(), ch.Instance, err)
	}
	op, err := p.NewVirtualMachineScaleSetVMsClient().BeginReimage(ctx, p.group, p.names[0], p.names[1], nil)
	return begun(ctx, ch, op, err)
}

// setUserData puts the userData alone, as protect does its policy.
func (c *Cloud) setUserData(ctx context.Context, ch fleet.SetUserData) (fleet.Token, error) {
	p, err := c.at(ch.Instance, typeInstance)
	if err != nil {
		return "", failed(ctx, ch.Verb(), ch.Instance, err)
	}
	op, err := p.NewVirtualMachineScaleSetVMsClient().BeginUpdate(ctx, p.group, p.names[0], p.names[1], armcompute.VirtualMachineScaleSetVM{
		Properties: &armcompute.VirtualMachineScaleSetVMProperties{UserData: ptr(ch.UserData)},
	}, &armcompute.VirtualMachineScaleSetVMsClientBeginUpdateOptions{IfMatch: orNil(ch.Etag)})
	return conditional(begun(ctx, ch, op, err))
}

// protect puts the protection policy alone. Instances know no PATCH, but Azure
// leaves alone what the PUT of an instance does not mention: its documentation
// of instance protection shows this very body, and cloud-provider-azure relies
// on it for data disks. What is read back must not be sent: a list of data disks
// that a volume was attached to meanwhile would detach it, and a network
// profile needs the right to join its subnets.
func (c *Cloud) protect(ctx context.Context, ch fleet.ProtectInstance) (fleet.Token, error) {
	now, err := c.Instance(ctx, ch.Instance)
	if err != nil {
		return "", failed(ctx, ch.Verb(), ch.Instance, err)
	}
	if now.Protection == ch.Protection {
		return "", nil
	}
	if now.Pool == "" {
		return "", nil // a virtual machine of its own: no scale set can delete it
	}
	p, err := c.at(now.Pool.Child("virtualMachines", ch.Instance.Name()), typeInstance)
	if err != nil {
		return "", failed(ctx, ch.Verb(), ch.Instance, err)
	}
	policy := azcore.NullValue[*armcompute.VirtualMachineScaleSetVMProtectionPolicy]()
	if ch.Protection != (fleet.Protection{}) {
		policy = &armcompute.VirtualMachineScaleSetVMProtectionPolicy{
			ProtectFromScaleIn:         ptr(ch.Protection.ScaleIn),
			ProtectFromScaleSetActions: ptr(ch.Protection.ScaleSetActions),
		}
	}
	op, err := p.NewVirtualMachineScaleSetVMsClient().BeginUpdate(ctx, p.group, p.names[0], p.names[1], armcompute.VirtualMachineScaleSetVM{
		Properties: &armcompute.VirtualMachineScaleSetVMProperties{ProtectionPolicy: policy},
	}, nil)
	tok, err := begun(ctx, ch, op, err)
	var e *fleet.Error
	if errors.As(err, &e) && ch.Instance.UniformPool() == "" && refusesProtection(err) {
		unsupported := *e
		unsupported.Kind = fleet.KindUnsupported
		return tok, &unsupported
	}
	return tok, err
}

// attach uses the action that adds one disk, and not the PUT of the instance
// with the list of all, which races the cluster's own volumes.
func (c *Cloud) attach(ctx context.Context, ch fleet.AttachDisk) (fleet.Token, error) {
	now, err := c.unprotected(ctx, ch.Instance)
	if err != nil {
		return "", failed(ctx, ch.Verb(), ch.Instance, err)
	}
	for _, d := range now.DataDisks {
		switch same := d.Disk.Equal(ch.Disk); {
		case same && d.LUN == ch.LUN:
			return "", nil
		case same:
			return "", &fleet.Error{Op: ch.Verb(), Resource: string(ch.Instance), Kind: fleet.KindConflict,
				Err: fmt.Errorf("%s is attached already, at LUN %d instead of %d", ch.Disk, d.LUN, ch.LUN)}
		case d.LUN == ch.LUN:
			return "", &fleet.Error{Op: ch.Verb(), Resource: string(ch.Instance), Kind: fleet.KindConflict,
				Err: fmt.Errorf("LUN %d is taken by %s", ch.LUN, d.Disk)}
		}
	}
	return c.attachDetach(ctx, ch, armcompute.AttachDetachDataDisksRequest{
		DataDisksToAttach: []*armcompute.DataDisksToAttach{{
			DiskID: ptr(string(ch.Disk)),
			Lun:    ptr(ch.LUN),
			// What is generalised is written once and then copied: a host cache
			// could only hide the last writes from the copy.
			Caching: ptr(armcompute.CachingTypesNone),
		}},
	})
}

func (c *Cloud) detach(ctx context.Context, ch fleet.DetachDisk) (fleet.Token, error) {
	now, err := c.unprotected(ctx, ch.Instance)
	if fleet.Is(err, fleet.KindNotFound) {
		return "", nil // and so it is attached to nothing
	}
	if err != nil {
		return "", failed(ctx, ch.Verb(), ch.Instance, err)
	}
	for _, d := range now.DataDisks {
		if d.Disk.Equal(ch.Disk) {
			return c.attachDetach(ctx, ch, armcompute.AttachDetachDataDisksRequest{
				DataDisksToDetach: []*armcompute.DataDisksToDetach{{DiskID: ptr(string(d.Disk))}},
			})
		}
	}
	return "", nil
}

func (c *Cloud) attachDetach(ctx context.Context, ch fleet.Change, body armcompute.AttachDetachDataDisksRequest) (fleet.Token, error) {
	p, err := c.machine(ch.Target())
	if err != nil {
		return "", failed(ctx, ch.Verb(), ch.Target(), err)
	}
	if !p.uniform {
		op, err := p.NewVirtualMachinesClient().BeginAttachDetachDataDisks(ctx, p.group, p.names[0], body, nil)
		return begun(ctx, ch, op, err)
	}
	op, err := p.NewVirtualMachineScaleSetVMsClient().BeginAttachDetachDataDisks(ctx, p.group, p.names[0], p.names[1], body, nil)
	return begun(ctx, ch, op, err)
}
