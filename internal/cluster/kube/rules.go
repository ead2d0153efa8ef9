package kube

import (
	"cmp"
	"slices"
	"sort"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ortet/ortet/internal/cluster"
	"github.com/ortet/ortet/internal/fleet"
)

// A Rule is what RBAC has to allow of one resource. What is not listed is not
// used: preflight asks for exactly these, and the charts grant exactly these.
type Rule struct {
	Namespace string // "" means the whole cluster
	Group     string
	Resource  string   // with its subresource, "pods/eviction"
	Names     []string // empty means any
	Verbs     []string
	Why       string // for the documentation
}

// Needs says what a run is going to do.
type Needs struct {
	Namespace string // Ortet's; "" means DefaultNamespace
	Force     bool   // drains with force
	Reboots   bool   // holds kured's lock
	Machines  bool   // annotates Cluster API's Machines
	Test      string // namespace of the test that a canary's clones run; "" without one
	Tunes     bool   // has tunings proven by boots that a controller keeps; preflight does not ask
	Kured     string // name of kured's DaemonSet; "" means "kured"
	// Secrets names those of the pools that are captured; empty means all of the
	// namespace.
	Secrets []string
}

// Everything is what a chart grants where its values leave nothing out.
func Everything(namespace string) Needs {
	return Needs{Namespace: namespace, Force: true, Reboots: true, Machines: true}
}

// Rules returns what a capture needs. Reading API groups and asking what one may
// do oneself is granted to everybody by Kubernetes' own roles system:discovery
// and system:basic-user; the latter is listed since clusters remove it.
func Rules(needs Needs) []Rule {
	namespace := cmp.Or(needs.Namespace, DefaultNamespace)
	rules := []Rule{
		{Resource: "nodes", Verbs: []string{"get", "list", "patch"}, Why: "observe, annotate and cordon the donor; find a workbench"},
		{Resource: "pods", Verbs: []string{"get", "list"}, Why: "drain: the donor's pods, and whether they are gone"},
		{Resource: "pods/eviction", Verbs: []string{"create"}, Why: "drain"},
		{Group: "apps", Resource: "daemonsets", Verbs: []string{"get"}, Why: "drain: DaemonSets' pods stay"},
		{Group: "policy", Resource: "poddisruptionbudgets", Verbs: []string{"list"}, Why: "drain: name the budget that blocks"},
		{Group: "authorization.k8s.io", Resource: "selfsubjectaccessreviews", Verbs: []string{"create"}, Why: "preflight"},
		{Namespace: metav1.NamespaceDefault, Resource: "events", Verbs: []string{"create"}, Why: "tell what happens to the donor"},
		{Namespace: namespace, Group: "coordination.k8s.io", Resource: "leases", Verbs: []string{"create", "delete", "get", "update"}, Why: "one capture of a pool at a time"},
		{Namespace: namespace, Resource: "pods", Verbs: []string{"create", "delete"}, Why: "the workbench's pod"},
		{Namespace: namespace, Resource: "pods/log", Verbs: []string{"get"}, Why: "what the workbench's pod reports"},
		{Namespace: namespace, Resource: "secrets", Verbs: []string{"create"}, Why: "the journal, and what Azure does not give back: RBAC cannot restrict this verb to names"},
		{Namespace: namespace, Resource: "secrets", Names: needs.Secrets, Verbs: []string{"get", "update"}, Why: "the same"},
	}
	if needs.Force {
		rules = append(rules, Rule{Resource: "pods", Verbs: []string{"delete"}, Why: "drain with force: what is left at the deadline"})
	}
	if needs.Reboots {
		rules = append(rules,
			Rule{Group: "apps", Resource: "daemonsets", Verbs: []string{"list"}, Why: "find kured"},
			Rule{Group: "apps", Resource: "daemonsets", Names: []string{cmp.Or(needs.Kured, "kured")}, Verbs: []string{"patch"}, Why: "hold kured's lock"})
	}
	if needs.Machines {
		rules = append(rules, Rule{Group: machineGroup, Resource: "machines", Verbs: []string{"get", "patch"}, Why: "keep MachineHealthChecks from replacing the donor"})
	}
	if needs.Tunes {
		rules = append(rules, Rule{Namespace: namespace, Resource: "configmaps", Verbs: []string{"list"}, Why: "kept boots of clones"})
	}
	if needs.Test != "" {
		rules = append(rules,
			Rule{Namespace: needs.Test, Resource: "pods", Verbs: []string{"create", "delete"}, Why: "run the test of a canary's clones"},
			Rule{Namespace: needs.Test, Resource: "pods/log", Verbs: []string{"get"}, Why: "show the last lines of the test"})
	}
	return rules
}

// ConfigurationRules returns what a rollout of live configuration needs. namespace is
// Ortet's; "" means DefaultNamespace.
func ConfigurationRules(namespace string) []Rule {
	namespace = cmp.Or(namespace, DefaultNamespace)
	return []Rule{
		{Resource: "nodes", Verbs: []string{"get", "list", "patch"}, Why: "the pool's Nodes: annotate the wanted generation, read the answers"},
		{Resource: "pods", Verbs: []string{"list"}, Why: "preflight: what the pods request, where the kubelet's reservations change"},
		{Namespace: namespace, Resource: "configmaps", Verbs: []string{"create", "get", "update"}, Why: "the history of each pool, which allocates generations"},
	}
}

// RolloutRules returns what a rollout of a pool's image to its nodes needs. namespace is Ortet's;
// "" means DefaultNamespace.
func RolloutRules(namespace string) []Rule {
	namespace = cmp.Or(namespace, DefaultNamespace)
	return []Rule{
		{Resource: "nodes", Verbs: []string{"get", "list", "patch"}, Why: "observe, annotate and cordon the pool's Nodes"},
		{Resource: "pods", Verbs: []string{"get", "list"}, Why: "drain, what goes with a disk, and DaemonSets' pods on its successor"},
		{Resource: "pods/eviction", Verbs: []string{"create"}, Why: "drain"},
		{Group: "apps", Resource: "daemonsets", Verbs: []string{"get", "list"}, Why: "drain: DaemonSets' pods stay; find kured"},
		{Group: "apps", Resource: "daemonsets", Names: []string{"kured"}, Verbs: []string{"patch"}, Why: "hold kured's lock"},
		{Group: "policy", Resource: "poddisruptionbudgets", Verbs: []string{"list"}, Why: "drain: name the budget that blocks"},
		{Group: "authorization.k8s.io", Resource: "selfsubjectaccessreviews", Verbs: []string{"create"}, Why: "preflight"},
		{Namespace: metav1.NamespaceDefault, Resource: "events", Verbs: []string{"create"}, Why: "tell what happens to a node"},
		{Namespace: namespace, Group: "coordination.k8s.io", Resource: "leases", Verbs: []string{"create", "delete", "get", "update"},
			Why: "one capture, rollback or rollout of a pool at a time"},
		{Namespace: namespace, Resource: "secrets", Verbs: []string{"get"}, Why: "the pool's journal: whether a capture of it is open"},
	}
}

// OperatorRules returns what ortet operator needs beside the Rules of its runs.
func OperatorRules() []Rule {
	return []Rule{
		{Resource: "nodes", Verbs: []string{"watch"}, Why: "see the pools' Nodes without listing them for each"},
		{Group: "ortet.io", Resource: "scalesetpools", Verbs: []string{"get", "list", "watch"}, Why: "what the pools shall be"},
		{Group: "ortet.io", Resource: "scalesetpools/status", Verbs: []string{"patch", "update"}, Why: "report what is seen and done"},
	}
}

// Accesses spells rules out, one for each verb and name: for Denied.
func Accesses(rules []Rule) []cluster.Access {
	var out []cluster.Access
	for _, rule := range rules {
		resource, sub, _ := strings.Cut(rule.Resource, "/")
		names := rule.Names
		if len(names) == 0 {
			names = []string{""}
		}
		for _, verb := range rule.Verbs {
			for _, name := range names {
				out = append(out, cluster.Access{
					Verb: verb, Group: rule.Group, Resource: resource, Subresource: sub, Namespace: rule.Namespace, Name: name,
				})
			}
		}
	}
	return out
}

// PoolAccesses returns the accesses that a run on a pool needs. Its Secrets are named, since
// a Role may name no others; without a pool they are left out.
func PoolAccesses(rules []Rule) func(pool fleet.ResourceID) []cluster.Access {
	return func(pool fleet.ResourceID) (all []cluster.Access) {
		for _, rule := range rules {
			if rule.Resource == "secrets" && len(rule.Names) == 0 && !slices.Contains(rule.Verbs, "create") {
				if pool == "" {
					continue
				}
				rule.Names = Secrets(pool)
			}
			all = append(all, Accesses([]Rule{rule})...)
		}
		return all
	}
}

// PolicyRules returns rules as RBAC writes them, by namespace; "" is what a
// ClusterRole bound in the whole cluster holds.
func PolicyRules(rules []Rule) map[string][]rbacv1.PolicyRule {
	out := map[string][]rbacv1.PolicyRule{}
	for _, rule := range rules {
		verbs := append([]string(nil), rule.Verbs...)
		sort.Strings(verbs)
		out[rule.Namespace] = append(out[rule.Namespace], rbacv1.PolicyRule{
			APIGroups: []string{rule.Group}, Resources: []string{rule.Resource}, ResourceNames: rule.Names, Verbs: verbs,
		})
	}
	return out
}
