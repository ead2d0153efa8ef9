package lifecycle

import (
	"context"
	"strconv"
	"strings"

	"github.com/ortet/ortet/internal/elastic"
	"github.com/ortet/ortet/internal/elastic/recipe"
	"github.com/ortet/ortet/internal/fleet"
)

// A resource is what ARM lists of all kinds.
type resource struct {
	ID        fleet.ResourceID  `json:"id"`
	Name      string            `json:"name"`
	Type      string            `json:"type"`
	Location  string            `json:"location"`
	Tags      map[string]string `json:"tags"`
	ManagedBy fleet.ResourceID  `json:"managedBy"`
}

// A group is a resource group.
type group struct {
	resource
	Properties struct {
		ProvisioningState string `json:"provisioningState"`
	} `json:"properties"`
}

// A machineSet is a scale set.
type machineSet struct {
	resource
	SKU struct {
		Name     string `json:"name"`
		Capacity int    `json:"capacity"`
	} `json:"sku"`
	Properties struct {
		ProvisioningState     string `json:"provisioningState"`
		VirtualMachineProfile struct {
			Priority       string `json:"priority"`
			StorageProfile struct {
				ImageReference struct {
					ID fleet.ResourceID `json:"id"`
				} `json:"imageReference"`
			} `json:"storageProfile"`
		} `json:"virtualMachineProfile"`
	} `json:"properties"`
	// captured: the model's image is one of ortet capture's.
	captured bool
}

// A machine is the server's VM.
type machine struct {
	resource
	Properties struct {
		ProvisioningState string `json:"provisioningState"`
		HardwareProfile   struct {
			VMSize string `json:"vmSize"`
		} `json:"hardwareProfile"`
	} `json:"properties"`
}

// An observation is what of the cluster exists.
type observation struct {
	groups    map[string]*group // by role; nil is missing
	resources map[string][]resource
	server    *machine
	sets      map[string]machineSet // by pool's name, ours only
	account   bool                  // the storage account is in the storage group
}

func (m *Manager) observe(ctx context.Context) (*observation, error) {
	o := &observation{groups: map[string]*group{}, resources: map[string][]resource{}, sets: map[string]machineSet{}}
	for _, role := range []string{RoleStorage, RoleCompute} {
		var g group
		found, err := m.get(ctx, m.group(role), resourcesVersion, &g)
		if err != nil {
			return nil, err
		}
		if !found {
			continue
		}
		o.groups[role] = &g
		if o.resources[role], err = list[resource](ctx, m, m.group(role)+"/resources", resourcesVersion); err != nil {
			return nil, err
		}
	}
	if o.groups[RoleStorage] != nil {
		var err error
		if o.account, err = m.get(ctx, m.accountID(), storageVersion, &struct{}{}); err != nil {
			return nil, err
		}
	}
	if o.groups[RoleCompute] == nil {
		return o, nil
	}
	var vm machine
	found, err := m.get(ctx, m.serverID(), computeVersion, &vm)
	if err != nil {
		return nil, err
	}
	if found {
		o.server = &vm
	}
	sets, err := list[machineSet](ctx, m, m.group(RoleCompute)+"/providers/Microsoft.Compute/virtualMachineScaleSets", computeVersion)
	if err != nil {
		return nil, err
	}
	for _, s := range sets {
		if s.Tags[recipe.TagCluster] != m.name() {
			continue
		}
		if s.captured, err = m.captured(ctx, s); err != nil {
			return nil, err
		}
		o.sets[s.Name] = s
	}
	return o, nil
}

// captured reports whether new instances boot from an image that ortet capture made,
// and not from the one of cluster.yaml. docs/capture.md has the tags.
func (m *Manager) captured(ctx context.Context, s machineSet) (bool, error) {
	image := s.Properties.VirtualMachineProfile.StorageProfile.ImageReference.ID
	if image == "" {
		return false, nil
	}
	if p := m.pool(s.Name); p != nil && image.Equal(fleet.ResourceID(p.Image.ID)) {
		return false, nil
	}
	var r resource
	if _, err := m.get(ctx, image, galleryVersion, &r); err != nil {
		return false, err
	}
	return r.Tags["BuiltFrom"] != "" || r.Tags["ortet.io_created-by"] != "", nil
}

func (m *Manager) pool(name string) *elastic.Pool {
	for i, p := range m.Cluster.Spec.Pools {
		if p.Name == name {
			return &m.Cluster.Spec.Pools[i]
		}
	}
	return nil
}

// removed are pools that exist and are not in cluster.yaml.
func (m *Manager) removed(o *observation) []string {
	var names []string
	for _, name := range sorted(o.sets) {
		if m.pool(name) == nil {
			names = append(names, name)
		}
	}
	return names
}

// facts are what rendering needs of what exists. A pool keeps the number of instances
// that it has, unless the count in cluster.yaml was changed since it was last applied.
func (m *Manager) facts(o *observation) (recipe.Facts, error) {
	f := recipe.Facts{SSHPublicKey: m.SSHPublicKey, OwnAddresses: m.OwnAddresses, Capacity: map[string]int{}, Leave: map[string]bool{}}
	for _, p := range m.Cluster.Spec.Pools {
		s, exists := o.sets[p.Name]
		switch {
		case !exists:
			continue
		case s.captured:
			f.Leave[p.Name] = true
		}
		f.Capacity[p.Name] = s.SKU.Capacity
		if p.Count != nil && s.Tags[recipe.TagCount] != strconv.Itoa(*p.Count) {
			f.Capacity[p.Name] = *p.Count
		}
	}
	if o.server == nil {
		return f, nil
	}
	f.ServerExists = true
	if strings.EqualFold(o.server.Properties.ProvisioningState, "Failed") {
		// The same customData again is no change, and the rest of the VM is repaired.
		d, err := m.Render(m.Cluster, f)
		if err != nil {
			return f, err
		}
		f.ServerExists = d.ServerRecipe != o.server.Tags[recipe.TagRecipe]
	}
	return f, nil
}
