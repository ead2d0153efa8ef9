package recorded

import (
	"cmp"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// A mapping knows what the client chose, and what azsim has in the place of values that
// Azure chose.
type mapping struct {
	chosen map[string]bool   // lower case: segments of URIs, and strings of bodies
	values map[string]string // recorded → azsim's: GUIDs, generated names, addresses
	ids    map[string]string // recorded, lower case → azsim's
}

func newMapping() *mapping {
	return &mapping{chosen: map[string]bool{}, values: map[string]string{}, ids: map[string]string{}}
}

// choose notes what a recorded request names.
func (m *mapping) choose(i *interaction) {
	path, query, _ := strings.Cut(i.URI, "?")
	for segment := range strings.SplitSeq(path, "/") {
		if s, err := url.PathUnescape(segment); err == nil {
			m.chosen[strings.ToLower(s)] = true
		}
	}
	m.chosen[strings.ToLower(query)] = true
	m.chooseBody(i.Request)
}

func (m *mapping) chooseBody(body any) {
	switch v := body.(type) {
	case string:
		m.chosen[strings.ToLower(v)] = true
		if strings.HasPrefix(v, "/") {
			for segment := range strings.SplitSeq(v, "/") {
				m.chosen[strings.ToLower(segment)] = true
			}
		}
	case []any:
		for _, e := range v {
			m.chooseBody(e)
		}
	case map[string]any:
		for key, e := range v {
			m.chosen[strings.ToLower(key)] = true
			m.chooseBody(e)
		}
	}
}

// learn notes that azsim has another value where Azure chose one.
func (m *mapping) learn(recorded, got string) {
	if _, known := m.values[recorded]; !known && recorded != "" && recorded != got {
		m.values[recorded] = got
	}
}

func (m *mapping) learnID(recorded, got string) {
	key := strings.ToLower(recorded)
	if _, known := m.ids[key]; !known && !strings.EqualFold(recorded, got) {
		m.ids[key] = got
	}
}

// text puts azsim's values into a string of a request: whole ids and values, beginnings of
// ids, and within it values that are long enough to be nothing else.
func (m *mapping) text(s string) string {
	if to, ok := m.values[s]; ok {
		return to
	}
	if strings.HasPrefix(s, "/") {
		lower := strings.ToLower(s)
		for end := len(lower); end > 0; end = strings.LastIndexByte(lower[:end], '/') {
			if to, ok := m.ids[lower[:end]]; ok {
				s = to + s[end:]
				break
			}
		}
	}
	return longValue.ReplaceAllStringFunc(s, func(word string) string { return cmp.Or(m.values[word], word) })
}

// longValue is what a generated name or a GUID looks like within an id or a URI.
var longValue = regexp.MustCompile(`[A-Za-z0-9][A-Za-z0-9._-]{11,}`)

// body returns a copy of a recorded body with azsim's values.
func (m *mapping) body(body any) any {
	switch v := body.(type) {
	case string:
		return m.text(v)
	case []any:
		out := slices.Clone(v)
		for i := range out {
			out[i] = m.body(out[i])
		}
		return out
	case map[string]any:
		out := make(map[string]any, len(v))
		for key, e := range v {
			out[m.text(key)] = m.body(e)
		}
		return out
	}
	return body
}

// isChosen reports whether the client named the value, so that Azure did not choose it.
func (m *mapping) isChosen(value string) bool { return m.chosen[strings.ToLower(value)] }
