package arm_test

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"

	"github.com/ortet/ortet/azsim"
	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/azure/arm"
	"github.com/ortet/ortet/internal/fleet"
)

const (
	simGroup = fleet.ResourceID("/subscriptions/" + azsim.DefaultSubscription + "/resourceGroups/" + azsim.DefaultResourceGroup)
	simPool  = simGroup + "/providers/Microsoft.Compute/virtualMachineScaleSets/pool1"
	region   = "westeurope"
	size     = "Standard_D2s_v5"
)

func ptr[T any](v T) *T { return &v }

// A fixture is a simulated Azure with one pool in it, that of poolBody(2).
type fixture struct {
	t              *testing.T
	s              *azsim.Server
	cloud, another *arm.Cloud // another is what another process has
	wait           func(time.Duration)
	flexible       bool // the pool's instances are virtual machines
}

// instance is the id of an instance of the pool, which need not exist.
func (f fixture) instance(name string) fleet.ResourceID {
	if f.flexible {
		return simPool.In("virtualMachines", name)
	}
	return simPool.Child("virtualMachines", name)
}

func connect(t *testing.T, where cloud.Configuration, credential azcore.TokenCredential, transport policy.Transporter) *arm.Cloud {
	t.Helper()
	c, err := arm.New(arm.Options{Cloud: where, Credential: credential, Transport: transport, Version: "test"})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// inProcess connects to a server without a network.
func inProcess(t *testing.T, s *azsim.Server, client string) *arm.Cloud {
	t.Helper()
	return connect(t, azsim.Cloud(azsim.InProcess), s.Credential(client), s.Transport())
}

// poolBody is a Uniform scale set in a region with zones, made from a Marketplace
// image, with two extensions: "second" is provisioned after "first".
func poolBody(instances int64) armcompute.VirtualMachineScaleSet {
	ext := func(name string, after ...*string) *armcompute.VirtualMachineScaleSetExtension {
		return &armcompute.VirtualMachineScaleSetExtension{Name: ptr(name), Properties: &armcompute.VirtualMachineScaleSetExtensionProperties{
			Publisher: ptr("Microsoft.Azure.Extensions"), Type: ptr("CustomScript"), TypeHandlerVersion: ptr("2.1"), ProvisionAfterExtensions: after,
		}}
	}
	return armcompute.VirtualMachineScaleSet{
		Location: ptr(region), Zones: []*string{ptr("1"), ptr("2")}, SKU: &armcompute.SKU{Name: ptr(size), Capacity: ptr(instances)},
		Properties: &armcompute.VirtualMachineScaleSetProperties{
			Overprovision: ptr(false),
			UpgradePolicy: &armcompute.UpgradePolicy{Mode: ptr(armcompute.UpgradeModeManual)},
			VirtualMachineProfile: &armcompute.VirtualMachineScaleSetVMProfile{
				OSProfile: &armcompute.VirtualMachineScaleSetOSProfile{ComputerNamePrefix: ptr("pool1"), AdminUsername: ptr("azureuser"), AdminPassword: ptr("Corr3ct-horse"), CustomData: ptr("I2Nsb3VkLWNvbmZpZwo=")},
				StorageProfile: &armcompute.VirtualMachineScaleSetStorageProfile{
					ImageReference: &armcompute.ImageReference{Publisher: ptr("Canonical"), Offer: ptr("ubuntu-24_04-lts"), SKU: ptr("server"), Version: ptr("latest")},
				},
				ExtensionProfile: &armcompute.VirtualMachineScaleSetExtensionProfile{Extensions: []*armcompute.VirtualMachineScaleSetExtension{ext("first"), ext("second", ptr("first"))}},
			},
		},
	}
}

// flexBody is poolBody as a Flexible scale set.
func flexBody(instances int64) armcompute.VirtualMachineScaleSet {
	b := poolBody(instances)
	b.Properties.OrchestrationMode, b.Properties.PlatformFaultDomainCount, b.Properties.Overprovision = ptr(armcompute.OrchestrationModeFlexible), ptr(int32(1)), nil
	nic := &armcompute.VirtualMachineScaleSetNetworkConfiguration{Name: ptr("nic"), Properties: &armcompute.VirtualMachineScaleSetNetworkConfigurationProperties{
		Primary: ptr(true), IPConfigurations: []*armcompute.VirtualMachineScaleSetIPConfiguration{{Name: ptr("ip")}}}}
	b.Properties.VirtualMachineProfile.NetworkProfile = &armcompute.VirtualMachineScaleSetNetworkProfile{
		NetworkAPIVersion: ptr(armcompute.NetworkAPIVersionTwoThousandTwenty1101), NetworkInterfaceConfigurations: []*armcompute.VirtualMachineScaleSetNetworkConfiguration{nic}}
	return b
}

// done waits until what was begun with the SDK has ended.
func done[T any](t *testing.T, p *runtime.Poller[T], err error) {
	t.Helper()
	if err == nil {
		_, err = p.PollUntilDone(t.Context(), &runtime.PollUntilDoneOptions{Frequency: time.Second})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// sdk is what tests change the simulated Azure with, besides the adapter.
func sdk(t *testing.T, s *azsim.Server) *armcompute.ClientFactory {
	t.Helper()
	factory, err := armcompute.NewClientFactory(azsim.DefaultSubscription, s.Credential(""), s.ClientOptions())
	if err != nil {
		t.Fatal(err)
	}
	return factory
}

// onAzsim runs a test in one process and virtual time, on a Uniform and a Flexible pool:
// hours of Azure in milliseconds.
func onAzsim(t *testing.T, name string, do func(t *testing.T, f fixture)) {
	t.Helper()
	for kind, body := range map[string]armcompute.VirtualMachineScaleSet{fleet.Uniform: poolBody(2), fleet.Flexible: flexBody(2)} {
		t.Run(name+"/"+kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &azsim.Server{Seed: 1}
				defer s.Close()
				p, err := sdk(t, s).NewVirtualMachineScaleSetsClient().BeginCreateOrUpdate(t.Context(), azsim.DefaultResourceGroup, "pool1", body, nil)
				done(t, p, err)
				do(t, fixture{t, s, inProcess(t, s, ""), inProcess(t, s, ""), time.Sleep, kind == fleet.Flexible})
			})
		})
	}
}

// What the adapter does shows in a fresh read of the simulated Azure.
func TestOnAzsim(t *testing.T) {
	for name, do := range map[string]func(t *testing.T, f fixture){
		"Reads": testReads, "Missing": testMissing, "Power": testPower, "Protection": testProtection, "Snapshot": testSnapshots, "DataDisk": testDataDisks, "Image": testImages, "OwnKeys": testOwnKeys,
		"Latest": testLatest, "Extensions": testExtensions, "Capacity": testCapacity, "Conditions": testConditions, "Resume": testResume, "Faults": testFaults, "Unprotectable": testUnprotectable,
		"Remade": testRemade, "Rest": testRest, "Requests": testRequests, "Machines": testMachines,
	} {
		onAzsim(t, name, do)
	}
}

// Over a network with TLS, where Azure runs fast and clients log in by their secret,
// faults show as the same errors.
func TestFaultsOverTLS(t *testing.T) {
	s := &azsim.Server{Principals: []azsim.Principal{{Name: "owner", ClientID: azsim.DefaultClientID, Secret: azsim.DefaultClientSecret, Roles: []azsim.Grant{{Role: "Owner"}}}}, Speed: 20000}
	web := httptest.NewTLSServer(s)
	t.Cleanup(func() {
		web.Close()
		s.Close()
	})
	p, err := sdk(t, s).NewVirtualMachineScaleSetsClient().BeginCreateOrUpdate(t.Context(), azsim.DefaultResourceGroup, "pool1", poolBody(2), nil)
	done(t, p, err)
	where := azsim.Cloud(web.URL)
	credential, err := azidentity.NewClientSecretCredential(azsim.DefaultTenant, azsim.DefaultClientID, azsim.DefaultClientSecret, &azidentity.ClientSecretCredentialOptions{
		ClientOptions: policy.ClientOptions{Cloud: where, Transport: web.Client()}, DisableInstanceDiscovery: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	testFaults(t, fixture{t, s, connect(t, where, credential, web.Client()), connect(t, where, credential, web.Client()),
		func(d time.Duration) { time.Sleep(min(d, 20*time.Millisecond)) }, false})
}

// maxPolls bounds how often one operation is polled.
const maxPolls = 2000

// finish begins a change and waits for its end.
func (f fixture) finish(change fleet.Change) {
	f.t.Helper()
	if err := f.try(change); err != nil {
		f.t.Fatal(err)
	}
}

// try also checks that beginning a change needs no action that is not documented.
func (f fixture) try(change fleet.Change) error {
	f.t.Helper()
	allowed := azure.Actions(change.Verb())
	if f.flexible {
		allowed = azure.OfFlexible(allowed)
	}
	before := len(f.s.Requests())
	tok, err := f.cloud.Begin(f.t.Context(), change)
	for _, r := range f.s.Requests()[before:] {
		if r.Action != "" && !slices.ContainsFunc(allowed, func(a string) bool { return strings.EqualFold(a, r.Action) }) {
			f.t.Errorf("%s needs %s", change.Verb(), r.Action)
		}
	}
	if err != nil {
		return err
	}
	return f.follow(f.cloud, tok)
}

func (f fixture) follow(c azure.Cloud, tok fleet.Token) error {
	f.t.Helper()
	if tok == "" {
		return nil
	}
	for range maxPolls {
		p, err := c.Poll(f.t.Context(), tok)
		if err != nil || p.Done {
			return err
		}
		if p.Wait <= 0 || p.Percent < -1 || p.Percent > 100 {
			f.t.Fatalf("an operation that runs: %+v", p)
		}
		f.wait(p.Wait)
	}
	return errors.New("the operation does not end")
}

// again begins a change whose effect is there: it must change nothing.
func (f fixture) again(change fleet.Change) {
	f.t.Helper()
	if tok, err := f.cloud.Begin(f.t.Context(), change); err != nil || tok != "" {
		f.t.Errorf("%s again: token %.20q, error %v", change.Verb(), tok, err)
	}
}

// instances lists the pool's, of which there must be n.
func (f fixture) instances(n int) []fleet.Instance {
	f.t.Helper()
	list := get(f.t, f.cloud.Instances, simPool)
	if len(list) != n {
		f.t.Fatalf("%d instances, want %d", len(list), n)
	}
	return list
}

func (f fixture) uses(definition fleet.ResourceID) []fleet.ImageUse {
	f.t.Helper()
	return get(f.t, func(ctx context.Context, id fleet.ResourceID) ([]fleet.ImageUse, error) { return f.cloud.Uses(ctx, id) }, definition)
}

func get[T any](t *testing.T, read func(context.Context, fleet.ResourceID) (T, error), id fleet.ResourceID) T {
	t.Helper()
	v, err := read(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// wantKind fails unless the error has the kind, and names what was tried on what.
func wantKind(t *testing.T, err error, kind fleet.Kind) {
	t.Helper()
	var e *fleet.Error
	if !errors.As(err, &e) || e.Kind != kind || e.Op == "" || e.Resource == "" {
		t.Errorf("%+v (%v), want kind %q", e, err, kind)
	}
}

func only[T any](_ T, err error) error { return err }

func testReads(t *testing.T, f fixture) {
	p := get(t, f.cloud.Pool, simPool)
	if !p.ID.Equal(simPool) || p.Name != simPool.Name() || p.Location != region || p.Size != size || p.Capacity != 2 {
		t.Errorf("pool %+v", p)
	}
	if (p.Orchestration == fleet.Flexible) != f.flexible || p.Model.Created.IsZero() == f.flexible || p.UpgradeMode != fleet.Manual || p.AutomaticOSUpgrade || p.AutomaticRepairs || p.Spot || p.ProvisioningState != "Succeeded" || len(p.Zones) == 0 {
		t.Errorf("pool %+v", p)
	}
	m := p.Model
	if m.Image.ID != "" || m.Image.Publisher == "" || m.Image.Offer == "" || m.Image.SKU == "" || m.Image.Version == "" || !m.Linux || m.EphemeralOS {
		t.Errorf("model %+v", m)
	}
	if len(m.Extensions) != 2 || m.Extensions[0].Name != "first" || m.Extensions[1].Name != "second" || !slices.Equal(m.Extensions[1].After, []string{"first"}) {
		t.Errorf("extensions %+v", m.Extensions)
	}
	for _, i := range f.instances(2) {
		if !i.ID.Equal(f.instance(i.ID.Name())) || !i.Pool.Equal(simPool) || i.InstanceID != i.ID.Name() || i.HostName == "" || i.VMID == "" || i.Size != size || !i.MadeFrom(p) {
			t.Errorf("instance %+v", i)
		}
		if i.Power != fleet.PowerRunning || i.ProvisioningState != "Succeeded" || i.Generation == "" || i.OSDisk == "" || len(i.DataDisks) != 0 || i.Zone == "" {
			t.Errorf("instance %+v", i)
		}
		if one := get(t, f.cloud.Instance, i.ID); fmt.Sprint(one) != fmt.Sprint(i) {
			t.Errorf("an instance looks different alone and in the list:\n%+v\n%+v", one, i)
		}
		if upper := get(t, f.cloud.Instance, fleet.ResourceID(strings.ToUpper(string(i.ID)))); !upper.ID.Equal(i.ID) {
			t.Errorf("letter case counts: %s", upper.ID)
		}
		d := get(t, f.cloud.Disk, i.OSDisk)
		if !d.ID.Equal(i.OSDisk) || d.Location != region || d.Zone != i.Zone || d.SizeGB <= 0 || d.SKU == "" || !d.ManagedBy.Equal(i.ID) ||
			d.Generation != i.Generation || d.Architecture == "" || d.ProvisioningState != "Succeeded" {
			t.Errorf("disk %+v", d)
		}
	}
	s, err := f.cloud.Size(t.Context(), simPool.Segment("subscriptions"), region, size)
	if err != nil || s.Name != size || s.Architecture == "" || len(s.Generations) == 0 || len(s.Controllers) == 0 || s.MaxDataDisks <= 0 {
		t.Errorf("size %+v, %v", s, err)
	}
}

func testMissing(t *testing.T, f fixture) {
	ctx := t.Context()
	gallery := simPool.In("galleries", "none")
	definition := gallery.Child("images", "none")
	version := definition.Child("versions", "1.0.0")
	instance := f.instance("999")
	for name, err := range map[string]error{
		"pool":             only(f.cloud.Pool(ctx, simPool.In("virtualMachineScaleSets", "none"))),
		"pool's instances": only(f.cloud.Instances(ctx, simPool.In("virtualMachineScaleSets", "none"))),
		"instance":         only(f.cloud.Instance(ctx, instance)),
		"disk":             only(f.cloud.Disk(ctx, simPool.In("disks", "none"))),
		"snapshot":         only(f.cloud.Snapshot(ctx, simPool.In("snapshots", "none"))),
		"gallery":          only(f.cloud.Gallery(ctx, gallery)),
		"definition":       only(f.cloud.Definition(ctx, definition)),
		"size":             only(f.cloud.Size(ctx, simPool.Segment("subscriptions"), region, "Standard_None")),
		"instance to stop": only(f.cloud.Begin(ctx, fleet.StopInstance{Instance: instance})),
		"version":          only(f.cloud.Version(ctx, version)),
		"version to tag":   only(f.cloud.Begin(ctx, fleet.TagVersion{ID: version, Tags: map[string]string{"a": "b"}})),
	} {
		if !fleet.Is(err, fleet.KindNotFound) { // no subtests in virtual time
			t.Errorf("%s: %v", name, err)
		}
	}
	if list, err := f.cloud.Versions(ctx, definition); err != nil || len(list) != 0 {
		t.Errorf("versions of a missing definition: %v, %v", list, err)
	}
	if list, err := f.cloud.Uses(ctx, definition); err != nil || len(list) != 0 {
		t.Errorf("uses of a missing definition: %v, %v", list, err)
	}
	for _, ch := range []fleet.Change{
		fleet.DeleteSnapshot{ID: simPool.In("snapshots", "none")}, fleet.DeleteDisk{ID: simPool.In("disks", "none")},
		fleet.DeleteVersion{ID: version}, fleet.DeleteExtension{Pool: simPool, Name: "none"}, fleet.DetachDisk{Instance: instance, Disk: simPool.In("disks", "none")},
	} {
		f.again(ch)
	}
}
