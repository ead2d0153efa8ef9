package azsim

import "slices"

// toFront moves the element that is meant to the front.
func toFront[T any](list []T, meant func(T) bool) {
	if i := slices.IndexFunc(list, meant); i > 0 {
		one := list[i]
		copy(list[1:i+1], list[:i])
		list[0] = one
	}
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
