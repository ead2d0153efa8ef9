package arm_test

import (
	"context"
	"encoding/json"
	"net/url"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"

	"github.com/ortet/ortet/internal/azsim"
	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/azure/arm"
	"github.com/ortet/ortet/internal/azure/azuretest"
	"github.com/ortet/ortet/internal/fleet"
)

// consoles is a Substrate of computers that do nothing but write their host names
// to their serial consoles.
type consoles struct {
	azsim.NopSubstrate
	mu  sync.Mutex
	log map[string]string
}

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

func (x site) boots(t *testing.T, s *azsim.Server, client string) azure.Boots {
	t.Helper()
	b, ok := x.cloud(t, s, client).(azure.Boots)
	if !ok {
		t.Fatal("the adapter does not look at boots")
	}
	return b
}

func (x site) bootFixture(t *testing.T, s *azsim.Server) azuretest.BootFixture {
	t.Helper()
	create(t, s, "pool1", bootPool(2, armcompute.OrchestrationModeUniform))
	create(t, s, "flex1", bootPool(2, armcompute.OrchestrationModeFlexible))
	f := azuretest.BootFixture{Boots: x.boots(t, s, azsim.DefaultClientID), Each: 2}
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
	f.Restricted = func(t *testing.T, actions []string) azure.Boots { return x.boots(t, s, clientWith(t, s, actions)) }
	return f
}

func TestBootsContractInProcess(t *testing.T) {
	for _, tc := range azuretest.BootCases() {
		t.Run(tc.Name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &azsim.Server{Principals: principals(), Substrate: &consoles{}}
				defer s.Close()
				tc.Do(t, inProcess(s).bootFixture(t, s))
			})
		})
	}
}

// A node of a Flexible pool is refused in words that say why, and its pool is in
// nobody's way.
func TestFlexiblePoolsAreLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &azsim.Server{Principals: principals(), Substrate: &consoles{}}
		defer s.Close()
		f := inProcess(s).bootFixture(t, s)
		list, err := f.Boots.Boots(t.Context(), f.Flexible)
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range list {
			_, err := fleet.ParseProviderID("azure://" + string(b.Instance))
			if !fleet.Is(err, fleet.KindInvalid) || !strings.Contains(err.Error(), "of a Flexible scale set, not an instance of a Uniform scale set") {
				t.Errorf("%v", err)
			}
		}
		c := inProcess(s).cloud(t, s, azsim.DefaultClientID)
		if uses, err := c.Uses(t.Context(), f.Flexible.ID.In("galleries", "g").Child("images", "i")); err != nil || len(uses) > 0 {
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
