package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/journal"
	"github.com/ortet/ortet/internal/prototype"
)

// maxWorkbenches bounds how many workbenches a capture uses: who loses three has
// something in the cluster that takes them, and a fourth would be lost, too.
const maxWorkbenches = 3

// errCopyGone is a copy of the disk that was deleted with its workbench.
var errCopyGone = errors.New("the copy of the disk is gone")

// detachCopy detaches the copy, which the snapshot of it is made from next.
func detachCopy(ctx context.Context, t *task) error {
	if err := detach(ctx, t); err != nil {
		return err
	}
	if _, there, err := t.heldDisk(ctx, t.r.get().Names.WorkDisk); err != nil || there {
		return err
	}
	return errCopyGone
}

// onBench carries a step out on the workbench. Where that is lost, it goes on from
// the snapshot on another one: all steps before this one are repeated there.
func onBench(step string) act {
	work := []struct {
		step string
		act  act
	}{
		{prototype.StepProtectBench, protectBench}, {prototype.StepWorkDisk, workDisk}, {prototype.StepAttach, attach},
		{prototype.StepGeneralize, generalize}, {prototype.StepSave, save}, {prototype.StepDetach, detachCopy},
	}
	var acts []act
	for _, w := range work {
		acts = append(acts, w.act)
		if w.step == step {
			break
		}
	}
	return func(ctx context.Context, t *task) error {
		todo := acts[len(acts)-1:]
		for {
			err := t.each(ctx, todo)
			var not needless
			if err == nil || errors.As(err, &not) || ctx.Err() != nil {
				return err
			}
			why := t.benchLost(ctx)
			if why == "" {
				return err
			}
			if moveErr := t.moveBench(ctx, why); moveErr != nil {
				return fmt.Errorf("%w: %w", moveErr, err)
			}
			todo = acts
		}
	}
}

// each carries acts out in order. That one had nothing to do matters only where it
// is the only one.
func (t *task) each(ctx context.Context, acts []act) error {
	for _, act := range acts {
		err := act(ctx, t)
		var not needless
		if err != nil && (len(acts) == 1 || !errors.As(err, &not)) {
			return err
		}
	}
	return nil
}

// benchLost says why the workbench cannot be worked on any more, asked after
// something failed on it; "" means that it can, or that nobody knows.
func (t *task) benchLost(ctx context.Context) string {
	b := t.r.get().Bench
	i, there, err := held(ctx, t, func(ctx context.Context) (fleet.Instance, error) { return t.r.e.cloud.Instance(ctx, b.Instance) })
	switch {
	case err != nil:
		return ""
	case !there:
		return "its instance was deleted"
	case i.ProvisioningState == prototype.Deleting:
		return "its instance is being deleted"
	case down(i):
		return "its instance is " + string(i.Power)
	}
	node, there, err := held(ctx, t, func(ctx context.Context) (fleet.Node, error) { return t.r.e.cluster.Node(ctx, b.Node) })
	switch {
	case err != nil:
		return ""
	case !there:
		return "its Node was deleted"
	case b.BootID != "" && node.BootID != b.BootID:
		return "it booted again"
	case !node.Ready:
		return "it is not Ready: " + node.NotReadyWhy
	case node.Unschedulable:
		return "it is cordoned"
	}
	if err := taken(node, t.r.get().Pool); err != nil {
		return err.Error()
	}
	return ""
}

// moveBench cleans up what is left at a workbench that is lost, as far as that is
// there, and chooses another.
func (t *task) moveBench(ctx context.Context, why string) error {
	r := t.r
	old := r.get().Bench
	lost := append(slices.Clone(old.Lost), old.Node)
	t.progress(-1, "workbench %s is lost (%s)", old.Node, why)
	if len(lost) == maxWorkbenches {
		return fmt.Errorf("%d workbenches were lost (%s), the last since %s", len(lost), strings.Join(lost, ", "), why)
	}
	next, err := t.anotherBench(ctx, lost)
	if err != nil {
		return fmt.Errorf("workbench %s is lost (%s): %w", old.Node, why, err)
	}
	if _, left := r.undo(undoJob); left {
		soon, cancel := context.WithTimeout(ctx, 2*podEnds)
		err := t.letPodGo(soon)
		cancel()
		if err != nil {
			return err
		}
	}
	for _, act := range []act{detach, unprotectBench, deleteWorkDisk} {
		var not needless
		if err := act(ctx, t); err != nil && !errors.As(err, &not) {
			return err
		}
	}
	err = r.write(func(rec *journal.Record, f *facts) {
		dropUndo(rec, undoJob)
		for _, k := range []string{prototype.StepProtectBench, prototype.StepUnprotectBench, prototype.StepWorkDisk, prototype.StepAttach, prototype.StepGeneralize, prototype.StepDetach} {
			delete(rec.Intents, k)
		}
		f.Saved = false
		f.Bench = benchFacts{Node: next.Node.Name, Instance: next.Instance.ID, Zone: next.Instance.Zone, LUN: next.LUN, Lost: lost}
		// The lost node's kubelet may not have ended its pod yet.
		f.Names.Job = prototype.JobName(f.Pool, fmt.Sprintf("%s-%d", rec.Capture, len(lost)+1))
	})
	if err != nil {
		return err
	}
	r.note("workbench %s was lost (%s): went on with %s, from the snapshot", old.Node, why, next.Node.Name)
	t.progress(-1, "going on with workbench %s, from the snapshot", next.Node.Name)
	return nil
}

// anotherBench chooses a workbench as preflight does, but for those that were lost.
func (t *task) anotherBench(ctx context.Context, lost []string) (*prototype.Workbench, error) {
	r := t.r
	f := r.get()
	donor, err := t.donor(ctx)
	if err != nil {
		return nil, err
	}
	pool, err := t.pool(ctx, f.Pool)
	if err != nil {
		return nil, err
	}
	siblings, err := ask(ctx, t, func(ctx context.Context) ([]fleet.Instance, error) { return r.e.cloud.Instances(ctx, f.Pool) })
	if err != nil {
		return nil, err
	}
	w := &watcher{e: r.e, t: t}
	w.o.Pool, w.o.Instance = &pool, &fleet.Instance{ID: f.Instance, Zone: f.Zone}
	candidates, why := w.candidates(ctx, donor, f.Instance, "")
	candidates = slices.DeleteFunc(candidates, func(n fleet.Node) bool { return slices.Contains(lost, n.Name) })
	w.bench(ctx, "", candidates, why, siblings)
	if w.o.Workbench == nil {
		return nil, errors.New("no other node can serve: " + first(w.o.NoWorkbench, "all were lost"))
	}
	return w.o.Workbench, nil
}
