package denial

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/ortet/ortet/internal/cluster/kube"
)

// part gives what stands between the marks of that name on a page of docs.
func part(t *testing.T, page, name string) string {
	t.Helper()
	data, err := os.ReadFile("../../docs/" + page)
	must(t, err)
	_, rest, ok := strings.Cut(string(data), "<!-- "+name+" -->\n")
	text, _, end := strings.Cut(rest, "<!-- end -->")
	if !ok || !end {
		t.Fatalf("docs/%s has no part %s", page, name)
	}
	return text
}

// documentedActions gives the Azure actions that docs/azure-permissions.md tells
// an operator to grant: its role, and which of it only the subscription takes.
func documentedActions(t *testing.T) (onGroup, onSubscription []string) {
	t.Helper()
	text := strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(part(t, "azure-permissions.md", "role")), "```json"), "```")
	var role struct{ Actions []string }
	must(t, json.Unmarshal([]byte(text), &role))
	onSubscription = ticked(part(t, "azure-permissions.md", "subscription"))
	for _, a := range role.Actions {
		if !slices.Contains(onSubscription, a) {
			onGroup = append(onGroup, a)
		}
	}
	if len(onGroup) < 20 || len(onSubscription) == 0 {
		t.Fatalf("the documentation lists %q and %q", onGroup, onSubscription)
	}
	return onGroup, onSubscription
}

// rollbackActions gives those that the tables of docs/azure-permissions.md have
// for a rollback: reading, and its two changes.
func rollbackActions(t *testing.T) []string {
	t.Helper()
	actions := ticked(part(t, "azure-permissions.md", "reads"))
	found := 0
	for _, row := range strings.Split(part(t, "azure-permissions.md", "changes"), "\n") {
		if strings.HasPrefix(row, "| patch model ") || strings.HasPrefix(row, "| tag image version ") {
			found++
			for _, a := range ticked(row) {
				actions = append(actions, "Microsoft.Compute/"+a)
			}
		}
	}
	if found != 2 {
		t.Fatal("the documentation does not list what a rollback changes")
	}
	slices.Sort(actions)
	return slices.Compact(actions)
}

var reTicked = regexp.MustCompile("`([A-Za-z./]+)`")

func ticked(text string) (words []string) {
	for _, m := range reTicked.FindAllStringSubmatch(text, -1) {
		words = append(words, m[1])
	}
	return words
}

// documentedRules gives the RBAC rules in the table of
// docs/kubernetes-permissions.md, but for the rows that only a condition needs
// which is not named.
func documentedRules(t *testing.T, conditions ...string) []kube.Rule {
	t.Helper()
	var rules []kube.Rule
	for _, row := range strings.Split(strings.TrimSpace(part(t, "kubernetes-permissions.md", "rules")), "\n")[2:] {
		cells := strings.Split(strings.Trim(row, "|"), "|")
		if len(cells) != 5 {
			t.Fatalf("no row of five cells: %s", row)
		}
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		if cells[4] != "always" && !slices.Contains(conditions, cells[4]) {
			continue
		}
		var r kube.Rule
		if cells[0] != "whole cluster" {
			r.Namespace = strings.Trim(cells[0], "`")
		}
		resource, names, named := strings.Cut(cells[1], " named ")
		if named {
			r.Names = strings.Split(names, ", ")
			if strings.HasSuffix(names, "-POOL") {
				r.Names = kube.Secrets(pool)
			}
		}
		r.Resource, r.Group, _ = strings.Cut(resource, ".")
		r.Verbs = strings.Split(cells[2], ", ")
		rules = append(rules, r)
	}
	if len(rules) < 10 {
		t.Fatalf("the documentation lists %v", rules)
	}
	return rules
}

// rollbackRules gives what the same page says in words of a rollback.
func rollbackRules(t *testing.T) []kube.Rule {
	t.Helper()
	data, err := os.ReadFile("../../docs/kubernetes-permissions.md")
	must(t, err)
	if !strings.Contains(string(data), "A rollback needs the rows for selfsubjectaccessreviews, leases and secrets, and to read the node that it is given") {
		t.Fatal("the documentation says something else of a rollback: change this test with it")
	}
	rules := []kube.Rule{{Resource: "nodes", Verbs: []string{"get"}}}
	for _, r := range documentedRules(t) {
		if slices.Contains([]string{"selfsubjectaccessreviews", "leases", "secrets"}, r.Resource) {
			rules = append(rules, r)
		}
	}
	return rules
}

// A verb is one verb of one rule.
type verb struct {
	rule kube.Rule
	verb string
}

func (v verb) String() string {
	s := v.verb + " " + v.rule.Resource
	if v.rule.Group != "" {
		s += "." + v.rule.Group
	}
	if len(v.rule.Names) > 0 {
		s += " named " + strings.Join(v.rule.Names, ", ")
	}
	if v.rule.Namespace != "" {
		s += " in " + v.rule.Namespace
	}
	return s
}

func verbsOf(rules []kube.Rule) (all []verb) {
	for _, r := range rules {
		for _, v := range r.Verbs {
			all = append(all, verb{r, v})
		}
	}
	return all
}

// without takes one verb out of rules.
func without(rules []kube.Rule, out verb) (rest []kube.Rule) {
	for _, r := range rules {
		if r.Namespace == out.rule.Namespace && r.Group == out.rule.Group && r.Resource == out.rule.Resource && slices.Equal(r.Names, out.rule.Names) {
			verbs := slices.Clone(r.Verbs)
			r.Verbs = slices.DeleteFunc(verbs, func(v string) bool { return v == out.verb })
		}
		if len(r.Verbs) > 0 {
			rest = append(rest, r)
		}
	}
	return rest
}

// less gives a list without one of its entries.
func less(all []string, one string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(s string) bool { return s == one })
}
