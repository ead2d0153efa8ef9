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

// newer reports whether a is a later version than b: the same text with higher numbers,
// as "Ubuntu 22.04.10 LTS" and "Ubuntu 22.04.4 LTS". Other texts have no order.
func newer(a, b string) bool {
	noDigit := func(r rune) bool { return !unicode.IsDigit(r) }
	if !slices.Equal(strings.FieldsFunc(a, unicode.IsDigit), strings.FieldsFunc(b, unicode.IsDigit)) {
		return false
	}
	return slices.CompareFunc(strings.FieldsFunc(a, noDigit), strings.FieldsFunc(b, noDigit), func(x, y string) int {
		x, y = strings.TrimLeft(x, "0"), strings.TrimLeft(y, "0")
		return cmp.Or(cmp.Compare(len(x), len(y)), cmp.Compare(x, y))
	}) > 0
}
