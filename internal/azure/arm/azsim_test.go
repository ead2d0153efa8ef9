package arm_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
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
	// credential logs in as a client; nil needs no log-in.
	credential func(client string) (azcore.TokenCredential, error)
}

func (x site) cloud(t *testing.T, s *azsim.Server, client string) azure.Cloud {
	t.Helper()
	credential := s.Credential(client)
	if x.credential != nil {
		var err error
		if credential, err = x.credential(client); err != nil {
			t.Fatal(err)
		}
	}
	c, err := arm.New(arm.Options{Cloud: x.where, Credential: credential, Transport: x.transport, Version: "test"})
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

// create makes a scale set, in none of Azure's time.
func create(t testing.TB, s *azsim.Server, name string, set armcompute.VirtualMachineScaleSet) {
	t.Helper()
	spec := azsim.ScaleSetSpec{Name: name}
	text, err := json.Marshal(set)
	if err == nil {
		err = json.Unmarshal(text, &spec.Body)
	}
	if err == nil {
		err = s.Create(t.Context(), &azsim.Spec{ScaleSets: []azsim.ScaleSetSpec{spec}})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// fixture makes the pool that the suite wants.
func (x site) fixture(t *testing.T, s *azsim.Server) azuretest.Fixture {
	t.Helper()
	create(t, s, "pool1", fixturePool(2))
	return azuretest.Fixture{
		Cloud: x.cloud(t, s, azsim.DefaultClientID), Another: x.cloud(t, s, azsim.DefaultClientID),
		Pool:     "/subscriptions/" + azsim.DefaultSubscription + "/resourceGroups/" + azsim.DefaultResourceGroup + "/providers/Microsoft.Compute/virtualMachineScaleSets/pool1",
		Location: "westeurope", Size: "Standard_D2s_v5",
		Restricted: func(t *testing.T, actions []string) azure.Cloud { return x.cloud(t, s, clientWith(t, s, actions)) },
		Wait:       func(d time.Duration) { time.Sleep(d) },
		Fault: func(t *testing.T, f azuretest.Fault) {
			if err := s.AddFault(faultOf(f)); err != nil {
				t.Fatal(err)
			}
		},
	}
}

// faultOf is the suite's fault as azsim takes it.
func faultOf(f azuretest.Fault) azsim.Fault {
	return azsim.Fault{Method: f.Method, Path: regexp.QuoteMeta(string(f.Resource)) + "$", Count: 1, Effect: azsim.Effect(f.Effect),
		Status: f.Status, Code: f.Code, RetryAfterSeconds: int(f.RetryAfter / time.Second)}
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

// switchOn adds a fault by the control API, as one does to bin/azsim.
func switchOn(t *testing.T, web *httptest.Server, f azsim.Fault) {
	t.Helper()
	body, err := json.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := web.Client().Post(web.URL+"/azsim/faults", "application/json", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }() // only its status counts
	if resp.StatusCode != http.StatusCreated {
		t.Fatalf("adding a fault: %s", resp.Status)
	}
}

// The suite over a network with TLS, where Azure runs fast and clients log in by
// their secret.
func TestContractTLS(t *testing.T) {
	azuretest.Run(t, func(t *testing.T) azuretest.Fixture {
		s := &azsim.Server{Principals: principals(), Speed: 20000}
		web := httptest.NewTLSServer(s)
		t.Cleanup(func() {
			web.Close()
			s.Close()
		})
		x := site{where: azsim.Cloud(web.URL), transport: web.Client(), speed: s.Speed}
		x.credential = func(client string) (azcore.TokenCredential, error) {
			return azidentity.NewClientSecretCredential(azsim.DefaultTenant, client, secretOf(client), &azidentity.ClientSecretCredentialOptions{
				ClientOptions: policy.ClientOptions{Cloud: x.where, Transport: web.Client()}, DisableInstanceDiscovery: true,
			})
		}
		f := x.fixture(t, s)
		f.Wait = func(d time.Duration) { time.Sleep(min(d, 20*time.Millisecond)) }
		f.Fault = func(t *testing.T, f azuretest.Fault) { switchOn(t, web, faultOf(f)) }
		return f
	})
}

// secretOf is the client secret of a principal.
func secretOf(client string) string {
	if client == azsim.DefaultClientID {
		return azsim.DefaultClientSecret
	}
	return "secret of " + client
}

// principals are an owner, and one for each role that the suite wants: a
// server's principals are fixed before its first request.
func principals() []azsim.Principal {
	out := []azsim.Principal{{Name: "owner", ClientID: azsim.DefaultClientID, Secret: azsim.DefaultClientSecret, Roles: []azsim.Grant{{Role: "Owner"}}}}
	for i, actions := range azuretest.Roles() {
		id := fmt.Sprintf("aaaaaaaa-0000-4000-8000-%012d", i)
		out = append(out, azsim.Principal{Name: fmt.Sprintf("role %d", i), ClientID: id, Secret: secretOf(id), Roles: []azsim.Grant{{Actions: actions}}})
	}
	return out
}

// clientWith is the principal that may do just these actions.
func clientWith(t *testing.T, s *azsim.Server, actions []string) string {
	t.Helper()
	for _, p := range s.Principals {
		if slices.Equal(p.Roles[0].Actions, actions) {
			return p.ClientID
		}
	}
	t.Fatalf("no principal was made with the actions %v", actions)
	return ""
}
