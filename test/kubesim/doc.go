// Package kubesim is as much of a Kubernetes API server as Ortet meets, in
// memory and in virtual time: an http.Handler and an http.RoundTripper that
// client-go talks to through an ordinary rest.Config. It passes the contract
// suite of package cluster, which a real API server passes too, and which asks
// both servers what a drain, a Lease and a patch rely on, so that it cannot
// drift from one.
//
// It serves nodes, pods with eviction and log, PodDisruptionBudgets, Secrets,
// Leases, Namespaces, ConfigMaps, service accounts, Events, DaemonSets,
// ReplicaSets, certificate requests, reviews of one's own access, Cluster API's
// Machines where they are switched on, and discovery. It reads and writes JSON and
// protocol buffers; patches are merge patches and strategic merge patches; lists
// have selectors and come in parts of one snapshot, or as tables for kubectl. A
// watch goes on from a resource version, or begins with what there is. Users and
// groups may do what their RBAC rules say, kubelets write their own Node only, and
// what is refused is refused in Kubernetes' words. The facts are Kubernetes v1.36's.
//
// Package serve runs it over TLS and in real time, for demo and playground.
//
// # The rest of the world
//
// Whoever plays it uses Put, Get, Each, Change and Remove, which ask nobody and
// are never refused. Server.Ends plays the kubelets, as far as the end of pods
// goes; without it a pod that is bound to a node goes on terminating until it
// is removed. Nothing else of a pod happens by itself: one that is made stays
// Pending until its status is written. With Server.Controllers ReplicaSets fill up,
// pods are bound, and a Node that falls silent becomes Unknown. Faults are whatever stands before
// the server: wrap Config's Transport, and answer by Refuse.
//
// What controllers would do is done when somebody writes or looks: a DaemonSet
// has its pods on the nodes that its node selector matches; a budget is counted
// whenever it is read or asked, its scale being that of the ReplicaSets that own
// the pods, or else the number of pods there are; a namespace has its service
// account; and a minute after a node was deleted its pods go.
//
// # What it is not
//
// There is no admission but that of namespaces and NodeRestriction, and there are
// no Deployments, Services, exec or port-forward, no OpenAPI, few defaults, no managed fields, no server-side apply, no JSON patch and dry
// runs of creations alone. Of garbage collection there is that of a DaemonSet's pods and of a
// namespace's content, which goes at once with it. Validation is that of
// metadata, and of what Ortet writes.
//
// # Time and order
//
// It starts no goroutine and has no timer, so it runs in testing/synctest; the
// time on objects is package time's, and what the cluster does by itself after a
// time is done, in its order, at the next look. A request is served under one
// lock, whole, on its caller's goroutine, so the order in which requests come is
// the order in which they happen. A watch waits on its reader's goroutine, without
// the lock. UIDs, resource versions and generated names
// are counted: two worlds in which the same happens are the same.
package kubesim
