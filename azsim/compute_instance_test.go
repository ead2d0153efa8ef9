package azsim

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"
)

// withPool runs a test in virtual time on a pool of n instances.
func withPool(t *testing.T, n int64, change func(*armcompute.VirtualMachineScaleSet), test func(t *testing.T, l *lab)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &Server{Substrate: newModelSubstrate()}
		defer s.Close()
		l := newLab(t, s)
		body := pool(n)
		if change != nil {
			change(&body)
		}
		l.create("pool1", body)
		test(t, l)
	})
}

func TestInstancePower(t *testing.T) {
	withPool(t, 2, nil, func(t *testing.T, l *lab) {
		ctx := context.Background()
		begun := time.Now()
		off, err := l.vms.BeginPowerOff(ctx, labGroup, "pool1", "0", nil)
		if err != nil {
			t.Fatal(err)
		}
		wantList(t, "while it stops", l.ids("pool1"), "0 Updating stopping", "1 Succeeded running")
		// What is being stopped cannot be started, and the other is free.
		_, err = l.vms.BeginStart(ctx, labGroup, "pool1", "0", nil)
		wantRefusal(t, err, "OperationNotAllowed", "in progress")
		re, err := l.vms.BeginRestart(ctx, labGroup, "pool1", "1", nil)
		done(t, re, err)
		done(t, off, nil)
		if d := time.Since(begun); d < 5*time.Second || d > 200*time.Second {
			t.Errorf("the stop took %v, want 5 to 183 s and a poll", d)
		}
		wantList(t, "stopped", l.ids("pool1"), "0 Succeeded stopped", "1 Succeeded running")
		wantList(t, "computers", l.sub.names(), "pool1000001")
		if v := l.vm("pool1", "0").Properties.InstanceView; v.VMAgent == nil || val(v.ComputerName) == "" {
			t.Errorf("a stopped instance does not show what its agent reported last: %+v", v)
		}
		_, err = l.vms.BeginRestart(ctx, labGroup, "pool1", "0", nil)
		wantRefusal(t, err, "OperationNotAllowed", "requires the VM to be running")

		on, err := l.vms.BeginStart(ctx, labGroup, "pool1", "0", nil)
		done(t, on, err)
		wantList(t, "started", l.ids("pool1"), "0 Succeeded running", "1 Succeeded running")
		if b := l.sub.booted["pool1_0"]; len(b) != 2 || b[1] {
			t.Errorf("boots of 0, with provisioning: %v; want the second without", b)
		}
		if len(l.sub.unclean) != 0 {
			t.Errorf("not in order: %v", l.sub.unclean)
		}
		hard, err := l.vms.BeginPowerOff(ctx, labGroup, "pool1", "0", &armcompute.VirtualMachineScaleSetVMsClientBeginPowerOffOptions{SkipShutdown: ptr(true)})
		done(t, hard, err)
		if len(l.sub.unclean) != 1 {
			t.Error("skipShutdown shut down in order")
		}
		all, err := l.sets.BeginDeallocate(ctx, labGroup, "pool1", nil)
		done(t, all, err)
		wantList(t, "deallocated", l.ids("pool1"), "0 Succeeded deallocated", "1 Succeeded deallocated")
		_, err = l.vms.BeginPowerOff(ctx, labGroup, "pool1", "0", nil)
		wantRefusal(t, err, "OperationNotAllowed", "deallocated")
		one, err := l.sets.BeginStart(ctx, labGroup, "pool1", &armcompute.VirtualMachineScaleSetsClientBeginStartOptions{
			VMInstanceIDs: &armcompute.VirtualMachineScaleSetVMInstanceIDs{InstanceIDs: []*string{ptr("1")}}})
		done(t, one, err)
		wantList(t, "one started", l.ids("pool1"), "0 Succeeded deallocated", "1 Succeeded running")
		_, err = l.sets.BeginStart(ctx, labGroup, "pool1", &armcompute.VirtualMachineScaleSetsClientBeginStartOptions{
			VMInstanceIDs: &armcompute.VirtualMachineScaleSetVMInstanceIDs{InstanceIDs: []*string{ptr("7")}}})
		wantRefusal(t, err, "InvalidParameter", "7 is not an active Virtual Machine Scale Set VM instanceId")
	})
}

func TestInstanceProtectionFromActions(t *testing.T) {
	withPool(t, 2, nil, func(t *testing.T, l *lab) {
		ctx := context.Background()
		protect(t, l, "0")
		_, err := l.sets.BeginReimage(ctx, labGroup, "pool1", &armcompute.VirtualMachineScaleSetsClientBeginReimageOptions{
			VMScaleSetReimageInput: &armcompute.VirtualMachineScaleSetReimageParameters{InstanceIDs: []*string{ptr("0")}}})
		wantRefusal(t, err, "OperationNotAllowed", "protected from scale set actions")
		all, err := l.sets.BeginDeallocate(ctx, labGroup, "pool1", nil)
		done(t, all, err)
		wantList(t, "the protected one is passed over", l.ids("pool1"), "0 Succeeded running", "1 Succeeded deallocated")
		p, err := l.vms.BeginUpdate(ctx, labGroup, "pool1", "0", armcompute.VirtualMachineScaleSetVM{Properties: &armcompute.VirtualMachineScaleSetVMProperties{
			ProtectionPolicy: &armcompute.VirtualMachineScaleSetVMProtectionPolicy{ProtectFromScaleIn: ptr(false), ProtectFromScaleSetActions: ptr(true)}}}, nil)
		_, err = tryDone(p, err)
		wantRefusal(t, err, "InvalidParameter", "protectFromScaleIn")
		_, err = l.vms.BeginUpdate(ctx, labGroup, "pool1", "9", armcompute.VirtualMachineScaleSetVM{}, nil)
		wantRefusal(t, err, "InvalidParameter", "is not an active")
		del, err := l.sets.BeginDeleteInstances(ctx, labGroup, "pool1", armcompute.VirtualMachineScaleSetVMInstanceRequiredIDs{InstanceIDs: []*string{ptr("0")}}, nil)
		done(t, del, err)
		wantList(t, "an explicit deletion passes", l.ids("pool1"), "1 Succeeded deallocated")
	})
}

func attach(id string, lun int32) *armcompute.DataDisk {
	return &armcompute.DataDisk{CreateOption: ptr(armcompute.DiskCreateOptionTypesAttach), Lun: ptr(lun), ManagedDisk: &armcompute.ManagedDiskParameters{ID: ptr(id)}}
}

func (l *lab) setDisks(id string, disks ...*armcompute.DataDisk) error {
	l.t.Helper()
	if disks == nil {
		disks = []*armcompute.DataDisk{}
	}
	p, err := l.vms.BeginUpdate(context.Background(), labGroup, "pool1", id, armcompute.VirtualMachineScaleSetVM{Properties: &armcompute.VirtualMachineScaleSetVMProperties{
		StorageProfile: &armcompute.StorageProfile{DataDisks: disks}}}, nil)
	_, err = tryDone(p, err)
	return err
}

func TestInstanceDataDisks(t *testing.T) {
	withPool(t, 2, nil, func(t *testing.T, l *lab) {
		b := newBench(t, l.s, "")
		d1, d2 := val(b.disk("d1", 4).ID), val(b.disk("d2", 4).ID)
		if err := l.setDisks("0", attach(d1, 3)); err != nil {
			t.Fatal(err)
		}
		vm := l.vm("pool1", "0")
		key := strings.ToLower(val(vm.ID))
		if got := l.sub.attached[key]; len(got) != 1 || got[3] != Volume(strings.ToLower(d1)) {
			t.Errorf("attached %v", got)
		}
		if d := vm.Properties.StorageProfile.DataDisks; len(d) != 1 || val(d[0].Name) != "d1" || val(d[0].Lun) != 3 {
			t.Errorf("data disks %+v", d)
		}
		if !val(vm.Properties.LatestModelApplied) {
			t.Error("a data disk changed latestModelApplied")
		}
		disk, err := l.disks.Get(b.ctx, labGroup, "d1", nil)
		if err != nil || val(disk.ManagedBy) != val(vm.ID) || val(disk.Properties.DiskState) != armcompute.DiskStateAttached {
			t.Errorf("disk %v %v, %v", disk.ManagedBy, disk.Properties.DiskState, err)
		}
		wantRefusal(t, l.setDisks("1", attach(d1, 0)), "ConflictingUserInput", "already attached to VM")
		wantRefusal(t, l.setDisks("0", attach(d1, 3), attach(d2, 3)), "InvalidParameter", "already uses the same LUN: 3")
		wantRefusal(t, l.setDisks("0", attach(d1+"x", 1)), "ResourceNotFound", "d1x")
		del, err := l.disks.BeginDelete(b.ctx, labGroup, "d1", nil)
		_, err = tryDone(del, err)
		wantRefusal(t, err, "OperationNotAllowed", "is attached to VM")
		// Protection alone leaves the disks as they are.
		protect(t, l, "0")
		if err := l.setDisks("0", attach(d1, 3), attach(d2, 0)); err != nil {
			t.Fatal(err)
		}
		if got := l.sub.attached[key]; len(got) != 2 {
			t.Errorf("attached %v", got)
		}
		// They are there at the next boot too.
		re, err := l.vms.BeginRestart(b.ctx, labGroup, "pool1", "0", nil)
		done(t, re, err)
		if c := l.sub.computer(t, "pool1000000"); len(c.DataDisks) != 2 {
			t.Errorf("data disks at boot: %v", c.DataDisks)
		}
		if err := l.setDisks("0", attach(d2, 0)); err != nil {
			t.Fatal(err)
		}
		if got := l.sub.attached[key]; len(got) != 1 || got[0] != Volume(strings.ToLower(d2)) {
			t.Errorf("after the detaching: %v", got)
		}
		gone, err := l.vms.BeginDelete(b.ctx, labGroup, "pool1", "0", nil)
		done(t, gone, err)
		disk2, err := l.disks.Get(b.ctx, labGroup, "d2", nil)
		if err != nil || disk2.ManagedBy != nil {
			t.Errorf("a data disk outlives its instance: %v, %v", disk2.ManagedBy, err)
		}
	})
}

func TestEphemeralInstance(t *testing.T) {
	withPool(t, 1, func(b *armcompute.VirtualMachineScaleSet) {
		b.SKU.Name = ptr("Standard_D2ds_v5")
		b.Properties.VirtualMachineProfile.StorageProfile.OSDisk = &armcompute.VirtualMachineScaleSetOSDisk{
			CreateOption: ptr(armcompute.DiskCreateOptionTypesFromImage), Caching: ptr(armcompute.CachingTypesReadOnly),
			DiffDiskSettings: &armcompute.DiffDiskSettings{Option: ptr(armcompute.DiffDiskOptionsLocal), Placement: ptr(armcompute.DiffDiskPlacementResourceDisk)}}
	}, func(t *testing.T, l *lab) {
		ctx := context.Background()
		_, err := l.vms.BeginPowerOff(ctx, labGroup, "pool1", "0", nil)
		wantRefusal(t, err, "OperationNotAllowed", "ephemeral OS disk")
		_, err = l.vms.BeginDeallocate(ctx, labGroup, "pool1", "0", nil)
		wantRefusal(t, err, "OperationNotAllowed", "ephemeral OS disk")
		osDisk := l.vm("pool1", "0").Properties.StorageProfile.OSDisk
		_, err = l.disks.Get(ctx, labGroup, val(osDisk.Name), nil)
		wantRefusal(t, err, "ResourceNotFound", "")
		p, err := newBench(t, l.s, "").beginSnapshot("s", val(osDisk.ManagedDisk.ID))
		_, err = tryDone(p, err)
		wantRefusal(t, err, "OperationNotAllowed", "ephemeral")
		re, err := l.vms.BeginReimage(ctx, labGroup, "pool1", "0", nil)
		done(t, re, err)
		wantList(t, "reimaged", l.ids("pool1"), "0 Succeeded running")
	})
}

func TestListInstances(t *testing.T) {
	withPool(t, 3, nil, func(t *testing.T, l *lab) {
		l.s.PageSize = 2
		if got := l.list("pool1", nil); len(got) != 3 || got[0].Properties.InstanceView != nil {
			t.Errorf("%d instances, view %v", len(got), got[0].Properties.InstanceView)
		}
		off, err := l.vms.BeginDeallocate(context.Background(), labGroup, "pool1", "1", nil)
		done(t, off, err)
		for filter, want := range map[string]int{
			"startswith(instanceView/statuses/code, 'PowerState/dealloc') eq true":                                  1,
			"properties/latestModelApplied eq true":                                                                 3,
			"properties/provisioningState ne 'Succeeded'":                                                           0,
			"properties/latestModelApplied eq true and startswith(instanceView/statuses/code,'PowerState/running')": 2,
		} {
			if got := l.list("pool1", &armcompute.VirtualMachineScaleSetVMsClientListOptions{Filter: ptr(filter)}); len(got) != want {
				t.Errorf("%s: %d instances, want %d", filter, len(got), want)
			}
		}
		_, err = l.vms.NewListPager(labGroup, "pool1", &armcompute.VirtualMachineScaleSetVMsClientListOptions{Filter: ptr("odd")}).NextPage(context.Background())
		wantRefusal(t, err, "InvalidParameter", "odd")
	})
}

func TestBootDiagnostics(t *testing.T) {
	withPool(t, 1, nil, func(t *testing.T, l *lab) {
		links, err := l.vms.RetrieveBootDiagnosticsData(context.Background(), labGroup, "pool1", "0", nil)
		if err != nil {
			t.Fatal(err)
		}
		token := ""
		get := func(url string) (int, string) {
			r, err := http.NewRequestWithContext(context.Background(), http.MethodGet, url, nil)
			if err != nil {
				t.Fatal(err)
			}
			if token != "" {
				r.Header.Set("Authorization", token)
			}
			resp, err := l.s.Transport().Do(r)
			if err != nil {
				t.Fatal(err)
			}
			data, err := io.ReadAll(resp.Body)
			if err != nil {
				t.Fatal(err)
			}
			return resp.StatusCode, string(data)
		}
		if st, body := get(val(links.SerialConsoleLogBlobURI)); st != 200 || body != "boot pool1000000\n" {
			t.Errorf("console: %d %q", st, body)
		}
		if st, body := get(strings.Replace(val(links.SerialConsoleLogBlobURI), "sig=", "sig=x", 1)); st != 403 {
			t.Errorf("with a wrong signature: %d %q", st, body)
		}
		token = "Bearer x"
		if st, body := get(val(links.SerialConsoleLogBlobURI)); st != 401 {
			t.Errorf("with a token: %d %q", st, body)
		}
		token = ""
		time.Sleep(3 * time.Hour)
		if st, _ := get(val(links.SerialConsoleLogBlobURI)); st != 403 {
			t.Errorf("an old link: %d", st)
		}
	})
}

func TestInstanceMetadata(t *testing.T) {
	user := "/subscriptions/" + DefaultSubscription + "/resourceGroups/azsim/providers/Microsoft.ManagedIdentity/userAssignedIdentities/node"
	synctest.Test(t, func(t *testing.T) {
		s := &Server{Substrate: newModelSubstrate(), Principals: []Principal{
			{ClientID: DefaultClientID, Roles: []Grant{{Role: "Owner"}}},
			{Name: "node", ClientID: "11111111-0000-4000-8000-000000000000", ResourceID: user},
		}}
		defer s.Close()
		l := newLab(t, s)
		body := pool(1)
		body.Zones = []*string{ptr("2")}
		body.Identity = &armcompute.VirtualMachineScaleSetIdentity{Type: ptr(armcompute.ResourceIdentityTypeSystemAssignedUserAssigned),
			UserAssignedIdentities: map[string]*armcompute.UserAssignedIdentitiesValue{user: {}}}
		set := l.create("pool1", body)
		c := l.sub.computer(t, "pool1000000")
		ask := func(path string) map[string]any {
			r := httptest.NewRequest(http.MethodGet, path, nil)
			r.Header.Set("Metadata", "true")
			w := httptest.NewRecorder()
			c.IMDS.ServeHTTP(w, r)
			var out map[string]any
			if err := json.NewDecoder(bytes.NewReader(w.Body.Bytes())).Decode(&out); err != nil || w.Code != 200 {
				t.Fatalf("%s: %d %s (%v)", path, w.Code, w.Body, err)
			}
			return out
		}
		compute, _ := ask("/metadata/instance?api-version=2021-02-01")["compute"].(map[string]any)
		osProfile, _ := compute["osProfile"].(map[string]any)
		for k, want := range map[string]any{"name": "pool1_0", "vmScaleSetName": "pool1", "zone": "2", "vmId": c.VMID, "resourceId": c.ResourceID, "tags": "team:a", "vmSize": "Standard_D2s_v5", "customData": ""} {
			if compute[k] != want {
				t.Errorf("%s = %v, want %v", k, compute[k], want)
			}
		}
		if osProfile["computerName"] != "pool1000000" {
			t.Errorf("computerName %v", osProfile["computerName"])
		}
		system := ask("/metadata/identity/oauth2/token?api-version=2018-02-01&resource=https://management.azure.com/")
		s.mu.Lock()
		sp := s.principalOf(val(set.Identity.PrincipalID))
		s.mu.Unlock()
		if sp == nil || system["client_id"] != sp.ClientID {
			t.Errorf("client %v, the identity is %v", system["client_id"], val(set.Identity.PrincipalID))
		}
		byID := ask("/metadata/identity/oauth2/token?api-version=2018-02-01&resource=r&client_id=11111111-0000-4000-8000-000000000000")
		if tok, _ := byID["access_token"].(string); tok == "" || byID["client_id"] != "11111111-0000-4000-8000-000000000000" {
			t.Errorf("token %v", byID)
		}
		if d, ok := system["expires_in"].(string); !ok || d == "" {
			t.Errorf("expires_in %v is not a string", system["expires_in"])
		}
	})
}

func TestSpotEviction(t *testing.T) {
	for _, c := range []struct {
		policy armcompute.VirtualMachineEvictionPolicyTypes
		want   []string
		left   int64
	}{
		{armcompute.VirtualMachineEvictionPolicyTypesDeallocate, []string{"0 Succeeded deallocated", "1 Succeeded running"}, 2},
		{armcompute.VirtualMachineEvictionPolicyTypesDelete, []string{"1 Succeeded running"}, 1},
	} {
		t.Run(string(c.policy), func(t *testing.T) {
			withPool(t, 2, func(b *armcompute.VirtualMachineScaleSet) {
				b.Properties.VirtualMachineProfile.Priority = ptr(armcompute.VirtualMachinePriorityTypesSpot)
				b.Properties.VirtualMachineProfile.EvictionPolicy = ptr(c.policy)
			}, func(t *testing.T, l *lab) {
				comp := l.sub.computer(t, "pool1000001") // a neighbour sees the event as well
				enableEvents(t, comp.IMDS)
				if _, err := l.vms.SimulateEviction(context.Background(), labGroup, "pool1", "0", nil); err != nil {
					t.Fatal(err)
				}
				r := httptest.NewRequest(http.MethodGet, "/metadata/scheduledevents?api-version=2020-07-01", nil)
				r.Header.Set("Metadata", "true")
				w := httptest.NewRecorder()
				comp.IMDS.ServeHTTP(w, r)
				if b := w.Body.String(); !strings.Contains(b, `"Preempt"`) || !strings.Contains(b, `"Resources":["pool1_0"]`) {
					t.Errorf("events %s", b)
				}
				time.Sleep(10 * time.Second)
				if len(l.sub.names()) != 2 {
					t.Error("evicted before the notice was over")
				}
				time.Sleep(5 * time.Minute)
				wantList(t, "after it", l.ids("pool1"), c.want...)
				if n := val(l.set("pool1").SKU.Capacity); n != c.left {
					t.Errorf("capacity %d, want %d", n, c.left)
				}
			})
		})
	}
	withPool(t, 1, nil, func(t *testing.T, l *lab) {
		if err := l.s.Evict(val(l.vm("pool1", "0").ID)); err == nil {
			t.Error("an instance that is not Spot was evicted")
		}
	})
}

func TestDeleteWhileCreating(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Server{Substrate: newModelSubstrate()}
		defer s.Close()
		l := newLab(t, s)
		p, err := l.sets.BeginCreateOrUpdate(context.Background(), labGroup, "pool1", pool(2), nil)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		del, err := l.vms.BeginDelete(context.Background(), labGroup, "pool1", "0", nil)
		done(t, del, err)
		done(t, p, nil)
		wantList(t, "the rest", l.ids("pool1"), "1 Succeeded running")
		wantList(t, "computers", l.sub.names(), "pool1000001")
		if v := l.sub.volumesLike("/disks/"); len(v) != 1 {
			t.Errorf("volumes %v", v)
		}
	})
}

// reimageTo reimages pool1's instance 0 with a body.
func (l *lab) reimageTo(in armcompute.VirtualMachineScaleSetVMReimageParameters) error {
	l.t.Helper()
	p, err := l.vms.BeginReimage(context.Background(), labGroup, "pool1", "0",
		&armcompute.VirtualMachineScaleSetVMsClientBeginReimageOptions{VMScaleSetVMReimageInput: &in})
	_, err = tryDone(p, err)
	return err
}

// upgrade brings pool1's instance 0 to the model.
func (l *lab) upgrade() {
	l.t.Helper()
	p, err := l.sets.BeginUpdateInstances(context.Background(), labGroup, "pool1",
		armcompute.VirtualMachineScaleSetVMInstanceRequiredIDs{InstanceIDs: []*string{ptr("0")}}, nil)
	done(l.t, p, err)
}

// A reimage keeps the version of the instance's image, or takes the one that its body names;
// the model's image comes by a manual upgrade. An OS profile of the model comes with both.
func TestReimageKeepsTheImage(t *testing.T) {
	withPool(t, 1, nil, func(t *testing.T, l *lab) {
		const newer, named = "24.04.202501010", "24.04.202501020"
		if err := l.patch("pool1", newVersion()); err != nil {
			t.Fatal(err)
		}
		disks := map[string]bool{}
		want := func(after, version string, latest bool) {
			t.Helper()
			vm := l.vm("pool1", "0").Properties
			c := l.sub.computer(t, "pool1000000")
			l.sub.mu.Lock()
			from := l.sub.volumes[c.OSDisk].Platform
			l.sub.mu.Unlock()
			got, has := val(vm.StorageProfile.ImageReference.ExactVersion), val(vm.LatestModelApplied)
			if got != version || !strings.HasSuffix(from, ":"+version) || has != latest {
				t.Errorf("%s: image %s, a disk of %s, latest model %t; want %s, %t", after, got, from, has, version, latest)
			}
			if disk := val(vm.StorageProfile.OSDisk.Name); disks[disk] || !c.Provision {
				t.Errorf("%s: the OS disk is no new one", after)
			} else {
				disks[disk] = true
			}
		}
		want("a new model", platformLatest, false)
		if err := l.reimageTo(armcompute.VirtualMachineScaleSetVMReimageParameters{}); err != nil {
			t.Fatal(err)
		}
		want("a reimage", platformLatest, false)
		all, err := l.sets.BeginReimage(context.Background(), labGroup, "pool1", nil)
		done(t, all, err)
		want("a reimage of the set", platformLatest, false)
		own := "own customData"
		if err := l.reimageTo(armcompute.VirtualMachineScaleSetVMReimageParameters{ExactVersion: ptr(named), TempDisk: ptr(false),
			OSProfile: &armcompute.OSProfileProvisioningData{CustomData: ptr(base64.StdEncoding.EncodeToString([]byte(own)))}}); err != nil {
			t.Fatal(err)
		}
		want("a reimage to a version", named, false)
		if got := string(l.sub.computer(t, "pool1000000").CustomData); got != own {
			t.Errorf("customData %q, want that of the reimage", got)
		}
		l.upgrade()
		want("an upgrade", newer, true)

		// An OS profile is all that the model changes here.
		if err := l.patch("pool1", armcompute.VirtualMachineScaleSetUpdate{Properties: &armcompute.VirtualMachineScaleSetUpdateProperties{
			VirtualMachineProfile: &armcompute.VirtualMachineScaleSetUpdateVMProfile{OSProfile: &armcompute.VirtualMachineScaleSetUpdateOSProfile{
				CustomData: ptr(base64.StdEncoding.EncodeToString([]byte("the model's")))}}}}); err != nil {
			t.Fatal(err)
		}
		if val(l.vm("pool1", "0").Properties.LatestModelApplied) {
			t.Error("an instance has an OS profile that came after it")
		}
		if err := l.reimageTo(armcompute.VirtualMachineScaleSetVMReimageParameters{}); err != nil {
			t.Fatal(err)
		}
		want("a reimage for the OS profile", newer, true)
		if got := string(l.sub.computer(t, "pool1000000").CustomData); got != "the model's" {
			t.Errorf("customData %q, want the model's", got)
		}
		bad := armcompute.VirtualMachineScaleSetVMReimageParameters{OSProfile: &armcompute.OSProfileProvisioningData{CustomData: ptr("?")}}
		wantRefusal(t, l.reimageTo(bad), "InvalidParameter", "Base64")
		bad = armcompute.VirtualMachineScaleSetVMReimageParameters{ExactVersion: ptr("new")}
		wantRefusal(t, l.reimageTo(bad), "InvalidParameter", "is not available")
	})
}

func TestReimageKeepsAGalleryVersion(t *testing.T) {
	withPool(t, 1, nil, func(t *testing.T, l *lab) {
		b := newBench(t, l.s, "")
		b.gen2Image()
		v1 := l.prototype(b, "1.0.0")
		definition, _, _ := strings.Cut(v1, "/versions/")
		if err := l.pin(definition); err != nil {
			t.Fatal(err)
		}
		want := func(after, id, version string) {
			t.Helper()
			if ref := l.vm("pool1", "0").Properties.StorageProfile.ImageReference; val(ref.ID) != id || val(ref.ExactVersion) != version {
				t.Errorf("%s: image %s, version %s", after, val(ref.ID), val(ref.ExactVersion))
			}
		}
		l.upgrade()
		v2 := l.prototype(b, "2.0.0")
		want("a new version", definition, "1.0.0")
		if err := l.reimageTo(armcompute.VirtualMachineScaleSetVMReimageParameters{}); err != nil {
			t.Fatal(err)
		}
		want("a reimage", definition, "1.0.0")
		if err := l.pin(v2); err != nil {
			t.Fatal(err)
		}
		l.upgrade()
		want("an upgrade", v2, "2.0.0")
		if err := l.reimageTo(armcompute.VirtualMachineScaleSetVMReimageParameters{ExactVersion: ptr("1.0.0")}); err != nil {
			t.Fatal(err)
		}
		want("a reimage to a version", v1, "1.0.0")
		if err := l.reimageTo(armcompute.VirtualMachineScaleSetVMReimageParameters{}); err != nil {
			t.Fatal(err)
		}
		want("a reimage of what was reimaged to a version", v1, "1.0.0")
	})
}
