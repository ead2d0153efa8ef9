package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/wire"
)

// LabelTold is the kind of a node's report in a ConfigMap of Ortet's namespace: ToldVerdict
// or ToldBoot, which is also the key of its JSON. It is annotated with ortet.io/node,
// vm-id, instance and pool. Its reader deletes it.
const (
	LabelTold   = "ortet.io/told"
	ToldVerdict = "verdict"
	ToldBoot    = "boot"
)

// Limits of unread reports. A machine has up to one of each kind, the latest.
const (
	maxTold     = 1000
	maxToldSize = 256 << 10 // bytes of JSON
	maxToldAge  = 24 * time.Hour
)

var errBusy = errors.New("it went on changing")

// Tell implements admission.Cluster.
func (c *Cluster) Tell(ctx context.Context, member fleet.Member, verdict *wire.Verdict, boot *wire.BootReport) error {
	kind, what := ToldVerdict, any(verdict)
	if verdict == nil {
		kind, what = ToldBoot, any(boot)
	}
	op := "keep a " + kind
	invalid := func(err error) error {
		return &fleet.Error{Op: op, Resource: "node " + member.NodeName(), Kind: fleet.KindInvalid, Err: err}
	}
	if (verdict == nil) == (boot == nil) || member.VMID == "" {
		return invalid(errors.New("want a verdict or a boot, of a machine"))
	}
	text, err := json.Marshal(what)
	if err != nil {
		return invalid(err)
	}
	if len(text) > maxToldSize {
		return invalid(fmt.Errorf("%d bytes, more than %d", len(text), maxToldSize))
	}
	m := &corev1.ConfigMap{ObjectMeta: c.ours(c.namespace, "told-"+kind+"-"+member.VMID, "told"), Data: map[string]string{kind: string(text)}}
	m.Labels[LabelTold] = kind
	for key, value := range map[string]string{annotationNode: member.NodeName(), annotationVMID: member.VMID, annotationInstance: string(member.Instance), annotationPool: string(member.Pool)} {
		m.Annotations[key] = value
	}
	maps := c.client.CoreV1().ConfigMaps(c.namespace)
	for range attempts {
		_, err = maps.Create(ctx, m, metav1.CreateOptions{FieldManager: fieldManager})
		if apierrors.IsAlreadyExists(err) {
			// The controller may take it between the two.
			_, err = maps.Update(ctx, m, metav1.UpdateOptions{FieldManager: fieldManager})
		}
		if !apierrors.IsNotFound(err) {
			break
		}
	}
	return fail(ctx, op, "configmap "+c.namespace+"/"+m.Name, err)
}

// sweepTold deletes reports that were not read in time, and the oldest beyond the limits.
func (c *Cluster) sweepTold(ctx context.Context) error {
	maps := c.metadata.Resource(corev1.SchemeGroupVersion.WithResource("configmaps")).Namespace(c.namespace)
	var all []metav1.PartialObjectMetadata
	options := metav1.ListOptions{Limit: page, LabelSelector: LabelTold}
	for {
		list, err := maps.List(ctx, options)
		if err != nil {
			return fail(ctx, "sweep what nodes told", "configmaps of "+c.namespace, err)
		}
		all = append(all, list.Items...)
		if options.Continue = list.Continue; options.Continue == "" {
			break
		}
	}
	slices.SortFunc(all, func(a, b metav1.PartialObjectMetadata) int {
		return b.CreationTimestamp.Compare(a.CreationTimestamp.Time)
	})
	for i := range all {
		if i < maxTold && c.now().Sub(all[i].CreationTimestamp.Time) < maxToldAge {
			continue
		}
		err := c.client.CoreV1().ConfigMaps(c.namespace).Delete(ctx, all[i].Name, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return fail(ctx, "sweep what nodes told", "configmap "+c.namespace+"/"+all[i].Name, err)
		}
	}
	return nil
}
