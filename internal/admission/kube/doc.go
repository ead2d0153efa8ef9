// Package kube is admission.Cluster on a Kubernetes API server, and what has to
// watch it: the approver of kubelets' certificates, and the end of tokens whose Node
// is Ready.
//
// # What lies in the cluster
//
// A bootstrap token is a Secret in kube-system, in the group system:bootstrappers:ortet,
// which is bound only to the right to request a certificate. What binds it to its Node's
// name, its machine and its first key is a ConfigMap in Ortet's namespace; the Secret's
// annotations are for people. Each record has an HMAC with a key in a Secret (seal), in a
// namespace that no other component of ours may read (KeysNamespace). The admitted names
// are the keys of one ConfigMap, which the ValidatingAdmissionPolicy of the chart reads as
// its parameter: a kubelet may register no other name. Used nonces are Leases, deleted by
// the minute in which they expired.
//
// # The approver
//
// It approves what it can prove and leaves all else alone, except requests with one of our
// tokens: these are denied with the reason where they are wrong, since no other approver
// may grant them. A first client certificate: requested with the token of that name, once,
// for that name. Its renewal, and serving certificates: requested by the node itself, for
// its own name, with a certificate of the machine that is admitted, while Azure has that
// machine; a serving certificate's addresses have to be the instance's in Azure. Reads of
// one machine in Azure are limited to a few per minute; beyond that the last answer counts.
//
// # Which certificates are a machine's
//
// Names are reused and certificates are not revoked, so a name does not prove a machine.
// The API server (1.32 and later) records which certificate made a request. A certificate
// counts for an admission if the approver granted it to the machine admitted, whose vmId is
// in the approval, or if it was requested with one that counts. The requests show that by
// themselves, for the hour that Kubernetes keeps them. Once a minute the newest that
// counts, and the one with which it was requested, are written into the name's entry; an
// admission of another machine begins without any. So nothing has to be written between an
// approval and a signature, several replicas write the same, and if one dies the next finds
// its state.
package kube
