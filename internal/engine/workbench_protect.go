package engine

import (
	"context"
	"encoding/json"
	"errors"
	"maps"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/journal"
	"github.com/ortet/ortet/internal/prototype"
)

// benchFound is how a workbench was found, before it was protected.
type benchFound struct {
	Node       string           `json:"node"`
	UID        string           `json:"uid,omitempty"` // of the Node
	Instance   fleet.ResourceID `json:"instance"`
	Protection fleet.Protection `json:"protection"`
	ScaleDown  *string          `json:"scaleDown"` // the annotation; nil where there was none
}

// annotated reports whether others keep autoscalers off the node already.
func (b benchFound) annotated() bool { return b.ScaleDown != nil && *b.ScaleDown == annotationYes }

// protectBench keeps the workbench from scale-in: Azure's autoscaler honours the
// instance's policy, and the cluster's the Node's annotation.
func protectBench(ctx context.Context, t *task) error {
	r := t.r
	f := r.get()
	node, err := t.agreedNode(ctx)
	if err != nil {
		return err
	}
	if err := taken(node, f.Pool); err != nil {
		return err
	}
	i, err := t.agreed(ctx, f.Bench.Instance)
	if err != nil {
		return err
	}
	scaleDown, there := node.Annotations[fleet.AnnotationScaleDownDisabled]
	found := benchFound{Node: node.Name, UID: node.UID, Instance: i.ID, Protection: i.Protection, ScaleDown: optional(scaleDown, there)}
	entry, ours := r.undo(undoBench)
	if ours {
		var was benchFound
		if err := json.Unmarshal(entry.What, &was); err != nil {
			return err
		}
		if found.Protection = was.Protection; was.UID == node.UID { // else its kubelet made the Node again
			found.ScaleDown = was.ScaleDown
		}
	}
	if err := r.write(func(rec *journal.Record, _ *facts) {
		dropUndo(rec, undoBench)
		addUndo(rec, undoBench, found)
	}); err != nil {
		return err
	}
	yes, pool := annotationYes, string(f.Pool)
	if err := do(ctx, t, func(ctx context.Context) error {
		return r.e.cluster.Annotate(ctx, node.Name, map[string]*string{fleet.AnnotationScaleDownDisabled: &yes, fleet.AnnotationWorkbench: &pool})
	}); err != nil {
		return err
	}
	if i.Protection.ScaleIn && !ours {
		return nil
	}
	return t.setProtection(ctx, prototype.StepProtectBench, i.ID, fleet.Protection{ScaleIn: true, ScaleSetActions: i.Protection.ScaleSetActions})
}

// taken gives an error where another capture uses the node, as donor or workbench: the
// first of the two to end would remove its protection. Two that begin at the same
// moment find out when they attach.
func taken(node fleet.Node, pool fleet.ResourceID) error {
	why := ""
	if by := prototype.UsedBy(node, pool); by != "" {
		why = "a capture of " + string(by) + " uses it as its workbench"
	} else if _, marked := node.Annotations[fleet.AnnotationCapture]; marked {
		why = "it is being captured"
	}
	if why == "" {
		return nil
	}
	return &fleet.Error{Op: "use workbench", Resource: "node " + node.Name, Kind: fleet.KindInvalid, Err: errors.New(why)}
}

func (t *task) benchNode(ctx context.Context) (fleet.Node, error) {
	name := t.r.get().Bench.Node
	return surely(ctx, t, func(ctx context.Context) (fleet.Node, error) { return t.r.e.cluster.Node(ctx, name) })
}

// agreedNode reads the workbench's Node until two answers in a row agree on the
// annotations, for the same reason as agreed.
func (t *task) agreedNode(ctx context.Context) (fleet.Node, error) {
	last, err := t.benchNode(ctx)
	for n := 0; err == nil && n < maxTries; n++ {
		var node fleet.Node
		if node, err = t.benchNode(ctx); err == nil && maps.Equal(node.Annotations, last.Annotations) {
			break
		}
		last = node
	}
	return last, err
}

// agreed reads an instance until two answers in a row agree on its protection: one
// may be of before a change, and what is found is what is restored.
func (t *task) agreed(ctx context.Context, id fleet.ResourceID) (fleet.Instance, error) {
	get := func(ctx context.Context) (fleet.Instance, error) { return t.r.e.cloud.Instance(ctx, id) }
	last, err := surely(ctx, t, get)
	for n := 0; err == nil && n < maxTries; n++ {
		var i fleet.Instance
		if i, err = surely(ctx, t, get); err == nil && i.Protection == last.Protection {
			break
		}
		last = i
	}
	return last, err
}

// unprotectBench restores what protectBench found.
func unprotectBench(ctx context.Context, t *task) error {
	r := t.r
	entry, ours := r.undo(undoBench)
	if !ours {
		return needless("it was not protected by this capture")
	}
	var found benchFound
	if err := json.Unmarshal(entry.What, &found); err != nil {
		return err
	}
	node, there, err := held(ctx, t, func(ctx context.Context) (fleet.Node, error) { return r.e.cluster.Node(ctx, found.Node) })
	if err == nil && there && prototype.UsedBy(node, r.get().Pool) != "" {
		r.drop(undoBench) // the protection is that capture's now
		return nil
	}
	if err == nil && there {
		err = t.unannotateBench(ctx, node, found)
	}
	if !found.Protection.ScaleIn {
		err = errors.Join(err, t.restoreProtection(ctx, prototype.StepUnprotectBench, found.Instance, found.Protection))
	}
	if err != nil {
		return err
	}
	r.drop(undoBench)
	return nil
}

// unannotateBench leaves a Node alone that was made again by its kubelet: nothing of
// ours is left on it.
func (t *task) unannotateBench(ctx context.Context, node fleet.Node, found benchFound) error {
	if node.UID != found.UID {
		return nil
	}
	back := map[string]*string{fleet.AnnotationWorkbench: nil}
	if !found.annotated() {
		back[fleet.AnnotationScaleDownDisabled] = found.ScaleDown
	}
	return t.onNode(ctx, found.Node, func(ctx context.Context) error { return t.r.e.cluster.Annotate(ctx, found.Node, back) })
}

// errNullKept is an instance whose protection a null did not remove.
var errNullKept = errors.New("the protection is still there after null was put twice")

// restoreProtection sets an instance's protection to what was found. It asks even
// where a read shows just that, since the read may be of before our own change. An
// instance that is gone has nothing to restore.
func (t *task) restoreProtection(ctx context.Context, key string, id fleet.ResourceID, found fleet.Protection) error {
	put := func(want fleet.Protection) error {
		before := t.begins
		return t.change(ctx, key, fleet.ProtectInstance{Instance: id, Protection: want}, func(ctx context.Context) (bool, error) {
			i, there, err := held(ctx, t, func(ctx context.Context) (fleet.Instance, error) { return t.r.e.cloud.Instance(ctx, id) })
			same := i.Protection == want || !i.Protection.Protects() && !want.Protects()
			switch n := t.begins - before; {
			case err != nil:
				return false, err
			case !there:
				return true, nil
			case n > 1 && !same && want == (fleet.Protection{}):
				return false, errNullKept
			default:
				return n > 0 && same, nil
			}
		})
	}
	err := put(found)
	if errors.Is(err, errNullKept) {
		// Azure does not document that null removes a policy.
		err = put(fleet.Protection{Off: true})
	}
	return ignoreMissing(err)
}
