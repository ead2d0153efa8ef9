package capture

import (
	"fmt"
	"strings"
	"time"

	"github.com/ortet/ortet/internal/workflow"
	"github.com/ortet/ortet/internal/workflow/journal"
)

const minute = time.Minute

// table returns a capture's rows. A skipped row counts as succeeded at once, even if the
// rows of its After have not: a row that has to wait for both names both. Usual durations
// are those of kamino's published logs and of the documentation.
func (c *capture) table(at start) workflow.Table {
	s := c.get()
	donor, version, bench := c.req.Node, s.Names.Version.Name(), s.Bench.Node
	if at.o.Workbench != nil {
		bench = at.o.Workbench.Node.Name
	}
	stop, build, buildFor, drainFor := "Power off "+donor, 40*minute, 8*time.Hour, 3*c.req.GracePeriod+minute
	if c.req.Deallocate {
		stop = "Deallocate " + donor
	}
	if c.req.Shallow {
		build, buildFor = minute, time.Hour
	}
	if c.req.ForceDrain {
		drainFor = 4*c.req.GracePeriod + 2*minute
	}
	generalize := "Remove the donor's identity from the copy, and scan it for secrets"
	if c.req.ScanImages {
		generalize += ", image layers too"
	}
	if c.req.RemoveSecrets {
		generalize += "; delete files with secrets that no node needs to join"
	}
	t := workflow.Table{
		{ID: "inspect", Title: "Inspect " + donor + "'s disk for blockers", Usual: 20 * time.Second, Deadline: 5 * minute, Do: c.inspect, Undo: &workflow.Undo{
			ID: "delete-inspection", Title: "Delete the inspection pod", Deadline: 5 * minute, When: []string{"inspect"}, Do: c.deleteInspection,
		}},
		{ID: "gallery", Title: "Create the gallery " + s.Names.Gallery.Name(), Usual: 10 * time.Second, After: []string{"inspect"}, Do: c.gallery},
		{ID: "definition", Title: "Create the image definition " + s.Names.Definition.Name(), Usual: 10 * time.Second, After: []string{"gallery"}, Do: c.definition},
		{ID: "protect", Title: "Protect " + donor + " from autoscalers and repairs", Usual: 15 * time.Second, After: []string{"inspect", "definition"},
			Do: c.protect, Undo: &workflow.Undo{
				ID: "unprotect", Title: "Restore " + donor + "'s protection", Usual: 15 * time.Second, Deadline: 40 * minute, When: []string{"snapshot"}, After: []string{"start", "uncordon"},
				Do: c.unprotect, Manual: func() string { return manualUnprotect(donor, c.get().Instance) },
			}},
		{ID: "protect-workbench", Title: strings.TrimSpace("Protect the workbench "+bench) + " from scale-in", Usual: 15 * time.Second, After: []string{"inspect", "definition"},
			Do: c.protectWorkbench, Undo: &workflow.Undo{
				ID: "unprotect-workbench", Title: "Restore the workbench's protection", Usual: 15 * time.Second, When: []string{"save"}, Needs: []string{"detach"},
				Do: c.unprotect, Manual: func() string { return manualUnprotect(c.get().Bench.Node, c.get().Bench.Instance) },
			}},
		{ID: "cordon", Title: "Cordon " + donor, After: []string{"protect", "protect-workbench"}, Do: c.cordon, Undo: &workflow.Undo{
			ID: "uncordon", Title: "Uncordon " + donor, When: []string{"snapshot"}, Needs: []string{"start"},
			Do: c.uncordon, Manual: func() string { return "kubectl uncordon " + donor },
		}},
		{ID: "drain", Title: "Drain " + donor, Usual: minute, Deadline: drainFor, After: []string{"cordon"}, Do: c.drain},
		{ID: "stop", Title: stop, Usual: 150 * time.Second, Deadline: 20 * minute, Every: time.Second, After: []string{"drain"}, Do: c.stop, Undo: &workflow.Undo{
			ID: "start", Title: "Start " + donor + ", and wait until it is Ready", Usual: 2 * minute, Deadline: 40 * minute, When: []string{"snapshot"},
			Do: c.start, Manual: c.manualStart,
		}},
		{ID: "snapshot", Title: "Take a snapshot of " + donor + "'s OS disk", Usual: 6 * time.Second, Deadline: 30 * minute, Every: time.Second / 2, After: []string{"stop"},
			Do: c.snapshot, Undo: &workflow.Undo{
				ID: "delete-snapshot", Title: "Delete the snapshot of the donor's disk", Usual: 5 * time.Second, When: []string{"version"}, Keep: journal.Done,
				Do: c.deleteCopy(s.Names.Snapshot), Manual: manualDelete("snapshot", s.Names.Snapshot),
			}},
		{ID: "hold-reboots", Title: "Block kured reboots", Deadline: 120 * minute, After: []string{"snapshot"}, Do: c.holdReboots, Undo: &workflow.Undo{
			ID: "release-reboots", Title: "Unblock kured reboots", When: []string{"save"}, Needs: []string{"detach"},
			Do: c.releaseReboots, Manual: func() string {
				return "kured's lock expires after 3 hours; to remove it now, delete the lock annotation of kured's DaemonSet"
			},
		}},
		{ID: "work-disk", Title: "Create a copy of the disk from the snapshot", Usual: 10 * time.Second, Deadline: 30 * minute, After: []string{"snapshot"},
			Do: c.workDisk, Undo: &workflow.Undo{
				ID: "delete-work-disk", Title: "Delete the copy of the disk", Usual: 5 * time.Second, Deadline: 30 * minute, When: []string{"generalized-snapshot"}, Needs: []string{"detach"},
				Do: c.deleteCopy(s.Names.WorkDisk), Manual: manualDelete("disk", s.Names.WorkDisk),
			}},
		{ID: "attach", Title: strings.TrimSpace("Attach the copy to the workbench " + bench), Usual: 30 * time.Second, Deadline: 20 * minute,
			After: []string{"protect-workbench", "hold-reboots", "work-disk"}, Do: c.attach, Undo: &workflow.Undo{
				ID: "detach", Title: "Detach the copy from the workbench", Usual: 30 * time.Second, Deadline: 20 * minute, When: []string{"save"}, After: []string{"delete-pod"},
				Do: c.detach, Manual: c.manualDetach,
			}},
		{ID: "generalize", Title: generalize, Usual: 2 * minute, Deadline: 60 * minute, After: []string{"attach"}, Do: c.generalize, Undo: &workflow.Undo{
			ID: "delete-pod", Title: "Delete the pod on the workbench", Deadline: 5 * minute, When: []string{"save"}, Do: c.deletePod, Manual: c.manualDeletePod,
		}},
		{ID: "save", Title: "Save customData and protected settings in Secrets", Deadline: 30 * minute, After: []string{"generalize"}, Do: c.save},
		{ID: "generalized-snapshot", Title: "Take a snapshot of the generalised copy", Usual: 6 * time.Second, Deadline: 30 * minute, After: []string{"save", "detach"},
			Do: c.generalizedSnapshot, Undo: &workflow.Undo{
				ID: "delete-generalized-snapshot", Title: "Delete the snapshot of the generalised copy", Usual: 5 * time.Second, When: []string{"version"}, Keep: journal.Done,
				Do: c.deleteCopy(s.Names.Generalized), Manual: manualDelete("snapshot", s.Names.Generalized),
			}},
		// The version waits for the donor: if the donor does not boot again, no node may
		// be made from its disk.
		{ID: "version", Title: "Build image version " + version, Usual: build, Deadline: buildFor,
			After: []string{"definition", "generalized-snapshot", "start", "uncordon", "unprotect"}, Do: c.version, Undo: &workflow.Undo{
				ID: "delete-version", Title: "Delete the unfinished image version", Usual: minute, Deadline: 60 * minute, Keep: journal.Running,
				Do: c.deleteVersion, Manual: manualDelete("resource", s.Names.Version),
			}},
		{ID: "prune", Title: "Prune versions to the newest " + fmt.Sprint(c.req.History) + list(at.toPrune), Usual: time.Duration(len(at.toPrune)) * minute, Deadline: 60 * minute,
			After: []string{"version"}, Optional: true, Do: c.prune},
		{ID: "model", Title: "Point " + s.Pool.Name() + "'s model at " + version, Usual: 30 * time.Second, Deadline: 60 * minute, After: []string{"version"}, Commits: true, Do: c.model},
		{ID: "extensions", Title: "Delete extensions from the model" + list(at.toDelete), Usual: time.Duration(len(at.toDelete)) * 30 * time.Second, Deadline: 60 * minute, After: []string{"model"}, Do: c.extensions},
		{ID: "grow", Title: fmt.Sprintf("Add %d new node(s)", c.req.NewNodes), Usual: 2 * minute, Deadline: 60 * minute, After: []string{"model", "extensions"}, Do: c.grow},
	}
	for i := range t {
		t[i].Skip, t[i].Taken = at.skip[t[i].ID], at.taken[t[i].ID]
	}
	return t
}

func list(names []string) string {
	if len(names) == 0 {
		return ""
	}
	return ": " + strings.Join(names, ", ")
}
