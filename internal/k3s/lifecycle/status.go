package lifecycle

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/ortet/ortet/internal/k3s/recipe"
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
	LastBackup   *time.Time     `json:"lastBackup,omitempty"` // the newest that is complete in spec.backup.group
	Billed       []Charge       `json:"billed"`               // of what exists
	Notes        []string       `json:"notes,omitempty"`      // what Up would leave as it is
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
	Size      string `json:"size"`
	State     string `json:"state"`               // provisioning state
	Power     string `json:"power"`               // "running", "deallocated"
	Stopped   bool   `json:"stopped"`             // by ortet cluster stop
	Boot      string `json:"boot,omitempty"`      // what the machine reported last
	Ready     bool   `json:"ready"`               // it runs by the settings of cluster.yaml, its Node is Ready, and it admits agents
	K3s       string `json:"k3s,omitempty"`       // version that its Node runs
	Datastore string `json:"datastore,omitempty"` // damage of SQLite's file, and which copy serves
	// Tailnet is what it reported of its tailnet; nil without spec.access.tailscale.
	Tailnet *TailnetStatus `json:"tailnet,omitempty"`
	// CertificatesEnd is when the first of k3s's certificates ends, as the server reported.
	CertificatesEnd *time.Time `json:"certificatesEnd,omitempty"`
	Recipe          string     `json:"recipe"`     // that it was made with
	SameRecipe      bool       `json:"sameRecipe"` // it is the one of cluster.yaml
	// SameSettings says that it runs by the settings of cluster.yaml.
	SameSettings bool `json:"sameSettings"`
}

// A PoolStatus is a scale set.
type PoolStatus struct {
	Name      string         `json:"name"`
	Size      string         `json:"size"`
	Priority  string         `json:"priority"` // Spot, Regular
	Wanted    int            `json:"wanted"`   // its capacity
	Instances int            `json:"instances"`
	Running   int            `json:"running"`
	Behind    int            `json:"behind"`           // instances that lack a part of the scale set's model
	States    map[string]int `json:"states,omitempty"` // provisioning state to instances
	State     string         `json:"state"`            // provisioning state of the scale set
	InFile    bool           `json:"inFile"`           // cluster.yaml has it
	Stopped   bool           `json:"stopped"`          // by ortet cluster stop
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
	Address string   `json:"address"` // public, or without one that of the tailnet or of the network
	FQDN    string   `json:"fqdn,omitempty"`
	Port    int      `json:"port"`
	Open    []string `json:"open"` // to whom: ranges, or the names in cluster.yaml
}

// warnCertificates is how long before their end Status warns of certificates. k3s renews
// them from 90 days before, or earlier.
const warnCertificates = 30 * 24 * time.Hour

// Status reads what exists.
func (m *Manager) Status(ctx context.Context) (*Status, error) {
	o, err := m.observe(ctx)
	if err != nil {
		return nil, err
	}
	// Neither changes the server's recipe and settings, which is all that is compared.
	reading := *m
	reading.SSHPublicKey, reading.OwnAddresses = cmp.Or(m.serverKey(o), "ssh-ed25519 AAAA"), []string{"192.0.2.1"}
	d, err := reading.render(o)
	if err != nil {
		return nil, err
	}
	agents, err := m.agents(ctx, o)
	if err != nil {
		return nil, err
	}
	r := &reads{m: m}
	behind, notes := m.behind(ctx, agents)
	s := &Status{Cluster: m.name(), Subscription: m.Subscription, Location: m.Cluster.Spec.Location, Pools: []PoolStatus{}, Notes: slices.Concat(m.unfinished(o, agents), m.notes(o, d, false), missing(o, d, agents), notes)}
	for _, role := range roles() {
		g := GroupStatus{Role: role, Name: m.group(role).Name(), Exists: o.groups[role] != nil, Resources: len(o.resources[role])}
		if g.Exists {
			g.State = o.groups[role].Properties.ProvisioningState
			g.deployed(r.get(ctx, m.deploymentID(role), resourcesVersion))
		}
		s.Groups = append(s.Groups, g)
	}
	if vm := o.server; vm != nil {
		s.Server = &ServerStatus{Size: vm.Properties.HardwareProfile.VMSize, State: vm.Properties.ProvisioningState, Power: vm.power(), Stopped: stoppedServer(o), Boot: vm.Tags[recipe.TagBoot],
			Ready: ready(vm, d.SettingsDigest), K3s: vm.Tags[recipe.TagK3s], Datastore: vm.Tags[recipe.TagDatastore],
			Tailnet:      m.tailnet(vm),
			SameSettings: vm.Tags[recipe.TagSettings] == d.SettingsDigest, Recipe: vm.Tags[recipe.TagRecipe], SameRecipe: vm.Tags[recipe.TagRecipe] == d.ServerRecipe}
		if note := s.Server.Tailnet.note(m.Now()); note != "" {
			s.Notes = append(s.Notes, note)
		}
		if end, err := time.Parse(time.RFC3339, vm.Tags[recipe.TagCerts]); err == nil {
			s.Server.CertificatesEnd = &end
			if left := end.Sub(m.Now()); left < warnCertificates {
				s.Notes = append(s.Notes, fmt.Sprintf("certificates of k3s end on %s; k3s renews them when it starts: ortet cluster ssh -- sudo systemctl restart k3s", end.Format(time.DateOnly)))
			}
		}
	}
	for _, name := range sorted(o.sets) {
		set := o.sets[name]
		p := PoolStatus{Name: name, Size: set.SKU.Name, Priority: cmp.Or(set.Properties.Profile.Priority, "Regular"), Wanted: set.SKU.Capacity,
			State: set.Properties.ProvisioningState, InFile: m.pool(name) != nil, Behind: behind[name], Stopped: stoppedPool(set, agents[name]), States: map[string]int{}}
		for _, i := range agents[name] {
			p.Instances++
			p.States[i.ProvisioningState]++
			if i.Power == "running" {
				p.Running++
			}
		}
		s.Pools = append(s.Pools, p)
	}
	if o.account != nil {
		s.Storage = &StorageStatus{Account: m.Cluster.Spec.Storage.Account, State: o.account.Properties.ProvisioningState, Shares: []string{}}
		for _, share := range r.list(ctx, m.accountID()+"/fileServices/default/shares", storageVersion) {
			s.Storage.Shares = append(s.Storage.Shares, share.Name)
		}
	}
	var warning string
	if s.LastBackup, warning, err = m.lastBackup(ctx); err != nil {
		return nil, err
	}
	if warning != "" {
		s.Notes = append(s.Notes, warning)
	}
	s.Endpoints = m.endpoints(ctx, r)
	if s.Billed, err = m.billed(ctx, o, nil, agents); err != nil {
		return nil, err
	}
	return s, r.err
}

// deployed adds the last deployment; nil is none.
func (g *GroupStatus) deployed(d *resource) {
	if d == nil {
		return
	}
	g.Deployment = d.Properties.ProvisioningState
	if at := d.Properties.Timestamp; !at.IsZero() {
		g.DeployedAt = &at
	}
	if d.Properties.Error != nil {
		code, message := d.Properties.Error.deepest()
		g.Error = code + ": " + message
	}
}

// Endpoints are the server's open ports; none without its public address.
func (m *Manager) Endpoints(ctx context.Context) ([]Endpoint, error) {
	r := &reads{m: m}
	all := m.endpoints(ctx, r)
	return all, r.err
}

func (m *Manager) endpoints(ctx context.Context, r *reads) []Endpoint {
	all := []Endpoint{}
	access, a := m.Cluster.Spec.Access, m.publicAddress(ctx, r)
	if a == nil {
		return m.privateEndpoints(ctx, r)
	}
	for _, e := range []Endpoint{{Name: "ssh", Port: access.SSHPort, Open: access.SSH}, {Name: "api", Port: 6443, Open: access.API},
		{Name: "http", Port: 80, Open: access.Ingress}, {Name: "https", Port: 443, Open: access.Ingress}} {
		if len(e.Open) > 0 {
			e.Address, e.FQDN = a.Properties.IPAddress, a.Properties.DNSSettings.FQDN
			all = append(all, e)
		}
	}
	return all
}
