package events

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/ortet/ortet/internal/node/bootstrap"
	"github.com/ortet/ortet/internal/wire"
	"github.com/ortet/ortet/test/kubesim"
	"github.com/ortet/ortet/test/syncbuffer"
)

const (
	nodeName = "pool1000003"
	vmName   = "pool1_3"
)

// A world is one machine with its metadata service, its cluster and its admission
// server, in virtual time.
type world struct {
	t     *testing.T
	kube  *kubesim.Server
	azure *azure
	state string
	log   *syncbuffer.Buffer

	mu       sync.Mutex
	told     []string // pods, in the order in which they were told to end, with their grace
	down     bool     // the API server does not answer
	webhooks []Told
	server   *server
	boot     string
}

// azure is the metadata service. What is acknowledged starts a second later, and is
// over after that when over is called.
type azure struct {
	mu          sync.Mutex
	incarnation int
	events      []map[string]any
	approved    []string
	asked       int
	status      int           // answers that instead of 200
	hangs       bool          // does not answer
	skew        time.Duration // of its clock
}

func (z *azure) ask(ctx context.Context, method, path string, body []byte) (bootstrap.Answer, error) {
	z.mu.Lock()
	z.asked++
	hangs := z.hangs
	z.mu.Unlock()
	if hangs {
		<-ctx.Done()
		return bootstrap.Answer{}, ctx.Err()
	}
	z.mu.Lock()
	defer z.mu.Unlock()
	r := bootstrap.Answer{Code: 200, Date: time.Now().Add(z.skew).UTC().Truncate(time.Second)}
	switch {
	case z.status != 0:
		r.Code = z.status
	case path == namePath:
		r.Body = []byte(vmName)
	case method == "POST":
		var p struct{ StartRequests []struct{ EventID string } }
		if err := json.Unmarshal(body, &p); err != nil || len(p.StartRequests) != 1 {
			return bootstrap.Answer{Code: 400}, nil
		}
		z.approved = append(z.approved, p.StartRequests[0].EventID)
	default:
		text, err := json.Marshal(map[string]any{"DocumentIncarnation": z.incarnation, "Events": z.events})
		if err != nil {
			return bootstrap.Answer{}, err
		}
		r.Body = text
	}
	return r, nil
}

func (z *azure) change(change func()) {
	z.mu.Lock()
	defer z.mu.Unlock()
	change()
	z.incarnation++
}

// schedule posts an event for so long from now.
func (z *azure) schedule(id string, t Type, in time.Duration, resources ...string) {
	if len(resources) == 0 {
		resources = []string{vmName}
	}
	z.change(func() {
		z.events = append(z.events, map[string]any{"EventId": id, "EventType": t, "ResourceType": "VirtualMachine", "Resources": resources,
			"EventStatus": "Scheduled", "NotBefore": time.Now().Add(z.skew + in).UTC().Format(http.TimeFormat), "Description": "", "EventSource": "Platform", "DurationInSeconds": -1})
	})
}

func (z *azure) begin(id string) {
	z.change(func() {
		for _, e := range z.events {
			if e["EventId"] == id {
				e["EventStatus"], e["NotBefore"] = "Started", ""
			}
		}
	})
}

func (z *azure) over(id string) {
	z.change(func() {
		z.events = slices.DeleteFunc(z.events, func(e map[string]any) bool { return e["EventId"] == id })
	})
}

func (z *azure) acknowledged() []string {
	z.mu.Lock()
	defer z.mu.Unlock()
	return slices.Clone(z.approved)
}

// server is the admission server: it drains as the real one promises, by the API
// server.
type server struct {
	w        *world
	mu       sync.Mutex
	mode     string // "": works; "refuses"; "hangs"; "stalls" once it has begun
	leaves   []wire.LeaveRequest
	departed []string
	rejoined int
	held     bool
}

func (s *server) how() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mode
}

func (s *server) set(mode string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mode = mode
}

func (s *server) Hold() error    { return s.hold(true) }
func (s *server) Release() error { return s.hold(false) }

func (s *server) hold(held bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held = held
	return nil
}

func (s *server) isHeld() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.held
}

func (s *server) Leave(ctx context.Context, r wire.LeaveRequest) (wire.Leave, error) {
	if err := r.Validate(); err != nil {
		return wire.Leave{}, err
	}
	if !r.Stay && !s.isHeld() {
		s.w.t.Error("a machine that leaves may join meanwhile")
	}
	s.mu.Lock()
	s.leaves = append(s.leaves, r)
	s.mu.Unlock()
	switch s.how() {
	case "refuses":
		return wire.Leave{}, errors.New("connection refused")
	case "hangs":
		<-ctx.Done()
		return wire.Leave{}, ctx.Err()
	}
	k := &kubernetes{ask: s.w.ask}
	if err := k.cordon(ctx, Type(r.Cause), r.Stay, time.Now()); err != nil {
		return wire.Leave{}, err
	}
	s.w.kube.Change("nodes", "", nodeName, func(o runtime.Object) {
		if n, ok := o.(*corev1.Node); ok && len(n.Spec.Taints) == 0 {
			n.Spec.Taints = []corev1.Taint{{Key: wire.LeavingMark, Value: r.Cause, Effect: corev1.TaintEffectNoSchedule}}
		}
	})
	if s.how() == "stalls" {
		<-ctx.Done()
		return wire.Leave{}, ctx.Err()
	}
	left, err := k.drain(ctx, time.Now().Add(time.Duration(r.Within)*time.Second), time.Now, func(string) {})
	return wire.Leave{Drained: err == nil && len(left) == 0, Left: left}, err
}

func (s *server) Depart(_ context.Context, cause string) error {
	switch s.how() {
	case "refuses", "hangs":
		return errors.New("connection refused")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held = true
	s.departed = append(s.departed, cause)
	s.w.kube.Remove("nodes", "", nodeName)
	return nil
}

func (s *server) Back(ctx context.Context) error {
	if s.how() != "" {
		return errors.New("connection refused")
	}
	s.w.kube.Change("nodes", "", nodeName, func(o runtime.Object) {
		if n, ok := o.(*corev1.Node); ok {
			n.Spec.Taints = nil
		}
	})
	return (&kubernetes{ask: s.w.ask}).restore(ctx)
}

func (s *server) Rejoin(context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rejoined++
	s.held = false
	s.w.kube.Put(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName}})
	return nil
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, kube: &kubesim.Server{}, azure: &azure{incarnation: 1}, state: filepath.Join(t.TempDir(), "events.json"), log: &syncbuffer.Buffer{}, boot: "boot-1"}
	w.server = &server{w: w}
	w.kube.Put(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName}})
	w.kube.Put(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}})
	w.kube.Ends = func(_ *corev1.Pod, grace time.Duration) time.Duration { return min(grace, 2*time.Second) }
	w.kube.Deleting = func(d kubesim.Deletion) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.told = append(w.told, fmt.Sprintf("%s %s", d.Pod.Name, d.Grace))
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(w.log.String())
		}
	})
	return w
}

// pod puts one on the node.
func (w *world) pod(name string, priority int32, grace int64, change ...func(*corev1.Pod)) {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", Labels: map[string]string{"app": name}},
		Spec:   corev1.PodSpec{NodeName: nodeName, Priority: &priority, TerminationGracePeriodSeconds: &grace, Containers: []corev1.Container{{Name: "c", Image: "i"}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}}
	for _, c := range change {
		c(p)
	}
	w.kube.Put(p)
}

// ask is the API server as the kubelet reaches it.
func (w *world) ask(ctx context.Context, method string, path func(string) string, contentType string, body []byte) (bootstrap.Answer, error) {
	w.mu.Lock()
	down := w.down
	w.mu.Unlock()
	if down {
		if !sleep(ctx, 5*time.Second) {
			return bootstrap.Answer{}, ctx.Err()
		}
		return bootstrap.Answer{}, errors.New("i/o timeout")
	}
	request, err := http.NewRequestWithContext(ctx, method, kubesim.Host+path(nodeName), bytes.NewReader(body))
	if err != nil {
		return bootstrap.Answer{}, err
	}
	request.Header.Set("Authorization", "Bearer system:node:"+nodeName)
	request.Header.Set("Accept", "application/json")
	if contentType != "" {
		request.Header.Set("Content-Type", contentType)
	}
	r, err := w.kube.RoundTrip(request)
	if err != nil {
		return bootstrap.Answer{}, err
	}
	defer func() { _ = r.Body.Close() }()
	text, err := io.ReadAll(r.Body)
	return bootstrap.Answer{Code: r.StatusCode, Status: r.Status, Body: text}, err
}

// options are those of the daemon, with an admission server.
func (w *world) options() Options {
	return Options{State: w.state, VMID: "vm", BootID: w.boot, Metadata: w.azure.ask, Kubernetes: w.ask, Server: w.server,
		Log: slog.New(slog.NewTextHandler(w.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Post: func(_ context.Context, _, _ string, body []byte) error {
			var told Told
			if err := json.Unmarshal(body, &told); err != nil {
				return err
			}
			w.mu.Lock()
			defer w.mu.Unlock()
			w.webhooks = append(w.webhooks, told)
			return nil
		}}
}

// run has the daemon run for so long.
func (w *world) run(o Options, d time.Duration) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), d)
	defer cancel()
	Run(ctx, o)
	synctest.Wait()
}

func (w *world) node() *corev1.Node { return w.kube.Node(nodeName) }

// cordoned says whether the node is kept from pods and load balancers, as it has to
// be together.
func (w *world) cordoned() bool {
	w.t.Helper()
	n := w.node()
	if n == nil {
		return false
	}
	_, out := n.Labels[excluded]
	if out != n.Spec.Unschedulable {
		w.t.Errorf("unschedulable %v, out of load balancers %v", n.Spec.Unschedulable, out)
	}
	return n.Spec.Unschedulable
}

// pods are the names of those that are there and not ending.
func (w *world) pods() string {
	var names []string
	w.kube.Each("pods", func(o runtime.Object) bool {
		if p, ok := o.(*corev1.Pod); ok && p.DeletionTimestamp == nil {
			names = append(names, p.Name)
		}
		return true
	})
	return strings.Join(names, " ")
}

// ends are the pods that were told to end, in that order, with what they were given.
func (w *world) ends() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Join(w.told, ", ")
}

// kept is the state on the disk.
func (w *world) kept() State {
	w.t.Helper()
	s, err := LoadState(w.state, "vm")
	if err != nil {
		w.t.Fatal(err)
	}
	return s
}

// reasons are those of the Node's Events, in their order.
func (w *world) reasons() string {
	w.t.Helper()
	var events []*corev1.Event
	w.kube.Each("events", func(o runtime.Object) bool {
		if e, ok := o.(*corev1.Event); ok {
			if e.InvolvedObject.Kind != "Node" || e.InvolvedObject.Name != nodeName || e.Message == "" || len(e.Message) > maxMessage {
				w.t.Errorf("an Event of %s %s: %q", e.InvolvedObject.Kind, e.InvolvedObject.Name, e.Message)
			}
			events = append(events, e)
		}
		return true
	})
	slices.SortStableFunc(events, func(a, b *corev1.Event) int {
		return strings.Compare(fmt.Sprintf("%020s", a.ResourceVersion), fmt.Sprintf("%020s", b.ResourceVersion))
	})
	var all []string
	for _, e := range events {
		all = append(all, e.Reason)
	}
	return strings.Join(all, " ")
}
