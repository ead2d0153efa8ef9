package fleet

import (
	"encoding/json"
	"fmt"
	"time"
)

// A Change is one thing asked of the cloud. It is pure data, so that it can be
// planned, written to the journal before it is begun, and shown to a person.
// Repeating a Change whose effect is there succeeds and changes nothing.
type Change interface {
	// Target is the resource that changes.
	Target() ResourceID
	// Verb is the stable name of the change, "create snapshot".
	Verb() string
}

// The changes. Names and tags are complete: an adapter adds nothing.
type (
	// StopInstance powers off in order, or deallocates.
	StopInstance struct {
		Instance   ResourceID
		Deallocate bool `json:",omitempty"`
	}
	// StartInstance powers on.
	StartInstance struct{ Instance ResourceID }
	// ProtectInstance sets both of Azure's instance protections as given; the zero
	// Protection removes the policy. It leaves the instance's other properties as
	// they are. Where Azure does not know protection of a Flexible pool's virtual
	// machines, it is KindUnsupported, and nothing else is.
	ProtectInstance struct {
		Instance   ResourceID
		Protection Protection
	}
	// CreateSnapshot makes a full snapshot of a disk.
	CreateSnapshot struct {
		ID       ResourceID
		Location string
		Source   ResourceID
		Tags     map[string]string
		// Closed disables export by SAS: the snapshot holds a node's keys.
		Closed     bool       `json:",omitempty"`
		Encryption Encryption `json:",omitzero"`
	}
	// DeleteSnapshot removes one; a missing one is no error.
	DeleteSnapshot struct{ ID ResourceID }
	// CreateDisk makes a disk from a snapshot, with export by SAS disabled.
	CreateDisk struct {
		ID         ResourceID
		Location   string
		Zone       string `json:",omitempty"`
		SKU        string
		Source     ResourceID
		Tags       map[string]string
		Encryption Encryption `json:",omitzero"`
	}
	// DeleteDisk removes one; a missing one is no error.
	DeleteDisk struct{ ID ResourceID }
	// AttachDisk attaches a data disk to an instance at a free LUN.
	AttachDisk struct {
		Instance, Disk ResourceID
		LUN            int32
	}
	// DetachDisk detaches the disk, wherever it is on the instance.
	DetachDisk struct{ Instance, Disk ResourceID }
	// CreateGallery makes a gallery.
	CreateGallery struct {
		ID       ResourceID
		Location string
		Tags     map[string]string
	}
	// CreateDefinition makes an image definition.
	CreateDefinition struct{ Definition Definition }
	// TagDefinition merges tags into a definition's; an empty value removes the tag.
	TagDefinition struct {
		ID   ResourceID
		Tags map[string]string
	}
	// CreateVersion makes an image version from a snapshot, in the definition's region.
	CreateVersion struct {
		ID                ResourceID
		Location          string
		Source            ResourceID
		Replicas          int32
		StorageType       string
		ReplicationMode   string
		ExcludeFromLatest bool `json:",omitempty"`
		Tags              map[string]string
		EncryptionSet     ResourceID `json:",omitempty"` // "" for the platform's key
	}
	// TagVersion merges tags into a version's; an empty value removes the tag.
	TagVersion struct {
		ID   ResourceID
		Tags map[string]string
	}
	// PublishVersion takes a version into what the definition's latest may be, and merges tags
	// as TagVersion does.
	PublishVersion struct {
		ID   ResourceID
		Tags map[string]string
	}
	// DeleteVersion removes one; a missing one is no error.
	DeleteVersion struct{ ID ResourceID }
	// PatchModel points the model at an exact image version, with publisher,
	// offer, sku and version set to null. CustomData, where not nil, replaces
	// the model's, in the clear here and base64 on the wire. A Marketplace
	// image is restored by Image.Publisher and so on with ID "". Etag, where not
	// "", is that of the Pool that this was decided on: once the scale set is
	// another, the change is KindStale.
	PatchModel struct {
		Pool       ResourceID
		Image      ImageReference
		CustomData *Secret `json:",omitempty"`
		Etag       string  `json:",omitempty"`
	}
	// DeleteExtension removes an extension from the model; a missing one is no error.
	DeleteExtension struct {
		Pool ResourceID
		Name string
	}
	// WriteExtension creates an extension of the model, or replaces the one of its
	// name. Protected are its protected settings as JSON; an empty Secret is none.
	WriteExtension struct {
		Pool      ResourceID
		Extension Extension
		Protected Secret
	}
	// SetModelUserData replaces the userData of the model, base64 as Azure shows it. Etag
	// is as for PatchModel.
	SetModelUserData struct {
		Pool     ResourceID
		UserData string
		Etag     string `json:",omitempty"`
	}
	// SetUserData replaces the userData of an instance and nothing else. Etag, where not
	// "", is that of the instance that this was decided on.
	SetUserData struct {
		Instance ResourceID
		UserData string
		Etag     string `json:",omitempty"`
	}
	// SetSize sets the size of the VMs in the model. Etag is as for PatchModel.
	SetSize struct {
		Pool ResourceID
		Size string
		Etag string `json:",omitempty"`
	}
	// UpgradeInstances gives instances the scale set's model, which may restart them.
	UpgradeInstances struct {
		Pool      ResourceID
		Instances []string // their ids within the scale set, "3"
	}
	// DeleteInstances deletes instances, and lowers the capacity by them.
	DeleteInstances struct {
		Pool      ResourceID
		Instances []string // their ids within the scale set, "3"
	}
	// DeallocateScaleSet deallocates all instances, or those that it names.
	DeallocateScaleSet struct {
		Pool      ResourceID
		Instances []string `json:",omitempty"` // their ids within the scale set, "3"; none is all
	}
	// StartScaleSet starts all instances.
	StartScaleSet struct{ Pool ResourceID }
	// DeleteScaleSet deletes the scale set with its instances; a missing one is no error. With
	// Force Azure does not wait for what runs on them.
	DeleteScaleSet struct {
		Pool  ResourceID
		Force bool `json:",omitempty"`
	}
	// CreateCanary makes a scale set whose instances are what the pool's new ones would be with
	// Image: its model is the pool's as Azure shows it, without what would scale, upgrade or
	// repair it, or lead requests to it from outside. What Azure does not show comes with it.
	CreateCanary struct {
		ID, Pool, Image ResourceID
		Instances       int64
		HostPrefix      string            // of host names
		CustomData      *Secret           `json:",omitempty"`
		Without         []string          // extensions of the model that it does not get
		Protected       map[string]Secret // protected settings, by the extension's name
		Tags            map[string]string
	}
	// ReimageInstance gives an instance a new OS disk; repeated, another one.
	ReimageInstance struct{ Instance ResourceID }
	// RestartInstance restarts; repeated, again.
	RestartInstance struct{ Instance ResourceID }
	// SetCapacity sets the scale set's capacity. Add up from a fresh GET, since
	// an autoscaler may have changed it, and give its Etag, since one may yet:
	// as for PatchModel.
	SetCapacity struct {
		Pool     ResourceID
		Capacity int64
		Etag     string `json:",omitempty"`
	}
)

func (c StopInstance) Target() ResourceID     { return c.Instance }
func (c StartInstance) Target() ResourceID    { return c.Instance }
func (c ProtectInstance) Target() ResourceID  { return c.Instance }
func (c CreateSnapshot) Target() ResourceID   { return c.ID }
func (c DeleteSnapshot) Target() ResourceID   { return c.ID }
func (c CreateDisk) Target() ResourceID       { return c.ID }
func (c DeleteDisk) Target() ResourceID       { return c.ID }
func (c AttachDisk) Target() ResourceID       { return c.Instance }
func (c DetachDisk) Target() ResourceID       { return c.Instance }
func (c CreateGallery) Target() ResourceID    { return c.ID }
func (c CreateDefinition) Target() ResourceID { return c.Definition.ID }
func (c TagDefinition) Target() ResourceID    { return c.ID }
func (c CreateVersion) Target() ResourceID    { return c.ID }
func (c TagVersion) Target() ResourceID       { return c.ID }
func (c PublishVersion) Target() ResourceID   { return c.ID }
func (c CreateCanary) Target() ResourceID     { return c.ID }
func (c DeleteVersion) Target() ResourceID    { return c.ID }
func (c PatchModel) Target() ResourceID       { return c.Pool }
func (c DeleteExtension) Target() ResourceID  { return c.Pool.Child("extensions", c.Name) }
func (c WriteExtension) Target() ResourceID   { return c.Pool.Child("extensions", c.Extension.Name) }
func (c SetCapacity) Target() ResourceID      { return c.Pool }

func (c SetModelUserData) Target() ResourceID   { return c.Pool }
func (c SetUserData) Target() ResourceID        { return c.Instance }
func (c SetSize) Target() ResourceID            { return c.Pool }
func (c UpgradeInstances) Target() ResourceID   { return c.Pool }
func (c DeleteInstances) Target() ResourceID    { return c.Pool }
func (c DeallocateScaleSet) Target() ResourceID { return c.Pool }
func (c StartScaleSet) Target() ResourceID      { return c.Pool }
func (c DeleteScaleSet) Target() ResourceID     { return c.Pool }
func (c ReimageInstance) Target() ResourceID    { return c.Instance }
func (c RestartInstance) Target() ResourceID    { return c.Instance }

func (c StopInstance) Verb() string {
	if c.Deallocate {
		return "deallocate instance"
	}
	return "stop instance"
}
func (StartInstance) Verb() string    { return "start instance" }
func (ProtectInstance) Verb() string  { return "protect instance" }
func (CreateSnapshot) Verb() string   { return "create snapshot" }
func (DeleteSnapshot) Verb() string   { return "delete snapshot" }
func (CreateDisk) Verb() string       { return "create disk" }
func (DeleteDisk) Verb() string       { return "delete disk" }
func (AttachDisk) Verb() string       { return "attach disk" }
func (DetachDisk) Verb() string       { return "detach disk" }
func (CreateGallery) Verb() string    { return "create gallery" }
func (CreateDefinition) Verb() string { return "create image definition" }
func (TagDefinition) Verb() string    { return "tag image definition" }
func (CreateVersion) Verb() string    { return "create image version" }
func (TagVersion) Verb() string       { return "tag image version" }
func (PublishVersion) Verb() string   { return "publish image version" }
func (CreateCanary) Verb() string     { return "create canary" }
func (DeleteVersion) Verb() string    { return "delete image version" }
func (PatchModel) Verb() string       { return "patch model" }
func (DeleteExtension) Verb() string  { return "delete extension" }
func (WriteExtension) Verb() string   { return "write extension" }
func (SetCapacity) Verb() string      { return "set capacity" }

func (SetModelUserData) Verb() string   { return "set model userData" }
func (SetUserData) Verb() string        { return "set instance userData" }
func (SetSize) Verb() string            { return "set size" }
func (UpgradeInstances) Verb() string   { return "upgrade instances" }
func (DeleteInstances) Verb() string    { return "delete instances" }
func (DeallocateScaleSet) Verb() string { return "deallocate scale set" }
func (StartScaleSet) Verb() string      { return "start scale set" }
func (DeleteScaleSet) Verb() string     { return "delete scale set" }
func (ReimageInstance) Verb() string    { return "reimage instance" }
func (RestartInstance) Verb() string    { return "restart instance" }

// A Token resumes an operation that was begun, also in another process. It is
// opaque, printable, and holds no credentials.
type Token string

// Progress is how far an operation is.
type Progress struct {
	Done    bool
	Percent int32         // 0–100; -1 where the cloud does not say
	Wait    time.Duration // ask again after this; from Retry-After
	Status  string        // the cloud's own word: "Creating", "InProgress"
}

// A Secret is text that must not be shown. It formats, logs and marshals as
// "[redacted]"; Reveal is the only way to its value.
type Secret struct{ value string }

const redacted = "[redacted]"

// NewSecret wraps a value.
func NewSecret(value string) Secret { return Secret{value} }

// Reveal returns the value.
func (s Secret) Reveal() string { return s.value }

// String hides the value.
func (Secret) String() string { return redacted }

// GoString hides the value.
func (Secret) GoString() string { return redacted }

// Format hides the value under every verb.
func (Secret) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(redacted)) }

// MarshalJSON hides the value.
func (Secret) MarshalJSON() ([]byte, error) { return json.Marshal(redacted) }
