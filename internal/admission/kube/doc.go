// Package kube is admission.Cluster on a Kubernetes API server, and what has to
// watch it: the approver of kubelets' certificates, and the end of tokens whose Node
// is Ready.
//
// # What lies in the cluster
//
// A bootstrap token is a Secret in kube-system, in the group
// system:bootstrappers:ortet, which is bound to nothing but the right to ask for a
// certificate. What binds it to its Node's name, its machine and its first key is a
// ConfigMap in Ortet's namespace; the Secret's annotations are for people. Each record has an HMAC
// with a key that lies in a Secret (seal), in a namespace that nobody else of ours may
// read (KeysNamespace). The names that were admitted are the keys
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
// its own name, with a certificate of the machine that is admitted, while Azure has
// that machine; a serving certificate's addresses have to be those that Azure gives
// the instance. For one machine Azure is asked a few times a minute at most; beyond that
// the last answer has to do.
//
// # Which certificates are a machine's
//
// Names are used again and certificates are not revoked, so a name does not prove a
// machine. The API server (1.32 and later) says by which certificate a request was
// made. One counts for an admission if the approver granted it to the machine admitted,
// whose vmId stands in the approval, or if it was asked for with one that counts. The
// requests tell that by themselves, for the hour that Kubernetes keeps them. Once a
// minute the newest that counts, and the one with which it was asked for, are written
// into the name's entry; an admission of another machine begins without any. So nothing
// has to be written between an approval and a signature, of several replicas each
// writes the same, and where one dies the next finds what it left.
package kube
