package prototype

import (
	"github.com/ortet/ortet/internal/fleet"
)

// Observed is the world before a capture. What could not be observed, because
// what leads there is missing, is nil.
type Observed struct {
	// Donor is nil where there is no such node.
	Donor *fleet.Node
	// InstanceID is from the donor's provider id; "" with NotInstance saying why.
	InstanceID  fleet.ResourceID
	NotInstance error
	Pool        *fleet.Pool
	Instance    *fleet.Instance
	Disk        *fleet.Disk // the donor's OS disk
	Size        *fleet.SizeInfo
	Gallery     *fleet.Gallery
	Definition  *fleet.Definition
	Versions    []fleet.ImageVersion
	Uses        []fleet.ImageUse
	Snapshot    *fleet.Snapshot // of Names.Snapshot
	Generalized *fleet.Snapshot // of Names.Generalized
	WorkDisk    *fleet.Disk     // of Names.WorkDisk
	// Workbench is nil where none fits, with NoWorkbench saying why.
	Workbench   *Workbench
	NoWorkbench string
	// Obstacles are the donor's pods that a drain would wait for in vain.
	Obstacles []Obstacle
	// SelfNode is the node that this process runs on.
	SelfNode string
	// DeniedAzure and DeniedCluster are the permissions that lack.
	DeniedAzure   []string
	DeniedCluster []string
	// Unreadable says what could not be observed for another reason than that
	// it is not there.
	Unreadable []fleet.Problem
}

// An Obstacle is a pod that a drain without force does not evict.
type Obstacle struct {
	Pod    string // "namespace/name"
	Budget string // "namespace/name", several joined by ", "; "" where no budget is the reason
	Why    string
}
