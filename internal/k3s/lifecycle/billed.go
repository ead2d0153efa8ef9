package lifecycle

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/k3s"
	"github.com/ortet/ortet/internal/k3s/recipe"
)

// When something is billed: while machines run, also while they are deallocated, and also
// after down.
const (
	BilledUp      = "up"
	BilledStopped = "up, stopped"
	BilledAlways  = "always"
)

// A Charge is what is billed of one kind, without traffic and operations.
type Charge struct {
	What   string   `json:"what"` // "Standard_D2s_v5, Spot"
	Of     []string `json:"of"`   // "server", names of pools
	Number int      `json:"number"`
	When   string   `json:"when"` // BilledUp, BilledStopped, BilledAlways
}

// A machine is what is billed of a server or of a pool's agents.
type machine struct {
	name, size, priority, diskType string
	diskGB, number                 int
}

// machines are those that exist, the server first, and with d those that Up would make.
func (m *Manager) machines(o *observation, d *recipe.Documents, agents map[string][]fleet.Instance) []machine {
	all := map[string]machine{}
	for name, s := range o.sets {
		disk := s.Properties.Profile.StorageProfile.OSDisk
		all[name] = machine{name, s.SKU.Name, cmp.Or(s.Properties.Profile.Priority, k3s.Regular), disk.ManagedDisk.Type, disk.DiskSizeGB, len(agents[name])}
	}
	if o.server != nil {
		disk := o.server.Properties.StorageProfile.OSDisk
		all[recipe.ServerName] = machine{recipe.ServerName, o.server.Properties.HardwareProfile.VMSize, k3s.Regular, disk.ManagedDisk.Type, disk.DiskSizeGB, 1}
	}
	if d != nil {
		s := m.Cluster.Spec.Server
		all[recipe.ServerName] = machine{recipe.ServerName, s.Size, k3s.Regular, s.DiskType, s.DiskGB, 1}
		capacity, _ := d.Compute.Parameters["capacity"].(map[string]any)
		for _, p := range d.Pools {
			n, _ := capacity[p.Name].(float64)
			all[p.Name] = machine{p.Name, p.Size, p.Priority, p.DiskType, p.DiskGB, int(n)}
		}
	}
	list := []machine{}
	if server, some := all[recipe.ServerName]; some {
		list = append(list, server)
		delete(all, recipe.ServerName)
	}
	for _, name := range sorted(all) {
		list = append(list, all[name])
	}
	return list
}

// billed lists what is billed of what exists, and with d of what Up would make.
func (m *Manager) billed(ctx context.Context, o *observation, d *recipe.Documents, agents map[string][]fleet.Instance) ([]Charge, error) {
	charges := []Charge{}
	add := func(what, of string, n int, when string) {
		if n == 0 {
			return
		}
		i := slices.IndexFunc(charges, func(c Charge) bool { return c.What == what && c.When == when })
		if i < 0 {
			i, charges = len(charges), append(charges, Charge{What: what, When: when})
		}
		charges[i].Number += n
		charges[i].Of = append(charges[i].Of, of)
	}
	machines, addresses := m.machines(o, d, agents), 0
	public := slices.ContainsFunc(o.resources[RoleCompute], func(r resource) bool { return r.ID.Equal(m.publicID()) })
	for _, one := range machines {
		add(one.size+", "+one.priority, one.name, one.number, BilledUp)
		switch {
		case one.name != recipe.ServerName && m.Cluster.Spec.Network.Outbound == k3s.Addresses:
			addresses += one.number
		case one.name == recipe.ServerName && (d != nil && !m.withoutAddress() || d == nil && public):
			addresses++
		}
	}
	for _, one := range machines {
		add(fmt.Sprintf("OS disk, %s, %d GB", one.diskType, one.diskGB), one.name, one.number, BilledStopped)
	}
	gateway := d != nil && m.Cluster.Spec.Network.Outbound == k3s.Gateway || slices.ContainsFunc(o.resources[RoleCompute], func(r resource) bool {
		return strings.EqualFold(r.Type, "Microsoft.Network/natGateways")
	})
	if gateway {
		add("NAT gateway", "network", 1, BilledStopped)
		addresses++
	}
	add("public address", "network", addresses, BilledStopped)
	if d != nil || o.state != nil {
		gb := m.Cluster.Spec.Server.StateGB
		if o.state != nil && (d == nil || o.state.Properties.DiskSizeGB > gb) {
			gb = o.state.Properties.DiskSizeGB
		}
		add(fmt.Sprintf("state disk, StandardSSD_LRS, %d GB", gb), "storage", 1, BilledAlways)
	}
	if o.groups[RoleStorage] != nil || m.Cluster.Spec.Backup != nil {
		all, err := m.Backups(ctx)
		if err != nil {
			return nil, err
		}
		add("backups, by what they hold", "storage", len(all), BilledAlways)
	}
	if d != nil || o.account != nil {
		add("file shares, by what they hold", "storage", len(m.Cluster.Spec.Storage.Shares), BilledAlways)
	}
	return charges, nil
}
