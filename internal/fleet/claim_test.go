package fleet

import (
	"slices"
	"strings"
	"testing"
)

const (
	aSet    = ResourceID("/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachineScaleSets/pool")
	aVM     = "5c5e9f1e-6d5b-4f0e-8a9d-0c1b2a3f4e5d"
	swapped = "1e9f5e5c-5b6d-0e4f-8a9d-0c1b2a3f4e5d"
	otherVM = "6c5e9f1e-6d5b-4f0e-8a9d-0c1b2a3f4e5d"
)

func TestClaim(t *testing.T) {
	m := Computer{ID: aSet.Child("virtualMachines", "10"), HostName: "pool00000A", VMID: aVM}
	own, vm := "azure://"+string(m.ID), "azure:///subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/pool_1"
	for name, c := range map[string]struct {
		claim Claim
		of    Computer
		why   string // "" is the machine
	}{
		"its own":                       {Claim{"pool00000a", own, aVM}, m, ""},
		"in other letter case":          {Claim{"pool00000a", strings.ToUpper(own), strings.ToUpper(aVM)}, m, ""},
		"in the other byte order":       {Claim{"pool00000a", own, swapped}, m, ""},
		"no provider id":                {Claim{"pool00000a", "", aVM}, m, ""},
		"k3s":                           {Claim{"pool00000a", "k3s://pool00000a", aVM}, m, ""},
		"a Flexible set's":              {Claim{"flex1c0ffe", vm, aVM}, Computer{ResourceID(vm[len("azure://"):]), "flex1C0FFE", aVM}, ""},
		"another name":                  {Claim{"batch000007", own, aVM}, m, `has the host name "pool00000A"`},
		"its name and a domain":         {Claim{"pool00000a.example", own, aVM}, m, `has the host name "pool00000A"`},
		"k3s with a name of its own":    {Claim{"pool00000a-1c0ffee0", "k3s://x", aVM}, m, `has the host name "pool00000A"`},
		"another machine's provider id": {Claim{"pool00000a", own + "1", aVM}, m, "and not /subscriptions"},
		"another scale set's":           {Claim{"pool00000a", strings.Replace(own, "/pool/", "/pool2/", 1), aVM}, m, "and not /subscriptions"},
		"another's, in other capitals":  {Claim{"pool00000a", "AZURE://" + string(m.ID) + "1", aVM}, m, "and not /subscriptions"},
		"ones":                          {Claim{"pool00000a", own, "FFFFFFFF-ffff-ffff-ffff-ffffffffffff"}, m, "which is no machine's"},
		"no id of Azure's":              {Claim{"pool00000a", "azure://x", aVM}, m, "and not /subscriptions"},
		"an earlier machine's":          {Claim{"pool00000a", own, otherVM}, m, "reports the systemUUID " + otherVM},
		"no systemUUID":                 {Claim{"pool00000a", own, ""}, m, `the systemUUID ""`},
		"zeros":                         {Claim{"pool00000a", own, "00000000-0000-0000-0000-000000000000"}, m, "which is no machine's"},
		"a specialized image":           {Claim{"pool00000a", own, aVM}, Computer{m.ID, "", aVM}, "specialized"},
		"while it is created":           {Claim{"pool00000a", own, aVM}, Computer{m.ID, m.HostName, ""}, ""},
		"while created, without an id":  {Claim{"pool00000a", "", aVM}, Computer{m.ID, m.HostName, ""}, "the vmId "},
	} {
		switch err := c.claim.Is(c.of); {
		case c.why == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case c.why != "" && (!Is(err, KindInvalid) || !strings.Contains(err.Error(), c.why)):
			t.Errorf("%s: %v, want %q", name, err, c.why)
		}
	}
}

func TestRoster(t *testing.T) {
	m := Computer{ID: aSet.Child("virtualMachines", "1"), HostName: "pool000001", VMID: aVM}
	own := "azure://" + string(m.ID)
	node := func(name, provider, uuid string) Node {
		return Node{Name: name, ProviderID: provider, SystemUUID: uuid}
	}
	noDMI := node("hidden", own, "feedface-feed-face-feed-facefeedface")
	noDMI.MachineID = "feedfacefeedfacefeedfacefeedface"
	silent := node("silent", strings.ToLower(own), "")
	silent.MachineID = noDMI.MachineID
	all := []Node{
		node("pool000001", strings.ToUpper(own), swapped), node("elsewhere", "k3s://elsewhere", otherVM),
		node("stale", own, otherVM), silent, node("copies", "", strings.ToUpper(aVM)), noDMI,
	}
	if n, rivals := NewRoster(all).Of(m); n == nil || n.Name != "pool000001" || !slices.Equal(rivals, []string{"copies", "hidden", "silent"}) {
		t.Errorf("%+v, rivals %v", n, rivals)
	}
	if n, rivals := NewRoster(all[:3]).Of(m); n == nil || rivals != nil {
		t.Errorf("beside a stale Node: %+v, rivals %v", n, rivals)
	}
	for why, hidden := range map[string]Node{"names it": node("pool000001", own, ""), "k3s": node("pool000001", "k3s://x", ""), "names another": node("pool000001", own+"1", aVM)} {
		if n, rivals := NewRoster([]Node{hidden}).Of(m); n != nil || !slices.Equal(rivals, []string{"pool000001"}) {
			t.Errorf("a Node of its name that %s: %+v, rivals %v", why, n, rivals)
		}
	}
	m.VMID = otherVM
	if n, rivals := NewRoster(all[:1]).Of(m); n != nil || rivals != nil {
		t.Errorf("a Node of an earlier machine is %+v, rivals %v", n, rivals)
	}
}

// A Node that is a machine, or its rival, is found by an index of Keys.
func TestKeysFindClaims(t *testing.T) {
	const set = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachineScaleSets/P"
	m := Computer{ID: set + "/virtualMachines/1", HostName: "P000001", VMID: "00112233-4455-6677-8899-aabbccddeeff"}
	for name, c := range map[string]Claim{
		"by its name":                      {Name: "p000001"},
		"by its provider id":               {Name: "x", ProviderID: "AZURE://" + strings.ToLower(string(m.ID))},
		"by its hardware id":               {Name: "x", SystemUUID: strings.ToUpper(m.VMID)},
		"by its hardware id, byte-swapped": {Name: "x", SystemUUID: "33221100-5544-7766-8899-AABBCCDDEEFF"},
	} {
		if !slices.ContainsFunc(c.Keys(), func(key string) bool { return slices.Contains(m.Keys(), key) }) {
			t.Errorf("%s: %q has none of %q", name, c.Keys(), m.Keys())
		}
	}
	if of := (Claim{Name: "x", ProviderID: "azure://" + set + "/virtualMachines/2"}).Keys(); !slices.Contains(of, PoolKey(ResourceID(strings.ToUpper(set)))) {
		t.Errorf("a Node of the pool has the keys %q", of)
	}
	if other := (Claim{Name: "x", ProviderID: "azure://" + set + "2/virtualMachines/1"}).Keys(); slices.ContainsFunc(other, func(key string) bool { return slices.Contains(m.Keys(), key) }) {
		t.Errorf("a Node of another pool has the keys %q", other)
	}
}
