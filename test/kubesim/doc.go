// Package kubesim is as much of a Kubernetes API server as Ortet meets, in
// memory and in virtual time: an http.Handler and an http.RoundTripper that
// client-go talks to through an ordinary rest.Config. It passes the contract
// suite of package cluster, which a real API server passes too, so that it
// cannot drift from one.
//
// It serves nodes, pods with eviction and log, PodDisruptionBudgets, Secrets,
// Leases, Namespaces, Events, DaemonSets, access reviews, Cluster API Machines
// where they are switched on, and discovery of that group. Users may do what
// their RBAC rules say, and what they may not is refused in Kubernetes' words.
//
// # What it is not
//
// There are no watches, no admission, no scheduler and no kubelet: a pod that
// is bound to a node goes on terminating until whoever plays the kubelet takes
// it away. What the controller manager would do is done at once, when the
// object is written: a DaemonSet has its pods, and a budget's allowance is
// counted at each eviction.
//
// # Time and order
//
// It starts no goroutine and has no timer, so it runs in testing/synctest; the
// time on objects is package time's. A request is served under one lock, whole,
// on its caller's goroutine, so the order in which requests come is the order in
// which they happen. UIDs and resource versions are counted.
package kubesim
