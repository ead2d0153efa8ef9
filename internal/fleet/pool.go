package fleet

import "time"

// OrchestrationMode, upgrade modes and the like are spelled as Azure spells
// them, and unknown values are kept.
const (
	Uniform   = "Uniform"
	Manual    = "Manual"
	Automatic = "Automatic"
	Rolling   = "Rolling"
)

// A Pool is a scale set whose instances are nodes, as a fresh GET shows it.
type Pool struct {
	ID       ResourceID
	Name     string
	Location string
	Zones    []string
	Tags     map[string]string
	Size     string // "Standard_D2s_v5"
	Capacity int64

	Orchestration      string // Uniform or Flexible
	UpgradeMode        string // Manual, Automatic, Rolling
	AutomaticOSUpgrade bool
	AutomaticRepairs   bool
	Overprovision      bool
	Spot               bool // priority Spot or Low
	EvictionPolicy     string
	ProvisioningState  string

	Model Model
}

// A Model is the recipe for the pool's new instances.
type Model struct {
	Image        ImageReference
	Extensions   []Extension
	EphemeralOS  bool   // diffDiskSettings is set
	SecurityType string // "", Standard, TrustedLaunch, ConfidentialVM
	NVMe         bool   // storageProfile.diskControllerType is NVMe
	OSDiskSizeGB int32  // 0: the image's
	OSDiskSKU    string // "Premium_LRS"
	Accelerated  bool   // accelerated networking on any interface
	Linux        bool
}

// An ImageReference is either a gallery image (ID) or a marketplace one.
type ImageReference struct {
	ID                             ResourceID
	Publisher, Offer, SKU, Version string
	ExactVersion                   string // of a marketplace image, where Azure says
}

// An Extension of the model. Its protected settings never read back.
type Extension struct {
	Name, Publisher, Type, Version string
	After                          []string // provisionAfterExtensions
	HasProtectedSettings           bool     // Azure does not say; true where the type is known to use them
}

// PowerState is what an instance view says: "running", "stopped",
// "deallocated", or a transition between them. "" is unknown.
type PowerState string

// The power states.
const (
	PowerRunning      PowerState = "running"
	PowerStarting     PowerState = "starting"
	PowerStopping     PowerState = "stopping"
	PowerStopped      PowerState = "stopped"
	PowerDeallocating PowerState = "deallocating"
	PowerDeallocated  PowerState = "deallocated"
)

// An Instance is one computer of a Uniform pool, with its instance view.
type Instance struct {
	ID                 ResourceID
	InstanceID         string // "3"
	Name               string // "pool1_3"
	HostName           string // "pool1000003"; Node names are lower case
	VMID               string
	Zone               string // "" without zones
	Size               string
	ProvisioningState  string
	Power              PowerState
	LatestModelApplied bool
	Protection         Protection
	Image              ImageReference // what it was made from
	Generation         string         // "V1" or "V2"
	SecurityType       string
	OSDisk             ResourceID // "" for an ephemeral one
	DataDisks          []AttachedDisk
}

// Protection is Azure's instance protection.
type Protection struct {
	ScaleIn         bool // protectFromScaleIn
	ScaleSetActions bool // protectFromScaleSetActions
}

// An AttachedDisk is a data disk of an instance.
type AttachedDisk struct {
	LUN  int32
	Disk ResourceID
}

// A Disk is a managed disk.
type Disk struct {
	ID                ResourceID
	Location          string
	Zone              string
	SizeGB            int32
	SKU               string
	Generation        string // "V1" or "V2"
	Architecture      string // "x64" or "Arm64"
	Source            ResourceID
	ManagedBy         ResourceID // "" where it is attached to nothing
	ProvisioningState string
	Tags              map[string]string
	// Controllers it can be attached by: "SCSI", "SCSI, NVMe".
	Controllers  string
	SecurityType string
	Created      time.Time
}

// A Snapshot is a copy of a disk at a time.
type Snapshot struct {
	ID                ResourceID
	Source            ResourceID // disk
	ProvisioningState string
	Tags              map[string]string
	Created           time.Time
	Generation        string
	Architecture      string
	SizeGB            int32
}

// A SizeInfo is what the region's catalogue says of a VM size.
type SizeInfo struct {
	Name         string
	Architecture string   // "x64" or "Arm64"
	Generations  []string // "V1", "V2"
	Controllers  []string // "SCSI", "NVMe"
	MaxDataDisks int32
}
