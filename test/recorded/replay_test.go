package recorded

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/ortet/ortet/azsim"
)

// A category is how azsim's answer compares with Azure's.
type category int

const (
	same        category = iota // in all that is compared
	body                        // the same status, other members or headers
	status                      // another status, error code, or end of the operation
	refused                     // Azure accepted it
	consequence                 // fails since something of an unwanted type was refused
	categories
)

func (c category) String() string {
	return [...]string{"same", "body", "status", "refused", "consequence"}[c]
}

// A result is one compared request.
type result struct {
	typ         string
	session     string
	request     string
	status      int      // Azure's
	strict      category // with the rules only
	category    category // with all rules
	differences []difference
	detail      string // of a refusal
}

// A replayer sends a session's requests to an azsim of its own.
type replayer struct {
	session string
	ctx     context.Context
	azure   *azsim.Server
	mapping *mapping
	served  map[string][]string         // API versions by type, in lower case, oldest first
	refused map[string]bool             // ids, in lower case, that are not there for an unwanted type's sake
	pending map[*interaction]*operation // by the last recorded poll
	results []*result
}

const (
	latency      = 50 * time.Millisecond // of each request
	longestPause = time.Hour             // between two requests; else as recorded
	operationMax = 48 * time.Hour        // virtual
)

// replay replays a session; it is called in a bubble of testing/synctest.
func replay(s *session) ([]*result, error) {
	azure := prepare(s)
	defer azure.Close()
	r := &replayer{
		session: s.Name, ctx: context.Background(), azure: azure, mapping: newMapping(), refused: map[string]bool{},
		pending: map[*interaction]*operation{},
	}
	if err := r.create(s); err != nil {
		return nil, err
	}
	if err := r.findVersions(); err != nil {
		return nil, err
	}
	for n := range s.Interactions {
		i := &s.Interactions[n]
		if n > 0 {
			time.Sleep(min(max(0, i.date().Sub(s.Interactions[n-1].date())), longestPause))
		}
		if isPoll(i) {
			if op := r.pending[i]; op != nil {
				delete(r.pending, i)
				if err := r.finish(op); err != nil {
					return nil, err
				}
			}
			continue
		}
		if err := r.play(i, s.Interactions[n+1:]); err != nil {
			return nil, fmt.Errorf("%s %s: %w", i.Method, i.path(), err)
		}
	}
	return r.results, nil
}

var (
	pollPath = regexp.MustCompile(`(?i)/locations/[^/]+/(operations|operationResults|capsOperations|diskOperations|asyncOperations)/|` +
		`/operationStatuses/|^/subscriptions/[^/]+/operationResults/`)
	locationPath     = regexp.MustCompile(`(?i)/locations/([^/?]+)`)
	subscriptionPath = regexp.MustCompile(`(?i)^/subscriptions/([^/?]+)`)
	templateType     = regexp.MustCompile(`"type"\s*:\s*"(Microsoft\.[A-Za-z/]+)"`)
	groupPath        = regexp.MustCompile(`(?i)^/subscriptions/[^/]+/resourceGroups/([^/?]+)`)
)

// findVersions asks azsim which API versions it serves.
func (r *replayer) findVersions() error {
	r.served = map[string][]string{}
	answer, err := r.send(http.MethodGet, azsim.InProcess+"/subscriptions/"+r.azure.Subscription+"/providers?api-version=2021-04-01", nil)
	if err != nil {
		return err
	}
	list, _ := answer.body.(map[string]any)
	all, _ := list["value"].([]any)
	for _, p := range all {
		provider, _ := p.(map[string]any)
		types, _ := provider["resourceTypes"].([]any)
		for _, t := range types {
			typ, _ := t.(map[string]any)
			versions, _ := typ["apiVersions"].([]any)
			key := strings.ToLower(fmt.Sprint(provider["namespace"], "/", typ["resourceType"]))
			for _, v := range versions {
				r.served[key] = append(r.served[key], fmt.Sprint(v))
			}
			slices.Sort(r.served[key])
		}
	}
	if len(r.served) == 0 {
		return fmt.Errorf("azsim lists no API versions: HTTP %d", answer.status)
	}
	return nil
}

// version is the recorded API version, or the oldest newer version in azsim.
func (r *replayer) version(typ, recorded string) string {
	served := r.served[strings.ToLower(typ)]
	if len(served) == 0 {
		return recorded
	}
	n, _ := slices.BinarySearch(served, recorded)
	return served[min(n, len(served)-1)]
}

// An answer of azsim.
type answer struct {
	status int
	header http.Header
	body   any
}

// code is the error code of a refusal; "" without one.
func code(body any) string {
	object, _ := body.(map[string]any)
	if inner, ok := object["error"].(map[string]any); ok {
		object = inner
	}
	text, _ := object["code"].(string)
	return text
}

func (r *replayer) send(method, target string, body any) (*answer, error) {
	time.Sleep(latency)
	var text []byte
	if plain, ok := body.(string); ok {
		text = []byte(plain) // a template with comments
	} else if body != nil {
		var err error
		if text, err = json.Marshal(body); err != nil {
			return nil, err
		}
	}
	request, err := http.NewRequestWithContext(r.ctx, method, target, bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	token, err := r.azure.Credential("").GetToken(r.ctx, policy.TokenRequestOptions{})
	if err != nil {
		return nil, err
	}
	request.Header.Set("Authorization", "Bearer "+token.Token)
	request.Header.Set("Content-Type", "application/json")
	response, err := r.azure.Transport().Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	text, err = io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	out := &answer{status: response.StatusCode, header: response.Header}
	if len(bytes.TrimSpace(text)) > 0 {
		if err := json.Unmarshal(text, &out.body); err != nil {
			return nil, fmt.Errorf("answer of azsim is no JSON: %w", err)
		}
	}
	return out, nil
}

// play sends one request, and compares its answer. later are the interactions behind it.
func (r *replayer) play(i *interaction, later []interaction) error {
	r.mapping.choose(i)
	typ := typeOf(i)
	got, err := r.send(i.Method, r.target(i, typ), r.versions(r.mapping.body(i.Request)))
	if err != nil {
		return err
	}
	res := &result{typ: typ, session: r.session, request: i.Method + " " + i.path(), status: i.Status}
	r.results = append(r.results, res)
	r.compare(res, i, got)
	if got.status >= http.StatusBadRequest {
		r.blame(res, i, later)
		return nil
	}
	if i.Method == http.MethodDelete && got.status == http.StatusNoContent && i.Status != got.status {
		r.blame(res, i, later)
	}
	if i.Method == http.MethodGet {
		return nil
	}
	op := &operation{result: res, request: i, later: later, url: got.header.Get("Azure-AsyncOperation"), polled: true}
	if op.url == "" {
		op.url, op.polled = got.header.Get("Location"), false
		if op.url == "" || strings.HasPrefix(op.url, "/") || // where a new resource is: no operation
			got.status != http.StatusAccepted && got.status != http.StatusCreated {
			return nil
		}
	}
	if last := r.lastPoll(i, later); last != nil {
		op.last = last
		r.pending[last] = op
		return nil
	}
	if typ == deploymentType && len(later) > 0 && (strings.EqualFold(later[0].path(), i.path()+"/cancel") || later[0].Status == http.StatusNotFound) {
		return nil // it is under way then: it is canceled, or what it makes is not there yet
	}
	return r.finish(op)
}

// target is the URL at azsim.
func (r *replayer) target(i *interaction, typ string) string {
	path, query, _ := strings.Cut(i.URI, "?")
	values, err := url.ParseQuery(query)
	if err != nil {
		return azsim.InProcess + i.URI
	}
	for key := range values {
		if strings.EqualFold(key, "api-version") {
			values.Set(key, r.version(typ, values.Get(key)))
		}
	}
	if unescaped, err := url.PathUnescape(path); err == nil && unescaped == path {
		path = (&url.URL{Path: r.mapping.text(path)}).EscapedPath()
	}
	return azsim.InProcess + path + "?" + values.Encode()
}

// versions replaces the API versions of a template's resources, as for requests.
func (r *replayer) versions(body any) any {
	switch v := body.(type) {
	case map[string]any:
		typ, _ := v["type"].(string)
		if recorded, ok := v["apiVersion"].(string); ok && typ != "" && !strings.HasPrefix(recorded, "[") {
			v["apiVersion"] = r.version(typ, recorded)
		}
		for _, e := range v {
			r.versions(e)
		}
	case []any:
		for _, e := range v {
			r.versions(e)
		}
	}
	return body
}

// compare compares an answer with Azure's.
func (r *replayer) compare(res *result, i *interaction, got *answer) {
	azureRefused, simRefused := i.Status >= http.StatusBadRequest, got.status >= http.StatusBadRequest
	switch {
	case simRefused && !azureRefused:
		res.end(refused, fmt.Sprintf("refused with %d %s", got.status, code(got.body)))
		res.detail = short(got.body)
		return
	case i.Status != got.status:
		res.end(status, fmt.Sprintf("status %d, azsim's %d", i.Status, got.status))
		if simRefused {
			res.detail = short(got.body)
		}
	case azureRefused:
		if want, have := code(i.Response), code(got.body); want != have {
			res.end(status, fmt.Sprintf("error.code %s, azsim's %s", want, have))
		}
		return
	}
	if azureRefused {
		return
	}
	if i.Method != http.MethodGet {
		for _, name := range []string{"Azure-AsyncOperation", "Location"} {
			want, have := i.Headers[strings.ToLower(name)] != "", got.header.Get(name) != ""
			if want && !have {
				res.end(body, "header "+name+" missing")
			} else if have && !want {
				res.end(body, "header "+name+" one too many")
			}
		}
	}
	if i.Response == nil {
		return
	}
	c := &comparison{mapping: r.mapping, typ: res.typ, paged: strings.Contains(i.URI, "skiptoken")}
	if list, ok := i.Response.(map[string]any); ok && list["nextLink"] != nil {
		c.paged = true
	}
	if got.body == nil {
		c.differ("body", "missing", i.Response, nil)
	} else {
		c.member("", i.Response, got.body)
	}
	res.differences = append(res.differences, c.found...)
	for _, d := range c.found {
		res.strict = max(res.strict, body)
		if d.excused == "" {
			res.category = max(res.category, body)
		}
	}
}

// end puts a result into a category, if it is not in a worse one.
func (res *result) end(c category, rule string) {
	res.strict, res.category = max(res.strict, c), max(res.category, c)
	res.differences = append(res.differences, difference{rule: rule, detail: rule})
}
