package kube

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ortet/ortet/internal/cluster"
	"github.com/ortet/ortet/internal/fleet"
)

// Pods lists by the field selector of a drain.
func (c *Cluster) Pods(ctx context.Context, node string) ([]fleet.Pod, error) {
	list, err := c.client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + node})
	if err != nil {
		return nil, act{op: "list pods", on: "node " + node, access: cluster.Access{Verb: "list", Resource: "pods"}}.fail(ctx, err)
	}
	pods := make([]fleet.Pod, 0, len(list.Items)) // never nil: an empty node was read
	for i := range list.Items {
		pods = append(pods, podOf(&list.Items[i]))
	}
	return pods, nil
}

func podOf(p *corev1.Pod) fleet.Pod {
	out := fleet.Pod{Name: p.Namespace + "/" + p.Name, Ready: ready(*p), Mirror: p.Annotations[corev1.MirrorPodAnnotationKey] != ""}
	if o := metav1.GetControllerOf(p); o != nil && o.Kind == "DaemonSet" {
		out.DaemonSet = p.Namespace + "/" + o.Name
	}
	out.Stays = p.Annotations[fleet.AnnotationDoNotDisrupt] == "true"
	var volumes []string
	for _, v := range p.Spec.Volumes {
		switch {
		case v.EmptyDir != nil && v.EmptyDir.Medium == corev1.StorageMediumDefault:
			volumes = append(volumes, "emptyDir "+v.Name)
		case v.HostPath != nil:
			volumes = append(volumes, "hostPath "+v.HostPath.Path)
		case v.PersistentVolumeClaim != nil:
			volumes = append(volumes, "claim "+v.PersistentVolumeClaim.ClaimName)
		}
	}
	out.Volumes = strings.Join(volumes, ", ")
	why := cmp.Or(p.Status.Reason, string(p.Status.Phase))
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			out.ReadySince, why = c.LastTransitionTime.Time, cmp.Or(joined(c.Reason, c.Message), why)
		}
	}
	// The first container that waits or failed is the reason for what follows.
	for _, s := range slices.Backward(slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses)) {
		out.Restarts += s.RestartCount
		switch state := s.State; {
		case state.Running != nil && state.Running.StartedAt.After(out.ReadySince):
			out.ReadySince = state.Running.StartedAt.Time
		case state.Waiting != nil:
			why = s.Name + ": " + state.Waiting.Reason
		case state.Terminated != nil && state.Terminated.ExitCode != 0:
			why = s.Name + ": " + state.Terminated.Reason
		}
	}
	if !out.Ready {
		out.ReadySince, out.NotReadyWhy = time.Time{}, why
	}
	return out
}
