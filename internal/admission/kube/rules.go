package kube

import (
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A Rule is what RBAC has to allow the admission server of one resource. It uses
// what is listed and nothing else; the chart grants exactly these.
type Rule struct {
	Namespace string // "" means the whole cluster
	Group     string
	Resource  string   // with its subresource, "pods/eviction"
	Names     []string // empty means any
	Verbs     []string // sorted
	Why       string   // for the documentation
}

// Rules returns what the admission server needs, whose own namespace is the one given.
// Of kube-system's Secrets it may read none: that is why what is kept of a token lies
// in its own namespace. What it may make and delete of them the chart's second policy
// narrows further than RBAC can, and its third the Leases of its own namespace.
func Rules(namespace string) []Rule {
	const certificates, leases = "certificates.k8s.io", "coordination.k8s.io"
	keys := []string{authorityName, nonceKeyName, recordsName}
	return []Rule{
		{Resource: "nodes", Verbs: []string{"delete", "get", "list", "patch", "watch"}, Why: "whether a name is taken; end tokens of Nodes that are Ready; cordon, taint and delete Nodes that leave"},
		{Resource: "pods", Verbs: []string{"delete", "list"}, Why: "drain: the node's pods, and what is left when the time is up"},
		{Resource: "pods/eviction", Verbs: []string{"create"}, Why: "drain"},
		{Group: certificates, Resource: "certificatesigningrequests", Verbs: []string{"delete", "list", "watch"}, Why: "see what kubelets ask for; take away what a node that left asked for"},
		{Group: certificates, Resource: "certificatesigningrequests/approval", Verbs: []string{"update"}, Why: "approve and deny"},
		{Group: certificates, Resource: "signers", Names: []string{certificatesv1.KubeAPIServerClientKubeletSignerName, certificatesv1.KubeletServingSignerName}, Verbs: []string{"approve"}, Why: "approve kubelets' certificates and no others"},
		{Namespace: metav1.NamespaceSystem, Resource: "secrets", Verbs: []string{"create", "delete"}, Why: "bootstrap tokens, and the node passwords of k3s and RKE2; it reads none"},
		{Namespace: metav1.NamespaceSystem, Resource: "configmaps", Names: []string{clientCAs}, Verbs: []string{"get"}, Why: "whose client certificates the API server takes"},
		{Namespace: corev1.NamespaceNodeLease, Group: leases, Resource: "leases", Verbs: []string{"list"}, Why: "when a node was heard of last"},
		{Namespace: namespace, Resource: "configmaps", Verbs: []string{"create", "delete", "get", "list", "update", "watch"}, Why: "the names admitted, what is kept of tokens, and what nodes told"},
		{Namespace: KeysNamespace(namespace), Resource: "secrets", Verbs: []string{"create"}, Why: "the keys of the nonces and of the records, and the authority of the server's certificates"},
		{Namespace: KeysNamespace(namespace), Resource: "secrets", Names: keys, Verbs: []string{"get"}, Why: "the same"},
		{Namespace: namespace, Resource: "secrets", Names: keys, Verbs: []string{"delete", "get"}, Why: "the same of earlier versions, which are copied, and deleted an hour later"},
		{Namespace: namespace, Group: leases, Resource: "leases", Verbs: []string{"create", "deletecollection", "get"}, Why: "spent nonces, made one by one and swept by their label; whether a capture works on a pool whose canary asks to join"},
		{Namespace: namespace, Group: leases, Resource: "leases", Names: []string{LeadName}, Verbs: []string{"update"}, Why: "one replica does what one is enough for"},
	}
}
