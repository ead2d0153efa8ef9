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
	w.result.Outcome, w.result.Why = "", why
	w.note("%s is quarantined: %s", w.version.Name, why)
	failed := fmt.Errorf("%s is quarantined: %s", w.version.Name, why)
	var result rollback.Result
	var err error
	var chosen chosenError
	again := false
	if over := w.until(ctx, func() (bool, error) {
		last, unread := w.Rollback.Last(ctx, w.result.Pool)
		if unread != nil {
			return true, unread
		}
		if last.Name != w.last && last.Why == "" && last.Ended && last.To.Equal(w.version.ID) {
			return true, chosenError(last.String())
		}
		result, err = w.Rollback.Rollback(ctx, w.back(why))
		var out *workflow.Outcome
		switch is := errors.As(err, &out); {
		case refusedFor(err, "Held"): // by a capture or a rollback of somebody else
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
	}); errors.As(over, &chosen) {
		return w.leave(chosen, failed)
	} else if over != nil {
		return over
	}
	w.result.Rollback = &result
	// The record is begun before the tag, which keeps the version from going live again.
	var refused *workflow.Refused
	var out *workflow.Outcome
	var who, now string
	is := errors.As(err, &refused)
	noWay := is && !refusedFor(err, "ModelChanged")
	if over := w.until(ctx, func() (_ bool, unread error) {
		who, now, unread = w.chosen(ctx)
		return true, unread
	}); over != nil && !noWay {
		return over
	}
	if err == nil && who != "" {
		return w.leave(chosenError(who), failed)
	}
	if tagErr := w.tag(ctx, clocks, plan.Quarantine(w.Cloud.Now(), why)); fleet.IgnoreNotFound(tagErr) != nil && ctx.Err() == nil {
		w.note("%s could not be tagged as quarantined: %v", w.version.Name, tagErr)
	}
	to := result.To.Name()
	if result.Original != nil {
		to = result.Original.Image.Text()
	}
	switch {
	case err == nil:
	case noWay:
		return w.noWayBack(err, failed)
	case ctx.Err() != nil, errors.As(err, &out) && out.Exit == workflow.ExitInterrupted:
		return err
	case who != "":
		return w.noWayBack(err, failed)
	default: // changed by somebody, or by the watch that did not finish
		if to = now; !is {
			w.note("the rollback did not end well: %v", err)
		}
	}
	w.result.Outcome = TakenBack
	out = &workflow.Outcome{Exit: workflow.ExitFailed, Step: Step, Err: failed, Ended: "new nodes come from " + to}
	if err = w.removeBad(ctx, why); err == nil {
		err = w.until(ctx, func() (bool, error) { return true, w.still(ctx) })
	}
	if err == nil {
		err = fleet.IgnoreNotFound(w.tag(ctx, passes, map[string]string{fleet.TagWatch: ""}))
	}
	switch {
	case errors.As(err, &chosen):
		return w.leave(chosen, failed)
	case err != nil:
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
		for _, p := range refused.Problems {
			out.Left = append(out.Left, p.String())
		}
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

// chosen returns who brought back the version, "" if the model does not name it, and the model's image.
func (w *watch) chosen(ctx context.Context) (who, image string, err error) {
	pool, err := w.Cloud.Pool(ctx, w.result.Pool)
	if err != nil {
		return "", "", err
	}
	image = cmp.Or(pool.Model.Image.Exact().Name(), pool.Model.Image.Text())
	versions, err := w.Cloud.Versions(ctx, plan.DefinitionOf(pool.ID))
	if live, _ := plan.VersionOf(versions, pool.Model.Image, pool.Location); err != nil || !live.ID.Equal(w.version.ID) {
		return "", image, fleet.IgnoreNotFound(err)
	}
	last, err := w.Rollback.Last(ctx, pool.ID)
	if last.Why == "" && last.To.Equal(w.version.ID) {
		return last.String(), image, err
	}
	return "a program without a record", image, err
}

// still returns a chosenError once somebody has brought back what was taken back. Call it before
// each write that takes something away.
func (w *watch) still(ctx context.Context) error {
	if w.result.Outcome != TakenBack {
		return nil
	}
	who, _, err := w.chosen(ctx)
	if err == nil && who != "" {
		err = chosenError(who)
	}
	return err
}

// refusedFor reports a refusal for a problem with this code.
func refusedFor(err error, code string) bool {
	var refused *workflow.Refused
	return errors.As(err, &refused) && slices.ContainsFunc(refused.Problems, func(p fleet.Problem) bool { return p.Code == code })
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
		err := w.Cluster.SetUnschedulable(ctx, c.Node.Name, false)
		if err == nil {
			err = w.Cluster.Annotate(ctx, c.Node.Name, map[string]*string{fleet.AnnotationCordoned: nil})
		}
		if fleet.IgnoreNotFound(err) != nil {
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
func (w *watch) removeBad(ctx context.Context, why string) error {
	if err := w.until(ctx, func() (ended bool, err error) {
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
		return pending == 0, err
	}); err != nil {
		return err
	}
	return w.deleteBad(ctx, why)
}

// deleteBad drains and deletes the machines. A Node that has joined since is drained, too, before any is deleted.
func (w *watch) deleteBad(ctx context.Context, why string) error {
	if w.req.BadNodes != Delete {
		return nil
	}
	drained := map[string]bool{} // by UID
	for again := true; again; {
		if _, err := w.cordon(ctx, why); err != nil {
			return err
		}
		for _, c := range w.bad() {
			if c.Node == nil || len(c.Rivals) > 0 || drained[c.Node.UID] {
				continue
			}
			if err := w.still(ctx); err != nil {
				return err
			}
			w.say("drain node " + c.Node.Name + ", to be deleted")
			drain := cluster.DrainOptions{UID: c.Node.UID, GracePeriod: -1, Deadline: drainFor, Fit: true}
			if err := w.Cluster.Drain(ctx, c.Node.Name, drain, nil); err != nil && ctx.Err() != nil {
				return err
			}
			drained[c.Node.UID] = true
		}
		if err := w.unlocked(ctx); err != nil {
			return err
		}
		var deleted []string
		var unread error
		_, err := w.writer(passes).ScaleSet(ctx, w.result.Pool, func(pool fleet.Pool) fleet.Change {
			again, deleted, unread = false, nil, w.still(ctx)
			held := false
			if unread == nil {
				held, unread = w.held(ctx)
			}
			if unread == nil { // Azure deletes none of them if one is gone
				w.seen, unread = w.read(ctx, pool)
			}
			var ids []string
			for _, c := range w.bad() {
				if c.Instance.Protection.Protects() || len(c.Rivals) > 0 {
					continue
				}
				ids = append(ids, c.Instance.InstanceID)
				if c.Node != nil {
					again = again || !drained[c.Node.UID]
					deleted = append(deleted, c.Node.Name)
				}
			}
			if again = again || held; unread != nil || again || len(ids) == 0 {
				deleted = nil
				return nil
			}
			return fleet.DeleteInstances{Pool: pool.ID, Instances: ids}
		}, nil)
		if err = cmp.Or(unread, err); err != nil {
			return err
		}
		w.deleted = deleted
	}
	return nil
}

// unlocked waits until no other process works on the pool, as another watch that takes the
// version back.
func (w *watch) unlocked(ctx context.Context) error {
	return w.until(ctx, func() (bool, error) {
		held, err := w.held(ctx)
		return !held, err
	})
}

// held reports whether another process has the pool's lock.
func (w *watch) held(ctx context.Context) (bool, error) {
	holding, locked, err := w.Cluster.Holding(ctx, string(w.result.Pool))
	held := err == nil && locked && w.Now().Before(holding.Until)
	if held {
		w.say("waits for the pool's lock, which " + holding.Holder + " has")
	}
	return held, err
}
