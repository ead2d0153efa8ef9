package kube

import (
	"context"
	"iter"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/ortet/ortet/internal/cluster"
	"github.com/ortet/ortet/internal/cluster/conversion"
	"github.com/ortet/ortet/internal/fleet"
)

// recordsPage bounds what one answer holds: a record takes up to 64 KiB.
const recordsPage = 100

// Records walks ConfigMaps of Ortet's namespace.
func (c *Cluster) Records(ctx context.Context, with map[string]string) iter.Seq2[fleet.Record, error] {
	return func(yield func(fleet.Record, error) bool) {
		for options := (metav1.ListOptions{Limit: recordsPage, LabelSelector: labels.SelectorFromSet(with).String()}); ; {
			page, err := c.client.CoreV1().ConfigMaps(c.namespace).List(ctx, options)
			if err != nil {
				access := cluster.Access{Verb: "list", Resource: "configmaps", Namespace: c.namespace}
				yield(fleet.Record{}, act{op: "list ConfigMaps", on: "namespace " + c.namespace, access: access}.fail(ctx, err))
				return
			}
			for i := range page.Items {
				if !yield(conversion.Record(&page.Items[i]), nil) {
					return
				}
			}
			if options.Continue = page.Continue; options.Continue == "" {
				return
			}
		}
	}
}
