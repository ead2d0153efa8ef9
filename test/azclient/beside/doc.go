// Package beside runs the real ortet while an autoscaler is at work in its pool:
// the client is the one that cluster-autoscaler uses, Azure is azsim, and the
// control plane is a real one with hollow nodes.
package beside
