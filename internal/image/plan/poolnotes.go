package plan

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/ortet/ortet/internal/fleet"
)

// PoolNotes returns what of the pool and its gallery a person may not expect of this capture, which
// prunes the obsolete versions.
func PoolNotes(o Observed, q Request, obsolete []fleet.ImageVersion) (notes []string) {
	pool := *o.Pool
	var from []string
	for _, x := range []struct {
		what string
		id   fleet.ResourceID
	}{{"capacity reservation group", pool.Model.CapacityReservation}, {"dedicated host group", pool.HostGroup}, {"proximity placement group", pool.PlacementGroup}} {
		if x.id != "" {
			from = append(from, x.what+" "+x.id.Name())
		}
	}
	who := strings.TrimPrefix(when(q.Canary > 0, " and the canary's clones")+when(q.NewNodes > 0, " and the new nodes"), " and ")
	if len(from) > 0 && who != "" {
		notes = append(notes, who+" take room in the pool's "+strings.Join(from, ", "))
	}
	if o.Gallery != nil && o.Gallery.SoftDelete && len(obsolete) > 0 && !q.PublishOnly {
		notes = append(notes, fmt.Sprintf("gallery %s deletes softly: what is pruned (%s) can be recovered and costs storage until its retention ends, and its name stays taken",
			o.Gallery.ID.Name(), strings.Join(fleet.Each(obsolete, func(v fleet.ImageVersion) string { return v.Name }), ", ")))
	}
	if n := ReplicasFor(q, pool.Capacity); q.Replicas == 0 && n > minReplicas && !q.Shallow {
		notes = append(notes, fmt.Sprintf("the version gets %d replicas, one for %d of the pool's machines", n, perReplica))
	}
	if id, _, _ := ChooseDefinition(o); o.Definition == nil && o.OtherKind != "" {
		notes = append(notes, "another image definition is created, "+id.Name()+", since what one says cannot be changed: "+o.OtherKind)
	}
	return notes
}

// Limits of a version's replicas, and how many machines that come up at once one is for. Source:
// "Store and share images in an Azure Compute Gallery", scaling.
const minReplicas, maxReplicas, perReplica = 3, 50, 50

// ReplicasFor returns how many replicas a version of a pool with that capacity gets: what was
// requested, else one for each 50 machines, from 3 to 50.
func ReplicasFor(q Request, capacity int64) int32 {
	byCapacity := min(max((capacity+q.NewNodes+perReplica-1)/perReplica, minReplicas), maxReplicas)
	return cmp.Or(q.Replicas, int32(byCapacity))
}
