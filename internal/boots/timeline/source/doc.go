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
// # From files to boots
//
// Each reader gives one report for each boot that it finds, with a single
// BootSource: at least one report, which says why where there is nothing in it.
// Readers do not keep a report's bounds; what they give goes through Merge, which
// does, where all of it is known to be of one boot (as the agent knows), or
// through Join, which finds out.
//
//	reports, err := source.Read(name, file, source.Options{}) // whatever it is
//	boots := source.Join(append(reports, others...)...)
//
// # Times
//
// A time is told in the clock that it was read from, and nothing is converted,
// with one exception: `systemd-analyze dump` prints times of day, which are told
// as what they were made of, times after the kernel's start. Times without a zone
// are taken for UTC, which is what images for nodes are set to.
//
// `critical-chain` prints times after the start of userspace: such reports are
// Relative until they are merged with one that says when that was. It prints no
// time for the unit that a chain leads to where that took time, only how long. A
// span of the source "systemd" with the name "chain-root" names that unit in
// Unit. It is Open where the unit's times were concluded: it began when the last
// of what it is ordered after was active, or later.
//
// The journal's times are when a message was sent. In the initrd and in later
// restarts units have further starts: the first in the system's own userspace
// that came to something is told.
//
// # Names
//
// The names of spans are fixed, since boots are compared by them; docs/reference/boot.md
// lists them.
package source
