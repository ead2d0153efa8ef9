// Package hollow is an azsim.Substrate whose computers are hollow: a Node that
// registers with a real API server, renews its lease and runs pods that only
// claim to run. It needs no privileges and serves a thousand nodes.
//
// What it takes seriously is the disk. A volume is a small file tree, and what a
// computer does at boot, it does from that tree: its machine-id, host name and
// kubelet credentials are what the tree says, so a disk that still carries
// another node's identity leads to what it leads to in life, a registration that
// the API server refuses or one that collides. TLS bootstrap is real: a
// certificate request by the bootstrap kubeconfig on the tree, signed by the
// cluster.
//
// A pod whose command is one of Config.Programs really runs, as a process on its
// node's tree; see program.go for how its paths are mapped.
package hollow
