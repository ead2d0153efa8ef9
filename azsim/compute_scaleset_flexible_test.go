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
		if len(bare) != 2 || val(bare[0].InstanceID) != val(bare[0].Name) || bare[0].Properties != nil || bare[0].Tags != nil {
			t.Errorf("the list below the set: %+v", bare)
		}
		_, err := l.vms.NewListPager(labGroup, "f", &armcompute.VirtualMachineScaleSetVMsClientListOptions{Expand: ptr("instanceView")}).NextPage(ctx)
		wantRefusal(t, err, "BadRequest", "Operation 'VirtualMachineScaleSets.virtualMachines.GET' is not allowed on Virtual Machine Scale Set 'f'")
		_, err = l.vms.GetInstanceView(ctx, labGroup, "f", val(bare[0].Name), nil)
		wantRefusal(t, err, "InvalidParameter", "instanceId must be a number")
		_, err = l.sets.GetInstanceView(ctx, labGroup, "f", nil)
		wantRefusal(t, err, "BadRequest", "VirtualMachineScaleSets.instanceView.GET")
		_, err = l.sets.BeginDeallocate(ctx, labGroup, "f", nil)
		wantRefusal(t, err, "BadRequest", "VirtualMachineScaleSets.deallocate.POST")

		body := pool(2)
		body.Properties.OrchestrationMode = ptr(armcompute.OrchestrationModeUniform)
		_, err = l.sets.BeginCreateOrUpdate(ctx, labGroup, "f", body, nil)
		wantRefusal(t, err, "PropertyChangeNotAllowed", "orchestrationMode")
		for what, change := range map[string]func(*armcompute.VirtualMachineScaleSet){
			"singlePlacementGroup": func(b *armcompute.VirtualMachineScaleSet) { b.Properties.SinglePlacementGroup = ptr(true) },
			"overprovision":        func(b *armcompute.VirtualMachineScaleSet) { b.Properties.Overprovision = ptr(true) },
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
