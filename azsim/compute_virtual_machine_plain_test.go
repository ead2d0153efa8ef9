package azsim

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"
)

const otherGroup = "/subscriptions/" + DefaultSubscription + "/resourceGroups/other"

// withServerNIC runs the test with a group "other" and the network of machineBody.
func withServerNIC(t *testing.T, test func(b *bench, sub *modelSubstrate, vms *armcompute.VirtualMachinesClient)) {
	t.Helper()
	sub := newModelSubstrate()
	inVirtualTime(t, func(s *Server) { s.Substrate = sub }, func(b *bench) {
		network(b)
		for _, nic := range []string{"nic", "nic2"} {
			b.made("PUT", "Microsoft.Network/networkInterfaces/"+nic, netVersion, interfaceBody("servers", "", ""))
		}
		b.made("PUT", otherGroup, "2021-04-01", `{"location":"westeurope"}`)
		test(b, sub, b.f.NewVirtualMachinesClient())
	})
}

// plainVM is machineBody with data disks, on the network interface.
func (b *bench) plainVM(nic string, disks ...*armcompute.DataDisk) armcompute.VirtualMachine {
	b.Helper()
	var vm armcompute.VirtualMachine
	if err := json.Unmarshal([]byte(strings.ReplaceAll(machineBody(""), `networkInterfaces/nic"`, `networkInterfaces/`+nic+`"`)), &vm); err != nil {
		b.Fatal(err)
	}
	vm.Properties.StorageProfile.OSDisk.Name = nil
	vm.Properties.StorageProfile.DataDisks = disks
	return vm
}

func emptyDisk(gb int32) armcompute.Disk {
	return armcompute.Disk{Location: ptr("westeurope"), SKU: &armcompute.DiskSKU{Name: ptr(armcompute.DiskStorageAccountTypesStandardSSDLRS)},
		Properties: &armcompute.DiskProperties{DiskSizeGB: &gb, CreationData: &armcompute.CreationData{CreateOption: ptr(armcompute.DiskCreateOptionEmpty)}}}
}

// makeDisk makes an empty disk in group "other" and returns its id.
func (b *bench) makeDisk(name string) string {
	b.Helper()
	p, err := b.f.NewDisksClient().BeginCreateOrUpdate(b.ctx, "other", name, emptyDisk(8), nil)
	return val(await(b, p, err).ID)
}

func (b *bench) putVM(name string, vm armcompute.VirtualMachine) armcompute.VirtualMachine {
	b.Helper()
	p, err := b.f.NewVirtualMachinesClient().BeginCreateOrUpdate(b.ctx, b.group, name, vm, nil)
	return await(b, p, err).VirtualMachine
}

func (b *bench) deleteVM(name string) {
	b.Helper()
	p, err := b.f.NewVirtualMachinesClient().BeginDelete(b.ctx, b.group, name, nil)
	await(b, p, err)
}

// wantDisk checks the owner of a disk in group "other": "" is none.
func (b *bench) wantDisk(name, vm string, state armcompute.DiskState) {
	b.Helper()
	d, err := b.f.NewDisksClient().Get(b.ctx, "other", name, nil)
	if err != nil {
		b.Fatal(err)
	}
	by := val(d.ManagedBy)
	if by[strings.LastIndexByte(by, '/')+1:] != vm || val(d.Properties.DiskState) != state {
		b.Errorf("disk %s is %s, managed by %q, want %s by %q", name, val(d.Properties.DiskState), by, state, vm)
	}
}

func attachAs(lun int32, id string, option armcompute.DiskDeleteOptionTypes) *armcompute.DataDisk {
	d := attach(id, lun)
	d.DeleteOption = &option
	return d
}

func TestMachineIsMadeWithExistingDisks(t *testing.T) {
	withServerNIC(t, func(b *bench, sub *modelSubstrate, vms *armcompute.VirtualMachinesClient) {
		state, scratch := b.makeDisk("state"), b.makeDisk("scratch")
		body := func(nic string) armcompute.VirtualMachine {
			return b.plainVM(nic, attachAs(0, state, armcompute.DiskDeleteOptionTypesDetach), attachAs(3, scratch, armcompute.DiskDeleteOptionTypesDelete))
		}
		got := b.putVM("server", body("nic"))
		if list := got.Properties.StorageProfile.DataDisks; len(list) != 2 || diskIDOf(list[0]) != state || val(list[1].DeleteOption) != armcompute.DiskDeleteOptionTypesDelete {
			t.Errorf("data disks %v", list)
		}
		if c := sub.computer(t, "server"); len(c.DataDisks) != 2 || !strings.HasSuffix(string(c.DataDisks[0]), "/disks/state") {
			t.Errorf("at the boot: %v", c.DataDisks)
		}
		b.wantDisk("state", "server", armcompute.DiskStateAttached)
		b.putVM("server", body("nic")) // the same again
		b.wantDisk("state", "server", armcompute.DiskStateAttached)
		p, err := vms.BeginCreateOrUpdate(b.ctx, b.group, "second", body("nic2"), nil)
		awaitRefusal(b, "ConflictingUserInput", p, err)
		p, err = vms.BeginCreateOrUpdate(b.ctx, b.group, "second", b.plainVM("nic2", attach(state[:len(state)-5]+"none", 0)), nil)
		awaitRefusal(b, "ResourceNotFound", p, err)
		made, err := b.f.NewDisksClient().BeginCreateOrUpdate(b.ctx, "other", "late", emptyDisk(8), nil)
		if err != nil {
			t.Fatal(err)
		}
		p, err = vms.BeginCreateOrUpdate(b.ctx, b.group, "second", b.plainVM("nic2", attach(otherGroup+"/providers/Microsoft.Compute/disks/late", 0)), nil)
		awaitRefusal(b, "OperationNotAllowed", p, err)
		await(b, made, nil)
		if _, err := vms.Get(b.ctx, b.group, "second", nil); err == nil {
			t.Error("a refused machine was stored")
		}
		d, err := b.f.NewDisksClient().BeginDelete(b.ctx, "other", "state", nil)
		awaitRefusal(b, "OperationNotAllowed", d, err)

		b.deleteVM("server")
		b.wantDisk("state", "", armcompute.DiskStateUnattached)
		if _, err := b.f.NewDisksClient().Get(b.ctx, "other", "scratch", nil); err == nil {
			t.Error("disk scratch is left")
		}
		b.putVM("second", b.plainVM("nic", attachAs(0, state, armcompute.DiskDeleteOptionTypesDetach)))
		if c := sub.computer(t, "server"); !strings.HasSuffix(string(c.DataDisks[0]), "/disks/state") {
			t.Errorf("at the next machine's boot: %v", c.DataDisks)
		}
	})
}

func TestUserDataOfALiveMachine(t *testing.T) {
	withServerNIC(t, func(b *bench, sub *modelSubstrate, vms *armcompute.VirtualMachinesClient) {
		vm := b.plainVM("nic")
		vm.Properties.UserData = ptr("QQ==")
		b.putVM("server", vm)
		c := sub.computer(t, "server")
		ask := func(path string) string {
			r := httptest.NewRequest(http.MethodGet, "http://169.254.169.254/metadata/instance/compute"+path, nil)
			r.Header.Set("Metadata", "true")
			w := httptest.NewRecorder()
			c.IMDS.ServeHTTP(w, r)
			body, _ := io.ReadAll(w.Result().Body) // from memory
			return string(body)
		}
		patch := func(data string) error {
			p, err := vms.BeginUpdate(b.ctx, b.group, "server", armcompute.VirtualMachineUpdate{Properties: &armcompute.VirtualMachineProperties{UserData: &data}}, nil)
			_, err = tryDone(p, err)
			return err
		}
		want := func(data string) {
			t.Helper()
			time.Sleep(time.Minute) // the metadata service's delay
			var compute struct {
				UserData string `json:"userData"`
			}
			if err := json.Unmarshal([]byte(ask("?api-version=2021-02-01")), &compute); err != nil || compute.UserData != data {
				t.Errorf("metadata: %q (%v), want %q", compute.UserData, err, data)
			}
			if got := ask("/userData?api-version=2021-02-01&format=text"); got != data {
				t.Errorf("metadata as text: %q, want %q", got, data)
			}
			plain, err := vms.Get(b.ctx, b.group, "server", nil)
			if err != nil || plain.Properties.UserData != nil {
				t.Errorf("GET: %v (%v)", plain.Properties.UserData, err)
			}
			whole, err := vms.Get(b.ctx, b.group, "server", &armcompute.VirtualMachinesClientGetOptions{Expand: ptr(armcompute.InstanceViewTypesUserData)})
			if err != nil || val(whole.Properties.UserData) != data {
				t.Errorf("GET with $expand: %q (%v)", val(whole.Properties.UserData), err)
			}
		}
		want("QQ==")
		if err := patch("Qg=="); err != nil {
			t.Fatal(err)
		}
		want("Qg==")
		vm.Properties.UserData = ptr("Qw==")
		b.putVM("server", vm)
		want("Qw==")
		vm.Properties.UserData = nil
		b.putVM("server", vm) // which keeps it
		most := base64.StdEncoding.EncodeToString(make([]byte, 64<<10))
		wantRefusal(t, patch(most+"AAAA"), "InvalidParameter", "UserData must be in Base64")
		wantRefusal(t, patch("~"), "InvalidParameter", "UserData must be in Base64")
		want("Qw==")
		if err := patch(most); err != nil {
			t.Error(err)
		}
		vm.Properties.OSProfile.CustomData = ptr("QQ==")
		p, err := vms.BeginCreateOrUpdate(b.ctx, b.group, "server", vm, nil)
		awaitRefusal(b, "PropertyChangeNotAllowed", p, err)
		if n := len(sub.booted["server"]); n != 1 {
			t.Errorf("%d boots", n)
		}
	})
}

// A group's deletion releases the disks of other groups, and fails while machines of
// other groups hold its own: the rest of it is gone then.
func TestGroupsAreDeletedBesideAttachedDisks(t *testing.T) {
	withServerNIC(t, func(b *bench, sub *modelSubstrate, _ *armcompute.VirtualMachinesClient) {
		state, scratch := b.makeDisk("state"), b.makeDisk("scratch")
		b.makeDisk("free")
		b.putVM("server", b.plainVM("nic", attachAs(0, state, armcompute.DiskDeleteOptionTypesDetach), attachAs(1, scratch, armcompute.DiskDeleteOptionTypesDelete)))
		status := b.sendAbsolute("DELETE", otherGroup, "2021-04-01", "")
		time.Sleep(time.Hour)
		var failed object
		if err := json.NewDecoder(b.sendAbsolute("GET", strings.TrimPrefix(status.Header.Get("Location"), InProcess), "", "").Body).Decode(&failed); err != nil {
			t.Fatal(err)
		}
		if text(failed, "error", "code") != "ResourceGroupDeletionBlocked" || !strings.Contains(text(failed, "error", "message"), "disks/state") {
			t.Errorf("deletion of the disks' group: %v", failed)
		}
		b.wantDisk("state", "server", armcompute.DiskStateAttached)
		if _, err := b.f.NewDisksClient().Get(b.ctx, "other", "free", nil); err == nil {
			t.Error("disk free is left")
		}
		b.made("DELETE", "/subscriptions/"+DefaultSubscription+"/resourceGroups/"+DefaultResourceGroup, "2021-04-01", "")
		b.wantDisk("state", "", armcompute.DiskStateUnattached)
		if _, err := b.f.NewDisksClient().Get(b.ctx, "other", "scratch", nil); err == nil || len(sub.volumesLike("scratch")) > 0 {
			t.Error("disk scratch is left")
		}
		b.made("DELETE", otherGroup, "2021-04-01", "")
		b.refused("ResourceGroupNotFound", "GET", otherGroup, "2021-04-01", "")
	})
}

func TestMachineChangesItsSize(t *testing.T) {
	withServerNIC(t, func(b *bench, sub *modelSubstrate, vms *armcompute.VirtualMachinesClient) {
		b.putVM("server", b.plainVM("nic"))
		resize := func(size string) error {
			p, err := vms.BeginUpdate(b.ctx, b.group, "server", armcompute.VirtualMachineUpdate{Properties: &armcompute.VirtualMachineProperties{
				HardwareProfile: &armcompute.HardwareProfile{VMSize: ptr(armcompute.VirtualMachineSizeTypes(size))}}}, nil)
			_, err = tryDone(p, err)
			return err
		}
		want := func(size, power string, boots int) {
			t.Helper()
			vm, err := vms.Get(b.ctx, b.group, "server", &armcompute.VirtualMachinesClientGetOptions{Expand: ptr(armcompute.InstanceViewTypesInstanceView)})
			if err != nil || string(val(vm.Properties.HardwareProfile.VMSize)) != size || machinePower(&vm.VirtualMachine) != power || val(vm.Properties.ProvisioningState) != "Succeeded" {
				t.Errorf("size %v, %s, %s (%v), want %s, %s", val(vm.Properties.HardwareProfile.VMSize), machinePower(&vm.VirtualMachine), val(vm.Properties.ProvisioningState), err, size, power)
			}
			if n := sub.booted["server"]; len(n) != boots || n[boots-1] != (boots == 1) {
				t.Errorf("boots %v, want %d", n, boots)
			}
		}
		if err := resize("Standard_D4s_v5"); err != nil {
			t.Fatal(err)
		}
		want("Standard_D4s_v5", "running", 2)
		if c := sub.computer(t, "server"); c.Size != "Standard_D4s_v5" {
			t.Errorf("the machine has %s", c.Size)
		}
		if err := resize("standard_d4s_v5"); err != nil { // the same
			t.Fatal(err)
		}
		want("Standard_D4s_v5", "running", 2)
		wantRefusal(t, resize("Standard_Nothing"), "InvalidParameter", "not valid")
		wantRefusal(t, resize("Standard_D4ds_v5"), "OperationNotAllowed", "resource disk")
		wantRefusal(t, resize("Standard_D4ps_v5"), "BadRequest", "Arm64")
		b.s.locked(func() { b.s.Quota = map[string]int{"standardDSv5Family": 7} })
		wantRefusal(t, resize("Standard_D8s_v5"), "OperationNotAllowed", "quota")
		b.s.locked(func() { b.s.Quota = nil })
		if err := b.s.AddFault(Fault{Name: "full", Effect: EffectError, Action: machineType + "/allocate"}); err != nil {
			t.Fatal(err)
		}
		wantRefusal(t, resize("Standard_D8s_v5"), "AllocationFailed", "capacity")
		if vm, err := vms.Get(b.ctx, b.group, "server", nil); err != nil || val(vm.Properties.HardwareProfile.VMSize) != "Standard_D4s_v5" {
			t.Errorf("without room: %v (%v)", val(vm.Properties.HardwareProfile.VMSize), err)
		}
		deallocate, err := vms.BeginDeallocate(b.ctx, b.group, "server", nil)
		await(b, deallocate, err)
		if err := resize("Standard_D8s_v5"); err != nil {
			t.Fatal(err)
		}
		want("Standard_D8s_v5", "deallocated", 2)
		b.s.RemoveFault("full")
		start, err := vms.BeginStart(b.ctx, b.group, "server", nil)
		await(b, start, err)
		want("Standard_D8s_v5", "running", 3)
		off, err := vms.BeginPowerOff(b.ctx, b.group, "server", nil)
		await(b, off, err)
		want("Standard_D8s_v5", "stopped", 3)
		start, err = vms.BeginStart(b.ctx, b.group, "server", nil)
		await(b, start, err)
		restart, err := vms.BeginRestart(b.ctx, b.group, "server", nil)
		await(b, restart, err)
		want("Standard_D8s_v5", "running", 5)
	})
}

func TestAttachedDisksGrowAndAreCopied(t *testing.T) {
	withServerNIC(t, func(b *bench, sub *modelSubstrate, vms *armcompute.VirtualMachinesClient) {
		grown := &growingSubstrate{modelSubstrate: sub}
		b.s.Substrate = grown
		state := b.makeDisk("state")
		b.putVM("server", b.plainVM("nic", attachAs(0, state, armcompute.DiskDeleteOptionTypesDetach)))
		disks, snapshots := b.f.NewDisksClient(), b.f.NewSnapshotsClient()
		update := func(u armcompute.DiskUpdate) error {
			p, err := disks.BeginUpdate(b.ctx, "other", "state", u, nil)
			_, err = tryDone(p, err)
			return err
		}
		size := func(gb int32) armcompute.DiskUpdate {
			return armcompute.DiskUpdate{Properties: &armcompute.DiskUpdateProperties{DiskSizeGB: &gb}}
		}
		tags := map[string]*string{"ortet.io_role": ptr("state")}
		if err := update(armcompute.DiskUpdate{Tags: tags}); err != nil {
			t.Error(err)
		}
		wantRefusal(t, update(size(16)), "OperationNotAllowed", "to be deallocated")
		off, err := vms.BeginPowerOff(b.ctx, b.group, "server", nil)
		await(b, off, err)
		wantRefusal(t, update(size(16)), "OperationNotAllowed", "to be deallocated")
		deallocate, err := vms.BeginDeallocate(b.ctx, b.group, "server", nil)
		await(b, deallocate, err)
		if err := update(size(16)); err != nil {
			t.Error(err)
		}
		wantRefusal(t, update(size(8)), "BadRequest", "cannot be reduced")
		vm, err := vms.Get(b.ctx, b.group, "server", nil)
		if err != nil || val(vm.Properties.StorageProfile.DataDisks[0].DiskSizeGB) != 16 || len(grown.sizes) != 1 || grown.sizes[0] != 16 {
			t.Errorf("the machine's disk has %d GB (%v), the volume grew to %v", val(vm.Properties.StorageProfile.DataDisks[0].DiskSizeGB), err, grown.sizes)
		}
		start, err := vms.BeginStart(b.ctx, b.group, "server", nil)
		await(b, start, err)

		snap, err := snapshots.BeginCreateOrUpdate(b.ctx, "other", "backup", armcompute.Snapshot{Location: ptr("westeurope"), Tags: map[string]*string{"a": ptr("1")},
			Properties: &armcompute.SnapshotProperties{Incremental: ptr(true), CreationData: &armcompute.CreationData{CreateOption: ptr(armcompute.DiskCreateOptionCopy), SourceResourceID: &state}}}, nil)
		backup := await(b, snap, err)
		if !val(backup.Properties.Incremental) || val(backup.Properties.DiskSizeGB) != 16 || val(backup.Tags["a"]) != "1" {
			t.Errorf("snapshot %+v", backup.Properties)
		}
		tag, err := snapshots.BeginUpdate(b.ctx, "other", "backup", armcompute.SnapshotUpdate{Tags: map[string]*string{"b": ptr("2")}}, nil)
		if tagged := await(b, tag, err); val(tagged.Tags["b"]) != "2" {
			t.Errorf("tags %v", tagged.Tags)
		}
		body := emptyDisk(16)
		body.Properties.CreationData = &armcompute.CreationData{CreateOption: ptr(armcompute.DiskCreateOptionCopy), SourceResourceID: backup.ID}
		restored, err := disks.BeginCreateOrUpdate(b.ctx, "other", "restored", body, nil)
		made := await(b, restored, err)
		if got := sub.volumes[Volume(strings.ToLower(val(made.ID)))]; got.Volume != Volume(strings.ToLower(val(backup.ID))) {
			t.Errorf("the restored disk is made of %v", got)
		}
		var names []string
		for pages := disks.NewListByResourceGroupPager("other", nil); pages.More(); {
			page, err := pages.NextPage(b.ctx)
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range page.Value {
				names = append(names, val(d.Name)+" "+val(d.Tags["ortet.io_role"]))
			}
		}
		wantList(t, "disks", names, "state state", "restored ")
		names = nil
		for pages := snapshots.NewListByResourceGroupPager("other", nil); pages.More(); {
			page, err := pages.NextPage(b.ctx)
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range page.Value {
				names = append(names, val(d.Name))
			}
		}
		wantList(t, "snapshots", names, "backup")
	})
}

// growingSubstrate notes how large volumes grew.
type growingSubstrate struct {
	*modelSubstrate
	sizes []int32
}

func (g *growingSubstrate) GrowVolume(_ context.Context, _ Volume, sizeGB int32) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.sizes = append(g.sizes, sizeGB)
	return nil
}
