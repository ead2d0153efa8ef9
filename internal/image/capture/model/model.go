// Package model changes the pool's model for a capture: the rows that take the version into use.
//
// # Rows
//
//	model        points the model at the version, with the customData that goes with it; the capture
//	             commits here, and has no undo: before and after it the model names what exists
//	extensions   deletes from the model what bootstrapped the donor, and saves its settings before
//	grow         adds new nodes, and waits until they are Ready
//
// # In and out
//
// A [Target] comes in: what the model is changed to. A [Changed] comes out, as a piece of the
// capture's record, and what goes on to the pool's next record (plan.Inherited).
package model

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/cluster"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/plan"
	"github.com/ortet/ortet/internal/wire"
	"github.com/ortet/ortet/internal/workflow"
)

// Ids of the rows.
const (
	StepModel      = "model"
	StepExtensions = "extensions"
	StepGrow       = "grow"
)

var done = workflow.Wait{}

// A Model is that of one capture's pool.
type Model struct {
	Cloud     azure.Cloud
	Cluster   cluster.Cluster
	Now       func() time.Time
	Set       *workflow.ScaleSet
	Changed   workflow.Part[Changed]
	Inherited workflow.Part[plan.Inherited]
	// Of returns what the model is changed to.
	Of func() Target
	// CustomData returns the customData of the pool that has this SHA-256.
	CustomData func(ctx context.Context, sha string) (fleet.Secret, error)
	// KeepSettings saves the public settings of an extension.
	KeepSettings func(ctx context.Context, extension string, settings fleet.Secret) error

	Grew bool // this capture asked for new nodes, or waited for them
}

// Changed is what becomes of the model. It is saved with the capture's record.
type Changed struct {
	ToDelete     []string `json:"toDelete,omitempty"` // extensions, when the capture began
	ModelChanged bool     `json:"modelChanged,omitempty"`
	GrowTo       int64    `json:"growTo,omitempty"` // of an earlier release: Growth.Capacity
}

// A Target is what the model is changed to.
type Target struct {
	Request     plan.Request
	Pool        fleet.ResourceID
	Version     fleet.ResourceID
	CustomData  string             // SHA-256 of what goes with the version
	Definitions []fleet.ResourceID // of the pool
	Watched     bool               // a watch follows
}

// Rows returns the rows, of which the first has to wait for those of after. published: the version
// is complete.
func (m *Model) Rows(published bool, after ...string) (point, extensions, grow workflow.Step) {
	t, s := m.Of(), m.Changed.Get()
	name := t.Version.Name()
	point = workflow.Step{
		ID:       StepModel,
		Title:    "Point the model at " + name,
		Usual:    30 * time.Second,
		Deadline: time.Hour,
		After:    after,
		Skip:     cmp.Or(t.Request.OnlyPublishes(), workflow.SkipIf(published && s.ModelChanged, "the model uses "+name)),
		Commits:  !t.Request.PublishOnly,
		Do:       m.point,
	}
	extensions = workflow.Step{
		ID:       StepExtensions,
		Title:    "Delete extensions from the model" + plan.List(s.ToDelete),
		Usual:    time.Duration(len(s.ToDelete)) * 30 * time.Second,
		Deadline: time.Hour,
		After:    []string{StepModel},
		Skip:     cmp.Or(t.Request.OnlyPublishes(), workflow.SkipIf(len(s.ToDelete) == 0, "none to delete")),
		Do:       m.extensions,
	}
	grow = workflow.Step{
		ID:       StepGrow,
		Title:    "Add " + fleet.Count(int(t.Request.NewNodes), "new node"),
		Usual:    4 * time.Minute,
		Deadline: time.Hour + newNodesFor,
		After:    []string{StepModel, StepExtensions},
		Skip: cmp.Or(t.Request.OnlyPublishes(), workflow.SkipIf(t.Request.NewNodes == 0, "not requested"),
			workflow.SkipIf(m.Inherited.Get().Growth.Done, "added by an earlier capture")),
		Do: m.grow,
	}
	return point, extensions, grow
}

// Irreversible says by row what Azure does not give back.
func (t Target) Irreversible(extensions []fleet.Extension) map[string][]string {
	lost := map[string][]string{}
	toDelete, _ := t.Request.Extensions.ToDelete(extensions)
	for _, e := range toDelete {
		lost[StepExtensions] = append(lost[StepExtensions],
			fmt.Sprintf("extension %s (%s): its protected settings cannot be read back; they are kept where the donor's certificate decrypts them, else they are lost", e.Name, e.Type))
	}
	if t.Request.Bakes() {
		lost[StepModel] = []string{"the model's customData cannot be read back: it is kept in Ortet's Secrets where the donor's disk still has it, else it is lost"}
	}
	return lost
}

// Unrestored names what a rollback of this capture may need, that only a donor's disk shows, and
// that the request does not name.
func (m *Model) Unrestored(o plan.Observed) (names []string) {
	t, s := m.Of(), m.Inherited.Get()
	used, known := plan.VersionOf(o.Versions, o.Pool.Model.Image, o.Pool.Location)
	custom := used.Tags[fleet.TagCustomData]
	if (t.Request.Bakes() || s.LastCustomData != "") && (!known || custom != "" && custom != plan.NoopSHA256) {
		names = append(names, string(wire.CustomData))
	}
	if !known && s.Original != nil {
		for _, e := range s.Original.Extensions {
			if e.HasProtectedSettings && e.KeyVault == nil && (e.Deleted || slices.Contains(m.Changed.Get().ToDelete, e.Name)) {
				names = append(names, e.Name)
			}
		}
	}
	return slices.DeleteFunc(names, func(name string) bool {
		return slices.ContainsFunc(t.Request.RestoreLearned, func(n string) bool { return strings.EqualFold(n, name) })
	})
}

// point points the pool's model at the version. There is no undo: the operation's end is
// awaited, and before and after it the model names an image that exists.
func (m *Model) point(ctx context.Context, p *workflow.Pass) (workflow.Wait, error) {
	t := m.Of()
	data, err := m.customData(ctx)
	if err != nil {
		return done, err
	}
	image := fleet.ImageReference{ID: t.Version}
	change := func(pool fleet.Pool) fleet.Change {
		return fleet.PatchModel{Pool: t.Pool, Image: image, CustomData: data, Etag: pool.Etag}
	}
	is := func(pool fleet.Pool) bool { return pool.Model.Image.Same(image) }
	w, err := m.Set.Change(ctx, p, t.Pool, change, is, func(ctx context.Context, pool fleet.Pool) error {
		if err := m.mayChange(ctx, pool); err != nil || data == nil {
			return err
		}
		sha := plan.SHA256(data.Reveal())
		if sha != m.Inherited.Get().LastCustomData && !t.Request.Bakes() {
			p.Note("the model's customData is replaced by what the nodes of %s need", image.ID.Name())
		}
		m.Inherited.Set(func(h *plan.Inherited) { h.LastCustomData = sha })
		return nil
	})
	if err == nil && w.RequeueAfter == 0 {
		m.Inherited.Set(func(h *plan.Inherited) { h.Unfinished = nil })
		m.Changed.Set(func(s *Changed) { s.ModelChanged = true })
	}
	return w, err
}

// customData returns what the version needs; nil leaves the model's, if Ortet never set it. What
// Ortet set last is set again, since a crash may have lost that write.
func (m *Model) customData(ctx context.Context) (*fleet.Secret, error) {
	t := m.Of()
	want, last := t.CustomData, m.Inherited.Get().LastCustomData
	switch {
	case t.Request.Bakes():
		want = plan.NoopSHA256
	case want == "", want != plan.NoopSHA256 && last == "":
		return nil, nil
	}
	data, err := m.CustomData(ctx, want)
	if fleet.Is(err, fleet.KindNotFound) && last == want {
		return nil, nil
	} else if fleet.Is(err, fleet.KindNotFound) {
		err = fleet.Invalid("patch model", string(t.Version), "capture with --bootstrap baked",
			"this version's nodes need other customData than the model's, which is not kept (SHA-256 %s)", want)
	}
	return &data, err
}

// mayChange repeats preflight's checks (upgrade policy, automatic OS upgrades, owner: see
// plan.ModelProblems), and refuses to go back to an older version: only a rollback does.
func (m *Model) mayChange(ctx context.Context, pool fleet.Pool) error {
	t := m.Of()
	if err := plan.ModelProblems(pool, t.Request.AllowRolling, t.Request.ExcludeFromLatest, t.Request.AllowOwned).Err("patch model", string(pool.ID)); err != nil {
		return err
	}
	versions, err := azure.VersionsOf(ctx, m.Cloud, t.Definitions...)
	used, known := plan.VersionOf(versions, pool.Model.Image, pool.Location)
	if ours, there := plan.FindVersion(versions, t.Version); known && there && plan.Newer(used, ours) {
		return fleet.Invalid("patch model", string(pool.ID), "to use the older one: ortet rollback --to "+ours.Name,
			"the model uses %s by now, which is newer than %s", used.Name, ours.Name)
	}
	return err
}

// extensions deletes what bootstrapped the donor, dependents first, until the scale set
// as it was read last has none of them. Azure shows no settings of a deleted extension:
// they are saved right before.
func (m *Model) extensions(ctx context.Context, p *workflow.Pass) (workflow.Wait, error) {
	t := m.Of()
	pool, err := m.Set.Pool(ctx, t.Pool)
	if err != nil {
		return done, err
	}
	toDelete, _ := t.Request.Extensions.ToDelete(pool.Model.Extensions)
	if len(toDelete) == 0 {
		return done, nil
	}
	e := toDelete[0]
	name, settings := e.Name, e.Settings
	change := func(fleet.Pool) fleet.Change { return fleet.DeleteExtension{Pool: t.Pool, Name: name} }
	is := func(pool fleet.Pool) bool {
		return !slices.ContainsFunc(pool.Model.Extensions, func(e fleet.Extension) bool { return strings.EqualFold(e.Name, name) })
	}
	return workflow.GoOn(m.Set.Change(ctx, p, t.Pool, change, is, func(ctx context.Context, _ fleet.Pool) error {
		m.Inherited.Set(func(h *plan.Inherited) { h.Deletes(e) })
		if err := p.Save(ctx); err != nil || settings.Reveal() == "" {
			return err
		}
		return m.KeepSettings(ctx, name, settings)
	}))
}
