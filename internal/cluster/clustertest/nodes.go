package clustertest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ortet/ortet/internal/fleet"
)

func nodeNotFound(w *world) {
	_, err := w.under.Node(w.ctx, w.name)
	w.wantKind(err, fleet.KindNotFound, "read")
	w.wantKind(w.under.Annotate(w.ctx, w.name, map[string]*string{"a": ptr("b")}), fleet.KindNotFound, "annotate")
	w.wantKind(w.under.SetUnschedulable(w.ctx, w.name, true), fleet.KindNotFound, "cordon")

	ctx, cancel := context.WithCancel(w.ctx)
	cancel()
	if _, err := w.under.Node(ctx, w.name); !errors.Is(err, context.Canceled) {
		w.Errorf("after the context's end: %v", err)
	}
}

func nodeRead(w *world) {
	name := w.node("", func(n *corev1.Node) {
		n.Labels[corev1.LabelTopologyZone] = "westeurope-1"
		n.Labels["node-role.kubernetes.io/control-plane"] = ""
		n.Annotations = map[string]string{"who": "me"}
	})
	node, err := w.under.Node(w.ctx, name)
	w.must(err, "read")
	want := fleet.Node{Name: name, OS: "linux", Architecture: "amd64", Zone: "westeurope-1", Ready: true, ControlPlane: true,
		BootID: "boot", MachineID: "machine", OSImage: "Debian", Kubelet: "v1.36.3"}
	got := fleet.Node{Name: node.Name, OS: node.OS, Architecture: node.Architecture, Zone: node.Zone, Ready: node.Ready, ControlPlane: node.ControlPlane,
		BootID: node.BootID, MachineID: node.MachineID, OSImage: node.OSImage, Kubelet: node.Kubelet}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		w.Errorf("got  %+v\nwant %+v", got, want)
	}
	if node.UID != string(w.readNode(name).UID) || node.ReadySince.IsZero() || node.Reported.IsZero() || node.Annotations["who"] != "me" ||
		len(node.Addresses) != 1 || !strings.HasSuffix(node.ProviderID, "/pool1/virtualMachines/3") {
		w.Errorf("%+v", node)
	}

	broken := w.node("-broken", func(n *corev1.Node) {
		n.Status.Conditions[0].Status, n.Status.Conditions[0].Reason, n.Status.Conditions[0].Message = corev1.ConditionFalse, "KubeletNotReady", "no network"
	})
	node, err = w.under.Node(w.ctx, broken)
	w.must(err, "read")
	if node.Ready || node.NotReadyWhy == "" || node.ControlPlane {
		w.Errorf("%+v", node)
	}
}

func nodeAnnotatedByTwo(w *world) {
	name := w.node("", nil)
	var read fleet.Node
	err := error(&fleet.Error{Kind: fleet.KindConflict})
	for try := 0; fleet.Is(err, fleet.KindConflict) && try < 20; try++ { // controllers write a Node that is new
		read, err = w.under.Node(w.ctx, name)
		w.must(err, "read")
		err = w.under.AnnotateUnchanged(w.ctx, read, map[string]*string{"who": ptr("first")})
	}
	w.must(err, "annotate")
	read.Unschedulable = true
	w.wantKind(w.under.AnnotateUnchanged(w.ctx, read, map[string]*string{"who": ptr("second")}), fleet.KindConflict, "annotate what another wrote")
	if got := w.readNode(name); got.Annotations["who"] != "first" || got.Spec.Unschedulable {
		w.Errorf("annotated by %s, cordoned: %t", got.Annotations["who"], got.Spec.Unschedulable)
	}
	read, err = w.under.Node(w.ctx, name)
	w.must(err, "read")
	read.Unschedulable = true
	w.must(w.under.AnnotateUnchanged(w.ctx, read, map[string]*string{"who": ptr("second")}), "annotate and cordon")
	if got := w.readNode(name); got.Annotations["who"] != "second" || !got.Spec.Unschedulable {
		w.Errorf("annotated by %s, cordoned: %t", got.Annotations["who"], got.Spec.Unschedulable)
	}
}

func nodesWalk(w *world) {
	const count = 5
	for i := range count {
		w.node(fmt.Sprintf("-%d", i), nil)
	}
	seen := map[string]int{}
	for node, err := range w.under.Nodes(w.ctx) {
		w.must(err, "walk")
		seen[node.Name]++
	}
	for i := range count {
		if n := seen[fmt.Sprintf("%s-%d", w.name, i)]; n != 1 {
			w.Errorf("node %d was seen %d times", i, n)
		}
	}
	for _, err := range w.under.Nodes(w.ctx) {
		w.must(err, "walk")
		break // it can be left at any time
	}
	ctx, cancel := context.WithCancel(w.ctx)
	cancel()
	for _, err := range w.under.Nodes(ctx) {
		if !errors.Is(err, context.Canceled) {
			w.Errorf("after the context's end: %v", err)
		}
	}
}

func nodeAnnotate(w *world) {
	name := w.node("", func(n *corev1.Node) { n.Annotations = map[string]string{"theirs": "1", "old": "2"} })
	change := map[string]*string{"ortet.io/capture": ptr("c1"), "old": nil, "absent": nil}
	w.must(w.under.Annotate(w.ctx, name, change), "annotate")
	after := w.readNode(name)
	if _, there := after.Annotations["old"]; there || after.Annotations["theirs"] != "1" || after.Annotations["ortet.io/capture"] != "c1" {
		w.Errorf("%v", after.Annotations)
	}
	w.must(w.under.Annotate(w.ctx, name, change), "annotate again")
	if again := w.readNode(name); again.ResourceVersion != after.ResourceVersion && again.Annotations["ortet.io/capture"] != "c1" {
		w.Errorf("the same annotations changed the node: %v", again.Annotations)
	}
	w.must(w.under.Annotate(w.ctx, name, nil), "annotate nothing")
}

func nodeCordon(w *world) {
	name := w.node("", nil)
	for _, unschedulable := range []bool{false, true, true, false, false} {
		w.must(w.under.SetUnschedulable(w.ctx, name, unschedulable), "set unschedulable")
		if got := w.readNode(name).Spec.Unschedulable; got != unschedulable {
			w.Fatalf("unschedulable is %t, want %t", got, unschedulable)
		}
	}
}

func recorderEvent(w *world) {
	name := w.node("", nil)
	node, err := w.under.Node(w.ctx, name)
	w.must(err, "read")
	w.under.Event(w.ctx, node, true, "CaptureFailed", strings.Repeat("long ", 400))
	list, err := w.admin.CoreV1().Events("").List(w.ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=" + name + ",reason=CaptureFailed"})
	w.must(err, "list events")
	if len(list.Items) != 1 || list.Items[0].Type != corev1.EventTypeWarning || list.Items[0].InvolvedObject.Kind != "Node" {
		w.Errorf("events: %+v", list.Items)
	}
}

func podsRead(w *world) {
	ns, owner := w.namespace()
	node, other := w.node("", nil), w.node("-other", nil)
	read := func() map[string]fleet.Pod {
		pods, err := w.under.Pods(w.ctx, node)
		w.must(err, "list pods")
		all := map[string]fleet.Pod{}
		for _, p := range pods {
			all[p.Name] = p
		}
		if pods == nil || len(all) != len(pods) {
			w.Errorf("pods %v", pods)
		}
		return all
	}
	if pods := read(); len(pods) != 0 {
		w.Errorf("on an empty node: %v", pods)
	}
	agent := w.daemon(ns, node)
	report := func(name string, status corev1.PodStatus) {
		pod, err := w.admin.CoreV1().Pods(ns).Get(w.ctx, name, metav1.GetOptions{})
		w.must(err, "read pod")
		pod.ResourceVersion, pod.Status = "", status
		_, err = w.admin.CoreV1().Pods(ns).UpdateStatus(w.ctx, pod, metav1.UpdateOptions{})
		w.must(err, "report pod status")
	}
	readySince := func(at metav1.Time, status corev1.ConditionStatus, reason string) []corev1.PodCondition {
		return []corev1.PodCondition{{Type: corev1.PodReady, Status: status, Reason: reason, LastTransitionTime: at}}
	}
	container := func(name string, restarts int32, state corev1.ContainerState) corev1.ContainerStatus {
		return corev1.ContainerStatus{Name: name, RestartCount: restarts, State: state}
	}
	running := func(at metav1.Time) corev1.ContainerState {
		return corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: at}}
	}
	waiting := func(reason string) corev1.ContainerState {
		return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}
	}
	at := metav1.NewTime(time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC))
	later := metav1.NewTime(at.Add(time.Minute))
	report(agent, corev1.PodStatus{Phase: corev1.PodRunning, Conditions: readySince(at, corev1.ConditionTrue, ""),
		ContainerStatuses: []corev1.ContainerStatus{container("a", 2, running(later)), container("b", 1, running(at))}})
	mirror := w.pod(ns, node, "mirror", metav1.OwnerReference{}, func(p *corev1.Pod) {
		p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"}
	})
	report(mirror.Name, corev1.PodStatus{Phase: corev1.PodRunning, Conditions: readySince(at, corev1.ConditionTrue, "")})
	w.pod(ns, node, "loop", owner, nil)
	report("loop", corev1.PodStatus{Phase: corev1.PodRunning, Conditions: readySince(at, corev1.ConditionFalse, "ContainersNotReady"),
		ContainerStatuses: []corev1.ContainerStatus{container("a", 0, running(at)), container("c", 7, waiting("CrashLoopBackOff")), container("d", 0, waiting("ImagePullBackOff"))}})
	w.pod(ns, node, "init", owner, nil)
	report("init", corev1.PodStatus{Phase: corev1.PodPending,
		InitContainerStatuses: []corev1.ContainerStatus{
			container("done", 0, corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "Completed"}}),
			container("first", 1, corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "Error", ExitCode: 1}})},
		ContainerStatuses: []corev1.ContainerStatus{container("c", 0, waiting("PodInitializing"))}})
	w.pod(ns, node, "probe", owner, nil)
	report("probe", corev1.PodStatus{Phase: corev1.PodRunning, Conditions: readySince(at, corev1.ConditionFalse, "ContainersNotReady"),
		ContainerStatuses: []corev1.ContainerStatus{container("c", 0, running(at))}})
	w.pod(ns, node, "young", owner, nil)
	report("young", corev1.PodStatus{Phase: corev1.PodPending})
	w.pod(ns, other, "elsewhere", owner, nil)

	want := map[string]fleet.Pod{}
	for _, p := range []fleet.Pod{
		{Name: agent, DaemonSet: ns + "/agent", Ready: true, ReadySince: later.Time, Restarts: 3},
		{Name: "mirror", Mirror: true, Ready: true, ReadySince: at.Time},
		{Name: "loop", NotReadyWhy: "c: CrashLoopBackOff", Restarts: 7},
		{Name: "init", NotReadyWhy: "first: Error", Restarts: 1},
		{Name: "probe", NotReadyWhy: "ContainersNotReady"},
		{Name: "young", NotReadyWhy: "Pending"},
	} {
		p.Name = ns + "/" + p.Name
		want[p.Name] = p
	}
	got := read()
	for name, p := range got {
		p.ReadySince = p.ReadySince.UTC()
		got[name] = p
	}
	if !maps.Equal(got, want) {
		w.Errorf("got  %+v\nwant %+v", got, want)
	}
	ctx, cancel := context.WithCancel(w.ctx)
	cancel()
	if _, err := w.under.Pods(ctx, node); !errors.Is(err, context.Canceled) {
		w.Errorf("after the context's end: %v", err)
	}
}
