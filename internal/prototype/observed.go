package prototype

import (
	"github.com/ortet/ortet/internal/fleet"
)

// Observed is the world before a capture. What could not be observed, because
// what leads there is missing, is nil.
type Observed struct {
	Donor         *fleet.Node
	InstanceID    fleet.ResourceID // from the donor's provider id
	NotInstance   error            // why that id is none
	Pool          *fleet.Pool
	Instance      *fleet.Instance
	Disk          *fleet.Disk // the donor's OS disk
	Size          *fleet.SizeInfo
	Gallery       *fleet.Gallery
	Definition    *fleet.Definition
	Versions      []fleet.ImageVersion
	Uses          []fleet.ImageUse
	Snapshot      *fleet.Snapshot // of Names.Snapshot
	Generalized   *fleet.Snapshot // of Names.Generalized
	WorkDisk      *fleet.Disk     // of Names.WorkDisk
	Workbench     *Workbench
	NoWorkbench   string     // why none fits
	Obstacles     []Obstacle // to a drain
	SelfNode      string     // that this process runs on
	DeniedAzure   []string   // permissions that lack
	DeniedCluster []string
	Unreadable    Problems // for another reason than that it is not there
}

// An Obstacle is a pod that a drain without force does not evict.
type Obstacle struct {
	Pod    string // "namespace/name"
	Budget string // "namespace/name", several joined by ", "; "" where no budget is the reason
	Why    string
}

// size is what is known of the donor's, maybe nothing.
func (o Observed) size() (size fleet.SizeInfo) {
	if o.Size != nil {
		size = *o.Size
	}
	return size
}
