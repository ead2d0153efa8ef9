package lifecycle

import (
	"cmp"
	"context"
	"time"

	"github.com/ortet/ortet/internal/elastic/recipe"
)

// A Status is what exists of a cluster.
type Status struct {
	Cluster      string         `json:"cluster"`
	Subscription string         `json:"subscription"`
	Location     string         `json:"location"`
	Groups       []GroupStatus  `json:"groups"`
	Server       *ServerStatus  `json:"server,omitempty"`
	Pools        []PoolStatus   `json:"pools"`
	Storage      *StorageStatus `json:"storage,omitempty"`
	Endpoints    []Endpoint     `json:"endpoints"`
	Notes        []string       `json:"notes,omitempty"` // what Up would leave as it is
}

// A GroupStatus is a resource group and its last deployment.
type GroupStatus struct {
	Role       string     `json:"role"` // storage, compute
	Name       string     `json:"name"`
	Exists     bool       `json:"exists"`
	State      string     `json:"state,omitempty"`      // "Succeeded", "Deleting"
	Resources  int        `json:"resources"`            //
	Deployment string     `json:"deployment,omitempty"` // "Running", "Succeeded", "Failed", "Canceled"
	DeployedAt *time.Time `json:"deployedAt,omitempty"`
	Error      string     `json:"error,omitempty"` // of the last deployment
}

// A ServerStatus is the server's VM.
type ServerStatus struct {
	Size       string `json:"size"`
	State      string `json:"state"`          // provisioning state
	Power      string `json:"power"`          // "running", "deallocated"
	Boot       string `json:"boot,omitempty"` // what the machine reported last
	Ready      bool   `json:"ready"`          // its admission server admits agents
	Recipe     string `json:"recipe"`         // that it was made with
	SameRecipe bool   `json:"sameRecipe"`     // it is the one of cluster.yaml
}

// A PoolStatus is a scale set.
type PoolStatus struct {
	Name      string         `json:"name"`
	Size      string         `json:"size"`
	Priority  string         `json:"priority"` // Spot, Regular
	Wanted    int            `json:"wanted"`   // its capacity
	Instances int            `json:"instances"`
	Running   int            `json:"running"`
	States    map[string]int `json:"states,omitempty"` // provisioning state to instances
	State     string         `json:"state"`            // provisioning state of the scale set
	InFile    bool           `json:"inFile"`           // cluster.yaml has it
	Captured  bool           `json:"captured"`         // it boots from an image of ortet capture
}

// A StorageStatus is the storage account.
type StorageStatus struct {
	Account string   `json:"account"`
	State   string   `json:"state"`
	Shares  []string `json:"shares"`
}

// An Endpoint is a port of the server that is open.
type Endpoint struct {
	Name    string   `json:"name"`    // ssh, api, http, https
	Address string   `json:"address"` // public
	FQDN    string   `json:"fqdn,omitempty"`
	Port    int      `json:"port"`
	Open    []string `json:"open"` // to whom: ranges, or the names in cluster.yaml
}

// Status reads what exists.
func (m *Manager) Status(ctx context.Context) (*Status, error) {
	o, err := m.observe(ctx)
	if err != nil {
		return nil, err
	}
	// Neither changes the server's recipe, which is all that is compared.
	reading := *m
	reading.SSHPublicKey, reading.OwnAddresses = "ssh-ed25519 AAAA", []string{"192.0.2.1"}
	d, err := reading.render(o)
	if err != nil {
		return nil, err
	}
	s := &Status{Cluster: m.name(), Subscription: m.Subscription, Location: m.Cluster.Spec.Location, Pools: []PoolStatus{}, Notes: m.notes(o, d, false)}
	for _, role := range roles() {
		g, err := m.groupStatus(ctx, role, o)
		if err != nil {
			return nil, err
		}
		s.Groups = append(s.Groups, g)
	}
	if vm := o.server; vm != nil {
		s.Server = &ServerStatus{Size: vm.Properties.HardwareProfile.VMSize, State: vm.Properties.ProvisioningState, Power: vm.power(), Boot: vm.Tags[recipe.TagBoot],
			Ready: vm.Tags[recipe.TagCAHash] != "", Recipe: vm.Tags[recipe.TagRecipe], SameRecipe: vm.Tags[recipe.TagRecipe] == d.ServerRecipe}
	}
	for _, name := range sorted(o.sets) {
		p, err := m.poolStatus(ctx, o.sets[name], o.captured[name])
		if err != nil {
			return nil, err
		}
		s.Pools = append(s.Pools, p)
	}
	if o.account != nil {
		s.Storage = &StorageStatus{Account: m.Cluster.Spec.Storage.Account, State: o.account.Properties.ProvisioningState, Shares: []string{}}
		shares, err := m.list(ctx, m.accountID()+"/fileServices/default/shares", storageVersion)
		if err != nil {
			return nil, err
		}
		for _, r := range shares {
			s.Storage.Shares = append(s.Storage.Shares, r.Name)
		}
	}
	s.Endpoints, err = m.Endpoints(ctx)
	return s, err
}

func (m *Manager) groupStatus(ctx context.Context, role string, o *observation) (GroupStatus, error) {
	g := GroupStatus{Role: role, Name: m.group(role).Name(), Exists: o.groups[role] != nil, Resources: len(o.resources[role])}
	if !g.Exists {
		return g, nil
	}
	g.State = o.groups[role].Properties.ProvisioningState
	d, err := m.get(ctx, m.deploymentID(role), resourcesVersion)
	if d == nil || err != nil {
		return g, err
	}
	g.Deployment = d.Properties.ProvisioningState
	if at := d.Properties.Timestamp; !at.IsZero() {
		g.DeployedAt = &at
	}
	if d.Properties.Error != nil {
		code, message := d.Properties.Error.deepest()
		g.Error = code + ": " + message
	}
	return g, nil
}

func (m *Manager) poolStatus(ctx context.Context, set resource, captured bool) (PoolStatus, error) {
	p := PoolStatus{Name: set.Name, Size: set.SKU.Name, Priority: cmp.Or(set.Properties.Profile.Priority, "Regular"), Wanted: set.SKU.Capacity,
		State: set.Properties.ProvisioningState, InFile: m.pool(set.Name) != nil, Captured: captured, States: map[string]int{}}
	all, err := m.list(ctx, set.ID+"/virtualMachines", computeVersion, "$expand", "instanceView")
	p.Instances = len(all)
	for _, i := range all {
		p.States[i.Properties.ProvisioningState]++
		if i.power() == "running" {
			p.Running++
		}
	}
	return p, err
}

// Endpoints are the server's open ports; none without its public address.
func (m *Manager) Endpoints(ctx context.Context) ([]Endpoint, error) {
	all := []Endpoint{}
	a, err := m.get(ctx, m.in(RoleCompute, "Microsoft.Network/publicIPAddresses", recipe.ServerName), networkVersion)
	if a == nil || err != nil {
		return all, err
	}
	access := m.Cluster.Spec.Access
	for _, e := range []Endpoint{{Name: "ssh", Port: access.SSHPort, Open: access.SSH}, {Name: "api", Port: 6443, Open: access.API},
		{Name: "http", Port: 80, Open: access.Ingress}, {Name: "https", Port: 443, Open: access.Ingress}} {
		if len(e.Open) > 0 {
			e.Address, e.FQDN = a.Properties.IPAddress, a.Properties.DNSSettings.FQDN
			all = append(all, e)
		}
	}
	return all, nil
}
