package play

import (
	"bytes"
	"io"
	"net/http"
	"slices"
	"strings"
)

// Azure ignores the letter case of ids and does not keep it: an id comes back from one
// service as it was sent, from another in lower case, from a third with its group and
// names in upper case.

// Ways to spell ids.
const (
	spelledSent  = "sent"
	spelledLower = "lower"
	spelledUpper = "upper"
	spelledMixed = "mixed"
)

// spelled gives an id as it comes back where the words say, other in each place where
// the world mixes them.
func (w *world) spelled(id string, where ...any) string {
	how := w.story.Pool.Spelling
	if how == spelledMixed {
		how = []string{spelledSent, spelledLower, spelledUpper}[w.hash(append(where, "spelled", strings.ToLower(id))...)%3]
	}
	switch how {
	case spelledLower:
		return strings.ToLower(id)
	case spelledUpper:
		return upperNames(id)
	}
	return id
}

// upperNames has a resource group and the names of resources in upper case, and
// resourceGroups in lower case.
func upperNames(id string) string {
	parts := strings.Split(id, "/")
	for i := range parts {
		switch {
		case i == 3:
			parts[i] = strings.ToLower(parts[i])
		case i == 4 || i > 7 && i%2 == 0:
			parts[i] = strings.ToUpper(parts[i])
		}
	}
	return strings.Join(parts, "/")
}

// respelled is an answer to the request of that name with its ids as Azure spells them.
func (w *world) respelled(name string, answer *http.Response) (*http.Response, error) {
	if w.story.Pool.Spelling == spelledSent {
		return answer, nil
	}
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		return nil, err
	}
	const begin = `"/subscriptions/`
	var out bytes.Buffer
	for {
		before, rest, found := bytes.Cut(body, []byte(begin))
		out.Write(before)
		if !found {
			break
		}
		tail, after, _ := bytes.Cut(rest, []byte{'"'})
		out.WriteString(`"` + w.spelled(begin[1:]+string(tail), name) + `"`)
		body = after
	}
	answer.Body, answer.ContentLength = io.NopCloser(&out), int64(out.Len())
	return answer, nil
}

// sentAs gives a request's path as it is spelled where nobody changes the case of ids,
// so that happenings find it.
func (w *world) sentAs(parts []string) []string {
	if w.story.Pool.Spelling == spelledSent {
		return parts
	}
	types := []string{"virtualMachineScaleSets", "virtualMachines", "attachDetachDataDisks", "instanceView"}
	out := make([]string, len(parts))
	for i, p := range parts {
		out[i] = strings.ToLower(p)
		if at := slices.IndexFunc(types, func(t string) bool { return strings.EqualFold(t, p) }); at >= 0 {
			out[i] = types[at]
		}
	}
	return out
}
