package arm_test

import (
	"fmt"
	"io"
	"log"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"

	"github.com/ortet/ortet/internal/azsim"
	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/azure/azuretest"
	"github.com/ortet/ortet/internal/fleet"
)

// newMemberServer counts what Resource Manager is asked, and knows who has each role
// that the contract wants.
func newMemberServer() (*azsim.Server, *atomic.Int64) {
	asked := &atomic.Int64{}
	s := &azsim.Server{OnRequest: func(r azsim.Request) {
		if r.Action != "" {
			asked.Add(1)
		}
	}}
	s.Principals = []azsim.Principal{{Name: "owner", ClientID: azsim.DefaultClientID, Secret: azsim.DefaultClientSecret, Roles: []azsim.Grant{{Role: "Owner"}}}}
	for i, actions := range azuretest.MemberRoles() {
		id := fmt.Sprintf("bbbbbbbb-0000-4000-8000-%012d", i)
		s.Principals = append(s.Principals, azsim.Principal{Name: fmt.Sprintf("role %d", i), ClientID: id, Secret: secretOf(id), Roles: []azsim.Grant{{Actions: actions}}})
	}
	return s, asked
}

// memberPool is a pool of the members' contract: of two network interfaces, the second
// is the primary one, with an address of a pod.
func memberPool(instances int64, mode armcompute.OrchestrationMode) armcompute.VirtualMachineScaleSet {
	subnet := &armcompute.APIEntityReference{ID: ptr("/subscriptions/" + azsim.DefaultSubscription + "/resourceGroups/n/providers/Microsoft.Network/virtualNetworks/v/subnets/s")}
	conf := func(name string, primary bool) *armcompute.VirtualMachineScaleSetIPConfiguration {
		return &armcompute.VirtualMachineScaleSetIPConfiguration{Name: ptr(name), Properties: &armcompute.VirtualMachineScaleSetIPConfigurationProperties{Primary: ptr(primary), Subnet: subnet}}
	}
	nic := func(name string, primary bool, confs ...*armcompute.VirtualMachineScaleSetIPConfiguration) *armcompute.VirtualMachineScaleSetNetworkConfiguration {
		return &armcompute.VirtualMachineScaleSetNetworkConfiguration{Name: ptr(name), Properties: &armcompute.VirtualMachineScaleSetNetworkConfigurationProperties{Primary: ptr(primary), IPConfigurations: confs}}
	}
	p := bootPool(instances, mode)
	p.Properties.VirtualMachineProfile.NetworkProfile = &armcompute.VirtualMachineScaleSetNetworkProfile{
		NetworkInterfaceConfigurations: []*armcompute.VirtualMachineScaleSetNetworkConfiguration{nic("storage", false, conf("own", true)), nic("eth0", true, conf("pod", false), conf("own", true))},
	}
	if mode == armcompute.OrchestrationModeFlexible {
		p.Properties.VirtualMachineProfile.NetworkProfile.NetworkAPIVersion = ptr(armcompute.NetworkAPIVersion("2020-11-01"))
	}
	return p
}

func (x site) members(t *testing.T, s *azsim.Server, client string) azure.Members {
	t.Helper()
	m, ok := x.cloud(t, s, client).(azure.Members)
	if !ok {
		t.Fatal("the adapter does not know members")
	}
	return m
}

func done[T any](t *testing.T, p *runtime.Poller[T], err error) {
	t.Helper()
	if err == nil {
		_, err = p.PollUntilDone(t.Context(), &runtime.PollUntilDoneOptions{Frequency: time.Second})
	}
	if err != nil {
		t.Fatal(err)
	}
}

func (x site) memberFixture(t *testing.T, s *azsim.Server, asked *atomic.Int64, each int64) azuretest.MemberFixture {
	t.Helper()
	factory, err := armcompute.NewClientFactory(azsim.DefaultSubscription, s.Credential(""), s.ClientOptions())
	if err != nil {
		t.Fatal(err)
	}
	const rg = azsim.DefaultResourceGroup
	s.Instant(true)
	for name, mode := range map[string]armcompute.OrchestrationMode{"pool1": armcompute.OrchestrationModeUniform, "flex1": armcompute.OrchestrationModeFlexible} {
		p, err := factory.NewVirtualMachineScaleSetsClient().BeginCreateOrUpdate(t.Context(), rg, name, memberPool(each, mode), nil)
		done(t, p, err)
	}
	s.Instant(false)
	sets := fleet.ResourceID("/subscriptions/" + azsim.DefaultSubscription + "/resourceGroups/" + rg + "/providers/Microsoft.Compute/virtualMachineScaleSets/")
	return azuretest.MemberFixture{
		Members: x.members(t, s, azsim.DefaultClientID), Uniform: sets + "pool1", Flexible: sets + "flex1", Each: int(each), Interfaces: 2, PageSize: 50,
		Restricted: func(t *testing.T, actions []string) azure.Members {
			for _, p := range s.Principals {
				if slices.Equal(p.Roles[0].Actions, actions) {
					return x.members(t, s, p.ClientID)
				}
			}
			t.Fatalf("no principal was made with the actions %v", actions)
			return nil
		},
		Delete: func(t *testing.T, id fleet.ResourceID) {
			if set := id.Segment("virtualMachineScaleSets"); set != "" {
				p, err := factory.NewVirtualMachineScaleSetVMsClient().BeginDelete(t.Context(), rg, set, id.Name(), nil)
				done(t, p, err)
				return
			}
			p, err := factory.NewVirtualMachinesClient().BeginDelete(t.Context(), rg, id.Name(), nil)
			done(t, p, err)
		},
		Stop: func(t *testing.T, id fleet.ResourceID) {
			if set := id.Segment("virtualMachineScaleSets"); set != "" {
				p, err := factory.NewVirtualMachineScaleSetVMsClient().BeginDeallocate(t.Context(), rg, set, id.Name(), nil)
				done(t, p, err)
				return
			}
			p, err := factory.NewVirtualMachinesClient().BeginDeallocate(t.Context(), rg, id.Name(), nil)
			done(t, p, err)
		},
		Asked: func() int { return int(asked.Swap(0)) },
	}
}

func TestMembersContractInProcess(t *testing.T) {
	for _, tc := range azuretest.MemberCases() {
		t.Run(tc.Name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, asked := newMemberServer()
				defer s.Close()
				each := int64(3)
				if tc.Name == "Frugal" {
					each = 100
				}
				tc.Do(t, inProcess(s).memberFixture(t, s, asked, each))
			})
		})
	}
}

func TestMembersContractTLS(t *testing.T) {
	azuretest.RunMembers(t, func(t *testing.T) azuretest.MemberFixture {
		s, asked := newMemberServer()
		s.Speed = 20000
		web := httptest.NewUnstartedServer(s)
		web.Config.ErrorLog = log.New(io.Discard, "", 0) // of connections that are given up
		web.StartTLS()
		t.Cleanup(func() {
			web.Close()
			s.Close()
		})
		x := site{where: azsim.Cloud(web.URL), transport: web.Client()}
		x.credential = func(client string) (azcore.TokenCredential, error) {
			return azidentity.NewClientSecretCredential(azsim.DefaultTenant, client, secretOf(client), &azidentity.ClientSecretCredentialOptions{
				ClientOptions: policy.ClientOptions{Cloud: x.where, Transport: web.Client()}, DisableInstanceDiscovery: true,
			})
		}
		each := int64(3)
		if strings.HasSuffix(t.Name(), "/Frugal") {
			each = 101
		}
		return x.memberFixture(t, s, asked, each)
	})
}
