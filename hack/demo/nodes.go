package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/ortet/ortet/test/azsimserver"
)

// showNodes prints the cluster's nodes, the pods on each, and the image that its
// disk was made from.
func showNodes(ctx context.Context, out io.Writer, client kubernetes.Interface, azure *azsimserver.Azure) error {
	say(out, "The cluster's nodes")
	nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	pods, err := client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	images, err := azure.Images(ctx, pool)
	if err != nil {
		return err
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "  NAME\tSTATUS\tPODS\tMADE FROM")
	for _, node := range nodes.Items {
		status := "NotReady"
		for _, c := range node.Status.Conditions {
			if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
				status = "Ready"
			}
		}
		if node.Spec.Unschedulable {
			status += ",SchedulingDisabled"
		}
		count := 0
		for _, pod := range pods.Items {
			if pod.Spec.NodeName == node.Name && pod.Status.Phase == corev1.PodRunning {
				count++
			}
		}
		fmt.Fprintf(table, "  %s\t%s\t%d\t%s\n", node.Name, status, count, images[strings.ToLower(node.Spec.ProviderID)])
	}
	return table.Flush()
}
