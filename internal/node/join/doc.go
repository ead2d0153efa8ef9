// Package join makes a node of a machine: it proves to the admission server which machine
// this is, and writes what the kubelet, k3s or RKE2 joins with. It also leaves.
//
// It needs the network and nothing else: neither cloud-init's later stages nor the Azure
// agent. It runs before the kubelet, and ends once the files exist; until then it retries
// without limit, with jitter, and logs the reason.
//
// # Whose identity is on the disk
//
// A disk may be a copy of another machine's. A kubelet's identity is this machine's only by
// our record of it (the vmId, written when we joined), or, without a record, if the
// certificate is in this machine's own name. Else it is removed, with all that the other
// kubelet knew, before anything starts with it: the API server could not separate the two.
//
// # What is written
//
// Each file wholly or not at all, mode 0600: for an upstream kubelet the bootstrap
// kubeconfig and the flags with name and provider id; for k3s and RKE2 a drop-in of
// config.yaml with server, token file, node name and provider id, and registries.yaml
// where one is asked for. Then the record, and last, in memory, ReadyFile, for which
// the shipped units hold the agent back: whatever died on the way, nothing starts with
// an identity that was not looked at in this boot.
//
// One joins at a time (lockFile): a second one would take the first one's new identity
// for one that does not serve. Who is about to leave for good holds the machine
// (Client.Hold): nothing joins then until it is released, or in another boot.
//
// Errors of the server are passed on (wire.Refusal). Nothing here stops or starts units but
// leave, which has to stop the agent before its Node is deleted.
package join
