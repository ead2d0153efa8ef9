package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/ortet/ortet/test/azsimserver"
)

// showNodes prints the cluster's nodes, the pods on each, and the image that its
// disk was made from.
func showNodes(ctx context.Context, out io.Writer, client kubernetes.Interface, azure *azsimserver.Azure, title string) error {
	say(out, "%s", title)
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
		if isReady(node) {
			status = "Ready"
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

func isReady(node corev1.Node) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// A watched is what a watch saw.
type watched struct {
	shown string // the nodes while a fresh donor was up
	err   error
}

// watch looks at the nodes until ctx ends. It is an error if one of the serving ones left service, or no fresh donor came up.
func watch(ctx context.Context, client kubernetes.Interface, azure *azsimserver.Azure, serving []string) <-chan watched {
	result := make(chan watched, 1)
	go func() {
		var w watched
		for ; ctx.Err() == nil; time.Sleep(100 * time.Millisecond) {
			nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
			if err != nil {
				continue // asked again, or ctx has ended
			}
			served := 0
			for _, n := range nodes.Items {
				if slices.Contains(serving, n.Name) && isReady(n) && !n.Spec.Unschedulable {
					served++
				}
				if n.Annotations["ortet.io/fresh"] != "" && isReady(n) && w.shown == "" {
					var b strings.Builder
					w.err = errors.Join(w.err, showNodes(ctx, &b, client, azure, "The cluster's nodes during the capture"))
					w.shown = b.String()
				}
			}
			if served < len(serving) && w.err == nil {
				w.err = fmt.Errorf("%d of %d serving nodes are in service", served, len(serving))
			}
		}
		if w.shown == "" {
			w.err = errors.Join(w.err, errors.New("no fresh donor came up"))
		}
		result <- w
	}()
	return result
}
