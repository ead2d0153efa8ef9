package kubesim

import (
	"fmt"

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

// fieldOf returns a field that can be selected by: those of Kubernetes that our
// programs, their tests and kubectl use.
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
		case "status.phase":
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
		case "reason":
			return o.Reason, true
		}
	}
	return "", false
}
