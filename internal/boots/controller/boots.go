package controller

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrl "sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/ortet/ortet/internal/boots/assess"
	"github.com/ortet/ortet/internal/boots/timeline"
	"github.com/ortet/ortet/internal/boots/verdict"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/wire"
)

const (
	// strangerFor is how long a report waits until its node is known to be an
	// instance of Azure.
	strangerFor = 30 * time.Minute
	askAgain    = 5 * time.Second // meanwhile
	// podsFor is how long after Ready a first pod is waited for.
	podsFor = 2 * time.Minute
	// reportGap is the least time between two reports of one node.
	reportGap = time.Minute
	// maxPods is how many of a node's pods are listed. A kubelet runs 110 by default.
	maxPods = 500
)

// boots takes the reports that nodes leave in an annotation of their Nodes
// (wire.BootAnnotation), and keeps and counts them. It believes a report only of the
// machine whose Node it is found on. One that is kept, or refused, is deleted: every
// kubelet and controller that watches Nodes is sent the annotation.
//
// A report is stored, then counted, then deleted. After an interruption the next pass
// finds it stored, and only deletes it: it may go uncounted, and is never counted twice.
type boots struct {
	*reconciler
	store   *bootStore
	figures *bootMeters
	events  *Budget // of requests for pods' Events
	// Of Nodes, by name. One request is worked on at a time.
	began   map[string]seenReport // when a report was first seen
	handled map[string]time.Time  // when one was last taken away
}

type seenReport struct {
	uid    types.UID
	digest string
	at     time.Time
}

// digestKey marks in the cache that a Node has a report: the report itself is not
// cached.
const digestKey = "ortet.io/boot-digest"

// markBoot replaces a Node's report by a hash of it. What is in the cache may be trimmed
// again.
func markBoot(from, to *metav1.ObjectMeta) {
	mark := from.Annotations[digestKey]
	if text, ok := from.Annotations[wire.BootAnnotation]; ok {
		h := fnv.New64a()
		_, _ = h.Write([]byte(text)) // never fails
		mark = fmt.Sprintf("%016x", h.Sum64())
	}
	if mark != "" {
		to.Annotations = map[string]string{digestKey: mark}
	}
}

func (r *reconciler) addBoots(m manager.Manager) error {
	b := newReports(r, newBootStore(r.client, r.config), r.meters.boot)
	b.store.forgot = b.figures.forget
	r.stored = b.store
	c, err := ctrl.New("boot-report", m, ctrl.Options{Reconciler: b, MaxConcurrentReconciles: 1, RateLimiter: retries()})
	if err != nil {
		return fmt.Errorf("the reconciler of boots' reports: %w", err)
	}
	if err := b.watch(m.GetCache(), c); err != nil {
		return fmt.Errorf("watch Nodes for boots' reports: %w", err)
	}
	return m.Add(manager.RunnableFunc(b.store.run)) // only while it is elected
}

func newReports(r *reconciler, store *bootStore, figures *bootMeters) *boots {
	return &boots{reconciler: r, store: store, figures: figures, events: NewBudget(askedPerMinute, r.config.Now),
		began: map[string]seenReport{}, handled: map[string]time.Time{}}
}

func (b *boots) watch(c cache.Cache, with ctrl.Controller) error {
	add := func(n *corev1.Node, q queue) {
		if n.Annotations[digestKey] != "" {
			q.Add(request(fleet.Key(n.Name)))
		}
	}
	return with.Watch(source.Kind(c, &corev1.Node{}, handler.TypedFuncs[*corev1.Node, reconcile.Request]{
		CreateFunc: func(_ context.Context, e event.TypedCreateEvent[*corev1.Node], q queue) { add(e.Object, q) },
		UpdateFunc: func(_ context.Context, e event.TypedUpdateEvent[*corev1.Node], q queue) {
			if e.ObjectOld.Annotations[digestKey] != e.ObjectNew.Annotations[digestKey] || viewOf(e.ObjectOld).Ready != viewOf(e.ObjectNew).Ready {
				add(e.ObjectNew, q)
			}
		},
		DeleteFunc: func(_ context.Context, e event.TypedDeleteEvent[*corev1.Node], q queue) {
			q.Add(request(fleet.Key(e.Object.Name)))
		},
	}))
}

// Reconcile takes the report of the Node that the request names.
func (b *boots) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	name, now := request.Name, b.config.Now()
	var cached corev1.Node
	if err := b.nodes.Get(ctx, types.NamespacedName{Name: name}, &cached); err != nil || cached.Annotations[digestKey] == "" {
		delete(b.began, name)
		if apierrors.IsNotFound(err) {
			delete(b.handled, name)
		}
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	here := seenReport{cached.UID, cached.Annotations[digestKey], now}
	if was := b.began[name]; was.uid == here.uid && was.digest == here.digest {
		here.at = was.at
	}
	b.began[name] = here
	if wait := b.handled[name].Add(reportGap).Sub(now); wait > 0 {
		return reconcile.Result{RequeueAfter: wait}, nil
	}
	boot, err := b.instanceOf(ctx, &cached)
	switch {
	case err != nil:
		return reconcile.Result{}, err
	case boot == nil && now.Sub(here.at) < strangerFor:
		return reconcile.Result{RequeueAfter: askAgain}, nil
	}
	if view := viewOf(&cached); boot != nil && !view.Ready {
		// Whoever writes it may do so before the kubelet reports that it is Ready.
		if wait := here.at.Add(b.config.Deadlines.Boot).Sub(now); wait > 0 {
			return reconcile.Result{RequeueAfter: wait}, nil
		}
	}
	return b.take(ctx, &cached, boot, now)
}

// instanceOf finds the instance that a Node is; nil as long as none is known.
func (b *boots) instanceOf(ctx context.Context, n *corev1.Node) (*fleet.Boot, error) {
	key, ok := b.fleet.ByHost(n.Name)
	if id, is := assess.InstanceOf(n.Spec.ProviderID); is {
		key, ok = fleet.KeyOf(id), true
	}
	known, listed := b.fleet.Get(key)
	if !ok || !listed || known.Boot.VMID == "" {
		return nil, nil
	}
	is, err := b.nodeOf(ctx, known.Boot)
	if err != nil || is == nil || is.UID != n.UID {
		return nil, err
	}
	return &known.Boot, nil
}

// take reads a report, and keeps or refuses it.
func (b *boots) take(ctx context.Context, cached *corev1.Node, boot *fleet.Boot, now time.Time) (reconcile.Result, error) {
	var node corev1.Node
	if err := b.client.Get(ctx, client.ObjectKeyFromObject(cached), &node); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	text, ok := node.Annotations[wire.BootAnnotation]
	if !ok || node.UID != cached.UID {
		return reconcile.Result{}, nil
	}
	view := viewOf(&node)
	report, err := wire.DecodeBootAnnotation(text)
	if err == nil {
		err = believable(report, view, boot)
	}
	if err != nil {
		if err := b.refuse(ctx, &node, text, err); err != nil {
			return reconcile.Result{}, err
		}
		return b.empty(ctx, &node)
	}
	if b.captures.caused(&node, report.BootID) {
		b.config.Log.InfoContext(ctx, "boot not kept: a capture restarted the node", "node", node.Name, "boot", report.BootID)
		return b.empty(ctx, &node)
	}
	stored, err := b.store.has(ctx, assess.BootName(node.Name, boot.VMID, report))
	if err != nil {
		return reconcile.Result{}, err
	}
	if !stored {
		record := assess.RecordOf(*boot, view, report)
		if b.config.FirstPods && !record.NodeReady.IsZero() {
			pods, err := b.podsOf(ctx, node.Name)
			if err != nil {
				return reconcile.Result{}, err
			}
			record.FirstPod = firstPod(pods, assess.BootStart(report))
			if wait := record.NodeReady.Add(podsFor).Sub(now); record.FirstPod.IsZero() && wait > 0 {
				return reconcile.Result{RequeueAfter: min(wait, podsFor)}, nil
			}
			if record.Pulls, err = b.pulls(ctx, &node, pods, report); err != nil {
				return reconcile.Result{}, err
			}
		}
		fresh, err := b.store.keep(ctx, record, report)
		if err != nil {
			return reconcile.Result{}, err
		}
		if fresh {
			t := timeline.Build(report, record.Cloud())
			b.figures.observe(t, record)
			b.config.Log.InfoContext(ctx, "boot kept",
				"node", node.Name, "image", record.ImageVersion(), "took", t.Total().String(), "complete", t.Complete)
		}
	}
	return b.empty(ctx, &node)
}

// believable returns why a report is not one of the machine whose Node it was found on.
// A Node may have stayed from an earlier machine of its name, with the report of that.
func believable(report wire.BootReport, node *assess.NodeView, boot *fleet.Boot) error {
	switch {
	case boot == nil:
		return errors.New("the node is none of the instances that Azure lists")
	case report.VMID == "":
		return errors.New("it does not say of which machine it is (vmId)")
	case !strings.EqualFold(report.VMID, boot.VMID):
		return fmt.Errorf("it is of the machine %s, and this is %s", verdict.Plain(report.VMID, 64), boot.VMID)
	case report.Node != "" && !strings.EqualFold(report.Node, node.Name) && !strings.EqualFold(report.Node, boot.HostName):
		return fmt.Errorf("it is of the node %s", verdict.Plain(report.Node, 64))
	}
	return nil
}

// podsOf asks for the node's pods, which are not watched: what is wanted of them is
// wanted once. Without the permission they are not known.
func (b *boots) podsOf(ctx context.Context, node string) ([]corev1.Pod, error) {
	var pods corev1.PodList
	ofNode := client.MatchingFieldsSelector{Selector: fields.OneTermEqualSelector("spec.nodeName", node)}
	err := b.client.List(ctx, &pods, ofNode, client.Limit(maxPods))
	if apierrors.IsForbidden(err) {
		b.config.Log.WarnContext(ctx, "the first pod's time and pulled images are not known", "node", node, "error", err)
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list the pods of %s: %w", node, err)
	}
	return pods.Items, nil
}

// refuse records an Event with the reason why a report is not kept, once for each.
func (b *boots) refuse(ctx context.Context, node *corev1.Node, text string, why error) error {
	what := "The report of a boot that the node left was not kept: " + why.Error() + "."
	if errors.Is(why, wire.ErrBootEncoding) {
		what += " ortet-node may be newer than the controller: update the controller, and run `ortet-node report --annotate` again."
	}
	h := fnv.New64a()
	fmt.Fprintf(h, "report|%s|%s", node.UID, text)
	now := metav1.NewTime(b.config.Now())
	e := &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s.%016x", node.Name[:min(len(node.Name), 200)], h.Sum64()), Namespace: metav1.NamespaceDefault},
		// As the kubelet does: a Node's Events have its name for a UID.
		InvolvedObject: corev1.ObjectReference{Kind: "Node", APIVersion: "v1", Name: node.Name, UID: types.UID(node.Name)},
		Reason:         "BootReportRefused", Message: verdict.Plain(what, assess.MaxMessage), Type: corev1.EventTypeWarning, Count: 1,
		FirstTimestamp: now, LastTimestamp: now,
		Source:              corev1.EventSource{Component: fieldManager},
		ReportingController: "ortet.io/controller", ReportingInstance: cmp.Or(b.config.Identity, "ortet"),
	}
	switch err := b.client.Create(ctx, e, client.FieldOwner(fieldManager)); {
	case apierrors.IsAlreadyExists(err):
		return nil
	case err != nil:
		return fmt.Errorf("record an Event on Node %s: %w", node.Name, err)
	}
	b.figures.refused.Inc()
	return nil
}

// empty takes the report away, if it is still the one that was read. Annotations may
// be changed with a Node's status, as kubelets do, so that no permission is needed to
// change anything else of Nodes.
func (b *boots) empty(ctx context.Context, node *corev1.Node) (reconcile.Result, error) {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": node.UID, "resourceVersion": node.ResourceVersion, "annotations": map[string]any{wire.BootAnnotation: nil}}})
	if err == nil {
		err = b.client.Status().Patch(ctx, node, client.RawPatch(types.MergePatchType, patch), client.FieldOwner(fieldManager))
	}
	switch {
	case apierrors.IsConflict(err): // somebody wrote to the Node meanwhile, as many do
		return reconcile.Result{RequeueAfter: time.Second}, nil
	case ignoreGone(err) != nil:
		return reconcile.Result{}, fmt.Errorf("take the boot's report from Node %s: %w", node.Name, err)
	}
	b.handled[node.Name] = b.config.Now()
	delete(b.began, node.Name)
	return reconcile.Result{}, nil
}
