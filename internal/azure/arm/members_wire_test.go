package arm_test

import (
	"context"
	"net/http"
	"net/netip"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"

	"github.com/ortet/ortet/internal/azure/arm"
	"github.com/ortet/ortet/internal/fleet"
)

const (
	vmID     = "5e8f0000-1111-4222-8333-0123456789ab"
	setNICs  = "/networkInterfaces"
	network  = group + "/providers/Microsoft.Network/networkInterfaces"
	machine  = fleet.ResourceID(comp + "/virtualMachines/p_1c0ffee0")
	uniform  = `{"id":"` + string(pool) + `","properties":{"orchestrationMode":"Uniform"}}`
	flexible = `{"id":"` + string(pool) + `","properties":{"orchestrationMode":"Flexible"}}`
)

// memberBody is a VirtualMachineScaleSetVM as Azure shows it, cut down, with a computer
// name of the guest's own making.
const memberBody = `{"id":"` + string(instance) + `","name":"p_3","instanceId":"3","properties":{"vmId":"5E8F0000-1111-4222-8333-0123456789AB","provisioningState":"Updating",
	"timeCreated":"2026-11-21T07:00:00.5+00:00","osProfile":{"computerName":"p00000A"},
	"networkProfile":{"networkInterfaces":[{"id":"` + string(instance) + `/networkInterfaces/nic"}]},
	"instanceView":{"computerName":"master0","statuses":[null,{"code":"ProvisioningState/updating"},{"code":"PowerState/deallocated"}]}}}`

// nicOf is a network interface of a machine with ip configurations "address" or
// "*address" for the primary one.
func nicOf(vm fleet.ResourceID, primary bool, addresses ...string) string {
	var confs []string
	for _, a := range addresses {
		ip, isPrimary := strings.CutPrefix(a, "*")
		conf := `{"properties":{"privateIPAddress":"` + ip + `"}}`
		if isPrimary {
			conf = `{"properties":{"primary":true,"privateIPAddress":"` + ip + `"}}`
		}
		confs = append(confs, conf)
	}
	p := ""
	if primary {
		p = `"primary":true,`
	}
	return `{"id":"nic","properties":{` + p + `"virtualMachine":{"id":"` + string(vm) + `"},"ipConfigurations":[` + strings.Join(confs, ",") + `]}}`
}

func listOf(next string, items ...string) answer {
	link := ""
	if next != "" {
		link = `,"nextLink":"` + next + `"`
	}
	return answer{status: 200, body: `{"value":[` + strings.Join(items, ",") + `]` + link + `}`}
}

// A twoScripts answers requests for machines by the one, those for network interfaces,
// which may come at the same time, by the other.
type twoScripts struct {
	mu             sync.Mutex
	machines, nics script
}

func (s *twoScripts) Do(r *http.Request) (*http.Response, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if strings.Contains(r.URL.Path, "networkInterfaces") || strings.HasPrefix(r.URL.Path, "/nics") {
		if len(s.nics.answers) == 0 { // given up, since there is no machine
			return nil, context.Canceled
		}
		return s.nics.Do(r)
	}
	return s.machines.Do(r)
}

func newMemberCloud(t *testing.T, machines, nics []answer) (*arm.Cloud, *twoScripts) {
	t.Helper()
	s := &twoScripts{machines: script{t: t, answers: machines}, nics: script{t: t, answers: nics}}
	c, err := arm.New(arm.Options{
		Cloud: cloud.Configuration{
			ActiveDirectoryAuthorityHost: base + "/",
			Services:                     map[cloud.ServiceName]cloud.ServiceConfiguration{cloud.ResourceManager: {Endpoint: base, Audience: base}},
		},
		Credential: static{}, Transport: s, Version: "1.2.3", MaxBody: 1 << 16,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if n := len(s.machines.answers) + len(s.nics.answers); n > 0 && !t.Failed() {
			t.Errorf("%d answers were not asked for", n)
		}
	})
	return c, s
}

func addrs(s ...string) []netip.Addr {
	var out []netip.Addr
	for _, a := range s {
		out = append(out, netip.MustParseAddr(a))
	}
	return out
}

// TestMemberOnTheWire: who an instance is comes from what Azure made it with, its
// addresses from its own interfaces, the primary one first, and none of its pods'.
func TestMemberOnTheWire(t *testing.T) {
	c, s := newMemberCloud(t, []answer{{status: 200, body: memberBody}}, []answer{listOf("",
		nicOf(instance, false, "*10.1.0.7"), `null`, nicOf(pool+"/virtualMachines/4", true, "*10.1.0.9"), nicOf("", true, "*10.1.0.10"),
		nicOf(instance, true, "10.1.0.20", "*10.1.0.4", "10.1.0.21", "fd00::4"))})
	got, err := c.Member(t.Context(), instance)
	if err != nil {
		t.Fatal(err)
	}
	want := fleet.Member{Instance: instance, Pool: pool, Name: "p_3", HostName: "p00000A", VMID: vmID, Addresses: addrs("10.1.0.4", "fd00::4", "10.1.0.7"), OfPrimary: 2,
		Power: fleet.PowerDeallocated, ProvisioningState: "Updating", Created: time.Date(2026, 11, 21, 7, 0, 0, 5e8, time.UTC)}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v\nwant %+v", got, want)
	}
	if got.NodeName() != "p00000a" || got.ProviderID() != "azure://"+string(instance) {
		t.Errorf("%s, %s", got.NodeName(), got.ProviderID())
	}
	vms, nics := s.machines.sent, s.nics.sent
	if vms[0].path != string(instance) || !strings.Contains(vms[0].query, "expand=instanceView") || nics[0].path != string(instance)+setNICs || nics[0].query != "api-version=2018-10-01" {
		t.Errorf("%+v, %+v", vms, nics)
	}

	// Of a Flexible pool: its interfaces one by one, but those that are another's by now.
	vm := strings.NewReplacer(string(instance)+setNICs+"/nic", network+"/a", string(instance), strings.ToUpper(string(machine))).Replace(memberBody)
	vm = strings.Replace(vm, `"osProfile"`, `"virtualMachineScaleSet":{"id":"`+string(pool)+`"},"osProfile"`, 1)
	vm = strings.Replace(vm, `{"id":"`+network+`/a"}`, `{"id":"`+network+`/a"},null,{"id":"`+network+`/b"},{"id":"`+network+`/gone"}`, 1)
	c, s = newMemberCloud(t, []answer{{status: 200, body: vm}}, []answer{{status: 200, body: nicOf(machine, true, "*10.1.0.4")},
		{status: 200, body: nicOf(machine+"2", false, "*10.1.0.5")}, refusal(404, "ResourceNotFound", "no such interface")})
	got, err = c.Member(t.Context(), machine)
	if err != nil || !got.Flexible || got.Pool != pool || !slices.Equal(got.Addresses, addrs("10.1.0.4")) || got.OfPrimary != 1 || got.VMID != vmID {
		t.Errorf("%+v, %v", got, err)
	}
	if nics := s.nics.sent; nics[0].path != network+"/a" || nics[0].query != "api-version=2024-05-01" {
		t.Errorf("%+v", nics)
	}
}

// TestMemberIsNobodyElse: what an answer does not say rightly is not taken.
func TestMemberIsNobodyElse(t *testing.T) {
	for name, tc := range map[string]struct {
		ask      fleet.ResourceID
		machines []answer
		nics     []answer
		kind     fleet.Kind
	}{
		"another instance":         {instance, []answer{{status: 200, body: strings.ReplaceAll(memberBody, "Machines/3", "Machines/4")}}, nil, fleet.KindInvalid},
		"an instance without id":   {instance, []answer{{status: 200, body: `{}`}}, nil, fleet.KindInvalid},
		"a machine of no set":      {machine, []answer{{status: 200, body: `{"id":"` + string(machine) + `","properties":{}}`}}, nil, fleet.KindInvalid},
		"a machine of no real set": {machine, []answer{{status: 200, body: `{"id":"` + string(machine) + `","properties":{"virtualMachineScaleSet":{"id":"x/../y"}}}`}}, nil, fleet.KindInvalid},
		"an interface elsewhere": {machine, []answer{{status: 200, body: `{"id":"` + string(machine) + `","properties":{"virtualMachineScaleSet":{"id":"` + string(pool) + `"},
			"networkProfile":{"networkInterfaces":[{"id":"/subscriptions/s/resourceGroups/../providers/Microsoft.Network/networkInterfaces/n"}]}}}`}}, nil, fleet.KindInvalid},
		"a disk as interface": {machine, []answer{{status: 200, body: `{"id":"` + string(machine) + `","properties":{"virtualMachineScaleSet":{"id":"` + string(pool) + `"},
			"networkProfile":{"networkInterfaces":[{"id":"` + string(disk) + `"}]}}}`}}, nil, fleet.KindInvalid},
		"more interfaces than there are": {instance, []answer{{status: 200, body: memberBody}}, []answer{listOf("", slices.Repeat([]string{nicOf(instance, true)}, 33)...)}, fleet.KindInvalid},
		"gone":                           {instance, []answer{refusal(404, "ResourceNotFound", "x")}, nil, fleet.KindNotFound},
		"gone, says a 400":               {instance, []answer{refusal(400, "InvalidParameter", "The provided instanceId 3 is not an active Virtual Machine Scale Set VM instanceId.")}, nil, fleet.KindNotFound},
		"no such subscription":           {instance, []answer{refusal(404, "SubscriptionNotFound", "x")}, nil, fleet.KindDenied},
		"a proxy's 404":                  {instance, []answer{{status: 404, body: "<html>"}}, nil, fleet.KindTransient},
		"throttled":                      {instance, []answer{{status: 200, body: memberBody}}, []answer{{status: 429, header: map[string]string{"Retry-After": "7"}, body: `{}`}}, fleet.KindThrottled},
		"a disk":                         {disk, nil, nil, fleet.KindInvalid},
		"a pool":                         {pool, nil, nil, fleet.KindInvalid},
		"shell characters":               {pool + "/virtualMachines/3;reboot", nil, nil, fleet.KindInvalid},
		"a path":                         {pool + "/virtualMachines/../../x", nil, nil, fleet.KindInvalid},
		"nothing":                        {"", nil, nil, fleet.KindInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			c, _ := newMemberCloud(t, tc.machines, tc.nics)
			got, err := c.Member(t.Context(), tc.ask)
			if !fleet.Is(err, tc.kind) || !reflect.DeepEqual(got, fleet.Member{}) {
				t.Errorf("%+v, %v, want %s", got, err, tc.kind)
			}
		})
	}

	// An instance whose interfaces Network does not know (yet) is there.
	c, _ := newMemberCloud(t, []answer{{status: 200, body: memberBody}}, []answer{refusal(404, "ResourceNotFound", "x")})
	if got, err := c.Member(t.Context(), instance); err != nil || got.VMID != vmID || got.Addresses != nil {
		t.Errorf("%+v, %v", got, err)
	}
	// What is not of its form is left out.
	odd := strings.NewReplacer(`5E8F0000-1111`, `5E8F0000/1111`, `p00000A`, `p0$(reboot)`).Replace(memberBody)
	c, _ = newMemberCloud(t, []answer{{status: 200, body: odd}}, []answer{listOf("", nicOf(instance, true, "10.1.0", "127.0.0.1", "169.254.169.254", "fe80::1%eth0", "0.0.0.0", "168.63.129.16", "*::ffff:10.1.0.4"))})
	if got, err := c.Member(t.Context(), instance); err != nil || got.VMID != "" || got.HostName != "" || !slices.Equal(got.Addresses, addrs("10.1.0.4")) {
		t.Errorf("%+v, %v", got, err)
	}
	// Letters that fold to ASCII in lower case are rejected: U+212A becomes k.
	for _, name := range []string{"p00000\u212a", "p00000\u0130", "p00000A.", "p00000A\u0000"} {
		c, _ = newMemberCloud(t, []answer{{status: 200, body: strings.Replace(memberBody, "p00000A", name, 1)}}, []answer{listOf("")})
		if got, err := c.Member(t.Context(), instance); err == nil && got.HostName != "" {
			t.Errorf("%q became the Node's name %q", name, got.NodeName())
		}
	}
	// A specialized image has no profile: the guest's word for its name is not taken.
	c, _ = newMemberCloud(t, []answer{{status: 200, body: strings.Replace(memberBody, `"osProfile":{"computerName":"p00000A"},`, "", 1)}}, []answer{listOf("", nicOf(instance, true, "10.1.0.4"))})
	if got, err := c.Member(t.Context(), instance); err != nil || got.HostName != "" || !slices.Equal(got.Addresses, addrs("10.1.0.4")) {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestMembersOnTheWire(t *testing.T) {
	second := strings.NewReplacer("Machines/3", "Machines/4", "p_3", "p_4").Replace(memberBody)
	c, s := newMemberCloud(t, []answer{{status: 200, body: uniform}, listOf(base+"/more?x=1", memberBody, `null`), listOf("", second, memberBody)},
		[]answer{listOf(base+"/nics?x=2", nicOf(instance, true, "*10.1.0.4")), listOf("", nicOf(fleet.ResourceID(strings.ToUpper(string(pool+"/virtualMachines/4"))), true, "*10.1.0.5"), nicOf(pool+"/virtualMachines/9", true, "*10.1.0.6"))})
	got, err := c.Members(t.Context(), pool, true)
	if err != nil || len(got) != 2 || !slices.Equal(got[0].Addresses, addrs("10.1.0.4")) || !slices.Equal(got[1].Addresses, addrs("10.1.0.5")) || got[1].Name != "p_4" || got[0].Power != fleet.PowerDeallocated {
		t.Errorf("%+v, %v", got, err)
	}
	if vms, nics := s.machines.sent, s.nics.sent; vms[1].path != string(pool)+"/virtualMachines" || !strings.Contains(vms[1].query, "expand=instanceView") || nics[0].path != string(pool)+setNICs || len(vms) != 3 || len(nics) != 2 {
		t.Errorf("%+v, %+v", vms, nics)
	}

	// Without views none are asked for.
	c, s = newMemberCloud(t, []answer{{status: 200, body: uniform}, listOf("", memberBody)}, []answer{refusal(404, "ResourceNotFound", "x")})
	got, err = c.Members(t.Context(), pool, false)
	if err != nil || len(got) != 1 || got[0].Addresses != nil || strings.Contains(s.machines.sent[1].query, "expand") {
		t.Errorf("%+v, %v, %s", got, err, s.machines.sent[1].query)
	}

	// Of several interfaces without the primary flag none counts as primary.
	c, _ = newMemberCloud(t, []answer{{status: 200, body: memberBody}}, []answer{listOf("", nicOf(instance, false, "*10.1.0.7"), nicOf(instance, false, "*10.1.0.8"))})
	one, err := c.Member(t.Context(), instance)
	if err != nil || len(one.Addresses) != 2 || one.OfPrimary != 0 {
		t.Errorf("%+v, %v", one, err)
	}

	// Machines of a Flexible pool, and of no other, with those of the group's interfaces
	// that are theirs.
	vm := func(id, set string) string {
		return `{"id":"` + id + `","name":"m","properties":{"vmId":"` + vmID + `","virtualMachineScaleSet":{"id":"` + set + `"}}}`
	}
	c, s = newMemberCloud(t, []answer{{status: 200, body: flexible}, listOf("", vm(string(machine), strings.ToUpper(string(pool))), vm(string(machine)+"2", string(pool)+"2"), `{"id":"`+string(machine)+`3"}`)},
		[]answer{listOf("", nicOf(machine+"2", true, "*10.1.0.5"), nicOf(machine, true, "*10.1.0.4"))})
	got, err = c.Members(t.Context(), pool, false)
	if err != nil || len(got) != 1 || !got[0].Flexible || got[0].Instance != machine || !slices.Equal(got[0].Addresses, addrs("10.1.0.4")) {
		t.Errorf("%+v, %v", got, err)
	}
	q, err := url.ParseQuery(s.machines.sent[1].query)
	if err != nil || q.Get("$filter") != "'virtualMachineScaleSet/id' eq '"+string(pool)+"'" || q.Has("$expand") || s.nics.sent[0].path != network {
		t.Errorf("%+v, %+v", s.machines.sent, s.nics.sent)
	}

	none := []answer{listOf("")}
	for name, tc := range map[string]struct {
		machines []answer
		nics     []answer
		kind     fleet.Kind
	}{
		"no pool":                {[]answer{refusal(404, "ResourceNotFound", "x")}, nil, fleet.KindNotFound},
		"another pool":           {[]answer{{status: 200, body: strings.ReplaceAll(uniform, "Sets/p", "Sets/q")}}, nil, fleet.KindInvalid},
		"another's instance":     {[]answer{{status: 200, body: uniform}, listOf("", strings.ReplaceAll(memberBody, "Sets/p", "Sets/q"))}, none, fleet.KindInvalid},
		"a machine of a group":   {[]answer{{status: 200, body: flexible}, listOf("", vm(strings.Replace(string(machine), "/g/", "/h/", 1), string(pool)))}, none, fleet.KindInvalid},
		"half of a list":         {[]answer{{status: 200, body: uniform}, listOf(base+"/more?x=1", memberBody), refusal(500, "InternalServerError", "x")}, none, fleet.KindTransient},
		"too many interfaces":    {[]answer{{status: 200, body: uniform}, listOf("", memberBody)}, []answer{listOf("", slices.Repeat([]string{nicOf(instance, true)}, 33)...)}, fleet.KindInvalid},
		"half of the interfaces": {[]answer{{status: 200, body: uniform}, listOf("", memberBody)}, []answer{listOf(base+"/nics?x=1", nicOf(instance, true, "10.1.0.4")), refusal(404, "ResourceNotFound", "x")}, fleet.KindTransient},
		"a page elsewhere":       {[]answer{{status: 200, body: uniform}, listOf("", memberBody)}, []answer{listOf("https://evil.invalid/nics")}, fleet.KindInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			c, s := newMemberCloud(t, tc.machines, tc.nics)
			if got, err := c.Members(t.Context(), pool, true); !fleet.Is(err, tc.kind) || got != nil {
				t.Errorf("%+v, %v, want %s", got, err, tc.kind)
			}
			s.nics.answers = nil // they may have been given up
		})
	}
}

func FuzzMember(f *testing.F) {
	f.Add(memberBody, nicOf(instance, true, "*10.1.0.4", "10.1.0.5"))
	f.Add(memberBody, nicOf(instance, true, "fd00::1"))
	f.Add(`{}`, `null`)
	f.Add(`{"id":null,"properties":{"vmId":3}}`, `{"properties":{"ipConfigurations":[null]}}`)
	f.Fuzz(func(t *testing.T, vm, nic string) {
		c, s := newMemberCloud(t, []answer{{status: 200, body: vm}}, []answer{listOf("", nic)})
		m, err := c.Member(t.Context(), instance)
		s.machines.answers, s.nics.answers = nil, nil
		if err != nil {
			return
		}
		if !m.Instance.Equal(instance) || m.Pool != pool || len(m.VMID) != 36 && m.VMID != "" || strings.ContainsAny(m.NodeName(), "./$ ") {
			t.Errorf("%+v", m)
		}
		for _, a := range m.Addresses {
			if a.IsLoopback() || a.IsLinkLocalUnicast() || a.Zone() != "" || !a.IsValid() {
				t.Errorf("%+v", m)
			}
		}
	})
}
