package controller

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ortet/ortet/internal/boots/assess"
	"github.com/ortet/ortet/internal/boots/timeline"
	"github.com/ortet/ortet/internal/cluster/conversion"
	"github.com/ortet/ortet/internal/wire"
)

// owned is a pod on the node of these images, that something owns.
func owned(name, kind, owner string, policy corev1.PullPolicy, images ...string) *corev1.Pod {
	yes := true
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "kube-system", UID: types.UID(name),
		OwnerReferences: []metav1.OwnerReference{{Kind: kind, Name: owner, Controller: &yes}}}, Spec: corev1.PodSpec{NodeName: "pool1000003"}}
	for i, image := range images {
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: fmt.Sprint("c", i), Image: image, ImagePullPolicy: policy})
	}
	return p
}

// prepared adds an init container.
func prepared(p *corev1.Pod, image string) *corev1.Pod {
	p.Spec.InitContainers = []corev1.Container{{Name: "init", Image: image, ImagePullPolicy: corev1.PullAlways}}
	return p
}

// says is an Event of a pod, as a kubelet writes it.
func says(of, reason, host, message string, at time.Time) *corev1.Event {
	return &corev1.Event{ObjectMeta: metav1.ObjectMeta{GenerateName: of, Name: fmt.Sprint(of, len(message), host, at.Unix()), Namespace: "kube-system"},
		InvolvedObject: corev1.ObjectReference{Kind: "Pod", Name: of, UID: types.UID(of)}, Reason: reason, Message: message,
		Source: corev1.EventSource{Component: "kubelet", Host: host}, LastTimestamp: metav1.NewTime(at)}
}

// keeps is the boot that is kept once a first pod ran.
func (l *reporter) keeps(t *testing.T, report wire.BootReport, objects ...client.Object) assess.BootRecord {
	t.Helper()
	l.known()
	l.arrives(t, encoded(t, report), true)
	var n corev1.Node
	if err := l.client.Get(t.Context(), client.ObjectKey{Name: "pool1000003"}, &n); err != nil {
		t.Fatal(err)
	}
	n.Status.Images = []corev1.ContainerImage{{Names: []string{"r.io/cni@sha256:1", "r.io/cni:v1"}, SizeBytes: 30e6}, {Names: []string{"r.io/agent:latest"}, SizeBytes: 7e6}, {Names: []string{"r.io/init:v1"}, SizeBytes: -5}}
	if err := l.client.Status().Update(t.Context(), &n); err != nil {
		t.Fatal(err)
	}
	first := owned("first", "ReplicaSet", "app", corev1.PullAlways, "r.io/app:1")
	first.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(noon.Add(150 * time.Second))}}}}
	for _, o := range append(objects, first) {
		if err := l.client.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	l.later(time.Minute)
	l.goes(t)
	var list corev1.ConfigMapList
	if err := l.client.List(t.Context(), &list); err != nil || len(list.Items) != 1 {
		t.Fatalf("%d boots are kept: %v", len(list.Items), err)
	}
	r, _, err := assess.ReadBoot(conversion.Record(&list.Items[0]))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// What DaemonSets' pods needed is kept, of this boot and by the kubelet of this node; nothing else that
// somebody writes is.
func TestPulledImagesAreKept(t *testing.T) {
	at := noon.Add(2 * time.Minute)
	const good = `Successfully pulled image "r.io/proxy:v1" in 1.5s (2.5s including waiting). Image size: 31000000 bytes.`
	objects := func() []client.Object {
		return []client.Object{
			owned("proxy", "DaemonSet", "kube-proxy", corev1.PullIfNotPresent, "r.io/proxy:v1", "r.io/there:v1", "r.io/evil:v1", "r.io/old:v1"),
			owned("agent", "DaemonSet", "agent", corev1.PullAlways, "r.io/agent"),
			prepared(owned("cni", "DaemonSet", "cni", corev1.PullIfNotPresent, "r.io/cni:v1"), "r.io/init:v1"),
			says("cni", "Pulled", "pool1000003", strings.ReplaceAll(strings.ReplaceAll(good, "proxy", "init"), "31000000", "9000000000000"), at), // no such size
			owned("agent2", "DaemonSet", "another", corev1.PullAlways, "r.io/agent"),                                                             // an image is named once
			says("agent2", "Pulled", "pool1000003", `Successfully pulled image "r.io/agent:latest" in 1ms (1ms including waiting)`, at),
			owned("app", "ReplicaSet", "app", corev1.PullIfNotPresent, "r.io/app:2"),
			says("proxy", "Pulled", "pool1000003", good, at),
			says("proxy", "Pulled", "pool1000003", `Container image "r.io/there:v1" already present on machine`, at),
			says("proxy", "Pulled", "pool1000003", strings.ReplaceAll(good, "proxy", "not-in-the-pods-spec"), at),
			says("proxy", "Pulled", "pool1000004", strings.ReplaceAll(good, "proxy", "evil"), at),
			says("proxy", "Pulled", "pool1000003", strings.ReplaceAll(good, "proxy", "old"), noon.Add(-time.Hour)),
			says("agent", "Pulled", "pool1000003", `Successfully pulled image "r.io/agent:latest" in 400ms (400ms including waiting)`, at),
			says("app", "Pulled", "pool1000003", strings.ReplaceAll(good, "proxy:v1", "app:2"), at),
		}
	}
	report := reported(noon.Add(20 * time.Second))
	report.Spans = []wire.BootSpan{{Source: "containerd", Name: "pull/r.io/cni:v1", Clock: wire.ClockMonotonic, Start: 60e6, End: 62e6},
		{Source: "containerd", Name: "pull/r.io/old:v1", Clock: wire.ClockMonotonic, Start: 60e6, End: 62e6, Open: true}}
	cni := timeline.Pull{Image: "r.io/cni:v1", DaemonSet: "kube-system/cni", Took: 2e6, Bytes: 30e6, Holds: true}
	for _, denied := range []bool{false, true} {
		l := newReporter(t)
		l.denies = denied
		want := []timeline.Pull{{Image: "r.io/proxy:v1", DaemonSet: "kube-system/kube-proxy", Took: 1.5e6, Bytes: 31e6, Holds: true}, cni,
			{Image: "r.io/agent", DaemonSet: "kube-system/agent", Took: 400e3, Bytes: 7e6}, {Image: "r.io/init:v1", DaemonSet: "kube-system/cni", Took: 1.5e6}}
		if denied { // the node's own report has the time of one
			want = want[1:2]
		}
		if r := l.keeps(t, report, objects()...); !slices.Equal(r.Pulls, want) || !slices.Equal(r.Cloud().Pulls, want) || r.FirstPod.IsZero() {
			t.Errorf("denied %v: kept\n%+v\nwant\n%+v", denied, r.Pulls, want)
		}
	}
}

// What a kubelet claims is bounded, so that the record can be read again.
func TestClaimsOfPullsAreBounded(t *testing.T) {
	at := noon.Add(2 * time.Minute)
	var images []string
	for i := range 40 {
		images = append(images, fmt.Sprintf("r.io/%s:%02d", strings.Repeat("x", 245), i))
	}
	images = append(images, "r.io/"+strings.Repeat("y", 300), "r.io/huge:1", "r.io/huge:2")
	objects := []client.Object{owned(strings.Repeat("n", 60), "DaemonSet", strings.Repeat("d", 250), corev1.PullIfNotPresent, images...)}
	for _, image := range images[:41] {
		objects = append(objects, says(objects[0].GetName(), "Pulled", "pool1000003", fmt.Sprintf("Successfully pulled image %q in 1s (1s including waiting). Image size: 7 bytes.", image), at))
		objects[len(objects)-1].SetName(fmt.Sprint("e", len(objects)))
	}
	for _, claim := range []string{`"r.io/huge:1" in 2400h (1s including waiting). Image size: 8 bytes.`, `"r.io/huge:2" in 1s (1s including waiting). Image size: 9000000000000 bytes.`} {
		objects = append(objects, says(objects[0].GetName(), "Pulled", "pool1000003", "Successfully pulled image "+claim, at))
	}
	r := newReporter(t).keeps(t, reported(noon.Add(20*time.Second)), objects...)
	if len(r.Pulls) != assess.MaxPulls {
		t.Errorf("%d are kept", len(r.Pulls))
	}
	for _, p := range r.Pulls {
		if len(p.Image) > assess.MaxImageName || p.Bytes != 7 || p.Took != 1e6 {
			t.Errorf("kept: %+v", p)
		}
	}
}

// A pod's owner is what its author says, and JSON makes six bytes of some: the record stays one that
// can be read, with what is not made up.
func TestMadeUpNamesOfPullsAreLeftOut(t *testing.T) {
	at := noon.Add(2 * time.Minute)
	pulled := func(pod, image string) client.Object {
		return says(pod, "Pulled", "pool1000003", fmt.Sprintf("Successfully pulled image %q in 1s (1s including waiting). Image size: 7 bytes.", image), at)
	}
	wide := []string{"r.io/good:1"}
	for i := range 15 {
		wide = append(wide, strings.Repeat("<", 250)+fmt.Sprint(i))
	}
	objects := []client.Object{
		owned("long", "DaemonSet", strings.Repeat("d", 20<<10), corev1.PullIfNotPresent, "r.io/long:1"), pulled("long", "r.io/long:1"),
		owned("odd", "DaemonSet", "\x1b[2J", corev1.PullIfNotPresent, "r.io/odd:1"), pulled("odd", "r.io/odd:1"),
		owned("wide", "DaemonSet", "wide", corev1.PullIfNotPresent, wide...),
	}
	for i, image := range wide {
		e := pulled("wide", image)
		e.SetName(fmt.Sprint("wide", i))
		objects = append(objects, e)
	}
	if r := newReporter(t).keeps(t, reported(noon.Add(20*time.Second)), objects...); len(r.Pulls) != 1 || r.Pulls[0].Image != "r.io/good:1" {
		t.Errorf("kept: %+v", r.Pulls)
	}
}

// Many boots at once do not have the API server search its Events for each pod: what the node itself
// reports is kept then, and the next minute has Events again.
func TestEventsOfManyBootsAreBounded(t *testing.T) {
	l := newReporter(t)
	var node corev1.Node
	node.Name = "pool1000003"
	at := noon.Add(2 * time.Minute)
	for _, o := range []client.Object{says("p", "Pulled", node.Name, `Successfully pulled image "r.io/a:1" in 2s (2s including waiting). Image size: 9 bytes.`, at)} {
		if err := l.client.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	report := reported(noon.Add(20 * time.Second))
	report.Spans = []wire.BootSpan{{Source: "containerd", Name: "pull/r.io/a:1", Clock: wire.ClockMonotonic, Start: 60e6, End: 61e6}}
	pods := []corev1.Pod{*owned("p", "DaemonSet", "p", corev1.PullIfNotPresent, "r.io/a:1")}
	asked := func(boots int) (n int) {
		for range boots {
			pulls, err := l.pulls(t.Context(), &node, pods, report)
			if err != nil || len(pulls) != 1 || pulls[0].Took != 1e6 && pulls[0].Took != 2e6 {
				t.Fatalf("%+v: %v", pulls, err)
			}
			if pulls[0].Took == 2e6 { // the kubelet's word
				n++
			}
		}
		return n
	}
	if n := asked(1000); n < 16 || n > askedPerMinute {
		t.Errorf("%d of 1000 boots at once had Events read", n)
	}
	l.later(time.Minute)
	if n := asked(16); n != 16 {
		t.Errorf("%d of 16 boots had Events read a minute later", n)
	}
	l.later(time.Minute)
	if pods = slices.Repeat(pods, 40); l.events.Spent() > askedPerMinute {
		t.Errorf("%d requests", l.events.Spent())
	}
	before := l.events.Spent()
	if asked(1); l.events.Spent()-before != maxAsked {
		t.Errorf("%d requests for a node with 40 pods of DaemonSets", l.events.Spent()-before)
	}
}
