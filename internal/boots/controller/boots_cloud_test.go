package controller

import (
	"reflect"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ortet/ortet/internal/boots/assess"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/wire"
)

// reported is a report whose kernel started then.
func reported(kernel time.Time) wire.BootReport {
	r := wire.BootReport{Version: wire.BootReportVersion, Node: "pool1000003", VMID: someVM, BootID: "boot-a"}
	if !kernel.IsZero() {
		r.Clocks = []wire.ClockReading{{Monotonic: 0, Wall: 1}, {Monotonic: 60e6, Wall: wire.Micros(kernel.Add(time.Minute).UnixMicro())}}
	}
	return r
}

// inContainer is of a machine that shares a kernel which started a day before it.
func inContainer(began time.Time) wire.BootReport {
	r := reported(began.Add(-24 * time.Hour))
	r.System = wire.SystemTimes{Userspace: wire.MicrosOf(24 * time.Hour), Container: true}
	return r
}

// What the cloud and the cluster know counts for the boot that it belongs to.
func TestTimesOfABoot(t *testing.T) {
	created := aBoot(func(b *fleet.Boot) {
		b.Image, b.Provisioning = galleryOf+"1", fleet.BootStatus{State: "succeeded", Time: noon.Add(50 * time.Second)}
	})
	all := assess.BootRecord{Created: noon, Provisioned: noon.Add(50 * time.Second), NodeCreated: noon.Add(time.Minute), NodeReady: noon.Add(2 * time.Minute)}
	for name, c := range map[string]struct {
		report wire.BootReport
		node   *assess.NodeView
		want   assess.BootRecord
	}{
		"a first boot":         {reported(noon.Add(20 * time.Second)), aNode(), all},
		"no clock":             {reported(time.Time{}), aNode(), all},
		"a preprovisioned one": {reported(noon.Add(-20 * time.Minute)), aNode(), all},
		"not Ready":            {reported(noon.Add(20 * time.Second)), aNode(notReady), assess.BootRecord{Created: all.Created, Provisioned: all.Provisioned, NodeCreated: all.NodeCreated}},
		"a restart": {reported(noon.Add(10 * time.Minute)), aNode(func(n *assess.NodeView) { n.ReadySince = noon.Add(11 * time.Minute) }),
			assess.BootRecord{NodeReady: noon.Add(11 * time.Minute)}},
		"a container on a kernel of another day": {inContainer(noon.Add(20 * time.Second)), aNode(), all},
		"a restart that nobody noticed":          {reported(noon.Add(10 * time.Minute)), aNode(), assess.BootRecord{}},
		"a restart on another day": {reported(noon.Add(30 * time.Hour)), aNode(func(n *assess.NodeView) {
			n.Created, n.ReadySince = noon.Add(30*time.Hour+time.Minute), noon.Add(30*time.Hour+2*time.Minute)
		}),
			assess.BootRecord{NodeReady: noon.Add(30*time.Hour + 2*time.Minute)}},
		"the Node of an earlier machine": {reported(noon.Add(20 * time.Second)), aNode(func(n *assess.NodeView) { n.Created = noon.Add(-time.Hour) }),
			assess.BootRecord{Created: all.Created, Provisioned: all.Provisioned, NodeReady: all.NodeReady}},
		"an earlier boot": {reported(noon.Add(20 * time.Second)), aNode(func(n *assess.NodeView) { n.BootID = "boot-b" }), assess.BootRecord{Created: all.Created, Provisioned: all.Provisioned}},
	} {
		got := assess.RecordOf(created, c.node, c.report)
		if got.Node != "pool1000003" || !got.Pool.Equal(somePool) || got.VMID != someVM || got.BootID != "boot-a" || got.ImageVersion() != "1" {
			t.Errorf("%s: %+v", name, got)
		}
		got.Node, got.Pool, got.Instance, got.VMID, got.BootID, got.Image = "", "", "", "", "", ""
		if !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s:\n%+v\nwant\n%+v", name, got, c.want)
		}
	}
}

func TestFirstPod(t *testing.T) {
	pod := func(owner, annotation string, states ...corev1.ContainerState) corev1.Pod {
		p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{annotation: "x"}}}
		if owner != "" {
			yes := true
			p.OwnerReferences = []metav1.OwnerReference{{Kind: owner, Controller: &yes}}
		}
		for _, s := range states {
			p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, corev1.ContainerStatus{State: s})
		}
		return p
	}
	running := func(after time.Duration) corev1.ContainerState {
		return corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(noon.Add(after))}}
	}
	ended := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{StartedAt: metav1.NewTime(noon.Add(40 * time.Second))}}
	pods := []corev1.Pod{
		pod("DaemonSet", "", running(time.Second)), pod("", corev1.MirrorPodAnnotationKey, running(2*time.Second)), pod("Node", "", running(2*time.Second)),
		pod("ReplicaSet", "", corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{}}), pod("ReplicaSet", "", running(-time.Hour)),
	}
	if got := firstPod(pods, noon); !got.IsZero() {
		t.Errorf("%s: none has come", got)
	}
	pods = append(pods, pod("ReplicaSet", "", running(time.Minute), running(50*time.Second)), pod("Job", "", ended))
	if got := firstPod(pods, noon); !got.Equal(noon.Add(40 * time.Second)) {
		t.Errorf("%s, want 40 s after noon", got)
	}
	again := pod("", "", running(time.Minute))
	again.Status.ContainerStatuses[0].LastTerminationState = running(30 * time.Second)
	if got := firstPod(append(pods, again), noon); !got.Equal(noon.Add(30 * time.Second)) {
		t.Errorf("%s, want 30 s after noon", got)
	}
}
