package arm_test

import (
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
	"github.com/ortet/ortet/internal/azure/azuretest"
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
	azuretest.Fixture
	t *testing.T
	s *azsim.Server
}

// before has a change that is begun fail the test where it needs an action that is not
// documented for it.
func (f fixture) before(change fleet.Change) (after func()) {
	allowed := azure.Actions(change.Verb())
	if f.Flexible {
		allowed = azure.OfFlexible(allowed)
	}
	before := len(f.s.Requests())
	return func() {
		f.t.Helper()
		for _, r := range f.s.Requests()[before:] {
			if r.Action != "" && !slices.ContainsFunc(allowed, func(a string) bool { return strings.EqualFold(a, r.Action) }) {
				f.t.Errorf("%s needs %s", change.Verb(), r.Action)
			}
		}
	}
}

func newFixture(t *testing.T, s *azsim.Server, cloud, another azure.Cloud, wait func(time.Duration), flexible bool) fixture {
	f := fixture{t: t, s: s, Fixture: azuretest.Fixture{T: t, Cloud: cloud, Another: another, Pool: simPool, Location: region, Size: size,
		Flexible: flexible, Wait: wait, Vault: simPool.In("vaults", "kv")}}
	f.Before = f.before
	return f
}

func only[T any](_ T, err error) error { return err }

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
				do(t, newFixture(t, s, inProcess(t, s, ""), inProcess(t, s, ""), time.Sleep, kind == fleet.Flexible))
			})
		})
	}
}

// What the adapter does shows in a fresh read of the simulated Azure. The checks of azuretest
// take any subscription; the others read or change the simulated Azure from inside.
func TestOnAzsim(t *testing.T) {
	for _, c := range azuretest.Checks() {
		onAzsim(t, c.Name, func(_ *testing.T, f fixture) { c.Do(f.Fixture) })
	}
	for name, do := range map[string]func(t *testing.T, f fixture){
		"OwnKeys": testOwnKeys, "Faults": testFaults, "Unprotectable": testUnprotectable,
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
	testFaults(t, newFixture(t, s, connect(t, where, credential, web.Client()), connect(t, where, credential, web.Client()),
		func(d time.Duration) { time.Sleep(min(d, 20*time.Millisecond)) }, false))
}
