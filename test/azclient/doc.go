// Package azclient runs the Azure client of Kubernetes' cloud provider and of
// cluster-autoscaler, unchanged, against azsim over TLS, configured from the
// azure.json that azsim writes.
//
// The requests are those of cluster-autoscaler's Azure provider. The module is
// one of its own, so that nothing that imports Ortet depends on that client; it
// imports nothing of Ortet's, but builds azsim in the module around this one.
//
// The program scaledown is an autoscaler of these requests. The package beside runs
// a capture while it is at work; test/lab does so on real machines.
package azclient
