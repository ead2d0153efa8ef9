// Package kube is admission.Cluster on a Kubernetes API server, and what has to
// watch it: the approver of kubelets' certificates, and the end of tokens whose Node
// is Ready.
//
// # What lies in the cluster
//
// A bootstrap token is a Secret in kube-system, in the group
// system:bootstrappers:ortet, which is bound to nothing but the right to ask for a
// certificate. What binds it to its Node's name, its machine and its first key is a
// ConfigMap in Ortet's namespace; the Secret's annotations are for people. The names that were admitted are the keys
// of one ConfigMap, which the ValidatingAdmissionPolicy of the chart reads as its
// parameter: a kubelet may register no other name. Spent nonces are Leases, deleted
// by the minute in which they ran out.
//
// # The approver
//
// It approves what it can prove and leaves all else alone, but what is asked with one
// of our tokens: that is denied with the reason where it is wrong, since nobody else
// may grant it. A first client certificate: asked with the token of that name, once,
// for that name. Its renewal, and serving certificates: asked by the node itself, for
// its own name, while Azure has an instance of that name; a serving certificate's
// addresses have to be those that Azure gives the instance.
package kube
