package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrl "sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/ortet/ortet/internal/fleet"
)

// DefaultLiftAfter is before cluster-autoscaler deletes nodes that are not ready (20m).
const DefaultLiftAfter = 15 * time.Minute

// A lifter removes fleet.TaintUnproven from Nodes, and no other taint.
type lifter struct{ *reconciler }

func unproven(t corev1.Taint) bool {
	return t.Key == fleet.TaintUnproven && t.Effect == corev1.TaintEffectNoSchedule
}

func (r *reconciler) addLifter(m manager.Manager) error {
	if !r.config.LiftTaint {
		return nil
	}
	c, err := ctrl.New("startup-taint", m, ctrl.Options{Reconciler: lifter{r}, MaxConcurrentReconciles: reconcilers, RateLimiter: retries()})
	if err != nil {
		return fmt.Errorf("the reconciler of startup taints: %w", err)
	}
	add := func(n *corev1.Node, q queue) {
		if slices.ContainsFunc(n.Spec.Taints, unproven) {
			q.Add(request(fleet.Key(n.Name)))
		}
	}
	err = c.Watch(source.Kind(m.GetCache(), &corev1.Node{}, handler.TypedFuncs[*corev1.Node, reconcile.Request]{
		CreateFunc: func(_ context.Context, e event.TypedCreateEvent[*corev1.Node], q queue) { add(e.Object, q) },
		UpdateFunc: func(_ context.Context, e event.TypedUpdateEvent[*corev1.Node], q queue) { add(e.ObjectNew, q) },
	}))
	if err != nil {
		return fmt.Errorf("watch Nodes for startup taints: %w", err)
	}
	return nil
}

// liftDue decides whether the Node's taint is to be removed, or is to be looked at again
// after a time: 0 is when the Node changes. A verdict of False keeps it, however old.
func liftDue(n *corev1.Node, now time.Time, after time.Duration) (due bool, wait time.Duration) {
	if !slices.ContainsFunc(n.Spec.Taints, unproven) {
		return false, 0
	}
	if verdict := conditionOf(n); verdict != nil {
		return verdict.Status == corev1.ConditionTrue, 0
	}
	view := viewOf(n)
	if !view.Ready {
		return false, 0
	}
	wait = view.ReadySince.Add(after).Sub(now)
	return wait <= 0, max(wait, 0)
}

// Reconcile looks at the Node that the request names.
func (l lifter) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	var node corev1.Node
	for _, from := range []client.Reader{l.nodes, l.client} { // the cache may be late
		if err := from.Get(ctx, types.NamespacedName{Name: request.Name}, &node); err != nil {
			return reconcile.Result{}, client.IgnoreNotFound(err)
		}
		if due, wait := liftDue(&node, l.config.Now(), l.config.LiftAfter); !due {
			return reconcile.Result{RequeueAfter: wait}, nil
		}
	}
	// A patch replaces the list of taints: the version keeps those that others add meanwhile.
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": node.UID, "resourceVersion": node.ResourceVersion},
		"spec":     map[string]any{"taints": slices.DeleteFunc(node.Spec.Taints, unproven)}})
	verdict := conditionOf(&node)
	if err == nil {
		err = l.client.Patch(ctx, &node, client.RawPatch(types.MergePatchType, patch), client.FieldOwner(fieldManager))
	}
	switch {
	case apierrors.IsConflict(err):
		return reconcile.Result{RequeueAfter: time.Second}, nil
	case apierrors.IsNotFound(err):
	case err != nil:
		return reconcile.Result{}, fmt.Errorf("remove the taint %s from Node %s: %w", fleet.TaintUnproven, node.Name, err)
	case verdict == nil:
		l.config.Log.WarnContext(ctx, "startup taint removed without a verdict", "node", request.Name, "after", l.config.LiftAfter.String())
	default:
		l.config.Log.InfoContext(ctx, "startup taint removed", "node", request.Name)
	}
	return reconcile.Result{}, nil
}
