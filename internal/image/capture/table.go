package capture

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/capture/canary"
	"github.com/ortet/ortet/internal/image/capture/model"
	"github.com/ortet/ortet/internal/image/capture/version"
	"github.com/ortet/ortet/internal/image/plan"
	"github.com/ortet/ortet/internal/workflow"
)

const (
	stepInspect                   = "inspect"
	undoDeleteInspection          = "delete-inspection"
	stepProtect                   = "protect"
	undoUnprotect                 = "unprotect"
	stepProtectWorkbench          = "protect-workbench"
	undoUnprotectWorkbench        = "unprotect-workbench"
	stepCordon                    = "cordon"
	undoUncordon                  = "uncordon"
	stepDrain                     = "drain"
	stepStop                      = "stop"
	undoStart                     = "start"
	stepFlush                     = "flush"
	undoDeleteFlush               = "delete-flush"
	stepSnapshot                  = "snapshot"
	undoDeleteSnapshot            = "delete-snapshot"
	stepConfirmBoot               = "confirm-boot"
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
	rows := slices.Concat(c.donorRows(v), c.copyRows(v), c.versionRows(v))
	if !c.req.Online {
		rows = slices.DeleteFunc(rows, func(s workflow.Step) bool { return s.ID == stepFlush || s.ID == stepConfirmBoot })
	}
	return rows
}

// donorRows end with the snapshot of the donor's disk.
func (c *capture) donorRows(v view) workflow.Table {
	donor, names := c.req.Node, c.get().Names
	gallery, definition := c.version.Place(v.Observed, stepInspect)
	deadline := 3*c.req.GracePeriod + time.Minute
	if c.req.ForceDrain {
		deadline += c.req.GracePeriod + time.Minute
	}
	return workflow.Table{
		{
			ID:       stepInspect,
			Title:    "Inspect " + donor + "'s disk for blockers",
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
		{
			ID:    stepProtect,
			Title: "Protect " + donor + " from autoscalers and repairs",
			Usual: 15 * time.Second,
			After: []string{stepInspect, version.StepDefinition},
			Skip:  v.copied(),
			Do: func(ctx context.Context, p *workflow.Pass) (workflow.Wait, error) {
				return c.protectNode(ctx, p, donor, fleet.AnnotationCapture, c.name)
			},
			Undo: &workflow.Undo{
				ID:       undoUnprotect,
				Title:    "Restore " + donor + "'s protection",
				Usual:    15 * time.Second,
				Deadline: 40 * time.Minute,
				When:     []string{stepSnapshot},
				After:    []string{undoStart, undoUncordon},
				Do:       c.unprotect,
				Manual:   func() string { return manualUnprotect(donor, c.get().Pool, c.get().Instance) },
			},
		},
		{
			ID:    stepProtectWorkbench,
			Title: strings.TrimSpace("Protect the workbench "+c.get().Bench.Node) + " from scale-in",
			Usual: 15 * time.Second,
			After: []string{stepInspect, version.StepDefinition},
			Skip:  v.generalized(),
			Do:    c.protectWorkbench,
			Undo: &workflow.Undo{
				ID:     undoUnprotectWorkbench,
				Title:  "Restore the workbench's protection",
				Usual:  15 * time.Second,
				When:   []string{stepSave},
				Needs:  []string{undoDetach},
				Do:     c.unprotect,
				Manual: func() string { return manualUnprotect(c.get().Bench.Node, c.get().Bench.Pool, c.get().Bench.Instance) },
			},
		},
		{
			ID:    stepCordon,
			Title: "Cordon " + donor,
			After: []string{stepProtect, stepProtectWorkbench},
			Skip:  c.outOfService(v),
			Do:    c.cordon,
			Undo: &workflow.Undo{
				ID:     undoUncordon,
				Title:  "Uncordon " + donor,
				When:   []string{stepSnapshot},
				Needs:  []string{undoStart},
				Do:     c.uncordon,
				Manual: func() string { return "kubectl uncordon " + donor },
			},
		},
		{
			ID:       stepDrain,
			Title:    "Drain " + donor,
			Usual:    time.Minute,
			Deadline: deadline,
			After:    []string{stepCordon},
			Skip:     c.outOfService(v),
			Do:       c.drain,
		},
		{
			ID:       stepStop,
			Title:    cmp.Or(workflow.SkipIf(c.req.Deallocate, "Deallocate "), "Power off ") + donor,
			Usual:    150 * time.Second,
			Deadline: 20 * time.Minute,
			Every:    time.Second,
			After:    []string{stepDrain},
			Skip:     c.outOfService(v),
			Do:       c.stop,
			Undo: &workflow.Undo{
				ID:       undoStart,
				Title:    "Start " + donor + ", and wait until it is Ready",
				Usual:    2 * time.Minute,
				Deadline: 40 * time.Minute,
				When:     []string{stepSnapshot},
				Do:       c.start,
				Manual:   c.manualStart,
			},
		},
		{
			ID:       stepFlush,
			Title:    "Flush " + donor + "'s file systems to their disks",
			Usual:    5 * time.Second,
			Deadline: 5 * time.Minute,
			After:    []string{stepProtect, stepProtectWorkbench},
			Skip:     v.copied(),
			Do:       c.flush,
			Undo: &workflow.Undo{
				ID:       undoDeleteFlush,
				Title:    "Delete the flush pod",
				Deadline: 5 * time.Minute,
				When:     []string{stepSnapshot},
				Do: func(ctx context.Context, _ *workflow.Pass) (workflow.Wait, error) {
					return done, c.Cluster.ForceDeleteJob(ctx, flushPod(c.get().Pool))
				},
				Manual: func() string { return "kubectl delete pod -n " + c.Namespace + " " + flushPod(c.get().Pool) },
			},
		},
		{
			ID:             stepSnapshot,
			Title:          "Take a snapshot of " + donor + "'s OS disk",
			Usual:          6 * time.Second,
			Deadline:       30 * time.Minute,
			Every:          time.Second / 2,
			After:          []string{cmp.Or(workflow.SkipIf(c.req.Online, stepFlush), stepStop)},
			Skip:           v.copied(),
			EffectMayExist: v.Snapshot != nil && v.made(plan.AtSnapshot, v.Snapshot.Tags),
			Do:             c.snapshot,
			Undo:           c.deleteSnapshot(undoDeleteSnapshot, "Delete the snapshot of the donor's disk", names.Snapshot),
		},
		{
			ID:       stepConfirmBoot,
			Title:    "Confirm that " + donor + " did not boot while its disk was copied",
			Usual:    150 * time.Second,
			Deadline: 20 * time.Minute,
			Every:    5 * time.Second,
			After:    []string{stepSnapshot},
			Skip:     workflow.SkipIf(v.copied() != "" && c.get().BootID == "", "confirmed when the snapshot was taken"),
			Do:       c.confirmBoot,
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
			After:    []string{stepSnapshot},
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
			After:          []string{stepSnapshot},
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
				Do:       c.deleteCopy(names.WorkDisk),
				Manual:   manualDelete("disk", names.WorkDisk),
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
			Undo:           c.deleteSnapshot(undoDeleteGeneralizedSnapshot, "Delete the snapshot of the generalised copy", names.Generalized),
		},
	}
}

// versionRows make the version, and take it into use. The version waits for the donor: if the
// donor does not boot again, no node may be made from its disk.
func (c *capture) versionRows(v view) workflow.Table {
	unjudged := c.judged(v)
	after := []string{version.StepDefinition, stepGeneralizedSnapshot, undoStart, undoUncordon, undoUnprotect}
	if c.req.Online {
		after = append(after, stepConfirmBoot)
	}
	create, judge := c.canary.Rows(version.StepVersion, unjudged)
	point, extensions, grow := c.model.Rows(v.published(), version.StepVersion, canary.StepJudge, version.StepLive)
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
