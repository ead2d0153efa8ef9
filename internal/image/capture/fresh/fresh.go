// Package fresh raises a donor for a capture: one more instance of the pool, on which no workload
// runs and which is deleted when the capture is over. It knows no row of another part.
//
//	raise  adds an instance, takes its Node out of service as soon as that exists, prepares it, and judges it
//	       undo delete-donor: deletes the instance by its id
//	go-on  has the run planned again, for the donor that is up by then
package fresh

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/cluster"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/plan"
	"github.com/ortet/ortet/internal/image/prove"
	"github.com/ortet/ortet/internal/journal"
	"github.com/ortet/ortet/internal/workflow"
)

// Ids of steps and undos.
const (
	StepRaise  = "raise"
	UndoDelete = "delete-donor"
	stepGoOn   = "go-on"
)

var done = workflow.Wait{}

// A Raising is that of one capture.
type Raising struct {
	Cloud   azure.Cloud
	Cluster cluster.Cluster
	Log     *slog.Logger
	Now     func() time.Time
	Set     *workflow.ScaleSet
	Donor   workflow.Part[Donor]
	Of      func() Pool
	Job     func(component string) cluster.Job // a pod of Ortet's image, for a node
	Lost    bool                               // others deleted the donor
	Lines   []string                           // the last that a preparation printed, redacted

	raising raising
	rest    azure.Rest
}

// A Pool is what a donor is raised of.
type Pool struct {
	ID      fleet.ResourceID
	Capture string        // name
	Soak    time.Duration // how long the donor has to stay Ready before its disk is taken
	Prepare *plan.Preparation
}

// A Donor is what is known of a donor that the capture raises. It is saved with the record; zero means
// that none was asked for.
type Donor struct {
	To       int64            `json:"to,omitempty"`       // capacity with it
	Before   []string         `json:"before,omitempty"`   // names of the instances as that was asked for
	Instance fleet.ResourceID `json:"instance,omitempty"` // that was chosen of the new ones
	Node     string           `json:"node,omitempty"`     // once it passed its gates
	Prepared Prepared         `json:"prepared,omitzero"`
	Deleting bool             `json:"deleting,omitempty"` // its deletion was asked for
}

// A raising is what one process knows of a donor that comes up.
type raising struct {
	asked     bool          // the operation that adds it has ended
	failure   string        // of that operation
	poll      time.Time     // when the operation is asked for again
	begun     time.Time     // when the capacity was in effect, by Azure's clock
	instances []prove.Clone // new ones, as listed last
	listed    time.Time
	unsure    bool      // whether a Node is the donor's
	job, node string    // the pod that was started last, and where
	ran       bool      // its container
	started   time.Time // then
}

// Rows are those of a donor that is raised. up says why none is raised, "" if one is: exists, that one
// is up already. The first plan has no donor: it ends at go-on, after which the run is planned again for
// the donor that is there by then. The donor is deleted once the steps of when are done, after these undos.
func (r *Raising) Rows(up string, exists bool, when, after []string) workflow.Table {
	of := r.Of()
	pool, prepares := of.ID.Name(), ""
	if of.Prepare != nil {
		prepares = "prepare it, "
	}
	return workflow.Table{{
		ID:             StepRaise,
		Title:          "Add a fresh donor to " + pool + ", cordon it, " + prepares + "and wait until it came up",
		Usual:          2*time.Minute + of.Soak,
		Deadline:       2 * time.Hour,
		Skip:           up,
		EffectMayExist: exists,
		Do:             r.raise,
		Undo: &workflow.Undo{
			ID:       UndoDelete,
			Title:    "Delete the fresh donor of " + pool,
			Usual:    time.Minute,
			Deadline: time.Hour,
			When:     when,
			After:    after,
			Keep:     journal.Done, // before it is up, an interruption deletes it
			Do:       r.delete,
			Manual:   r.manualDelete,
		},
	}, {
		ID:    stepGoOn,
		Title: "Continue with the fresh donor",
		After: []string{StepRaise},
		Skip:  up,
		Do: func(context.Context, *workflow.Pass) (workflow.Wait, error) {
			return done, workflow.Continue("%s is the donor", r.Donor.Get().Node)
		},
	}}
}

// ManualDelete is the command that deletes a donor.
func ManualDelete(pool, instance fleet.ResourceID) string {
	return fmt.Sprintf("az vmss delete-instances -g %s -n %s --instance-ids %s", pool.Group().Name(), pool.Name(), instance.Name())
}

func (r *Raising) manualDelete() string {
	d, of := r.Donor.Get(), r.Of()
	switch {
	case d.To == 0:
		return ""
	case d.Instance == "":
		return fmt.Sprintf("scale set %s may have one instance more than before, or a capacity of %d without it: "+
			"az vmss list-instances --ids %s", of.ID.Name(), d.To, of.ID)
	}
	return ManualDelete(of.ID, d.Instance)
}
