package kubesim

import (
	"bytes"
	"cmp"
	"encoding/pem"
	"maps"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// validate checks what Ortet's objects could get wrong: metadata, and what the
// API server refuses of Secrets, Leases, Events and changes of pods. was is nil
// for a new object.
func validate(k *kind, o, was object) field.ErrorList {
	metadata := field.NewPath("metadata")
	var errs field.ErrorList
	if was == nil {
		name := apivalidation.NameIsDNSSubdomain
		switch k.resource {
		case "namespaces":
			name = apivalidation.NameIsDNSLabel
		case "events":
			name = segment
		}
		errs = apivalidation.ValidateObjectMetaAccessor(o, k.namespaced, name, metadata)
	} else {
		// What was valid still is; keys and values are dear to check.
		if !maps.Equal(o.GetLabels(), was.GetLabels()) {
			errs = append(errs, metavalidation.ValidateLabels(o.GetLabels(), metadata.Child("labels"))...)
		}
		news := map[string]string{}
		for key, value := range o.GetAnnotations() {
			if _, known := was.GetAnnotations()[key]; !known {
				news[key] = value
			}
		}
		errs = append(errs, apivalidation.ValidateAnnotations(news, metadata.Child("annotations"))...)
		if err := apivalidation.ValidateAnnotationsSize(o.GetAnnotations()); err != nil {
			errs = append(errs, field.TooLong(metadata.Child("annotations"), "", apivalidation.TotalAnnotationSizeLimitB))
		}
		if was.GetDeletionTimestamp() != nil {
			errs = append(errs, apivalidation.ValidateNoNewFinalizers(o.GetFinalizers(), was.GetFinalizers(), metadata.Child("finalizers"))...)
		}
	}
	switch o := o.(type) {
	case *corev1.Secret:
		before, _ := was.(*corev1.Secret)
		errs = append(errs, validateSecret(o, before)...)
	case *coordinationv1.Lease:
		errs = append(errs, validateLease(o)...)
	case *corev1.Event:
		errs = append(errs, validateEvent(o)...)
	case *corev1.Pod:
		before, _ := was.(*corev1.Pod)
		errs = append(errs, validatePod(o, before)...)
	case *appsv1.ReplicaSet:
		errs = append(errs, validateReplicaSet(o)...)
	case *certificatesv1.CertificateSigningRequest:
		if block, _ := pem.Decode(o.Spec.Request); block == nil || block.Type != "CERTIFICATE REQUEST" {
			errs = append(errs, field.Invalid(field.NewPath("spec", "request"), "", "PEM block type must be CERTIFICATE REQUEST"))
		}
	}
	return errs
}

// segment is all that an Event's name has to be: a part of an address.
func segment(name string, _ bool) []string {
	if name == "." || name == ".." || strings.ContainsAny(name, "/%") {
		return []string{"may not be '.' or '..', and not contain '/' or '%'"}
	}
	return nil
}

func validateSecret(o, was *corev1.Secret) (errs field.ErrorList) {
	size := 0
	for _, value := range o.Data {
		size += len(value)
	}
	if size > corev1.MaxSecretSize {
		errs = append(errs, field.TooLong(field.NewPath("data"), "", corev1.MaxSecretSize))
	}
	if was == nil {
		return errs
	}
	o.Type = cmp.Or(o.Type, was.Type)
	if o.Type != was.Type {
		errs = append(errs, field.Invalid(field.NewPath("type"), o.Type, "field is immutable"))
	}
	if was.Immutable == nil || !*was.Immutable {
		return errs
	}
	if o.Immutable == nil || !*o.Immutable {
		errs = append(errs, field.Forbidden(field.NewPath("immutable"), "field is immutable when `immutable` is set"))
	}
	if !maps.EqualFunc(o.Data, was.Data, bytes.Equal) {
		errs = append(errs, field.Forbidden(field.NewPath("data"), "field is immutable when `immutable` is set"))
	}
	return errs
}

func validateReplicaSet(o *appsv1.ReplicaSet) (errs field.ErrorList) {
	spec := field.NewPath("spec")
	if n := o.Spec.Replicas; n != nil && *n < 0 {
		errs = append(errs, field.Invalid(spec.Child("replicas"), *n, "must be greater than or equal to 0"))
	}
	selector, err := metav1.LabelSelectorAsSelector(o.Spec.Selector)
	switch {
	case o.Spec.Selector == nil:
		errs = append(errs, field.Required(spec.Child("selector"), ""))
	case err != nil || selector.Empty():
		errs = append(errs, field.Invalid(spec.Child("selector"), o.Spec.Selector, "empty selector is invalid for deployment"))
	case !selector.Matches(labels.Set(o.Spec.Template.Labels)):
		errs = append(errs, field.Invalid(spec.Child("template", "metadata", "labels"), o.Spec.Template.Labels, "`selector` does not match template `labels`"))
	}
	if len(o.Spec.Template.Spec.Containers) == 0 {
		errs = append(errs, field.Required(spec.Child("template", "spec", "containers"), ""))
	}
	return errs
}

func validateLease(o *coordinationv1.Lease) (errs field.ErrorList) {
	spec := field.NewPath("spec")
	if d := o.Spec.LeaseDurationSeconds; d != nil && *d <= 0 {
		errs = append(errs, field.Invalid(spec.Child("leaseDurationSeconds"), *d, "must be greater than 0"))
	}
	if n := o.Spec.LeaseTransitions; n != nil && *n < 0 {
		errs = append(errs, field.Invalid(spec.Child("leaseTransitions"), *n, "must be greater than or equal to 0"))
	}
	return errs
}

// validateEvent: what is in no namespace has its events in "default" or in
// "kube-system".
func validateEvent(o *corev1.Event) field.ErrorList {
	about := o.InvolvedObject.Namespace
	if about == "" && o.Namespace != corev1.NamespaceDefault && o.Namespace != "kube-system" || about != "" && about != o.Namespace {
		return field.ErrorList{field.Invalid(field.NewPath("involvedObject", "namespace"), about, "does not match event.namespace")}
	}
	return nil
}

// validatePod: of a pod's spec only a few fields may change.
func validatePod(o, was *corev1.Pod) field.ErrorList {
	spec := field.NewPath("spec")
	if len(o.Spec.Containers) == 0 {
		return field.ErrorList{field.Required(spec.Child("containers"), "")}
	}
	if was == nil || equality.Semantic.DeepEqual(o.Spec, was.Spec) {
		return nil
	}
	same := o.Spec.DeepCopy()
	same.ActiveDeadlineSeconds, same.Tolerations, same.TerminationGracePeriodSeconds = was.Spec.ActiveDeadlineSeconds, was.Spec.Tolerations, was.Spec.TerminationGracePeriodSeconds
	for i := range min(len(same.Containers), len(was.Spec.Containers)) {
		same.Containers[i].Image = was.Spec.Containers[i].Image
	}
	if !equality.Semantic.DeepEqual(*same, was.Spec) {
		return field.ErrorList{field.Forbidden(spec, "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)")}
	}
	return nil
}
