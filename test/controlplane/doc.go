// Package controlplane runs a real Kubernetes control plane, etcd, API server,
// controller manager and scheduler, for tests, demo and lab. The components are
// upstream's own, built once by hack/controlplane.
//
// It is for throwaway clusters: etcd does not sync to disk, and nothing survives
// Stop. What is protected is protected all the same: every port wants a client
// certificate or a token, and private keys are readable by their owner alone.
package controlplane
