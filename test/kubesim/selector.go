package kubesim

import (
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
)

// selector reads both selectors of a list.
func (c *call) selector() (func(object) bool, error) {
	byLabels, byFields := labels.Everything(), fields.Everything()
	var err error
	if text := c.parameter("labelSelector"); text != "" {
		if byLabels, err = labels.Parse(text); err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
	}
	if text := c.parameter("fieldSelector"); text != "" {
		if byFields, err = fields.ParseSelector(text); err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
	}
	requirements := byFields.Requirements()
	for _, r := range requirements {
		if _, ok := fieldOf(c.kind.fresh(), r.Field); !ok {
			return nil, apierrors.NewBadRequest(fmt.Sprintf("Unable to find %q that match label selector %q, field selector %q: field label not supported: %s",
				c.kind.groupVersionKind(), byLabels, byFields, r.Field))
		}
	}
	if byLabels.Empty() && len(requirements) == 0 {
		return func(object) bool { return true }, nil
	}
	return func(o object) bool {
		for _, r := range requirements {
			// Requirements are "=", "==" or "!=".
			value, _ := fieldOf(o, r.Field)
			if (value == r.Value) == (r.Operator == "!=") {
				return false
			}
		}
		return byLabels.Empty() || byLabels.Matches(labels.Set(o.GetLabels()))
	}, nil
}

// fieldOf gives a field that can be selected by, as the conversion functions of
// each kind in Kubernetes list them.
func fieldOf(o object, name string) (value string, ok bool) {
	switch name {
	case "metadata.name":
		return o.GetName(), true
	case "metadata.namespace":
		return o.GetNamespace(), true
	}
	switch o := o.(type) {
	case *corev1.Pod:
		switch name {
		case "spec.nodeName":
			return o.Spec.NodeName, true
		case "spec.restartPolicy":
			return string(o.Spec.RestartPolicy), true
		case "spec.schedulerName":
			return o.Spec.SchedulerName, true
		case "spec.serviceAccountName":
			return o.Spec.ServiceAccountName, true
		case "spec.hostNetwork":
			return strconv.FormatBool(o.Spec.HostNetwork), true
		case "status.phase":
			return string(o.Status.Phase), true
		case "status.podIP":
			return o.Status.PodIP, true
		case "status.nominatedNodeName":
			return o.Status.NominatedNodeName, true
		}
	case *corev1.Node:
		if name == "spec.unschedulable" {
			return strconv.FormatBool(o.Spec.Unschedulable), true
		}
	case *corev1.Namespace:
		if name == "status.phase" {
			return string(o.Status.Phase), true
		}
	case *corev1.Secret:
		if name == "type" {
			return string(o.Type), true
		}
	case *corev1.Event:
		switch name {
		case "involvedObject.kind":
			return o.InvolvedObject.Kind, true
		case "involvedObject.namespace":
			return o.InvolvedObject.Namespace, true
		case "involvedObject.name":
			return o.InvolvedObject.Name, true
		case "involvedObject.uid":
			return string(o.InvolvedObject.UID), true
		case "involvedObject.apiVersion":
			return o.InvolvedObject.APIVersion, true
		case "involvedObject.resourceVersion":
			return o.InvolvedObject.ResourceVersion, true
		case "involvedObject.fieldPath":
			return o.InvolvedObject.FieldPath, true
		case "reason":
			return o.Reason, true
		case "reportingComponent":
			return o.ReportingController, true
		case "source":
			if o.Source.Component == "" {
				return o.ReportingController, true
			}
			return o.Source.Component, true
		case "type":
			return o.Type, true
		}
	}
	return "", false
}
