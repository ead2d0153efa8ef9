package azsimserver

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// AwaitReady waits until so many nodes are Ready and gives the names of all that
// are.
func AwaitReady(ctx context.Context, client kubernetes.Interface, want int) ([]string, error) {
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for {
		list, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, err
		}
		var names []string
		for _, n := range list.Items {
			for _, c := range n.Status.Conditions {
				if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
					names = append(names, n.Name)
				}
			}
		}
		if len(names) >= want {
			return names, nil
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for %d Ready nodes: %d are: %w", want, len(names), ctx.Err())
		case <-tick.C:
		}
	}
}
