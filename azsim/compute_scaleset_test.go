package azsim

import (
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"
)

func TestScaleSetLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Server{Substrate: newModelSubstrate()}
		defer s.Close()
		l := newLab(t, s)
		start := time.Now()
		set := l.create("pool1", pool(2))
		if d := time.Since(start); d < 54*time.Second || d > 4*time.Minute {
			t.Errorf("creation took %v, want 54 to 158 s and a poll", d)
		}
		if set.Properties.VirtualMachineProfile.OSProfile.CustomData != nil {
			t.Error("customData was read back")
		}
		wantList(t, "created", l.ids("pool1"), "0 Succeeded running", "1 Succeeded running")
		wantList(t, "computers", l.sub.names(), "pool1000000", "pool1000001")
		c := l.sub.computer(t, "pool1000001")
		if string(c.CustomData) != "#cloud-config\n" || !c.Provision || c.Generation != "V2" || c.Tags["team"] != "a" || c.Name != "pool1_1" || len(c.SSHKeys) != 1 {
			t.Errorf("computer %+v", c)
		}
		vm := l.vm("pool1", "1")
		if id := val(vm.Properties.StorageProfile.OSDisk.ManagedDisk.ID); !strings.EqualFold(id, string(c.OSDisk)) {
			t.Errorf("OS disk %s, the computer has %s", id, c.OSDisk)
		}
		disk, err := l.disks.Get(context.Background(), labGroup, val(vm.Properties.StorageProfile.OSDisk.Name), nil)
		if err != nil || val(disk.ManagedBy) != val(vm.ID) {
			t.Errorf("disk %+v, %v", disk.ManagedBy, err)
		}
		if v := val(vm.Properties.StorageProfile.ImageReference.ExactVersion); v != platformLatest {
			t.Errorf("exact version %q", v)
		}

		if err := l.scale("pool1", 3); err != nil {
			t.Fatal(err)
		}
		wantList(t, "scaled out", l.ids("pool1"), "0 Succeeded running", "1 Succeeded running", "2 Succeeded running")
		if err := l.scale("pool1", 1); err != nil {
			t.Fatal(err)
		}
		wantList(t, "scaled in", l.ids("pool1"), "0 Succeeded running")
		wantList(t, "computers", l.sub.names(), "pool1000000")
		if n := len(l.sub.volumesLike("/disks/")); n != 1 {
			t.Errorf("%d volumes left, want 1", n)
		}
		if err := l.scale("pool1", 2); err != nil {
			t.Fatal(err)
		}
		wantList(t, "ids are not reused", l.ids("pool1"), "0 Succeeded running", "3 Succeeded running")

		view, err := l.sets.GetInstanceView(context.Background(), labGroup, "pool1", nil)
		if err != nil || len(view.VirtualMachine.StatusesSummary) != 1 || val(view.VirtualMachine.StatusesSummary[0].Count) != 2 {
			t.Errorf("view %+v, %v", view, err)
		}
		p, err := l.sets.BeginDelete(context.Background(), labGroup, "pool1", nil)
		done(t, p, err)
		if _, err := l.sets.Get(context.Background(), labGroup, "pool1", nil); code(err) != "ResourceNotFound" {
			t.Errorf("after the deletion: %v", err)
		}
		if n := len(l.sub.volumesLike("/disks/")); n != 0 || len(l.sub.names()) != 0 || len(l.sub.known) != 0 {
			t.Errorf("left behind: %d volumes, computers %v, known %v", n, l.sub.names(), l.sub.known)
		}
	})
}

// cluster-autoscaler changes the capacity by a PUT of sku and location alone.
func TestScaleSetPutKeepsTheModel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Server{Substrate: newModelSubstrate()}
		defer s.Close()
		l := newLab(t, s)
		l.create("pool1", pool(1))
		got := l.create("pool1", armcompute.VirtualMachineScaleSet{Location: ptr("westeurope"), SKU: &armcompute.SKU{Name: ptr("Standard_D2s_v5"), Capacity: ptr(int64(2))}})
		if val(got.Tags["team"]) != "a" || got.Properties.VirtualMachineProfile.OSProfile == nil {
			t.Errorf("the model was lost: %+v", got)
		}
		if c := l.sub.computer(t, "pool1000001"); string(c.CustomData) != "#cloud-config\n" {
			t.Errorf("customData of a later instance: %q", c.CustomData)
		}
		// Get, modify, put: what cannot be read is not sent, and kept.
		back := l.set("pool1")
		back.SKU.Capacity = ptr(int64(3))
		l.create("pool1", back)
		if c := l.sub.computer(t, "pool1000002"); string(c.CustomData) != "#cloud-config\n" {
			t.Errorf("customData after get, modify, put: %q", c.CustomData)
		}
		// The CLI leaves the image reference out.
		back = l.set("pool1")
		back.Properties.VirtualMachineProfile.StorageProfile.ImageReference = nil
		back.Properties.VirtualMachineProfile.ExtensionProfile = &armcompute.VirtualMachineScaleSetExtensionProfile{Extensions: []*armcompute.VirtualMachineScaleSetExtension{}}
		if got := l.create("pool1", back); val(got.Properties.VirtualMachineProfile.StorageProfile.ImageReference.Offer) == "" {
			t.Error("the image reference was lost")
		}
		for _, id := range []string{"0", "1", "2"} {
			if !val(l.vm("pool1", id).Properties.LatestModelApplied) {
				t.Errorf("instance %s: a change of capacity changed the model", id)
			}
		}
	})
}

func TestScaleSetModelChange(t *testing.T) {
	for _, c := range []struct {
		mode   armcompute.UpgradeMode
		latest bool
	}{{armcompute.UpgradeModeManual, false}, {armcompute.UpgradeModeAutomatic, true}} {
		t.Run(string(c.mode), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &Server{Substrate: newModelSubstrate()}
				defer s.Close()
				l := newLab(t, s)
				body := pool(2)
				body.Properties.UpgradePolicy.Mode = ptr(c.mode)
				l.create("pool1", body)
				protect(t, l, "1")
				err := l.patch("pool1", armcompute.VirtualMachineScaleSetUpdate{Properties: &armcompute.VirtualMachineScaleSetUpdateProperties{
					VirtualMachineProfile: &armcompute.VirtualMachineScaleSetUpdateVMProfile{StorageProfile: &armcompute.VirtualMachineScaleSetUpdateStorageProfile{
						ImageReference: &armcompute.ImageReference{Version: ptr("24.04.202501010")}}}}})
				if err != nil {
					t.Fatal(err)
				}
				vm := l.vm("pool1", "0")
				if val(vm.Properties.LatestModelApplied) != c.latest {
					t.Errorf("latestModelApplied %t, want %t", val(vm.Properties.LatestModelApplied), c.latest)
				}
				if val(l.vm("pool1", "1").Properties.LatestModelApplied) {
					t.Error("a protected instance took the new model")
				}
				p, err := l.sets.BeginUpdateInstances(context.Background(), labGroup, "pool1", armcompute.VirtualMachineScaleSetVMInstanceRequiredIDs{InstanceIDs: []*string{ptr("0")}}, nil)
				done(t, p, err)
				vm = l.vm("pool1", "0")
				if !val(vm.Properties.LatestModelApplied) || val(vm.Properties.StorageProfile.ImageReference.ExactVersion) != "24.04.202501010" {
					t.Errorf("after the upgrade: %+v", vm.Properties.StorageProfile.ImageReference)
				}
				if b := l.sub.booted["pool1_0"]; len(b) != 2 || !b[1] {
					t.Errorf("boots of 0, with provisioning: %v", b)
				}
				if n := len(l.sub.volumesLike("/disks/")); n != 2 {
					t.Errorf("%d OS disks, want the old one gone", n)
				}
			})
		})
	}
}

// protect sets both protections of an instance of pool1.
func protect(t *testing.T, l *lab, id string) {
	t.Helper()
	p, err := l.vms.BeginUpdate(context.Background(), labGroup, "pool1", id, armcompute.VirtualMachineScaleSetVM{Properties: &armcompute.VirtualMachineScaleSetVMProperties{
		ProtectionPolicy: &armcompute.VirtualMachineScaleSetVMProtectionPolicy{ProtectFromScaleSetActions: ptr(true)}}}, nil)
	got := done(t, p, err)
	if !val(got.Properties.ProtectionPolicy.ProtectFromScaleIn) {
		t.Error("protection from actions protects from scale-in too")
	}
}

func TestScaleSetRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Server{}
		defer s.Close()
		l := newLab(t, s)
		for _, c := range []struct {
			name       string
			change     func(*armcompute.VirtualMachineScaleSet)
			code, text string
		}{
			{"no such mode", func(b *armcompute.VirtualMachineScaleSet) {
				b.Properties.OrchestrationMode = ptr(armcompute.OrchestrationMode("Both"))
			}, "InvalidParameter", "orchestrationMode"},
			{"no such size", func(b *armcompute.VirtualMachineScaleSet) { b.SKU.Name = ptr("Standard_Z9") }, "InvalidParameter", "The value Standard_Z9 provided for the VM size is not valid"},
			{"generation", func(b *armcompute.VirtualMachineScaleSet) { b.SKU.Name = ptr("Standard_D2_v3") }, "BadRequest", "cannot boot Hypervisor Generation '2'"},
			{"architecture", func(b *armcompute.VirtualMachineScaleSet) { b.SKU.Name = ptr("Standard_D2ps_v5") }, "BadRequest", "only supports a CPU Architecture of 'Arm64'"},
			{"disk controller", func(b *armcompute.VirtualMachineScaleSet) {
				b.Properties.VirtualMachineProfile.StorageProfile.DiskControllerType = ptr("NVMe")
			}, "InvalidParameter", "does not support the disk controller type 'NVMe'"},
			{"trusted launch", func(b *armcompute.VirtualMachineScaleSet) {
				b.SKU.Name = ptr("Standard_D2s_v3")
				b.Properties.VirtualMachineProfile.StorageProfile.ImageReference.SKU = ptr("server-gen1")
				b.Properties.VirtualMachineProfile.SecurityProfile = &armcompute.SecurityProfile{SecurityType: ptr(armcompute.SecurityTypesTrustedLaunch)}
			}, "BadRequest", "TrustedLaunch setting is not supported"},
			{"ephemeral", func(b *armcompute.VirtualMachineScaleSet) {
				b.Properties.VirtualMachineProfile.StorageProfile.OSDisk = &armcompute.VirtualMachineScaleSetOSDisk{
					CreateOption: ptr(armcompute.DiskCreateOptionTypesFromImage), DiffDiskSettings: &armcompute.DiffDiskSettings{Option: ptr(armcompute.DiffDiskOptionsLocal)}}
			}, "NotSupported", "OS disk of Ephemeral VM"},
			{"spot", func(b *armcompute.VirtualMachineScaleSet) {
				b.SKU.Name = ptr("Standard_B2s")
				b.Properties.VirtualMachineProfile.Priority = ptr(armcompute.VirtualMachinePriorityTypesSpot)
			}, "BadRequest", "Spot"},
			{"zone", func(b *armcompute.VirtualMachineScaleSet) { b.Zones = []*string{ptr("4")} }, "InvalidAvailabilityZone", "zone"},
			{"zones of a region without", func(b *armcompute.VirtualMachineScaleSet) {
				b.Location, b.Zones = ptr("westcentralus"), []*string{ptr("1")}
			}, "InvalidAvailabilityZone", "zone"},
			{"missing version", func(b *armcompute.VirtualMachineScaleSet) {
				b.Properties.VirtualMachineProfile.StorageProfile.ImageReference = &armcompute.ImageReference{ID: ptr(galleryVersionID("1.0.0"))}
			}, "GalleryImageNotFound", "is not available in westeurope region"},
			{"rolling without health", func(b *armcompute.VirtualMachineScaleSet) {
				b.Properties.UpgradePolicy.Mode = ptr(armcompute.UpgradeModeRolling)
			}, "BadRequest", "health"},
			{"custom data", func(b *armcompute.VirtualMachineScaleSet) {
				b.Properties.VirtualMachineProfile.OSProfile.CustomData = ptr("not base64!")
			}, "InvalidParameter", "Base64"},
			{"too many", func(b *armcompute.VirtualMachineScaleSet) { b.SKU.Capacity = ptr(int64(1001)) }, "OperationNotAllowed", "1001"},
		} {
			body := pool(1)
			c.change(&body)
			_, err := l.sets.BeginCreateOrUpdate(context.Background(), labGroup, "bad", body, nil)
			if code(err) != c.code || !strings.Contains(err.Error(), c.text) {
				t.Errorf("%s: %v, want %s with %q", c.name, err, c.code, c.text)
			}
		}
		if _, err := l.sets.Get(context.Background(), labGroup, "bad", nil); code(err) != "ResourceNotFound" {
			t.Errorf("a refused scale set exists: %v", err)
		}
	})
}

func TestScaleInProtection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Server{}
		defer s.Close()
		l := newLab(t, s)
		l.create("pool1", pool(3))
		protect(t, l, "2")
		if err := l.scale("pool1", 2); err != nil {
			t.Fatal(err)
		}
		wantList(t, "the newest is protected", l.ids("pool1"), "0 Succeeded running", "2 Succeeded running")
		wantRefusal(t, l.scale("pool1", 0), "OperationNotAllowed", "protected from scale-in")
		if n := val(l.set("pool1").SKU.Capacity); n != 1 {
			t.Errorf("capacity %d, want 1: the protected one is there", n)
		}
		// An explicit deletion passes, and lowers the capacity.
		p, err := l.vms.BeginDelete(context.Background(), labGroup, "pool1", "2", nil)
		done(t, p, err)
		if n := val(l.set("pool1").SKU.Capacity); n != 0 || len(l.ids("pool1")) != 0 {
			t.Errorf("capacity %d, instances %v", n, l.ids("pool1"))
		}
	})
}

func TestScaleSetZones(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Server{Substrate: newModelSubstrate()}
		defer s.Close()
		l := newLab(t, s)
		body := pool(4)
		body.Zones = []*string{ptr("1"), ptr("2"), ptr("3")}
		l.create("pool1", body)
		var zones []string
		for _, vm := range l.list("pool1", nil) {
			zones = append(zones, val(vm.Zones[0]))
		}
		wantList(t, "zones", zones, "1", "2", "3", "1")
		if c := l.sub.computer(t, "pool1000001"); c.Zone != "2" {
			t.Errorf("zone %q", c.Zone)
		}
	})
}

func TestFailedBoot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sub := newModelSubstrate()
		sub.refuse["pool1_1"] = errors.New("kernel panic")
		s := &Server{Substrate: sub}
		defer s.Close()
		l := newLab(t, s)
		p, err := l.sets.BeginCreateOrUpdate(context.Background(), labGroup, "pool1", pool(2), nil)
		_, err = tryDone(p, err)
		wantRefusal(t, err, "OSProvisioningTimedOut", "pool1_1")
		wantList(t, "instances", l.ids("pool1"), "0 Succeeded running", "1 Failed running")
		if st := l.vm("pool1", "1").Properties.InstanceView.Statuses[0]; val(st.Code) != "ProvisioningState/failed/OSProvisioningTimedOut" || val(st.Message) == "" {
			t.Errorf("status %+v", st)
		}
		if got := val(l.set("pool1").Properties.ProvisioningState); got != stateFailed {
			t.Errorf("the set is %s", got)
		}
		delete(sub.refuse, "pool1_1")
		rp, err := l.vms.BeginReimage(context.Background(), labGroup, "pool1", "1", nil)
		done(t, rp, err)
		wantList(t, "reimaged", l.ids("pool1"), "0 Succeeded running", "1 Succeeded running")
	})
}

// Resilient creation deletes what did not report within 8 minutes and makes another of a new name,
// for 30 minutes; meanwhile the set has no more than its capacity, and shows Creating.
func TestResilientCreation(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*armcompute.VirtualMachineScaleSet)
		fails  int // creations
		want   []string
		took   time.Duration
	}{
		"the second comes up": {nil, 1, []string{"0 Succeeded running", "2 Succeeded running"}, 8 * time.Minute},
		"none comes up":       {nil, 9, []string{"0 Succeeded running", "4 Failed running"}, 32 * time.Minute},
		"without the policy":  {func(b *armcompute.VirtualMachineScaleSet) { b.Properties.ResiliencyPolicy = nil }, 1, []string{"0 Succeeded running", "1 Failed running"}, 0},
		"overprovisioned": {func(b *armcompute.VirtualMachineScaleSet) { b.Properties.Overprovision = ptr(true) }, 3,
			[]string{"0 Succeeded running", "Succeeded running"}, 8 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &Server{}
				defer s.Close()
				l := newLab(t, s)
				body := pool(2)
				body.Properties.ResiliencyPolicy = &armcompute.ResiliencyPolicy{ResilientVMCreationPolicy: &armcompute.ResilientVMCreationPolicy{Enabled: ptr(true)}}
				if c.change != nil {
					c.change(&body)
				}
				if err := s.AddFault(Fault{Action: instanceType + "/provision", Path: `/[1-9]$`, Effect: EffectError, Status: 409, Code: "OSProvisioningTimedOut", Count: c.fails}); err != nil {
					t.Fatal(err)
				}
				begun := time.Now()
				p, err := l.sets.BeginCreateOrUpdate(context.Background(), labGroup, "pool1", body, nil)
				_, err = tryDone(p, err)
				if took := time.Since(begun); took < c.took || took > c.took+10*time.Minute {
					t.Errorf("it took %s", took)
				}
				if strings.Contains(c.want[1], "Failed") {
					wantRefusal(t, err, "OSProvisioningTimedOut", "")
				} else if err != nil {
					t.Error(err)
				}
				time.Sleep(10 * time.Minute)
				ids := l.ids("pool1")
				if name == "overprovisioned" && len(ids) == 2 { // which of three is first
					ids[1] = strings.TrimLeft(ids[1], "456 ")
				}
				wantList(t, "instances", ids, c.want...)
			})
		})
	}
}

// An overprovisioning set has more instances than its capacity for a while, and none of those
// that it had before is deleted for it, whatever they do.
func TestOverprovision(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sub := newModelSubstrate()
		s := &Server{Substrate: sub}
		defer s.Close()
		l := newLab(t, s)
		body := pool(1)
		body.Properties.Overprovision = ptr(true)
		p, err := l.sets.BeginCreateOrUpdate(context.Background(), labGroup, "pool1", body, nil)
		time.Sleep(time.Second)
		wantList(t, "at the begin", l.ids("pool1"), "0 Creating ", "1 Creating ", "2 Creating ")
		done(t, p, err)
		first := l.ids("pool1")
		if len(first) != 1 || !strings.HasSuffix(first[0], " Succeeded running") {
			t.Fatalf("in the end: %q", first)
		}
		id, _, _ := strings.Cut(first[0], " ")
		stop, err := l.vms.BeginDeallocate(context.Background(), labGroup, "pool1", id, nil)
		if err != nil {
			t.Fatal(err)
		}
		sub.refuse["pool1_4"] = errors.New("kernel panic")
		if err := l.scale("pool1", 3); err != nil {
			t.Fatalf("with one of the spare instances broken: %v", err)
		}
		done(t, stop, nil)
		got := l.ids("pool1")
		if len(got) != 3 || got[0] != id+" Succeeded deallocated" || !strings.HasSuffix(got[1], " Succeeded running") || !strings.HasSuffix(got[2], " Succeeded running") {
			t.Errorf("scaled out: %q", got)
		}
		if n := val(l.set("pool1").SKU.Capacity); n != 3 {
			t.Errorf("capacity %d", n)
		}
		if n := len(l.sub.volumesLike("/disks/")); n != 3 {
			t.Errorf("%d volumes left, want 3", n)
		}

		// Another write in the middle of a scale-out.
		before := l.ids("pool1")
		grow, err := l.sets.BeginUpdate(context.Background(), labGroup, "pool1", armcompute.VirtualMachineScaleSetUpdate{SKU: &armcompute.SKU{Capacity: ptr(int64(4))}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		tag, err := l.sets.BeginUpdate(context.Background(), labGroup, "pool1", armcompute.VirtualMachineScaleSetUpdate{Tags: map[string]*string{"a": ptr("b")}}, nil)
		done(t, tag, err)
		_, _ = tryDone(grow, nil) // preempted
		if got := l.ids("pool1"); len(got) != 4 || !slices.Equal(got[:3], before) {
			t.Errorf("after another write in the middle: %q, before %q", got, before)
		}

		// A scale-in in the middle of a scale-out.
		grow, err = l.sets.BeginUpdate(context.Background(), labGroup, "pool1", armcompute.VirtualMachineScaleSetUpdate{SKU: &armcompute.SKU{Capacity: ptr(int64(5))}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		if err := l.scale("pool1", 2); err != nil {
			t.Fatal(err)
		}
		_, _ = tryDone(grow, nil) // preempted
		if got := l.ids("pool1"); len(got) != 2 {
			t.Errorf("after a scale-in in the middle: %q", got)
		}
	})
}

func TestOverlayPutOfAnImage(t *testing.T) {
	whole := func(ref string) map[string]any {
		var out map[string]any
		if err := json.Unmarshal([]byte(`{"properties":{"virtualMachineProfile":{"storageProfile":{"imageReference":`+ref+`}}}}`), &out); err != nil {
			t.Fatal(err)
		}
		return out
	}
	platform := `{"publisher":"p","offer":"o","sku":"s","version":"latest"}`
	for _, c := range []struct{ name, old, put, want string }{
		{"the version alone", platform, `{"version":"2"}`, `{"publisher":"p","offer":"o","sku":"s","version":"2"}`},
		{"a gallery's id", platform, `{"id":"/x"}`, `{"id":"/x"}`},
		{"back from a gallery", `{"id":"/x"}`, platform, platform},
		{"the id with nulls", platform, `{"id":"/x","publisher":null}`, `{"id":"/x","publisher":null}`},
		{"nothing", platform, `null`, platform},
	} {
		got, err := json.Marshal(at(overlayPut(whole(c.old), whole(c.put)), "properties", "virtualMachineProfile", "storageProfile", "imageReference"))
		if err != nil {
			t.Fatal(err)
		}
		var a, b any
		if json.Unmarshal(got, &a) != nil || json.Unmarshal([]byte(c.want), &b) != nil || !reflect.DeepEqual(a, b) {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

func TestModelKeyKnowsWhatMatters(t *testing.T) {
	base := pool(1)
	key := modelKey(&base)
	same := pool(5)
	same.Tags = nil
	same.Properties.UpgradePolicy.Mode = ptr(armcompute.UpgradeModeAutomatic)
	if modelKey(&same) != key {
		t.Error("capacity, tags or policy changed the key")
	}
	other := pool(1)
	other.Properties.VirtualMachineProfile.OSProfile.CustomData = ptr("eA==")
	if modelKey(&other) == key {
		t.Error("customData did not change the key")
	}
	bigger := pool(1)
	bigger.SKU.Name = ptr("Standard_D4s_v5")
	if modelKey(&bigger) == key {
		t.Error("the size did not change the key")
	}
}

func FuzzOverlayPut(f *testing.F) {
	f.Add(`{"sku":{"name":"a","capacity":1},"properties":{"x":1}}`, `{"sku":{"capacity":2},"properties":null}`)
	f.Add(`{}`, `{"properties":{"a":null}}`)
	f.Fuzz(func(t *testing.T, a, b string) {
		var old, tree map[string]any
		if json.Unmarshal([]byte(a), &old) != nil || json.Unmarshal([]byte(b), &tree) != nil {
			return
		}
		out := overlayPut(old, tree)
		for k, v := range tree {
			if v != nil && out[k] == nil {
				t.Errorf("%s was lost", k)
			}
		}
		for k, v := range old {
			if v != nil && out[k] == nil {
				t.Errorf("%s was not kept", k)
			}
		}
	})
}

func galleryVersionID(version string) string {
	return "/subscriptions/" + DefaultSubscription + "/resourceGroups/" + labGroup + "/providers/Microsoft.Compute/galleries/g/images/i/versions/" + version
}
