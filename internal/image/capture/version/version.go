// Package version makes the image version of a capture: rows of its table from the gallery to the
// tags that say that the version is live.
//
// # Rows
//
//	gallery, definition   create where versions lie
//	live                  records that the version that the model names was live, before that changes
//	version               builds the version; undo delete-version deletes it if it is unfinished
//	prune                 deletes what lies beyond the history
//	publish               tags the version, and includes it in the definition's latest
//
// # In and out
//
// An [Image] comes in: what the version is made of. A [Build] comes out, as a piece of the capture's
// record. A version that is complete stays, whatever becomes of its capture.
package version

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/plan"
	"github.com/ortet/ortet/internal/journal"
	"github.com/ortet/ortet/internal/workflow"
)

// Ids of the rows.
const (
	StepGallery       = "gallery"
	StepDefinition    = "definition"
	StepLive          = "live"
	StepVersion       = "version"
	undoDeleteVersion = "delete-version"
	stepPrune         = "prune"
	stepPublish       = "publish"
)

// ClaimSettles is longer than another process takes from its read of a definition's tag to its
// write: the tag that is there then is the last one.
const ClaimSettles = 20 * time.Second

// A Version is that of one capture.
type Version struct {
	Cloud azure.Cloud
	Set   *workflow.ScaleSet
	Build workflow.Part[Build]
	// Of returns what the version is made of, as far as that is known.
	Of func() Image
	// Rename gives the version another name, for a run that is planned again.
	Rename func(fleet.ResourceID)
	// Elsewhere refuses a definition whose pool another namespace has.
	Elsewhere func(...fleet.Definition) error
	// Forget drops the manifest, by its SHA-256, of a version that was pruned.
	Forget func(ctx context.Context, sha string)

	Pruned, Kept []string // versions; Kept with the reason

	builds     int              // that Azure failed
	deleting   fleet.ResourceID // version that prune deletes
	pruneFails bool             // deleting is a version that Azure failed to build
	manifest   string           // SHA-256 of the manifest that deleting alone has
	tried      []string         // versions that it tried to delete
}

// A Build is how the version is built. It is saved with the capture's record.
type Build struct {
	Excluded    bool   `json:"excluded,omitempty"` // the version stays out of the definition's latest
	StorageType string `json:"storageType,omitempty"`
}

// An Image is what a version is made of.
type Image struct {
	Request     plan.Request
	Ortet       string // its version
	Capture     string // name
	Names       plan.Names
	Pool        fleet.ResourceID
	Location    string
	Definition  fleet.Definition
	Encryption  fleet.Encryption
	Replicas    int32
	Tags        map[string]string  // the map is the version's own
	Definitions []fleet.ResourceID // of the pool
	Found       bool               // the version was there before the capture
	DonorGone   bool
	Proved      bool // clones of it came up
}

// Place returns the rows that create gallery and definition.
func (x *Version) Place(o plan.Observed, after string) (gallery, definition workflow.Step) {
	names := x.Of().Names
	gallery = workflow.Step{
		ID:    StepGallery,
		Title: "Create the gallery " + names.Gallery.Name(),
		Usual: 10 * time.Second,
		After: []string{after},
		Skip:  workflow.SkipIf(o.Gallery != nil, "already exists"),
		Do:    x.gallery,
	}
	definition = workflow.Step{
		ID:    StepDefinition,
		Title: "Create the image definition " + names.Definition.Name(),
		Usual: 10 * time.Second,
		After: []string{StepGallery},
		Skip:  workflow.SkipIf(o.Definition != nil, "already exists"),
		Do:    x.definition,
	}
	return gallery, definition
}

// Live returns the row that records that the model's version was live; nil needs no record. It comes
// before the model changes: from then on nothing shows that it named the version. A tag that is
// refused fails no capture: Unrecorded notes it, and nothing is pruned.
func (x *Version) Live(unrecorded *fleet.ImageVersion, after string) workflow.Step {
	was := cmp.Or(unrecorded, &fleet.ImageVersion{})
	return workflow.Step{
		ID:       StepLive,
		Title:    "Record that " + cmp.Or(was.Name, "the model's version") + " is live",
		Usual:    10 * time.Second,
		Deadline: time.Hour,
		After:    []string{after},
		Skip:     workflow.SkipIf(was.ID == "", "nothing to record"),
		Optional: true,
		Do: func(ctx context.Context, p *workflow.Pass) (workflow.Wait, error) {
			tags := fleet.TagVersion{ID: was.ID, Tags: plan.WentLive()}
			return p.Ensure(ctx, tags, workflow.Gone(x.Cloud.Version, was.ID, func(v fleet.ImageVersion) bool {
				whole := v.ProvisioningState == plan.Succeeded || was.ProvisioningState == plan.Failed // a tag does not repair it
				return !plan.IsMarked(v) && whole
			}))
		},
	}
}

// Unrecorded returns an act that first notes what the row live could not record.
func Unrecorded(was *fleet.ImageVersion, do workflow.Act) workflow.Act {
	return func(ctx context.Context, p *workflow.Pass) (workflow.Wait, error) {
		if was != nil && !p.IsDone(StepLive) {
			p.Note("that %s was live could not be recorded: a rollback without --to passes over it, and later captures may delete it; "+
				"to record it, remove its tags %s and %s", was.Name, fleet.TagNotLive, fleet.TagPublished)
		}
		return do(ctx, p)
	}
}

// Row returns the row that builds the version.
func (x *Version) Row(skip string, after ...string) workflow.Step {
	i, usual, deadline := x.Of(), 40*time.Minute, 8*time.Hour
	if i.Request.Shallow {
		usual, deadline = time.Minute, time.Hour
	}
	return workflow.Step{
		ID:       StepVersion,
		Title:    "Build image version " + i.Names.Version.Name(),
		Usual:    usual,
		Deadline: deadline,
		After:    after,
		Skip:     skip,
		Do:       x.build,
		Undo: &workflow.Undo{
			ID:       undoDeleteVersion,
			Title:    "Delete the image version if it is unfinished",
			Usual:    time.Minute,
			Deadline: time.Hour,
			Keep:     journal.Running,
			Do:       x.delete,
			Manual:   func() string { return "az resource delete --ids " + string(i.Names.Version) },
		},
	}
}

// Prune returns the row that deletes versions, of which old are known.
func (x *Version) Prune(old []fleet.ImageVersion, published bool, after ...string) workflow.Step {
	q, names := x.Of().Request, fleet.Each(old, func(v fleet.ImageVersion) string { return v.Name })
	return workflow.Step{
		ID:       stepPrune,
		Title:    "Prune versions to the newest " + fmt.Sprint(q.History) + plan.List(names),
		Usual:    time.Duration(len(names)) * time.Minute,
		Deadline: time.Hour,
		After:    after,
		Skip:     cmp.Or(q.OnlyPublishes(), workflow.SkipIf(published && len(old) == 0, "no older versions")),
		Optional: true,
		Do:       x.prune,
	}
}

// Publish returns the row that tags the version.
func (x *Version) Publish(skip string, after ...string) workflow.Step {
	q, usual := x.Of().Request, 10*time.Second
	if q.Canary > 0 { // it enters the definition's latest
		usual = time.Minute
	}
	return workflow.Step{
		ID:       stepPublish,
		Title:    cmp.Or(workflow.SkipIf(q.PublishOnly, "Record that clones of the version came up"), "Record that the version is live"),
		Usual:    usual,
		Deadline: time.Hour,
		After:    after,
		Skip:     skip,
		Do:       x.publish,
	}
}
