// Package simulate plays captures and rollbacks in virtual time, with faults of
// Azure and Kubernetes, crashes and neighbours, and checks the promises of
// docs/capture.md from outside: by what Azure and the cluster show, by exit
// codes, and by what ortet status reports of the journal.
//
// A Story (story_test.go) is a Go value: a pool, what operators ask for, and
// what happens at which request. A world (world_test.go) is azsim and kubesim
// with what joins them: kubelets and controllers (nodes_test.go), disks
// (disks_test.go) and the pods of ortet-node (pods_test.go). A process is one
// service as ortet makes it; the operator repeats the command until it ends in a
// way that the documentation describes.
//
// The sweep (sweep_test.go) plays a story once for each of its requests and each
// fault that fits it. What breaks an invariant is printed as a Go literal, which
// replays in TestReplay.
//
// Each request takes a latency that is a hash of the seed, its name and its time,
// so that a story plays the same at every run.
package simulate
