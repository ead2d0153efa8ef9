// Package controller publishes in the cluster whether its nodes came up, and why not,
// also of those that never reached the API server.
//
// # What it observes
//
// The cloud's lists of instances, one for a pool however many instances it has
// (azure.Boots), the Nodes, and where neither is enough the end of an instance's
// serial log.
//
// # How it is built
//
// assess.Assess is the decision. The Poller decides whom to ask next and stays within a
// Budget of requests; the Fleet is what it knows. The reconciler publishes: conditions on
// Node, Machine, AzureMachine and AzureMachinePoolMachine, Events, metrics, and
// evidence in ConfigMaps that outlive the machine. The command line (ortet nodes)
// assesses alike without a controller: see package survey.
//
// # What is not known is not published
//
// What is Unclear is not published: see package assess.
//
// A machine that is deleted before its Node was Ready leaves neither Node nor log: its
// serial log is read once more, and the Fleet keeps what is known of it until that is
// published. What a capture does to its donor is no boot: see captures.
//
// # What is kept
//
// Evidence is a ConfigMap for each boot that did not end well. It goes when it is
// older than Config.Keep, unless its machine is there: then it is needed to judge
// that alike after a restart. A machine counts as there if its pool was listed
// within two hours, so that a group that was deleted, or may not be read any more,
// keeps nothing for ever. Of more than Config.MaxEvidence there goes first what can
// be found out again: that of machines that are there an hour after it was written.
// Then the oldest goes, whether or not its machine is there. Were it always the
// evidence of what is there that goes, a wave of failures that fills the bound would
// leave nothing of the next one: each new machine is there until whoever acts on the
// condition deletes it, and its evidence would be gone by then.
//
// # Boots
//
// A node leaves the report of its boot in an annotation of its own Node
// (wire.BootAnnotation). It is taken from there, believed of that machine alone,
// stored with what Azure and the cluster know of the boot (assess.BootRecord), and counted:
// see boots. Reports are neither in the cache nor kept in memory. What is stored is
// bounded for each machine, image version of a pool, and in all: see bootStore.
//
// # What it never does
//
// It changes nothing in the cloud. It deletes no node: that is for whoever acts
// on the condition, such as a MachineHealthCheck. A node that is Ready and stays
// so is never published as failed, since somebody may act on it. It writes
// conditions of its own type only, and none that another controller owns; of a
// Node's annotations it removes that one, and of its taints, with Config.LiftTaint,
// fleet.TaintUnproven. What it quotes of logs is redacted first.
package controller
