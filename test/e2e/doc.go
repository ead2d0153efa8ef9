// Package e2e runs the real ortet, ortet-node and azsim against a real control
// plane, as their users would, and looks at the world afterwards: at Azure's
// resources, at the cluster's objects and at the disks.
//
// All tests share one control plane and one simulated Azure; each has a pool, a
// principal and a workbench of its own, so that they can run beside each other
// and still count what they alone have changed. The environment variable
// ORTET_BIN names a folder with the three binaries; without it they are built.
//
// What faults of Azure and Kubernetes come to is the simulation's matter (test/simulate).
package e2e
