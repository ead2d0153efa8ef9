package arm_test

import (
	"context"
	"fmt"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
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

// consoles is a Substrate of computers that do nothing but write their host names
// to their serial consoles.
type consoles struct {
	mu  sync.Mutex
	log map[string]string
}

func (*consoles) CreateVolume(context.Context, azsim.Volume, azsim.Source) error { return nil }
func (*consoles) DeleteVolume(context.Context, azsim.Volume) error               { return nil }
func (*consoles) Shutdown(context.Context, string, bool) error                   { return nil }
func (*consoles) Remove(context.Context, string) error                           { return nil }
func (*consoles) Attach(context.Context, string, int32, azsim.Volume) error      { return nil }
func (*consoles) Detach(context.Context, string, int32) error                    { return nil }

func (c *consoles) Boot(_ context.Context, x azsim.Computer) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.log == nil {
		c.log = map[string]string{}
	}
	c.log[x.ID] += "Welcome to " + x.HostName + "\n"
	return nil
}

func (c *consoles) Console(_ context.Context, id string) ([]byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return []byte(c.log[id]), nil
}

// bootPool is a pool of the boots' contract.
func bootPool(instances int64, mode armcompute.OrchestrationMode) armcompute.VirtualMachineScaleSet {
	p := fixturePool(instances)
	p.Properties.VirtualMachineProfile.DiagnosticsProfile = &armcompute.DiagnosticsProfile{BootDiagnostics: &armcompute.BootDiagnostics{Enabled: ptr(true)}}
	p.Properties.OrchestrationMode = ptr(mode)
	if mode == armcompute.OrchestrationModeFlexible {
		p.Properties.UpgradePolicy = nil
	}
	return p
}

// bootPrincipals are an owner, and one for each role that the contract wants.
func bootPrincipals() []azsim.Principal {
	out := []azsim.Principal{{Name: "owner", ClientID: azsim.DefaultClientID, Secret: azsim.DefaultClientSecret, Roles: []azsim.Grant{{Role: "Owner"}}}}
	for i, actions := range azuretest.BootRoles() {
		id := fmt.Sprintf("aaaaaaaa-0000-4000-8000-%012d", i)
		out = append(out, azsim.Principal{Name: fmt.Sprintf("role %d", i), ClientID: id, Secret: secretOf(id), Roles: []azsim.Grant{{Actions: actions}}})
	}
	return out
}

// newBootServer counts what Resource Manager is asked.
func newBootServer() (*azsim.Server, *atomic.Int64) {
	asked := &atomic.Int64{}
	s := &azsim.Server{Principals: bootPrincipals(), Substrate: &consoles{}, OnRequest: func(r azsim.Request) {
		if r.Action != "" {
			asked.Add(1)
		}
	}}
	return s, asked
}

func (x site) boots(t *testing.T, s *azsim.Server, client string) azure.Boots {
	t.Helper()
	b, ok := x.cloud(t, s, client).(azure.Boots)
	if !ok {
		t.Fatal("the adapter does not look at boots")
	}
	return b
}

func (x site) bootFixture(t *testing.T, s *azsim.Server, asked *atomic.Int64, each int64) azuretest.BootFixture {
	t.Helper()
	sets, err := armcompute.NewVirtualMachineScaleSetsClient(azsim.DefaultSubscription, s.Credential(""), s.ClientOptions())
	if err != nil {
		t.Fatal(err)
	}
	s.Instant(true)
	f := azuretest.BootFixture{Boots: x.boots(t, s, azsim.DefaultClientID), Each: int(each), PageSize: 50}
	for name, mode := range map[string]armcompute.OrchestrationMode{"pool1": armcompute.OrchestrationModeUniform, "flex1": armcompute.OrchestrationModeFlexible} {
		p, err := sets.BeginCreateOrUpdate(t.Context(), azsim.DefaultResourceGroup, name, bootPool(each, mode), nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.PollUntilDone(t.Context(), &runtime.PollUntilDoneOptions{Frequency: time.Second}); err != nil {
			t.Fatal(err)
		}
	}
	s.Instant(false)
	list, err := f.Boots.Pools(t.Context(), "/subscriptions/"+azsim.DefaultSubscription+"/resourceGroups/"+azsim.DefaultResourceGroup)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range list {
		if p.Name == "pool1" {
			f.Uniform = p
		} else {
			f.Flexible = p
		}
	}
	f.Restricted = func(t *testing.T, actions []string) azure.Boots {
		for _, p := range s.Principals {
			if slices.Equal(p.Roles[0].Actions, actions) {
				return x.boots(t, s, p.ClientID)
			}
		}
		t.Fatalf("no principal was made with the actions %v", actions)
		return nil
	}
	f.Tell = func(t *testing.T, instance fleet.ResourceID, told fleet.Boot) { tell(t, s, instance, told) }
	f.Asked = func() int { return int(asked.Swap(0)) }
	return f
}

// tell makes a simulated machine's agent report.
func tell(t *testing.T, s *azsim.Server, instance fleet.ResourceID, told fleet.Boot) {
	t.Helper()
	word := map[string]string{"succeeded": azsim.StatusSuccess, "failed": azsim.StatusError, "transitioning": azsim.StatusTransitioning}
	number := func(st fleet.BootStatus) int {
		if st.Reason == "" {
			return 0
		}
		n, err := strconv.Atoi(st.Reason)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	r := azsim.Report{Agent: &azsim.AgentReport{Version: told.Agent.Version, Ready: told.Agent.Ready, Message: told.Agent.Message, Time: told.Agent.Time}}
	for _, e := range told.Extensions {
		st := e.Statuses[0]
		x := azsim.ExtensionReport{Name: e.Name, Status: word[st.State], Code: number(st), Message: st.Message, Time: st.Time}
		for _, sub := range e.Substatuses {
			x.Substatus = append(x.Substatus, azsim.Substatus{Name: sub.Name, Status: word[sub.State], Code: number(sub), Message: sub.Message})
		}
		r.Extensions = append(r.Extensions, x)
	}
	if err := s.Report(string(instance), r); err != nil {
		t.Fatal(err)
	}
}

func TestBootsContractInProcess(t *testing.T) {
	for _, tc := range azuretest.BootCases() {
		t.Run(tc.Name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, asked := newBootServer()
				defer s.Close()
				each := int64(2)
				if tc.Name == "Frugal" {
					each = 100
				}
				tc.Do(t, inProcess(s).bootFixture(t, s, asked, each))
			})
		})
	}
}

func TestBootsContractTLS(t *testing.T) {
	azuretest.RunBoots(t, func(t *testing.T) azuretest.BootFixture {
		s, asked := newBootServer()
		s.Speed = 20000
		web := httptest.NewTLSServer(s)
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
		each := int64(2)
		if strings.HasSuffix(t.Name(), "/Frugal") {
			each = 101
		}
		return x.bootFixture(t, s, asked, each)
	})
}
