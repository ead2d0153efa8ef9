package k3s

// APIVersion and Kind are those of cluster.yaml.
const (
	APIVersion = "ortet.io/v1alpha1"
	Kind       = "Cluster"
)

// A Cluster is cluster.yaml.
type Cluster struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	Metadata   Metadata `json:"metadata"`
	Spec       Spec     `json:"spec"`
}

// Metadata names the cluster: 1 to 20 characters, a DNS label.
type Metadata struct {
	Name string `json:"name"`
}

// A Spec says what a cluster consists of.
type Spec struct {
	Location  string    `json:"location"` // the Azure region, "westeurope"
	Groups    Groups    `json:"groups,omitzero"`
	Image     Image     `json:"image,omitzero"` // default of server and pools
	Artifacts Artifacts `json:"artifacts"`
	Network   Network   `json:"network,omitzero"`
	Server    Server    `json:"server,omitzero"`
	Pools     []Pool    `json:"pools"`
	Storage   Storage   `json:"storage"`
	Access    Access    `json:"access,omitzero"`
	Options   Options   `json:"options,omitzero"`
	// Manifests are applied by the server, and again when they change. What an entry
	// made stays in the cluster when the entry goes, which is k3s's rule.
	Manifests []Manifest `json:"manifests,omitempty"`
	// Packages are Debian packages of all machines. A package that leaves the list stays installed.
	Packages []string `json:"packages,omitempty"`
	// Backup is where ortet cluster backup keeps backups that outlive the cluster.
	Backup *Backup `json:"backup,omitempty"`
	// Protect refuses what deletes: down, and up --prune.
	Protect bool `json:"protect,omitempty"`
}

// A Manifest is a file of Kubernetes objects, in YAML, and its digest.
type Manifest struct {
	Name     string `json:"name"` // a DNS label, unique
	Artifact        // where it is
}

// Groups are the resource groups of a cluster.
type Groups struct {
	Storage string `json:"storage,omitempty"` // default NAME-storage
	Compute string `json:"compute,omitempty"` // default NAME-compute
}

// An Image is a Marketplace image, or one of a gallery by its ARM id: exactly one.
type Image struct {
	Publisher string `json:"publisher,omitempty"`
	Offer     string `json:"offer,omitempty"`
	SKU       string `json:"sku,omitempty"`
	Version   string `json:"version,omitempty"` // "" is "latest"
	ID        string `json:"id,omitempty"`      // ARM id of a gallery's image definition or image version
}

// Artifacts are the programs that machines fetch at boot, each checked by its
// digest. ortet cluster artifacts writes this block.
type Artifacts struct {
	K3s       Artifact  `json:"k3s"`              // the k3s binary
	Images    *Artifact `json:"images,omitempty"` // k3s's air-gap images, a tar archive, as it is or with gzip or zstd
	Ortet     Artifact  `json:"ortet"`            // for the server
	OrtetNode Artifact  `json:"ortetNode"`        // for agents
	// Tailscale is Tailscale's own archive of static binaries, for the server with access.tailscale.
	Tailscale *Artifact `json:"tailscale,omitempty"`
	// ContainerToolkit are the Debian packages of NVIDIA's container toolkit, for pools with GPU.
	ContainerToolkit []Artifact `json:"containerToolkit,omitempty"`
	Version          string     `json:"version,omitempty"` // of k3s, "v1.36.3+k3s1"; lower than the cluster's is refused
}

// An Artifact is a file and its digest.
type Artifact struct {
	URL    string `json:"url"`    // https://…, http://… or file:///srv/…, which is the mounted share
	SHA256 string `json:"sha256"` // 64 hex digits
}

// A Network is the cluster's address ranges, in CIDR notation. They must not
// overlap, but for Servers and Agents, which lie in AddressSpace.
type Network struct {
	AddressSpace string `json:"addressSpace,omitempty"` // of the VNet; default 10.16.0.0/16
	Servers      string `json:"servers,omitempty"`      // subnet; default 10.16.0.0/24
	Agents       string `json:"agents,omitempty"`       // subnet; default 10.16.16.0/20
	Pods         string `json:"pods,omitempty"`         // default 10.42.0.0/16, k3s's
	Services     string `json:"services,omitempty"`     // default 10.43.0.0/16, k3s's
	Outbound     string `json:"outbound,omitempty"`     // Gateway (default) or Addresses
}

// Ways of agents to the internet: a NAT gateway, or a public address of each of them.
const (
	Gateway   = "gateway"
	Addresses = "addresses"
)

// A Server is the machine that runs k3s server.
type Server struct {
	Size     string `json:"size,omitempty"`     // default Standard_D2s_v5
	DiskGB   int    `json:"diskGB,omitempty"`   // default 32
	DiskType string `json:"diskType,omitempty"` // Standard_LRS, StandardSSD_LRS (default) or Premium_LRS
	Image    Image  `json:"image,omitzero"`     // default spec.image
	StateGB  int    `json:"stateGB,omitempty"`  // of the state disk, which outlives the server; grows only; default 8
	K3s      K3s    `json:"k3s,omitempty"`
}

// A K3s has options of k3s by their names in k3s's own configuration file; a value is a
// text, a number, true or false, or a list of those. They are no place for secrets.
type K3s map[string]any

// Priorities and eviction policies of a pool, as Azure spells them.
const (
	Spot       = "Spot"
	Regular    = "Regular"
	Delete     = "Delete"
	Deallocate = "Deallocate"
)

// What scales a pool with Min and Max.
const (
	CPU  = "cpu"
	Pods = "pods"
)

// A Pool is a scale set of agents.
type Pool struct {
	Name string `json:"name"` // 1 to 9 characters [a-z][a-z0-9]*, the computer names' prefix
	Size string `json:"size,omitempty"`
	// Count is the first number of agents, and again what it is changed to. Min and
	// Max in its place have others scale it, as ScaleBy says.
	Count          *int              `json:"count,omitempty"`
	Min            *int              `json:"min,omitempty"`
	Max            *int              `json:"max,omitempty"`
	ScaleBy        string            `json:"scaleBy,omitempty"`        // with Min and Max: CPU (default), which is Azure's autoscale, or Pods, which is cluster-autoscaler
	Priority       string            `json:"priority,omitempty"`       // Spot (default) or Regular
	EvictionPolicy string            `json:"evictionPolicy,omitempty"` // Delete (default) or Deallocate; Spot only
	Zones          []string          `json:"zones,omitempty"`
	ScaleInPolicy  string            `json:"scaleInPolicy,omitempty"` // Default, NewestVM or OldestVM
	DiskGB         int               `json:"diskGB,omitempty"`
	DiskType       string            `json:"diskType,omitempty"`
	Image          Image             `json:"image,omitzero"`
	Labels         map[string]string `json:"labels,omitempty"`
	Taints         []string          `json:"taints,omitempty"` // KEY=VALUE:EFFECT
	GPU            *GPU              `json:"gpu,omitempty"`    // NVIDIA's, of the pool's size; nil leaves them unused
	K3s            K3s               `json:"k3s,omitempty"`
}

// Ways of an NVIDIA driver to a pool's agents, besides None.
const (
	Extension = "extension" // Azure's NVIDIA GPU Driver Extension
	InImage   = "image"     // driver and container toolkit are in the pool's image
)

// A GPU says how pods of a pool get its NVIDIA GPUs.
type GPU struct {
	// Driver is Extension (default), InImage, or None: whoever wrote the file brings it, as by packages.
	Driver string `json:"driver,omitempty"`
	Taint  *bool  `json:"taint,omitempty"` // keeps pods without a toleration of GPUTaint away; default true
}

// What Nodes with GPUs have.
const (
	GPULabel = "nvidia.com/gpu.present" // "true", which the device plugin selects
	GPUTaint = "nvidia.com/gpu"
	// GPUWaits, "nvidia", has cluster-autoscaler take a Node for unready until its GPUs are there
	// (azure_cloud_provider.go: GPULabel).
	GPUWaits = "kubernetes.azure.com/accelerator"
)

func gpuLabels() map[string]string { return map[string]string{GPULabel: "true", GPUWaits: "nvidia"} }

// Storage is what outlives compute.
type Storage struct {
	Account  string   `json:"account"`            // unique in all of Azure; ortet cluster init makes one up
	Existing bool     `json:"existing,omitempty"` // in groups.storage: it is neither made nor changed nor deleted
	Shares   []string `json:"shares,omitempty"`   // file shares; default config, data, registry
	Mount    string   `json:"mount,omitempty"`    // the share at /srv on all machines; default data
}

// A Backup says where backups of the state disk are that outlive the cluster.
type Backup struct {
	Group  string `json:"group"`            // resource group, which no command deletes
	Keep   int    `json:"keep,omitempty"`   // newest backups that stay; default 7
	Region string `json:"region,omitempty"` // to which each is copied; "" is none
}

// Sources of Access besides CIDR ranges.
const (
	Own        = "own"        // the address that --own-address or --own-address-from gives
	Cloudflare = "cloudflare" // Cloudflare's published ranges
	Any        = "any"
)

// Access says who reaches the cluster's server from outside.
type Access struct {
	User     string   `json:"user,omitempty"`    // default ortet
	SSHPort  int      `json:"sshPort,omitempty"` // default 22
	SSHKey   string   `json:"sshKey,omitempty"`  // the public key's file, relative to cluster.yaml; default NAME.pub
	SSH      []string `json:"ssh,omitempty"`     // sources; default own
	API      []string `json:"api,omitempty"`     // sources for port 6443; default those of ssh
	Ingress  []string `json:"ingress,omitempty"` // sources for ports 80 and 443; default none
	Fail2ban bool     `json:"fail2ban,omitempty"`
	// PublicAddress of the server is Static (default) or None.
	PublicAddress string `json:"publicAddress,omitempty"`
	// Tailscale has the server in a tailnet; nil has it in none.
	Tailscale *Tailscale `json:"tailscale,omitempty"`
	// Rules are in the security groups besides those above.
	Rules []AccessRule `json:"rules,omitempty"`
}

// Values of Access.PublicAddress.
const (
	Static = "static"
	None   = "none"
)

// Tailscale is how the server is in a tailnet, by which operators reach it.
type Tailscale struct {
	Hostname    string   `json:"hostname,omitempty"`    // in the tailnet, and in the API server's certificate; default metadata.name
	Tags        []string `json:"tags,omitempty"`        // of the tailnet's policy, "tag:k3s"
	LoginServer string   `json:"loginServer,omitempty"` // URL of the coordination server; "" is Tailscale's own
}

// An AccessRule lets sources reach ports of the server or of agents.
type AccessRule struct {
	Name     string   `json:"name"`     // of the security rule
	Priority int      `json:"priority"` // 300 to 3999, unique per To
	Protocol string   `json:"protocol"` // Tcp, Udp or *
	Ports    []string `json:"ports"`    // "80", "8000-8100"
	From     []string `json:"from"`     // sources as those of SSH; IPv4 alone has an effect
	To       string   `json:"to"`       // ToServers or ToAgents
}

// Options are conveniences that are off unless set.
type Options struct {
	PrivateRegistry    bool   `json:"privateRegistry,omitempty"` // agents pull from the one of deploy/registry on the server
	SwapGB             int    `json:"swapGB,omitempty"`          // on the temporary disk
	Scratch            bool   `json:"scratch,omitempty"`         // /mnt/scratch on the temporary disk of agents
	TimeZone           string `json:"timeZone,omitempty"`
	RebootAfterUpdates bool   `json:"rebootAfterUpdates,omitempty"` // upgrade packages at the first boot, then reboot once
	ClusterAutoscaler  string `json:"clusterAutoscaler,omitempty"`  // image of the one that runs on the server, IMAGE@sha256:DIGEST
	DevicePlugin       string `json:"devicePlugin,omitempty"`       // image of NVIDIA's, for pools with GPU, IMAGE@sha256:DIGEST
}

// ScaledByPods are the names of the pools that cluster-autoscaler scales.
func (c *Cluster) ScaledByPods() (names []string) {
	for _, p := range c.Spec.Pools {
		if p.ScaleBy == Pods {
			names = append(names, p.Name)
		}
	}
	return names
}
