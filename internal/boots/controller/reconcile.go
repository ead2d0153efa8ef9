package controller

import (
	"cmp"
	"context"
	"fmt"
	"hash/fnv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrl "sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/ortet/ortet/internal/boots/assess"
	"github.com/ortet/ortet/internal/boots/verdict"
	"github.com/ortet/ortet/internal/fleet"
)

// fieldManager is whom the API server names as the writer of our fields.
const fieldManager = "ortet-controller"

// A reconciler assesses one instance at a time, and publishes what it finds. What
// is published already is not written again, so it may be repeated.
type reconciler struct {
	config     Config
	client     client.Client // without a cache
	nodes      client.Reader // of the cache
	controller ctrl.Controller
	fleet      *Fleet
	members    *members
	poller     *Poller
	evidence   *evidence
	meters     *meters
	captures   captures
	stored     *bootStore // of boots
	changed    chan []fleet.Key
	done       <-chan struct{}
}

// Reconcile assesses the instance whose key is the request's name.
func (r *reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	key := fleet.Key(request.Name)
	known, ok := r.fleet.Get(key)
	if !ok {
		return reconcile.Result{}, nil // gone, or not seen yet
	}
	node, err := r.nodeOf(ctx, known.Boot)
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("find the Node of %s: %w", known.Boot.Name, err)
	}
	var view *assess.NodeView
	if node != nil {
		view = viewOf(node)
	}
	if known.Previous.State == "" { // after a restart, what was found out before is known
		if known.Previous, err = r.evidence.recall(ctx, known.Boot); err != nil {
			return reconcile.Result{}, err
		}
	}
	now := r.config.Now()
	if known.relayed != nil {
		known.Previous = known.Previous.WithRelayed(known.relayed.verdict, known.relayed.at)
	}
	a := assess.Assess(known.Boot, view, known.Serial, known.Previous, now, r.config.Deadlines)
	if r.fleet.serialPending(key, a, now) {
		// Whoever acts on the condition may delete the machine, and its log with it.
		r.fleet.Decided(key, a, nil)
		r.poller.Wake()
		return reconcile.Result{RequeueAfter: serialPatience / 4}, nil
	}
	if a.Basis == assess.BasisDeleted {
		if node, err = r.freshNode(ctx, node, known.Boot); err != nil {
			return reconcile.Result{}, fmt.Errorf("read the Node of %s: %w", known.Boot.Name, err)
		}
		if view = nil; node != nil {
			view = viewOf(node)
		}
		a = assess.Assess(known.Boot, view, known.Serial, known.Previous, now, r.config.Deadlines)
	}
	err = r.publish(ctx, known, node, a)
	if known.gone && err == nil {
		r.fleet.forget(key)
	}
	judged := known.Serial
	if err != nil {
		judged = nil
	} else if a.Verdict != nil { // it is in the evidence now, and would fill the memory
		v := *a.Verdict
		v.Evidence = nil
		a.Verdict = &v
	}
	r.fleet.Decided(key, a, judged)
	if err == nil && known.relayed != nil {
		err = r.deletePublished(ctx, key, known.relayed)
	}
	if a.State != known.Previous.State {
		r.config.Log.InfoContext(ctx, "instance assessed",
			"instance", a.Name, "node", a.Node, "state", string(a.State), "reason", a.Reason(), "source", string(a.Source), "rule", a.Rule())
		r.poller.Wake() // there may be a log to read
	}
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("publish the verdict of %s: %w", a.Name, err)
	}
	if a.Next.IsZero() {
		return reconcile.Result{}, nil
	}
	return reconcile.Result{RequeueAfter: max(a.Next.Sub(now), time.Second)}, nil
}

// publish publishes what has an outcome. Each part may be repeated, and that all was
// published is recorded last: what an error left out is published the next time. In the
// same way the boot is counted once all was published.
func (r *reconciler) publish(ctx context.Context, known Known, node *corev1.Node, a assess.Assessment) error {
	if !a.State.Final() {
		return nil
	}
	rec, err := r.evidence.keep(ctx, known, a)
	if err != nil {
		return err
	}
	for _, m := range r.members.of(fleet.KeyOf(a.Instance)) {
		// First the Event: who acts on the condition may delete the machine.
		if rec.fresh || m.published.status != statusOf(a) || m.published.reason != reasonOf(a) {
			if err := r.event(ctx, m.reference(), m.namespace, a); err != nil {
				return err
			}
		}
		if err := r.setMemberCondition(ctx, m, a); err != nil {
			return err
		}
	}
	// The Node's condition is all that records a boot that went well, so it is last.
	name := cmp.Or(a.Node, a.HostName)
	if name != "" && (rec.fresh || node != nil && !matches(conditionFor(node, a), a)) {
		// As the kubelet does: a Node's Events lie in default, and have its name for
		// a UID.
		on := corev1.ObjectReference{Kind: "Node", APIVersion: "v1", Name: name, UID: types.UID(name)}
		if err := r.event(ctx, on, metav1.NamespaceDefault, a); err != nil {
			return err
		}
	}
	came, err := r.setNodeCondition(ctx, node, a)
	if err != nil {
		return err
	}
	if err := r.evidence.markPublished(ctx, rec, a); err != nil {
		return err
	}
	if node != nil && r.captures.caused(node, cmp.Or(a.Verdict.BootID, node.Status.NodeInfo.BootID)) {
		return nil
	}
	// A boot counts once for each outcome that is published; of those that succeeded at
	// once only the Node's condition shows whether they were counted.
	if rec.was != a.State && (rec.fresh || a.State == assess.Succeeded && came) && r.fleet.count(fleet.KeyOf(a.Instance), a) {
		r.meters.ended(a, node)
	}
	return nil
}

// reasonOf is a condition's reason, which may not be empty.
func reasonOf(a assess.Assessment) string {
	if r := a.Reason(); r != "" {
		return r
	}
	return string(a.State)
}

func statusOf(a assess.Assessment) string {
	if a.State.Bad() {
		return string(metav1.ConditionFalse)
	}
	return string(metav1.ConditionTrue)
}

// event records an Event once: its name is a hash of its content, so that a second is
// refused.
func (r *reconciler) event(ctx context.Context, on corev1.ObjectReference, namespace string, a assess.Assessment) error {
	if a.State == assess.Succeeded {
		return nil
	}
	h := fnv.New64a()
	fmt.Fprintf(h, "%s|%s|%s|%s|%s", on.Kind, a.VMID, a.State, a.Source, reasonOf(a))
	now := metav1.NewTime(r.config.Now())
	e := &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Name: fmt.Sprintf("%s.%016x", on.Name[:min(len(on.Name), 200)], h.Sum64()), Namespace: namespace},
		InvolvedObject: on,
		Reason:         "Boot" + string(a.State), Message: verdict.Plain(reasonOf(a)+": "+a.ConditionMessage(), assess.MaxMessage), Type: corev1.EventTypeWarning,
		Count: 1, FirstTimestamp: now, LastTimestamp: now,
		Source:              corev1.EventSource{Component: fieldManager},
		ReportingController: "ortet.io/controller", ReportingInstance: cmp.Or(r.config.Identity, "ortet"),
	}
	e.InvolvedObject.Namespace = ""
	if namespace != metav1.NamespaceDefault || on.Kind != "Node" {
		e.InvolvedObject.Namespace = namespace
	}
	err := r.client.Create(ctx, e, client.FieldOwner(fieldManager))
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("record an Event on %s %s: %w", on.Kind, on.Name, err)
	}
	return nil
}
