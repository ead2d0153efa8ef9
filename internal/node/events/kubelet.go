package events

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"
)

// AskKubernetes sends one request to the API server with the kubelet's own
// credentials: bootstrap.AskAsKubelet.
//
// What they allow of a node, by the Node authorizer and the admission plugin
// NodeRestriction (Kubernetes 1.36, plugin/pkg/auth/authorizer/node,
// plugin/pkg/admission/noderestriction): patch its own Node but for taints, owners
// and labels of kubernetes.io and k8s.io, of which those below node.kubernetes.io
// and kubelet.kubernetes.io are its own; list pods by spec.nodeName; evict and
// delete pods that are bound to it; create Events.
type AskKubernetes func(ctx context.Context, method string, path func(node string) string, contentType string, body []byte) (code int, status string, answer []byte, err error)

// excluded takes a Node out of load balancers while it is there, whatever its value.
// Source of fact: "Well-Known Labels, Annotations and Taints".
const excluded = "node.kubernetes.io/exclude-from-external-load-balancers"

// A kubeRefusal is an answer of the API server that is none.
type kubeRefusal struct {
	code int
	said string
}

func (r kubeRefusal) Error() string { return "the API server answered " + r.said }

// kubernetes is this machine's Node and its pods, as the kubelet may see and change
// them.
type kubernetes struct {
	ask AskKubernetes

	mu   sync.Mutex
	name string // of the Node, as the certificate has it; "" until somebody asked
}

// do is one request; a body is sent as JSON, an answer of 2xx is read into answer
// where that is not nil.
func (k *kubernetes) do(ctx context.Context, what, method string, path func(node string) string, contentType string, body, answer any) error {
	var text []byte
	if body != nil {
		var err error
		if text, err = json.Marshal(body); err != nil {
			return err
		}
	}
	code, status, said, err := k.ask(ctx, method, func(node string) string {
		k.mu.Lock()
		k.name = node
		k.mu.Unlock()
		return path(node)
	}, contentType, text)
	if err == nil && code/100 != 2 {
		var s struct {
			Message string `json:"message"`
		}
		_ = json.Unmarshal(said, &s) // "" where it is none of Kubernetes'
		err = kubeRefusal{code, strings.TrimSuffix(status+": "+plain(s.Message, maxDescription), ": ")}
	}
	if err == nil && answer != nil {
		err = json.Unmarshal(said, answer)
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
	var refused kubeRefusal
	return errors.As(err, &refused) && refused.code == code
}

func nodePath(node string) string { return "/api/v1/nodes/" + url.PathEscape(node) }

// leavingMark is the annotation, and the taint's key, by which the admission server
// marks a Node that leaves (internal/admission/kube). The annotation says what was
// changed, so that only that is undone, by whoever does so. A kubelet may not change
// taints, so its own mark is the annotation alone.
const leavingMark = "ortet.io/leaving"

// A mark is the annotation's JSON.
type mark struct {
	Cause    string    `json:"cause"`
	At       time.Time `json:"at"`
	Stay     bool      `json:"stay,omitempty"`
	BootID   string    `json:"bootId,omitempty"`   // in which it left
	Cordoned bool      `json:"cordoned,omitempty"` // it was schedulable
	Excluded bool      `json:"excluded,omitempty"` // it was in load balancers
}

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

// marked gives what the mark says; one that cannot be read undoes nothing but
// itself.
func (n node) marked() (m mark, ok bool) {
	text, ok := n.Metadata.Annotations[leavingMark]
	if ok && json.Unmarshal([]byte(text), &m) != nil {
		m = mark{}
	}
	return m, ok
}

func (n node) out() bool {
	_, out := n.Metadata.Labels[excluded]
	return out
}

// read reads this machine's Node. One that does not exist is a refusal with 404.
func (k *kubernetes) read(ctx context.Context) (node, error) {
	var n node
	if err := k.do(ctx, "reading the node's own Node", "GET", nodePath, "", nil, &n); err != nil {
		return node{}, err
	}
	if n.Kind != "Node" {
		return node{}, fmt.Errorf("reading the node's own Node: it is a %q", plain(n.Kind, maxName))
	}
	return n, nil
}

// attempts bounds how often a write is tried anew where the Node changed meanwhile.
const attempts = 5

// change patches the Node by what patch gives of it as it is: nothing where that is
// nil.
func (k *kubernetes) change(ctx context.Context, what string, patch func(node) (map[string]any, error)) error {
	for try := 1; ; try++ {
		n, err := k.read(ctx)
		if err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		p, err := patch(n)
		if err != nil || p == nil {
			return err
		}
		if metadata, ok := p["metadata"].(map[string]any); ok {
			metadata["resourceVersion"] = n.Metadata.Version
		}
		err = k.do(ctx, what, "PATCH", func(node string) string { return nodePath(node) + "?fieldManager=ortet-node" }, "application/merge-patch+json", p, nil)
		if !refusedWith(err, 409) || try == attempts {
			return err
		}
	}
}

// cordon keeps pods and load balancers away from the node, and marks it.
func (k *kubernetes) cordon(ctx context.Context, cause Type, stay bool, now time.Time) error {
	return k.change(ctx, "cordoning the node", func(n node) (map[string]any, error) {
		_, marked := n.marked()
		if marked && n.Spec.Unschedulable && n.out() {
			return nil, nil
		}
		metadata := map[string]any{}
		if !marked {
			text, err := json.Marshal(mark{Cause: string(cause), At: now.UTC().Truncate(time.Second), Stay: stay, BootID: n.Status.NodeInfo.BootID, Cordoned: !n.Spec.Unschedulable, Excluded: !n.out()})
			if err != nil {
				return nil, err
			}
			metadata["annotations"] = map[string]any{leavingMark: string(text)}
		}
		if !n.out() {
			metadata["labels"] = map[string]any{excluded: ""}
		}
		return map[string]any{"metadata": metadata, "spec": map[string]any{"unschedulable": true}}, nil
	})
}

// errServersTaint says that the node cannot give itself back.
var errServersTaint = errors.New("the Node has the admission server's taint " + leavingMark + ", which a kubelet may not take away")

// restore undoes what the mark says. A Node that is not marked is given back, and so
// is one that does not exist: it will be made anew. One that leaves for another cause
// than an event is somebody else's to give back.
func (k *kubernetes) restore(ctx context.Context) error {
	err := k.change(ctx, "giving the node back", func(n node) (map[string]any, error) {
		m, ok := n.marked()
		if !ok || !slices.Contains(Types(), Type(m.Cause)) {
			return nil, nil
		}
		for _, t := range n.Spec.Taints {
			if t.Key == leavingMark {
				return nil, errServersTaint
			}
		}
		metadata := map[string]any{"annotations": map[string]any{leavingMark: nil}}
		if m.Excluded {
			metadata["labels"] = map[string]any{excluded: nil}
		}
		p := map[string]any{"metadata": metadata}
		if m.Cordoned {
			p["spec"] = map[string]any{"unschedulable": nil}
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

// stays says that a drain leaves it: the node's own, which would come back, and what
// has ended.
func (p pod) stays() bool {
	if _, mirror := p.Metadata.Annotations["kubernetes.io/config.mirror"]; mirror {
		return true
	}
	for _, o := range p.Metadata.OwnerReferences {
		if o.Kind == "DaemonSet" && o.Controller {
			return true
		}
	}
	return p.Status.Phase == "Succeeded" || p.Status.Phase == "Failed"
}

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
		}, "", nil, &list)
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
				all = append(all, p)
			}
		}
		if next = list.Metadata.Continue; next == "" || len(all) > maxPods {
			break
		}
	}
	return important(all), nil
}

type preconditions struct {
	UID string `json:"uid"`
}

type deleteOptions struct {
	Kind          string         `json:"kind"`
	APIVersion    string         `json:"apiVersion"`
	Grace         *int64         `json:"gracePeriodSeconds,omitempty"`
	Preconditions *preconditions `json:"preconditions,omitempty"`
}

func (p pod) deletion(grace *int64) deleteOptions {
	return deleteOptions{Kind: "DeleteOptions", APIVersion: "v1", Grace: grace, Preconditions: &preconditions{p.Metadata.UID}}
}

func (p pod) path(more string) func(string) string {
	return func(string) string {
		return "/api/v1/namespaces/" + url.PathEscape(p.Metadata.Namespace) + "/pods/" + url.PathEscape(p.Metadata.Name) + more
	}
}

// evict asks for a pod's eviction; grace nil is the pod's own. An error of 429 is a
// budget's.
func (k *kubernetes) evict(ctx context.Context, p pod, grace *int64) error {
	type names struct {
		Name      string `json:"name"`
		Namespace string `json:"namespace"`
	}
	return k.do(ctx, "evicting "+p.String(), "POST", p.path("/eviction"), "application/json", struct {
		Kind          string        `json:"kind"`
		APIVersion    string        `json:"apiVersion"`
		Metadata      names         `json:"metadata"`
		DeleteOptions deleteOptions `json:"deleteOptions"`
	}{"Eviction", "policy/v1", names{p.Metadata.Name, p.Metadata.Namespace}, p.deletion(grace)}, nil)
}

// remove deletes a pod whatever budgets say.
func (k *kubernetes) remove(ctx context.Context, p pod, grace *int64) error {
	return k.do(ctx, "deleting "+p.String(), "DELETE", p.path(""), "application/json", p.deletion(grace), nil)
}

// maxMessage is the API server's bound on an Event's message, in bytes.
const maxMessage = 1024

// event records an Event at the node's own Node, where the kubelet records its own,
// so that `kubectl describe node` shows it.
func (k *kubernetes) event(ctx context.Context, n Notice, at time.Time) error {
	type object struct {
		Kind       string `json:"kind"`
		APIVersion string `json:"apiVersion"`
		Name       string `json:"name"`
		UID        string `json:"uid"`
	}
	type metadata struct {
		Name      string `json:"generateName"`
		Namespace string `json:"namespace"`
	}
	type source struct {
		Component string `json:"component"`
		Host      string `json:"host"`
	}
	type event struct {
		Kind       string   `json:"kind"`
		APIVersion string   `json:"apiVersion"`
		Metadata   metadata `json:"metadata"`
		Involved   object   `json:"involvedObject"`
		Reason     string   `json:"reason"`
		Message    string   `json:"message"`
		Type       string   `json:"type"`
		Count      int      `json:"count"`
		First      string   `json:"firstTimestamp"`
		Last       string   `json:"lastTimestamp"`
		Source     source   `json:"source"`
		Controller string   `json:"reportingComponent"`
		Instance   string   `json:"reportingInstance"`
	}
	kind := "Normal"
	if n.Warning {
		kind = "Warning"
	}
	stamp := at.UTC().Format(time.RFC3339)
	name, err := k.nodeName(ctx)
	if err != nil {
		return err
	}
	return k.do(ctx, "recording an Event", "POST", func(string) string { return "/api/v1/namespaces/default/events?fieldManager=ortet-node" }, "application/json", event{
		Kind: "Event", APIVersion: "v1", Metadata: metadata{name + ".", "default"}, Involved: object{"Node", "v1", name, name},
		Reason: plain(n.Reason, 128), Message: plain(n.Message, maxMessage), Type: kind, Count: 1, First: stamp, Last: stamp,
		Source: source{"ortet-node", name}, Controller: "ortet.io/ortet-node", Instance: name,
	}, nil)
}
