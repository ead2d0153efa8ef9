package controller

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

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
