package kube

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"sort"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	typedapps "k8s.io/client-go/kubernetes/typed/apps/v1"
	typedcore "k8s.io/client-go/kubernetes/typed/core/v1"
	typedpolicy "k8s.io/client-go/kubernetes/typed/policy/v1"

	"github.com/ortet/ortet/internal/cluster"
	"github.com/ortet/ortet/internal/cluster/apierror"
	"github.com/ortet/ortet/internal/fleet"
)

// watched is the client that kubectl's drain works with. kubectl sleeps without
// looking at the context after a refused eviction, drops a refusal's details,
// gives up at one broken connection, and evicts whatever bears the pod's name by
// then. Here evictions are repeated until the context ends and their refusals
// kept, and a pod is evicted and deleted by its UID.
type watched struct {
	kubernetes.Interface
	drain *drain
}

// Discovery asks for the eviction's version within the drain's context.
func (w watched) Discovery() discovery.DiscoveryInterface {
	return watchedDiscovery{w.Interface.Discovery()}
}

func (w watched) CoreV1() typedcore.CoreV1Interface {
	return watchedCore{w.Interface.CoreV1(), w.drain}
}

func (w watched) AppsV1() typedapps.AppsV1Interface {
	return watchedApps{w.Interface.AppsV1(), w.drain}
}

func (w watched) PolicyV1() typedpolicy.PolicyV1Interface {
	return watchedPolicy{w.Interface.PolicyV1(), w.drain}
}

// watchedDiscovery knows that every supported API server evicts by policy/v1
// (Kubernetes 1.22 and later), which saves a request that no context bounds.
type watchedDiscovery struct{ discovery.DiscoveryInterface }

func (watchedDiscovery) ServerResourcesForGroupVersion(groupVersion string) (*metav1.APIResourceList, error) {
	return &metav1.APIResourceList{GroupVersion: groupVersion, APIResources: []metav1.APIResource{{
		Name: "pods/eviction", Kind: "Eviction", Namespaced: true, Group: policyv1.GroupName, Version: "v1",
	}}}, nil
}

type watchedCore struct {
	typedcore.CoreV1Interface
	drain *drain
}

func (w watchedCore) Pods(namespace string) typedcore.PodInterface {
	return watchedPods{w.CoreV1Interface.Pods(namespace), namespace, w.drain}
}

type watchedPods struct {
	typedcore.PodInterface
	namespace string
	drain     *drain
}

// Get keeps what the poll for a pod's end sees, and does not let a passing
// failure end the poll.
func (w watchedPods) Get(ctx context.Context, name string, options metav1.GetOptions) (*corev1.Pod, error) {
	pod, err := outlast(ctx, func() (*corev1.Pod, error) { return w.PodInterface.Get(ctx, name, options) })
	if err == nil {
		w.drain.saw(pod)
	}
	w.drain.unread(ctx, cluster.Access{Verb: "get", Resource: "pods"}, err)
	return pod, err
}

// List hides the pods that are to stay: kubectl's own filters come before any
// other, and refuse to drain a node for a pod that nothing would create again.
func (w watchedPods) List(ctx context.Context, options metav1.ListOptions) (*corev1.PodList, error) {
	list, err := outlast(ctx, func() (*corev1.PodList, error) { return w.PodInterface.List(ctx, options) })
	if err == nil {
		list.Items = slices.DeleteFunc(list.Items, w.drain.stays)
	}
	return list, err
}

// watchedApps reads DaemonSets: kubectl takes a failed read for a pod that may
// not go.
type watchedApps struct {
	typedapps.AppsV1Interface
	drain *drain
}

func (w watchedApps) DaemonSets(namespace string) typedapps.DaemonSetInterface {
	return watchedDaemonSets{w.AppsV1Interface.DaemonSets(namespace), w.drain}
}

type watchedDaemonSets struct {
	typedapps.DaemonSetInterface
	drain *drain
}

func (w watchedDaemonSets) Get(ctx context.Context, name string, options metav1.GetOptions) (*appsv1.DaemonSet, error) {
	daemonSet, err := outlast(ctx, func() (*appsv1.DaemonSet, error) { return w.DaemonSetInterface.Get(ctx, name, options) })
	w.drain.unread(ctx, cluster.Access{Verb: "get", Group: "apps", Resource: "daemonsets"}, err)
	return daemonSet, err
}

// unread ends the drain with what a read failed with for good: of kubectl one
// hears only the words, or that a pod may not go.
func (d *drain) unread(ctx context.Context, access cluster.Access, err error) {
	if err == nil || apierrors.IsNotFound(err) || ctx.Err() != nil {
		return
	}
	d.stop(act{op: d.a.op, on: d.a.on, access: access}.fail(ctx, err))
}

// outlast repeats a read until it succeeds, fails for good, or the context ends.
func outlast[T any](ctx context.Context, read func() (T, error)) (T, error) {
	for {
		got, err := read()
		if err == nil {
			return got, nil
		}
		again, wait := passingFailure(ctx, err)
		if !again {
			return got, err
		}
		if err := pause(ctx, wait); err != nil {
			return got, err
		}
	}
}

// Delete deletes the pod that was meant, and not its successor of that name.
func (w watchedPods) Delete(ctx context.Context, name string, options metav1.DeleteOptions) error {
	key := podKey{w.namespace, name}
	options.Preconditions = w.drain.precondition(key)
	_, err := outlast(ctx, func() (struct{}, error) {
		return struct{}{}, w.PodInterface.Delete(ctx, name, options)
	})
	switch {
	case err == nil:
		w.drain.accepted(key)
	case apierrors.IsConflict(err) && options.Preconditions != nil:
		return notFound(name)
	}
	return err
}

type watchedPolicy struct {
	typedpolicy.PolicyV1Interface
	drain *drain
}

func (w watchedPolicy) Evictions(string) typedpolicy.EvictionInterface { return evictions{w.drain} }

type evictions struct{ drain *drain }

// Evict asks until the pod is evicted or gone, the refusal is final, or the
// context ends. Only final answers reach kubectl.
func (e evictions) Evict(ctx context.Context, eviction *policyv1.Eviction) error {
	d, key := e.drain, podKey{eviction.Namespace, eviction.Name}
	eviction.DeleteOptions = cmp.Or(eviction.DeleteOptions, &metav1.DeleteOptions{})
	eviction.DeleteOptions.Preconditions = d.precondition(key)
	for {
		// Without client-go's own repeats, which would hide a refusal for as
		// long as its Retry-After says.
		err := d.client.PolicyV1().RESTClient().Post().
			AbsPath("/api/v1").Namespace(key.namespace).Resource("pods").Name(key.name).SubResource("eviction").
			Body(eviction).MaxRetries(0).Do(ctx).Error()
		if err == nil {
			d.accepted(key)
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		wait, final := d.judge(ctx, key, err)
		if final != nil {
			return final
		}
		if wait == 0 {
			return nil
		}
		if err := pause(ctx, wait); err != nil {
			return err
		}
	}
}

// judge says after a failed eviction how long to wait before the next, or what
// kubectl shall hear. Both zero means that the pod terminates already.
func (d *drain) judge(ctx context.Context, key podKey, err error) (wait time.Duration, final error) {
	status := apierror.Status(err)
	switch {
	case apierrors.IsNotFound(err):
		d.gone(key, true)
		return 0, err
	case apierrors.IsConflict(err):
		// Another pod bears the name by now, or this one changed meanwhile.
		_, over, final := d.still(ctx, key)
		if over {
			return 0, final
		}
		return time.Second, nil
	case apierrors.IsTooManyRequests(err):
		if !apierrors.HasStatusCause(err, policyv1.DisruptionBudgetCause) {
			// The API server's own throttling is no reason of the pod's.
			return max(apierror.RetryAfter(status), time.Second), nil
		}
		// A budget is asked before the precondition is looked at, so it may be
		// the successor's that refuses.
		pod, over, final := d.still(ctx, key)
		if over {
			return 0, final
		}
		why, budgets := d.budgets(ctx, pod, key, status)
		d.refuse(key, why, budgets...)
		return max(apierror.RetryAfter(status), evictAgain), nil
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		_, over, final := d.still(ctx, key)
		if over {
			return 0, final
		}
		return evictAgain, nil
	case apierrors.IsForbidden(err) && apierror.RBACDenied(err.Error()), apierrors.IsUnauthorized(err):
		a := act{op: "evict pod", on: "pod " + key.String(), access: cluster.Access{Verb: "create", Resource: "pods", Subresource: "eviction"}}
		denied := a.fail(ctx, err)
		d.stop(denied)
		return 0, denied
	case status.Code == http.StatusInternalServerError && status.Reason == "":
		// So the server answers where several budgets cover the pod, and
		// eviction by them is then impossible.
		pod, over, final := d.still(ctx, key)
		if over {
			return 0, final
		}
		if _, budgets := d.budgets(ctx, pod, key, status); len(budgets) > 1 {
			return d.never(key, status.Message, budgets...)
		}
		return time.Second, nil
	}
	if again, wait := passingFailure(ctx, err); again {
		return wait, nil
	}
	// An admission webhook, or what nobody has thought of.
	return d.never(key, err.Error())
}

// never notes a refusal that waiting does not end. It ends the drain, unless
// force is going to delete the pod at the deadline.
func (d *drain) never(key podKey, why string, budgets ...string) (time.Duration, error) {
	d.refuse(key, why, budgets...)
	if d.options.Force {
		return evictAgain, nil
	}
	d.stop(errRefused)
	return 0, errRefused
}

// still reads the pod to tell whether it has to be evicted still. If not, over
// is true and final is what kubectl shall hear. pod is nil where it could not be
// read.
func (d *drain) still(ctx context.Context, key podKey) (pod *corev1.Pod, over bool, final error) {
	precondition := d.precondition(key)
	pod, err := d.client.CoreV1().Pods(key.namespace).Get(ctx, key.name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err), err == nil && precondition != nil && pod.UID != *precondition.UID:
		d.gone(key, true)
		return nil, true, notFound(key.name)
	case err != nil:
		if ctx.Err() == nil {
			d.cluster.log.WarnContext(ctx, "pod whose eviction was refused cannot be read", "pod", key.String(), "error", err)
		}
		return nil, false, nil
	case pod.DeletionTimestamp != nil:
		d.saw(pod)
		return pod, true, nil
	}
	return pod, false, nil
}

// budgets names the PodDisruptionBudgets of the pod, and gives the API server's
// reason. Where they cannot be read, or the pod is
// nil, the name is taken from the API server's words.
func (d *drain) budgets(ctx context.Context, pod *corev1.Pod, key podKey, status metav1.Status) (why string, names []string) {
	why = status.Message
	var told string
	if status.Details != nil {
		for _, cause := range status.Details.Causes {
			if cause.Type != policyv1.DisruptionBudgetCause {
				continue
			}
			why += " " + cause.Message
			if rest, ok := strings.CutPrefix(cause.Message, "The disruption budget "); ok {
				told, _, _ = strings.Cut(rest, " ")
			}
		}
	}
	matching, err := d.matching(ctx, pod)
	if err != nil || len(matching) == 0 {
		if err != nil && ctx.Err() == nil {
			d.cluster.log.WarnContext(ctx, "budgets of a blocked pod cannot be read", "pod", key.String(), "error", err)
		}
		if told == "" {
			return why, nil
		}
		return why, []string{key.namespace + "/" + told}
	}
	return why, matching
}

// matching names the budgets whose selector matches the pod.
func (d *drain) matching(ctx context.Context, pod *corev1.Pod) ([]string, error) {
	if pod == nil {
		return nil, nil
	}
	all, err := d.budgetsIn(ctx, pod.Namespace)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, b := range covering(all, pod) {
		names = append(names, pod.Namespace+"/"+b.Name)
	}
	sort.Strings(names)
	return names, nil
}

// budgetsIn lists the namespace's budgets.
func (d *drain) budgetsIn(ctx context.Context, namespace string) ([]policyv1.PodDisruptionBudget, error) {
	var all []policyv1.PodDisruptionBudget
	options := metav1.ListOptions{Limit: podsPage}
	for {
		list, err := d.client.PolicyV1().PodDisruptionBudgets(namespace).List(ctx, options)
		if err != nil {
			return nil, fmt.Errorf("list budgets: %w", err)
		}
		all = append(all, list.Items...)
		if options.Continue = list.Continue; options.Continue == "" {
			return all, nil
		}
	}
}

// covering returns the budgets whose selector matches the pod.
func covering(budgets []policyv1.PodDisruptionBudget, pod *corev1.Pod) (covers []policyv1.PodDisruptionBudget) {
	for _, b := range budgets {
		selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
		if err == nil && selector.Matches(labels.Set(pod.Labels)) {
			covers = append(covers, b)
		}
	}
	return covers
}

// precondition makes a request hold for the pod that was listed, and no other.
func (d *drain) precondition(key podKey) *metav1.Preconditions {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.pods[key]
	if s == nil || s.uid == "" {
		return nil
	}
	uid := s.uid
	return &metav1.Preconditions{UID: &uid}
}

// saw notes a pod's state, unless it is another pod of that name.
func (d *drain) saw(pod *corev1.Pod) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if s := d.pods[podKey{pod.Namespace, pod.Name}]; s != nil && s.uid == pod.UID {
		d.note(pod)
	}
}

func (d *drain) accepted(key podKey) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if s := d.pods[key]; s != nil {
		s.evicted, s.refused, s.budget = true, "", ""
	}
}

// passingFailure says whether a request is worth repeating, and after how long.
func passingFailure(ctx context.Context, err error) (bool, time.Duration) {
	if ctx.Err() != nil {
		return false, 0
	}
	switch classified := (act{}).fail(ctx, err); fleet.KindOf(classified) {
	case fleet.KindTransient, fleet.KindThrottled:
		return true, max(apierror.RetryAfter(apierror.Status(err)), time.Second)
	default:
		return false, 0
	}
}

func notFound(name string) error {
	return apierrors.NewNotFound(corev1.Resource("pods"), name)
}
