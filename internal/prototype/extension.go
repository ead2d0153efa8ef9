package prototype

import (
	"fmt"
	"path"
	"slices"
	"sort"
	"strings"

	"github.com/ortet/ortet/internal/fleet"
)

// An ExtensionRule says which of a model's extensions go when a prototype goes
// live. Its zero value deletes those that bootstrap a node once: CustomScript
// and Cluster API's bootstrapping.
type ExtensionRule struct {
	// None leaves all extensions alone.
	None bool `json:"none,omitempty"`
	// AllBut deletes all but those whose name matches one of the patterns
	// (path.Match, any letter case), kamino's rule: "*AKSLinuxBilling*".
	AllBut []string `json:"allBut,omitempty"`
	// Keep names patterns that are never deleted, under any rule.
	Keep []string `json:"keep,omitempty"`
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

// bootstraps reports whether an extension does what needs doing once per
// image, not once per node.
func bootstraps(e fleet.Extension) bool {
	switch strings.ToLower(e.Type) {
	case "customscript", "customscriptforlinux", "capz.linux.bootstrapping":
		return true
	}
	return false
}

func matches(patterns []string, name string) bool {
	for _, p := range patterns {
		if ok, err := path.Match(strings.ToLower(p), strings.ToLower(name)); err == nil && ok {
			return true
		}
	}
	return false
}

// goes reports whether the rule deletes the extension.
func (r ExtensionRule) goes(e fleet.Extension) bool {
	switch {
	case r.None, matches(r.Keep, e.Name):
		return false
	case len(r.AllBut) > 0:
		return !matches(r.AllBut, e.Name)
	}
	return bootstraps(e)
}

// Doomed gives the extensions that the rule deletes, dependents first, since
// Azure refuses to delete what another names in provisionAfterExtensions. kept
// names those that stay and depend on one that goes, which cannot be done:
// "kept depends on doomed". Names compare in any letter case. Where the
// dependencies run in a circle, which Azure does not allow, the rest is in the
// order of names.
func (r ExtensionRule) Doomed(extensions []fleet.Extension) (doomed []fleet.Extension, kept []string) {
	left := map[string]fleet.Extension{}
	for _, e := range extensions {
		if r.goes(e) {
			left[strings.ToLower(e.Name)] = e
		}
	}
	for _, e := range extensions {
		if r.goes(e) {
			continue
		}
		for _, after := range e.After {
			if d, ok := left[strings.ToLower(after)]; ok {
				kept = append(kept, fmt.Sprintf("%s depends on %s", e.Name, d.Name))
			}
		}
	}
	for len(left) > 0 {
		names := make([]string, 0, len(left))
		for n := range left {
			names = append(names, n)
		}
		sort.Strings(names)
		next := names[0]
		for _, n := range names {
			if !named(left, n) {
				next = n
				break
			}
		}
		doomed = append(doomed, left[next])
		delete(left, next)
	}
	return doomed, kept
}

// named reports whether another of those left names the extension.
func named(left map[string]fleet.Extension, name string) bool {
	for n, e := range left {
		if n == name {
			continue
		}
		for _, after := range e.After {
			if strings.EqualFold(after, name) {
				return true
			}
		}
	}
	return false
}
