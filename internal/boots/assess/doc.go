// Package assess decides whether a machine came up as a node, and why not, of what Azure, its
// Node and its serial log show. It is pure, and links neither client-go nor
// controller-runtime: the controller and ortet nodes judge alike.
//
// Assess is the decision: the first of bootRules that applies. What the node reported itself
// (wire.Verdict) goes before what can be judged from outside, wherever it is found: in what any
// extension reported, on the console, or relayed by the admission server.
//
// # What is not known
//
// A node that is not Ready when it is first observed may have come up and stopped. Our
// condition on it, the evidence of its boot, what an extension reported and its serial log are
// asked first, then when its Ready condition last changed: since its time was up, it worked that
// long; never since its registration, it did not come up; in between, it is Unclear. Only what
// never came, or was seen not to become Ready, is TimedOut.
//
// # What is kept
//
// EvidenceOf is the form in which the assessment of a boot that did not end well is kept, and
// BootRecord that of a boot's report. Both are fleet.Record, redacted and bounded.
package assess
