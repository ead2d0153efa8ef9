package azuretest

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/fleet"
)

// A BootFixture is a cloud with one pool of each orchestration mode in one
// resource group, both with the two extensions of Fixture.Pool and with boot
// diagnostics in managed storage. Every instance has written a line to its serial
// console that holds its host name.
type BootFixture struct {
	Boots azure.Boots
	// Restricted is the same cloud with credentials that may do just these
	// actions.
	Restricted func(t *testing.T, actions []string) azure.Boots

	Uniform, Flexible fleet.Pool
	Each              int // instances of each pool
}

// A BootCase is a Case of the contract of azure.Boots.
type BootCase struct {
	Name string
	Do   func(t *testing.T, f BootFixture)
}

// BootCases lists the contract of azure.Boots.
func BootCases() []BootCase {
	return []BootCase{
		{"Pools", bootPools},
		{"Views", bootViews},
		{"SerialLog", bootSerial},
		{"Missing", bootMissing},
		{"Denied", bootDenied},
	}
}

func boots(t *testing.T, f BootFixture, pool fleet.Pool) []fleet.Boot {
	t.Helper()
	list, err := f.Boots.Boots(t.Context(), pool)
	if err != nil {
		t.Fatal(err)
	}
	if len(list) != f.Each {
		t.Fatalf("%d instances of %s, want %d", len(list), pool.Name, f.Each)
	}
	slices.SortFunc(list, func(a, b fleet.Boot) int { return strings.Compare(a.Name, b.Name) })
	return list
}

func bootPools(t *testing.T, f BootFixture) {
	list, err := f.Boots.Pools(t.Context(), f.Uniform.ID.Group())
	if err != nil {
		t.Fatal(err)
	}
	modes := map[string]string{}
	for _, p := range list {
		modes[p.Name] = p.Orchestration
		if p.ID.Name() != p.Name || p.Capacity != int64(f.Each) {
			t.Errorf("%s has capacity %d", p.ID, p.Capacity)
		}
	}
	if want := map[string]string{f.Uniform.Name: fleet.Uniform, f.Flexible.Name: fleet.Flexible}; !reflect.DeepEqual(modes, want) {
		t.Errorf("pools %v, want %v", modes, want)
	}
}

func bootViews(t *testing.T, f BootFixture) {
	for _, pool := range []fleet.Pool{f.Uniform, f.Flexible} {
		flexible := pool.Orchestration == fleet.Flexible
		kind := "virtualMachineScaleSets"
		if flexible {
			kind = "virtualMachines"
		}
		ids, hosts, vms := map[string]bool{}, map[string]bool{}, map[string]bool{}
		for _, b := range boots(t, f, pool) {
			ids[strings.ToLower(string(b.Instance))], hosts[b.HostName], vms[b.VMID] = true, true, true
			if !b.Pool.Equal(pool.ID) || b.Flexible != flexible || b.Instance.Segment("Microsoft.Compute") != kind || !strings.HasPrefix(b.Name, pool.Name+"_") {
				t.Errorf("%s: %+v", pool.Name, b)
			}
			if b.ProvisioningState != "Succeeded" || b.Provisioning.State != "succeeded" || b.Power != fleet.PowerRunning || b.Created.IsZero() || b.Image == "" || !b.Console || b.ConsoleStorage != "" {
				t.Errorf("%s: %+v", b.Name, b)
			}
			if !b.Agent.Ready || b.Agent.Version == "" || b.Agent.Time.IsZero() {
				t.Errorf("%s: agent %+v", b.Name, b.Agent)
			}
			if len(b.Extensions) != 2 || b.Extensions[0].Name != "first" || b.Extensions[0].Type == "" || len(b.Extensions[0].Statuses) != 1 || b.Extensions[0].Statuses[0].State != "succeeded" {
				t.Errorf("%s: extensions %+v", b.Name, b.Extensions)
			}
		}
		if len(ids) != f.Each || len(hosts) != f.Each || len(vms) != f.Each || ids[""] || hosts[""] || vms[""] {
			t.Errorf("%s: not each of its own: %v %v %v", pool.Name, ids, hosts, vms)
		}
	}
}

func bootSerial(t *testing.T, f BootFixture) {
	for _, pool := range []fleet.Pool{f.Uniform, f.Flexible} {
		for _, b := range boots(t, f, pool) {
			log, err := f.Boots.SerialLog(t.Context(), b.Instance)
			if err != nil || !strings.Contains(string(log), b.HostName) {
				t.Errorf("%s: %q, %v", b.Name, log, err)
			}
		}
	}
}

func bootMissing(t *testing.T, f BootFixture) {
	none := fleet.Pool{ID: f.Uniform.ID.In("virtualMachineScaleSets", "none"), Orchestration: fleet.Uniform}
	_, err := f.Boots.Boots(t.Context(), none)
	wantKind(t, err, fleet.KindNotFound)
	none.Orchestration = fleet.Flexible
	if list, err := f.Boots.Boots(t.Context(), none); err != nil || len(list) > 0 {
		t.Errorf("of no Flexible pool: %v, %v", list, err)
	}
	_, err = f.Boots.SerialLog(t.Context(), f.Uniform.ID.Child("virtualMachines", "4711"))
	wantKind(t, err, fleet.KindNotFound)
	_, err = f.Boots.SerialLog(t.Context(), f.Uniform.ID.In("virtualMachines", "none"))
	wantKind(t, err, fleet.KindNotFound)
	for _, wrong := range []fleet.ResourceID{"", "x", f.Uniform.ID, f.Uniform.ID.In("disks", "d")} {
		_, err := f.Boots.SerialLog(t.Context(), wrong)
		if wrong != "" {
			wantKind(t, err, fleet.KindInvalid)
		} else if !fleet.Is(err, fleet.KindInvalid) {
			t.Errorf("of nothing: %v", err)
		}
	}
	_, err = f.Boots.Boots(t.Context(), fleet.Pool{ID: f.Uniform.ID.In("disks", "d")})
	wantKind(t, err, fleet.KindInvalid)
	_, err = f.Boots.Pools(t.Context(), f.Uniform.ID)
	wantKind(t, err, fleet.KindInvalid)
}

// bootDenied takes the documented actions away one by one.
func bootDenied(t *testing.T, f BootFixture) {
	uniform, flexible := boots(t, f, f.Uniform)[0].Instance, boots(t, f, f.Flexible)[0].Instance
	denied := deniedWithout(t, azure.BootActions(), func(actions []string) (errs []error) {
		b := f.Restricted(t, actions)
		_, err := b.Pools(t.Context(), f.Uniform.ID.Group())
		errs = append(errs, err)
		for _, pool := range []fleet.Pool{f.Uniform, f.Flexible} {
			_, err := b.Boots(t.Context(), pool)
			errs = append(errs, err)
		}
		for _, id := range []fleet.ResourceID{uniform, flexible} {
			_, err := b.SerialLog(t.Context(), id)
			errs = append(errs, err)
		}
		return errs
	})
	for _, action := range azure.BootActions() {
		if denied[action] != 1 {
			t.Errorf("without %s %d of 5 methods are denied", action, denied[action])
		}
	}
}
