package controller

import "github.com/ortet/ortet/internal/fleet"

// A Rule is what RBAC has to allow the controller of one resource. It uses what
// is listed and nothing else; the chart grants exactly these.
type Rule struct {
	Namespace string // "" means the whole cluster
	Group     string
	Resource  string   // with its subresource, "nodes/status"
	Names     []string // empty means any
	Verbs     []string
	Why       string // for the documentation
	Needed    string // "always", or where it is
}

// Rules returns what the controller needs in its own namespace and in the cluster.
func Rules(namespace string) []Rule {
	const always, capi, azureMachines = "always", "Cluster API", "Cluster API's provider for Azure"
	rules := []Rule{
		{Resource: "nodes", Verbs: []string{"get", "list", "watch"},
			Why: "see which instances became Ready Nodes, and read what they report of their boots", Needed: always},
		{Resource: "nodes/status", Verbs: []string{"patch"},
			Why: "the condition " + fleet.ConditionBootSucceeded + "; take the boot's report from its annotation", Needed: always},
		{Resource: "nodes", Verbs: []string{"patch"}, Why: "remove the taint " + fleet.TaintUnproven, Needed: "`--lift-taint`"},
		{Resource: "pods", Verbs: []string{"list"}, Why: "when the first pod ran on a node that booted", Needed: "`--first-pod`"},
		{Resource: "events", Verbs: []string{"list"}, Why: "which images DaemonSets' first pods had pulled", Needed: "`--first-pod`"},
		{Resource: "events", Verbs: []string{"create"}, Why: "tell of boots that failed, on Nodes and Machines", Needed: always},
		{Namespace: namespace, Resource: "configmaps", Verbs: []string{"create", "delete", "get", "list", "update"},
			Why: "evidence and boots, which outlive the machine", Needed: always},
		{Namespace: namespace, Group: "coordination.k8s.io", Resource: "leases", Verbs: []string{"create"},
			Why: "one controller works at a time", Needed: always},
		{Namespace: namespace, Group: "coordination.k8s.io", Resource: "leases", Names: []string{LeaseName}, Verbs: []string{"get", "update"},
			Why: "the same", Needed: always},
		{Group: machineGroup, Resource: "machines", Verbs: []string{"get", "list", "watch"}, Why: "find an instance's Machine", Needed: capi},
		{Group: machineGroup, Resource: "machines/status", Verbs: []string{"patch"}, Why: "the condition " + fleet.ConditionBootSucceeded, Needed: capi},
	}
	for _, r := range []string{"azuremachines", "azuremachinepoolmachines"} {
		rules = append(rules,
			Rule{Group: azureGroup, Resource: r, Verbs: []string{"get", "list", "watch"}, Why: "find an instance's machine", Needed: azureMachines},
			Rule{Group: azureGroup, Resource: r + "/status", Verbs: []string{"patch"}, Why: "the condition " + fleet.ConditionBootSucceeded, Needed: azureMachines})
	}
	return rules
}
