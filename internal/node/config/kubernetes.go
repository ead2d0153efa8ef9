package config

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"strconv"
	"time"

	"github.com/ortet/ortet/internal/node/bootstrap"
	"github.com/ortet/ortet/internal/nodeconfig"
	"github.com/ortet/ortet/internal/wire"
)

// Kubernetes is bootstrap.APIServer: the kubelet's credentials may watch and patch its
// own Node. Source: Kubernetes, plugin/pkg/auth/authorizer/node.
type Kubernetes interface {
	Ask(ctx context.Context, method string, path func(node string) string, contentType string, body []byte) (bootstrap.Answer, error)
	Watch(ctx context.Context, path func(node string) string, accept string, idle time.Duration, event func(line []byte) error) error
}

const (
	// metadataOnly spares the Node's status and spec. Source: "Kubernetes API Concepts".
	metadataOnly = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
	// The server ends a watch after this time, at random below twice the first.
	watchLeast, watchMore = 300, 300 // seconds
	// watchIdle is longer than bookmarks take, a minute each.
	watchIdle = 3 * time.Minute
)

// watchPath watches one Node. Resource version 0 has the server send the Node as it is
// first, from its cache, so that nothing has to be listed before.
func watchPath(random float64) func(node string) string {
	return func(node string) string {
		q := url.Values{
			"watch": {"true"}, "fieldSelector": {"metadata.name=" + node}, "resourceVersion": {"0"}, "allowWatchBookmarks": {"true"},
			"timeoutSeconds": {strconv.Itoa(watchLeast + int(random*watchMore))},
		}
		return "/api/v1/nodes?" + q.Encode()
	}
}

// observation is what the watch last saw.
type observation struct {
	watching bool
	node     bool   // the Node was seen
	wanted   int64  // 0 for none
	answer   string // the annotation
}

// observe takes in one line of the watch.
func (o *observation) observe(line []byte) error {
	var e struct {
		Type   string `json:"type"`
		Object struct {
			Metadata struct {
				Annotations map[string]string `json:"annotations"`
			} `json:"metadata"`
			Code    int    `json:"code"`
			Message string `json:"message"`
		} `json:"object"`
	}
	if err := json.Unmarshal(line, &e); err != nil {
		return fmt.Errorf("read an event of the watch: %w", err)
	}
	switch e.Type {
	case "ADDED", "MODIFIED":
		o.node, o.answer = true, e.Object.Metadata.Annotations[wire.ConfigurationAnnotation]
		// What is no number, or beyond what counts, asks for nothing.
		wanted, _ := strconv.ParseInt(e.Object.Metadata.Annotations[wire.ConfigurationWanted], 10, 64)
		o.wanted = nodeconfig.Counted(wanted)
	case "DELETED":
		*o = observation{}
	case "ERROR":
		return fmt.Errorf("the API server ended the watch: %d %s", e.Object.Code, clip(e.Object.Message))
	}
	o.watching = true
	return nil
}

// statusOf is the status of the Node's condition for an answer.
func statusOf(a wire.ConfigurationAnswer) string {
	switch a.State {
	case wire.ConfigurationApplied:
		return "True"
	case wire.ConfigurationFailed, wire.ConfigurationRefused:
		return "False"
	}
	return "Unknown"
}

// conditionOf is the Node's condition for an answer, whose status is so since then.
func conditionOf(a wire.ConfigurationAnswer, since time.Time) map[string]any {
	c := map[string]any{"type": wire.ConfigurationCondition, "status": statusOf(a), "reason": a.Reason, "message": a.Message, "lastHeartbeatTime": a.At, "lastTransitionTime": since}
	if a.Reason == "" {
		c["reason"] = string(a.State)
	}
	if a.Message == "" {
		c["message"] = fmt.Sprintf("the node has generation %d", a.Generation)
	}
	return c
}

// publish writes an answer to the Node: condition and annotation in one patch, which the
// status takes as well. Only a strategic merge patch leaves the kubelet's conditions.
// Source: Kubernetes, pkg/registry/core/node, nodeStatusStrategy.
func publish(ctx context.Context, k Kubernetes, a wire.ConfigurationAnswer, since time.Time) error {
	text, err := json.Marshal(a)
	if err != nil {
		return err
	}
	body, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"annotations": map[string]string{wire.ConfigurationAnnotation: string(text)}},
		"status":   map[string]any{"conditions": []any{conditionOf(a, since)}},
	})
	if err != nil {
		return err
	}
	return patch(ctx, k, body)
}

// Heartbeat reads the machine's own Node: whether it is Ready, and when the kubelet last
// said so. A machine without a kubeconfig has no Node, and counts as Ready.
func Heartbeat(k Kubernetes, now func() time.Time) func(ctx context.Context) (ready bool, at time.Time, err error) {
	return func(ctx context.Context) (ready bool, at time.Time, err error) {
		a, err := k.Ask(ctx, "GET", func(node string) string { return "/api/v1/nodes/" + url.PathEscape(node) }, "", nil)
		if errors.Is(err, fs.ErrNotExist) {
			return true, now(), nil
		}
		if err == nil && a.Code != 200 {
			err = errors.New(a.Status)
		}
		var n struct {
			Status struct {
				Conditions []struct {
					Type, Status string
					At           time.Time `json:"lastHeartbeatTime"`
				} `json:"conditions"`
			} `json:"status"`
		}
		if err == nil {
			err = json.Unmarshal(a.Body, &n)
		}
		if err != nil {
			return false, at, fmt.Errorf("read the node's own Node: %w", err)
		}
		for _, c := range n.Status.Conditions {
			if c.Type == "Ready" {
				ready, at = c.Status == "True", c.At
			}
		}
		return ready, at, nil
	}
}

func patch(ctx context.Context, k Kubernetes, body []byte) error {
	a, err := k.Ask(ctx, "PATCH", func(node string) string {
		return "/api/v1/nodes/" + url.PathEscape(node) + "/status?fieldManager=ortet-node"
	}, "application/strategic-merge-patch+json", body)
	if err == nil && a.Code/100 != 2 {
		err = errors.New(a.Refusal())
	}
	if err != nil {
		return fmt.Errorf("patch the node's own Node: %w", err)
	}
	return nil
}
