package kube

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	kubectl "k8s.io/kubectl/pkg/drain"

	"github.com/ortet/ortet/internal/cluster"
	"github.com/ortet/ortet/internal/cluster/apierror"
	"github.com/ortet/ortet/internal/fleet"
)

// evictAgain is kubectl drain's own pause before it asks again for an eviction
// that a budget refused.
const evictAgain = 5 * time.Second

// bindsWithin is how long a pod may still come to a node that was cordoned: the
// scheduler had decided before, and binds it. A node that is empty at once is looked
// at again after that.
const bindsWithin = time.Second

// forcedMargin is what a deletion may take beyond its grace period.
const forcedMargin = 30 * time.Second

// What a drain may ask of the API server in a second: as kubectl does.
const (
	drainQPS   = 50
	drainBurst = 300
)

// podsPage is kubectl drain's own page.
const podsPage = 500

var (
	errDeadline = errors.New("the drain's deadline passed")
	errRefused  = errors.New("an eviction was refused for good")
)

// Drain is kubectl's, on a client that watches over each request: see watched.
//
// Without force it gives up at the deadline, or at once where waiting cannot
// help: a pod that nothing would create again, or one with several budgets.
// With force it then deletes what is left, with the grace period, and after
// that without one; this may take the grace period and a minute longer.
//
// A negative grace period means each pod's own. A drain that has to fit is another:
// see fit.
func (c *Cluster) Drain(ctx context.Context, node string, options cluster.DrainOptions, report func(cluster.DrainEvent)) error {
	a := onNode("drain node", "get", node)
	if options.Deadline <= 0 {
		return &fleet.Error{Op: a.op, Resource: a.on, Kind: fleet.KindInvalid, Err: errors.New("a drain needs a deadline")}
	}
	d := &drain{a: a, cluster: c, node: node, uid: options.UID, options: options, report: report, pods: map[podKey]*podState{}}
	if !options.Fit { // which looks at the pods first
		if err := d.begin(ctx); err != nil {
			return err
		}
	}
	// Its own request budget, so that the polls of a hundred terminating pods
	// never stand before the request that uncordons.
	config := rest.CopyConfig(c.config)
	if c.ownQPS {
		config.QPS, config.Burst = drainQPS, drainBurst
	}
	var err error
	if d.client, err = kubernetes.NewForConfigAndClient(config, c.http); err != nil {
		return a.fail(ctx, err)
	}
	work, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	limited, release := context.WithTimeoutCause(work, options.Deadline, errDeadline)
	defer release()
	d.stop = stop

	if options.Fit {
		err = d.fit(limited)
	} else {
		err = d.evict(limited)
	}
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return d.interrupted(ctx)
	}
	if options.Fit {
		return a.fail(ctx, err)
	}
	switch cause := context.Cause(limited); {
	case errors.Is(cause, errDeadline) && options.Force:
		return d.force(ctx)
	case errors.Is(cause, errDeadline):
		return d.blocked()
	case errors.Is(cause, errRefused):
		return d.refusedForGood()
	case cause != nil:
		return a.fail(ctx, cause)
	}
	return a.fail(ctx, err)
}

// drain is one drain under way.
type drain struct {
	a       act
	cluster *Cluster
	client  kubernetes.Interface
	node    string
	uid     string // of the Node; "" until begin
	options cluster.DrainOptions
	stop    context.CancelCauseFunc

	mu     sync.Mutex // guards what follows, and serialises report
	report func(cluster.DrainEvent)
	pods   map[podKey]*podState
}

type podKey struct{ namespace, name string }

func (k podKey) String() string { return k.namespace + "/" + k.name }

// podState is the last that was heard of a pod that has to go.
type podState struct {
	uid        types.UID
	grace      time.Duration // its own
	evicted    bool          // the API server accepted an eviction or deletion
	gone       bool
	ended      bool      // its containers have
	cut        bool      // its grace period was cut, by force
	deleting   time.Time // deletionTimestamp
	finalizers []string
	refused    string // why the last eviction was refused; "" where it was not
	budget     string
}

// begin finds the Node that is to be drained, which has to be cordoned.
func (d *drain) begin(ctx context.Context) error {
	found, err := d.cluster.Node(ctx, d.node)
	switch {
	case err != nil:
		return err
	case d.uid != "" && found.UID != d.uid:
		return d.another()
	case !found.Unschedulable:
		return &fleet.Error{Op: d.a.op, Resource: d.a.on, Kind: fleet.KindInvalid, Err: errors.New("it is schedulable, so pods would come back"), Remedy: "cordon it first"}
	}
	d.uid = found.UID
	return nil
}

// another is the end of a drain whose Node is gone, where another one has its name.
func (d *drain) another() error {
	return &fleet.Error{Op: d.a.op, Resource: d.a.on, Kind: fleet.KindNotFound, Err: errors.New("it was deleted, and another Node has its name")}
}

// own says that pods which were listed before are the Node's own, and not those of
// another that was made under its name: then the Node was still the same afterwards, or
// gone. They are evicted by their UIDs.
func (d *drain) own(ctx context.Context) error {
	found, err := d.client.CoreV1().Nodes().Get(ctx, d.node, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err == nil && string(found.UID) != d.uid:
		return d.another()
	}
	return err
}

// evict runs kubectl's drain until no pod is left that has to go: pods that came
// before the cordon was seen are found by looking again.
func (d *drain) evict(ctx context.Context) error {
	helper := d.helper(ctx)
	for first := true; ; first = false {
		pods, err := d.find(ctx, helper, first)
		switch {
		case err != nil:
			return err
		case len(pods) == 0 && first && pause(ctx, bindsWithin) == nil:
			continue
		case len(pods) == 0:
			return nil
		}
		if err := helper.DeleteOrEvictPods(pods); err != nil {
			return err
		}
	}
}

// find lists the pods that have to go, and notes them. The first list follows begin at
// once, which has seen whose they are.
func (d *drain) find(ctx context.Context, helper *kubectl.Helper, first bool) ([]corev1.Pod, error) {
	list, errs := helper.GetPodsForDeletion(d.node)
	if len(errs) > 0 {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if list == nil {
			a := act{op: d.a.op, on: d.a.on, access: cluster.Access{Verb: "list", Resource: "pods"}}
			return nil, a.fail(ctx, errors.Join(errs...))
		}
		return nil, d.refusedByKubectl(errs)
	}
	pods := list.Pods()
	if !first && len(pods) > 0 {
		if _, err := outlast(ctx, func() (struct{}, error) { return struct{}{}, d.own(ctx) }); err != nil {
			return nil, err
		}
	}
	d.expect(pods)
	return pods, nil
}

func (d *drain) helper(ctx context.Context) *kubectl.Helper {
	return &kubectl.Helper{
		Ctx: ctx, Client: watched{d.client, d},
		Force:                d.options.Force,
		GracePeriodSeconds:   seconds(d.options.GracePeriod),
		IgnoreAllDaemonSets:  true,
		DeleteEmptyDirData:   true,
		Timeout:              0, // the context has the deadline, and its cause
		EvictErrorRetryDelay: evictAgain,
		ChunkSize:            podsPage,
		Out:                  io.Discard,
		ErrOut:               io.Discard,
		OnPodDeletionOrEvictionStarted: func(pod *corev1.Pod, eviction bool) {
			what := "evicting"
			if !eviction {
				what = "deleted by force"
			}
			d.tell(podKey{pod.Namespace, pod.Name}, what, "")
		},
		OnPodDeletionOrEvictionFinished: func(pod *corev1.Pod, eviction bool, err error) {
			if err == nil {
				d.gone(podKey{pod.Namespace, pod.Name}, eviction)
			}
		},
	}
}

// stays says of a pod that the drain leaves it.
func (d *drain) stays(pod corev1.Pod) bool {
	return pod.Namespace == d.cluster.namespace && slices.Contains(d.options.Leave, pod.Name)
}

// seconds rounds up, since 0 would mean at once.
func seconds(d time.Duration) int {
	if d < 0 {
		return -1
	}
	return int((d + time.Second - 1) / time.Second)
}

// force deletes what is left: first with the grace period what is not yet
// terminating, then without one what had it.
//
// It looks again first: a pod that came meanwhile was not asked to go, since the
// eviction waited for one that a budget holds.
func (d *drain) force(ctx context.Context) error {
	if _, err := d.find(ctx, d.helper(ctx), false); err != nil {
		if ctx.Err() != nil {
			return d.interrupted(ctx)
		}
		return err
	}
	grace := d.options.GracePeriod
	if grace < 0 {
		for _, s := range d.left() {
			grace = max(grace, s.grace)
		}
	}
	passes := []struct {
		grace time.Duration
		pods  func(podState) bool
	}{
		{grace, func(s podState) bool { return !s.evicted && s.deleting.IsZero() }},
		{0, func(podState) bool { return true }},
	}
	for _, pass := range passes {
		var pods []corev1.Pod
		for key, s := range d.left() {
			if pass.pods(s) {
				pods = append(pods, corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: key.namespace, Name: key.name, UID: s.uid}})
			}
		}
		if len(pods) == 0 {
			continue
		}
		sort.Slice(pods, func(i, j int) bool {
			return pods[i].Namespace+"/"+pods[i].Name < pods[j].Namespace+"/"+pods[j].Name
		})
		limited, release := context.WithTimeoutCause(ctx, pass.grace+forcedMargin, errDeadline)
		helper := d.helper(limited)
		helper.DisableEviction = true
		helper.GracePeriodSeconds = seconds(pass.grace)
		err := helper.DeleteOrEvictPods(pods)
		expired := limited.Err() != nil
		release()
		switch {
		case ctx.Err() != nil:
			return d.interrupted(ctx)
		case err != nil && !expired:
			a := act{op: "delete pods by force", on: d.a.on, access: cluster.Access{Verb: "delete", Resource: "pods"}}
			return a.fail(ctx, err)
		}
	}
	if len(d.left()) > 0 {
		return d.blocked()
	}
	return nil
}

// expect notes the pods that have to go.
func (d *drain) expect(pods []corev1.Pod) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i := range pods {
		d.note(&pods[i])
	}
}

// note records what was read of a pod. The caller holds d.mu.
func (d *drain) note(pod *corev1.Pod) {
	key := podKey{pod.Namespace, pod.Name}
	s := d.pods[key]
	if s == nil || s.uid != pod.UID {
		s = &podState{uid: pod.UID}
		d.pods[key] = s
	}
	if g := pod.Spec.TerminationGracePeriodSeconds; g != nil {
		s.grace = time.Duration(*g) * time.Second
	}
	if pod.DeletionTimestamp != nil {
		s.deleting = pod.DeletionTimestamp.Time
	}
	s.finalizers, s.ended = pod.Finalizers, ended(pod)
}

// left returns the pods that are still there.
func (d *drain) left() map[podKey]podState {
	d.mu.Lock()
	defer d.mu.Unlock()
	left := map[podKey]podState{}
	for key, s := range d.pods {
		if !s.gone {
			left[key] = *s
		}
	}
	return left
}

func (d *drain) gone(key podKey, eviction bool) {
	d.mu.Lock()
	s := d.pods[key]
	known := s != nil && !s.gone
	if known {
		s.gone = true
	}
	d.mu.Unlock()
	if known && eviction {
		d.tell(key, "evicted", "")
	}
}

func (d *drain) tell(key podKey, what, because string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.report == nil {
		return
	}
	event := cluster.DrainEvent{Pod: key.String(), What: what, Because: because}
	for _, s := range d.pods {
		if !s.gone {
			event.Left++
		}
	}
	d.report(event)
}

// refuse notes that an eviction was refused, and tells it once for each reason.
func (d *drain) refuse(key podKey, why string, budgets ...string) {
	budget := strings.Join(budgets, ", ")
	d.mu.Lock()
	s := d.pods[key]
	if s == nil {
		s = &podState{}
		d.pods[key] = s
	}
	news := s.refused != why || s.budget != budget
	s.refused, s.budget = why, budget
	d.mu.Unlock()
	if !news {
		return
	}
	because := why
	if budget != "" {
		because = "PodDisruptionBudget " + budget
	}
	d.tell(key, "blocked", because)
}

// refusedByKubectl reads what kubectl says before it evicts anything: one error
// for each reason, "cannot delete <reason>: ns/a, ns/b".
func (d *drain) refusedByKubectl(errs []error) error {
	blocked := &cluster.BlockedError{Node: d.node}
	for _, err := range errs {
		text := strings.TrimPrefix(err.Error(), "cannot delete ")
		why, pods := text, ""
		if i := strings.LastIndex(text, ": "); i >= 0 {
			why, pods = text[:i], text[i+2:]
		}
		if apierror.RBACDenied(why) {
			a := act{op: d.a.op, on: d.a.on, access: cluster.Access{Verb: "get", Group: "apps", Resource: "daemonsets"}}
			return &fleet.Error{Op: a.op, Resource: a.on, Kind: fleet.KindDenied, Remedy: a.grant(), Err: err}
		}
		for pod := range strings.SplitSeq(pods, ", ") {
			blocked.Pods = append(blocked.Pods, fleet.BlockedPod{Pod: pod, Why: why})
		}
	}
	sort.Slice(blocked.Pods, func(i, j int) bool { return blocked.Pods[i].Pod < blocked.Pods[j].Pod })
	return d.blockedBy(blocked)
}

// blocked names what is left, and why, of what was heard; it asks nothing, since
// the node waits to be given back.
func (d *drain) blocked() error {
	return d.blockedBy(&cluster.BlockedError{Node: d.node, Pods: d.stuck(func(podState) bool { return true })})
}

// refusedForGood names only those pods whose eviction was refused: the others
// were on their way.
func (d *drain) refusedForGood() error {
	return d.blockedBy(&cluster.BlockedError{Node: d.node, Pods: d.stuck(func(s podState) bool { return s.refused != "" })})
}

func (d *drain) stuck(which func(podState) bool) []fleet.BlockedPod {
	var pods []fleet.BlockedPod
	for key, s := range d.left() {
		if which(s) {
			pods = append(pods, fleet.BlockedPod{Pod: key.String(), Budget: s.budget, Why: s.why()})
		}
	}
	sort.Slice(pods, func(i, j int) bool { return pods[i].Pod < pods[j].Pod })
	return pods
}

func (s podState) why() string {
	switch {
	case len(s.finalizers) > 0 && (s.evicted || !s.deleting.IsZero()):
		return "it is terminating, and waits for its finalizers " + strings.Join(s.finalizers, ", ")
	case s.evicted || !s.deleting.IsZero():
		return "it is terminating, and its containers have not ended"
	case s.refused != "":
		return s.refused
	default:
		return "its eviction was not answered"
	}
}

func (d *drain) blockedBy(blocked *cluster.BlockedError) error {
	remedy := "make room for the budgets and remove the pods named, or choose another donor"
	if !d.options.Force {
		remedy += ", or force the drain"
	}
	return &fleet.Error{Op: d.a.op, Resource: d.a.on, Kind: fleet.KindBlocked, Remedy: remedy, Err: blocked}
}

// interrupted is the caller's context's end, with what blocked until then.
func (d *drain) interrupted(ctx context.Context) error {
	err := context.Cause(ctx)
	pods := d.stuck(func(s podState) bool { return s.refused != "" })
	kind := fleet.KindUnknown
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		kind = fleet.KindTimedOut
	}
	if len(pods) > 0 {
		err = fmt.Errorf("%w; until then: %w", err, &cluster.BlockedError{Node: d.node, Pods: pods})
	}
	return &fleet.Error{Op: d.a.op, Resource: d.a.on, Kind: kind, Err: err}
}
