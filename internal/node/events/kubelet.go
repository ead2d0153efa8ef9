package events

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/ortet/ortet/internal/node/bootstrap"
	"github.com/ortet/ortet/internal/wire"
)

// AskKubernetes sends one request to the API server with the kubelet's own
// credentials: Ask of bootstrap.APIServer.
//
// What they allow of a node, by the Node authorizer and the admission plugin
// NodeRestriction (Kubernetes 1.36, plugin/pkg/auth/authorizer/node,
// plugin/pkg/admission/noderestriction): patch its own Node but for taints, owners
// and labels of kubernetes.io and k8s.io, of which those below node.kubernetes.io
// and kubelet.kubernetes.io are its own; list pods by spec.nodeName; evict and
// delete pods that are bound to it; create Events.
type AskKubernetes func(ctx context.Context, method string, path func(node string) string, contentType string, body []byte) (bootstrap.Answer, error)

// excluded takes a Node out of load balancers while it is there, whatever its value.
// Source of fact: "Well-Known Labels, Annotations and Taints".
const excluded = "node.kubernetes.io/exclude-from-external-load-balancers"

// A kubeError is an answer of the API server that is none.
type kubeError struct {
	code int
	said string
}

func (r kubeError) Error() string { return "the API server answered " + r.said }

// kubernetes is this machine's Node and its pods, as the kubelet may see and change
// them.
type kubernetes struct {
	ask AskKubernetes

	mu   sync.Mutex
	name string // of the Node, as the certificate has it; "" until somebody asked
}

// do is one request; body is JSON, "" for none; an answer of 2xx is read into answer
// where that is not nil.
func (k *kubernetes) do(ctx context.Context, what, method string, path func(node string) string, body string, answer any) error {
	var text []byte
	if body != "" {
		text = []byte(body)
	}
	contentType := "application/json"
	if method == "PATCH" {
		contentType = "application/merge-patch+json"
	}
	a, err := k.ask(ctx, method, func(node string) string {
		k.mu.Lock()
		k.name = node
		k.mu.Unlock()
		return path(node)
	}, contentType, text)
	if err == nil && a.Code/100 != 2 {
		err = kubeError{a.Code, plain(a.Refusal(), maxDescription)}
	}
	if err == nil && answer != nil {
		err = json.Unmarshal(a.Body, answer)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// nodeName is the Node's.
func (k *kubernetes) nodeName(ctx context.Context) (string, error) {
	known := func() string {
		k.mu.Lock()
		defer k.mu.Unlock()
		return k.name
	}
	if known() == "" {
		// It is known once a path is made, whatever comes of the request.
		if _, err := k.read(ctx); known() == "" {
			return "", err
		}
	}
	return known(), nil
}

func refusedWith(err error, code int) bool {
	var refused kubeError
	return errors.As(err, &refused) && refused.code == code
}

func nodePath(node string) string { return "/api/v1/nodes/" + url.PathEscape(node) }

// node is as much of this machine's Node as matters.
type node struct {
	Kind     string `json:"kind"`
	Metadata struct {
		Labels      map[string]string `json:"labels"`
		Annotations map[string]string `json:"annotations"`
		Version     string            `json:"resourceVersion"`
	} `json:"metadata"`
	Spec struct {
		Unschedulable bool `json:"unschedulable"`
		Taints        []struct {
			Key string `json:"key"`
		} `json:"taints"`
	} `json:"spec"`
	Status struct {
		NodeInfo struct {
			BootID string `json:"bootID"`
		} `json:"nodeInfo"`
	} `json:"status"`
}

// marked returns the mark's content; an unreadable mark undoes only itself.
func (n *node) marked() (m wire.Leaving, ok bool) {
	text, ok := n.Metadata.Annotations[wire.LeavingMark]
	if ok && json.Unmarshal([]byte(text), &m) != nil {
		m = wire.Leaving{}
	}
	return m, ok
}

func (n *node) out() bool {
	_, out := n.Metadata.Labels[excluded]
	return out
}

// read reads this machine's Node. One that does not exist is a refusal with 404.
func (k *kubernetes) read(ctx context.Context) (node, error) {
	var n node
	if err := k.do(ctx, "reading the node's own Node", "GET", nodePath, "", &n); err != nil {
		return node{}, err
	}
	if n.Kind != "Node" {
		return node{}, fmt.Errorf("reading the node's own Node: it is a %q", plain(n.Kind, maxName))
	}
	return n, nil
}

// attempts limits the retries of a write after a conflict.
const attempts = 5

// A merge is a merge patch of a Node as JSON: more of its metadata, and more beside
// that, each with a comma first.
type merge struct{ metadata, spec string }

// change applies the patch that the function computes from the current Node; an empty patch
// writes nothing.
func (k *kubernetes) change(ctx context.Context, what string, patch func(*node) (merge, error)) error {
	for try := 1; ; try++ {
		n, err := k.read(ctx)
		if err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		p, err := patch(&n)
		if err != nil || p == (merge{}) {
			return err
		}
		err = k.do(ctx, what, "PATCH", func(node string) string { return nodePath(node) + "?fieldManager=ortet-node" },
			`{"metadata":{"resourceVersion":`+quote(n.Metadata.Version)+p.metadata+`}`+p.spec+`}`, nil)
		if !refusedWith(err, 409) || try == attempts {
			return err
		}
	}
}

// cordon keeps pods and load balancers away from the node, and marks it.
func (k *kubernetes) cordon(ctx context.Context, cause Type, stay bool, now time.Time) error {
	return k.change(ctx, "cordoning the node", func(n *node) (p merge, err error) {
		_, marked := n.marked()
		if marked && n.Spec.Unschedulable && n.out() {
			return p, nil
		}
		p.spec = `,"spec":{"unschedulable":true}`
		if !marked {
			text, err := json.Marshal(wire.Leaving{Cause: string(cause), At: now.UTC().Truncate(time.Second), Stay: stay, BootID: n.Status.NodeInfo.BootID, Cordoned: !n.Spec.Unschedulable, Excluded: !n.out()})
			if err != nil {
				return p, err
			}
			p.metadata = `,"annotations":{"` + wire.LeavingMark + `":` + quote(string(text)) + `}`
		}
		if !n.out() {
			p.metadata += `,"labels":{"` + excluded + `":""}`
		}
		return p, nil
	})
}

// errServersTaint means that the node cannot undo this by itself.
var errServersTaint = errors.New("the Node has the admission server's taint " + wire.LeavingMark + ", which a kubelet may not take away")

// restore undoes what the mark records. A Node without a mark, or that does not exist and
// will be created again, needs no undo; a Node leaving for another cause than an event is
// another client's to restore.
func (k *kubernetes) restore(ctx context.Context) error {
	err := k.change(ctx, "giving the node back", func(n *node) (p merge, err error) {
		m, ok := n.marked()
		if !ok || !slices.Contains(Types(), Type(m.Cause)) {
			return p, nil
		}
		for _, t := range n.Spec.Taints {
			if t.Key == wire.LeavingMark {
				return p, errServersTaint
			}
		}
		p.metadata = `,"annotations":{"` + wire.LeavingMark + `":null}`
		if m.Excluded {
			p.metadata += `,"labels":{"` + excluded + `":null}`
		}
		if m.Cordoned {
			p.spec = `,"spec":{"unschedulable":null}`
		}
		return p, nil
	})
	if refusedWith(err, 404) {
		return nil
	}
	return err
}

// A pod is as much of one as a drain asks for.
type pod struct {
	Metadata struct {
		Name            string            `json:"name"`
		Namespace       string            `json:"namespace"`
		UID             string            `json:"uid"`
		Annotations     map[string]string `json:"annotations"`
		DeletionTime    *time.Time        `json:"deletionTimestamp"`
		DeletionGrace   int64             `json:"deletionGracePeriodSeconds"`
		OwnerReferences []struct {
			Kind       string `json:"kind"`
			Controller bool   `json:"controller"`
		} `json:"ownerReferences"`
	} `json:"metadata"`
	Spec struct {
		Priority int    `json:"priority"`
		Grace    *int64 `json:"terminationGracePeriodSeconds"`
	} `json:"spec"`
	Status struct {
		Phase string `json:"phase"`
	} `json:"status"`
}

func (p pod) String() string { return p.Metadata.Namespace + "/" + p.Metadata.Name }

// stays reports whether a drain leaves the pod: it is the node's own and would be
// recreated, or it has ended. An ended pod that is being deleted is waited for until the
// kubelet sets the grace period to 0.
func (p pod) stays() bool {
	if _, mirror := p.Metadata.Annotations["kubernetes.io/config.mirror"]; mirror {
		return true
	}
	for _, o := range p.Metadata.OwnerReferences {
		if o.Kind == "DaemonSet" && o.Controller {
			return true
		}
	}
	return p.ended() && (p.Metadata.DeletionTime == nil || p.Metadata.DeletionGrace == 0)
}

// ended reports that no container of it runs, or will.
func (p pod) ended() bool { return p.Status.Phase == "Succeeded" || p.Status.Phase == "Failed" }

// grace is what the pod itself wants to end in; Kubernetes' default is 30 s.
func (p pod) grace() time.Duration {
	if p.Spec.Grace == nil {
		return 30 * time.Second
	}
	return time.Duration(min(max(*p.Spec.Grace, 0), 1<<31)) * time.Second
}

// Pages of pods: an answer of the API server is read up to 2 MiB, and a pod may have
// more than 20 KiB.
const (
	podsPage  = 60
	leastPage = 5
	maxPods   = 2000
)

// pods lists those of this node that have to go, the most important first.
func (k *kubernetes) pods(ctx context.Context) ([]pod, error) {
	var all []pod
	next, page := "", podsPage
	for {
		var list struct {
			Metadata struct {
				Continue string `json:"continue"`
			} `json:"metadata"`
			Items []pod `json:"items"`
		}
		err := k.do(ctx, "listing the node's pods", "GET", func(node string) string {
			return fmt.Sprintf("/api/v1/pods?fieldSelector=%s&limit=%d&continue=%s", url.QueryEscape("spec.nodeName="+node), page, url.QueryEscape(next))
		}, "", &list)
		var cut *json.SyntaxError
		if errors.As(err, &cut) && page > leastPage {
			page = max(page/4, leastPage) // it was longer than what is read
			continue
		}
		if refusedWith(err, 410) && next != "" { // the rest of that list has expired
			all, next = nil, ""
			continue
		}
		if err != nil {
			return nil, err
		}
		for _, p := range list.Items {
			if !p.stays() {
				all = important(all, p)
			}
		}
		if next = list.Metadata.Continue; next == "" || len(all) > maxPods {
			break
		}
	}
	return all, nil
}

// quote is a JSON string.
func quote(s string) string {
	text, err := json.Marshal(s)
	if err != nil {
		return `""` // a string always can
	}
	return string(text)
}

// deletion is DeleteOptions for this very pod; grace in seconds, negative is its own.
func (p pod) deletion(grace int64) string {
	own := ""
	if grace >= 0 {
		own = fmt.Sprintf(`"gracePeriodSeconds":%d,`, grace)
	}
	return `{"kind":"DeleteOptions","apiVersion":"v1",` + own + `"preconditions":{"uid":` + quote(p.Metadata.UID) + `}}`
}

func (p pod) path(more string) func(string) string {
	return func(string) string {
		return "/api/v1/namespaces/" + url.PathEscape(p.Metadata.Namespace) + "/pods/" + url.PathEscape(p.Metadata.Name) + more
	}
}

// evict asks for a pod's eviction. An error of 429 is a budget's.
func (k *kubernetes) evict(ctx context.Context, p pod, grace int64) error {
	return k.do(ctx, "evicting "+p.String(), "POST", p.path("/eviction"), `{"kind":"Eviction","apiVersion":"policy/v1","metadata":{"name":`+
		quote(p.Metadata.Name)+`,"namespace":`+quote(p.Metadata.Namespace)+`},"deleteOptions":`+p.deletion(grace)+`}`, nil)
}

// remove deletes a pod, which disruption budgets do not limit.
func (k *kubernetes) remove(ctx context.Context, p pod, grace int64) error {
	return k.do(ctx, "deleting "+p.String(), "DELETE", p.path(""), p.deletion(grace), nil)
}

// maxMessage is the API server's bound on an Event's message, in bytes.
const maxMessage = 1024

// event records an Event at the node's own Node, where the kubelet records its own,
// so that `kubectl describe node` shows it.
func (k *kubernetes) event(ctx context.Context, n Notice, at time.Time) error {
	kind := "Normal"
	if n.Warning {
		kind = "Warning"
	}
	stamp := at.UTC().Format(time.RFC3339)
	name, err := k.nodeName(ctx)
	if err != nil {
		return err
	}
	node := quote(name)
	return k.do(ctx, "recording an Event", "POST", func(string) string { return "/api/v1/namespaces/default/events?fieldManager=ortet-node" },
		`{"kind":"Event","apiVersion":"v1","metadata":{"generateName":`+quote(name+".")+`,"namespace":"default"},"involvedObject":{"kind":"Node","apiVersion":"v1","name":`+node+`,"uid":`+node+
			`},"reason":`+quote(plain(n.Reason, 128))+`,"message":`+quote(plain(n.Message, maxMessage))+`,"type":"`+kind+`","count":1,"firstTimestamp":"`+stamp+`","lastTimestamp":"`+stamp+
			`","source":{"component":"ortet-node","host":`+node+`},"reportingComponent":"ortet.io/ortet-node","reportingInstance":`+node+`}`, nil)
}
