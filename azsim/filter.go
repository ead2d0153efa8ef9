package azsim

import "strings"

// filterValue finds "member eq 'value'" in an OData filter.
func filterValue(filter, member string) string {
	lower := strings.ToLower(filter)
	i := strings.Index(lower, strings.ToLower(member)+" eq '")
	if i < 0 {
		return ""
	}
	rest := filter[i+len(member)+len(" eq '"):]
	value, _, _ := strings.Cut(rest, "'")
	return value
}

// tagFilter applies "tagName eq 'a' and tagValue eq 'b'"; it passes what it
// does not know.
func tagFilter(filter string, tags map[string]string) bool {
	name, value := filterValue(filter, "tagName"), filterValue(filter, "tagValue")
	if name == "" {
		return true
	}
	got, has := tags[name]
	return has && (value == "" || got == value)
}
