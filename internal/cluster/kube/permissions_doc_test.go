package kube

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

const permissionsDoc = "../../../docs/reference/kubernetes-permissions.md"

// The documentation says what the code does. With the argument "update" the test
// writes its tables again.
func TestRulesAreDocumented(t *testing.T) {
	data, err := os.ReadFile(permissionsDoc)
	if err != nil {
		t.Fatal(err)
	}
	want := string(data)
	for name, text := range map[string]string{"rules": rulesTable(), "rollout": shortTable(RolloutRules("")), "configuration": shortTable(ConfigurationRules("")), "operator": shortTable(OperatorRules())} {
		head, rest, ok := strings.Cut(want, "<!-- "+name+" -->\n")
		_, tail, end := strings.Cut(rest, "<!-- end -->")
		if !ok || !end {
			t.Fatalf("%s: no place for %s", permissionsDoc, name)
		}
		want = head + "<!-- " + name + " -->\n" + text + "<!-- end -->" + tail
	}
	if want == string(data) {
		return
	}
	if !slices.Contains(flag.Args(), "update") {
		t.Fatalf("%s is not what the code needs: run go test ./internal/cluster/kube -run Documented -args update", permissionsDoc)
	}
	if err := os.WriteFile(permissionsDoc, []byte(want), 0o644); err != nil {
		t.Fatal(err)
	}
}

// rulesTable has a row for each rule, and says which only some runs need.
func rulesTable() string {
	var b strings.Builder
	b.WriteString("| where | resource | verbs | what for | needed |\n|---|---|---|---|---|\n")
	always := Rules(Needs{Secrets: documentedSecrets})
	for _, r := range Rules(documentedNeeds()) {
		needed := "always"
		if !slices.ContainsFunc(always, func(o Rule) bool { return o.Why == r.Why && o.Resource == r.Resource }) {
			needed = conditionOf(r)
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", whereOf(r), resourceOf(r), strings.Join(r.Verbs, ", "), r.Why, needed)
	}
	return b.String()
}

func whereOf(r Rule) string {
	if r.Namespace == "" {
		return "whole cluster"
	}
	return "`" + r.Namespace + "`"
}

// shortTable has a row for each rule of what always needs all of them.
func shortTable(rules []Rule) string {
	var b strings.Builder
	b.WriteString("| where | resource | verbs | what for |\n|---|---|---|---|\n")
	for _, r := range rules {
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", whereOf(r), resourceOf(r), strings.Join(r.Verbs, ", "), r.Why)
	}
	return b.String()
}

func resourceOf(r Rule) string {
	resource := r.Resource
	if r.Group != "" {
		resource += "." + r.Group
	}
	if len(r.Names) > 0 {
		resource += " named " + strings.Join(r.Names, ", ")
	}
	return resource
}

// conditionOf finds the need that brings a rule in.
func conditionOf(rule Rule) string {
	for _, n := range []struct {
		needs Needs
		name  string
	}{{Needs{Force: true}, "force"}, {Needs{Reboots: true}, "kured"}, {Needs{Machines: true}, "Cluster API"}, {Needs{Tunes: true}, "tunings"}, {Needs{Test: documentedTest}, "canary's test"}} {
		if slices.ContainsFunc(Rules(n.needs), func(o Rule) bool { return o.Why == rule.Why && o.Resource == rule.Resource }) {
			return n.name
		}
	}
	return "unknown"
}

// documentedSecrets stand for those of a pool.
var documentedSecrets = []string{"ortet-journal-POOL", "ortet-saved-POOL"}

// documentedTest stands for the namespace of the Job that --canary-test names.
const documentedTest = "TEST"

func documentedNeeds() Needs {
	needs := Everything("")
	needs.Secrets, needs.Test, needs.Tunes = documentedSecrets, documentedTest, true
	return needs
}
