package azsim

import (
	"net/http"
	"slices"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"
)

// machineActions are the POSTs that a virtual machine knows beside those of all instances.
func machineActions() map[string]handler {
	out := instanceActions()
	out["generalize"] = generalizeMachine
	out["runcommand"] = runCommand
	out["converttomanageddisks"] = convertToManagedDisks
	return out
}

// plainHere finds the machine of the path, if it was made by hand and takes changes.
func (c *call) plainHere(action string) (*entry, *instance, error) {
	e, err := c.need()
	if err != nil {
		return nil, nil, err
	}
	x, body := instanceOf(e)
	if x.leaves() {
		return nil, nil, markedForDeletion(action, val(body.Name))
	}
	if x.plain == nil {
		return nil, nil, refuse(http.StatusNotImplemented, "NotImplemented", "azsim does not %s a virtual machine that a scale set made.", action)
	}
	return e, x, c.busy(e)
}

// generalizeMachine marks a machine as the source of images, at once (recorded). It is
// never started again.
func generalizeMachine(c *call) (*reply, error) {
	e, x, err := c.plainHere("generalize")
	if err != nil {
		return nil, err
	}
	if x.power != powerStopped && x.power != powerDeallocated {
		return nil, conflict("The Virtual Machine '%s' cannot be generalized since it is not stopped or deallocated.", e.id.name())
	}
	x.plain.generalized = true
	return &reply{status: http.StatusOK}, nil
}

// isGeneralized says whether an instance is the source of images.
func (x *instance) isGeneralized() bool { return x.plain != nil && x.plain.generalized }

// boots are the actions that start a computer.
var boots = []string{"start", "restart", "redeploy", "reimage"}

// commands are the ids of commands that azsim takes; Azure has more of its own.
var commands = []string{"RunShellScript", "RunPowerShellScript"}

// runCommand runs a script on a machine. Without a Substrate nothing runs at all, and a
// script prints nothing; with one there is nothing that would run it.
func runCommand(c *call) (*reply, error) {
	e, x, err := c.plainHere("run a command on")
	if err != nil {
		return nil, err
	}
	in, err := decode[armcompute.RunCommandInput](c)
	if err != nil {
		return nil, err
	}
	id := val(in.CommandID)
	switch {
	case id == "":
		return nil, badParameter("commandId", "Required parameter 'commandId' is missing (null).")
	case !slices.ContainsFunc(commands, func(known string) bool { return strings.EqualFold(known, id) }):
		return nil, refuse(http.StatusNotImplemented, "NotImplemented", "azsim runs the commands %s, not '%s'.", strings.Join(commands, " and "), id)
	case c.s.Substrate != nil:
		return nil, refuse(http.StatusNotImplemented, "NotImplemented", "azsim does not run commands on the computers of its Substrate.")
	case x.power != powerRunning:
		return nil, conflict("Cannot modify extensions in the VM when the VM is not running.")
	}
	return accepted(c.begin(e, work{span: c.duration("extension.create"), output: func() any {
		st := status("ProvisioningState/succeeded", "Provisioning succeeded", armcompute.StatusLevelTypesInfo, x.powerAt)
		st.Time, st.Message = nil, ptr("Enable succeeded: \n[stdout]\n\n[stderr]\n")
		return map[string]any{"value": []any{st}}
	}})), nil
}

// convertToManagedDisks makes disks of a deallocated machine's page blobs.
func convertToManagedDisks(c *call) (*reply, error) {
	e, x, err := c.plainHere("convert the disks of")
	if err != nil {
		return nil, err
	}
	if !x.plain.unmanaged() {
		return nil, conflict("VM '%s' is already using managed disks.", e.id.name())
	}
	if x.power != powerDeallocated {
		return nil, conflict("Operation 'convertToManagedDisks' is not allowed on VM '%s' since the VM is not deallocated.", e.id.name())
	}
	_, body := instanceOf(e)
	setState(body, stateUpdating)
	return accepted(c.begin(e, work{
		span: c.duration("instance.update"),
		done: func(failure *armError) {
			if x.gone {
				return
			}
			if failure == nil {
				c.s.convertDisks(e)
			}
			setState(body, stateSucceeded)
		},
	})), nil
}

// convertDisks gives a machine managed disks for its blobs, with names made of theirs and of
// the type of their storage accounts (recorded). The caller holds the lock.
func (s *Server) convertDisks(e *entry) {
	x, body := instanceOf(e)
	d := x.plain.osDisk()
	made := func(name string, vhd *armcompute.VirtualHardDisk, p *armcompute.DiskProperties) *entry {
		p.CreationData = &armcompute.CreationData{CreateOption: ptr(armcompute.DiskCreateOptionImport), SourceURI: vhd.URI}
		return s.insertDisk(e, name+"_"+strings.ReplaceAll(s.newUUID("disk name", e.key+name), "-", ""), s.blobAccountType(vhd), p)
	}
	was := x.osDisk
	x.osDisk = made(e.id.name()+"_"+val(d.Name), d.Vhd, &armcompute.DiskProperties{OSType: d.OSType, HyperVGeneration: ptr(armcompute.HyperVGeneration(x.image.generation)),
		DiskSizeGB: was.body.(*armcompute.Disk).Properties.DiskSizeGB})
	s.delete(was)
	model := clone(x.plain.model)
	x.plain.model = model
	model.Properties.StorageProfile.OSDisk.Vhd = nil
	for _, one := range dataDisksOf(body) {
		if one.Vhd != nil {
			fresh := made(val(one.Name), one.Vhd, &armcompute.DiskProperties{DiskSizeGB: one.DiskSizeGB})
			one.Name, one.Vhd, one.ManagedDisk = ptr(fresh.id.name()), nil, &armcompute.ManagedDiskParameters{ID: ptr(fresh.id.String())}
		}
	}
}

// blobAccountType is the kind of disk that a blob becomes.
func (s *Server) blobAccountType(vhd *armcompute.VirtualHardDisk) string {
	host, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(val(vhd.URI), "https://"), "http://"), ".")
	for _, e := range s.ofType("Microsoft.Storage/storageAccounts", s.Subscription, "") {
		if !strings.EqualFold(e.id.name(), host) {
			continue
		}
		if tree, err := toTree(e.body); err == nil && strings.HasPrefix(text(tree, "sku", "name"), "Premium") {
			return string(armcompute.StorageAccountTypesPremiumLRS)
		}
	}
	return string(armcompute.StorageAccountTypesStandardLRS)
}

// listMachineSizes answers GET id/vmSizes: what the machine can be resized to.
func listMachineSizes(c *call) (*reply, error) {
	e, err := c.need()
	if err != nil {
		return nil, err
	}
	x, _ := instanceOf(e)
	now, _ := findSize(x.size)
	items := []any{}
	for _, size := range vmSizes() {
		if c.s.checkRestricted(size, c.s.locationOf(e)) == nil && checkBootImage(x.image, size, x.profile) == nil && (now.tempMB == 0) == (size.tempMB == 0) {
			items = append(items, size.entry())
		}
	}
	return ok(map[string]any{"value": items}), nil
}

// checkMachineRecipe refuses a new machine that could not boot.
func (c *call) checkMachineRecipe(m *plainMachine, body *armcompute.VirtualMachineScaleSet, img bootImage) error {
	p := profileOf(body)
	if !m.attaches() && imageOf(p) != nil {
		return c.checkRecipe(nil, body)
	}
	size, known := findSize(sizeOf(body))
	if !known {
		return unknownSize(sizeOf(body))
	}
	if err := c.s.checkRestricted(size, val(body.Location)); err != nil {
		return err
	}
	return checkBootImage(img, size, p)
}
