package fleet

import (
	"slices"
	"strings"
	"time"
)

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
	ID       ResourceID        `json:"id"`
	Name     string            `json:"name"`
	Location string            `json:"location,omitempty"`
	Zones    []string          `json:"zones,omitempty"`
	Tags     map[string]string `json:"tags,omitempty"`
	Size     string            `json:"size,omitempty"`  // "Standard_D2s_v5"; "Mix" where Sizes has more
	Sizes    []string          `json:"sizes,omitempty"` // of an instance mix, for each new instance Azure takes one
	Capacity int64             `json:"capacity"`

	Orchestration      string `json:"orchestration,omitempty"` // Uniform or Flexible
	UpgradeMode        string `json:"upgradeMode,omitempty"`   // Manual, Automatic, Rolling
	AutomaticOSUpgrade bool   `json:"automaticOSUpgrade"`
	AutomaticRepairs   bool   `json:"automaticRepairs"`
	Overprovision      bool   `json:"overprovision"`
	Recreates          bool   `json:"recreates,omitempty"` // resilient creation: a machine whose creation timed out is deleted, and another of a new name made
	Spot               bool   `json:"spot"`                // priority Spot or Low
	ScaleIn            string `json:"scaleIn,omitempty"`   // the scale-in policy's first rule: "OldestVM", "NewestVM", "Default"
	EvictionPolicy     string `json:"evictionPolicy,omitempty"`
	ProvisioningState  string `json:"provisioningState,omitempty"`

	// Etag names this state of the scale set; any change gives another. "" where
	// the cloud gives none: Compute's API does from 2023-09-01 on.
	Etag string `json:"etag,omitempty"`

	Model          Model      `json:"model"`
	HostGroup      ResourceID `json:"hostGroup,omitempty"`      // of dedicated hosts
	PlacementGroup ResourceID `json:"placementGroup,omitempty"` // proximity placement group
	Hibernates     bool       `json:"hibernates,omitempty"`     // its instances can be hibernated: their image has to support it
	NoProfile      bool       `json:"noProfile,omitempty"`      // of a Flexible set: it has no model, and makes no instances

	SystemIdentity bool   `json:"-"` // it has a system-assigned identity, which another scale set has not
	Joins          []Join `json:"-"` // what its instances are joined to and identified by
}

// A Join is a right that whoever makes instances needs on another resource.
type Join struct {
	Resource ResourceID // of any resource group
	Action   string     // "Microsoft.Network/virtualNetworks/subnets/join/action"
}

// NewSizes returns the sizes of which new instances have one.
func (p Pool) NewSizes() []string {
	if len(p.Sizes) > 0 {
		return p.Sizes
	}
	return []string{p.Size}
}

// Flexible reports whether the pool's instances are virtual machines.
func (p Pool) Flexible() bool { return strings.EqualFold(p.Orchestration, Flexible) }

// A StandbyPool holds machines that were made in advance of a Flexible scale set's new instances.
type StandbyPool struct {
	ID       ResourceID `json:"id"`
	Machines int64      `json:"machines"`        // that it holds at most
	State    string     `json:"state,omitempty"` // in which they wait: "Running", "Deallocated", "Hibernated"
}

const canarySuffix = "-canary"

// MaxCanary bounds the instances of a canary.
const MaxCanary = 10

// CanaryOf returns the scale set in which a capture proves a version of the pool by clones
// before the pool's model names it. A pool has one at most.
func CanaryOf(pool ResourceID) ResourceID {
	return pool.Group().In("virtualMachineScaleSets", pool.Name()+canarySuffix)
}

// Canary returns the pool whose canary the scale set is, by its tag and its name, and when it
// expires. Whoever may tag scale sets may set the tag.
func (p Pool) Canary() (of ResourceID, expires time.Time, is bool) {
	expires, err := time.Parse(time.RFC3339, p.Tags[TagCanary])
	name := p.ID.Name()
	at := max(0, len(name)-len(canarySuffix))
	if err != nil || at == 0 || !strings.EqualFold(name[at:], canarySuffix) { // ids have any letter case
		return "", time.Time{}, false
	}
	return p.ID.Group().In("virtualMachineScaleSets", name[:at]), expires, true
}

// A Model is the recipe for the pool's new instances.
type Model struct {
	Image               ImageReference `json:"image"`
	Extensions          []Extension    `json:"extensions,omitempty"`
	EphemeralOS         bool           `json:"ephemeralOS"`            // diffDiskSettings is set
	SecurityType        string         `json:"securityType,omitempty"` // "", Standard, TrustedLaunch, ConfidentialVM
	NVMe                bool           `json:"nvme"`                   // storageProfile.diskControllerType is NVMe
	OSDiskSizeGB        int32          `json:"osDiskSizeGB"`           // 0: the image's
	OSDiskSKU           string         `json:"osDiskSku,omitempty"`    // "Premium_LRS"
	Encryption          ResourceID     `json:"encryption,omitempty"`   // disk encryption set of OS disks
	Accelerated         bool           `json:"accelerated"`            // accelerated networking on any interface
	Linux               bool           `json:"linux"`
	CapacityReservation ResourceID     `json:"capacityReservation,omitempty"` // group that new instances take room in
	Created             time.Time      `json:"-"`                             // each change gives another; zero where Azure does not say
}

// An ImageReference is either a gallery image (ID) or a marketplace one.
type ImageReference struct {
	ID        ResourceID `json:"id"`
	Publisher string     `json:"publisher,omitempty"`
	Offer     string     `json:"offer,omitempty"`
	SKU       string     `json:"sku,omitempty"`
	Version   string     `json:"version,omitempty"`
	// ExactVersion is the version that an instance was made from, where Azure says.
	ExactVersion string `json:"exactVersion,omitempty"`
}

// Same reports whether two references name the same, whatever they stand for.
func (i ImageReference) Same(other ImageReference) bool {
	return i.ID.Equal(other.ID) && i.Publisher == other.Publisher && i.Offer == other.Offer && i.SKU == other.SKU && i.Version == other.Version
}

// Text names the image for people: its id, or publisher:offer:sku:version.
func (i ImageReference) Text() string {
	if i.ID != "" {
		return string(i.ID)
	}
	return i.Publisher + ":" + i.Offer + ":" + i.SKU + ":" + i.Version
}

// LatestOf returns the image definition whose latest version the reference stands
// for; "" where it names a version, or no image of a gallery.
func (i ImageReference) LatestOf() ResourceID {
	if i.ID.Segment("galleries") == "" || i.ID.Segment("images") == "" {
		return ""
	}
	switch version := i.ID.Segment("versions"); {
	case version == "":
		return i.ID
	case strings.EqualFold(version, "latest"):
		return i.ID.Parent()
	}
	return ""
}

// Exact returns the image that the reference names, or that an instance with it was
// made from; "" where it stands for a definition's latest version.
func (i ImageReference) Exact() ResourceID {
	definition := i.LatestOf()
	switch {
	case definition == "":
		return i.ID
	case i.ExactVersion == "":
		return ""
	}
	return definition.Child("versions", i.ExactVersion)
}

// An Extension of the model. Azure never shows its protected settings.
type Extension struct {
	Name                 string   `json:"name"`
	Publisher            string   `json:"publisher,omitempty"`
	Type                 string   `json:"type,omitempty"`
	Version              string   `json:"version,omitempty"`
	After                []string `json:"after,omitempty"`      // provisionAfterExtensions
	HasProtectedSettings bool     `json:"hasProtectedSettings"` // Azure does not say; true where the type is known to use them
	// KeyVault is where Azure reads the protected settings from; nil if they were given.
	KeyVault *KeyVaultSecret `json:"keyVault,omitempty"`

	AutoUpgradeMinorVersion bool   `json:"autoUpgradeMinorVersion,omitempty"`
	AutomaticUpgrade        bool   `json:"automaticUpgrade,omitempty"` // enableAutomaticUpgrade
	ForceUpdateTag          string `json:"forceUpdateTag,omitempty"`
	SuppressFailures        bool   `json:"suppressFailures,omitempty"`
	// Settings are the public settings as compact JSON with sorted keys; empty is none.
	// They often hold secrets by mistake (commandToExecute), so they are never encoded.
	Settings Secret `json:"-"`
}

// A KeyVaultSecret names a secret of a key vault.
type KeyVaultSecret struct {
	URL   string     `json:"url"`
	Vault ResourceID `json:"vault"`
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

// An Instance is one computer of a pool, with its instance view.
type Instance struct {
	ID                 ResourceID        `json:"id"`                   // of a virtual machine in a Flexible pool
	Pool               ResourceID        `json:"pool,omitempty"`       // "" for a virtual machine of its own
	InstanceID         string            `json:"instanceId,omitempty"` // "3"
	Name               string            `json:"name"`                 // "pool1_3"
	HostName           string            `json:"hostName,omitempty"`   // "pool1000003"; Node names are lower case
	VMID               string            `json:"vmId,omitempty"`
	Zone               string            `json:"zone,omitempty"` // "" without zones
	Size               string            `json:"size,omitempty"`
	ModelCreated       time.Time         `json:"-"`                // of a Flexible pool: when its model was made, to the second
	Created            time.Time         `json:"created,omitzero"` // zero where Azure does not say
	ProvisioningState  string            `json:"provisioningState,omitempty"`
	Power              PowerState        `json:"power,omitempty"`
	LatestModelApplied bool              `json:"latestModelApplied"` // false also where the model was changed and changed back: see Lacks
	Tags               map[string]string `json:"-"`                  // of a Uniform pool: the scale set's when it was made or upgraded
	Protection         Protection        `json:"protection"`
	Image              ImageReference    `json:"image"`                // what it was made from
	Generation         string            `json:"generation,omitempty"` // "V1" or "V2"
	SecurityType       string            `json:"securityType,omitempty"`
	OSDisk             ResourceID        `json:"osDisk,omitempty"` // "" for an ephemeral one
	OSDiskSizeGB       int32             `json:"-"`
	DataDisks          []AttachedDisk    `json:"dataDisks,omitempty"`
}

// MadeFrom reports whether the instance was made from the pool's model as it is now: Azure
// says so of a Uniform pool's, and of a Flexible one's by the time of the model.
func (i Instance) MadeFrom(p Pool) bool {
	return i.LatestModelApplied || !i.ModelCreated.IsZero() && i.ModelCreated.Equal(p.Model.Created.Truncate(time.Second))
}

// Lacks names a part of the pool's model that the instance does not have: "" is none. Azure counts
// changes of a model, so an instance that it does not call up to date may be so all the same
// (recorded: test_vmss_update#27): its image, sizes and cloud-init document are compared. cloudInit
// returns the digest of that document, as tags have it; known is false where either side has none.
func (i Instance) Lacks(p Pool, cloudInit func(tags map[string]string) string) (part string, known bool) {
	made, wanted := cloudInit(i.Tags), cloudInit(p.Tags)
	switch {
	case i.MadeFrom(p):
	case !slices.ContainsFunc(p.NewSizes(), func(size string) bool { return strings.EqualFold(size, i.Size) }):
		return PartSize, true
	case !i.Image.Same(p.Model.Image):
		return "image", true
	case p.Model.OSDiskSizeGB != 0 && p.Model.OSDiskSizeGB != i.OSDiskSizeGB:
		return "OS disk", true
	case made == "" || wanted == "":
		return "", false
	case made != wanted:
		return "cloud-init", true
	}
	return "", true
}

// PartSize is the part of a model that a resize changes.
const PartSize = "size"

// Protection is Azure's instance protection; the zero value is an instance without
// a policy.
type Protection struct {
	ScaleIn         bool `json:"scaleIn"`         // protectFromScaleIn
	ScaleSetActions bool `json:"scaleSetActions"` // protectFromScaleSetActions
	// Off is true where there is a policy that protects from nothing.
	Off bool `json:"off,omitempty"`
}

// Protects reports whether it protects from anything.
func (p Protection) Protects() bool { return p.ScaleIn || p.ScaleSetActions }

// An AttachedDisk is a data disk of an instance.
type AttachedDisk struct {
	LUN  int32      `json:"lun"`
	Disk ResourceID `json:"disk,omitempty"`
}

// A Disk is a managed disk.
type Disk struct {
	ID                ResourceID        `json:"id"`
	Location          string            `json:"location,omitempty"`
	Zone              string            `json:"zone,omitempty"`
	SizeGB            int32             `json:"sizeGB"`
	SKU               string            `json:"sku,omitempty"`
	Generation        string            `json:"generation,omitempty"`   // "V1" or "V2"
	Architecture      string            `json:"architecture,omitempty"` // "x64" or "Arm64"
	Source            ResourceID        `json:"source,omitempty"`
	ManagedBy         ResourceID        `json:"managedBy,omitempty"` // "" where it is attached to nothing
	ProvisioningState string            `json:"provisioningState,omitempty"`
	Tags              map[string]string `json:"tags,omitempty"`
	// Controllers it can be attached by: "SCSI", "SCSI, NVMe".
	Controllers  string     `json:"controllers,omitempty"`
	SecurityType string     `json:"securityType,omitempty"`
	Encryption   ResourceID `json:"encryption,omitempty"` // disk encryption set, "" for the platform's key
	Encrypted    bool       `json:"encrypted,omitempty"`  // by Azure Disk Encryption, in the machine
	Hibernates   bool       `json:"hibernates,omitempty"` // its system supports hibernation
	Created      time.Time  `json:"created,omitzero"`
}

// An Encryption is how the bytes of a disk or snapshot are encrypted; the zero value is with the
// platform's key.
type Encryption struct {
	Set  ResourceID `json:"set,omitempty"`  // disk encryption set
	Type string     `json:"type,omitempty"` // of that: "EncryptionAtRestWithCustomerKey"
}

// An EncryptionSet is a disk encryption set: a key of its owner's, and how it is used.
type EncryptionSet struct {
	ID       ResourceID
	Location string
	Type     string // "EncryptionAtRestWithCustomerKey", "EncryptionAtRestWithPlatformAndCustomerKeys", "ConfidentialVmEncryptedWithCustomerKey"
	Problem  string // why Azure cannot use its key, as far as it shows that; "" where it shows nothing
}

// A Snapshot is a copy of a disk at a time.
type Snapshot struct {
	ID                ResourceID        `json:"id"`
	Source            ResourceID        `json:"source,omitempty"` // disk
	ProvisioningState string            `json:"provisioningState,omitempty"`
	Tags              map[string]string `json:"tags,omitempty"`
	Created           time.Time         `json:"created,omitzero"`
	Generation        string            `json:"generation,omitempty"`
	Architecture      string            `json:"architecture,omitempty"`
	SizeGB            int32             `json:"sizeGB"`
}

// A Usage is how much of a quota is used in a region.
type Usage struct{ Used, Limit int64 }

// A SizeInfo is what the region's catalogue says of a VM size.
type SizeInfo struct {
	Name         string   `json:"name"`
	Architecture string   `json:"architecture,omitempty"` // "x64" or "Arm64"
	Generations  []string `json:"generations,omitempty"`  // "V1", "V2"
	Controllers  []string `json:"controllers,omitempty"`  // "SCSI", "NVMe"
	MaxDataDisks int32    `json:"maxDataDisks"`
	VCPUs        int64    `json:"vcpus,omitempty"`  // 0: not known
	GPUs         int64    `json:"gpus,omitempty"`   // capability GPUs, which counts a part of one as one
	Family       string   `json:"family,omitempty"` // name of its quota, "standardDSv5Family"
	NoSpot       bool     `json:"noSpot,omitempty"`
	NoTempDisk   bool     `json:"noTempDisk,omitempty"` // no temporary disk, as Azure formats it
	Zones        []string `json:"zones,omitempty"`      // in which the subscription can have it
	Restricted   string   `json:"restricted,omitempty"` // why the subscription cannot have it there, "NotAvailableForSubscription"
}
