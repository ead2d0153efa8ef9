package donors

import (
	"cmp"
	"strings"
)

// asMost compares a node's version of something with most nodes'.
func asMost(have, most string) (reason, unknown string) {
	if have == "" {
		return "", "the Node does not report it"
	}
	return when(have != most && !newer(have, most), have+"; most nodes have "+most)
}

// newer reports whether a is a later version than b: the same text with other numbers,
// as "Ubuntu 22.04.4 LTS" and "Ubuntu 22.04.5 LTS". Others have no order.
func newer(a, b string) bool {
	order := 0
	for a != "" || b != "" {
		var textA, textB, numberA, numberB string
		textA, numberA, a = cutNumber(a)
		textB, numberB, b = cutNumber(b)
		if textA != textB || (numberA == "") != (numberB == "") {
			return false
		}
		if order == 0 {
			order = cmp.Or(cmp.Compare(len(numberA), len(numberB)), cmp.Compare(numberA, numberB))
		}
	}
	return order > 0
}

// cutNumber cuts the text before the first number, that number, and the rest.
func cutNumber(s string) (text, number, rest string) {
	const digits = "0123456789"
	i := strings.IndexAny(s, digits)
	if i < 0 {
		return s, "", ""
	}
	text, rest = s[:i], strings.TrimLeft(s[i:], digits)
	number = strings.TrimLeft(s[i:len(s)-len(rest)], "0")
	return text, "0" + number, rest
}
