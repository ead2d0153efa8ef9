package recorded

import (
	"net/http"
	"strings"
)

// blame decides whether a request fails for something of an unwanted type, and notes that
// what it would have made is not there.
func (r *replayer) blame(res *result, i *interaction, later []interaction) {
	unwanted := groupOf(res.typ) == unwantedGroup
	because := unwanted || r.namesRefused(i)
	if !because || i.Status >= http.StatusBadRequest && res.category == same {
		return
	}
	if !unwanted {
		res.strict, res.category = consequence, consequence
	}
	if i.Status >= http.StatusBadRequest || i.Method != http.MethodPut && i.Method != http.MethodPost {
		return
	}
	r.refused[strings.ToLower(i.path())] = true
	if res.typ != deploymentType {
		return
	}
	// What the deployment made, as Azure listed it in later answers.
	for n := range later {
		if strings.EqualFold(later[n].path(), i.path()) {
			eachMember(later[n].Response, func(key string, value any) {
				list, ok := value.([]any)
				if key != "outputResources" || !ok {
					return
				}
				for _, e := range list {
					made, _ := e.(map[string]any)
					if id, ok := made["id"].(string); ok {
						r.refused[strings.ToLower(id)] = true
					}
				}
			})
		}
	}
}

// namesRefused reports whether a request names something that was refused, or is a
// deployment of an unwanted type.
func (r *replayer) namesRefused(i *interaction) bool {
	if r.below(i.path()) {
		return true
	}
	found := false
	if text, ok := i.Request.(string); ok {
		for _, m := range templateType.FindAllStringSubmatch(text, -1) {
			found = found || groupOf(canonical(m[1])) == unwantedGroup
		}
	}
	eachMember(i.Request, func(key string, value any) {
		text, ok := value.(string)
		if !ok {
			return
		}
		found = found || key == "id" && r.below(text) ||
			key == "type" && strings.HasPrefix(text, "Microsoft.") && groupOf(canonical(text)) == unwantedGroup
	})
	return found
}

// below reports whether an id is of something refused, or lies below it.
func (r *replayer) below(id string) bool {
	id = strings.ToLower(id)
	for end := len(id); end > 0; end = strings.LastIndexByte(id[:end], '/') {
		if r.refused[id[:end]] {
			return true
		}
	}
	return false
}
