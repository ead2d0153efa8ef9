package denial

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/cluster/kube"
	"github.com/ortet/ortet/internal/fleet"
)

// What is documented is what the code lists: the tests of internal/azure and
// internal/cluster/kube compare both with the tables of the two pages.

// documentedActions are those of the role on the resource group, and on the subscription.
func documentedActions() (onGroup, onSubscription []string) {
	return azure.ActionsOf(azure.Changes()...), azure.SubscriptionReadActions()
}

// rollbackActions are reading but for disk encryption sets, and the two changes of a rollback.
func rollbackActions() []string {
	return slices.DeleteFunc(azure.ActionsOf(fleet.PatchModel{}, fleet.TagVersion{}), func(a string) bool { return a == azure.ReadEncryptionSet })
}

// documentedRules are all that a capture may need, without those of force if it has none.
func documentedRules(force bool) []kube.Rule {
	needs := kube.Everything(kube.DefaultNamespace)
	needs.Force, needs.Secrets = force, kube.Secrets(pool)
	return kube.Rules(needs)
}

// rollbackRules returns what the page says in words of a rollback.
func rollbackRules(t *testing.T) []kube.Rule {
	t.Helper()
	data, err := os.ReadFile("../../docs/reference/kubernetes-permissions.md")
	must(t, err)
	if !strings.Contains(string(data), "A rollback needs the rows for selfsubjectaccessreviews, leases and secrets, and to read the node that it is given") {
		t.Fatal("the documentation says something else of a rollback: change this test with it")
	}
	return append(slices.DeleteFunc(documentedRules(false), func(r kube.Rule) bool {
		return !slices.Contains([]string{"selfsubjectaccessreviews", "leases", "secrets"}, r.Resource)
	}), kube.Rule{Resource: "nodes", Verbs: []string{"get"}})
}

// A verb is one verb of one rule.
type verb struct {
	rule kube.Rule
	verb string
}

func (v verb) String() string {
	if len(v.rule.Names) == 0 {
		return v.of("")
	}
	return v.of(" named " + strings.Join(v.rule.Names, ", "))
}

// of is how preflight names it: "get leases.coordination.k8s.io in ortet-system".
func (v verb) of(name string) string {
	s := v.verb + " " + v.rule.Resource
	if v.rule.Group != "" {
		s += "." + v.rule.Group
	}
	s += name
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

// A denial is what is granted when one permission is taken away.
type denial struct {
	of                      string   // the permission; "" takes none away
	said                    []string // how preflight names it
	onGroup, onSubscription []string
	rules                   []kube.Rule
}

// denials take away each action, and each verb.
func denials(onGroup, onSubscription []string, rules []kube.Rule) (all []denial) {
	less := func(all []string, one string) []string {
		return slices.DeleteFunc(slices.Clone(all), func(s string) bool { return s == one })
	}
	for _, a := range slices.Concat(onGroup, onSubscription) {
		all = append(all, denial{a, []string{a}, less(onGroup, a), less(onSubscription, a), rules})
	}
	for i, r := range rules {
		for _, v := range r.Verbs {
			d := denial{verb{r, v}.String(), nil, onGroup, onSubscription, slices.Clone(rules)}
			d.rules[i].Verbs = less(r.Verbs, v)
			if len(r.Names) == 0 {
				d.said = []string{d.of}
			}
			for _, name := range r.Names {
				d.said = append(d.said, verb{r, v}.of(" "+name))
			}
			all = append(all, d)
		}
	}
	return all
}

// short names a permission for a test's name.
func short(of string) string {
	return strings.ReplaceAll(strings.TrimPrefix(of, "Microsoft."), "/", ".")
}
