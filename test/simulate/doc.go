// Package simulate plays captures, rollbacks and rollouts in virtual time, with faults of
// Azure and Kubernetes, crashes and neighbours, and checks the promises of
// docs/reference/capture.md and rollout.md from outside; docs/reference/simulation.md says what is played and checked.
//
// A Story (story_test.go) is a pool, what operators ask for, and what happens at
// which request. A world (world_test.go) is azsim and kubesim with what joins them:
// kubelets and controllers (nodes_test.go), disks (disks_test.go) and the pods of
// ortet-node (pods_test.go). A process (process_test.go) is one ortet.
//
// Each request takes a latency that is a hash of the seed, its name and its time,
// so that a story plays the same at every run.
package simulate
