package arm_test

import (
	"fmt"
	"net/http/httptest"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"

	"github.com/ortet/ortet/internal/azsim"
	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/azure/arm"
	"github.com/ortet/ortet/internal/azure/azuretest"
)

func ptr[T any](v T) *T { return &v }

// site is how a test reaches a simulated Azure.
type site struct {
	where     cloud.Configuration
	transport policy.Transporter
	speed     float64
}

func (x site) cloud(t *testing.T, s *azsim.Server, client string) azure.Cloud {
	t.Helper()
	c, err := arm.New(arm.Options{Cloud: x.where, Credential: s.Credential(client), Transport: x.transport, Version: "test"})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// fixturePool is the body of the pool that the suite wants.
func fixturePool(instances int64) armcompute.VirtualMachineScaleSet {
	ext := func(name string, after ...*string) *armcompute.VirtualMachineScaleSetExtension {
		return &armcompute.VirtualMachineScaleSetExtension{Name: ptr(name), Properties: &armcompute.VirtualMachineScaleSetExtensionProperties{
			Publisher: ptr("Microsoft.Azure.Extensions"), Type: ptr("CustomScript"), TypeHandlerVersion: ptr("2.1"), ProvisionAfterExtensions: after,
		}}
	}
	return armcompute.VirtualMachineScaleSet{
		Location: ptr("westeurope"), Zones: []*string{ptr("1"), ptr("2")}, SKU: &armcompute.SKU{Name: ptr("Standard_D2s_v5"), Capacity: ptr(instances)},
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

// fixture makes the pool that the suite wants.
func (x site) fixture(t *testing.T, s *azsim.Server) azuretest.Fixture {
	t.Helper()
	o := s.ClientOptions()
	sets, err := armcompute.NewVirtualMachineScaleSetsClient(azsim.DefaultSubscription, s.Credential(""), o)
	if err != nil {
		t.Fatal(err)
	}
	p, err := sets.BeginCreateOrUpdate(t.Context(), azsim.DefaultResourceGroup, "pool1", fixturePool(2), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.PollUntilDone(t.Context(), &runtime.PollUntilDoneOptions{Frequency: time.Second}); err != nil {
		t.Fatal(err)
	}
	return azuretest.Fixture{
		Cloud: x.cloud(t, s, ""), Another: x.cloud(t, s, ""),
		Pool:     "/subscriptions/" + azsim.DefaultSubscription + "/resourceGroups/" + azsim.DefaultResourceGroup + "/providers/Microsoft.Compute/virtualMachineScaleSets/pool1",
		Location: "westeurope", Size: "Standard_D2s_v5",
		Restricted: func(t *testing.T, actions []string) azure.Cloud {
			for _, p := range s.Principals {
				if slices.Equal(p.Roles[0].Actions, actions) {
					return x.cloud(t, s, p.ClientID)
				}
			}
			t.Fatalf("no principal was made with the actions %v", actions)
			return nil
		},
		Wait: func(d time.Duration) { time.Sleep(d) },
	}
}

func inProcess(s *azsim.Server) site {
	return site{where: azsim.Cloud(azsim.InProcess), transport: s.Transport()}
}

// The suite in one process and virtual time: hours of Azure in milliseconds.
func TestContractInProcess(t *testing.T) {
	for _, tc := range azuretest.Cases() {
		t.Run(tc.Name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &azsim.Server{Principals: principals(), Seed: 1}
				defer s.Close()
				tc.Do(t, inProcess(s).fixture(t, s))
			})
		})
	}
}

// The suite over a network with TLS, where Azure runs fast.
func TestContractTLS(t *testing.T) {
	azuretest.Run(t, func(t *testing.T) azuretest.Fixture {
		s := &azsim.Server{Principals: principals(), Speed: 20000}
		web := httptest.NewTLSServer(s)
		t.Cleanup(func() {
			web.Close()
			s.Close()
		})
		x := site{where: azsim.Cloud(web.URL), transport: web.Client(), speed: s.Speed}
		f := x.fixture(t, s)
		f.Wait = func(d time.Duration) { time.Sleep(min(d, 20*time.Millisecond)) }
		return f
	})
}

// principals are an owner, and one for each role that the suite wants: a
// server's principals are fixed before its first request.
func principals() []azsim.Principal {
	out := []azsim.Principal{{Name: "owner", ClientID: azsim.DefaultClientID, Secret: azsim.DefaultClientSecret, Roles: []azsim.Grant{{Role: "Owner"}}}}
	for i, actions := range azuretest.Roles() {
		out = append(out, azsim.Principal{Name: fmt.Sprintf("role %d", i), ClientID: fmt.Sprintf("aaaaaaaa-0000-4000-8000-%012d", i), Roles: []azsim.Grant{{Actions: actions}}})
	}
	return out
}
