package capture

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/ortet/ortet/internal/image/capture/canary"
	"github.com/ortet/ortet/internal/image/capture/donor"
	"github.com/ortet/ortet/internal/image/capture/fresh"
	"github.com/ortet/ortet/internal/image/capture/model"
	"github.com/ortet/ortet/internal/image/capture/version"
	"github.com/ortet/ortet/internal/image/plan"
	"github.com/ortet/ortet/internal/workflow"
)

const (
	stepInspect                   = "inspect"
	undoDeleteInspection          = "delete-inspection"
	stepProtectWorkbench          = "protect-workbench"
	undoUnprotectWorkbench        = "unprotect-workbench"
	stepHoldReboots               = "hold-reboots"
	undoReleaseReboots            = "release-reboots"
	stepWorkDisk                  = "work-disk"
	undoDeleteWorkDisk            = "delete-work-disk"
	stepAttach                    = "attach"
	undoDetach                    = "detach"
	stepGeneralize                = "generalize"
	undoDeletePod                 = "delete-pod"
	stepSave                      = "save"
	stepGeneralizedSnapshot       = "generalized-snapshot"
	undoDeleteGeneralizedSnapshot = "delete-generalized-snapshot"
)

// table returns a capture's rows, in the order in which people read them. A skipped row counts as
// succeeded at once, so After names every row to wait for. Usual durations are those of kamino's
// published logs and of Azure's documentation.
func (c *capture) table(v view) workflow.Table {
	snapshot := v.Snapshot != nil && v.made(plan.AtSnapshot, v.Snapshot.Tags)
	return slices.Concat(c.freshRows(v), c.donorRows(v),
		c.donor.Rows(v.copied(), snapshot, version.StepVersion, donor.StepProtect, stepProtectWorkbench),
		c.copyRows(v), c.versionRows(v))
}

// donorRows end with the protection of donor and workbench.
func (c *capture) donorRows(v view) workflow.Table {
	gallery, definition := c.version.Place(v.Observed, stepInspect)
	return workflow.Table{
		{
			ID:       stepInspect,
			Title:    "Inspect " + c.req.Node + "'s disk for blockers",
			Usual:    20 * time.Second,
			Deadline: 5 * time.Minute,
			Skip:     v.copied(),
			Do:       c.inspect,
			Undo: &workflow.Undo{
				ID:       undoDeleteInspection,
				Title:    "Delete the inspection pod",
				Deadline: 5 * time.Minute,
				When:     []string{stepInspect},
				Do:       c.deleteInspection,
			},
		},
		gallery,
		definition,
		c.version.Live(v.resume.Unrecorded, stepInspect),
		c.donor.ProtectRow(v.copied(), stepInspect, version.StepDefinition),
		{
			ID:    stepProtectWorkbench,
			Title: strings.TrimSpace("Protect the workbench "+c.get().Bench.Node) + " from scale-in",
			Usual: 15 * time.Second,
			After: []string{stepInspect, version.StepDefinition},
			Skip:  v.generalized(),
			Do:    c.protectWorkbench,
			Undo: &workflow.Undo{
				ID:    undoUnprotectWorkbench,
				Title: "Restore the workbench's protection",
				Usual: 15 * time.Second,
				When:  []string{stepSave},
				Needs: []string{undoDetach},
				Do: func(ctx context.Context, p *workflow.Pass) (workflow.Wait, error) {
					return c.donor.Unprotect(ctx, p, c.bench())
				},
				Manual: func() string {
					return donor.ManualUnprotect(c.get().Bench.Node, c.get().Bench.Pool, c.get().Bench.Instance)
				},
			},
		},
	}
}

// copyRows end with the snapshot of the generalised copy.
func (c *capture) copyRows(v view) workflow.Table {
	names := c.get().Names
	return workflow.Table{
		{
			ID:       stepHoldReboots,
			Title:    "Block kured reboots",
			Deadline: 2 * time.Hour,
			After:    []string{donor.StepSnapshot},
			Skip:     v.generalized(),
			Do:       c.holdReboots,
			Undo: &workflow.Undo{
				ID:    undoReleaseReboots,
				Title: "Unblock kured reboots",
				When:  []string{stepSave},
				Needs: []string{undoDetach},
				Do: func(ctx context.Context, _ *workflow.Pass) (workflow.Wait, error) {
					return done, c.Cluster.ReleaseReboots(ctx, c.rebootHolder())
				},
				Manual: func() string {
					if c.get().NoKured {
						return ""
					}
					return "kured's lock expires after 3 hours; to remove it now, delete the lock annotation of kured's DaemonSet"
				},
			},
		},
		{
			ID:             stepWorkDisk,
			Title:          "Create a copy of the disk from the snapshot",
			Usual:          10 * time.Second,
			Deadline:       30 * time.Minute,
			After:          []string{donor.StepSnapshot},
			Skip:           v.generalized(),
			EffectMayExist: v.WorkDisk != nil && v.made(plan.AtGeneralized, v.WorkDisk.Tags) && v.WorkDisk.ManagedBy == "",
			Do:             c.workDisk,
			Undo: &workflow.Undo{
				ID:       undoDeleteWorkDisk,
				Title:    "Delete the copy of the disk",
				Usual:    5 * time.Second,
				Deadline: 30 * time.Minute,
				When:     []string{stepGeneralizedSnapshot},
				Needs:    []string{undoDetach},
				Do:       c.donor.DeleteCopy(names.WorkDisk),
				Manual:   donor.ManualDelete("disk", names.WorkDisk),
			},
		},
		{
			ID:       stepAttach,
			Title:    strings.TrimSpace("Attach the copy to the workbench " + c.get().Bench.Node),
			Usual:    30 * time.Second,
			Deadline: 20 * time.Minute,
			After:    []string{stepProtectWorkbench, stepHoldReboots, stepWorkDisk},
			Skip:     v.generalized(),
			Do:       c.attach,
			Undo: &workflow.Undo{
				ID:       undoDetach,
				Title:    "Detach the copy from the workbench",
				Usual:    30 * time.Second,
				Deadline: 20 * time.Minute,
				When:     []string{stepSave},
				After:    []string{undoDeletePod},
				Do:       c.detach,
				Manual:   c.manualDetach,
			},
		},
		{
			ID:       stepGeneralize,
			Title:    "Remove the donor's identity from the copy, and scan it for secrets",
			Usual:    2 * time.Minute,
			Deadline: time.Hour,
			After:    []string{stepAttach},
			Skip:     v.generalized(),
			Do:       c.generalize,
			Undo: &workflow.Undo{
				ID:       undoDeletePod,
				Title:    "Delete the pod on the workbench",
				Deadline: 5 * time.Minute,
				When:     []string{stepSave},
				Do:       c.deletePod,
				Manual:   func() string { return "kubectl delete pod -n " + c.Namespace + " " + c.get().Pod },
			},
		},
		{
			ID:       stepSave,
			Title:    "Save customData and protected settings in Secrets",
			Deadline: 30 * time.Minute,
			After:    []string{stepGeneralize},
			Skip:     v.generalized(),
			Do:       c.save,
		},
		{
			ID:             stepGeneralizedSnapshot,
			Title:          "Take a snapshot of the generalised copy",
			Usual:          6 * time.Second,
			Deadline:       30 * time.Minute,
			After:          []string{stepSave, undoDetach},
			Skip:           v.generalized(),
			EffectMayExist: v.Generalized != nil && v.made(plan.AtGeneralized, v.Generalized.Tags),
			Do:             c.generalizedSnapshot,
			Undo:           c.donor.UndoSnapshot(undoDeleteGeneralizedSnapshot, "Delete the snapshot of the generalised copy", version.StepVersion, names.Generalized),
		},
	}
}

// versionRows make the version, and take it into use. The version waits for the donor: if the
// donor does not boot again, no node may be made from its disk.
func (c *capture) versionRows(v view) workflow.Table {
	unjudged := c.judged(v)
	after := []string{version.StepDefinition, stepGeneralizedSnapshot, donor.UndoStart, donor.UndoUncordon, donor.UndoUnprotect}
	if c.req.Online {
		after = append(after, donor.StepConfirmBoot)
	}
	create, judge := c.canary.Rows(version.StepVersion, unjudged)
	point, extensions, grow := c.model.Rows(v.published(), version.StepVersion, canary.StepJudge, version.StepLive)
	if c.req.Fresh != "" { // the capacity counts the donor
		grow.After = append(grow.After, fresh.UndoDelete)
	}
	point.Do = version.Unrecorded(v.resume.Unrecorded, point.Do)
	return workflow.Table{
		c.version.Row(workflow.SkipIf(v.published(), v.generalized()), after...),
		create,
		judge,
		c.version.Prune(v.old, v.published(), version.StepVersion, canary.StepJudge, version.StepLive),
		point,
		c.version.Publish(workflow.SkipIf(!c.req.Pending(v.resume.Version) && unjudged != "", "nothing to record"),
			version.StepVersion, canary.StepJudge, model.StepModel),
		extensions,
		grow,
	}
}
