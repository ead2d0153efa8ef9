package controller

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/ortet/ortet/internal/boots/assess"
	"github.com/ortet/ortet/internal/cluster/conversion"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/wire"
)

// bootOf is what an instance's node says of its boot, which began two minutes ago.
func bootOf(b fleet.Boot) wire.BootReport {
	kernel := b.Created.Add(20 * time.Second)
	return wire.BootReport{Version: wire.BootReportVersion, Node: strings.ToLower(b.HostName), VMID: b.VMID, BootID: "boot-a", At: kernel.Add(time.Minute),
		Clocks: []wire.ClockReading{{Monotonic: 60e6, Wall: wire.Micros(kernel.Add(time.Minute).UnixMicro())}}, System: wire.SystemTimes{Userspace: 2e6, Finish: 50e6},
		Units: []wire.BootUnit{{Name: "kubelet.service", Activating: 30e6, Activated: 31e6, After: []string{"network-online.target"}}, {Name: "network-online.target", Activating: 9e6, Activated: 9e6}}}
}

func encoded(t *testing.T, r wire.BootReport) string {
	t.Helper()
	value, err := wire.EncodeBootAnnotation(r)
	if err != nil {
		t.Fatal(err)
	}
	return value
}

// A reporter is the reconciler of boots' reports on an API server that the test
// breaks, with a clock that the test turns.
type reporter struct {
	*boots
	now     time.Time
	refuses bool // to change Nodes
	denies  bool // the Events of pods
}

// trimming is a cache that holds what trim leaves.
type trimming struct{ client.Reader }

func (c trimming) Get(ctx context.Context, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
	if err := c.Reader.Get(ctx, key, o, options...); err != nil {
		return err
	}
	if n, ok := o.(*corev1.Node); ok {
		once, err := trim(n.DeepCopy())
		if err != nil {
			return err
		}
		twice, err := trim(once) // as caches do
		if err != nil {
			return err
		}
		if t, ok := twice.(*corev1.Node); ok {
			*n = *t
		}
	}
	return nil
}

func newReporter(t *testing.T) *reporter {
	t.Helper()
	l := &reporter{now: noon.Add(3 * time.Minute)}
	c := fake.NewClientBuilder().WithStatusSubresource(&corev1.Node{}).
		WithIndex(&corev1.Pod{}, "spec.nodeName", func(o client.Object) []string {
			if p, ok := o.(*corev1.Pod); ok {
				return []string{p.Spec.NodeName}
			}
			return nil
		}).
		WithIndex(&corev1.Event{}, "involvedObject.uid", func(o client.Object) []string {
			if e, ok := o.(*corev1.Event); ok {
				return []string{string(e.InvolvedObject.UID)}
			}
			return nil
		}).
		WithInterceptorFuncs(interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			if _, is := list.(*corev1.EventList); is && l.denies && len(options) > 0 {
				return apierrors.NewForbidden(corev1.Resource("events"), "", errors.New("RBAC"))
			}
			return c.List(ctx, list, options...)
		}, SubResourcePatch: func(ctx context.Context, c client.Client, _ string, o client.Object, patch client.Patch, _ ...client.SubResourcePatchOption) error {
			if l.refuses {
				return errors.New("the API server is restarting")
			}
			return c.Patch(ctx, o, patch) // the fake one keeps annotations from such a patch
		}}).Build()
	config, err := Config{REST: &rest.Config{}, Boots: &cloud{}, Budget: NewBudget(60, time.Now), Namespace: "ns", FirstPods: true, Now: func() time.Time { return l.now }, Log: slog.New(slog.DiscardHandler)}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	r := &reconciler{config: config, client: c, nodes: trimming{c}, fleet: NewFleet()}
	l.boots = newReports(r, newBootStore(c, config), newBootMeters())
	return l
}

// arrives puts a Node with a report there.
func (l *reporter) arrives(t *testing.T, text string, ready bool) {
	t.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "pool1000003", UID: "u", CreationTimestamp: metav1.NewTime(noon.Add(time.Minute)), Annotations: map[string]string{wire.BootAnnotation: text, "theirs": "stays"}}}
	n.Status.NodeInfo.BootID, n.Status.NodeInfo.SystemUUID = "boot-a", someVM
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionFalse}}
	if ready {
		n.Status.Conditions[0].Status, n.Status.Conditions[0].LastTransitionTime = corev1.ConditionTrue, metav1.NewTime(noon.Add(2*time.Minute))
	}
	if err := l.client.Create(t.Context(), n); err != nil {
		t.Fatal(err)
	}
}

func (l *reporter) goes(t *testing.T) time.Duration {
	t.Helper()
	result, err := l.Reconcile(t.Context(), request("pool1000003"))
	if err != nil {
		t.Fatal(err)
	}
	return result.RequeueAfter
}

func (l *reporter) known() { l.fleet.took(fleet.KeyOf(somePool), []fleet.Boot{aBoot()}) }

// has says how many boots are kept, whether a report is on the Node, and how many
// were refused.
func (l *reporter) has(t *testing.T, kept int, there bool, refused int) {
	t.Helper()
	var boots corev1.ConfigMapList
	var n corev1.Node
	var events corev1.EventList
	if err := errors.Join(l.client.List(t.Context(), &boots), l.client.Get(t.Context(), client.ObjectKey{Name: "pool1000003"}, &n), l.client.List(t.Context(), &events)); err != nil {
		t.Fatal(err)
	}
	if _, is := n.Annotations[wire.BootAnnotation]; len(boots.Items) != kept || is != there || len(events.Items) != refused || n.Annotations["theirs"] != "stays" {
		t.Errorf("%d boots, a report is there: %v, %d refused; want %d, %v, %d (%v)", len(boots.Items), is, len(events.Items), kept, there, refused, n.Annotations)
	}
}

func (l *reporter) counted(t *testing.T) uint64 {
	t.Helper()
	var m dto.Metric
	h, err := l.figures.total.MetricVec.GetMetricWithLabelValues("pool1", "unknown")
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Write(&m); err != nil {
		t.Fatal(err)
	}
	return m.GetHistogram().GetSampleCount()
}

func (l *reporter) later(d time.Duration) { l.now = l.now.Add(d) }

func TestReportWaitsForItsMachine(t *testing.T) {
	l := newReporter(t)
	l.arrives(t, encoded(t, reported(noon.Add(20*time.Second))), true)
	if wait := l.goes(t); wait != askAgain {
		t.Errorf("it waits %s", wait)
	}
	l.has(t, 0, true, 0)
	l.known()
	l.later(time.Minute)
	l.goes(t)
	l.has(t, 1, false, 0)
	if n := l.counted(t); n != 1 {
		t.Errorf("counted %d times", n)
	}
	// Of none that is ever known it is refused.
	l = newReporter(t)
	l.arrives(t, encoded(t, reported(noon)), true)
	l.goes(t)
	l.later(strangerFor)
	l.goes(t)
	l.has(t, 0, false, 1)
}

func TestReportWaitsForReady(t *testing.T) {
	l := newReporter(t)
	l.known()
	l.arrives(t, encoded(t, reported(noon.Add(20*time.Second))), false)
	l.goes(t)
	l.has(t, 0, true, 0)
	l.later(l.config.Deadlines.Boot)
	l.goes(t) // a node that never becomes Ready has booted, too
	l.has(t, 1, false, 0)
}

func TestReportWaitsForAPod(t *testing.T) {
	for _, came := range []bool{true, false} {
		l := newReporter(t)
		l.known()
		l.arrives(t, encoded(t, reported(noon.Add(20*time.Second))), true)
		if wait := l.goes(t); wait != time.Minute { // two after Ready
			t.Errorf("it waits %s", wait)
		}
		l.has(t, 0, true, 0)
		at := noon.Add(210 * time.Second)
		if came {
			p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "default"}, Spec: corev1.PodSpec{NodeName: "pool1000003"}}
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(at)}}}}
			if err := l.client.Create(t.Context(), p); err != nil {
				t.Fatal(err)
			}
		}
		l.later(time.Minute)
		l.goes(t)
		l.has(t, 1, false, 0)
		var list corev1.ConfigMapList
		if err := l.client.List(t.Context(), &list); err != nil {
			t.Fatal(err)
		}
		if r, _, err := assess.ReadBoot(conversion.Record(&list.Items[0])); err != nil || r.FirstPod.Equal(at) != came || r.FirstPod.IsZero() == came {
			t.Errorf("a pod came: %v, and it is kept: %s (%v)", came, r.FirstPod, err)
		}
	}
}

// Whatever is interrupted, a boot is kept and counted once.
func TestReportIsTakenOnce(t *testing.T) {
	l := newReporter(t)
	l.known()
	l.arrives(t, encoded(t, reported(noon.Add(20*time.Second))), true)
	l.later(time.Minute)
	l.refuses = true
	for range 2 {
		if _, err := l.Reconcile(t.Context(), request("pool1000003")); err == nil {
			t.Error("what cannot be taken away is no error")
		}
		l.has(t, 1, true, 0)
	}
	l.refuses = false
	l.goes(t)
	l.has(t, 1, false, 0)
	if n := l.counted(t); n != 1 {
		t.Errorf("counted %d times", n)
	}
}

// A node that reports all the time is read once a minute.
func TestReportsOfOneNodeAreFewEnough(t *testing.T) {
	l := newReporter(t)
	l.known()
	l.arrives(t, "v1:nothing", true)
	l.goes(t)
	l.has(t, 0, false, 1)
	for i, text := range []string{"v1:more", "v2:else"} {
		var n corev1.Node
		if err := l.client.Get(t.Context(), client.ObjectKey{Name: "pool1000003"}, &n); err != nil {
			t.Fatal(err)
		}
		n.Annotations[wire.BootAnnotation] = text
		if err := l.client.Update(t.Context(), &n); err != nil {
			t.Fatal(err)
		}
		l.later(20 * time.Second)
		if wait := l.goes(t); wait != 40*time.Second {
			t.Errorf("it waits %s", wait)
		}
		l.has(t, 0, true, i+1)
		l.later(40 * time.Second)
		l.goes(t)
		l.has(t, 0, false, i+2)
	}
	var events corev1.EventList
	if err := l.client.List(t.Context(), &events); err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, e := range events.Items {
		all.WriteString(e.Message)
	}
	if !strings.Contains(all.String(), "update the controller") {
		t.Errorf("of a newer report it is said: %s", all.String())
	}
}

func TestBelievable(t *testing.T) {
	boot := aBoot()
	for name, c := range map[string]struct {
		change func(*wire.BootReport)
		boot   *fleet.Boot
		says   string
	}{
		"its own":             {func(*wire.BootReport) {}, &boot, ""},
		"in capitals":         {func(r *wire.BootReport) { r.VMID, r.Node = strings.ToUpper(r.VMID), "POOL1000003" }, &boot, ""},
		"without a name":      {func(r *wire.BootReport) { r.Node = "" }, &boot, ""},
		"of no machine":       {func(r *wire.BootReport) { r.VMID = "" }, &boot, "vmId"},
		"of another machine":  {func(r *wire.BootReport) { r.VMID = "2" + r.VMID[1:] }, &boot, "it is of the machine 2"},
		"of another node":     {func(r *wire.BootReport) { r.Node = "pool1000004" }, &boot, "it is of the node pool1000004"},
		"of nothing of Azure": {func(*wire.BootReport) {}, nil, "none of the instances"},
	} {
		r := reported(noon)
		c.change(&r)
		err := believable(r, aNode(), c.boot)
		if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", name, err, c.says)
		}
	}
}
