package azsim

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"
)

func extension(name string, after ...string) *armcompute.VirtualMachineScaleSetExtension {
	x := &armcompute.VirtualMachineScaleSetExtension{Name: ptr(name), Properties: &armcompute.VirtualMachineScaleSetExtensionProperties{
		Publisher: ptr("Microsoft.Azure.Extensions"), Type: ptr("CustomScript"), TypeHandlerVersion: ptr("2.1"), AutoUpgradeMinorVersion: ptr(true),
		Settings: map[string]any{"a": 1}, ProtectedSettings: map[string]any{"commandToExecute": "secret"},
	}}
	for _, a := range after {
		x.Properties.ProvisionAfterExtensions = append(x.Properties.ProvisionAfterExtensions, ptr(a))
	}
	return x
}

func withExtensions(list ...*armcompute.VirtualMachineScaleSetExtension) func(*armcompute.VirtualMachineScaleSet) {
	return func(b *armcompute.VirtualMachineScaleSet) {
		b.Properties.VirtualMachineProfile.ExtensionProfile = &armcompute.VirtualMachineScaleSetExtensionProfile{Extensions: list}
	}
}

// extNames lists the extensions of the set as its nested resources show them.
func (l *lab) extNames() []string {
	l.t.Helper()
	var out []string
	for p := l.exts.NewListPager(labGroup, "pool1", nil); p.More(); {
		page, err := p.NextPage(context.Background())
		if err != nil {
			l.t.Fatal(err)
		}
		for _, x := range page.Value {
			out = append(out, val(x.Name))
		}
	}
	return out
}

func resourceNames(vm *armcompute.VirtualMachineScaleSetVM) []string {
	var out []string
	for _, x := range vm.Resources {
		out = append(out, val(x.Name)+" "+val(x.Properties.ProvisioningState))
	}
	return out
}

func TestExtensions(t *testing.T) {
	withPool(t, 1, withExtensions(extension("run", "cse"), extension("cse")), func(t *testing.T, l *lab) {
		ctx := context.Background()
		wantList(t, "in the order of their need", resourceNames(l.vm("pool1", "0")), "cse Succeeded", "run Succeeded")
		wantList(t, "of the set", l.extNames(), "run", "cse")
		got, err := l.exts.Get(ctx, labGroup, "pool1", "CSE", nil)
		if err != nil || got.Properties.ProtectedSettings != nil || got.Properties.Settings == nil {
			t.Errorf("%+v, %v", got.Properties, err)
		}
		for _, x := range l.set("pool1").Properties.VirtualMachineProfile.ExtensionProfile.Extensions {
			if x.Properties.ProtectedSettings != nil {
				t.Errorf("protected settings of %s were read back", val(x.Name))
			}
		}
		view, err := l.vmExt.Get(ctx, labGroup, "pool1", "0", "cse", &armcompute.VirtualMachineScaleSetVMExtensionsClientGetOptions{Expand: ptr("instanceView")})
		if err != nil || view.Properties.InstanceView == nil || val(view.Properties.InstanceView.Statuses[0].Code) != "ProvisioningState/succeeded" || view.Properties.ProtectedSettings != nil {
			t.Errorf("%+v, %v", view.Properties, err)
		}

		del, err := l.exts.BeginDelete(ctx, labGroup, "pool1", "cse", nil)
		_, err = tryDone(del, err)
		wantRefusal(t, err, "BadRequest", "extension 'run' specifies 'cse' in its provisionAfterExtensions property, but the extension 'cse' will no longer exist")
		for _, name := range []string{"run", "cse"} {
			del, err := l.exts.BeginDelete(ctx, labGroup, "pool1", name, nil)
			done(t, del, err)
		}
		wantList(t, "all deleted", l.extNames())
		vm := l.vm("pool1", "0")
		wantList(t, "with Manual the instance keeps them", resourceNames(vm), "cse Succeeded", "run Succeeded")
		if val(vm.Properties.LatestModelApplied) {
			t.Error("latestModelApplied after the model changed")
		}
		if err := l.scale("pool1", 2); err != nil {
			t.Fatal(err)
		}
		wantList(t, "a new instance has none", resourceNames(l.vm("pool1", "1")))
		up, err := l.sets.BeginUpdateInstances(ctx, labGroup, "pool1", armcompute.VirtualMachineScaleSetVMInstanceRequiredIDs{InstanceIDs: []*string{ptr("*")}}, nil)
		done(t, up, err)
		wantList(t, "upgraded", resourceNames(l.vm("pool1", "0")))
		if b := l.sub.booted["pool1_0"]; len(b) != 1 {
			t.Errorf("an upgrade of extensions booted: %v", b)
		}
	})
}

func TestExtensionPutAndPatch(t *testing.T) {
	withPool(t, 0, nil, func(t *testing.T, l *lab) {
		ctx := context.Background()
		put, err := l.exts.BeginCreateOrUpdate(ctx, labGroup, "pool1", "cse", *extension("cse"), nil)
		done(t, put, err)
		up, err := l.exts.BeginUpdate(ctx, labGroup, "pool1", "cse", armcompute.VirtualMachineScaleSetExtensionUpdate{Properties: &armcompute.VirtualMachineScaleSetExtensionProperties{TypeHandlerVersion: ptr("2.2")}}, nil)
		got := done(t, up, err)
		if val(got.Properties.TypeHandlerVersion) != "2.2" || val(got.Properties.Type) != "CustomScript" {
			t.Errorf("after the patch: %+v", got.Properties)
		}
		put, err = l.exts.BeginCreateOrUpdate(ctx, labGroup, "pool1", "run", *extension("run", "nothing"), nil)
		_, err = tryDone(put, err)
		wantRefusal(t, err, "BadRequest", "'nothing'")
		// The stored secret survives, though nobody can read it.
		_, set := load[armcompute.VirtualMachineScaleSet](l.s, val(l.set("pool1").ID))
		if x := findSetExtension(profileOf(set), "cse"); x == nil || x.Properties.ProtectedSettings == nil {
			t.Error("the protected settings were lost")
		}
		// A PATCH of the model replaces the list.
		err = l.patch("pool1", armcompute.VirtualMachineScaleSetUpdate{Properties: &armcompute.VirtualMachineScaleSetUpdateProperties{
			VirtualMachineProfile: &armcompute.VirtualMachineScaleSetUpdateVMProfile{ExtensionProfile: &armcompute.VirtualMachineScaleSetExtensionProfile{
				Extensions: []*armcompute.VirtualMachineScaleSetExtension{extension("other")}}}}})
		if err != nil {
			t.Fatal(err)
		}
		wantList(t, "replaced", l.extNames(), "other")
	})
}

func TestExtensionFaults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Server{Faults: []Fault{
			{Name: "cse fails", Action: "Microsoft.Compute/virtualMachineScaleSets/virtualMachines/extensions/provision", Path: "extensions/cse$", Effect: EffectError, Count: 1},
			{Name: "delete lies", Action: "Microsoft.Compute/virtualMachineScaleSets/extensions/delete", Effect: EffectReportSuccess, Count: 1},
		}}
		defer s.Close()
		l := newLab(t, s)
		body := pool(1)
		withExtensions(extension("cse"))(&body)
		p, err := l.sets.BeginCreateOrUpdate(context.Background(), labGroup, "pool1", body, nil)
		_, err = tryDone(p, err)
		wantRefusal(t, err, "VMExtensionProvisioningError", "extension 'cse'")
		wantList(t, "instance", l.ids("pool1"), "0 Failed running")
		wantList(t, "extension", resourceNames(l.vm("pool1", "0")), "cse Failed")
		for _, want := range [][]string{{"cse"}, nil} {
			del, err := l.exts.BeginDelete(context.Background(), labGroup, "pool1", "cse", nil)
			done(t, del, err)
			wantList(t, "after a deletion", l.extNames(), want...)
		}
	})
}

func TestInstanceExtension(t *testing.T) {
	withPool(t, 1, nil, func(t *testing.T, l *lab) {
		ctx := context.Background()
		put, err := l.vmExt.BeginCreateOrUpdate(ctx, labGroup, "pool1", "0", "own", armcompute.VirtualMachineScaleSetVMExtension{Properties: &armcompute.VirtualMachineExtensionProperties{
			Publisher: ptr("p"), Type: ptr("t"), TypeHandlerVersion: ptr("1.0"), ProtectedSettings: map[string]any{"s": "x"}}}, nil)
		if got := done(t, put, err); got.Properties.ProtectedSettings != nil {
			t.Error("protected settings were read back")
		}
		list, err := l.vmExt.List(ctx, labGroup, "pool1", "0", nil)
		if err != nil || len(list.Value) != 1 || val(list.Value[0].Properties.ProvisioningState) != stateSucceeded {
			t.Errorf("%+v, %v", list.Value, err)
		}
		del, err := l.vmExt.BeginDelete(ctx, labGroup, "pool1", "0", "own", nil)
		done(t, del, err)
		wantList(t, "deleted", resourceNames(l.vm("pool1", "0")))
		off, err := l.vms.BeginPowerOff(ctx, labGroup, "pool1", "0", nil)
		done(t, off, err)
		put, err = l.vmExt.BeginCreateOrUpdate(ctx, labGroup, "pool1", "0", "own", armcompute.VirtualMachineScaleSetVMExtension{Properties: &armcompute.VirtualMachineExtensionProperties{
			Publisher: ptr("p"), Type: ptr("t"), TypeHandlerVersion: ptr("1.0")}}, nil)
		_, err = tryDone(put, err)
		wantRefusal(t, err, "OperationNotAllowed", "Cannot modify extensions in the VM when the VM is not running.")
	})
}
