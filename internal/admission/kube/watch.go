package kube

import (
	"context"
	"errors"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"golang.org/x/sync/errgroup"

	"github.com/ortet/ortet/internal/admission"
	"github.com/ortet/ortet/internal/wire"
)

// A Decided is what the approver did with a certificate request, for the audit log.
type Decided struct {
	Request string // name of the CertificateSigningRequest
	Signer  string
	By      string // the client
	Node    string // "" where it is for none that we know
	Verb    Verb
	Reason  string
	Message string
}

// workers is how many requests and tokens are worked on at once.
const workers = 8

// sweepEvery is how often what ran out is deleted.
const sweepEvery = time.Minute

// Backoff of what failed.
const (
	againAfter  = 200 * time.Millisecond
	againAtMost = time.Minute
)

// watched is what Run watches: certificate requests, Nodes, and what is kept of
// tokens, each as small as it will do.
type watched struct {
	requests, nodes, tokens cache.SharedIndexInformer
}

func newWatched(c *Cluster) (*watched, error) {
	certificates := c.client.CertificatesV1().CertificateSigningRequests()
	nodes := c.client.CoreV1().Nodes()
	records := c.client.CoreV1().ConfigMaps(c.namespace)
	tokensOnly := func(o metav1.ListOptions) metav1.ListOptions {
		o.LabelSelector = labelPurpose + "=" + tokenPurpose
		return o
	}
	w := &watched{
		requests: informer(&certificatesv1.CertificateSigningRequest{},
			func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				return certificates.List(ctx, o)
			},
			certificates.Watch, cache.Indexers{byNode: indexByNode}),
		nodes: informer(&corev1.Node{},
			func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return nodes.List(ctx, o) },
			nodes.Watch, cache.Indexers{}),
		tokens: informer(&corev1.ConfigMap{},
			func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				return records.List(ctx, tokensOnly(o))
			},
			func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
				return records.Watch(ctx, tokensOnly(o))
			}, cache.Indexers{byNode: func(o any) ([]string, error) {
				if m, ok := o.(*corev1.ConfigMap); ok {
					return []string{m.Data["node"]}, nil
				}
				return nil, nil
			}}),
	}
	return w, errors.Join(w.requests.SetTransform(leanRequest), w.nodes.SetTransform(leanNode), w.tokens.SetTransform(withoutManagers))
}

func informer(of runtime.Object, list func(context.Context, metav1.ListOptions) (runtime.Object, error), follow func(context.Context, metav1.ListOptions) (watch.Interface, error), indexers cache.Indexers) cache.SharedIndexInformer {
	return cache.NewSharedIndexInformer(&cache.ListWatch{ListWithContextFunc: list, WatchFuncWithContext: follow}, of, 0, indexers)
}

// byNode is the index of certificate requests by the node whose certificate is asked
// for, and of tokens by the node that they are for.
const byNode = "node"

// requestsOf returns the certificate requests for a node.
func (w *watched) requestsOf(node string) []*certificatesv1.CertificateSigningRequest {
	found, err := w.requests.GetIndexer().ByIndex(byNode, node)
	if err != nil {
		return nil // there is no such index, which is made with the watch
	}
	var all []*certificatesv1.CertificateSigningRequest
	for _, o := range found {
		if r, ok := o.(*certificatesv1.CertificateSigningRequest); ok {
			all = append(all, r)
		}
	}
	return all
}

// requestsFor names the certificate requests for a node.
func (w *watched) requestsFor(node string) []string {
	var names []string
	for _, r := range w.requestsOf(node) {
		names = append(names, r.Name)
	}
	return names
}

func indexByNode(o any) ([]string, error) {
	r, ok := o.(*certificatesv1.CertificateSigningRequest)
	if !ok {
		return nil, nil
	}
	if node := subjectNode(r); node != "" {
		return []string{node}, nil
	}
	return nil, nil
}

// subjectNode returns the node whose certificate is asked for, by whomever; "" where
// it is none's.
func subjectNode(r *certificatesv1.CertificateSigningRequest) string {
	if node, ok := r.Annotations[annotationNode]; ok && len(r.Spec.Request) == 0 {
		return node
	}
	wants, err := parseRequest(r.Spec)
	if err != nil {
		return ""
	}
	node, ok := strings.CutPrefix(wants.Subject.CommonName, nodeUser)
	if !ok {
		return ""
	}
	return node
}

// leanNode keeps whether a Node is Ready, and what a departure marked on it.
func leanNode(o any) (any, error) {
	n, ok := o.(*corev1.Node)
	if !ok {
		return o, nil
	}
	out := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name, UID: n.UID, ResourceVersion: n.ResourceVersion}}
	if mark, ok := n.Annotations[wire.LeavingMark]; ok {
		out.Annotations = map[string]string{wire.LeavingMark: mark}
	}
	out.Status.NodeInfo.BootID = n.Status.NodeInfo.BootID
	for _, condition := range n.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			out.Status.Conditions = []corev1.NodeCondition{{Type: condition.Type, Status: condition.Status}}
		}
	}
	return out, nil
}

func withoutManagers(o any) (any, error) {
	if m, ok := o.(*corev1.ConfigMap); ok {
		m.ManagedFields = nil
	}
	return o, nil
}

// A task is what a worker does next: the kind of thing and its name.
type task struct{ kind, name string }

const (
	taskRequest = "certificate request"
	taskToken   = "token"
	taskReturn  = "return of a node"
	taskGone    = "end of a node"
)

// A run is one run of the watch.
type run struct {
	cluster *Cluster
	seal    *seal
	watched *watched
	looks   *looks
	audit   func(Decided)
	queue   workqueue.TypedRateLimitingInterface[task]
}

// Run watches until ctx ends: it approves kubelets' certificates, ends tokens whose Node is
// Ready or that expired, undoes Leave's marks on a node that came back, records which
// certificates count, and deletes used nonces and old reports. It may be called once. One
// of several replicas is enough; more are harmless. audit is called for each decision, from
// many goroutines. It returns nil at ctx's end, and an error where it cannot begin.
func (c *Cluster) Run(ctx context.Context, directory admission.Directory, audit func(Decided)) error {
	if err := c.Prepare(ctx); err != nil {
		return err
	}
	s, err := c.sealer(ctx)
	if err != nil {
		return err
	}
	w, err := newWatched(c)
	if err != nil {
		return fail(ctx, "watch the cluster", "", err)
	}
	r := &run{
		cluster: c, seal: s, watched: w, audit: audit,
		looks: &looks{directory: directory, now: c.now, by: map[machine]*looked{}},
		queue: workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[task](againAfter, againAtMost)),
	}
	c.watched.Store(r.watched)
	defer c.watched.CompareAndSwap(r.watched, nil)
	handle := func(informer cache.SharedIndexInformer, task, gone func(any)) error {
		_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: task, UpdateFunc: func(_, o any) { task(o) }, DeleteFunc: gone})
		return err
	}
	for _, err := range []error{
		handle(r.watched.requests, r.request, nil), handle(r.watched.nodes, r.node, r.gone), handle(r.watched.tokens, r.token, nil),
	} {
		if err != nil {
			return fail(ctx, "watch the cluster", "", err)
		}
	}
	group, within := errgroup.WithContext(ctx)
	for _, informer := range []cache.SharedIndexInformer{r.watched.requests, r.watched.nodes, r.watched.tokens} {
		group.Go(func() error { informer.RunWithContext(within); return nil })
	}
	group.Go(func() error { <-within.Done(); r.queue.ShutDown(); return nil })
	group.Go(func() error { r.sweep(within); return nil })
	for range workers {
		group.Go(func() error {
			// What is decided goes by all certificates of a name, not by those seen so far.
			if !cache.WaitForCacheSync(within.Done(), r.watched.requests.HasSynced) {
				return nil
			}
			for r.next(within) {
			}
			return nil
		})
	}
	return group.Wait()
}

func (r *run) request(o any) {
	if request, ok := o.(*certificatesv1.CertificateSigningRequest); ok && !decided(request) {
		r.queue.Add(task{taskRequest, request.Name})
	}
}

func (r *run) node(o any) {
	node, ok := o.(*corev1.Node)
	if !ok {
		return
	}
	if ready, _ := readiness(node); !ready {
		return
	}
	records, err := r.watched.tokens.GetIndexer().ByIndex(byNode, node.Name)
	for _, o := range records {
		if record, ok := o.(*corev1.ConfigMap); ok && err == nil {
			r.queue.Add(task{taskToken, tokenIn(record)})
		}
	}
	if cameBack(node) {
		r.queue.Add(task{taskReturn, node.Name})
	}
}

func (r *run) gone(o any) {
	// Of a Node whose deletion the watch missed only the name is sure, which is all.
	if name, err := cache.DeletionHandlingMetaNamespaceKeyFunc(o); err == nil {
		r.queue.Add(task{taskGone, name})
	}
}

func (r *run) token(o any) {
	record, ok := o.(*corev1.ConfigMap)
	if !ok {
		return
	}
	t, err := tokenOf(r.seal, record)
	if err != nil {
		return
	}
	if left := t.expires.Sub(r.cluster.now()); left <= 0 {
		r.queue.Add(task{taskToken, t.id})
		return
	}
	if node, there, err := r.watched.nodes.GetStore().GetByKey(t.node); err == nil && there {
		r.node(node)
	}
}

// next works on one task; false at the queue's end.
func (r *run) next(ctx context.Context) bool {
	t, shut := r.queue.Get()
	if shut {
		return false
	}
	defer r.queue.Done(t)
	var err error
	switch t.kind {
	case taskRequest:
		err = r.decide(ctx, t.name)
	case taskToken:
		err = r.cluster.endIfDone(ctx, t.name)
	case taskGone:
		err = r.cluster.forgetRequests(ctx, t.name)
	case taskReturn:
		err = r.cluster.Return(ctx, t.name)
	}
	if err != nil && ctx.Err() == nil {
		r.cluster.log.WarnContext(ctx, "to be tried again", "what", t.kind, "name", t.name, "error", err)
		r.queue.AddRateLimited(t)
		return true
	}
	r.queue.Forget(t)
	return true
}

// endIfDone ends a token whose Node is Ready or whose time is up. It reads again, since
// what is watched may be from before the token was made.
func (c *Cluster) endIfDone(ctx context.Context, id string) error {
	t, known, err := c.tokenByID(ctx, id)
	if err != nil || !known {
		return err
	}
	if c.now().Before(t.expires) {
		state, err := c.Node(ctx, t.node)
		if err != nil || !state.Ready {
			return err
		}
	}
	return c.endToken(ctx, t)
}

// sweep deletes what ran out, and keeps what is to be kept, once a minute.
func (r *run) sweep(ctx context.Context) {
	ticker := time.NewTicker(sweepEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		for _, o := range r.watched.tokens.GetStore().List() {
			r.token(o)
		}
		if err := r.cluster.Sweep(ctx); err != nil && ctx.Err() == nil {
			r.cluster.log.WarnContext(ctx, "not swept", "error", err)
		}
	}
}

// Sweep deletes expired nonces, unread reports, and keys of an earlier version once their
// copies are complete, and where Run runs it records which certificates count. Run does so
// once a minute.
func (c *Cluster) Sweep(ctx context.Context) error {
	return errors.Join(c.sealEntries(ctx), c.keepCertificates(ctx), c.sweepNonces(ctx), c.sweepTold(ctx), c.dropEarlierKeys(ctx))
}

// Synced reports that Run runs, and has seen what it watches once.
func (c *Cluster) Synced() bool {
	w := c.watched.Load()
	return w != nil && w.requests.HasSynced() && w.nodes.HasSynced() && w.tokens.HasSynced()
}
