package kubesim

import (
	appsv1 "k8s.io/api/apps/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// machineGroup is served where Server.Machines says so.
const machineGroup = "cluster.x-k8s.io"

// object is what every kind's Go type is.
type object interface {
	runtime.Object
	metav1.Object
}

// message is what the built-in kinds' types are too.
type message interface {
	Marshal() ([]byte, error)
	Unmarshal(data []byte) error
}

// A kind is one resource that is served.
type kind struct {
	group, version, resource, name string
	short                          []string // kubectl's names for it
	namespaced                     bool
	fresh                          func() object
	custom                         bool // it has no protocol buffers
	status                         bool // it has a status of its own
	// generation: metadata.generation counts changes of the spec.
	generation bool
	// createOnUpdate: a PUT of what is missing makes it.
	createOnUpdate bool
	// conditional: a PUT has to give a resourceVersion.
	conditional bool

	envelope, listEnvelope []byte // see codec.go
}

func (k *kind) groupResource() schema.GroupResource {
	return schema.GroupResource{Group: k.group, Resource: k.resource}
}

func (k *kind) groupVersion() string {
	return schema.GroupVersion{Group: k.group, Version: k.version}.String()
}

func (k *kind) groupKind() schema.GroupKind { return schema.GroupKind{Group: k.group, Kind: k.name} }

func (k *kind) groupVersionKind() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: k.group, Version: k.version, Kind: k.name}
}

// of makes an object's type complete, as its JSON needs it.
func (k *kind) of(o object) object {
	o.GetObjectKind().SetGroupVersionKind(k.groupVersionKind())
	return o
}

// kinds lists what is served. Whether a PUT makes what is missing, and whether
// it needs a resourceVersion, is as each kind's strategy in Kubernetes has it.
func kinds() []*kind {
	all := []*kind{
		{version: "v1", resource: "nodes", name: "Node", short: []string{"no"}, status: true, fresh: func() object { return new(corev1.Node) }},
		{version: "v1", resource: "pods", name: "Pod", short: []string{"po"}, status: true, namespaced: true, generation: true, fresh: func() object { return new(corev1.Pod) }},
		{version: "v1", resource: "namespaces", name: "Namespace", short: []string{"ns"}, status: true, fresh: func() object { return new(corev1.Namespace) }},
		{version: "v1", resource: "secrets", name: "Secret", namespaced: true, fresh: func() object { return new(corev1.Secret) }},
		{version: "v1", resource: "configmaps", name: "ConfigMap", short: []string{"cm"}, namespaced: true, fresh: func() object { return new(corev1.ConfigMap) }},
		{version: "v1", resource: "serviceaccounts", name: "ServiceAccount", short: []string{"sa"}, namespaced: true, fresh: func() object { return new(corev1.ServiceAccount) }},
		{version: "v1", resource: "events", name: "Event", short: []string{"ev"}, namespaced: true, createOnUpdate: true, fresh: func() object { return new(corev1.Event) }},
		{group: "coordination.k8s.io", version: "v1", resource: "leases", name: "Lease", namespaced: true, createOnUpdate: true, conditional: true, fresh: func() object { return new(coordinationv1.Lease) }},
		{group: "apps", version: "v1", resource: "daemonsets", name: "DaemonSet", short: []string{"ds"}, status: true, namespaced: true, generation: true, fresh: func() object { return new(appsv1.DaemonSet) }},
		{group: "apps", version: "v1", resource: "replicasets", name: "ReplicaSet", short: []string{"rs"}, status: true, namespaced: true, generation: true, fresh: func() object { return new(appsv1.ReplicaSet) }},
		{group: "policy", version: "v1", resource: "poddisruptionbudgets", name: "PodDisruptionBudget", short: []string{"pdb"}, status: true, namespaced: true, generation: true, conditional: true, fresh: func() object { return new(policyv1.PodDisruptionBudget) }},
		{group: "certificates.k8s.io", version: "v1", resource: "certificatesigningrequests", name: "CertificateSigningRequest", short: []string{"csr"}, status: true, fresh: func() object { return new(certificatesv1.CertificateSigningRequest) }},
		{group: machineGroup, version: "v1beta1", resource: "machines", name: "Machine", namespaced: true, generation: true, conditional: true, custom: true, fresh: func() object { return new(unstructured.Unstructured) }},
	}
	for _, k := range all {
		k.envelope, k.listEnvelope = envelope(k.group, k.version, k.name), envelope(k.group, k.version, k.name+"List")
	}
	return all
}
