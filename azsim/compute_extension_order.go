package azsim

import (
	"sort"
	"strings"
)

// An extensionNeed is an extension and those that it names in
// provisionAfterExtensions.
type extensionNeed struct {
	name  string
	after []string
}

// extensionOrder returns the names in an order in which each comes after those it
// needs, otherwise in the order of the model. missing names one that some
// extension needs and that is not there; cycle lists what waits for itself. The
// order is whole only when both are empty.
func extensionOrder(exts []extensionNeed) (order []string, missing map[string]string, cycle []string) {
	byName := make(map[string]extensionNeed, len(exts))
	for _, e := range exts {
		byName[strings.ToLower(e.name)] = e
	}
	missing = map[string]string{}
	for _, e := range exts {
		for _, a := range e.after {
			if _, ok := byName[strings.ToLower(a)]; !ok {
				missing[e.name] = a
			}
		}
	}
	done := map[string]bool{}
	for progress := true; progress; {
		progress = false
		for _, e := range exts {
			key := strings.ToLower(e.name)
			if done[key] || !allDone(e.after, byName, done) {
				continue
			}
			done[key] = true
			order = append(order, e.name)
			progress = true
		}
	}
	for _, e := range exts {
		if !done[strings.ToLower(e.name)] {
			cycle = append(cycle, e.name)
		}
	}
	sort.Strings(cycle)
	return order, missing, cycle
}

// allDone ignores names that do not exist: they are reported as missing.
func allDone(after []string, byName map[string]extensionNeed, done map[string]bool) bool {
	for _, a := range after {
		key := strings.ToLower(a)
		if _, ok := byName[key]; ok && !done[key] {
			return false
		}
	}
	return true
}

// dependents names the extensions that would be left waiting for name.
func dependents(exts []extensionNeed, name string) []string {
	var out []string
	for _, e := range exts {
		for _, a := range e.after {
			if strings.EqualFold(a, name) {
				out = append(out, e.name)
				break
			}
		}
	}
	return out
}
