// Package admission lets nodes join by themselves, and leave in order: it decides
// who a machine is, and grants what that machine alone may have.
//
// # How a node is admitted
//
// The node asks for a nonce (wire.NoncePath), has Azure sign it together with a key
// of its own (the attested document of the instance metadata service), and asks to
// join with both (wire.Proof). In this order, the cheapest and the most telling
// first, each with a Reason of its own:
//
//  1. form and bounds of the request, rate limits
//  2. the nonce: our MAC, its time
//  3. the id: our subscription, an allowed scale set
//  4. the request's signature by the key
//  5. the document (admission/attest): signature by its only signer, whose name is
//     Azure's metadata service; chain; nonce; age
//  6. the cloud (Directory): the instance is there, and its vmId is the attested one
//  7. the cluster: no Node of that name is another instance's, has a kubelet that was heard
//     of in the last minute (its Lease), or is Ready and this machine's own
//  8. the nonce is spent, for all replicas, by creating an object
//  9. the callback: who answers a challenge at the address that Azure gives the instance
//     holds the key
//
// Only then is a bootstrap token made: for that Node's name, minutes long, in a
// group that nothing else approves, deleted once the Node is Ready.
//
// What Azure signs is open to every process on the machine that can reach 169.254.169.254.
// Step 9 separates the machine from its pods, which have other addresses; step 7 keeps a
// running node's identity from being taken a second time; deploy/ has the rule that keeps
// pods from the metadata service. Root on the machine has its identity.
//
// # How it leaves
//
// leave, proven by the kubelet's client certificate, or as above where the Node is not
// Ready and its kubelet was silent for a while, cordons and drains within the time that is
// left. left, which takes that certificate, deletes the Node and what belongs to it, since
// a Node that is deleted under a running agent comes back. Garbage collection finds
// machines that left without a report: only an instance that Azure no longer has is
// deleted, by a fresh read; a machine that restarts is left alone however long it takes.
//
// # How it is built
//
// Server is an http.Handler without knowledge of Azure's or Kubernetes' API: it uses the
// ports Directory and Cluster. admission/attest verifies documents and imports nothing of
// ours; admission/kube is the Cluster on an API server, with the approver of certificates
// and the policy that keeps other names out. Replicas share only the API server: the key of
// the nonces' MAC, used nonces, and tokens are objects there. Every decision is counted,
// and one line of the audit log, except refusals that anybody can cause: their lines are
// limited, and the rest counted.
//
// What anybody can ask is bounded three times: of all, of each address, and of each
// machine once it is known; where it is scarce, who has had little goes first.
package admission
