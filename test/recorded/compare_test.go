package recorded

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// A difference is one member in which azsim's answer is not Azure's.
type difference struct {
	rule    string // what was broken, without recorded values: "properties.sku missing"
	detail  string // with values, for a person
	excused string // the reason of the rule of ours for which it is none; "" counts
}

// A comparison compares one answer's body.
type comparison struct {
	mapping *mapping
	typ     string // of the resource, canonical
	paged   bool   // the recorded list is one page of several
	found   []difference
}

// freeKeys are objects whose keys are the client's own words, so that they do not belong
// into the name of a rule.
var freeKeys = map[string]bool{
	"tags": true, "userAssignedIdentities": true, "parameters": true, "outputs": true, "settings": true, "metadata": true, "variables": true,
}

// member compares what lies at a path of members, as Azure returned it and as azsim did.
func (c *comparison) member(path string, recorded, got any) {
	switch want := recorded.(type) {
	case map[string]any:
		have, ok := got.(map[string]any)
		if !ok {
			c.differ(path, "other value", recorded, got)
			return
		}
		c.object(path, want, have)
	case []any:
		have, ok := got.([]any)
		if !ok {
			c.differ(path, "other value", recorded, got)
			return
		}
		c.list(path, want, have)
	default:
		if recorded != got && !c.sameByForm(path, recorded, got) {
			c.differ(path, "other value", recorded, got)
		}
	}
}

func (c *comparison) object(path string, want, have map[string]any) {
	parent := path[strings.LastIndexByte(path, '.')+1:]
	for _, key := range slices.Sorted(maps.Keys(want)) {
		name := key
		if freeKeys[parent] {
			name = "*"
		}
		at := strings.TrimPrefix(path+"."+name, ".")
		value, ok := have[key]
		if !ok {
			value, ok = lookup(have, c.mapping.text(key))
		}
		if !ok {
			c.differ(at, "missing", want[key], nil)
			continue
		}
		c.member(at, want[key], value)
	}
}

// lookup finds a key in any letter case.
func lookup(in map[string]any, key string) (any, bool) {
	for k, v := range in {
		if strings.EqualFold(k, key) {
			return v, true
		}
	}
	return nil, false
}

// list compares elements that have the same identity; what is left over by their order.
func (c *comparison) list(path string, want, have []any) {
	at := path + "[]"
	left := slices.Clone(have)
	var unmatched []any // without an identity that the client chose
	for _, e := range want {
		id := c.identity(e, true)
		n := -1
		if id != "" {
			n = slices.IndexFunc(left, func(g any) bool { return c.identity(g, false) == id })
		}
		switch {
		case n >= 0:
		case id != "" && (c.foreign(e) || c.named(e)):
			c.differ(at, "missing", e, nil)
			continue
		default:
			unmatched = append(unmatched, e)
			continue
		}
		c.member(at, e, left[n])
		left = slices.Delete(left, n, n+1)
	}
	for i, e := range unmatched {
		if i >= len(left) {
			c.differ(at, "missing", e, nil)
			continue
		}
		c.member(at, e, left[i])
	}
	for _, g := range left[min(len(unmatched), len(left)):] {
		c.differ(at, "one too many", nil, g)
	}
}

// identity returns what makes an element of a list differ from its neighbours.
func (c *comparison) identity(e any, recorded bool) string {
	object, ok := e.(map[string]any)
	if !ok {
		return ""
	}
	for _, key := range []string{"id", "name", "instanceId", "code", "namespace", "resourceType", "lun"} {
		if v, ok := object[key]; ok && v != nil {
			text := fmt.Sprint(v)
			if recorded {
				text = c.mapping.text(text)
			}
			return key + " " + strings.ToLower(text)
		}
	}
	return ""
}

// named reports whether the client chose the name of a list's element.
func (c *comparison) named(e any) bool {
	object, _ := e.(map[string]any)
	name, ok := object["name"].(string)
	return ok && c.mapping.isChosen(name)
}

// foreign reports whether a list's element is of a resource group that the session never
// names, or lies at no group and was not named.
func (c *comparison) foreign(e any) bool {
	object, _ := e.(map[string]any)
	id, _ := object["id"].(string)
	if m := groupPath.FindStringSubmatch(id); m != nil {
		return !c.mapping.isChosen(m[1])
	}
	return c.typ == assignmentType && !c.named(e)
}

func (c *comparison) differ(path, how string, recorded, got any) {
	d := difference{rule: path + " " + how, detail: fmt.Sprintf("%s %s: Azure %s, azsim %s", path, how, short(recorded), short(got))}
	for _, r := range memberRules {
		if r.covers(c, path, how, recorded, got) {
			d.excused = r.reason
			break
		}
	}
	c.found = append(c.found, d)
}

func short(v any) string {
	text := fmt.Sprintf("%v", v)
	if len(text) > 200 {
		text = text[:200] + "…"
	}
	return text
}
