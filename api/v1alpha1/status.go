package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// ScaleSetPoolStatus is what the operator observed.
type ScaleSetPoolStatus struct {
	// Generation of the spec that the status is of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// When a capture may begin next. Absent: there is no schedule, or it cannot be
	// read.
	// +optional
	NextCapture *metav1.Time `json:"nextCapture,omitempty"`

	// Version that new nodes come from, such as 2026.11.25.
	// +kubebuilder:validation:MaxLength=256
	// +optional
	Image string `json:"image,omitempty"`

	// When that version was made.
	// +optional
	ImageBuilt *metav1.Time `json:"imageBuilt,omitempty"`

	// The pool's nodes, by image.
	// +optional
	Nodes NodesStatus `json:"nodes,omitzero"`

	// Versions of the pool, newest first.
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=10
	// +optional
	Versions []VersionStatus `json:"versions,omitempty"`

	// What runs now, also by a person or a Job.
	// +optional
	Run *RunStatus `json:"run,omitempty"`

	// What ran last.
	// +optional
	LastRun *LastRunStatus `json:"lastRun,omitempty"`

	// Ready, Fresh, Proven, Progressing, Stalled. docs/reference/scalesetpool.md
	// explains each reason.
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// NodesStatus counts a pool's nodes.
type NodesStatus struct {
	// All nodes.
	Total int32 `json:"total"`
	// Nodes that run the image of new nodes.
	Current int32 `json:"current"`
	// Nodes that run another image.
	Old int32 `json:"old"`
	// Nodes whose rollout failed, or that a take-back cordoned. They count as
	// current or old, too.
	Failed int32 `json:"failed"`
	// CURRENT/TOTAL, for the column NODES.
	// +kubebuilder:validation:MaxLength=32
	// +optional
	Summary string `json:"summary,omitempty"`
}

// What is known of a version.
const (
	VersionCurrent     = "Current"     // the model names it, and nobody watches it
	VersionProven      = "Proven"      // its first nodes came up
	VersionWatched     = "Watched"     // its first nodes are watched
	VersionQuarantined = "Quarantined" // it failed a gate, or was rolled back
	VersionOld         = "Old"         // the model named it earlier
)

// VersionStatus is one version of a pool's image.
type VersionStatus struct {
	// Name, such as 2026.11.25.
	// +kubebuilder:validation:MaxLength=64
	Name string `json:"name"`
	// Current, Proven, Watched, Quarantined or Old.
	// +kubebuilder:validation:MaxLength=32
	State string `json:"state"`
	// Why it is quarantined: the gate, and what failed.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	Reason string `json:"reason,omitempty"`
	// Node that it was captured from.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	BuiltFrom string `json:"builtFrom,omitempty"`
	// Nodes that run it.
	// +optional
	Nodes int32 `json:"nodes,omitempty"`
}

// What runs on a pool.
const (
	RunCapture  = "capture"
	RunWatch    = "watch"
	RunRollback = "rollback"
	RunRollout  = "rollout"
)

// RunStatus is a run that is open.
type RunStatus struct {
	// capture, watch, rollback or rollout.
	// +kubebuilder:validation:MaxLength=32
	Kind string `json:"kind"`
	// Name of the run.
	// +kubebuilder:validation:MaxLength=256
	// +optional
	Name string `json:"name,omitempty"`
	// Step that is at work.
	// +kubebuilder:validation:MaxLength=256
	// +optional
	Step string `json:"step,omitempty"`
	// Share of its steps that are done.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	// +optional
	Percent int32 `json:"percent"`
	// When it began.
	// +optional
	Begun *metav1.Time `json:"begun,omitempty"`
	// Who holds the pool's Lease. Absent: nobody, so the run was interrupted.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	Holder string `json:"holder,omitempty"`
	// KIND PERCENT%, for the column DOING.
	// +kubebuilder:validation:MaxLength=32
	// +optional
	Summary string `json:"summary,omitempty"`
}

// LastRunStatus is a run that is over.
type LastRunStatus struct {
	// capture, watch, rollback or rollout.
	// +kubebuilder:validation:MaxLength=32
	Kind string `json:"kind"`
	// Name of the run; of a watch its version.
	// +kubebuilder:validation:MaxLength=256
	// +optional
	Name string `json:"name,omitempty"`
	// When it ended.
	Ended metav1.Time `json:"ended"`
	// Exit code that ortet would have ended with: docs/reference/capture.md.
	Exit int32 `json:"exit"`
	// How it ended, in one sentence.
	// +kubebuilder:validation:MaxLength=4096
	// +optional
	Message string `json:"message,omitempty"`
}
