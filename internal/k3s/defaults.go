package k3s

import (
	"maps"
	"slices"
)

// ubuntuLTS is the image of a cluster.yaml that names none.
var ubuntuLTS = Image{Publisher: "Canonical", Offer: "ubuntu-24_04-lts", SKU: "server", Version: "latest"}

const (
	defaultSize     = "Standard_D2s_v5"
	defaultDiskType = "StandardSSD_LRS"
	defaultDiskGB   = 32
	defaultStateGB  = 8
	defaultKeep     = 7
)

// SetDefaults sets all fields that have a default and are not set. Parse calls it.
func (c *Cluster) SetDefaults() {
	s, name := &c.Spec, c.Metadata.Name
	set(&s.Groups.Storage, name+"-storage")
	set(&s.Groups.Compute, name+"-compute")
	image(&s.Image, ubuntuLTS)
	set(&s.Network.AddressSpace, "10.16.0.0/16")
	set(&s.Network.Servers, "10.16.0.0/24")
	set(&s.Network.Agents, "10.16.16.0/20")
	set(&s.Network.Pods, "10.42.0.0/16")
	set(&s.Network.Services, "10.43.0.0/16")
	set(&s.Network.Outbound, Gateway)

	set(&s.Server.Size, defaultSize)
	set(&s.Server.DiskGB, defaultDiskGB)
	set(&s.Server.DiskType, defaultDiskType)
	set(&s.Server.StateGB, defaultStateGB)
	image(&s.Server.Image, s.Image)
	for i := range s.Pools {
		p := &s.Pools[i]
		set(&p.Size, defaultSize)
		set(&p.Priority, Spot)
		if p.Priority == Spot {
			set(&p.EvictionPolicy, Delete)
		}
		if p.Min != nil && p.Count == nil {
			set(&p.ScaleBy, CPU)
		}
		set(&p.ScaleInPolicy, "Default")
		set(&p.DiskGB, defaultDiskGB)
		set(&p.DiskType, defaultDiskType)
		image(&p.Image, s.Image)
		p.setGPU()
	}

	if s.Storage.Shares == nil {
		s.Storage.Shares = []string{"config", "data", "registry"}
	}
	set(&s.Storage.Mount, "data")
	if s.Backup != nil {
		set(&s.Backup.Keep, defaultKeep)
	}
	set(&s.Access.User, "ortet")
	set(&s.Access.SSHPort, 22)
	set(&s.Access.SSHKey, name+".pub")
	set(&s.Access.PublicAddress, Static)
	if t := s.Access.Tailscale; t != nil {
		set(&t.Hostname, name)
	}
	if s.Access.SSH == nil {
		s.Access.SSH = []string{Own}
	}
	if s.Access.API == nil {
		s.Access.API = slices.Clone(s.Access.SSH)
	}
}

// setGPU gives a pool with GPUs the labels and the taint of its Nodes.
func (p *Pool) setGPU() {
	if p.GPU == nil {
		return
	}
	gpu, yes := *p.GPU, true
	set(&gpu.Driver, Extension)
	set(&gpu.Taint, &yes)
	p.GPU, p.Labels = &gpu, maps.Clone(p.Labels)
	if p.Labels == nil {
		p.Labels = map[string]string{}
	}
	for label, value := range gpuLabels() {
		if p.Labels[label] == "" {
			p.Labels[label] = value
		}
	}
	own := func(text string) bool {
		m := taint.FindStringSubmatch(text)
		return m != nil && m[1] == GPUTaint && m[3] == "NoSchedule"
	}
	if *gpu.Taint && !slices.ContainsFunc(p.Taints, own) {
		p.Taints = append(slices.Clone(p.Taints), GPUTaint+"=present:NoSchedule")
	}
}

func set[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

func image(i *Image, other Image) {
	set(i, other)
	if i.ID == "" {
		set(&i.Version, "latest")
	}
}
