package controller

import (
	"context"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/ortet/ortet/internal/boots/assess"
	"github.com/ortet/ortet/internal/cluster/conversion"
	"github.com/ortet/ortet/internal/fleet"
)

// viewOf returns as much of a Node as is used.
func viewOf(n *corev1.Node) *assess.NodeView { return assess.ViewOf(conversion.Node(n)) }

// trim keeps what is used of what the cache is sent: a Node with its images
// takes some 15 KiB.
func trim(o any) (any, error) {
	switch x := o.(type) {
	case *corev1.Node:
		out := &corev1.Node{ObjectMeta: trimmed(x.ObjectMeta)}
		markBoot(&x.ObjectMeta, &out.ObjectMeta)
		for _, key := range []string{fleet.AnnotationCapture, fleet.AnnotationFresh} {
			if capture := x.Annotations[key]; capture != "" {
				metav1.SetMetaDataAnnotation(&out.ObjectMeta, key, capture)
			}
		}
		out.Spec.ProviderID = x.Spec.ProviderID
		for _, t := range x.Spec.Taints {
			if unproven(t) {
				out.Spec.Taints = append(out.Spec.Taints, t)
			}
		}
		out.Status.NodeInfo.BootID, out.Status.NodeInfo.SystemUUID = x.Status.NodeInfo.BootID, x.Status.NodeInfo.SystemUUID
		for _, c := range x.Status.Conditions {
			if c.Type == corev1.NodeReady || c.Type == fleet.ConditionBootSucceeded {
				// Heartbeats would make every report of a kubelet a change. Our own are
				// when we wrote.
				if c.Type == corev1.NodeReady {
					c.LastHeartbeatTime = metav1.Time{}
				}
				out.Status.Conditions = append(out.Status.Conditions, c)
			}
		}
		return out, nil
	case *unstructured.Unstructured:
		return trimMember(x), nil
	}
	return o, nil
}

func trimmed(m metav1.ObjectMeta) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name: m.Name, Namespace: m.Namespace, UID: m.UID,
		ResourceVersion: m.ResourceVersion, CreationTimestamp: m.CreationTimestamp,
	}
}

// nodeOf finds the Node that an instance is, by the rule of NodeFor, in the cache.
func (r *reconciler) nodeOf(ctx context.Context, b fleet.Boot) (*corev1.Node, error) {
	if b.HostName == "" {
		return nil, nil
	}
	var n corev1.Node
	if err := r.nodes.Get(ctx, types.NamespacedName{Name: strings.ToLower(b.HostName)}, &n); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	if !viewOf(&n).Is(b) {
		return nil, nil
	}
	return &n, nil
}

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

func request(k fleet.Key) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Name: string(k)}}
}

// watchNodes assesses an instance again when its Node changes.
func (r *reconciler) watchNodes(c cache.Cache) error {
	touch := func(n *corev1.Node, hurry bool, q queue) {
		if n == nil {
			return
		}
		key, ok := r.fleet.ByHost(n.Name)
		if id, is := assess.InstanceOf(n.Spec.ProviderID); is {
			if len(r.config.Pools) == 0 {
				r.poller.AddGroup(id.Group())
			}
			key, ok = fleet.KeyOf(id), true // it may be another that the Node is: nodeOf decides
		}
		if !ok {
			return
		}
		if known, is := r.fleet.Get(key); is && hurry {
			r.poller.Hurry(known.Boot.Pool)
		}
		q.Add(request(key))
	}
	return r.controller.Watch(source.Kind(c, &corev1.Node{}, handler.TypedFuncs[*corev1.Node, reconcile.Request]{
		CreateFunc: func(_ context.Context, e event.TypedCreateEvent[*corev1.Node], q queue) {
			r.captures.see(nil, e.Object)
			touch(e.Object, false, q)
		},
		UpdateFunc: func(_ context.Context, e event.TypedUpdateEvent[*corev1.Node], q queue) {
			r.captures.see(e.ObjectOld, e.ObjectNew)
			was, is := viewOf(e.ObjectOld), viewOf(e.ObjectNew)
			if *was == *is && e.ObjectOld.UID == e.ObjectNew.UID {
				return
			}
			touch(e.ObjectNew, was.Ready && !is.Ready, q)
		},
		DeleteFunc: func(_ context.Context, e event.TypedDeleteEvent[*corev1.Node], q queue) {
			r.captures.forget(e.Object)
			touch(e.Object, true, q)
		},
	}))
}

// enqueue is called by the Poller.
func (r *reconciler) enqueue(keys []fleet.Key) {
	select {
	case r.changed <- keys:
	case <-r.done:
	}
}

// watchChanged assesses instances of which the cloud reported something new.
func (r *reconciler) watchChanged() error {
	return r.controller.Watch(source.Func(func(ctx context.Context, q queue) error {
		go func() {
			for {
				select {
				case <-ctx.Done():
					return
				case keys := <-r.changed:
					for _, k := range keys {
						q.Add(request(k))
					}
				}
			}
		}()
		return nil
	}))
}

// ignoreGone is for changes of what may have been deleted, or replaced, meanwhile.
func ignoreGone(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
