package recipe_test

import (
	"strings"
	"testing"

	"github.com/ortet/ortet/internal/k3s"
	"github.com/ortet/ortet/internal/k3s/recipe"
)

// A rule of the template that is not known as Ortet's own would be refused as another's
// by a version that has it no more.
func TestRulesAreKnown(t *testing.T) {
	for _, c := range clusters() {
		for _, group := range of(t, render(t, c, facts()), "Microsoft.Network/networkSecurityGroups") {
			for _, rule := range at(group, "properties", "securityRules").([]any) {
				name, ofFile := at(rule, "name").(string), at(rule, "properties", "description") == recipe.RuleDescription
				if k3s.IsRuleName(name) == ofFile {
					t.Errorf("rule %s: of the file %v, of Ortet %v", name, ofFile, k3s.IsRuleName(name))
				}
			}
		}
	}
}

func TestRuleWithoutAnAddress(t *testing.T) {
	f := facts()
	f.OwnAddresses = []string{"2001:db8::7"}
	_, err := recipe.Render(full(), f)
	if want := "sources of access.rules, rule mqtt: no address of IPv4"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error is %v, not %s", err, want)
	}
}
