// Package v1alpha1 has the Kubernetes API of Ortet: ScaleSetPool, which says what a pool's image and
// nodes shall be. Whoever reads or writes such objects from Go imports this package alone.
//
// The markers in the comments are read by controller-gen (make crds), which writes the CRD of
// charts/ortet and the deep copies. What a field means is in its comment, which kubectl explain shows.
//
// +kubebuilder:object:generate=true
// +groupName=ortet.io
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the group of the kinds here, and their version.
var GroupVersion = schema.GroupVersion{Group: "ortet.io", Version: "v1alpha1"}

// AddToScheme registers the kinds here.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &ScaleSetPool{}, &ScaleSetPoolList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
