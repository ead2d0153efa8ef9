package donors

import (
	"cmp"
	"slices"
	"strings"
	"unicode"
)

// asMost compares a node's version of something with most nodes'.
func asMost(have, most string) (reason, unknown string) {
	if have == "" {
		return "", "the Node does not report it"
	}
	return when(have != most && !newer(have, most), have+"; most nodes have "+most)
}

// newer reports whether a is a later version than b: the same words with higher numbers,
// or more of them, as "Ubuntu 24.04.1 LTS" and "Ubuntu 24.04 LTS". Other texts have no order.
func newer(a, b string) bool {
	noLetter := func(r rune) bool { return !unicode.IsLetter(r) }
	noDigit := func(r rune) bool { return !unicode.IsDigit(r) }
	if !slices.Equal(strings.FieldsFunc(a, noLetter), strings.FieldsFunc(b, noLetter)) {
		return false
	}
	return slices.CompareFunc(strings.FieldsFunc(a, unicode.IsLetter), strings.FieldsFunc(b, unicode.IsLetter), func(x, y string) int {
		return slices.CompareFunc(strings.FieldsFunc(x, noDigit), strings.FieldsFunc(y, noDigit), func(x, y string) int {
			x, y = strings.TrimLeft(x, "0"), strings.TrimLeft(y, "0")
			return cmp.Or(cmp.Compare(len(x), len(y)), cmp.Compare(x, y))
		})
	}) > 0
}
