// Package source reads what the programs that take part in a boot write of it,
// each in its own layout and clock, into wire.BootReports: cloud-init, the Azure
// agent and its extensions, AKS's scripts, systemd's own tools and journal,
// Hyper-V's key-value pairs, the kubelet, containerd.
//
// Everything here is pure, from text to spans: the agent reads a node's files
// with it, and `ortet boot analyze` files that were taken from a machine that
// nobody can reach. The agent imports it, so it depends on little.
//
// Every reader is given what may be cut off at either end, rotated, interleaved,
// of several boots, not UTF-8, or not what its name says. It never fails for a
// bad line: it passes over it, counts it, and says so in the BootSource; it reads
// no more than it is told, line by line, and holds no whole file. A word that came
// from the file is redacted before it is kept.
//
// The names of spans are fixed, since boots are compared by them; docs/boot.md
// lists them.
package source
