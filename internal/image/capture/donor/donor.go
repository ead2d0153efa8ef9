// Package donor takes a copy of the donor's OS disk, and returns the donor to service as it was found.
//
// # Rows
//
//	protect                keeps autoscalers and repairs off the node; undo unprotect
//	cordon, drain, stop    take it out of service; undos uncordon and start
//	flush, confirm-boot    stand in their place with --online: the node stays in service
//	snapshot               copies the disk; undo delete-snapshot, once the version is built
//
// # In and out
//
// A [Source] and a [Machine] come in: which node it is. What it was seen as, [Taken], comes out as a
// piece of the capture's record. Protect, Unprotect, EnsureCopy and [Used] serve the workbench, too.
package donor

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/cluster"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/capture/report"
	"github.com/ortet/ortet/internal/image/plan"
	"github.com/ortet/ortet/internal/workflow"
)

// Ids of the rows.
const (
	StepProtect        = "protect"
	UndoUnprotect      = "unprotect"
	stepCordon         = "cordon"
	UndoUncordon       = "uncordon"
	stepDrain          = "drain"
	StepStop           = "stop"
	UndoStart          = "start"
	stepFlush          = "flush"
	undoDeleteFlush    = "delete-flush"
	StepSnapshot       = "snapshot"
	undoDeleteSnapshot = "delete-snapshot"
	StepConfirmBoot    = "confirm-boot"
)

// A Donor is that of one capture.
type Donor struct {
	Cloud   azure.Cloud
	Cluster cluster.Cluster
	Now     func() time.Time
	Note    func(format string, args ...any)
	Machine workflow.Part[Machine]
	Taken   workflow.Part[Taken]
	BuiltAt workflow.Part[string] // the tag's value
	// Of returns what is known of the capture.
	Of func() Source
	// Job returns a pod that runs ortet-node generalize.
	Job func(name, node, component, capture string, at time.Time, flags ...string) cluster.Job
	// Recorded returns the steps that ended.
	Recorded func() (notes []string, steps []workflow.StepTiming)

	flushing time.Time // since when the pod that flushes the disk is there; zero: it is not
	flushed  time.Time // when the flush that has ended began; zero: by another process
	reported time.Time // by the kubelet, when the instance ran again and its boot was not new
}

// A Machine is the donor as it was chosen. It is saved with the capture's record.
type Machine struct {
	Instance  fleet.ResourceID `json:"instance"`
	VMID      string           `json:"vmId,omitempty"`
	UID       string           `json:"uid,omitempty"` // of its Node
	Disk      fleet.ResourceID `json:"disk"`          // its OS disk when it was stopped
	Addresses []string         `json:"addresses,omitempty"`
	Devices   fleet.Devices    `json:"devices,omitempty"` // before it was drained
}

// Taken is what became of the donor. It is saved with the capture's record.
type Taken struct {
	Unprotected bool      `json:"unprotected,omitempty"` // Azure refuses to protect instances
	Online      string    `json:"online,omitempty"`      // when a donor that stayed in service was flushed: TagOnline
	BootID      string    `json:"bootId,omitempty"`      // its boot then, until that is confirmed
	Reported    time.Time `json:"reported,omitzero"`     // its Node's, once the snapshot was complete
	Stopped     bool      `json:"stopped,omitempty"`     // it was seen so
	DonorGone   bool      `json:"donorGone,omitempty"`
}

// A Source is what a donor's disk is copied for.
type Source struct {
	Request    plan.Request
	Capture    string // name
	Names      plan.Names
	Pool       fleet.ResourceID
	Location   string
	Encryption fleet.Encryption  // of the copy
	Tags       map[string]string // of what the capture makes
	Namespace  string            // of pods
	Leave      []string          // pods that a drain leaves
	Disk       report.Disk
}

func (d *Donor) used() Used {
	m, s := d.Machine.Get(), d.Of()
	return Used{fleet.AnnotationCapture, s.Request.Node, m.Instance, s.Pool, m.VMID, m.UID}
}

// ProtectRow returns the row that protects the donor.
func (d *Donor) ProtectRow(skip string, after ...string) workflow.Step {
	s, donor := d.Of(), d.Of().Request.Node
	return workflow.Step{
		ID:    StepProtect,
		Title: "Protect " + donor + " from autoscalers and repairs",
		Usual: 15 * time.Second,
		After: after,
		Skip:  skip,
		Do: func(ctx context.Context, p *workflow.Pass) (workflow.Wait, error) {
			return d.Protect(ctx, p, d.used(), s.Capture)
		},
		Undo: &workflow.Undo{
			ID:       UndoUnprotect,
			Title:    "Restore " + donor + "'s protection",
			Usual:    15 * time.Second,
			Deadline: 40 * time.Minute,
			When:     []string{StepSnapshot},
			After:    []string{UndoStart, UndoUncordon},
			Do: func(ctx context.Context, p *workflow.Pass) (workflow.Wait, error) {
				return d.Unprotect(ctx, p, d.used())
			},
			Manual: func() string { return ManualUnprotect(donor, s.Pool, d.Machine.Get().Instance) },
		},
	}
}

// Rows returns the rows from the cordon to the snapshot, of which the first wait for after. skip
// is why the snapshot is not taken; exists: it is there; built is the step that ends its use.
func (d *Donor) Rows(skip string, exists bool, built string, after ...string) workflow.Table {
	s, q := d.Of(), d.Of().Request
	donor, out := q.Node, cmp.Or(skip, workflow.SkipIf(q.Online, "--online: the node stays in service"))
	uncordon := []string{"Uncordon " + donor, "kubectl uncordon " + donor}
	if q.Fresh != "" { // cordoned as it was found, until it is deleted
		uncordon = []string{"Leave " + donor + " cordoned", ""}
	}
	deadline := 3*q.GracePeriod + time.Minute
	if q.ForceDrain {
		deadline += q.GracePeriod + time.Minute
	}
	rows := workflow.Table{
		{
			ID:    stepCordon,
			Title: "Cordon " + donor,
			After: after,
			Skip:  out,
			Do:    d.cordon,
			Undo: &workflow.Undo{
				ID:     UndoUncordon,
				Title:  uncordon[0],
				When:   []string{StepSnapshot},
				Needs:  []string{UndoStart},
				Do:     d.uncordon,
				Manual: func() string { return uncordon[1] },
			},
		},
		{
			ID:       stepDrain,
			Title:    "Drain " + donor,
			Usual:    time.Minute,
			Deadline: deadline,
			After:    []string{stepCordon},
			Skip:     out,
			Do:       d.drain,
		},
		{
			ID:       StepStop,
			Title:    cmp.Or(workflow.SkipIf(q.Deallocate, "Deallocate "), "Power off ") + donor,
			Usual:    150 * time.Second,
			Deadline: 20 * time.Minute,
			Every:    time.Second,
			After:    []string{stepDrain},
			Skip:     out,
			Do:       d.stop,
			Undo: &workflow.Undo{
				ID:       UndoStart,
				Title:    "Start " + donor + ", and wait until it is Ready",
				Usual:    2 * time.Minute,
				Deadline: 40 * time.Minute,
				When:     []string{StepSnapshot},
				Do:       d.start,
				Manual:   d.manualStart,
			},
		},
		{
			ID:       stepFlush,
			Title:    "Flush " + donor + "'s file systems to their disks",
			Usual:    5 * time.Second,
			Deadline: 5 * time.Minute,
			After:    after,
			Skip:     skip,
			Do:       d.flush,
			Undo: &workflow.Undo{
				ID:       undoDeleteFlush,
				Title:    "Delete the flush pod",
				Deadline: 5 * time.Minute,
				When:     []string{StepSnapshot},
				Do: func(ctx context.Context, _ *workflow.Pass) (workflow.Wait, error) {
					return done, d.Cluster.ForceDeleteJob(ctx, flushPod(s.Pool))
				},
				Manual: func() string { return "kubectl delete pod -n " + s.Namespace + " " + flushPod(s.Pool) },
			},
		},
		{
			ID:             StepSnapshot,
			Title:          "Take a snapshot of " + donor + "'s OS disk",
			Usual:          6 * time.Second,
			Deadline:       30 * time.Minute,
			Every:          time.Second / 2,
			After:          []string{cmp.Or(workflow.SkipIf(q.Online, stepFlush), StepStop)},
			Skip:           skip,
			EffectMayExist: exists,
			Do:             d.snapshot,
			Undo:           d.UndoSnapshot(undoDeleteSnapshot, "Delete the snapshot of the donor's disk", built, s.Names.Snapshot),
		},
		{
			ID:       StepConfirmBoot,
			Title:    "Confirm that " + donor + " did not boot while its disk was copied",
			Usual:    150 * time.Second,
			Deadline: 20 * time.Minute,
			Every:    5 * time.Second,
			After:    []string{StepSnapshot},
			Skip:     workflow.SkipIf(skip != "" && d.Taken.Get().BootID == "", "confirmed when the snapshot was taken"),
			Do:       d.confirmBoot,
		},
	}
	if !q.Online {
		rows = slices.DeleteFunc(rows, func(s workflow.Step) bool { return s.ID == stepFlush || s.ID == StepConfirmBoot })
	}
	return rows
}
