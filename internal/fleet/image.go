package fleet

import "time"

// A Gallery holds image definitions.
type Gallery struct {
	ID       ResourceID
	Location string
	Tags     map[string]string
}

// A Definition groups image versions and fixes what they can boot on. All but
// the tags is immutable.
type Definition struct {
	ID                    ResourceID
	Location              string
	Publisher, Offer, SKU string
	OSState               string // "Generalized"
	Linux                 bool
	Generation            string // "V1" or "V2"
	Architecture          string // "x64" or "Arm64"
	SecurityType          string // feature SecurityType; "" where absent
	Controllers           string // feature DiskControllerTypes; "" where absent means SCSI
	Accelerated           bool
	PlanName, PlanProduct string
	PlanPublisher         string
	Tags                  map[string]string
	ProvisioningState     string
}

// ReplicationMode is how a version's copies are made.
const (
	ReplicationFull    = "Full"
	ReplicationShallow = "Shallow"
)

// Storage account types of a version.
const (
	ZRS = "Standard_ZRS"
	LRS = "Standard_LRS"
)

// An ImageVersion is one image, with its replication status.
type ImageVersion struct {
	ID                ResourceID
	Name              string // "2026.11.21"
	Location          string
	ProvisioningState string // Creating, Updating, Succeeded, Failed, Deleting, Migrating
	Published         time.Time
	EndOfLife         time.Time // zero: none
	ExcludeFromLatest bool
	DeletionBlocked   bool // safetyProfile.blockDeletionBeforeEndOfLife
	Replicas          int32
	StorageType       string
	ReplicationMode   string
	Source            ResourceID
	Tags              map[string]string
	// Progress is the lowest replication progress of its regions, in percent;
	// -1 where Azure did not say.
	Progress int32
	// FailureMessage is what Azure says of a Failed version, where it does.
	FailureMessage string
}

// An ImageUse says who refers to an image: a model or an instance.
type ImageUse struct {
	Image ResourceID // a version, or a definition (which means its latest)
	By    ResourceID
}

// Tags that Ortet reads and writes. Azure forbids "/" in tag names, so the
// domain is joined with "_", as CAPZ does.
const (
	TagBuiltFrom   = "BuiltFrom" // kamino: the donor's node name
	TagBuiltAt     = "BuiltAt"   // kamino: BuiltAtLayout, UTC
	TagCapture     = "ortet.io_capture"
	TagGeneralized = "ortet.io_generalized" // value: the capture; only such a snapshot becomes a version
	TagRolledBack  = "ortet.io_rolled-back" // value: RFC 3339; such a version is not brought back by itself
	TagCreatedBy   = "ortet.io_created-by"  // value: "ortet <version>"
	TagReason      = "ortet.io_reason"      // for people
	// TagCustomData is the SHA-256 of the customData that goes with the version
	// (the no-op's, for one that brings all on its disk), so that a rollback
	// knows what to restore.
	TagCustomData = "ortet.io_custom-data"
)

// BuiltAtLayout is kamino's %Y-%m-%d %H:%M:%S.%f.
const BuiltAtLayout = "2006-01-02 15:04:05.000000"
