package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// A ScaleSetPool says what the image of one VM scale set and its nodes shall
// be. ortet operator makes them so, and reports in the status. Without
// capture, watch and rollout it only observes.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:metadata:annotations="helm.sh/resource-policy=keep"
// +kubebuilder:resource:scope=Cluster,shortName=ssp
// +kubebuilder:printcolumn:name="Image",type=string,JSONPath=`.status.image`,description="Version that new nodes come from"
// +kubebuilder:printcolumn:name="Fresh",type=string,JSONPath=`.status.conditions[?(@.type=="Fresh")].status`,description="No new image is due"
// +kubebuilder:printcolumn:name="Proven",type=string,JSONPath=`.status.conditions[?(@.type=="Proven")].status`,description="First nodes of the image came up"
// +kubebuilder:printcolumn:name="Nodes",type=string,JSONPath=`.status.nodes.summary`,description="Nodes that run the image, of all"
// +kubebuilder:printcolumn:name="Doing",type=string,JSONPath=`.status.run.summary`,description="What runs now"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`,description="Time since the object was made"
type ScaleSetPool struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// What the pool shall be. A change acts on the next run; an open one ends as
	// it began.
	Spec ScaleSetPoolSpec `json:"spec"`
	// What the operator observed. It writes it; nobody else does.
	// +optional
	Status ScaleSetPoolStatus `json:"status,omitzero"`
}

// ScaleSetPoolList is a list of ScaleSetPools.
//
// +kubebuilder:object:root=true
type ScaleSetPoolList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ScaleSetPool `json:"items"`
}

// ScaleSetPoolSpec is what a pool shall be. An image, a pull secret, a
// namespace and a workbench are the operator's flags: who sets them is root on
// nodes.
//
// +kubebuilder:validation:XValidation:rule="!has(self.capture) || self.capture.maxImageAge.matches('[1-9]') || has(self.donors.patchAnnotation)",message="capture.maxImageAge 0s needs donors.patchAnnotation: nothing else makes a second image due"
// +kubebuilder:validation:XValidation:rule="!has(self.capture) || !has(self.capture.tune) || size(self.capture.tune) == 0 || self.canary.clones > 0",message="capture.tune needs clones that prove it: set canary.clones to 1 or more"
type ScaleSetPoolSpec struct {
	// ARM id of the VM scale set: az vmss show --query id. It cannot be changed.
	// One scale set has one ScaleSetPool; of several the oldest counts.
	// +kubebuilder:validation:MaxLength=360
	// +kubebuilder:validation:XValidation:rule="self.matches('(?i)^/subscriptions/[0-9a-f-]{36}/resourceGroups/[^/ ]{1,90}/providers/Microsoft.Compute/virtualMachineScaleSets/[a-z0-9._()-]{1,90}$')",message="want the ARM id of a VM scale set: /subscriptions/ID/resourceGroups/GROUP/providers/Microsoft.Compute/virtualMachineScaleSets/NAME (az vmss show --query id)"
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="cannot be changed: delete the ScaleSetPool, and create one for the other scale set"
	ScaleSet string `json:"scaleSet"`

	// Begin nothing. What is open is ended first: an interrupted capture returns
	// its donor.
	// +optional
	Suspend bool `json:"suspend,omitempty"`

	// Continue although the scale set's upgrade policy is Rolling. Azure then
	// replaces running instances at each change of the model.
	// +optional
	AllowRolling bool `json:"allowRolling,omitempty"`

	// Continue although Cluster API owns the scale set's model, and may revert it.
	// +optional
	AllowOwned bool `json:"allowOwned,omitempty"`

	// When a new image is made of a node, and how. Absent: the operator makes
	// none.
	// +optional
	Capture *CaptureSpec `json:"capture,omitempty"`

	// Which nodes may be captured.
	// +kubebuilder:default={}
	// +optional
	Donors DonorsSpec `json:"donors,omitzero"`

	// Clones that have to come up before a captured image goes live.
	// +kubebuilder:default={}
	// +optional
	Canary CanarySpec `json:"canary,omitzero"`

	// How the first real nodes of an image are watched. If they fail, the model
	// goes back to the image before it. Absent: nobody watches; {} watches with
	// the defaults.
	// +optional
	Watch *WatchSpec `json:"watch,omitempty"`

	// How nodes that exist come to a new image.
	// +kubebuilder:default={}
	// +optional
	Rollout RolloutSpec `json:"rollout,omitzero"`
}

// A Schedule is five fields of cron (minute, hour, day of month, month, day of
// week), or @hourly, @daily, @weekly, @monthly, @yearly. The operator reads it
// in full, and reports in Stalled what it cannot read.
//
// +kubebuilder:validation:MaxLength=256
// +kubebuilder:validation:XValidation:rule="self.matches('^(@[a-z]+|[0-9A-Za-z*,/?-]+( +[0-9A-Za-z*,/?-]+){4})$')",message="want five fields (minute, hour, day of month, month, day of week) such as 0 2 * * 6, or @hourly, @daily, @weekly, @monthly, @yearly"
type Schedule string

// A TimeZone is a name of the IANA database, such as Europe/Berlin.
//
// +kubebuilder:validation:MaxLength=64
// +kubebuilder:validation:XValidation:rule="self != 'Local' && self.matches('^[A-Za-z][A-Za-z0-9_+-]*(/[A-Za-z0-9_+-]+)*$')",message="want a name of the IANA time zone database, such as UTC or Europe/Berlin"
type TimeZone string

// Bootstrap is how new nodes join, in lower case as ortet capture --bootstrap.
type Bootstrap string

// Ways in which new nodes join.
const (
	BootstrapKeep  Bootstrap = "Keep"
	BootstrapBaked Bootstrap = "Baked"
)

// CaptureSpec is when a pool is captured, and how. Fields are the flags of
// ortet capture.
//
// +kubebuilder:validation:XValidation:rule="!self.patch || self.fresh",message="patch updates the node that fresh adds: set fresh, or leave out patch"
// +kubebuilder:validation:XValidation:rule="!(self.online && self.fresh)",message="online keeps a donor in service, and a fresh one serves nothing: leave out one of them"
// +kubebuilder:validation:XValidation:rule="!(self.online && self.deallocate)",message="online leaves the donor in service, and deallocate stops it: leave out one of them"
type CaptureSpec struct {
	// When a capture may begin: five fields of cron, such as 0 2 * * *, or @daily.
	// A capture is begun only if a new image is due then: by maxImageAge, by
	// donors.patchAnnotation, or for the pool's first.
	Schedule Schedule `json:"schedule"`

	// Time zone of the schedule: a name of the IANA database. Default UTC.
	// +kubebuilder:default=UTC
	// +optional
	TimeZone TimeZone `json:"timeZone,omitempty"`

	// How long after the schedule's time a capture may begin, 1m to 744h. Later it
	// waits for the next time. Default 4h.
	// +kubebuilder:default="4h"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+[hms])+$') && duration(self) >= duration('1m') && duration(self) <= duration('744h')",message="want 1m to 744h, in h, m and s, such as 1h30m"
	// +optional
	Window metav1.Duration `json:"window,omitzero"`

	// Age at which an image is due for a new one, in whole days of 24h up to
	// 8760h. 0s: only nodes that were patched (donors.patchAnnotation) make it
	// due. Default 336h.
	// +kubebuilder:default="336h"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+[hms])+$') && duration(self) <= duration('8760h') && duration(self).getSeconds() % 86400 == 0",message="want whole days in hours, 24h to 8760h, such as 336h, or 0s"
	// +optional
	MaxImageAge metav1.Duration `json:"maxImageAge"`

	// How new nodes join. Keep: by the model's customData. Baked: all that a node
	// needs is on its disk, and customData does nothing. Default Keep.
	// +kubebuilder:default=Keep
	// +kubebuilder:validation:Enum=Keep;Baked
	// +optional
	Bootstrap Bootstrap `json:"bootstrap,omitempty"`

	// Versions to keep, with the new one. Default 3.
	// +kubebuilder:default=3
	// +kubebuilder:validation:Minimum=2
	// +kubebuilder:validation:Maximum=1000
	// +optional
	History int32 `json:"history,omitempty"`

	// Replicas of a version. 0: one for 50 of the pool's capacity, 3 to 50.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	// +optional
	Replicas int32 `json:"replicas,omitempty"`

	// Keep versions out of Azure's automatic OS upgrades.
	// +optional
	ExcludeFromLatest bool `json:"excludeFromLatest,omitempty"`

	// Copy the disk while the donor stays in service. Otherwise it is drained and
	// stopped.
	// +kubebuilder:default=false
	// +optional
	Online bool `json:"online,omitempty"`

	// Capture a node that is added to the pool for it, without workloads, and
	// deleted at the end. Of donors only patchAnnotation has an effect then.
	// +kubebuilder:default=false
	// +optional
	Fresh bool `json:"fresh,omitempty"`

	// Update the packages of that node first, by its own package manager, and
	// restart it where that is needed.
	// +kubebuilder:default=false
	// +optional
	Patch bool `json:"patch,omitempty"`

	// Deallocate the donor instead of powering it off.
	// +kubebuilder:default=false
	// +optional
	Deallocate bool `json:"deallocate,omitempty"`

	// Time for each pod of the donor to exit, 1s to 24h. The drain as a whole has
	// three times that. Default 5m.
	// +kubebuilder:default="5m"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+[hms])+$') && duration(self) >= duration('1s') && duration(self) <= duration('24h')",message="want 1s to 24h, in h, m and s, such as 5m"
	// +optional
	GracePeriod metav1.Duration `json:"gracePeriod,omitzero"`

	// Delete the donor's pods that are left at the time limit, or have no
	// controller.
	// +optional
	ForceDrain bool `json:"forceDrain,omitempty"`

	// Allow credentials in the image that the pool shares.
	// +optional
	AcceptPoolCredentials bool `json:"acceptPoolCredentials,omitempty"`

	// Secrets to allow in the image: absolute paths of files, or of folders with /
	// at the end.
	// +listType=set
	// +kubebuilder:validation:MaxItems=100
	// +kubebuilder:validation:items:MaxLength=1024
	// +kubebuilder:validation:items:XValidation:rule="self.matches('^(/[^/]+)+/?$') && !self.matches('/[.]{1,2}(/|$)')",message="want the absolute path of a file, or of a folder with / at its end"
	// +optional
	AcceptSecrets []string `json:"acceptSecrets,omitempty"`

	// Delete other secrets from the copied disk. Otherwise the capture is refused.
	// +optional
	RemoveSecrets bool `json:"removeSecrets,omitempty"`

	// Search container images for all kinds of secrets.
	// +optional
	ScanImages bool `json:"scanImages,omitempty"`

	// What to add to the image so that its clones are Ready sooner, which clones
	// then prove: recommended, or names.
	// +listType=set
	// +kubebuilder:validation:MaxItems=8
	// +optional
	Tune []Tuning `json:"tune,omitempty"`

	// Which of the model's extensions are deleted when an image goes live.
	// +kubebuilder:default={}
	// +optional
	Extensions ExtensionsSpec `json:"extensions,omitzero"`
}

// A Tuning is a name of ortet capture --tune.
//
// +kubebuilder:validation:Enum=recommended;kubelet-early;runtime-early;ssh-host-key
type Tuning string

// Deleted says which extensions are deleted, in lower case as ortet capture
// --extensions.
type Deleted string

// Which extensions a capture deletes.
const (
	DeletedDefault Deleted = "Default"
	DeletedAll     Deleted = "All"
	DeletedNone    Deleted = "None"
)

// ExtensionsSpec says what becomes of a model's extensions.
//
// +kubebuilder:validation:XValidation:rule="self.delete != 'None' || !has(self.keep) || size(self.keep) == 0",message="delete None keeps all extensions: leave out keep"
type ExtensionsSpec struct {
	// Default: those that bootstrap a node once. All: all but keep. None: none.
	// +kubebuilder:default=Default
	// +kubebuilder:validation:Enum=Default;All;None
	// +optional
	Delete Deleted `json:"delete,omitempty"`

	// Names of extensions that stay, with * for any characters.
	// +listType=set
	// +kubebuilder:validation:MaxItems=50
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=90
	// +optional
	Keep []string `json:"keep,omitempty"`
}

// DonorsSpec are the rules by which a pool's donor is chosen. Fields are the
// flags of ortet donors.
type DonorsSpec struct {
	// Annotation of nodes with the time of their last patch: a node that was
	// patched after the image was made makes a new one due. Absent: only age
	// counts.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:XValidation:rule="self.matches('^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$')",message="want the name of an annotation, such as example.com/last-patch"
	// +optional
	PatchAnnotation string `json:"patchAnnotation,omitempty"`

	// Annotation of nodes that are going to reboot, beside that of kured.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:XValidation:rule="self.matches('^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$')",message="want the name of an annotation, such as example.com/reboot"
	// +optional
	RebootAnnotation string `json:"rebootAnnotation,omitempty"`

	// Minimum time since a donor became Ready, 0s to 8760h. Default 1h.
	// +kubebuilder:default="1h"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+[hms])+$') && duration(self) <= duration('8760h')",message="want 0s to 8760h, in h, m and s, such as 1h"
	// +optional
	MinReady metav1.Duration `json:"minReady"`

	// Nodes that have to qualify before one is captured. Default 1.
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	// +optional
	MinCandidates int32 `json:"minCandidates,omitempty"`

	// Names of nodes that are never donors.
	// +listType=set
	// +kubebuilder:validation:MaxItems=100
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	// +optional
	IgnoreNodes []string `json:"ignoreNodes,omitempty"`

	// Annotations, with any value, of nodes that are never donors.
	// +listType=set
	// +kubebuilder:validation:MaxItems=20
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=317
	// +optional
	IgnoreAnnotations []string `json:"ignoreAnnotations,omitempty"`

	// Rules that are switched off. ortet donors --help explains each.
	// +listType=set
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:items:Enum=ignored;verdict;taints;conditions;kernel;os-image;runtime;boot-time
	// +optional
	SkipRules []string `json:"skipRules,omitempty"`
}

// CanarySpec says how a version is proven by clones before it goes live.
type CanarySpec struct {
	// Clones that have to come up. 0: none. Default 2.
	// +kubebuilder:default=2
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=10
	// +optional
	Clones int32 `json:"clones"`

	// Time for which they have to stay Ready, with their DaemonSets, 1s to 30m.
	// Default 2m.
	// +kubebuilder:default="2m"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+[hms])+$') && duration(self) >= duration('1s') && duration(self) <= duration('30m')",message="want 1s to 30m, in h, m and s, such as 2m"
	// +optional
	Soak metav1.Duration `json:"soak,omitzero"`

	// Capture nothing where clones cannot be made, as with a quota that is used
	// up. Otherwise the image then goes live without them.
	// +optional
	Required bool `json:"required,omitempty"`
}

// BadNodes says what becomes of the nodes of a bad version, in lower case as
// ortet watch --bad-nodes.
type BadNodes string

// What becomes of the nodes of a version that was taken back.
const (
	BadNodesCordon BadNodes = "Cordon"
	BadNodesDelete BadNodes = "Delete"
	BadNodesLeave  BadNodes = "Leave"
)

// WatchSpec says how the first nodes of a version are watched. Fields are the
// flags of ortet watch.
type WatchSpec struct {
	// Nodes that have to come up before an image is proven. Default 3.
	// +kubebuilder:default=3
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	// +optional
	Nodes int32 `json:"nodes,omitempty"`

	// Time limit of a watch, 1m to 168h. With at least one node up by then, the
	// image is proven. Default 30m.
	// +kubebuilder:default="30m"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+[hms])+$') && duration(self) >= duration('1m') && duration(self) <= duration('168h')",message="want 1m to 168h, in h, m and s, such as 30m"
	// +optional
	Duration metav1.Duration `json:"duration,omitzero"`

	// What becomes of a bad image's nodes when it is taken back: Cordon, Delete or
	// Leave. Default Cordon.
	// +kubebuilder:default=Cordon
	// +kubebuilder:validation:Enum=Cordon;Delete;Leave
	// +optional
	BadNodes BadNodes `json:"badNodes,omitempty"`

	// What a take-back may restore as a donor's disk showed it: customData, or
	// names of extensions.
	// +listType=set
	// +kubebuilder:validation:MaxItems=20
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=90
	// +optional
	RestoreLearned []string `json:"restoreLearned,omitempty"`
}

// RolloutMode says whether nodes that exist are renewed.
type RolloutMode string

// When nodes that exist are renewed.
const (
	RolloutNever  RolloutMode = "Never"
	RolloutProven RolloutMode = "Proven"
)

// RolloutSpec says how nodes that exist come to a new image. Fields are the
// flags of ortet rollout.
type RolloutSpec struct {
	// Never: nodes keep their image until they are replaced. Proven: nodes of
	// another image are drained and upgraded in place once the image is proven.
	// Default Never.
	// +kubebuilder:default=Never
	// +kubebuilder:validation:Enum=Never;Proven
	// +optional
	Mode RolloutMode `json:"mode,omitempty"`

	// Nodes of the pool that may be out of service at a time: a number, or a
	// percentage of the pool that is rounded down, but at least 1. Nodes that are
	// down or cordoned already count. Default 1.
	// +kubebuilder:default=1
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 1 && self <= 1000 : self.matches('^([1-9][0-9]?|100)%$')",message="want 1 to 1000 nodes, or 1% to 100%"
	// +optional
	MaxUnavailable intstr.IntOrString `json:"maxUnavailable,omitzero"`

	// Time for which the first node has to stay good before others follow, 0s to
	// 24h. Default 2m.
	// +kubebuilder:default="2m"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+[hms])+$') && duration(self) <= duration('24h')",message="want 0s to 24h, in h, m and s, such as 2m"
	// +optional
	Soak metav1.Duration `json:"soak"`

	// Time for a node's pods to exit, 1s to 24h. A node that is not drained by
	// then stays as it is. Default 10m.
	// +kubebuilder:default="10m"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+[hms])+$') && duration(self) >= duration('1s') && duration(self) <= duration('24h')",message="want 1s to 24h, in h, m and s, such as 10m"
	// +optional
	DrainTimeout metav1.Duration `json:"drainTimeout,omitzero"`

	// When nodes may be begun. Absent: always. Of several, one that is open is
	// enough.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=10
	// +optional
	Windows []RolloutWindow `json:"windows,omitempty"`
}

// RolloutWindow is a recurring time.
type RolloutWindow struct {
	// When the window opens: five fields of cron, such as 0 1 * * 6, or @weekly.
	Schedule Schedule `json:"schedule"`

	// How long it stays open, 1m to 744h.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+[hms])+$') && duration(self) >= duration('1m') && duration(self) <= duration('744h')",message="want 1m to 744h, in h, m and s, such as 5h"
	Duration metav1.Duration `json:"duration"`

	// Time zone of the schedule: a name of the IANA database. Default UTC.
	// +kubebuilder:default=UTC
	// +optional
	TimeZone TimeZone `json:"timeZone,omitempty"`
}
