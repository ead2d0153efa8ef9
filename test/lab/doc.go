// Package lab captures a prototype on real machines, from end to end: the Helm
// chart's Job runs in a pod on a real kubelet, reaches azsim over TLS as it would
// reach Azure, and what it made boots and joins by itself. A further capture runs
// while an autoscaler deletes every empty node, and two more with a canary, of a donor
// whose clones come up and of one whose clones do not. And it boots machines
// that come up and machines that do not, and asks ortet nodes what became of each.
// And it has machines join by themselves: by an admission server that runs beside
// them, and by one that docs/how-to/join.md has installed in their cluster.
//
// It needs root on Debian and some minutes; see hack/lab for what machines are
// made from. Run it as
//
//	make lab
//
// or, with what that builds in the cache, alone:
//
//	ORTET_LAB=1 go test -tags e2e -v -timeout 20m ./test/lab/
//
// Everything lies in one folder whose name is the same in every run, so that a
// run takes away what a killed one left.
package lab
