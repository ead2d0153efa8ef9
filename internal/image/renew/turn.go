package renew

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/cluster"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/clones"
	"github.com/ortet/ortet/internal/image/prove"
	"github.com/ortet/ortet/internal/workflow"
)

// A turnError is the end of a turn that neither renewed its node nor failed. If again is set the next
// round decides, from what there is then; else the node is in service as it was, and left out.
type turnError struct {
	why          string
	again, begun bool
}

func (e *turnError) Error() string { return e.why }

// settles is how long Azure may show what was before an upgrade.
const settles = 2 * time.Minute

// turn renews one node: each try goes on from what Azure and the Node show. What passes is waited for
// once the node is begun; before that a round has to look again whether it may be.
func (x *rollout) turn(ctx context.Context, c candidate, soak time.Duration) error {
	err := x.passing(ctx, func() error {
		err := x.try(ctx, &c, soak)
		if c.Why != Unfinished && isPassing(err) {
			return &turnError{why: err.Error(), again: true}
		}
		return err
	})
	if err == nil || ctx.Err() != nil {
		return err
	}
	// Only the list of instances says whether one was deleted: a GET may answer 404 soon after a write.
	if i, unread := x.Cloud.Instance(ctx, c.Clone.Instance.ID); fleet.Is(err, fleet.KindNotFound) || unread == nil && deleting(i) {
		err = &turnError{why: err.Error(), again: true, begun: true}
	}
	if end := new(turnError); !errors.As(err, &end) {
		x.Cluster.Event(ctx, *c.Clone.Node, true, "RolloutFailed", "could not be brought to "+nameOf(x.image)+": "+err.Error())
	} else if end.again {
		_ = azure.Sleep(ctx, interval)
	}
	return err
}

func (x *rollout) try(ctx context.Context, c *candidate, soak time.Duration) error {
	i, n, err := x.machine(ctx, c)
	if err != nil {
		return err
	}
	version, before, _ := strings.Cut(n.Annotations[fleet.AnnotationRollout], " ")
	if version != nameOf(x.image) {
		before = "" // of a rollout of another image, which did not come to this node
	}
	if same, _ := (state{image: x.image}).has(i.Image); !same {
		before = n.BootID
		sent := false
		if err = x.empty(ctx, c, n); err == nil {
			i, err = x.upgrade(ctx, i, n, &sent)
		}
		// Once the lock has lapsed the node may be another process's.
		interrupted := ctx.Err() != nil && !errors.Is(context.Cause(ctx), workflow.ErrLapsed)
		if err != nil && !sent && c.Why == Unfinished && (interrupted || errors.As(err, new(*turnError))) {
			tidy, cancel := context.WithTimeout(context.WithoutCancel(ctx), tidies)
			defer cancel()
			err = cmp.Or(x.putBack(tidy, n.Name, false), err)
		}
		if err != nil {
			return err
		}
	}
	if i.Power == fleet.PowerStopped || i.Power == fleet.PowerDeallocated {
		x.say(n.Name + ": start its machine")
		if err := x.writer().Do(ctx, fleet.StartInstance{Instance: i.ID}); err != nil {
			return err
		}
	}
	if err := x.judge(ctx, i, n.Name, before, soak); err != nil {
		return err
	}
	return x.putBack(ctx, n.Name, true)
}

// machine reads a node and its instance again: that the Node is this instance only Azure can say.
func (x *rollout) machine(ctx context.Context, c *candidate) (i fleet.Instance, n fleet.Node, err error) {
	if i, err = x.Cloud.Instance(ctx, c.Clone.Instance.ID); err != nil {
		return i, n, err
	}
	if n, err = x.Cluster.Node(ctx, c.Clone.Node.Name); err != nil {
		return i, n, err
	}
	if err := n.Claim().Is(i.Computer()); err != nil {
		return i, n, &turnError{why: err.Error()}
	}
	return i, n, nil
}

// empty marks, cordons and drains a node.
func (x *rollout) empty(ctx context.Context, c *candidate, n fleet.Node) error {
	mark := nameOf(x.image) + " " + n.BootID
	was, begun := n.Annotations[fleet.AnnotationRollout]
	if !begun {
		why, _, err := x.blockers(ctx, n.Name)
		why = cmp.Or(barred(prove.Clone{Instance: c.Clone.Instance, Node: &n}, false, true, x.SelfNode), why)
		if why != "" || err != nil {
			return cmp.Or(err, error(&turnError{why: why}))
		}
	}
	if was != mark || !n.Unschedulable {
		// In one write: a cordon of a person before it stays theirs.
		n.Unschedulable = true
		if err := stale(x.Cluster.AnnotateUnchanged(ctx, n, map[string]*string{fleet.AnnotationRollout: &mark})); err != nil {
			return err
		}
	}
	c.Why = Unfinished
	options := cluster.DrainOptions{GracePeriod: -1, Deadline: x.req.DrainTimeout}
	err := cluster.DrainReady(ctx, x.Cluster, n, options, func(text string) { x.say(n.Name + ": " + text) })
	if fleet.Is(err, fleet.KindBlocked) {
		return &turnError{why: err.Error()}
	}
	return err
}

// stale has a write of a Node that met another one be repeated.
func stale(err error) error {
	if fleet.Is(err, fleet.KindConflict) {
		return &fleet.Error{Op: "write Node", Kind: fleet.KindStale, Err: err}
	}
	return err
}

// putBack takes the mark off a node, and uncordons it unless a watch had cordoned it and it has not passed.
func (x *rollout) putBack(ctx context.Context, node string, passed bool) error {
	return x.passing(ctx, func() error {
		n, err := x.Cluster.Node(ctx, node)
		if err == nil && !passed && n.Annotations[fleet.AnnotationCordoned] != "" {
			err = x.Cluster.Annotate(ctx, node, map[string]*string{fleet.AnnotationRollout: nil})
		} else if err == nil {
			err = cluster.Uncordon(ctx, x.Cluster, node, fleet.AnnotationRollout, fleet.AnnotationCordoned)
		}
		return stale(fleet.IgnoreNotFound(err))
	})
}

func (x *rollout) writer() azure.Writer {
	report := func(format string, args ...any) {
		x.Note(format, args...)
		x.say(fmt.Sprintf(format, args...))
	}
	return azure.Writer{Cloud: x.Cloud, Now: x.Now, Within: passes, Report: report}
}

// A sender notes that a change was sent.
type sender struct {
	azure.Cloud
	sent *bool
}

func (s sender) Begin(ctx context.Context, c fleet.Change) (fleet.Token, error) {
	*s.sent = true
	return s.Cloud.Begin(ctx, c)
}

// upgrade gives an instance the model, and returns it with the model's image.
func (x *rollout) upgrade(ctx context.Context, i fleet.Instance, n fleet.Node, sent *bool) (fleet.Instance, error) {
	select {
	case x.upgrading <- struct{}{}:
		defer func() { <-x.upgrading }()
	case <-ctx.Done():
		return i, context.Cause(ctx)
	}
	if err := x.forget(ctx, n); err != nil {
		return i, err
	}
	x.say(n.Name + ": give its machine the model")
	w, other := x.writer(), false
	w.Cloud = sender{x.Cloud, sent}
	_, err := w.ScaleSet(ctx, x.result.Pool, func(p fleet.Pool) fleet.Change {
		if other = !p.Model.Image.Same(x.model); other {
			return nil
		}
		return fleet.UpgradeInstances{Pool: p.ID, Instances: []string{i.InstanceID}}
	}, nil)
	for deadline := x.Now().Add(settles); err == nil && !other; {
		if i, err = x.Cloud.Instance(ctx, i.ID); err != nil {
			break
		}
		if same, _ := (state{image: x.image}).has(i.Image); same {
			return i, x.forget(ctx, n) // a server may have had the old one again meanwhile
		}
		if x.Now().After(deadline) {
			p, err := x.Cloud.Pool(ctx, x.result.Pool)
			if other = err == nil && !p.Model.Image.Same(x.model); other || err != nil {
				break
			}
			return i, errors.New("Azure upgraded its machine, which still has " + nameOf(i.Image))
		}
		err = azure.Sleep(ctx, interval)
	}
	if other {
		return i, &turnError{why: "the model was changed", again: true, begun: true}
	}
	return i, err
}

// forget has k3s and RKE2 take the node with a new disk.
func (x *rollout) forget(ctx context.Context, n fleet.Node) error {
	if d := distribution(&n); d != "" {
		return x.Cluster.ForgetPassword(ctx, n.Name, d)
	}
	return nil
}

// judge waits until a node is Ready in another boot and passes the gates.
func (x *rollout) judge(ctx context.Context, i fleet.Instance, node, before string, soak time.Duration) error {
	x.say(node + ": wait until it is back")
	begun, seen, read := x.Cloud.Now(), time.Time{}, x.Now()
	for {
		n, err := x.Cluster.Node(ctx, node)
		if fleet.IgnoreNotFound(err) != nil {
			return err
		}
		back := n.NotBack(before) == ""
		if seen = cmp.Or(seen, x.Cluster.Now()); !back {
			seen = time.Time{}
		}
		if x.Now().Sub(read) >= time.Minute {
			if i, err = x.Cloud.Instance(ctx, i.ID); err != nil {
				return err
			}
			read = x.Now()
		}
		f, err := x.find(ctx, i, begun, seen, soak, back)
		switch {
		case err != nil:
			return err
		case f.Result == prove.Passed:
			return nil
		case f.Result != prove.Waits:
			return errors.New(cmp.Or(f.Gate, "no result") + ": " + f.Why)
		}
		if err := azure.Sleep(ctx, interval); err != nil {
			return err
		}
	}
}

// find takes a node through the gates. What it was in the boot before does not count.
func (x *rollout) find(ctx context.Context, i fleet.Instance, begun, seen time.Time, soak time.Duration, back bool) (
	f prove.Finding, err error) {
	nodes, err := clones.Nodes(ctx, x.Cluster)
	if err != nil {
		return f, err
	}
	x.mu.Lock()
	instances := []fleet.Instance{i}
	for _, c := range x.last.clones {
		if !c.Instance.ID.Equal(i.ID) {
			instances = append(instances, c.Instance)
		}
	}
	x.mu.Unlock()
	pairs := prove.Pair(instances, nodes)
	o := prove.Observation{Clones: pairs[:1], Begun: begun, Soak: soak, Now: x.Cluster.Now(), AzureNow: x.Cloud.Now()}
	o.Others = slices.DeleteFunc(pairs[1:], func(c prove.Clone) bool {
		return c.Node == nil || c.Node.Annotations[fleet.AnnotationRollout] != ""
	})
	if c := &o.Clones[0]; c.Node != nil {
		n := *c.Node
		if c.Node = &n; !back && n.Ready {
			n.Ready, n.NotReadyWhy = false, "its kubelet has not reported another boot"
		}
		if n.ReadySince.Before(seen) {
			n.ReadySince = seen
		}
		n.Conditions = slices.DeleteFunc(slices.Clone(n.Conditions), func(y fleet.Condition) bool {
			return y.Type == fleet.ConditionBootSucceeded && cmp.Or(y.Written, y.Since).Before(seen)
		})
		if back {
			c.Pods, err = x.Cluster.Pods(ctx, n.Name)
		}
	}
	return prove.Judge(o, x.base, 1).Finding, err
}
