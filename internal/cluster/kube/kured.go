package kube

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ortet/ortet/internal/cluster"
	"github.com/ortet/ortet/internal/cluster/kube/kured"
	"github.com/ortet/ortet/internal/fleet"
)

// kuredHolder stands before a holder of ours in kured's lock, where kured has a
// node's name. No node's name has a slash.
const kuredHolder = "ortet/"

// kuredPlaces are where kured's manifest and chart put it.
var kuredPlaces = [...]string{"kube-system/kured", "kured/kured"}

// HoldReboots takes kured's lock, all its places where kured reboots several
// nodes at once. If the holder has it, its time to live begins again. A lock
// whose time to live passed counts as free, as kured has it.
func (c *Cluster) HoldReboots(ctx context.Context, holder string, ttl time.Duration) (bool, error) {
	if holder == "" || ttl <= 0 {
		return false, &fleet.Error{Op: "hold kured's lock", Kind: fleet.KindInvalid, Err: errors.New("a lock needs a holder and a time to live")}
	}
	return c.changeLock(ctx, "hold kured's lock", func(settings kured.Settings, value string) (string, bool, error) {
		value, err := settings.Take(value, kuredHolder+holder, c.now(), ttl)
		return value, err == nil, err
	})
}

// ReleaseReboots releases the lock if the holder has it.
func (c *Cluster) ReleaseReboots(ctx context.Context, holder string) error {
	_, err := c.changeLock(ctx, "release kured's lock", func(settings kured.Settings, value string) (string, bool, error) {
		return settings.Release(value, kuredHolder+holder)
	})
	return err
}

// changeLock changes the lock's annotation as decide says, and only as long as
// the DaemonSet is as it was read. decide gives the new value, "" to remove it,
// and whether anything changes.
func (c *Cluster) changeLock(ctx context.Context, op string, decide func(kured.Settings, string) (string, bool, error)) (bool, error) {
	for range holdTries {
		daemonSet, err := c.findKured(ctx)
		if err != nil || daemonSet == nil {
			return false, err
		}
		on := "daemonset " + daemonSet.Namespace + "/" + daemonSet.Name
		settings := settingsOf(daemonSet)
		value, change, err := decide(settings, daemonSet.Annotations[settings.Annotation])
		if err != nil {
			out := &fleet.Error{Op: op, Resource: on, Kind: fleet.KindInvalid, Err: err,
				Remedy: "look at its annotation " + settings.Annotation}
			var held *kured.HeldError
			if errors.As(err, &held) {
				out.Kind, out.RetryAfter = fleet.KindHeld, held.Left
				out.Remedy = "wait until that node has rebooted; if it never does, remove the annotation " + settings.Annotation
			}
			return true, out
		}
		if !change {
			return true, nil
		}
		var annotation any
		if value != "" {
			annotation = value
		}
		a := act{op: op, on: on, access: cluster.Access{Verb: "patch", Group: "apps", Resource: "daemonsets", Namespace: daemonSet.Namespace, Name: daemonSet.Name}}
		body, err := json.Marshal(map[string]any{"metadata": map[string]any{
			"annotations": map[string]any{settings.Annotation: annotation}, "resourceVersion": daemonSet.ResourceVersion,
		}})
		if err != nil {
			return true, a.fail(ctx, err)
		}
		_, err = c.client.AppsV1().DaemonSets(daemonSet.Namespace).Patch(ctx, daemonSet.Name, types.MergePatchType, body, metav1.PatchOptions{FieldManager: fieldManager})
		if err == nil {
			return true, nil
		}
		if !apierrors.IsConflict(err) {
			return true, a.fail(ctx, err)
		}
		// Its status is written often; look again.
	}
	return true, &fleet.Error{Op: op, Kind: fleet.KindConflict, Err: errors.New("kured's DaemonSet is written all the time")}
}

// settingsOf reads the flags of kured's container.
func settingsOf(daemonSet *appsv1.DaemonSet) kured.Settings {
	var words []string
	environment := map[string]string{}
	for _, container := range daemonSet.Spec.Template.Spec.Containers {
		words = append(append(words, container.Command...), container.Args...)
		for _, variable := range container.Env {
			environment[variable.Name] = variable.Value
		}
	}
	return kured.ReadSettings(words, environment)
}

// findKured returns kured's DaemonSet, or nil where there is none.
func (c *Cluster) findKured(ctx context.Context) (*appsv1.DaemonSet, error) {
	places := kuredPlaces[:]
	if c.kured != "" {
		places = []string{c.kured}
	}
	for _, place := range places {
		namespace, name, _ := strings.Cut(place, "/")
		daemonSet, err := c.client.AppsV1().DaemonSets(namespace).Get(ctx, name, metav1.GetOptions{})
		if err == nil {
			return daemonSet, nil
		}
		if !apierrors.IsNotFound(err) {
			a := act{op: "look for kured", on: "daemonset " + place, access: cluster.Access{Verb: "get", Group: "apps", Resource: "daemonsets", Namespace: namespace}}
			return nil, a.fail(ctx, err)
		}
	}
	if c.kured != "" {
		return nil, nil
	}
	list, err := c.client.AppsV1().DaemonSets(metav1.NamespaceAll).List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=kured", Limit: 1})
	if err != nil {
		a := act{op: "look for kured", access: cluster.Access{Verb: "list", Group: "apps", Resource: "daemonsets"}}
		return nil, a.fail(ctx, err)
	}
	if len(list.Items) == 0 {
		return nil, nil
	}
	return &list.Items[0], nil
}
