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

// takeBack rolls back to the version before, and then sees to the nodes that did not come up.
func (w *watch) takeBack(ctx context.Context, why string) error {
	w.result.Outcome, w.result.Why = "", why
	w.note("%s is quarantined: %s", w.version.Name, why)
	var result rollback.Result
	var err error
	if over := w.until(ctx, func() (bool, error) {
		result, err = w.Rollback.Rollback(ctx, w.back(why))
		var out *workflow.Outcome
		switch {
		case refusedFor(err, "Held"): // by a capture or a rollback of somebody else
			w.say("waits for the pool's lock: " + err.Error())
			return false, nil
		case errors.As(err, &out) && out.Exit == workflow.ExitInterrupted && out.Step == "preflight": // not begun: the finding is not recorded
			return true, out.Err
		}
		return true, nil
	}); over != nil {
		return over
	}
	w.result.Rollback = &result
	// The record is begun before the tag, which keeps the version from going live again.
	if tagErr := w.tag(ctx, clocks, plan.Quarantine(w.Cloud.Now(), why)); fleet.IgnoreNotFound(tagErr) != nil && ctx.Err() == nil {
		w.note("%s could not be tagged as quarantined: %v", w.version.Name, tagErr)
	}
	failed := fmt.Errorf("%s is quarantined: %s", w.version.Name, why)
	to := result.To.Name()
	if result.Original != nil {
		to = result.Original.Image.Text()
	}
	var refused *workflow.Refused
	switch is := errors.As(err, &refused); {
	case err != nil && (!is || refusedFor(err, "ModelChanged")): // by somebody, or by the watch that did not finish
		pool, unread := w.Cloud.Pool(ctx, w.result.Pool)
		now := pool.Model.Image.Exact()
		if unread != nil || ctx.Err() != nil || !is && (now == "" || now.Equal(w.version.ID)) {
			return err
		}
		if to = cmp.Or(now.Name(), pool.Model.Image.Text()); !is {
			w.note("the rollback did not end well: %v", err)
		}
	case is:
		out := &workflow.Outcome{Exit: workflow.ExitNeedsPerson, Step: Step, Err: failed,
			Left: []string{"the model still names " + w.version.Name + ", since there is no way back:"}}
		for _, p := range refused.Problems {
			out.Left = append(out.Left, p.String())
		}
		return out
	}
	w.result.Outcome = TakenBack
	out := &workflow.Outcome{Exit: workflow.ExitFailed, Step: Step, Err: failed, Ended: "new nodes come from " + to}
	if err = w.removeBad(ctx, why); err == nil {
		err = fleet.IgnoreNotFound(w.tag(ctx, passes, map[string]string{fleet.TagWatch: ""}))
	}
	if err != nil {
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
	return out
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

// cordon cordons the nodes of bad clones, with an Event that says why, and uncordons those that
// passed since. It returns how many clones may still join.
func (w *watch) cordon(ctx context.Context, why string) (pending int, err error) {
	if w.req.BadNodes == Leave {
		return 0, nil
	}
	for _, c := range w.seen.Clones {
		if c.Node == nil || !w.passed(c) || !slices.Contains(w.result.Bad, c.Node.Name) {
			continue
		}
		if err := w.Cluster.SetUnschedulable(ctx, c.Node.Name, false); fleet.IgnoreNotFound(err) != nil {
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
		if err := w.Cluster.SetUnschedulable(ctx, c.Node.Name, true); fleet.IgnoreNotFound(err) != nil {
			return pending, err
		}
		w.Cluster.Event(ctx, *c.Node, true, "BadImage", "cordoned: "+w.version.Name+", from which it was made, is quarantined: "+why)
		w.result.Bad = append(w.result.Bad, c.Node.Name)
	}
	return pending, nil
}

// removeBad cordons also the nodes that join later, and deletes the machines if that is asked for.
func (w *watch) removeBad(ctx context.Context, why string) error {
	if err := w.until(ctx, func() (ended bool, err error) {
		pool, err := w.Cloud.Pool(ctx, w.result.Pool)
		if err == nil {
			_, err = w.judge(ctx, pool)
		}
		pending := 0
		if err == nil {
			pending, err = w.cordon(ctx, why)
		}
		w.say(fleet.Count(pending, "instance") + " of " + w.version.Name + " may still join, to be cordoned")
		return pending == 0, err
	}); err != nil {
		return err
	}
	return w.deleteBad(ctx)
}

func (w *watch) deleteBad(ctx context.Context) error {
	if w.req.BadNodes != Delete {
		return nil
	}
	for _, c := range w.bad() {
		if c.Node == nil || len(c.Rivals) > 0 {
			continue
		}
		drain := cluster.DrainOptions{UID: c.Node.UID, GracePeriod: -1, Deadline: drainFor, Fit: true}
		if err := w.Cluster.Drain(ctx, c.Node.Name, drain, nil); err != nil && ctx.Err() != nil {
			return err
		}
	}
	if err := w.unlocked(ctx); err != nil {
		return err
	}
	var unread error
	_, err := w.writer(passes).ScaleSet(ctx, w.result.Pool, func(pool fleet.Pool) fleet.Change {
		// Azure deletes none of them if one is gone.
		if w.seen, unread = w.read(ctx, pool); unread != nil {
			return nil
		}
		var ids []string
		for _, c := range w.bad() {
			if !c.Instance.Protection.Protects() && len(c.Rivals) == 0 {
				ids = append(ids, c.Instance.InstanceID)
			}
		}
		if len(ids) == 0 {
			return nil
		}
		return fleet.DeleteInstances{Pool: pool.ID, Instances: ids}
	}, nil)
	return cmp.Or(unread, err)
}

// unlocked waits until no other process works on the pool, as another watch that takes the
// version back.
func (w *watch) unlocked(ctx context.Context) error {
	return w.until(ctx, func() (bool, error) {
		holding, locked, err := w.Cluster.Holding(ctx, string(w.result.Pool))
		held := err == nil && locked && w.Now().Before(holding.Until)
		if held {
			w.say("waits for the pool's lock, which " + holding.Holder + " has")
		}
		return !held, err
	})
}
