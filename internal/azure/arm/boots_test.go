package arm_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"

	"github.com/ortet/ortet/azsim"
	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/azure/arm"
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

var (
	uniformPool  = fleet.Pool{ID: simPool, Name: "pool1", Orchestration: fleet.Uniform}
	flexiblePool = fleet.Pool{ID: simPool.In("virtualMachineScaleSets", "flex1"), Name: "flex1", Orchestration: fleet.Flexible}
)

// onTwoPools runs a test on a simulated Azure with one pool of each orchestration mode
// in one resource group, each of three running instances with managed boot diagnostics
// and two network interfaces: the second is the primary one, with an address of a pod.
func onTwoPools(t *testing.T, do func(t *testing.T, s *azsim.Server, c *arm.Cloud), more ...azsim.Principal) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &azsim.Server{Substrate: &consoles{}, Principals: append([]azsim.Principal{{Name: "owner", ClientID: azsim.DefaultClientID, Roles: []azsim.Grant{{Role: "Owner"}}}}, more...)}
		defer s.Close()
		subnet := &armcompute.APIEntityReference{ID: ptr("/subscriptions/" + azsim.DefaultSubscription + "/resourceGroups/n/providers/Microsoft.Network/virtualNetworks/v/subnets/s")}
		conf := func(name string, primary bool) *armcompute.VirtualMachineScaleSetIPConfiguration {
			return &armcompute.VirtualMachineScaleSetIPConfiguration{Name: ptr(name), Properties: &armcompute.VirtualMachineScaleSetIPConfigurationProperties{Primary: ptr(primary), Subnet: subnet}}
		}
		nic := func(name string, primary bool, confs ...*armcompute.VirtualMachineScaleSetIPConfiguration) *armcompute.VirtualMachineScaleSetNetworkConfiguration {
			return &armcompute.VirtualMachineScaleSetNetworkConfiguration{Name: ptr(name), Properties: &armcompute.VirtualMachineScaleSetNetworkConfigurationProperties{Primary: ptr(primary), IPConfigurations: confs}}
		}
		s.Instant(true)
		for _, pool := range []fleet.Pool{uniformPool, flexiblePool} {
			body := poolBody(3)
			profile := body.Properties.VirtualMachineProfile
			profile.DiagnosticsProfile = &armcompute.DiagnosticsProfile{BootDiagnostics: &armcompute.BootDiagnostics{Enabled: ptr(true)}}
			profile.NetworkProfile = &armcompute.VirtualMachineScaleSetNetworkProfile{
				NetworkInterfaceConfigurations: []*armcompute.VirtualMachineScaleSetNetworkConfiguration{nic("storage", false, conf("own", true)), nic("eth0", true, conf("pod", false), conf("own", true))},
			}
			body.Properties.OrchestrationMode = ptr(armcompute.OrchestrationMode(pool.Orchestration))
			if pool.Orchestration == fleet.Flexible {
				body.Properties.UpgradePolicy, body.Properties.PlatformFaultDomainCount = nil, ptr(int32(1))
				profile.NetworkProfile.NetworkAPIVersion = ptr(armcompute.NetworkAPIVersion("2020-11-01"))
			}
			p, err := sdk(t, s).NewVirtualMachineScaleSetsClient().BeginCreateOrUpdate(t.Context(), azsim.DefaultResourceGroup, pool.Name, body, nil)
			done(t, p, err)
		}
		s.Instant(false)
		do(t, s, inProcess(t, s, azsim.DefaultClientID))
	})
}

func bootsOf(t *testing.T, c *arm.Cloud, pool fleet.Pool) []fleet.Boot {
	t.Helper()
	list, err := c.Boots(t.Context(), pool)
	if err != nil || len(list) != 3 {
		t.Fatalf("%d instances of %s, %v", len(list), pool.Name, err)
	}
	return list
}

func TestBoots(t *testing.T) {
	onTwoPools(t, func(t *testing.T, _ *azsim.Server, c *arm.Cloud) {
		modes := map[string]string{}
		for _, p := range azuretest.Get(t, c.Pools, simGroup) {
			modes[p.Name] = p.Orchestration
			if p.ID.Name() != p.Name || p.Capacity != 3 {
				t.Errorf("%s has capacity %d", p.ID, p.Capacity)
			}
		}
		if want := map[string]string{"pool1": fleet.Uniform, "flex1": fleet.Flexible}; !reflect.DeepEqual(modes, want) {
			t.Errorf("pools %v, want %v", modes, want)
		}
		for pool, kind := range map[*fleet.Pool]string{&uniformPool: "virtualMachineScaleSets", &flexiblePool: "virtualMachines"} {
			ids, vms := map[fleet.ResourceID]bool{"": true}, map[string]bool{"": true}
			for _, b := range bootsOf(t, c, *pool) {
				if ids[b.Instance] || vms[b.VMID] || vms[b.HostName] {
					t.Errorf("not of its own: %+v", b)
				}
				ids[b.Instance], vms[b.VMID], vms[b.HostName] = true, true, true
				if !b.Pool.Equal(pool.ID) || b.Flexible != (pool == &flexiblePool) || b.Instance.Segment("Microsoft.Compute") != kind || !strings.HasPrefix(b.Name, pool.Name+"_") ||
					b.ProvisioningState != "Succeeded" || b.Provisioning.State != "succeeded" || b.Power != fleet.PowerRunning || b.Created.IsZero() || b.Image == "" || !b.Console || b.ConsoleStorage != "" ||
					!b.Agent.Ready || b.Agent.Version == "" || b.Agent.Time.IsZero() ||
					len(b.Extensions) != 2 || b.Extensions[0].Name != "first" || b.Extensions[0].Type == "" || len(b.Extensions[0].Statuses) != 1 || b.Extensions[0].Statuses[0].State != "succeeded" {
					t.Errorf("%+v", b)
				}
				if log := azuretest.Get(t, c.SerialLog, b.Instance); !strings.Contains(string(log), b.HostName) {
					t.Errorf("%s: %q", b.Name, log)
				}
			}
		}
		if list, err := c.Boots(t.Context(), fleet.Pool{ID: simPool.In("virtualMachineScaleSets", "none"), Orchestration: fleet.Flexible}); err != nil || len(list) > 0 {
			t.Errorf("of no Flexible pool: %v, %v", list, err)
		}
	})
}

// Both interfaces say alike what is missing, and what is no ID of theirs.
func TestBootsAndMembersThatAreMissing(t *testing.T) {
	onTwoPools(t, func(t *testing.T, _ *azsim.Server, c *arm.Cloud) {
		ctx := t.Context()
		none, disk := simPool.In("virtualMachineScaleSets", "none"), simPool.In("disks", "d")
		for _, id := range []fleet.ResourceID{simPool.Child("virtualMachines", "4711"), none.Child("virtualMachines", "0"), simPool.In("virtualMachines", "none")} {
			azuretest.WantKind(t, only(c.SerialLog(ctx, id)), fleet.KindNotFound)
			azuretest.WantKind(t, only(c.Member(ctx, id)), fleet.KindNotFound)
		}
		azuretest.WantKind(t, only(c.Boots(ctx, fleet.Pool{ID: none, Orchestration: fleet.Uniform})), fleet.KindNotFound)
		azuretest.WantKind(t, only(c.Members(ctx, none, false)), fleet.KindNotFound)
		for _, err := range []error{
			only(c.SerialLog(ctx, "")), only(c.SerialLog(ctx, "x")), only(c.SerialLog(ctx, simPool)), only(c.SerialLog(ctx, disk)),
			only(c.Boots(ctx, fleet.Pool{ID: disk})), only(c.Pools(ctx, simPool)), only(c.Members(ctx, disk, false)),
		} {
			if !fleet.Is(err, fleet.KindInvalid) {
				t.Errorf("%v", err)
			}
		}
	})
}

// Each documented action is needed, and named by the error where it is missing.
func TestBootsAndMembersDenied(t *testing.T) {
	addressed := func(list []fleet.Member, err error) error {
		for _, m := range list {
			if len(m.Addresses) == 0 && err == nil {
				return fmt.Errorf("no addresses: %+v", m)
			}
		}
		return err
	}
	for name, tc := range map[string]struct {
		actions []string
		ask     func(ctx context.Context, c *arm.Cloud, pool fleet.Pool, id fleet.ResourceID) []error
	}{
		"boots": {azure.BootActions(), func(ctx context.Context, c *arm.Cloud, pool fleet.Pool, id fleet.ResourceID) []error {
			return []error{only(c.Pools(ctx, simGroup)), only(c.Boots(ctx, pool)), only(c.SerialLog(ctx, id))}
		}},
		"members": {azure.MemberActions(), func(ctx context.Context, c *arm.Cloud, pool fleet.Pool, id fleet.ResourceID) []error {
			one, err := c.Member(ctx, id)
			return []error{addressed(c.Members(ctx, pool.ID, true)), addressed([]fleet.Member{one}, err)}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			principals := []azsim.Principal{{Name: "all", ClientID: "all", Roles: []azsim.Grant{{Actions: tc.actions}}}}
			for _, a := range tc.actions {
				principals = append(principals, azsim.Principal{Name: a, ClientID: a, Roles: []azsim.Grant{{Actions: append(without(tc.actions, a), "Microsoft.Storage/storageAccounts/read")}}})
			}
			onTwoPools(t, func(t *testing.T, s *azsim.Server, owner *arm.Cloud) {
				for _, p := range principals {
					var denied []error
					for _, pool := range []fleet.Pool{uniformPool, flexiblePool} {
						for _, err := range tc.ask(t.Context(), inProcess(t, s, p.ClientID), pool, bootsOf(t, owner, pool)[0].Instance) {
							if err != nil {
								denied = append(denied, err)
							}
						}
					}
					if (len(denied) == 0) != (p.Name == "all") {
						t.Errorf("%s: %v", p.Name, denied)
					}
					for _, err := range denied {
						if !fleet.Is(err, fleet.KindDenied) || !strings.Contains(strings.ToLower(err.Error()), strings.ToLower(p.Name)) {
							t.Errorf("without %s: %v", p.Name, err)
						}
					}
				}
			}, principals...)
		})
	}
}

func without(all []string, action string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(a string) bool { return a == action })
}

// A node of a Flexible pool is refused with the reason, and its pool does not disturb
// what is read of others.
func TestFlexibleMembersAreMachines(t *testing.T) {
	onTwoPools(t, func(t *testing.T, _ *azsim.Server, c *arm.Cloud) {
		for _, b := range bootsOf(t, c, flexiblePool) {
			if id, err := fleet.ParseMachine("azure://" + string(b.Instance)); err != nil || !id.Equal(b.Instance) {
				t.Errorf("%s, %v", id, err)
			}
		}
		if uses, err := c.Uses(t.Context(), simGroup.In("galleries", "g").Child("images", "i")); err != nil || len(uses) > 0 {
			t.Errorf("%v, %v", uses, err)
		}
	})
}

// view is an answer of Azure's, cut down from its documentation of instance
// views, with what has been seen to be missing or odd.
const view = `{"value":[null,{"id":"` + string(instance) + `","name":"p_3","zones":["2"],"properties":{"vmId":"5e8f","provisioningState":"Failed",
	"timeCreated":"2026-11-21T07:00:00.5+00:00","osProfile":{"computerName":"p000003"},"storageProfile":{"imageReference":{"id":"` + aDefinition + `","exactVersion":"2026.11.21"}},
	"diagnosticsProfile":{"bootDiagnostics":{"enabled":true,"storageUri":"https://mine.invalid/"}},
	"instanceView":{"statuses":[null,{"code":"ProvisioningState/failed/OSProvisioningTimedOut","level":"Error","displayStatus":"Provisioning failed","message":"did not finish","time":"2026-11-21T08:00:00Z"},
	{"code":"PowerState/Running","level":"Info","time":null}],
	"vmAgent":{"vmAgentVersion":"Unknown","statuses":[{"code":"ProvisioningState/Unavailable","level":"Warning","displayStatus":"Not Ready","message":"no status blob","time":"soon"}],"extensionHandlers":[]},
	"extensions":[null,{"name":"boot","type":"Ortet.NodeBootstrap","typeHandlerVersion":"1.0","statuses":[],"substatuses":[{"code":"ComponentStatus/kubelet/failed/3","level":"Error","time":"2026-11-21T08:00:01"}]}]}}}]}`

func TestBootOnTheWire(t *testing.T) {
	c, s := newCloud(t, answer{status: 200, body: view})
	got, err := c.Boots(t.Context(), fleet.Pool{ID: pool})
	if err != nil {
		t.Fatal(err)
	}
	at := time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC)
	want := []fleet.Boot{{
		Instance: instance, Pool: pool, Name: "p_3", VMID: "5e8f", HostName: "p000003", Zone: "2", Image: aDefinition + "/versions/2026.11.21", Created: time.Date(2026, 11, 21, 7, 0, 0, 5e8, time.UTC),
		ProvisioningState: "Failed", Power: fleet.PowerRunning, ConsoleStorage: "https://mine.invalid/",
		Provisioning: fleet.BootStatus{Code: "ProvisioningState/failed/OSProvisioningTimedOut", State: "failed", Reason: "OSProvisioningTimedOut", Level: "Error", Display: "Provisioning failed", Message: "did not finish", Time: at},
		Agent:        fleet.Agent{Version: "Unknown", Message: "no status blob"},
		Extensions: []fleet.ExtensionStatus{{Name: "boot", Type: "Ortet.NodeBootstrap", Version: "1.0",
			Substatuses: []fleet.BootStatus{{Code: "ComponentStatus/kubelet/failed/3", Name: "kubelet", State: "failed", Reason: "3", Level: "Error", Time: at.Add(time.Second)}}}},
	}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v\nwant %+v", got, want)
	}
	if q := s.sent[0].query; !strings.Contains(q, "expand=instanceView") {
		t.Errorf("asked %s", q)
	}

	// Machines of other sets are passed over, should Azure ignore the filter.
	c, s = newCloud(t, answer{status: 200, body: `{"value":[{"name":"mine","properties":{"virtualMachineScaleSet":{"id":"` + strings.ToUpper(string(pool)) + `"}}},
		{"name":"yours","properties":{"virtualMachineScaleSet":{"id":"` + string(pool) + `2"}}}]}`})
	got, err = c.Boots(t.Context(), fleet.Pool{ID: pool, Orchestration: fleet.Flexible})
	if err != nil || len(got) != 1 || got[0].Name != "mine" || !got[0].Flexible {
		t.Errorf("%+v, %v", got, err)
	}
	q, err := url.ParseQuery(s.sent[0].query)
	if err != nil || q.Get("$filter") != "'virtualMachineScaleSet/id' eq '"+string(pool)+"'" || q.Get("$expand") != "instanceView" || s.sent[0].path != comp+"/virtualMachines" {
		t.Errorf("asked %s?%s", s.sent[0].path, s.sent[0].query)
	}
}

const aDefinition = group + "/providers/Microsoft.Compute/galleries/g/images/d"

func TestImageOfAMachine(t *testing.T) {
	for reference, want := range map[string]string{
		`null`: "",
		`{}`:   "",
		`{"publisher":"Debian","offer":"debian-12","sku":"12-gen2","version":"latest","exactVersion":"0.20261101.1"}`: "Debian:debian-12:12-gen2:0.20261101.1",
		`{"publisher":"Debian","offer":"debian-12","sku":"12-gen2","version":"latest"}`:                               "Debian:debian-12:12-gen2:latest",
		`{"id":"` + aDefinition + `/versions/1.0.0","exactVersion":"1.0.0"}`:                                          aDefinition + "/versions/1.0.0",
		`{"id":"` + aDefinition + `"}`: aDefinition,
		`{"communityGalleryImageId":"/CommunityGalleries/c/images/d","exactVersion":"2.0.0"}`: "/CommunityGalleries/c/images/d/versions/2.0.0",
		`{"id":"` + group + `/providers/Microsoft.Compute/images/old","exactVersion":"7"}`:    string(group) + "/providers/Microsoft.Compute/images/old",
	} {
		c, _ := newCloud(t, answer{status: 200, body: `{"value":[{"properties":{"storageProfile":{"imageReference":` + reference + `}}}]}`})
		got, err := c.Boots(t.Context(), fleet.Pool{ID: pool})
		if err != nil || len(got) != 1 || got[0].Image != want {
			t.Errorf("%s: %+v, %v; want %q", reference, got, err, want)
		}
	}
}

// However much a machine says, a bounded part of it is kept.
func TestBootIsBounded(t *testing.T) {
	many := func(n int, item string) string { return "[" + strings.Repeat(item+",", n-1) + item + "]" }
	status := `{"code":"ComponentStatus/` + strings.Repeat("a/", 900) + `succeeded","message":"` + strings.Repeat("é", 20000) + `"}`
	body := `{"value":[{"properties":{"instanceView":{"extensions":` + many(100, `{"statuses":`+many(3, `{}`)+`,"substatuses":`+many(200, `{"code":"x"}`)+`}`) + `,
		"vmAgent":{"statuses":[` + status + `]}}}}]}`
	p := &parrot{status: 200, body: body, most: 1}
	c, err := arm.New(arm.Options{
		Cloud: cloud.Configuration{ActiveDirectoryAuthorityHost: base + "/",
			Services: map[cloud.ServiceName]cloud.ServiceConfiguration{cloud.ResourceManager: {Endpoint: base, Audience: base}}},
		Credential: static{}, Transport: p,
	})
	if err != nil {
		t.Fatal(err)
	}
	list, err := c.Boots(t.Context(), fleet.Pool{ID: pool})
	if err != nil || len(list) != 1 {
		t.Fatalf("%d, %v", len(list), err)
	}
	b := list[0]
	if n := len(b.Agent.Message); n > 32<<10 || n < 32<<10-2 || !utf8.ValidString(b.Agent.Message) {
		t.Errorf("a message of %d bytes", n)
	}
	if len(b.Extensions) != 64 || len(b.Extensions[0].Statuses) != 3 || len(b.Extensions[0].Substatuses) != 64 {
		t.Errorf("%d extensions, %d substatuses", len(b.Extensions), len(b.Extensions[0].Substatuses))
	}
}

func FuzzBoots(f *testing.F) {
	f.Add(view)
	f.Add(`{"value":[{}]}`)
	f.Add(`{"value":[{"properties":{"instanceView":{"statuses":[{"code":"PowerState/"}],"extensions":[{},null]}}}],"nextLink":"https://evil.invalid/x"}`)
	f.Add(`{"value":[{"properties":{"timeCreated":1,"instanceView":{"extensions":[{"statuses":[{"code":"a/b/c","message":"é","time":"9999-12-31T23:59:59-14:00"}]}]}}}]}`)
	f.Fuzz(func(t *testing.T, body string) {
		for _, mode := range []string{fleet.Uniform, fleet.Flexible} {
			p := &parrot{status: 200, body: body, most: 3}
			list, err := p.cloud(t).Boots(t.Context(), fleet.Pool{ID: pool, Orchestration: mode})
			p.wantHome(t, "")
			if err != nil {
				wantError(t, err)
				continue
			}
			for _, b := range list {
				if b.Pool != pool || b.Flexible != (mode == fleet.Flexible) || len(b.Extensions) > 64 || b.Console && b.ConsoleStorage != "" {
					t.Errorf("%+v", b)
				}
				all := []fleet.BootStatus{b.Provisioning}
				for _, e := range b.Extensions {
					if len(e.Statuses) > 64 || len(e.Substatuses) > 64 {
						t.Errorf("%d and %d statuses", len(e.Statuses), len(e.Substatuses))
					}
					all = append(append(all, e.Statuses...), e.Substatuses...)
				}
				for _, st := range all {
					if len(st.Message) > 32<<10 || len(st.Code) > 1024 || !utf8.ValidString(st.Message) || st.State != strings.ToLower(st.State) {
						t.Errorf("%+v", st)
					}
				}
				data, err := json.Marshal(b)
				if err != nil {
					t.Errorf("%+v: %v", b, err)
				}
				var again fleet.Boot
				if err := json.Unmarshal(data, &again); err != nil {
					t.Errorf("%s: %v", data, err)
				}
			}
		}
	})
}
