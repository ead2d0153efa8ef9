package lifecycle

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/k3s"
	"github.com/ortet/ortet/internal/k3s/recipe"
)

// A resource is what is read of resources, groups, deployments and their operations; each
// kind has some of the fields.
type resource struct {
	ID          fleet.ResourceID  `json:"id"`
	Name        string            `json:"name"`
	Type        string            `json:"type"`
	Location    string            `json:"location"`
	Zones       []string          `json:"zones"`
	Tags        map[string]string `json:"tags"`
	ManagedBy   fleet.ResourceID  `json:"managedBy"`         // disk: its machine
	State       string            `json:"registrationState"` // provider
	OperationID string            `json:"operationId"`
	ETag        string            `json:"etag"`
	Identity    struct {
		Type         string                   `json:"type"`
		UserAssigned map[fleet.ResourceID]any `json:"userAssignedIdentities"`
	} `json:"identity"`
	SKU struct {
		Name     string `json:"name"`
		Capacity int    `json:"capacity"`
	} `json:"sku"`
	Properties struct {
		ProvisioningState string `json:"provisioningState"`

		// Autoscale settings.
		Profiles []struct {
			Capacity struct {
				Minimum string `json:"minimum"`
				Maximum string `json:"maximum"`
			} `json:"capacity"`
		} `json:"profiles"`

		// Deployments and their operations.
		Parameters struct {
			Applied struct {
				Value []recipe.Applied `json:"value"`
			} `json:"applied"`
		} `json:"parameters"`
		CorrelationID string          `json:"correlationId"`
		Timestamp     time.Time       `json:"timestamp"`
		Error         *armError       `json:"error"`
		StatusMessage json.RawMessage `json:"statusMessage"` // an object, or a text
		Target        struct {
			Type string `json:"resourceType"`
			Name string `json:"resourceName"`
		} `json:"targetResource"`

		// Disks and snapshots.
		DiskSizeGB  int       `json:"diskSizeGB"`
		TimeCreated time.Time `json:"timeCreated"`
		Creation    struct {
			Source fleet.ResourceID `json:"sourceResourceId"`
		} `json:"creationData"`
		CompletionPercent *float64 `json:"completionPercent"` // of a copy from another region
		CopyError         struct {
			Code    string `json:"errorCode"`
			Message string `json:"errorMessage"`
		} `json:"copyCompletionError"`

		// Machines and scale sets.
		UserData        string `json:"userData"`
		HardwareProfile struct {
			VMSize string `json:"vmSize"`
		} `json:"hardwareProfile"`
		StorageProfile struct {
			ImageReference k3s.Image `json:"imageReference"`
			OSDisk         osDisk    `json:"osDisk"`
			DataDisks      []struct {
				ManagedDisk struct {
					ID fleet.ResourceID `json:"id"`
				} `json:"managedDisk"`
			} `json:"dataDisks"`
		} `json:"storageProfile"`
		OSProfile osProfile `json:"osProfile"`
		ScaleIn   struct {
			Rules []string `json:"rules"`
		} `json:"scaleInPolicy"`
		InstanceView struct {
			Statuses []struct {
				Code string `json:"code"` // "PowerState/running"
			} `json:"statuses"`
		} `json:"instanceView"`
		Profile struct {
			Priority       string    `json:"priority"` // "" is Regular
			EvictionPolicy string    `json:"evictionPolicy"`
			OSProfile      osProfile `json:"osProfile"`
			StorageProfile struct {
				ImageReference k3s.Image `json:"imageReference"`
				OSDisk         osDisk    `json:"osDisk"`
			} `json:"storageProfile"`
			ExtensionProfile struct {
				Extensions []map[string]any `json:"extensions"`
			} `json:"extensionProfile"`
		} `json:"virtualMachineProfile"`

		// Security groups.
		SecurityRules []securityRule `json:"securityRules"`

		// Network interfaces.
		IPConfigurations []ipConfiguration `json:"ipConfigurations"`

		// Virtual networks.
		AddressSpace struct {
			AddressPrefixes []string `json:"addressPrefixes"`
		} `json:"addressSpace"`
		Subnets []struct {
			Name       string `json:"name"`
			Properties struct {
				AddressPrefix   string   `json:"addressPrefix"`
				AddressPrefixes []string `json:"addressPrefixes"` // of a subnet that has several
				NATGateway      any      `json:"natGateway"`
			} `json:"properties"`
		} `json:"subnets"`

		// Public addresses.
		IPAddress   string `json:"ipAddress"`
		DNSSettings struct {
			FQDN string `json:"fqdn"`
		} `json:"dnsSettings"`
	} `json:"properties"`
}

type securityRule struct {
	Name       string `json:"name"`
	Properties struct {
		Description string   `json:"description"`
		From        []string `json:"sourceAddressPrefixes"`
		One         string   `json:"sourceAddressPrefix"` // in place of a list of one
		Ports       []string `json:"destinationPortRanges"`
		Port        string   `json:"destinationPortRange"` // in place of a list of one
	} `json:"properties"`
}

type ipConfiguration struct {
	Properties struct {
		Public any `json:"publicIPAddress"`
	} `json:"properties"`
}

type osDisk struct {
	DiskSizeGB  int `json:"diskSizeGB"`
	ManagedDisk struct {
		Type string `json:"storageAccountType"`
	} `json:"managedDisk"`
}

type osProfile struct {
	AdminUsername string `json:"adminUsername"`
	Linux         struct {
		SSH struct {
			PublicKeys []struct {
				KeyData string `json:"keyData"`
			} `json:"publicKeys"`
		} `json:"ssh"`
	} `json:"linuxConfiguration"`
}

// sshKey is the public key that a machine was made with, or "".
func (r *resource) sshKey() string {
	for _, key := range r.Properties.OSProfile.Linux.SSH.PublicKeys {
		return strings.TrimSpace(key.KeyData)
	}
	return ""
}

func (r *resource) is(state string) bool {
	return strings.EqualFold(r.Properties.ProvisioningState, state)
}

// state is the provisioning state, or what of a snapshot's copy: Azure says Succeeded before
// the bytes are there ("completionPercent").
func (r *resource) state() string {
	switch p := r.Properties; {
	case p.CopyError.Code != "":
		return p.CopyError.Code
	case p.CompletionPercent != nil && *p.CompletionPercent < 100:
		return fmt.Sprintf("copied to %.0f%%", *p.CompletionPercent)
	}
	return r.Properties.ProvisioningState
}

// copying reports whether Azure copies a snapshot now.
func copying(r resource) bool {
	return azure.Busy(r.Properties.ProvisioningState) || strings.HasPrefix(r.state(), "copied to ")
}

// underWay reports whether a deployment exists and has not ended: Azure answers Accepted
// before Running.
func (r *resource) underWay() bool {
	return r != nil && azure.Busy(r.Properties.ProvisioningState)
}

// power is "running", "deallocated".
func (r *resource) power() string {
	for _, s := range r.Properties.InstanceView.Statuses {
		if state, ok := strings.CutPrefix(s.Code, "PowerState/"); ok {
			return state
		}
	}
	return "unknown"
}

// An observation is what of the cluster exists.
type observation struct {
	groups    map[string]*resource // by role; nil is missing
	resources map[string][]resource
	account   *resource            // the storage account, in the storage group
	state     *resource            // the state disk, in the storage group
	server    *resource            // its VM, with userData
	records   []recipe.Applied     // of the compute deployment: its own, and of the last one that succeeded before
	deployed  bool                 // that deployment succeeded
	sets      map[string]resource  // by pool's name, ours only
	restore   string               // the backup that an unfinished restore names, or ""
	before    string               // its recipe.TagRestoreBefore
	backup    *resource            // the snapshot of that backup
	security  map[string]*resource // security groups, k3s.ToServers and k3s.ToAgents, if documents read them; nil is missing
	nic       *resource            // the server's interface, if documents read it; nil is missing
	replace   bool                 // the server's VM is to be made again, on the same state disk
}

// serverStays reports whether there is a server, and its VM is not to be made again.
func (o *observation) serverStays() bool {
	return o.server != nil && !o.replace && (o.restore == "" || o.restored())
}

// applied is the record of the last compute deployment that succeeded, or the oldest known; nil
// is none.
func (o *observation) applied() *recipe.Applied {
	n := len(o.records)
	switch {
	case n == 0:
		return nil
	case o.deployed:
		return &o.records[0]
	}
	return &o.records[n-1]
}

// restored reports whether the state disk was made by the unfinished restore.
func (o *observation) restored() bool {
	return o.state != nil && o.state.Tags[recipe.TagRestoreBefore] == o.before && !o.state.is("Failed")
}

func (m *Manager) observe(ctx context.Context) (*observation, error) {
	o := &observation{groups: map[string]*resource{}, resources: map[string][]resource{}, sets: map[string]resource{}}
	r := &reads{m: m}
	for _, role := range roles() {
		if o.groups[role] = r.get(ctx, m.group(role), resourcesVersion); o.groups[role] != nil {
			o.resources[role] = r.list(ctx, m.group(role)+"/resources", resourcesVersion)
		}
	}
	if g := o.groups[RoleStorage]; g != nil {
		o.account = r.get(ctx, m.accountID(), storageVersion)
		o.state = r.get(ctx, m.stateID(), diskVersion)
		if o.restore, o.before = g.Tags[recipe.TagRestore], g.Tags[recipe.TagRestoreBefore]; o.restore != "" {
			o.backup = r.get(ctx, m.backupID(o.restore), diskVersion)
		}
	}
	if o.groups[RoleCompute] != nil {
		if o.server = r.get(ctx, m.serverID(), computeVersion, "$expand", "instanceView"); o.server != nil {
			if vm := r.get(ctx, m.serverID(), computeVersion, "$expand", "userData"); vm != nil {
				o.server.Properties.UserData = vm.Properties.UserData
			}
		}
		if d := r.get(ctx, m.deploymentID(RoleCompute), resourcesVersion); d != nil {
			o.records, o.deployed = d.Properties.Parameters.Applied.Value, d.is("Succeeded")
		}
		for _, s := range r.list(ctx, m.group(RoleCompute)+"/providers/Microsoft.Compute/virtualMachineScaleSets", computeVersion) {
			if s.Tags[recipe.TagCluster] == m.name() {
				o.sets[s.Name] = s
			}
		}
	}
	return o, r.err
}

// agents lists the instances of the pools, by the pool's name.
func (m *Manager) agents(ctx context.Context, o *observation) (map[string][]fleet.Instance, error) {
	all := map[string][]fleet.Instance{}
	for _, name := range sorted(o.sets) {
		list, err := m.Cloud.Instances(ctx, o.sets[name].ID)
		if fleet.IgnoreNotFound(err) != nil {
			return nil, err
		}
		all[name] = list
	}
	return all, nil
}

// behind counts the agents of each pool that do not have its model, and notes what gives it to
// them, and those of which it is not known. It reads the pools of which Azure says that some may not.
func (m *Manager) behind(ctx context.Context, agents map[string][]fleet.Instance) (count map[string]int, notes []string) {
	count = map[string]int{}
	for _, name := range sorted(agents) {
		changed := slices.DeleteFunc(slices.Clone(agents[name]), func(i fleet.Instance) bool { return i.LatestModelApplied })
		if len(changed) == 0 {
			continue
		}
		unknown, why := 0, "by which cloud-init document they were made"
		pool, err := m.Cloud.Pool(ctx, changed[0].Pool)
		if err != nil {
			why = err.Error()
		}
		for _, i := range changed {
			switch part, known := i.Lacks(pool, recipe.CloudInit); {
			case err != nil || !known:
				unknown++
			case part != "":
				count[name]++
			}
		}
		if n := count[name]; n > 0 {
			notes = append(notes, fmt.Sprintf("pool %s: %d of %d agents are behind the pool's model; ortet cluster reimage %[1]s --outdated renews them",
				name, n, len(agents[name])))
		}
		if unknown > 0 {
			notes = append(notes, fmt.Sprintf("pool %s: not known whether %d of %d agents are behind the pool's model (%s); "+
				"ortet cluster reimage %[1]s renews all", name, unknown, len(agents[name]), why))
		}
	}
	return count, notes
}

func (m *Manager) pool(name string) *k3s.Pool {
	pools := m.Cluster.Spec.Pools
	if i := slices.IndexFunc(pools, func(p k3s.Pool) bool { return p.Name == name }); i >= 0 {
		return &pools[i]
	}
	return nil
}

// removed are pools that exist and are not in cluster.yaml.
func (m *Manager) removed(o *observation) []string {
	return slices.DeleteFunc(sorted(o.sets), func(name string) bool { return m.pool(name) != nil })
}

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// documents makes the templates for what exists, also for the ports of SSH that are open.
func (m *Manager) documents(ctx context.Context, o *observation) (*recipe.Documents, error) {
	r := &reads{m: m}
	o.security = m.securityGroups(ctx, r)
	if m.withoutAddress() {
		o.nic = r.get(ctx, m.interfaceID(), networkVersion)
	}
	if r.err != nil {
		return nil, r.err
	}
	return m.render(o)
}

func (m *Manager) securityGroups(ctx context.Context, r *reads) map[string]*resource {
	all := map[string]*resource{}
	for _, to := range []string{k3s.ToServers, k3s.ToAgents} {
		all[to] = r.get(ctx, m.securityGroup(to), networkVersion)
	}
	return all
}

// render makes the templates for what exists. Without documents, those of security groups
// lack ports that are open.
func (m *Manager) render(o *observation) (*recipe.Documents, error) {
	f := recipe.Facts{SSHPublicKey: m.SSHPublicKey, OwnAddresses: m.OwnAddresses, Subscription: m.Subscription, ServerExists: o.server != nil, SSHPorts: map[string][]string{}, Live: map[string]recipe.Live{}}
	for to, group := range o.security {
		f.SSHPorts[to] = sshPorts(group)
	}
	if o.server != nil {
		f.ServerKey = o.server.sshKey()
	}
	f.Applied = o.applied()
	// A new cluster begins with an address; it is given up when another way was checked.
	f.NoPublicAddress = m.withoutAddress() && o.nic != nil && !o.nic.hasAddress()
	// Both ways stay open until the deployment that changes them has succeeded.
	if m.withoutAddress() && !f.NoPublicAddress || !m.withoutAddress() && fieldsOf(f.Applied)["spec.access.publicAddress"] == k3s.None {
		f.Sources = map[string][]string{}
		for name := range m.sources() {
			f.Sources[name] = sourcesOf(o.security[k3s.ToServers], name)
		}
	}
	f.StateExists = o.state != nil || o.restore != "" // a restore makes it of a backup, never blank
	if o.server == nil && !f.StateExists {
		f.Renew = sorted(o.sets)
	}
	for name, s := range o.sets {
		f.Live[name] = recipe.Live{Count: s.SKU.Capacity, Size: s.SKU.Name, Image: s.Properties.Profile.StorageProfile.ImageReference,
			Applied: s.Tags[recipe.TagApplied], Tags: s.Tags,
			Extensions: s.Properties.Profile.ExtensionProfile.Extensions}
	}
	d, err := m.Render(m.Cluster, f)
	if err == nil && o.server != nil && o.server.is("Failed") && d.ServerRecipe == o.server.Tags[recipe.TagRecipe] {
		// The same customData again is no change, and the rest of the VM is repaired.
		f.ServerExists = false
		return m.Render(m.Cluster, f)
	}
	return d, err
}
