// Package kube runs the operator on an API server: it watches ScaleSetPools and Nodes, has a
// Reconciler look at the objects, and writes their status.
package kube

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"slices"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlconfig "sigs.k8s.io/controller-runtime/pkg/config"
	ctrl "sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/ortet/ortet/api/v1alpha1"
	"github.com/ortet/ortet/internal/cluster"
	"github.com/ortet/ortet/internal/cluster/conversion"
	"github.com/ortet/ortet/internal/cluster/lead"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/operator"
)

// reconcilers look at pools side by side: each waits for Azure.
const reconcilers = 8

// Config is what Run works with. All is required.
type Config struct {
	operator.Config // all but Objects and Reads
	REST            *rest.Config
	Lease           string // in the namespace of Capture, by which one of several replicas is chosen
	// Identify makes Nodes that name no machine of Azure ones that do, as Capture's Cluster has them.
	Identify func(cluster.Cluster) cluster.Cluster
}

// Run works whenever this replica leads, until ctx ends and its runs have ended. The error is ctx's, or
// why it cannot work.
func Run(ctx context.Context, c Config) error {
	logging(c.Capture.Log)
	client, err := kubernetes.NewForConfig(c.REST)
	if err != nil {
		return &fleet.Error{Op: "run the operator", Kind: fleet.KindInvalid, Err: err}
	}
	working, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	election := lead.Config{Client: client, Namespace: c.Capture.Namespace, Name: c.Lease, Identity: c.Capture.Holder, Log: c.Capture.Log}
	err = lead.Run(working, election, func(leading context.Context) {
		if err := c.work(leading); err != nil && leading.Err() == nil {
			fail(&fleet.Error{Op: "run the operator", Err: err})
		}
	})
	if cause := context.Cause(working); cause != nil {
		return cause
	}
	return err
}

// logging has the libraries, which have one logger for the whole process, write to log.
func logging(log *slog.Logger) {
	klog.SetSlogLogger(log)
	ctrllog.SetLogger(logr.FromSlogHandler(log.Handler()))
}

// work works while this replica leads, and returns once all its runs have ended.
func (c Config) work(leading context.Context) error {
	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		return err
	}
	m, err := manager.New(c.REST, manager.Options{
		Scheme: scheme, Logger: ctrllog.Log,
		Cache:   cache.Options{DefaultTransform: lean, DefaultUnsafeDisableDeepCopy: new(true)},
		Metrics: metricsserver.Options{BindAddress: "0"}, HealthProbeBindAddress: "0",
		Controller: ctrlconfig.Controller{SkipNameValidation: new(true)}, // it is made again with each leadership
	})
	if err != nil {
		return err
	}
	settings := c.Config
	settings.Objects = scaleSetPools{m.GetClient(), c.Config}
	nodes := cachedNodes{c.Capture.Cluster, m.GetCache()}
	settings.Reads, settings.NodesOf = c.Identify(nodes), nodes.of
	if err := m.GetCache().IndexField(leading, &corev1.Node{}, keysOf, func(o client.Object) []string {
		n, _ := o.(*corev1.Node) // nothing else is indexed by it
		return fleet.Claim{Name: n.Name, ProviderID: n.Spec.ProviderID, SystemUUID: n.Status.NodeInfo.SystemUUID}.Keys()
	}); err != nil {
		return err
	}
	r := operator.New(leading, settings)
	defer r.Wait()
	controller, err := ctrl.New("scalesetpool", m, ctrl.Options{Reconciler: r, MaxConcurrentReconciles: reconcilers})
	if err != nil {
		return err
	}
	type pool = *v1alpha1.ScaleSetPool
	changed := predicate.TypedGenerationChangedPredicate[pool]{} // our own writes change the status alone
	objects := source.Kind(m.GetCache(), &v1alpha1.ScaleSetPool{}, &handler.TypedEnqueueRequestForObject[pool]{}, changed)
	if err := controller.Watch(objects); err != nil {
		return err
	}
	return m.Start(leading)
}

// lean drops what is most of a Node and is not needed.
func lean(o any) (any, error) {
	if x, is := o.(metav1.Object); is {
		x.SetManagedFields(nil)
	}
	if n, is := o.(*corev1.Node); is {
		n.Status.Images, n.Status.VolumesAttached, n.Status.VolumesInUse = nil, nil, nil
	}
	return o, nil
}

// cachedNodes is a cluster whose list of Nodes is a cache's.
type cachedNodes struct {
	cluster.Cluster
	from client.Reader
}

// Nodes implements cluster.Nodes.
func (c cachedNodes) Nodes(ctx context.Context) iter.Seq2[fleet.Node, error] {
	return func(yield func(fleet.Node, error) bool) {
		var all corev1.NodeList
		if err := c.from.List(ctx, &all); err != nil {
			yield(fleet.Node{}, &fleet.Error{Op: "list nodes", Err: err})
			return
		}
		for i := range all.Items {
			if !yield(conversion.Node(&all.Items[i]), nil) {
				return
			}
		}
	}
}

// keysOf is the index of Nodes by fleet.Claim.Keys.
const keysOf = "machine"

// of returns the Nodes that have one of the keys.
func (c cachedNodes) of(ctx context.Context, keys []string) (nodes []fleet.Node, err error) {
	has := map[string]bool{}
	for _, key := range keys {
		var some corev1.NodeList
		if err := c.from.List(ctx, &some, client.MatchingFields{keysOf: key}); err != nil {
			return nil, &fleet.Error{Op: "list nodes", Err: err}
		}
		for i := range some.Items {
			if n := &some.Items[i]; !has[n.Name] {
				has[n.Name] = true
				nodes = append(nodes, conversion.Node(n))
			}
		}
	}
	return nodes, nil
}

// scaleSetPools are those of the API server.
type scaleSetPools struct {
	client client.Client
	of     operator.Config
}

// List implements operator.Objects.
func (s scaleSetPools) List(ctx context.Context) ([]v1alpha1.ScaleSetPool, error) {
	var all v1alpha1.ScaleSetPoolList
	err := s.client.List(ctx, &all)
	return slices.Clone(all.Items), err
}

// SaveStatus implements operator.Objects.
func (s scaleSetPools) SaveStatus(ctx context.Context, p *v1alpha1.ScaleSetPool) error {
	return s.client.Status().Update(ctx, p)
}

// Event implements operator.Objects.
func (s scaleSetPools) Event(ctx context.Context, p *v1alpha1.ScaleSetPool, warning bool, reason, message string) {
	const limit = 1024 // of the API server, in bytes
	kind := map[bool]string{true: corev1.EventTypeWarning, false: corev1.EventTypeNormal}[warning]
	now := metav1.NewTime(s.of.Capture.Now())
	err := s.client.Create(ctx, &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{GenerateName: p.Name + ".", Namespace: metav1.NamespaceDefault},
		InvolvedObject: corev1.ObjectReference{
			Kind: "ScaleSetPool", APIVersion: v1alpha1.GroupVersion.String(), Name: p.Name, UID: p.UID,
		},
		Reason: reason, Message: message[:min(len(message), limit)], Type: kind, Count: 1,
		FirstTimestamp: now, LastTimestamp: now, Source: corev1.EventSource{Component: "ortet-operator"},
		ReportingController: "ortet.io/operator", ReportingInstance: s.of.Capture.Holder,
	})
	if err != nil {
		s.of.Capture.Log.WarnContext(ctx, "event not recorded", "pool", p.Name, "reason", reason, "error", err)
	}
}
