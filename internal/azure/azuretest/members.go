package azuretest

import (
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/fleet"
)

// A MemberFixture is a cloud with one pool of each orchestration mode in one resource
// group, all of whose instances run. No other machines are in the group.
type MemberFixture struct {
	Members azure.Members
	// Restricted is the same cloud with credentials that may do just these actions.
	Restricted func(t *testing.T, actions []string) azure.Members

	Uniform, Flexible fleet.ResourceID
	Each              int // instances of each pool, at least 2
	// Interfaces is how many network interfaces each instance has, each with an address
	// of the machine's own and maybe others.
	Interfaces int
	// Delete and Stop delete an instance and deallocate it, and return when that is
	// done.
	Delete, Stop func(t *testing.T, instance fleet.ResourceID)
}

// A MemberCase is a Case of the contract of azure.Members.
type MemberCase struct {
	Name string
	Do   func(t *testing.T, f MemberFixture)
}

// MemberCases lists the contract of azure.Members.
func MemberCases() []MemberCase {
	return []MemberCase{
		{"Everybody", memberEverybody},
		{"Fresh", memberFresh},
		{"Missing", memberMissing},
		{"Denied", memberDenied},
	}
}

func members(t *testing.T, f MemberFixture, pool fleet.ResourceID, views bool) []fleet.Member {
	t.Helper()
	list, err := f.Members.Members(t.Context(), pool, views)
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(list, func(a, b fleet.Member) int { return strings.Compare(a.Name, b.Name) })
	return list
}

// memberEverybody: the list and each instance by itself say the same, and nobody is
// somebody else.
func memberEverybody(t *testing.T, f MemberFixture) {
	ids, hosts, vms, addresses := map[string]bool{}, map[string]bool{}, map[string]bool{}, map[netip.Addr]bool{}
	for _, pool := range []fleet.ResourceID{f.Uniform, f.Flexible} {
		bare := members(t, f, pool, false)
		list := members(t, f, pool, true)
		if len(list) != f.Each || len(bare) != f.Each {
			t.Fatalf("%d and %d of %s, want %d", len(list), len(bare), pool, f.Each)
		}
		for i, m := range list {
			ids[strings.ToLower(string(m.Instance))], hosts[m.NodeName()], vms[m.VMID] = true, true, true
			for _, a := range m.Addresses {
				addresses[a] = true
			}
			if m.Flexible != pool.Equal(f.Flexible) || !m.Pool.Equal(pool) || m.Power != fleet.PowerRunning || m.ProvisioningState != "Succeeded" || m.Created.IsZero() || m.VMID != strings.ToLower(m.VMID) ||
				len(m.Addresses) != f.Interfaces || m.OfPrimary != 1 || !m.Addresses[0].IsPrivate() || !strings.HasPrefix(m.Name, pool.Name()+"_") {
				t.Errorf("%+v", m)
			}
			one, err := f.Members.Member(t.Context(), m.Instance)
			if err != nil || !one.Instance.Equal(m.Instance) || !one.Pool.Equal(m.Pool) {
				t.Errorf("%+v, %v", one, err)
			}
			one.Instance, one.Pool = m.Instance, m.Pool
			if !reflect.DeepEqual(one, m) {
				t.Errorf("by itself %+v\nin the list %+v", one, m)
			}
			if bare[i].Power == "" {
				m.Power = ""
			}
			if !reflect.DeepEqual(bare[i], m) {
				t.Errorf("without views %+v\nwith %+v", bare[i], m)
			}
		}
	}
	if n := 2 * f.Each; len(ids) != n || len(hosts) != n || len(vms) != n || len(addresses) != n*f.Interfaces || ids[""] || hosts[""] || vms[""] {
		t.Errorf("not each of its own: %v %v %v %v", ids, hosts, vms, addresses)
	}
}

// memberFresh: what was done to an instance is in the next answer.
func memberFresh(t *testing.T, f MemberFixture) {
	for _, pool := range []fleet.ResourceID{f.Uniform, f.Flexible} {
		list := members(t, f, pool, false)
		f.Stop(t, list[0].Instance)
		f.Delete(t, list[1].Instance)
		m, err := f.Members.Member(t.Context(), list[0].Instance)
		if err != nil || m.Power != fleet.PowerDeallocated || m.VMID != list[0].VMID {
			t.Errorf("a machine that is off: %+v, %v", m, err)
		}
		_, err = f.Members.Member(t.Context(), list[1].Instance)
		wantKind(t, err, fleet.KindNotFound)
		after := members(t, f, pool, true)
		if len(after) != f.Each-1 || after[0].VMID != list[0].VMID || after[0].Power != fleet.PowerDeallocated {
			t.Errorf("%+v", after)
		}
		for _, m := range after {
			if m.VMID == list[1].VMID {
				t.Errorf("deleted, and listed: %+v", m)
			}
		}
	}
}

func memberMissing(t *testing.T, f MemberFixture) {
	_, err := f.Members.Members(t.Context(), f.Uniform.In("virtualMachineScaleSets", "none"), false)
	wantKind(t, err, fleet.KindNotFound)
	for _, none := range []fleet.ResourceID{f.Uniform.Child("virtualMachines", "4711"), f.Uniform.In("virtualMachineScaleSets", "none").Child("virtualMachines", "0"), f.Flexible.In("virtualMachines", "none")} {
		_, err = f.Members.Member(t.Context(), none)
		wantKind(t, err, fleet.KindNotFound)
	}
	_, err = f.Members.Members(t.Context(), f.Uniform.In("disks", "d"), false)
	wantKind(t, err, fleet.KindInvalid)
}

// memberDenied takes the documented actions away one by one.
func memberDenied(t *testing.T, f MemberFixture) {
	uniform, flexible := members(t, f, f.Uniform, false)[0].Instance, members(t, f, f.Flexible, false)[0].Instance
	denied := deniedWithout(t, azure.MemberActions(), func(actions []string) (errs []error) {
		m := f.Restricted(t, actions)
		for _, pool := range []fleet.ResourceID{f.Uniform, f.Flexible} {
			list, err := m.Members(t.Context(), pool, true)
			errs = append(errs, err)
			if err == nil && (len(list) != f.Each || len(list[0].Addresses) == 0) {
				t.Errorf("%+v", list)
			}
		}
		for _, id := range []fleet.ResourceID{uniform, flexible} {
			one, err := m.Member(t.Context(), id)
			errs = append(errs, err)
			if err == nil && len(one.Addresses) == 0 {
				t.Errorf("%+v", one)
			}
		}
		return errs
	})
	for _, action := range azure.MemberActions() {
		if denied[action] == 0 {
			t.Errorf("without %s nothing is denied", action)
		}
	}
}
