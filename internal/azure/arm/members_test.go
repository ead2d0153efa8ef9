package arm_test

import (
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/ortet/ortet/azsim"
	"github.com/ortet/ortet/internal/azure/arm"
	"github.com/ortet/ortet/internal/azure/azuretest"
	"github.com/ortet/ortet/internal/fleet"
)

// The list and each instance by itself say the same, no two members are alike, and a
// deleted one is gone from the next answer.
func TestMembers(t *testing.T) {
	onTwoPools(t, func(t *testing.T, s *azsim.Server, c *arm.Cloud) {
		machines := sdk(t, s)
		seen, addresses := map[string]bool{"": true}, map[netip.Addr]bool{}
		for _, pool := range []fleet.Pool{uniformPool, flexiblePool} {
			members := func(views bool) []fleet.Member {
				list, err := c.Members(t.Context(), pool.ID, views)
				if err != nil {
					t.Fatal(err)
				}
				slices.SortFunc(list, func(a, b fleet.Member) int { return strings.Compare(a.Name, b.Name) })
				return list
			}
			bare, list := members(false), members(true)
			if len(list) != 3 || len(bare) != 3 {
				t.Fatalf("%d and %d of %s", len(list), len(bare), pool.Name)
			}
			for i, m := range list {
				for _, of := range []string{strings.ToLower(string(m.Instance)), m.NodeName(), m.VMID} {
					if seen[of] {
						t.Errorf("%q is another's: %+v", of, m)
					}
					seen[of] = true
				}
				for _, a := range m.Addresses {
					if addresses[a] {
						t.Errorf("%s is another's: %+v", a, m)
					}
					addresses[a] = true
				}
				if m.Flexible != (pool.Orchestration == fleet.Flexible) || !m.Pool.Equal(pool.ID) || m.Power != fleet.PowerRunning || m.ProvisioningState != "Succeeded" || m.Created.IsZero() || m.VMID != strings.ToLower(m.VMID) ||
					len(m.Addresses) != 2 || m.OfPrimary != 1 || !m.Addresses[0].IsPrivate() || !strings.HasPrefix(m.Name, pool.Name+"_") {
					t.Errorf("%+v", m)
				}
				one := azuretest.Get(t, c.Member, m.Instance)
				if !one.Instance.Equal(m.Instance) || !one.Pool.Equal(m.Pool) {
					t.Errorf("by itself %+v\nin the list %+v", one, m)
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
			if pool.Orchestration == fleet.Flexible {
				p, err := machines.NewVirtualMachinesClient().BeginDelete(t.Context(), azsim.DefaultResourceGroup, list[1].Instance.Name(), nil)
				done(t, p, err)
			} else {
				p, err := machines.NewVirtualMachineScaleSetVMsClient().BeginDelete(t.Context(), azsim.DefaultResourceGroup, pool.Name, list[1].Instance.Name(), nil)
				done(t, p, err)
			}
			azuretest.WantKind(t, only(c.Member(t.Context(), list[1].Instance)), fleet.KindNotFound)
			if after := members(true); len(after) != 2 || after[0].VMID != list[0].VMID || after[1].VMID != list[2].VMID {
				t.Errorf("%+v", after)
			}
		}
	})
}
