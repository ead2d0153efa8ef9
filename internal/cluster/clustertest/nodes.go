package clustertest

import (
	"context"
	"errors"
	"fmt"
	"strings"

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
	if node.UID != string(w.readNode(name).UID) || node.ReadySince.IsZero() || node.Annotations["who"] != "me" ||
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
	w.wantKind(w.under.AnnotateUnchanged(w.ctx, read, map[string]*string{"who": ptr("second")}), fleet.KindConflict, "annotate what another wrote")
	if got := w.readNode(name).Annotations["who"]; got != "first" {
		w.Errorf("annotated by %s", got)
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
