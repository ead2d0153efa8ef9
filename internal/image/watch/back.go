package watch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/ortet/ortet/internal/cluster"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/plan"
	"github.com/ortet/ortet/internal/image/prove"
	"github.com/ortet/ortet/internal/image/rollback"
	"github.com/ortet/ortet/internal/workflow"
)

// chosenError says who brought a version back that a watch takes back, or took back.
type chosenError string

func (e chosenError) Error() string { return "the model names it again, by " + string(e) }

// takeBack rolls back to the version before, and then sees to the nodes that did not come up.
func (w *watch) takeBack(ctx context.Context, why string) error {
	failed := fmt.Errorf("%s is quarantined: %s", w.version.Name, why)
	w.result.Outcome, w.result.Why = "", why
	w.note("%v", failed)
	var result rollback.Result
	var err error
	var out *workflow.Outcome
	again := false
	over := w.until(ctx, func() (bool, error) {
		if err := w.still(ctx); err != nil {
			return true, err
		}
		result, err = w.Rollback.Rollback(ctx, w.back(why))
		switch is := errors.As(err, &out); {
		case workflow.RefusedFor(err, workflow.CodeHeld): // by a capture or a rollback of somebody else
			w.say("waits for the pool's lock: " + err.Error())
			return false, nil
		case is && out.Exit == workflow.ExitInterrupted && out.Step == "preflight": // not begun: the finding is not recorded
			return true, out.Err
		case is && out.Exit == workflow.ExitFailed && !again: // what it was planned from changed, as a version that was deleted
			again = true
			w.note("the rollback is planned again: %v", err)
			return false, nil
		}
		return true, nil
	})
	if chosen := chosenError(""); errors.As(over, &chosen) {
		return w.leave(chosen, failed)
	} else if over != nil {
		return over
	}
	w.result.Rollback = &result
	var now look
	over = w.until(ctx, func() (_ bool, err error) {
		now, err = w.look(ctx)
		return true, err
	})
	refused := errors.As(err, new(*workflow.Refused))
	noWay := refused && !workflow.RefusedFor(err, rollback.CodeModelChanged)
	if over != nil && !noWay {
		return over
	}
	if err == nil && now.live {
		return w.leave(now.chosen(), failed)
	}
	// The record is begun before the tag, which keeps the version from going live again.
	if tagErr := w.tag(ctx, clocks, plan.Quarantine(w.Cloud.Now(), why)); fleet.IgnoreNotFound(tagErr) != nil && ctx.Err() == nil {
		w.note("%s could not be tagged as quarantined: %v", w.version.Name, tagErr)
	}
	switch {
	case !noWay && err != nil && (ctx.Err() != nil || errors.As(err, &out) && out.Exit == workflow.ExitInterrupted):
		return err
	case noWay, now.live:
		return w.noWayBack(err, failed)
	case err != nil && !refused: // changed by somebody, or by the watch that did not finish
		w.note("the rollback did not end well: %v", err)
	}
	w.result.Outcome = TakenBack
	out = &workflow.Outcome{Exit: workflow.ExitFailed, Step: Step, Err: failed, Ended: "new nodes come from " + now.image}
	err = w.removeBad(ctx, why)
	if chosen := chosenError(""); errors.As(err, &chosen) {
		return w.leave(chosen, failed)
	} else if err != nil {
		out.Exit, out.Left = workflow.ExitNeedsPerson, []string{fmt.Sprintf("not all nodes of %s were seen to; ortet watch %s continues: %v",
			w.version.Name, w.result.Pool.Name(), err)}
	}
	for _, c := range w.bad() {
		if len(c.Rivals) > 0 && w.req.BadNodes == Delete {
			out.Exit = workflow.ExitNeedsPerson
			out.Left = append(out.Left, fmt.Sprintf("%s was not deleted: node %s reports that it is this machine; %s", c.Instance.Name, strings.Join(c.Rivals, ", "), fleet.DeleteStaleNode))
		}
		if c.Node == nil && w.req.BadNodes == Cordon {
			out.Left = append(out.Left, c.Instance.Name+" has no Node that could be cordoned: az vmss delete-instances --ids "+
				string(w.result.Pool)+" --instance-ids "+c.Instance.InstanceID)
		}
	}
	out.Left = append(out.Left, w.cordoned()...)
	return out
}

// noWayBack is the end of a watch whose bad version the model still names.
func (w *watch) noWayBack(err, failed error) error {
	out := &workflow.Outcome{Exit: workflow.ExitNeedsPerson, Step: Step, Err: failed,
		Left: []string{"the model still names " + w.version.Name + ", since there is no way back:"}}
	var refused *workflow.Refused
	if errors.As(err, &refused) {
		out.Left = append(out.Left, fleet.Each(refused.Problems, fleet.Problem.String)...)
	} else {
		out.Left = append(out.Left, err.Error(), "see ortet status for the versions, then run ortet rollback "+w.result.Pool.Name()+" --to VERSION")
	}
	out.Left = append(out.Left, w.cordoned()...)
	return out
}

// leave is the end of a watch whose bad version somebody brought back: its nodes are theirs.
func (w *watch) leave(by chosenError, failed error) error {
	w.result.Outcome = StoodDown
	return &workflow.Outcome{Exit: workflow.ExitNeedsPerson, Step: Step, Err: failed, Left: w.cordoned(),
		Ended: by.Error() + ": the watch leaves model and nodes as they are; ortet watch " + w.result.Pool.Name() + " watches it again"}
}

// cordoned names the nodes that stay cordoned.
func (w *watch) cordoned() []string {
	names := slices.DeleteFunc(slices.Clone(w.result.Bad), func(name string) bool { return slices.Contains(w.deleted, name) })
	if len(names) == 0 {
		return nil
	}
	return []string{"cordoned, also if they come up later: " + strings.Join(names, ", ") + "; once they are good: kubectl uncordon " + strings.Join(names, " ")}
}

// A look is what the pool's model names. It is taken before each write that takes something away.
type look struct {
	image string
	live  bool   // it is the watched version
	by    string // rollback that brought the version back since the watch began; "" for none
}

func (l look) chosen() chosenError { return chosenError(cmp.Or(l.by, "a program without a record")) }

func (w *watch) look(ctx context.Context) (l look, err error) {
	pool, err := w.Cloud.Pool(ctx, w.result.Pool)
	if err != nil {
		return l, err
	}
	l.image = cmp.Or(pool.Model.Image.Exact().Name(), pool.Model.Image.Text())
	versions, err := w.Named(ctx, pool)
	named, _ := plan.VersionOf(versions, pool.Model.Image, pool.Location)
	if l.live = err == nil && named.ID.Equal(w.version.ID); !l.live {
		return l, fleet.IgnoreNotFound(err)
	}
	last, err := w.Rollback.Last(ctx, pool.ID)
	if last.Name != w.last && last.Why == "" && last.To.Equal(w.version.ID) {
		l.by = last.String()
	}
	return l, err
}

// still returns a chosenError once somebody has brought the version back.
func (w *watch) still(ctx context.Context) error {
	l, err := w.look(ctx)
	if err == nil && l.live && (l.by != "" || w.result.Outcome == TakenBack) {
		err = l.chosen()
	}
	return err
}

// passed reports whether a clone has passed.
func (w *watch) passed(c prove.Clone) bool {
	return slices.ContainsFunc(w.result.Nodes, func(f prove.Finding) bool { return f.Clone == c.Instance.Name && f.Result == prove.Passed })
}

// bad returns the clones that did not pass.
func (w *watch) bad() []prove.Clone { return slices.DeleteFunc(slices.Clone(w.seen.Clones), w.passed) }

// cordon cordons and marks the nodes of bad clones, with an Event that says why, and uncordons
// those that passed since. Nodes that others cordoned are left to them. It returns how many clones may still join.
func (w *watch) cordon(ctx context.Context, why string) (pending int, err error) {
	if w.req.BadNodes == Leave {
		return 0, nil
	}
	for _, c := range w.seen.Clones {
		if c.Node == nil || !w.passed(c) || c.Node.Annotations[fleet.AnnotationCordoned] == "" {
			continue
		}
		if err := cluster.Uncordon(ctx, w.Cluster, c.Node.Name, fleet.AnnotationCordoned); fleet.IgnoreNotFound(err) != nil {
			return 0, err
		}
		w.result.Bad = slices.DeleteFunc(w.result.Bad, func(name string) bool { return name == c.Node.Name })
	}
	for _, c := range w.bad() {
		if c.Node == nil && w.Cloud.Now().Sub(c.Instance.Created) < 2*w.base.Limit {
			pending++
		}
		if c.Node == nil || slices.Contains(w.result.Bad, c.Node.Name) {
			continue
		}
		marked := c.Node.Annotations[fleet.AnnotationCordoned] != ""
		if !c.Node.Unschedulable {
			if err = w.still(ctx); err == nil { // marked first: one that is cordoned is always named
				err = w.Cluster.Annotate(ctx, c.Node.Name, map[string]*string{fleet.AnnotationCordoned: &w.version.Name})
			}
			if err == nil {
				err = w.Cluster.SetUnschedulable(ctx, c.Node.Name, true)
			}
			if fleet.IgnoreNotFound(err) != nil {
				return pending, err
			}
			w.Cluster.Event(ctx, *c.Node, true, "BadImage", "cordoned: "+w.version.Name+", from which it was made, is quarantined: "+why)
		} else if !marked {
			continue
		}
		w.result.Bad = append(w.result.Bad, c.Node.Name)
	}
	return pending, nil
}

// removeBad cordons also the nodes that join later, and deletes the machines if that is asked for.
// The tag of the watch goes last.
func (w *watch) removeBad(ctx context.Context, why string) error {
	drained := map[string]bool{} // by UID
	return w.until(ctx, func() (ended bool, err error) {
		pool, err := w.Cloud.Pool(ctx, w.result.Pool)
		if err == nil {
			err = w.still(ctx)
		}
		if err == nil {
			_, err = w.judge(ctx, pool)
		}
		pending := 0
		if err == nil {
			pending, err = w.cordon(ctx, why)
		}
		if pending > 0 {
			w.say(fleet.Count(pending, "instance") + " of " + w.version.Name + " may still join, to be cordoned")
		}
		if ended = pending == 0; ended && err == nil && w.req.BadNodes == Delete {
			ended, err = w.deleteBad(ctx, drained)
		}
		if ended && err == nil {
			err = fleet.IgnoreNotFound(w.tag(ctx, passes, map[string]string{fleet.TagWatch: ""}))
		}
		return ended, err
	})
}

// deleteBad drains nodes and deletes their machines under the pool's lock, unless another process
// has it or a Node has joined meanwhile. It reports whether none was left to delete.
func (w *watch) deleteBad(ctx context.Context, drained map[string]bool) (none bool, err error) {
	for _, c := range w.bad() {
		if c.Node == nil || len(c.Rivals) > 0 || drained[c.Node.UID] {
			continue
		}
		if err := w.still(ctx); err != nil {
			return false, err
		}
		w.say("drain node " + c.Node.Name + ", to be deleted")
		drain := cluster.DrainOptions{UID: c.Node.UID, GracePeriod: -1, Deadline: drainFor, Fit: true}
		_ = w.Cluster.Drain(ctx, c.Node.Name, drain, nil) // what stays goes with its machine
		drained[c.Node.UID] = true
	}
	var deleted []string
	var unread error
	name, holder := w.lock()
	_, err = w.writer(passes).ScaleSet(ctx, w.result.Pool, func(pool fleet.Pool) fleet.Change {
		none, deleted = false, nil
		_, unread = w.Cluster.Hold(ctx, name, holder, w.LockFor) // or renews it
		if held := fleet.Is(unread, fleet.KindHeld); held {
			w.say("waits for the pool's lock: " + unread.Error())
			unread = nil
			return nil
		}
		if unread == nil {
			unread = w.still(ctx)
		}
		if unread == nil { // Azure deletes none of them if one is gone
			w.seen, unread = w.read(ctx, pool)
		}
		if unread != nil {
			return nil
		}
		var ids, names []string
		for _, c := range w.bad() {
			switch {
			case c.Instance.Protection.Protects() || len(c.Rivals) > 0:
				continue
			case c.Node != nil && !drained[c.Node.UID]:
				return nil
			case c.Node != nil:
				names = append(names, c.Node.Name)
			}
			ids = append(ids, c.Instance.InstanceID)
		}
		if none, deleted = len(ids) == 0, names; none {
			return nil
		}
		return fleet.DeleteInstances{Pool: pool.ID, Instances: ids}
	}, nil)
	if err = cmp.Or(unread, err, w.Cluster.Release(context.WithoutCancel(ctx), name, holder)); err == nil {
		w.deleted = append(w.deleted, deleted...)
	}
	return none, err
}
