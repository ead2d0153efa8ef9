package controller

import (
	"context"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/ortet/ortet/internal/boots/assess"
	"github.com/ortet/ortet/internal/fleet"
)

// The kinds that describe machines, where the cluster has them.
const (
	machineKind     = "Machine"
	machineGroup    = "cluster.x-k8s.io"
	azureGroup      = "infrastructure.cluster.x-k8s.io"
	azureKind       = "AzureMachine"
	azurePoolKind   = "AzureMachinePoolMachine"
	discoverAgainIn = 5 * time.Minute
)

func memberKinds() []schema.GroupKind {
	return []schema.GroupKind{
		{Group: azureGroup, Kind: azureKind},
		{Group: azureGroup, Kind: azurePoolKind},
		{Group: machineGroup, Kind: machineKind},
	}
}

// A member is a Machine, AzureMachine or AzureMachinePoolMachine.
type member struct {
	gvk             schema.GroupVersionKind
	namespace, name string
	uid             types.UID
	instance        fleet.Key // "" as long as it is not known
	infrastructure  string    // of a Machine: the id of the member that it stands for
	published       struct{ status, reason, message string }
}

func (m member) id() string { return m.gvk.Kind + "/" + m.namespace + "/" + m.name }

func (m member) reference() corev1.ObjectReference {
	version := m.gvk.GroupVersion().String()
	return corev1.ObjectReference{Kind: m.gvk.Kind, APIVersion: version, Namespace: m.namespace, Name: m.name, UID: m.uid}
}

// members finds them by the instance that they stand for.
type members struct {
	mu  sync.Mutex
	all map[string]member
	// by instance, and Machines by the id of what they stand for
	byInstance map[fleet.Key][]string
	machines   map[string][]string
}

func newMembers() *members {
	return &members{all: map[string]member{}, byInstance: map[fleet.Key][]string{}, machines: map[string][]string{}}
}

// of returns those that stand for an instance. A Machine whose own provider id is
// still empty, since its boot failed, is found by the AzureMachine it refers to.
func (x *members) of(key fleet.Key) []member {
	x.mu.Lock()
	defer x.mu.Unlock()
	ids := slices.Clone(x.byInstance[key])
	for _, id := range x.byInstance[key] {
		ids = append(ids, x.machines[id]...)
	}
	slices.Sort(ids)
	var out []member
	for _, id := range slices.Compact(ids) {
		out = append(out, x.all[id])
	}
	return out
}

// put takes a member in and returns the instance that it stands for, if it is known.
func (x *members) put(m member) fleet.Key {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.drop(m.id())
	x.all[m.id()] = m
	if m.instance != "" {
		x.byInstance[m.instance] = append(x.byInstance[m.instance], m.id())
	}
	if m.infrastructure != "" {
		x.machines[m.infrastructure] = append(x.machines[m.infrastructure], m.id())
	}
	if m.instance == "" {
		return x.all[m.infrastructure].instance
	}
	return m.instance
}

func (x *members) remove(id string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.drop(id)
}

func (x *members) drop(id string) {
	m, ok := x.all[id]
	if !ok {
		return
	}
	delete(x.all, id)
	if rest := without(x.byInstance[m.instance], id); len(rest) > 0 {
		x.byInstance[m.instance] = rest
	} else {
		delete(x.byInstance, m.instance)
	}
	if rest := without(x.machines[m.infrastructure], id); len(rest) > 0 {
		x.machines[m.infrastructure] = rest
	} else {
		delete(x.machines, m.infrastructure)
	}
}

func without(list []string, one string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(s string) bool { return s == one })
}

// memberOf reads what matters of a machine's object.
func memberOf(u *unstructured.Unstructured) member {
	m := member{gvk: u.GroupVersionKind(), namespace: u.GetNamespace(), name: u.GetName(), uid: u.GetUID()}
	text := func(fields ...string) string {
		s, _, err := unstructured.NestedString(u.Object, fields...)
		if err != nil {
			return ""
		}
		return s
	}
	if id, ok := assess.InstanceOf(text("spec", "providerID")); ok {
		m.instance = fleet.KeyOf(id)
	}
	if kind := text("spec", "infrastructureRef", "kind"); kind != "" {
		name := text("spec", "infrastructureRef", "name")
		m.infrastructure = member{gvk: schema.GroupVersionKind{Kind: kind}, namespace: m.namespace, name: name}.id()
	}
	list, _, err := unstructured.NestedSlice(u.Object, "status", "conditions")
	if err != nil {
		return m
	}
	for _, c := range list {
		if x, ok := c.(map[string]any); ok && x["type"] == fleet.ConditionBootSucceeded {
			m.published.status, _ = x["status"].(string)
			m.published.reason, _ = x["reason"].(string)
			m.published.message, _ = x["message"].(string)
		}
	}
	return m
}

// trimMember keeps of an object what memberOf reads.
func trimMember(u *unstructured.Unstructured) *unstructured.Unstructured {
	out := &unstructured.Unstructured{Object: map[string]any{}}
	out.SetGroupVersionKind(u.GroupVersionKind())
	out.SetName(u.GetName())
	out.SetNamespace(u.GetNamespace())
	out.SetUID(u.GetUID())
	out.SetResourceVersion(u.GetResourceVersion())
	spec := map[string]any{}
	for _, f := range []string{"providerID", "infrastructureRef"} {
		if v, ok, err := unstructured.NestedFieldNoCopy(u.Object, "spec", f); ok && err == nil {
			spec[f] = v
		}
	}
	out.Object["spec"] = spec
	list, _, err := unstructured.NestedSlice(u.Object, "status", "conditions")
	if err != nil {
		return out
	}
	for _, c := range list {
		if x, ok := c.(map[string]any); ok && x["type"] == fleet.ConditionBootSucceeded {
			out.Object["status"] = map[string]any{"conditions": []any{x}}
		}
	}
	return out
}

// watchKinds watches the kinds that the cluster has, and checks every 5 minutes for
// more: Cluster API may be installed after us, or never.
func (r *reconciler) watchKinds(ctx context.Context, m manager.Manager) error {
	left := memberKinds()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for len(left) > 0 {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
		left = slices.DeleteFunc(left, func(kind schema.GroupKind) bool {
			mapping, err := m.GetRESTMapper().RESTMapping(kind)
			if err != nil {
				if !meta.IsNoMatchError(err) {
					r.config.Log.WarnContext(ctx, "kind not looked up", "kind", kind.String(), "error", err)
				}
				return false
			}
			if err := r.watchKind(m, mapping.GroupVersionKind); err != nil {
				r.config.Log.WarnContext(ctx, "kind not watched", "kind", kind.String(), "error", err)
				return false
			}
			r.config.Log.InfoContext(ctx, "kind watched", "kind", mapping.GroupVersionKind.String())
			return true
		})
		timer.Reset(discoverAgainIn)
	}
	<-ctx.Done()
	return nil
}

func (r *reconciler) watchKind(m manager.Manager, gvk schema.GroupVersionKind) error {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(gvk)
	put := func(u *unstructured.Unstructured, q queue) {
		if key := r.members.put(memberOf(u)); key != "" {
			q.Add(request(key))
		}
	}
	return r.controller.Watch(source.Kind(m.GetCache(), u, handler.TypedFuncs[*unstructured.Unstructured, reconcile.Request]{
		CreateFunc: func(_ context.Context, e event.TypedCreateEvent[*unstructured.Unstructured], q queue) {
			put(e.Object, q)
		},
		UpdateFunc: func(_ context.Context, e event.TypedUpdateEvent[*unstructured.Unstructured], q queue) {
			if memberOf(e.ObjectOld) != memberOf(e.ObjectNew) {
				put(e.ObjectNew, q)
			}
		},
		DeleteFunc: func(_ context.Context, e event.TypedDeleteEvent[*unstructured.Unstructured], _ queue) {
			r.members.remove(memberOf(e.Object).id())
		},
	}))
}
