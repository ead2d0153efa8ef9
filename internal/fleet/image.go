package fleet

import (
	"strings"
	"time"
)

// A Gallery holds image definitions.
type Gallery struct {
	ID         ResourceID        `json:"id"`
	SoftDelete bool              `json:"softDelete,omitempty"` // deleted versions can be recovered until their retention ends
	Location   string            `json:"location,omitempty"`
	Tags       map[string]string `json:"tags,omitempty"`
}

// A Definition groups image versions and fixes what they can boot on. All but
// the tags is immutable.
type Definition struct {
	ID                ResourceID        `json:"id"`
	Location          string            `json:"location,omitempty"`
	Publisher         string            `json:"publisher,omitempty"`
	Offer             string            `json:"offer,omitempty"`
	SKU               string            `json:"sku,omitempty"`
	OSState           string            `json:"osState,omitempty"` // "Generalized"
	Linux             bool              `json:"linux"`
	Generation        string            `json:"generation,omitempty"`   // "V1" or "V2"
	Architecture      string            `json:"architecture,omitempty"` // "x64" or "Arm64"
	SecurityType      string            `json:"securityType,omitempty"` // feature SecurityType; "" where absent
	Controllers       string            `json:"controllers,omitempty"`  // feature DiskControllerTypes; "" where absent means SCSI
	Accelerated       bool              `json:"accelerated"`
	Hibernates        bool              `json:"hibernates"` // feature IsHibernateSupported
	PlanName          string            `json:"planName,omitempty"`
	PlanProduct       string            `json:"planProduct,omitempty"`
	PlanPublisher     string            `json:"planPublisher,omitempty"`
	Tags              map[string]string `json:"tags,omitempty"`
	ProvisioningState string            `json:"provisioningState,omitempty"`
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
	ID                ResourceID        `json:"id"`
	Name              string            `json:"name"` // "2026.11.21"
	Location          string            `json:"location,omitempty"`
	ProvisioningState string            `json:"provisioningState,omitempty"` // Creating, Updating, Succeeded, Failed, Deleting, Migrating
	Published         time.Time         `json:"published,omitzero"`
	EndOfLife         time.Time         `json:"endOfLife,omitzero"` // zero: none
	ExcludeFromLatest bool              `json:"excludeFromLatest"`
	Regions           []string          `json:"regions,omitempty"` // that it is replicated to, as Azure spells them
	DeletionBlocked   bool              `json:"deletionBlocked"`   // safetyProfile.blockDeletionBeforeEndOfLife
	Replicas          int32             `json:"replicas"`
	StorageType       string            `json:"storageType,omitempty"`
	ReplicationMode   string            `json:"replicationMode,omitempty"`
	Source            ResourceID        `json:"source,omitempty"`
	Tags              map[string]string `json:"tags,omitempty"`
	// Progress is the lowest replication progress of its regions, in percent;
	// -1 where Azure did not say.
	Progress int32 `json:"progress"`
	// FailureMessage is what Azure says of a Failed version, where it does.
	FailureMessage string `json:"failureMessage,omitempty"`
}

// SameRegion compares names of regions, which Azure also gives as "West Europe".
func SameRegion(a, b string) bool {
	norm := func(s string) string { return strings.ReplaceAll(s, " ", "") }
	return strings.EqualFold(norm(a), norm(b))
}

// An ImageUse says who refers to an image: a model or an instance. An instance
// that refers to a definition has a second one, of the version that it runs, where
// Azure says which.
type ImageUse struct {
	Image ResourceID `json:"image,omitempty"` // a version, or a definition (which means its latest)
	By    ResourceID `json:"by,omitempty"`
}

// Tags that Ortet reads and writes. Azure forbids "/" in tag names, so the
// domain is joined with "_", as CAPZ does.
const (
	TagBuiltFrom   = "BuiltFrom" // kamino: the donor's node name
	TagBuiltAt     = "BuiltAt"   // kamino: BuiltAtLayout, UTC
	TagCapture     = "ortet.io_capture"
	TagGeneralized = "ortet.io_generalized"    // value: the capture; only such a snapshot becomes a version
	TagOnline      = "ortet.io_online"         // RFC 3339: the donor stayed in service, and flushed its disk then
	TagDevices     = "ortet.io_devices"        // Devices of the donor before its drain
	TagRolledBack  = "ortet.io_rolled-back"    // value: RFC 3339; such a version is not brought back by itself
	TagWatch       = "ortet.io_watch"          // on a version: when a watch began, how long it lasts, how many nodes have to come up
	TagProven      = "ortet.io_proven"         // on a version: RFC 3339; its nodes came up
	TagQuarantine  = "ortet.io_quarantine"     // beside TagRolledBack: the gate that the version's nodes failed, and how
	TagCanary      = "ortet.io_canary"         // RFC 3339: on a canary's scale set, when it expires; on a version, when its clones came up in one
	TagNotLive     = "ortet.io_not-live"       // RFC 3339, when it was made: no model has named the version as far as Ortet saw
	TagPublished   = "ortet.io_published-only" // RFC 3339, beside TagNotLive: for people
	TagNamespace   = "ortet.io_namespace"      // on a definition: the namespace that has the lock and the record of its pool
	TagCreatedBy   = "ortet.io_created-by"     // value: "ortet <version>"
	TagReason      = "ortet.io_reason"         // for people
	// TagCustomData is the SHA-256 of the customData that goes with the version
	// (the no-op's, for one that brings all on its disk), so that a rollback
	// knows what to restore.
	TagCustomData = "ortet.io_custom-data"
	// TagTuned names what `ortet capture --tune` added to the version, separated by commas.
	TagTuned = "ortet.io_tuned"
	// TagManifest is the SHA-256 of the manifest, which says what is in the version.
	TagManifest = "ortet.io_manifest"
	// TagSecrets counts the files with secrets that were accepted or removed, "pool 2, other
	// 1, removed 3"; without it nothing was found.
	TagSecrets = "ortet.io_secrets" //nolint:gosec // a tag's name
)

// BuiltAtLayout is kamino's %Y-%m-%d %H:%M:%S.%f.
const BuiltAtLayout = "2006-01-02 15:04:05.000000"
