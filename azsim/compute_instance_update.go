package azsim

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"
)

// putInstance is PUT of an instance, which Azure uses as an update: protection,
// tags, userData and data disks. What the body does not hold keeps its value.
func putInstance(c *call) (*reply, error) {
	s := c.s
	e := s.find(c.id)
	if e == nil {
		if s.find(c.id.parent()) == nil {
			return nil, parentNotFound(c.id)
		}
		return nil, notActive(c.id.name())
	}
	x, body := instanceOf(e)
	next, err := decode[armcompute.VirtualMachineScaleSetVM](c)
	if err != nil {
		return nil, err
	}
	if x.leaves() {
		return nil, notActive(c.id.name())
	}
	if err := c.busy(e); err != nil {
		return nil, err
	}
	if err := c.precondition(e); err != nil {
		return nil, err
	}
	next.Properties = cmp.Or(next.Properties, &armcompute.VirtualMachineScaleSetVMProperties{})
	if err := checkProtection(next.Properties.ProtectionPolicy); err != nil {
		return nil, err
	}
	var plan *diskPlan
	if sp := next.Properties.StorageProfile; sp != nil && sp.DataDisks != nil {
		if plan, err = c.planDisks(e, sp.DataDisks); err != nil {
			return nil, err
		}
	}
	if err := checkUserData(next.Properties.UserData); err != nil {
		return nil, err
	}
	unprotect, err := c.nulls("properties", "protectionPolicy")
	if err != nil {
		return nil, err
	}
	span := c.duration("instance.update")
	apply := func() {
		s.stampEtag(body, e.key)
		if unprotect {
			body.Properties.ProtectionPolicy = nil
		}
		if next.Tags != nil {
			body.Tags = next.Tags
		}
		if p := next.Properties.ProtectionPolicy; p != nil {
			body.Properties.ProtectionPolicy = p
		}
		// A body with another network configuration makes the instance's model its own
		// (azure-cli issue 30708); a client that sends back what it read does not (recorded).
		if n := next.Properties.NetworkProfileConfiguration; n != nil && !x.hasNetwork(n.NetworkInterfaceConfigurations) {
			x.custom = true
		}
		c.setUserData(x, next.Properties.UserData, span)
	}
	op := c.begin(e, work{
		span: span,
		run:  func(ctx context.Context) error { return s.moveDisks(ctx, e, plan) },
		done: func(failure *armError) {
			if x.gone {
				return
			}
			if failure != nil {
				setState(body, stateFailed)
				x.failure = failure
				return
			}
			setState(body, stateSucceeded)
			x.failure = nil
		},
		output: func() any { return c.s.showInstance(e, false) },
	})
	apply()
	setState(body, stateUpdating)
	shown := s.showInstance(e, false)
	c.spellVersion(shown.Properties.StorageProfile)
	if plan != nil {
		shown.Properties.StorageProfile.DataDisks = plan.announced()
	}
	return &reply{status: 200, body: shown, op: op}, nil
}

// hasNetwork reports whether a network configuration is the instance's own.
func (x *instance) hasNetwork(list []*armcompute.VirtualMachineScaleSetNetworkConfiguration) bool {
	for _, n := range list {
		fillInterface(n.Properties, x.flex)
	}
	return x.profile.NetworkProfile != nil && sameJSON(list, x.profile.NetworkProfile.NetworkInterfaceConfigurations)
}

// nulls reports whether the body has a null at the path.
func (c *call) nulls(path ...string) (bool, error) {
	at, err := c.tree()
	if err != nil {
		return false, err
	}
	for i, name := range path {
		value, there := at[name]
		if i == len(path)-1 {
			return there && value == nil, nil
		}
		at, _ = value.(map[string]any)
	}
	return false, nil
}

// checkProtection refuses a protection that contradicts itself.
func checkProtection(p *armcompute.VirtualMachineScaleSetVMProtectionPolicy) error {
	if p == nil || !val(p.ProtectFromScaleSetActions) {
		return nil
	}
	if p.ProtectFromScaleIn != nil && !*p.ProtectFromScaleIn {
		return badParameter("protectionPolicy", "The property 'protectFromScaleIn' cannot be false when 'protectFromScaleSetActions' is true.")
	}
	p.ProtectFromScaleIn = ptr(true)
	return nil
}

// A diskPlan is how an instance's data disks change.
type diskPlan struct {
	detach []*armcompute.DataDisk
	attach []*armcompute.DataDisk
	after  []*armcompute.DataDisk
}

// announced are the data disks in the first answer: those that come are there, and those that
// go are marked (recorded).
func (p *diskPlan) announced() []*armcompute.DataDisk {
	out := append([]*armcompute.DataDisk{}, p.after...)
	for _, d := range p.detach {
		leaving := *d
		leaving.ToBeDetached = ptr(true)
		out = append(out, &leaving)
	}
	return out
}

// planDisks checks a whole new list of data disks against what the instance has.
func (c *call) planDisks(e *entry, want []*armcompute.DataDisk) (*diskPlan, error) {
	x, body := instanceOf(e)
	have := dataDisksOf(body)
	plan := &diskPlan{}
	luns := map[int32]string{}
	for _, d := range want {
		if val(d.ToBeDetached) {
			if old := findDataDisk(have, d); old != nil {
				old.DetachOption = d.DetachOption
			}
			continue
		}
		if d.Lun == nil {
			return nil, badParameter("dataDisk.lun", "Required parameter 'dataDisk.lun' is missing (null).")
		}
		if *d.Lun < 0 || *d.Lun > 63 {
			return nil, badParameter("dataDisk.lun", "The value of parameter dataDisk.lun is invalid.")
		}
		if other, taken := luns[*d.Lun]; taken {
			return nil, badParameter("dataDisk.lun", "A disk named '%s' already uses the same LUN: %d.", other, *d.Lun)
		}
		luns[*d.Lun] = val(d.Name)
		old := findDataDisk(have, d)
		if old != nil && val(old.Lun) == *d.Lun {
			if d.Caching != nil {
				old.Caching = d.Caching
			}
			if d.DeleteOption != nil {
				old.DeleteOption = d.DeleteOption
			}
			if x.plain != nil {
				if err := x.resize(c.s, old, d); err != nil {
					return nil, err
				}
			}
			if d.WriteAcceleratorEnabled != nil {
				old.WriteAcceleratorEnabled = d.WriteAcceleratorEnabled
			}
			plan.after = append(plan.after, old)
			continue
		}
		if old != nil {
			return nil, conflict("Disk '%s' cannot be moved from LUN %d to LUN %d while it is attached. Detach it first.", val(old.Name), val(old.Lun), *d.Lun)
		}
		added, err := c.checkAttach(e, d)
		if err != nil {
			return nil, err
		}
		luns[*d.Lun] = val(added.Name)
		plan.attach, plan.after = append(plan.attach, added), append(plan.after, added)
	}
	for _, old := range have {
		if !slices.Contains(plan.after, old) {
			plan.detach = append(plan.detach, old)
		}
	}
	size, _ := findSize(x.size)
	if len(plan.after) > int(size.dataDisks) {
		e := conflict("The maximum number of data disks allowed to be attached to a VM of this size is %d.", size.dataDisks)
		e.target = "dataDisks"
		return nil, e
	}
	return plan, nil
}

// findDataDisk finds the data disk that the instance has already: by the disk's
// id, else by name, else by LUN.
func findDataDisk(have []*armcompute.DataDisk, d *armcompute.DataDisk) *armcompute.DataDisk {
	for _, h := range have {
		if id := diskIDOf(d); id != "" && strings.EqualFold(id, diskIDOf(h)) || id == "" && val(d.Name) != "" && strings.EqualFold(val(d.Name), val(h.Name)) {
			return h
		}
	}
	if diskIDOf(d) == "" && val(d.Name) == "" && d.Lun != nil { // a disk without a name yet
		return findLun(have, *d.Lun)
	}
	return nil
}

// checkAttach checks one disk that is to be attached.
func (c *call) checkAttach(e *entry, d *armcompute.DataDisk) (*armcompute.DataDisk, error) {
	x, body := instanceOf(e)
	canon(d.CreateOption, armcompute.PossibleDiskCreateOptionTypesValues())
	if o := val(d.CreateOption); x.plain != nil && (o != armcompute.DiskCreateOptionTypesAttach || d.Vhd != nil) {
		return c.newDataDisk(e, d)
	} else if o != armcompute.DiskCreateOptionTypesAttach {
		return nil, badParameter("dataDisk.createOption", "azsim attaches managed disks that exist: set 'dataDisk.createOption' to 'Attach', not '%s'.", o)
	}
	id, err := parseID(diskIDOf(d))
	if err != nil {
		return nil, badParameter("dataDisk.managedDisk.id", "Required parameter 'dataDisk.managedDisk.id' is missing (null).")
	}
	de, disk := load[armcompute.Disk](c.s, id.String())
	if disk == nil || de.extra == ephemeralOSDisk {
		return nil, notFound(id)
	}
	for _, action := range []string{"Microsoft.Compute/disks/read", "Microsoft.Compute/disks/write"} {
		if err := c.authorizeLinked(action, de.id); err != nil {
			return nil, err
		}
	}
	if by := val(disk.ManagedBy); by != "" && !strings.EqualFold(by, e.id.String()) {
		return nil, attachedElsewhere(de, e.id, by)
	}
	if state := stateOf(disk); state != stateSucceeded {
		return nil, conflict("Disk '%s' cannot be attached: its provisioning state is '%s'.", de.id.name(), state)
	}
	if normLocation(val(disk.Location)) != normLocation(val(body.Location)) {
		return nil, badRequest("BadRequest", "Disk %s is in location %s, but VM %s is in location %s.", de.id.String(), val(disk.Location), val(body.Name), val(body.Location))
	}
	if zones := zonesOf(disk.Zones); len(zones) > 0 && !slices.Contains(zones, x.zone) || len(zones) == 0 && x.zone != "" && !zoneRedundant(disk) {
		return nil, badRequest("BadRequest", "Disk %s cannot be attached to the VM because it is not in the same zone as the VM. VM zone: '%s'. Disk zone: '%s'.", de.id.name(), x.zone, first(zones))
	}
	asked := accountType(disk)
	if x.plain != nil && d.ManagedDisk.StorageAccountType != nil { // attaching changes the disk's (recorded)
		asked = d.ManagedDisk.StorageAccountType
	}
	return &armcompute.DataDisk{
		Lun: d.Lun, Name: ptr(de.id.name()), CreateOption: ptr(armcompute.DiskCreateOptionTypesAttach),
		Caching: orDefault(d.Caching, armcompute.CachingTypesNone), DeleteOption: orDefault(d.DeleteOption, armcompute.DiskDeleteOptionTypesDetach),
		DiskSizeGB: disk.Properties.DiskSizeGB, ToBeDetached: ptr(false), WriteAcceleratorEnabled: d.WriteAcceleratorEnabled,
		ManagedDisk: &armcompute.ManagedDiskParameters{ID: ptr(de.id.String()), StorageAccountType: asked},
	}, nil
}

// zoneRedundant disks can be attached in any zone.
func zoneRedundant(d *armcompute.Disk) bool {
	if d.SKU == nil || d.SKU.Name == nil {
		return false
	}
	n := string(*d.SKU.Name)
	return len(n) > 4 && n[len(n)-4:] == "_ZRS"
}

func accountType(d *armcompute.Disk) *armcompute.StorageAccountTypes {
	if d.SKU == nil || d.SKU.Name == nil {
		return nil
	}
	return ptr(armcompute.StorageAccountTypes(string(*d.SKU.Name)))
}

func first(list []string) string {
	if len(list) == 0 {
		return ""
	}
	return list[0]
}

// moveDisks detaches and attaches, on the Substrate and in the model. What was
// done before a failure stays, and the model says so.
func (s *Server) moveDisks(ctx context.Context, e *entry, plan *diskPlan) error {
	if plan == nil {
		return nil
	}
	x, body := instanceOf(e)
	for _, d := range plan.detach {
		lun := val(d.Lun)
		if err := s.onSubstrate(ctx, x, func(sub Substrate) error { return sub.Detach(ctx, e.id.key(), lun) }); err != nil {
			return err
		}
		s.locked(func() {
			dropDataDisk(body, d)
			if _, disk := load[armcompute.Disk](s, diskIDOf(d)); disk != nil {
				release(disk)
			}
		})
	}
	for _, d := range plan.attach {
		if x.plain != nil {
			if err := s.makeMissing(ctx, e, d); err != nil {
				s.locked(func() { dropDataDisk(body, d) })
				return err
			}
			if d.Vhd != nil {
				continue
			}
		}
		lun := val(d.Lun)
		var refused error
		var v Volume
		s.locked(func() {
			if x.gone {
				refused = preempted()
				return
			}
			de, disk := load[armcompute.Disk](s, diskIDOf(d))
			if disk == nil || val(disk.ManagedBy) != "" && !strings.EqualFold(val(disk.ManagedBy), e.id.String()) {
				refused = conflict("Disk '%s' was deleted or attached elsewhere meanwhile.", diskIDOf(d))
				return
			}
			hold(disk, e.id, x.power != powerDeallocated)
			v = de.volume()
		})
		if refused != nil {
			return refused
		}
		if err := s.onSubstrate(ctx, x, func(sub Substrate) error { return sub.Attach(ctx, e.id.key(), lun, v) }); err != nil {
			s.locked(func() {
				dropDataDisk(body, d)
				if _, disk := load[armcompute.Disk](s, diskIDOf(d)); disk != nil {
					release(disk)
				}
			})
			return err
		}
		s.locked(func() {
			if x.gone { // its deletion knows only the disks of the model
				if _, disk := load[armcompute.Disk](s, diskIDOf(d)); disk != nil {
					release(disk)
				}
				refused = preempted()
				return
			}
			body.Properties.StorageProfile = cmp.Or(body.Properties.StorageProfile, &armcompute.StorageProfile{})
			sp := body.Properties.StorageProfile
			if !slices.Contains(sp.DataDisks, d) {
				sp.DataDisks = append(slices.Clone(sp.DataDisks), d)
			}
		})
		if refused != nil {
			return refused
		}
	}
	return nil
}

// dropDataDisk takes a data disk out of an instance's model.
func dropDataDisk(body *armcompute.VirtualMachineScaleSetVM, d *armcompute.DataDisk) {
	sp := body.Properties.StorageProfile
	if sp != nil {
		sp.DataDisks = slices.DeleteFunc(slices.Clone(sp.DataDisks), func(h *armcompute.DataDisk) bool { return h == d })
	}
}

// attachDetachDataDisks is the POST of that name: a change, not a whole list.
func attachDetachDataDisks(c *call) (*reply, error) {
	e, err := c.need()
	if err != nil {
		return nil, err
	}
	x, body := instanceOf(e)
	if x.leaves() {
		return nil, markedForDeletion(c.verb, val(body.Name))
	}
	if err := c.busy(e); err != nil {
		return nil, err
	}
	req, err := decode[armcompute.AttachDetachDataDisksRequest](c)
	if err != nil {
		return nil, err
	}
	want := slices.Clone(dataDisksOf(body))
	for _, d := range req.DataDisksToDetach {
		id := val(d.DiskID)
		if !slices.ContainsFunc(want, func(h *armcompute.DataDisk) bool { return strings.EqualFold(id, diskIDOf(h)) }) {
			return nil, badParameter("dataDisksToDetach", "The disk '%s' is not attached to VM '%s'.", id, val(body.Name))
		}
		want = slices.DeleteFunc(want, func(h *armcompute.DataDisk) bool { return strings.EqualFold(id, diskIDOf(h)) })
	}
	for _, d := range req.DataDisksToAttach {
		lun := d.Lun
		for n := int32(0); lun == nil && n < 64; n++ {
			if !slices.ContainsFunc(want, func(h *armcompute.DataDisk) bool { return val(h.Lun) == n }) {
				lun = ptr(n)
			}
		}
		want = append(want, &armcompute.DataDisk{Lun: lun, CreateOption: ptr(armcompute.DiskCreateOptionTypesAttach), Caching: d.Caching,
			DeleteOption: d.DeleteOption, ManagedDisk: &armcompute.ManagedDiskParameters{ID: d.DiskID}})
	}
	plan, err := c.planDisks(e, want)
	if err != nil {
		return nil, err
	}
	setState(body, stateUpdating)
	return accepted(c.begin(e, work{
		span: c.duration("instance.update"),
		run:  func(ctx context.Context) error { return c.s.moveDisks(ctx, e, plan) },
		done: func(failure *armError) {
			if x.gone {
				return
			}
			setState(body, stateSucceeded)
			if failure != nil {
				setState(body, stateFailed)
				x.failure = failure
			}
		},
		output: func() any { return c.s.showInstance(e, false).Properties.StorageProfile },
	})), nil
}
