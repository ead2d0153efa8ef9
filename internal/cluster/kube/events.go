package kube

import (
	"context"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ortet/ortet/internal/cluster"
	"github.com/ortet/ortet/internal/fleet"
)

// maxEventMessage is the API server's bound on an Event's message, in bytes.
const maxEventMessage = 1024

// Event records where the kubelet records its node's events: in namespace
// default, with the node's name for its UID, so that `kubectl describe node`
// shows it.
func (c *Cluster) Event(ctx context.Context, node fleet.Node, warning bool, reason, message string) {
	kind := corev1.EventTypeNormal
	if warning {
		kind = corev1.EventTypeWarning
	}
	if len(message) > maxEventMessage {
		message = strings.ToValidUTF8(message[:maxEventMessage-3], "") + "…"
	}
	now := metav1.NewTime(c.now())
	_, err := c.client.CoreV1().Events(metav1.NamespaceDefault).Create(ctx, &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{GenerateName: node.Name + ".", Namespace: metav1.NamespaceDefault},
		InvolvedObject: corev1.ObjectReference{
			Kind: "Node", APIVersion: "v1", Name: node.Name, UID: types.UID(node.Name),
		},
		Reason: reason, Message: message, Type: kind, Count: 1,
		FirstTimestamp: now, LastTimestamp: now,
		Source:              corev1.EventSource{Component: "ortet", Host: c.identity},
		ReportingController: "ortet.io/ortet", ReportingInstance: c.identity,
	}, metav1.CreateOptions{FieldManager: fieldManager})
	if err != nil {
		a := act{op: "record event", on: "node " + node.Name,
			access: cluster.Access{Verb: "create", Resource: "events", Namespace: metav1.NamespaceDefault}}
		c.log.WarnContext(ctx, "event not recorded", "reason", reason, "error", a.fail(ctx, err))
	}
}
