package recorded

import (
	"maps"
	"net/http"
	"slices"
	"strings"
)

// A group of types in the table.
type group int

const (
	usedGroup group = iota
	wantedGroup
	unwantedGroup
)

func (g group) String() string { return [...]string{"used by Ortet", "wanted", "unwanted"}[g] }

var groups = func() map[string]group {
	all := map[string]group{}
	for _, t := range usedTypes {
		all[t] = usedGroup
	}
	for _, t := range wantedTypes {
		all[t] = wantedGroup
	}
	return all
}()

func groupOf(typ string) group {
	if g, ok := groups[typ]; ok {
		return g
	}
	return unwantedGroup
}

var spelling = func() map[string]string {
	all := map[string]string{}
	for t := range groups {
		all[strings.ToLower(t)] = t
	}
	return all
}()

// canonical spells a type in ARM's letter case.
func canonical(typ string) string {
	if t, ok := spelling[strings.ToLower(typ)]; ok {
		return t
	}
	return strings.ToLower(typ)
}

// typeOf is the type of the resource that a request is for; an action's is that of its
// resource, a list's that of its elements.
func typeOf(i *interaction) string {
	path := strings.Trim(i.path(), "/")
	lower := strings.ToLower(path)
	at := strings.LastIndex("/"+lower, "/providers/")
	if at < 0 {
		segments := strings.Split(path, "/")
		switch {
		case len(segments) >= 6 && strings.EqualFold(segments[4], "deployments"):
			return "Microsoft.Resources/deployments/operations"
		case len(segments) >= 5:
			return canonical("Microsoft.Resources/" + segments[4])
		case len(segments) >= 3:
			return canonical("Microsoft.Resources/" + segments[2])
		}
		return canonical("Microsoft.Resources/" + segments[0])
	}
	segments := strings.Split(path[at+len("providers/"):], "/")
	segments = slices.DeleteFunc(segments, func(s string) bool { return s == "" }) // az resource: providers/NS//TYPE
	if len(segments) == 1 {
		return "Microsoft.Resources/providers"
	}
	typ, rest := segments[0], segments[1:]
	if strings.EqualFold(rest[0], "locations") && len(rest) > 2 {
		return canonical(typ + "/locations/" + rest[2])
	}
	if len(rest)%2 == 1 {
		last := rest[len(rest)-1]
		if len(rest) > 1 && (i.Method == http.MethodPost || views[strings.ToLower(last)]) {
			rest = rest[:len(rest)-1]
		}
	}
	for n := 0; n < len(rest); n += 2 {
		typ += "/" + rest[n]
	}
	return canonical(typ)
}

// typeOfID is the type of an id, with those of its parents.
func typeOfID(id string) string {
	segments := strings.Split(strings.Trim(id, "/"), "/")
	typ := ""
	for n := 0; n < len(segments); n += 2 {
		typ += "/" + segments[n]
		if strings.EqualFold(segments[n], "providers") && n+1 < len(segments) {
			typ += "/" + segments[n+1]
		}
	}
	return typ
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
