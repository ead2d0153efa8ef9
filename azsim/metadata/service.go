package metadata

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"
)

// A Service answers as the Instance Metadata Service at 169.254.169.254 does, for
// one instance. Rules and shapes: Microsoft's "Azure Instance Metadata Service".
// All fields but Admit and Fault are required.
type Service struct {
	// Instance returns {"compute": …, "network": …} as it is now, or nil once the
	// instance is gone.
	Instance func() map[string]any
	// Attest signs the attested document, with that nonce or a default one.
	Attest func(nonce string) (string, error)
	// Token issues a token of one of the instance's managed identities.
	Token func(q url.Values) (map[string]any, *Refusal)
	// Ask notes that the instance asks for its scheduled events, and says how long
	// the answer takes; Events then returns them.
	Ask    func() time.Duration
	Events func() (incarnation int, events []ScheduledEvent)
	// Approve lets events begin before their time, unless one of them is not there.
	Approve func(eventIDs []string) bool
	// Admit says whether a request to a category is within its limits; nil: all are.
	Admit func(category string) bool
	// Fault answers a request that meets a fault, and says whether it did; nil: none does.
	Fault func(category string, w http.ResponseWriter, r *http.Request) bool
}

// A Refusal is the service's own shape of an error.
type Refusal struct {
	Status      int
	Reason      string // "error"
	Description string // "error_description"; only token answers have it
}

// versions are the API versions of /metadata/instance, newest first.
func versions() []string {
	return []string{
		"2025-04-07", "2024-07-17", "2024-03-15", "2023-11-15", "2023-07-01", "2021-12-13", "2021-11-15",
		"2021-11-01", "2021-10-01", "2021-08-01", "2021-05-01", "2021-03-01", "2021-02-01", "2021-01-01",
		"2020-12-01", "2020-10-01", "2020-09-01", "2020-07-15", "2020-06-01", "2019-11-01", "2019-08-15",
		"2019-08-01", "2019-06-04", "2019-06-01", "2019-04-30", "2019-03-11", "2019-02-01", "2018-10-01",
		"2018-04-02", "2018-02-01", "2017-12-01", "2017-10-01", "2017-08-01", "2017-04-02", "2017-03-01",
	}
}

func (h Service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("X-Forwarded-For") != "" {
		Refuse(w, http.StatusBadRequest, "Bad request. X-Forwarded-For header is not allowed")
		return
	}
	if !strings.EqualFold(r.Header.Get("Metadata"), "true") {
		Refuse(w, http.StatusBadRequest, "Bad request. Required metadata header not specified")
		return
	}
	path := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	category := ""
	if len(path) > 1 && strings.EqualFold(path[0], "metadata") {
		category = strings.ToLower(path[1])
	}
	if h.Admit != nil && !h.Admit(category) {
		w.Header().Set("Retry-After", "1")
		Refuse(w, http.StatusTooManyRequests, "Too many requests")
		return
	}
	if h.Fault != nil && h.Fault(category, w, r) {
		return
	}
	for _, values := range r.URL.Query() {
		if len(values) > 1 {
			Refuse(w, http.StatusBadRequest, "Bad request. Duplicate query parameters are not allowed")
			return
		}
	}
	switch rest := strings.ToLower(strings.Join(path[min(2, len(path)):], "/")); {
	case category == "instance":
		h.serveInstance(w, r, path[2:])
	case category == "versions" && rest == "":
		all := versions()
		slices.Reverse(all)
		write(w, http.StatusOK, map[string]any{"apiVersions": all})
	case category == "attested" && rest == "document":
		h.serveAttested(w, r)
	case category == "identity" && rest == "oauth2/token":
		h.serveToken(w, r)
	case category == "scheduledevents" && rest == "":
		h.serveEvents(w, r)
	default:
		Refuse(w, http.StatusNotFound, "Not found")
	}
}

// serveInstance answers for the whole document or for the part that path names.
func (h Service) serveInstance(w http.ResponseWriter, r *http.Request, path []string) {
	q := r.URL.Query()
	if r.Method != http.MethodGet {
		refuseMethod(w)
		return
	}
	if !slices.Contains(versions(), q.Get("api-version")) {
		refuseVersion(w)
		return
	}
	document := h.Instance()
	if document == nil {
		refuseGone(w)
		return
	}
	var part any = document
	for _, name := range path {
		next, ok := descend(part, name)
		if !ok {
			Refuse(w, http.StatusNotFound, "Not found")
			return
		}
		part = next
	}
	if q.Get("format") == "text" {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = fmt.Fprint(w, asText(part))
		return
	}
	switch part.(type) {
	case map[string]any, []any:
		write(w, http.StatusOK, part)
	default:
		Refuse(w, http.StatusBadRequest, "Bad request. A leaf needs format=text")
	}
}

// descend steps into an object by name, in any letter case, or into an array by
// index.
func descend(v any, name string) (any, bool) {
	switch v := v.(type) {
	case map[string]any:
		for k, inner := range v {
			if strings.EqualFold(k, name) {
				return inner, true
			}
		}
	case []any:
		if i, err := strconv.Atoi(name); err == nil && i >= 0 && i < len(v) {
			return v[i], true
		}
	}
	return nil, false
}

// asText is a leaf as it is, and the names below an object or array, a line
// each, with a slash where more lies below.
func asText(v any) string {
	below := func(name string, inner any) string {
		switch inner.(type) {
		case map[string]any, []any:
			return name + "/"
		}
		return name
	}
	var lines []string
	switch v := v.(type) {
	case nil:
		return ""
	case string:
		return v
	case map[string]any:
		for k, inner := range v {
			lines = append(lines, below(k, inner))
		}
		sort.Strings(lines)
	case []any:
		for i, inner := range v {
			lines = append(lines, below(strconv.Itoa(i), inner))
		}
	default:
		return fmt.Sprint(v)
	}
	return strings.Join(lines, "\n")
}

func (h Service) serveToken(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet {
		refuseMethod(w)
		return
	}
	q := r.URL.Query()
	switch {
	case q.Get("api-version") == "":
		write(w, http.StatusBadRequest, map[string]any{"error": "invalid_request", "error_description": "Required query variable 'api-version' is missing"})
		return
	case q.Get("resource") == "":
		write(w, http.StatusBadRequest, map[string]any{"error": "invalid_request", "error_description": "Required query variable 'resource' is missing"})
		return
	}
	if h.Instance() == nil {
		refuseGone(w)
		return
	}
	token, refusal := h.Token(q)
	if refusal != nil {
		write(w, refusal.Status, map[string]any{"error": refusal.Reason, "error_description": refusal.Description})
		return
	}
	write(w, http.StatusOK, token)
}

// Refuse answers with an error in the service's own shape.
func Refuse(w http.ResponseWriter, status int, why string) {
	write(w, status, map[string]any{"error": why})
}

func refuseMethod(w http.ResponseWriter) {
	Refuse(w, http.StatusMethodNotAllowed, "Method not allowed")
}

func refuseVersion(w http.ResponseWriter) {
	write(w, http.StatusBadRequest, map[string]any{
		"error":           "Bad request. api-version is invalid or was not specified in the request. For more information refer to aka.ms/azureimds",
		"newest-versions": versions()[:3],
	})
}

func refuseGone(w http.ResponseWriter) { Refuse(w, http.StatusGone, "Gone") }

// write ignores a client that hung up: no reader is left.
func write(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.Header().Set("Server", "IMDS/150.870.65.1")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}
