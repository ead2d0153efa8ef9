// Package controller tells the cluster whether its nodes came up, and why not,
// also of those that never reached the API server.
//
// # What it looks at
//
// The cloud's lists of instances, one for a pool however many instances it has
// (azure.Boots), the Nodes, and where neither is enough the end of an instance's
// serial log. What the node said itself (wire.Verdict, by ortet-node wait) goes
// before what can be judged from outside, and wherever it is found counts: in
// what any extension reported, or on the console.
//
// # How it is built
//
// Assess is the decision, and pure: what is known of one instance gives an
// Assessment. The Poller decides whom to ask next and stays within a Budget of
// requests; the Fleet is what it knows. The reconciler publishes: conditions on
// Node, Machine, AzureMachine and AzureMachinePoolMachine, Events, metrics, and
// evidence in ConfigMaps that outlive the machine. The command line (ortet nodes)
// asks the same functions without a controller.
//
// # What it never does
//
// It changes nothing in the cloud. It deletes no node: that is for whoever acts
// on the condition, such as a MachineHealthCheck. A node that is Ready and stays
// so is never told to have failed, since somebody may act on it. It writes
// conditions of its own type only, and none that another controller owns. What
// it quotes of logs is redacted first.
package controller
