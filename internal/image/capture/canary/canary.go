// Package canary proves an image version by clones of it before it goes live: two rows of a
// capture's table, and what preflight says of them.
//
// # Rows
//
//	canary   creates the scale set POOL-canary from the pool's model, with the version as its image;
//	         undo delete-canary deletes it once it is judged, after a failure, or on an interruption
//	judge    isolates the clones' Nodes, judges the clones (internal/image/prove) and runs the user's
//	         test; it tags a version whose clones failed as quarantined before the run fails
//
// # In and out
//
// A [Version] comes in: what the capture knows of the image and of the nodes that it will serve.
// An [Outcome] comes out, as a piece of the capture's record. A canary that cannot be made is refused
// before the donor is touched, or left out if it is optional.
package canary

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/cluster"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/plan"
	"github.com/ortet/ortet/internal/image/prove"
	"github.com/ortet/ortet/internal/workflow"
)

// Ids of the rows.
const (
	StepCanary       = "canary"
	undoDeleteCanary = "delete-canary"
	StepJudge        = "judge"
)

// A Canary is that of one capture.
type Canary struct {
	Cloud   azure.Cloud
	Cluster cluster.Cluster
	Log     *slog.Logger
	Now     func() time.Time
	Note    func(format string, args ...any)
	Outcome workflow.Part[Outcome]
	// Of returns what clones are made of, as far as that is known.
	Of func() Version
	// CustomData returns the customData of the pool that has this SHA-256.
	CustomData func(ctx context.Context, sha string) (fleet.Secret, error)
	// Sizes returns what is known of VM sizes, by their names in lower case.
	Sizes func(ctx context.Context, pool fleet.Pool, names ...string) map[string]fleet.SizeInfo
	// Boot returns what is known of a machine's boot beside its Node; nil for nothing.
	Boot func(ctx context.Context, node fleet.Node) prove.Boot

	Findings []prove.Finding // of each clone, as it was seen last
	judging  judging
}

// An Outcome is what came of a canary. It is saved with the capture's record.
type Outcome struct {
	NoCanary   string `json:"noCanary,omitempty"`   // why an optional canary is left out
	Quarantine string `json:"quarantine,omitempty"` // the gate that the clones failed, and how
	Proved     bool   `json:"proved,omitempty"`     // they came up
	// DonorBoot is what the clones of a tuned version are compared with; nil until it was read.
	DonorBoot *prove.Boot `json:"donorBoot,omitempty"`
}

// Skip returns why the version needs no canary. there is the version, nil if there is none yet.
func (o Outcome) Skip(q plan.Request, there *fleet.ImageVersion, inModel bool) string {
	published := there != nil && there.ProvisioningState == plan.Succeeded
	return cmp.Or(
		workflow.SkipIf(q.Canary == 0, "not requested"),
		workflow.SkipIf(o.NoCanary != "", "it cannot be made"),
		workflow.SkipIf(published && inModel, "the model uses the version"),
		workflow.SkipIf(published && there.Tags[fleet.TagCanary] != "" && !plan.IsUnjudged(*there), "clones of it came up"))
}

// A Version is what a canary proves.
type Version struct {
	ID, Pool fleet.ResourceID
	Request  plan.Request
	Capture  string            // name
	Tags     map[string]string // of what the capture makes; the map is the canary's own
	Tuned    []string          // tunings of the version

	CustomData     string         // SHA-256 of what new nodes will have, "" if not known
	NoCustomData   bool           // they get none
	Original       *plan.Original // of the pool's model: it knows protected settings
	LearnsOriginal bool           // what the donor's disk shows counts for the original
}

func (v Version) knowsCustomData() bool { return v.CustomData != "" || v.NoCustomData }

// protectedSettings is the SHA-256 of an extension's protected settings; plan.NoSettings if it
// needs none to be given, "" if they are not known.
func (v Version) protectedSettings(e fleet.Extension) string {
	if !e.HasProtectedSettings || e.KeyVault != nil {
		return plan.NoSettings
	}
	if v.Original != nil {
		return plan.OriginalExtensions([]fleet.Extension{e}, v.Original.Extensions)[0].ProtectedSHA256
	}
	return ""
}

// Rows returns the rows for a version that is built by the step built.
func (c *Canary) Rows(built, skip string) (create, judge workflow.Step) {
	v, id := c.Of(), fleet.CanaryOf(c.Of().Pool)
	create = workflow.Step{
		ID:       StepCanary,
		Title:    fmt.Sprintf("Create the scale set %s with %s", id.Name(), fleet.Count(int(v.Request.Canary), "clone")),
		Usual:    10 * time.Second,
		Deadline: 30 * time.Minute,
		After:    []string{built},
		Skip:     cmp.Or(skip, workflow.SkipIf(c.Outcome.Get().Quarantine != "", "the version is quarantined")),
		Do:       c.create,
		Undo: &workflow.Undo{
			ID:       undoDeleteCanary,
			Title:    "Delete the scale set " + id.Name(),
			Usual:    time.Minute,
			Deadline: time.Hour,
			When:     []string{StepJudge},
			Do:       c.delete,
			Manual:   func() string { return "az vmss delete --ids " + string(id) },
		},
	}
	judge = workflow.Step{
		ID: StepJudge,
		Title: "Judge the clones: do they come up, and stay up for " + v.Request.CanarySoak.String() +
			workflow.SkipIf(v.Request.CanaryTest != "", "; then each runs the test of --canary-test"),
		Usual:    3*time.Minute + v.Request.CanarySoak,
		Deadline: 4 * time.Hour,
		After:    []string{built, StepCanary},
		Skip:     skip,
		Do:       c.judge,
	}
	return create, judge
}

// Ended says how things are after a capture that ended at this step; "" if that is another's.
func (c *Canary) Ended(step string) string {
	return workflow.SkipIf(step == StepCanary || step == StepJudge, "the model was not changed, and "+c.Of().ID.Name()+
		cmp.Or(workflow.SkipIf(c.Outcome.Get().Quarantine != "", " stays, quarantined"), " is kept"))
}
