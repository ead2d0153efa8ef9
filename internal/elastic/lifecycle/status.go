package lifecycle

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/ortet/ortet/internal/elastic/recipe"
	"github.com/ortet/ortet/internal/fleet"
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
	// Neither changes the server's recipe, which is all that is compared.
	reading := *m
	reading.SSHPublicKey, reading.OwnAddresses = "ssh-ed25519 AAAA", []string{"192.0.2.1"}
	o, d, err := reading.render(ctx)
	if err != nil {
		return nil, err
	}
	s := &Status{Cluster: m.name(), Subscription: m.Subscription, Location: m.Cluster.Spec.Location, Pools: []PoolStatus{}, Notes: m.notes(o, d)}
	for _, role := range []string{RoleStorage, RoleCompute} {
		g, err := m.groupStatus(ctx, role, o)
		if err != nil {
			return nil, err
		}
		s.Groups = append(s.Groups, g)
	}
	if o.server != nil {
		p := o.server.Properties
		s.Server = &ServerStatus{Size: p.HardwareProfile.VMSize, State: p.ProvisioningState, Boot: o.server.Tags[recipe.TagBoot],
			Ready: o.server.Tags[recipe.TagCAHash] != "", Recipe: o.server.Tags[recipe.TagRecipe], SameRecipe: o.server.Tags[recipe.TagRecipe] == d.ServerRecipe}
		var view instanceView
		if _, err := m.get(ctx, m.serverID()+"/instanceView", computeVersion, &view); err != nil {
			return nil, err
		}
		s.Server.Power = view.power()
	}
	for _, name := range sorted(o.sets) {
		p, err := m.poolStatus(ctx, o.sets[name])
		if err != nil {
			return nil, err
		}
		s.Pools = append(s.Pools, p)
	}
	if o.account {
		if s.Storage, err = m.storageStatus(ctx); err != nil {
			return nil, err
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
	var d deploymentState
	found, err := m.get(ctx, m.deploymentID(role), resourcesVersion, &d)
	if !found || err != nil {
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

// An instanceView is what Azure knows of a machine that runs.
type instanceView struct {
	Statuses []struct {
		Code string `json:"code"` // "PowerState/running"
	} `json:"statuses"`
}

func (v instanceView) power() string {
	for _, s := range v.Statuses {
		if state, ok := strings.CutPrefix(s.Code, "PowerState/"); ok {
			return state
		}
	}
	return "unknown"
}

func (m *Manager) poolStatus(ctx context.Context, set machineSet) (PoolStatus, error) {
	p := PoolStatus{Name: set.Name, Size: set.SKU.Name, Priority: set.Properties.VirtualMachineProfile.Priority, Wanted: set.SKU.Capacity,
		State: set.Properties.ProvisioningState, InFile: m.pool(set.Name) != nil, Captured: set.captured, States: map[string]int{}}
	if p.Priority == "" {
		p.Priority = "Regular"
	}
	type instance struct {
		Properties struct {
			ProvisioningState string       `json:"provisioningState"`
			InstanceView      instanceView `json:"instanceView"`
		} `json:"properties"`
	}
	all, err := list[instance](ctx, m, set.ID+"/virtualMachines", computeVersion, "$expand", "instanceView")
	p.Instances = len(all)
	for _, i := range all {
		p.States[i.Properties.ProvisioningState]++
		if i.Properties.InstanceView.power() == "running" {
			p.Running++
		}
	}
	return p, err
}

func (m *Manager) storageStatus(ctx context.Context) (*StorageStatus, error) {
	var a struct {
		Properties struct {
			ProvisioningState string `json:"provisioningState"`
		} `json:"properties"`
	}
	if _, err := m.get(ctx, m.accountID(), storageVersion, &a); err != nil {
		return nil, err
	}
	s := &StorageStatus{Account: m.Cluster.Spec.Storage.Account, State: a.Properties.ProvisioningState, Shares: []string{}}
	err := m.ARM.List(ctx, m.accountID()+"/fileServices/default/shares", storageVersion, func(raw json.RawMessage) error {
		var r resource
		err := json.Unmarshal(raw, &r)
		s.Shares = append(s.Shares, r.Name)
		return err
	})
	if fleet.Is(err, fleet.KindNotFound) {
		err = nil
	}
	return s, err
}

// Endpoints are the server's open ports; none without its public address.
func (m *Manager) Endpoints(ctx context.Context) ([]Endpoint, error) {
	var a struct {
		Properties struct {
			IPAddress   string `json:"ipAddress"`
			DNSSettings struct {
				FQDN string `json:"fqdn"`
			} `json:"dnsSettings"`
		} `json:"properties"`
	}
	found, err := m.get(ctx, m.in(RoleCompute, "Microsoft.Network/publicIPAddresses", recipe.ServerName), networkVersion, &a)
	all := []Endpoint{}
	if !found || err != nil {
		return all, err
	}
	access := m.Cluster.Spec.Access
	for _, e := range []Endpoint{{Name: "ssh", Port: access.SSHPort, Open: access.SSH}, {Name: "api", Port: 6443, Open: access.API},
		{Name: "http", Port: 80, Open: access.Ingress}, {Name: "https", Port: 443, Open: access.Ingress}} {
		if len(e.Open) == 0 {
			continue
		}
		e.Address, e.FQDN = a.Properties.IPAddress, a.Properties.DNSSettings.FQDN
		all = append(all, e)
	}
	return all, nil
}
