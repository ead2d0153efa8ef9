// Package verdict finds why nodes do not come up: it judges the evidence of a boot (Facts)
// and returns a reason, who can repair it, whether to retry, what to do, and the lines that
// show it. It is pure: it reads no files, runs nothing, and knows no clock; the agent
// (internal/node/bootstrap) gathers the facts, and the operator's side explains reasons
// with the same catalogue.
//
// Reasons are names that do not change their meaning (docs/reference/reasons.md, which is
// made from the catalogue and tested against it). A label is given only on
// evidence: lines or codes that cannot mean something else. Where there are
// only signs of failure the reason is Unknown, with the raw lines, since a wrong
// label costs more than none: AKS once counted 211 "network timeouts" that were
// a missing binary (Azure/AgentBaker#7907).
//
// The most specific evidence wins, and the earliest in the boot among equals:
// a missing containerd makes kubeadm's preflight fail too, and is the reason.
// A unit that failed is a reason only where it is tied to the boot (Unit.tied).
// What was got over is none: what a node met before it joined, what kubeadm said
// in all tries but the last, a lock that was had later.
//
// A line's program is read from the line's own head (program.go), or from text that only
// one program writes, so that a console, a journal and a paste are judged alike. What can
// be read in two ways yields no reason (noise.go).
//
// Whatever is quoted goes through Redact, which hides rather too much than too
// little.
//
// A new reason is an entry in catalogue.go and one in evidences_test.go, its source (most
// often a rule in lines.go), a fixture of its name in testdata, and for each rule a
// matching line and one that could be taken for it in testdata/lines; -update writes the
// golden judgement and docs/reference/reasons.md.
//
// A line of testdata/lines names the source of its fixed text: "owner/repository path" of a
// public repository at its newest, with the versions that have the text behind it in
// brackets, or "older", where the newest has another; a public address; or ours where no
// program's source has it. Memory is no source: read the source before a rule is built on
// it.
package verdict
