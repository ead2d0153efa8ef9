// Package source reads what the programs that take part in a boot write of it,
// each in its own layout and clock, into wire.BootReports: cloud-init, the Azure
// agent and its extensions, AKS's scripts, systemd's own tools and journal,
// Hyper-V's key-value pairs, the kubelet, containerd.
//
// Everything here is pure, from text to spans: the agent reads a node's files with it, and
// `ortet boot analyze` files of a machine that cannot be reached. The agent imports it, so
// it depends on little.
//
// Each reader's input may be cut off at either end, rotated, interleaved, of several boots,
// not UTF-8, or not what its name promises. It never fails for a bad line: it passes over
// it, counts it, and reports it in the BootSource; it reads no more than its limit, line by
// line, and keeps no whole file. Text of the file is redacted before it is stored.
//
// # From files to boots
//
// Each reader returns one report for each boot that it finds, with a single BootSource: at
// least one report, with the reason if it is empty. Readers do not enforce a report's
// bounds; Merge does, where all reports are known to be of one boot (as the agent knows),
// or Join, which finds out.
//
//	reports, err := source.Read(name, file, source.Options{}) // whatever it is
//	boots := source.Join(append(reports, others...)...)
//
// # Times
//
// A time is in the clock that it was read from, and nothing is converted, with one
// exception: `systemd-analyze dump` prints times of day, which become times after the
// kernel's start, from which they were made. Times without a zone are taken for UTC, which
// is what images for nodes are set to.
//
// `critical-chain` prints times after the start of userspace: such reports are Relative
// until they are merged with one that has that start. It prints no time for the unit that a
// chain leads to where that took time, only its duration. A span of the source "systemd"
// with the name "chain-root" names that unit in Unit. It is Open where the unit's times
// were concluded: it began when the last of what it is ordered after was active, or later.
//
// The journal's times are when a message was sent. In the initrd and in later restarts
// units have further starts: the first successful one in the system's own userspace counts.
//
// # Names
//
// The names of spans are fixed, since boots are compared by them; docs/reference/boot.md
// lists them.
package source
