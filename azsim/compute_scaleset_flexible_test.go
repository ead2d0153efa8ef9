package azsim

import (
	"context"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"
)

// flexPool is a Flexible scale set over three zones.
func flexPool(n int64) armcompute.VirtualMachineScaleSet {
	p := pool(n)
	p.Zones = []*string{ptr("1"), ptr("2"), ptr("3")}
	p.Properties.OrchestrationMode = ptr(armcompute.OrchestrationModeFlexible)
	p.Properties.PlatformFaultDomainCount = ptr(int32(1))
	p.Properties.UpgradePolicy, p.Properties.Overprovision, p.Properties.SinglePlacementGroup = nil, nil, nil
	p.Properties.VirtualMachineProfile.NetworkProfile = &armcompute.VirtualMachineScaleSetNetworkProfile{
		NetworkAPIVersion: ptr(armcompute.NetworkAPIVersionTwoThousandTwenty1101),
		NetworkInterfaceConfigurations: []*armcompute.VirtualMachineScaleSetNetworkConfiguration{{
			Name: ptr("nic"), Properties: &armcompute.VirtualMachineScaleSetNetworkConfigurationProperties{Primary: ptr(true), IPConfigurations: []*armcompute.VirtualMachineScaleSetIPConfiguration{{Name: ptr("ip")}}},
		}},
	}
	return p
}

// machinesClient is the client of virtual machines.
func machinesClient(t *testing.T, s *Server) *armcompute.VirtualMachinesClient {
	t.Helper()
	c, err := armcompute.NewVirtualMachinesClient(DefaultSubscription, s.Credential(""), s.ClientOptions())
	if err != nil {
		t.Fatal(err)
	}
	return c
}

const flexID = "/subscriptions/" + DefaultSubscription + "/resourceGroups/" + labGroup + "/providers/Microsoft.Compute/virtualMachineScaleSets/f"

// members lists the machines of the set "f" with their views.
func members(t *testing.T, c *armcompute.VirtualMachinesClient) []*armcompute.VirtualMachine {
	t.Helper()
	var out []*armcompute.VirtualMachine
	for p := c.NewListPager(labGroup, &armcompute.VirtualMachinesClientListOptions{Filter: ptr("'virtualMachineScaleSet/id' eq '" + flexID + "'"), Expand: ptr(armcompute.ExpandTypeForListVMsInstanceView)}); p.More(); {
		page, err := p.NextPage(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, page.Value...)
	}
	return out
}

func machinePower(vm *armcompute.VirtualMachine) string {
	for _, st := range vm.Properties.InstanceView.Statuses {
		if p, ok := strings.CutPrefix(val(st.Code), "PowerState/"); ok {
			return p
		}
	}
	return ""
}

func TestFlexibleMembersAreVirtualMachines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Server{}
		defer s.Close()
		l := newLab(t, s)
		c := machinesClient(t, s)
		ctx := context.Background()
		set := l.create("f", flexPool(3))
		l.create("u", pool(1))
		if val(set.Properties.OrchestrationMode) != armcompute.OrchestrationModeFlexible || val(set.Properties.Overprovision) || val(set.Properties.SinglePlacementGroup) {
			t.Errorf("the set is %+v", set.Properties)
		}

		list := members(t, c)
		if len(list) != 3 {
			t.Fatalf("%d machines, want 3", len(list))
		}
		var zones []string
		names, hosts, vmIDs := map[string]bool{}, map[string]bool{}, map[string]bool{}
		for _, vm := range list {
			p := vm.Properties
			names[val(vm.Name)], hosts[val(p.OSProfile.ComputerName)], vmIDs[val(p.VMID)] = true, true, true
			zones = append(zones, val(vm.Zones[0]))
			if !regexp.MustCompile(`^f_[0-9a-f]{8}$`).MatchString(val(vm.Name)) || !regexp.MustCompile(`^[a-z0-9]+[0-9A-Z]{6}$`).MatchString(val(p.OSProfile.ComputerName)) {
				t.Errorf("named %s, host %s", val(vm.Name), val(p.OSProfile.ComputerName))
			}
			if !strings.HasSuffix(val(vm.ID), "/providers/Microsoft.Compute/virtualMachines/"+val(vm.Name)) || val(vm.Type) != "Microsoft.Compute/virtualMachines" ||
				val(p.VirtualMachineScaleSet.ID) != flexID || val(p.ProvisioningState) != "Succeeded" || machinePower(vm) != powerRunning {
				t.Errorf("%s of %s is %s, %s", val(vm.ID), val(p.VirtualMachineScaleSet.ID), val(p.ProvisioningState), machinePower(vm))
			}
			if nic := val(p.NetworkProfile.NetworkInterfaces[0].ID); !strings.Contains(nic, "/providers/Microsoft.Network/networkInterfaces/nic-") {
				t.Errorf("network interface %s", nic)
			}
			if !strings.HasPrefix(val(p.StorageProfile.OSDisk.Name), val(vm.Name)+"_OsDisk_1_") {
				t.Errorf("OS disk %s", val(p.StorageProfile.OSDisk.Name))
			}
			s.View(func(v *View) {
				if d, ok := v.Get(val(p.StorageProfile.OSDisk.ManagedDisk.ID)).(*armcompute.Disk); !ok || val(d.ManagedBy) != val(vm.ID) {
					t.Errorf("OS disk %s of %s", val(p.StorageProfile.OSDisk.ManagedDisk.ID), val(vm.ID))
				}
			})
		}
		slices.Sort(zones)
		wantList(t, "zones", zones, "1", "2", "3")
		if len(names) != 3 || len(hosts) != 3 || len(vmIDs) != 3 {
			t.Errorf("not each of its own: %v %v %v", names, hosts, vmIDs)
		}

		// One of them as a virtual machine is asked for.
		name := val(list[0].Name)
		one, err := c.Get(ctx, labGroup, name, &armcompute.VirtualMachinesClientGetOptions{Expand: ptr(armcompute.InstanceViewTypesInstanceView)})
		if err != nil || val(one.Properties.InstanceView.VMAgent.Statuses[0].DisplayStatus) != "Ready" {
			t.Errorf("%+v, %v", one, err)
		}
		if bare, err := c.Get(ctx, labGroup, name, nil); err != nil || bare.Properties.InstanceView != nil {
			t.Errorf("an instance view that nobody asked for: %v", err)
		}
		if v, err := c.InstanceView(ctx, labGroup, name, nil); err != nil || val(v.ComputerName) != val(one.Properties.OSProfile.ComputerName) {
			t.Errorf("%+v, %v", v, err)
		}
		size, err := c.BeginUpdate(ctx, labGroup, name, armcompute.VirtualMachineUpdate{Properties: &armcompute.VirtualMachineProperties{
			HardwareProfile: &armcompute.HardwareProfile{VMSize: ptr(armcompute.VirtualMachineSizeTypes("Standard_D4s_v5"))}}}, nil)
		done(t, size, err)
		var sizes []string
		for _, vm := range members(t, c) {
			sizes = append(sizes, string(val(vm.Properties.HardwareProfile.VMSize)))
		}
		wantList(t, "sizes", append(sizes, val(l.set("f").SKU.Name)), "Standard_D4s_v5", "Standard_D2s_v5", "Standard_D2s_v5", "Standard_D2s_v5")
		off, err := c.BeginDeallocate(ctx, labGroup, name, nil)
		done(t, off, err)
		if got := machinePower(members(t, c)[0]); got != powerDeallocated {
			t.Errorf("power %s", got)
		}
		on, err := c.BeginStart(ctx, labGroup, name, nil)
		done(t, on, err)
		again, err := c.BeginRestart(ctx, labGroup, name, nil)
		done(t, again, err)
		down, err := c.BeginPowerOff(ctx, labGroup, name, nil)
		done(t, down, err)
		if got := machinePower(members(t, c)[0]); got != powerStopped {
			t.Errorf("power %s", got)
		}

		// Out, in, and one by name.
		if err := l.scale("f", 4); err != nil {
			t.Fatal(err)
		}
		if n := len(members(t, c)); n != 4 {
			t.Errorf("%d after a scale-out to 4", n)
		}
		del, err := c.BeginDelete(ctx, labGroup, name, nil)
		done(t, del, err)
		if n := val(l.set("f").SKU.Capacity); n != 3 {
			t.Errorf("capacity %d after one of 4 was deleted", n)
		}
		if _, err := c.Get(ctx, labGroup, name, nil); code(err) != "ResourceNotFound" {
			t.Errorf("deleted: %v", err)
		}
		batch, err := l.sets.BeginDeleteInstances(ctx, labGroup, "f", armcompute.VirtualMachineScaleSetVMInstanceRequiredIDs{InstanceIDs: []*string{members(t, c)[0].Name}}, nil)
		done(t, batch, err)
		if err := l.scale("f", 1); err != nil {
			t.Fatal(err)
		}
		if n := len(members(t, c)); n != 1 || len(l.list("u", nil)) != 1 {
			t.Errorf("%d members after a scale-in to 1, %d of the other set", n, len(l.list("u", nil)))
		}
		gone, err := l.sets.BeginDelete(ctx, labGroup, "f", nil)
		done(t, gone, err)
		if n := len(members(t, c)); n != 0 {
			t.Errorf("%d members of no set", n)
		}
	})
}

// What Azure refuses for Flexible sets, in its words.
func TestFlexibleSetRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Server{}
		defer s.Close()
		l := newLab(t, s)
		ctx := context.Background()
		s.Instant(true)
		l.create("f", flexPool(2))
		s.Instant(false)

		bare := l.list("f", nil)
		if len(bare) != 2 || val(bare[0].InstanceID) != val(bare[0].Name) || bare[0].Properties != nil || bare[0].Tags != nil ||
			len(bare[0].Zones) != 1 || bare[0].Zones[0] != nil {
			t.Errorf("the list below the set: %+v", bare)
		}
		_, err := l.vms.NewListPager(labGroup, "f", &armcompute.VirtualMachineScaleSetVMsClientListOptions{Expand: ptr("instanceView")}).NextPage(ctx)
		wantRefusal(t, err, "BadRequest", "Operation 'VirtualMachineScaleSets.virtualMachines.GET' is not allowed on Virtual Machine Scale Set 'f'")
		_, err = l.vms.GetInstanceView(ctx, labGroup, "f", val(bare[0].Name), nil)
		wantRefusal(t, err, "InvalidParameter", "instanceId must be a number")
		_, err = l.sets.GetInstanceView(ctx, labGroup, "f", nil)
		wantRefusal(t, err, "BadRequest", "VirtualMachineScaleSets.instanceView.GET")
		_, err = l.sets.BeginPowerOff(ctx, labGroup, "f", nil)
		wantRefusal(t, err, "BadRequest", "VirtualMachineScaleSets.powerOff.POST")

		body := pool(2)
		body.Properties.OrchestrationMode = ptr(armcompute.OrchestrationModeUniform)
		_, err = l.sets.BeginCreateOrUpdate(ctx, labGroup, "f", body, nil)
		wantRefusal(t, err, "PropertyChangeNotAllowed", "orchestrationMode")
		for what, change := range map[string]func(*armcompute.VirtualMachineScaleSet){
			"overprovision":            func(b *armcompute.VirtualMachineScaleSet) { b.Properties.Overprovision = ptr(true) },
			"platformFaultDomainCount": func(b *armcompute.VirtualMachineScaleSet) { b.Properties.PlatformFaultDomainCount = nil },
			"scaleInPolicy": func(b *armcompute.VirtualMachineScaleSet) {
				oldest := armcompute.VirtualMachineScaleSetScaleInRulesOldestVM
				b.Properties.ScaleInPolicy = &armcompute.ScaleInPolicy{Rules: []*armcompute.VirtualMachineScaleSetScaleInRules{&oldest}}
			},
			"networkApiVersion": func(b *armcompute.VirtualMachineScaleSet) {
				b.Properties.VirtualMachineProfile.NetworkProfile.NetworkAPIVersion = nil
			},
		} {
			wrong := flexPool(1)
			change(&wrong)
			_, err := l.sets.BeginCreateOrUpdate(ctx, labGroup, "g", wrong, nil)
			wantRefusal(t, err, "InvalidParameter", what)
		}

		c := machinesClient(t, s)
		_, err = c.NewListPager(labGroup, &armcompute.VirtualMachinesClientListOptions{Expand: ptr(armcompute.ExpandTypeForListVMsInstanceView)}).NextPage(ctx)
		wantRefusal(t, err, "InvalidParameter", "$filter")
		page, err := c.NewListAllPager(&armcompute.VirtualMachinesClientListAllOptions{StatusOnly: ptr("true")}).NextPage(ctx)
		if err != nil || len(page.Value) != 2 || machinePower(page.Value[0]) != powerRunning || page.Value[0].Properties.StorageProfile != nil {
			t.Errorf("statuses only: %+v, %v", page.Value, err)
		}
		_, err = c.BeginCreateOrUpdate(ctx, labGroup, "mine", armcompute.VirtualMachine{Location: ptr("westeurope")}, nil)
		wantRefusal(t, err, "InvalidParameter", "networkInterfaces")
		time.Sleep(time.Hour)
	})
}

func TestFlexibleMembersBoot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sub := newModelSubstrate()
		s := &Server{Substrate: sub}
		defer s.Close()
		l := newLab(t, s)
		l.create("f", flexPool(1))
		vm := members(t, machinesClient(t, s))[0]
		sub.mu.Lock()
		defer sub.mu.Unlock()
		got, ok := sub.running[strings.ToLower(val(vm.ID))]
		if !ok || got.ResourceID != val(vm.ID) || got.Name != val(vm.Name) || got.HostName != val(vm.Properties.OSProfile.ComputerName) || got.ScaleSet != "f" || got.VMID != val(vm.Properties.VMID) {
			t.Errorf("%v: %+v", ok, got)
		}
	})
}

// newFlexLab returns a lab with the Flexible set "f", and the client of its members.
func newFlexLab(t *testing.T, capacity int64) (*lab, *armcompute.VirtualMachinesClient) {
	t.Helper()
	s := &Server{}
	t.Cleanup(s.Close)
	l := newLab(t, s)
	l.create("f", flexPool(capacity))
	return l, machinesClient(t, s)
}

// modelTimes returns when the model of the set "f" was made, and those of its members'
// models by their tags.
func modelTimes(t *testing.T, l *lab, c *armcompute.VirtualMachinesClient) (set string, of []string) {
	t.Helper()
	for _, vm := range members(t, c) {
		of = append(of, val(vm.Tags["VirtualMachineProfileTimeCreated"]))
	}
	return l.set("f").Properties.VirtualMachineProfile.TimeCreated.UTC().Format("1/2/2006 3:04:05 PM +00:00"), of
}

func TestFlexibleModelTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, c := newFlexLab(t, 1)
		ctx := context.Background()
		first, of := modelTimes(t, l, c)
		wantList(t, "members' model times", of, first)

		time.Sleep(time.Hour)
		up, err := l.sets.BeginUpdate(ctx, labGroup, "f", armcompute.VirtualMachineScaleSetUpdate{Tags: map[string]*string{"a": ptr("b")}}, nil)
		done(t, up, err)
		if err := l.scale("f", 2); err != nil {
			t.Fatal(err)
		}
		now, of := modelTimes(t, l, c)
		wantList(t, "the model's times after tags and a scale-out", append(of, now), first, first, first)

		time.Sleep(time.Hour)
		larger := flexPool(2)
		larger.SKU.Name = ptr("Standard_D4s_v5")
		put, err := l.sets.BeginCreateOrUpdate(ctx, labGroup, "f", larger, nil)
		done(t, put, err)
		second, of := modelTimes(t, l, c)
		wantList(t, "members' model times after another model", of, first, first)
		if second == first {
			t.Errorf("the model is still of %s", second)
		}
		if err := l.scale("f", 3); err != nil {
			t.Fatal(err)
		}
		sizes := map[string]int{}
		for _, vm := range members(t, c) {
			sizes[string(val(vm.Properties.HardwareProfile.VMSize))]++
		}
		if sizes["Standard_D2s_v5"] != 2 || sizes["Standard_D4s_v5"] != 1 {
			t.Errorf("sizes %v", sizes)
		}
		up2, err := l.sets.BeginUpdateInstances(ctx, labGroup, "f",
			armcompute.VirtualMachineScaleSetVMInstanceRequiredIDs{InstanceIDs: []*string{ptr("*")}}, nil)
		done(t, up2, err)
		now, of = modelTimes(t, l, c)
		wantList(t, "the model's times after a manual upgrade", append(of, now), second, second, second, second)
	})
}

// What the Azure CLI's recordings have a Flexible set do with its members: deallocate, by
// names and without; manualupgrade, whose way is above.
func TestFlexibleSetDeallocates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, c := newFlexLab(t, 2)
		ctx := context.Background()
		list := members(t, c)
		one, err := l.sets.BeginDeallocate(ctx, labGroup, "f", &armcompute.VirtualMachineScaleSetsClientBeginDeallocateOptions{
			VMInstanceIDs: &armcompute.VirtualMachineScaleSetVMInstanceIDs{InstanceIDs: []*string{list[1].Name}}})
		done(t, one, err)
		wantList(t, "power", []string{machinePower(members(t, c)[0]), machinePower(members(t, c)[1])}, powerRunning, powerDeallocated)
		all, err := l.sets.BeginDeallocate(ctx, labGroup, "f", nil)
		done(t, all, err)
		wantList(t, "power", []string{machinePower(members(t, c)[0]), machinePower(members(t, c)[1])}, powerDeallocated, powerDeallocated)
	})
}

// A member's protection lies below the set, from API version 2023-09-01 on.
func TestFlexibleMemberIsProtectedBelowTheSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Server{}
		defer s.Close()
		l := newLab(t, s)
		ctx := context.Background()
		l.create("f", flexPool(2))
		name := val(l.list("f", nil)[0].Name)
		protect := armcompute.VirtualMachineScaleSetVM{Properties: &armcompute.VirtualMachineScaleSetVMProperties{
			ProtectionPolicy: &armcompute.VirtualMachineScaleSetVMProtectionPolicy{ProtectFromScaleIn: ptr(true)}}}
		p, err := l.vms.BeginUpdate(ctx, labGroup, "f", name, protect, nil)
		done(t, p, err)
		if vm, err := l.vms.Get(ctx, labGroup, "f", name, nil); err != nil || !val(vm.Properties.ProtectionPolicy.ProtectFromScaleIn) {
			t.Errorf("%+v, %v", vm.Properties, err)
		}
		if err := l.scale("f", 1); err != nil {
			t.Fatal(err)
		}
		if left := l.list("f", nil); len(left) != 1 || val(left[0].Name) != name {
			t.Errorf("a scale-in left %v", left)
		}
		if err := s.AddFault(Fault{Action: instanceType + "/write", Effect: EffectError, Status: 400, Code: "BadRequest"}); err != nil {
			t.Fatal(err)
		}
		_, err = l.vms.BeginUpdate(ctx, labGroup, "f", name, protect, nil)
		wantRefusal(t, err, "BadRequest", "")
	})
}

// A set without a profile has what joins it, and nothing that counts or makes members.
func TestFlexibleSetWithoutProfile(t *testing.T) {
	withServerNIC(t, func(b *bench, _ *modelSubstrate, c *armcompute.VirtualMachinesClient) {
		ctx, sets := b.ctx, b.f.NewVirtualMachineScaleSetsClient()
		flexible := &armcompute.VirtualMachineScaleSetProperties{OrchestrationMode: ptr(armcompute.OrchestrationModeFlexible), PlatformFaultDomainCount: ptr(int32(3))}
		made, err := sets.BeginCreateOrUpdate(ctx, b.group, "f", armcompute.VirtualMachineScaleSet{Location: ptr("westeurope"), Properties: flexible}, nil)
		set := await(b, made, err)
		id := val(set.ID)
		if set.SKU != nil || set.Properties.VirtualMachineProfile != nil || set.Properties.Overprovision != nil {
			t.Errorf("%+v", set)
		}
		members := func() []*armcompute.VirtualMachine {
			of := &armcompute.VirtualMachinesClientListOptions{Filter: ptr("'virtualMachineScaleSet/id' eq '" + id + "'")}
			page, err := c.NewListPager(b.group, of).NextPage(ctx)
			if err != nil {
				t.Fatal(err)
			}
			return page.Value
		}
		vm := b.plainVM("nic")
		vm.Properties.StorageProfile.OSDisk.DeleteOption = nil
		vm.Properties.VirtualMachineScaleSet = &armcompute.SubResource{ID: &id}
		b.putVM("joined", vm)
		list := members()
		if len(list) != 1 || val(list[0].Name) != "joined" || val(list[0].Properties.VirtualMachineScaleSet.ID) != id ||
			val(list[0].Properties.StorageProfile.OSDisk.DeleteOption) != armcompute.DiskDeleteOptionTypesDetach {
			t.Fatalf("%+v", list)
		}
		two := &armcompute.SKU{Name: ptr("Standard_D2s_v5"), Capacity: ptr(int64(2))}
		_, err = sets.BeginUpdate(ctx, b.group, "f", armcompute.VirtualMachineScaleSetUpdate{SKU: two}, nil)
		wantRefusal(t, err, "InvalidParameter", "virtualMachineProfile")
		p, err := sets.BeginUpdate(ctx, b.group, "f", armcompute.VirtualMachineScaleSetUpdate{Tags: map[string]*string{"a": ptr("b")}}, nil)
		if now := await(b, p, err); len(members()) != 1 || now.SKU != nil {
			t.Errorf("%d members after a change of tags, sku %v", len(members()), now.SKU)
		}
		vm.Properties.VirtualMachineScaleSet = &armcompute.SubResource{ID: ptr(id + "2")}
		_, err = c.BeginCreateOrUpdate(ctx, b.group, "joined", vm, nil)
		wantRefusal(t, err, "PropertyChangeNotAllowed", "virtualMachineScaleSet")
		b.deleteVM("joined")
		if n := len(members()); n != 0 {
			t.Errorf("%d members", n)
		}
	})
}
