package controller

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/wire"
)

// clocksDiffer is how far a node's clock, Azure's and the API server's are trusted
// to agree when only the order of events is asked.
const clocksDiffer = 30 * time.Second

// bootStart is when the boot of a report began, with the kernel's start but after a
// soft reboot, by the node's clock as it was set last; zero if no reading has it.
func bootStart(r wire.BootReport) time.Time {
	if len(r.Clocks) == 0 {
		return time.Time{}
	}
	last := r.Clocks[len(r.Clocks)-1]
	if last.Wall == 0 {
		return time.Time{}
	}
	return time.UnixMicro(int64(last.Wall - last.Monotonic + r.System.Began())).UTC()
}

// recordOf returns what the cloud and the cluster know of the boot that a report is of.
// What belongs to another boot of the machine, or to an earlier machine of the name,
// is left out: a machine that was restarted was not created then.
func recordOf(b fleet.Boot, node *NodeView, report wire.BootReport) BootRecord {
	r := BootRecord{Node: node.Name, Pool: b.Pool, Instance: b.Instance, VMID: strings.ToLower(b.VMID), BootID: report.BootID, Image: b.Image}
	began := bootStart(report)
	// The kubelet reports of one boot, which may be a later one.
	current := report.BootID == "" || node.BootID == "" || strings.EqualFold(report.BootID, node.BootID)
	ours := !node.Created.Before(b.Created.Add(-clocksDiffer)) // not of an earlier machine
	restarted := !began.IsZero() &&
		(ours && node.Created.Before(began.Add(-clocksDiffer)) || !b.Created.IsZero() && began.Sub(b.Created) > maxBoot)
	if !restarted {
		r.Created = b.Created
		if p := b.Provisioning; p.State == "succeeded" && within(p.Time, b.Created) {
			r.Provisioned = p.Time
		}
		if current && ours && (began.IsZero() || within(node.Created, began)) {
			r.NodeCreated = node.Created
		}
	}
	if current && node.Ready && (began.IsZero() || within(node.ReadySince, began)) {
		r.NodeReady = node.ReadySince
	}
	return r
}

// within reports whether something happened in the time that a boot takes at most.
func within(at, from time.Time) bool {
	return !at.IsZero() && !from.IsZero() && !at.Before(from.Add(-clocksDiffer)) && at.Sub(from) <= maxBoot
}

// firstPod is when the first container ran on a node, since then, of the pods that
// came to it: those of DaemonSets and static ones belong to the node. Zero where
// it has none.
func firstPod(pods []corev1.Pod, since time.Time) time.Time {
	var first time.Time
	for i := range pods {
		p := &pods[i]
		if _, static := p.Annotations[corev1.MirrorPodAnnotationKey]; static {
			continue
		}
		if owner := metav1.GetControllerOf(p); owner != nil && (owner.Kind == "DaemonSet" || owner.Kind == "Node") {
			continue
		}
		for _, c := range p.Status.ContainerStatuses {
			for _, at := range []time.Time{startOf(c.State), startOf(c.LastTerminationState)} {
				if !at.IsZero() && !at.Before(since) && (first.IsZero() || at.Before(first)) {
					first = at.UTC()
				}
			}
		}
	}
	return first
}

func startOf(s corev1.ContainerState) time.Time {
	switch {
	case s.Running != nil:
		return s.Running.StartedAt.Time
	case s.Terminated != nil:
		return s.Terminated.StartedAt.Time
	}
	return time.Time{}
}
