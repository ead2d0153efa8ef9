package prototype

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/ortet/ortet/internal/fleet"
)

// An ExtensionRule says which of a model's extensions go when a prototype goes
// live, by patterns of path.Match in any letter case. Its zero value deletes those that
// bootstrap a node once: CustomScript and Cluster API's bootstrapping.
type ExtensionRule struct {
	None   bool     `json:"none,omitempty"`   // leave all alone
	AllBut []string `json:"allBut,omitempty"` // kamino's rule: delete all but those that match ("*AKSLinuxBilling*")
	Keep   []string `json:"keep,omitempty"`   // never delete these, under any rule
}

// Check gives an error where a pattern cannot be read.
func (r ExtensionRule) Check() error {
	for _, p := range slices.Concat(r.AllBut, r.Keep) {
		if _, err := path.Match(strings.ToLower(p), ""); err != nil {
			return fmt.Errorf("extension pattern %q: %w", p, err)
		}
	}
	return nil
}

func matches(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		ok, err := path.Match(strings.ToLower(p), strings.ToLower(name))
		return err == nil && ok
	})
}

// goes reports whether the rule deletes the extension.
func (r ExtensionRule) goes(e fleet.Extension) bool {
	switch {
	case r.None, matches(r.Keep, e.Name):
		return false
	case len(r.AllBut) > 0:
		return !matches(r.AllBut, e.Name)
	}
	// They do what needs doing once per image, not once per node.
	return slices.Contains([]string{"customscript", "customscriptforlinux", "capz.linux.bootstrapping"}, strings.ToLower(e.Type))
}

// Doomed gives the extensions that the rule deletes, dependents first, since
// Azure refuses to delete what another names in provisionAfterExtensions. kept
// names those that stay and depend on one that goes, which cannot be done:
// "kept depends on doomed".
func (r ExtensionRule) Doomed(extensions []fleet.Extension) (doomed []fleet.Extension, kept []string) {
	for _, d := range DependentsFirst(extensions) {
		if !r.goes(d) {
			continue
		}
		doomed = append(doomed, d)
		for _, e := range extensions {
			if !r.goes(e) && dependsOn(e, d) {
				kept = append(kept, fmt.Sprintf("%s depends on %s", e.Name, d.Name))
			}
		}
	}
	return doomed, kept
}

// DependentsFirst sorts extensions so, else by name. Names compare in any letter case.
func DependentsFirst(extensions []fleet.Extension) (sorted []fleet.Extension) {
	left := slices.Clone(extensions)
	slices.SortFunc(left, func(a, b fleet.Extension) int {
		return strings.Compare(strings.ToLower(a.Name), strings.ToLower(b.Name))
	})
	for len(left) > 0 {
		i := slices.IndexFunc(left, func(d fleet.Extension) bool {
			return !slices.ContainsFunc(left, func(e fleet.Extension) bool { return dependsOn(e, d) })
		})
		i = max(i, 0) // Azure does not allow a circle
		sorted, left = append(sorted, left[i]), slices.Delete(left, i, i+1)
	}
	return sorted
}

func dependsOn(e, other fleet.Extension) bool {
	return !strings.EqualFold(e.Name, other.Name) && slices.ContainsFunc(e.After, func(name string) bool { return strings.EqualFold(name, other.Name) })
}
