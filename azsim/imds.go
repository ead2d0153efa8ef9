package azsim

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

// An imds answers as the Instance Metadata Service at 169.254.169.254 does, for
// one instance. Rules and shapes: Microsoft's "Azure Instance Metadata Service".
type imds struct {
	// instance gives {"compute": …, "network": …} as it is now, or nil once the
	// instance is gone.
	instance func() map[string]any
	// attest signs the attested document, with that nonce or a default one.
	attest func(nonce string) (string, error)
	// token issues a token of one of the instance's managed identities.
	token func(q url.Values) (map[string]any, *imdsError)
	// ask notes that the instance asks for its scheduled events, and says how long
	// the answer takes; events then gives them.
	ask    func() time.Duration
	events func() (incarnation int, events []scheduledEvent)
	// approve lets events begin before their time, unless one of them is not there.
	approve func(eventIDs []string) bool
	// admit says whether a request to a category is within its limits; nil: all are.
	admit func(category string) bool
	// fault gives the fault that a request meets, nil for none; nil: no request does.
	fault func(category string, r *http.Request) *Fault
}

// An imdsError is the service's own shape of an error.
type imdsError struct {
	status      int
	reason      string // "error"
	description string // "error_description"; only token answers have it
}

// imdsVersions are the API versions of /metadata/instance, newest first.
func imdsVersions() []string {
	return []string{
		"2025-04-07", "2024-07-17", "2024-03-15", "2023-11-15", "2023-07-01", "2021-12-13", "2021-11-15",
		"2021-11-01", "2021-10-01", "2021-08-01", "2021-05-01", "2021-03-01", "2021-02-01", "2021-01-01",
		"2020-12-01", "2020-10-01", "2020-09-01", "2020-07-15", "2020-06-01", "2019-11-01", "2019-08-15",
		"2019-08-01", "2019-06-04", "2019-06-01", "2019-04-30", "2019-03-11", "2019-02-01", "2018-10-01",
		"2018-04-02", "2018-02-01", "2017-12-01", "2017-10-01", "2017-08-01", "2017-04-02", "2017-03-01",
	}
}

func (h imds) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("X-Forwarded-For") != "" {
		refuseIMDS(w, http.StatusBadRequest, "Bad request. X-Forwarded-For header is not allowed")
		return
	}
	if !strings.EqualFold(r.Header.Get("Metadata"), "true") {
		refuseIMDS(w, http.StatusBadRequest, "Bad request. Required metadata header not specified")
		return
	}
	path := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	category := ""
	if len(path) > 1 && strings.EqualFold(path[0], "metadata") {
		category = strings.ToLower(path[1])
	}
	if h.admit != nil && !h.admit(category) {
		w.Header().Set("Retry-After", "1")
		refuseIMDS(w, http.StatusTooManyRequests, "Too many requests")
		return
	}
	if h.fault != nil {
		if f := h.fault(category, r); f != nil && f.metByIMDS(w, r) {
			return
		}
	}
	for _, values := range r.URL.Query() {
		if len(values) > 1 {
			refuseIMDS(w, http.StatusBadRequest, "Bad request. Duplicate query parameters are not allowed")
			return
		}
	}
	switch rest := strings.ToLower(strings.Join(path[min(2, len(path)):], "/")); {
	case category == "instance":
		h.serveInstance(w, r, path[2:])
	case category == "versions" && rest == "":
		versions := imdsVersions()
		slices.Reverse(versions)
		writeIMDS(w, http.StatusOK, map[string]any{"apiVersions": versions})
	case category == "attested" && rest == "document":
		h.serveAttested(w, r)
	case category == "identity" && rest == "oauth2/token":
		h.serveToken(w, r)
	case category == "scheduledevents" && rest == "":
		h.serveEvents(w, r)
	default:
		refuseIMDS(w, http.StatusNotFound, "Not found")
	}
}

// serveInstance answers for the whole document or for the part that path names.
func (h imds) serveInstance(w http.ResponseWriter, r *http.Request, path []string) {
	q := r.URL.Query()
	if r.Method != http.MethodGet {
		refuseMethod(w)
		return
	}
	if !slices.Contains(imdsVersions(), q.Get("api-version")) {
		refuseVersion(w)
		return
	}
	document := h.instance()
	if document == nil {
		refuseGone(w)
		return
	}
	var part any = document
	for _, name := range path {
		next, ok := descend(part, name)
		if !ok {
			refuseIMDS(w, http.StatusNotFound, "Not found")
			return
		}
		part = next
	}
	if q.Get("format") == "text" {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = fmt.Fprint(w, imdsText(part))
		return
	}
	switch part.(type) {
	case map[string]any, []any:
		writeIMDS(w, http.StatusOK, part)
	default:
		refuseIMDS(w, http.StatusBadRequest, "Bad request. A leaf needs format=text")
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

// imdsText is a leaf as it is, and the names below an object or array, a line
// each, with a slash where more lies below.
func imdsText(v any) string {
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

func (h imds) serveToken(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet {
		refuseMethod(w)
		return
	}
	q := r.URL.Query()
	switch {
	case q.Get("api-version") == "":
		writeIMDS(w, http.StatusBadRequest, map[string]any{"error": "invalid_request", "error_description": "Required query variable 'api-version' is missing"})
		return
	case q.Get("resource") == "":
		writeIMDS(w, http.StatusBadRequest, map[string]any{"error": "invalid_request", "error_description": "Required query variable 'resource' is missing"})
		return
	}
	if h.instance() == nil {
		refuseGone(w)
		return
	}
	token, refusal := h.token(q)
	if refusal != nil {
		writeIMDS(w, refusal.status, map[string]any{"error": refusal.reason, "error_description": refusal.description})
		return
	}
	writeIMDS(w, http.StatusOK, token)
}

func refuseIMDS(w http.ResponseWriter, status int, why string) {
	writeIMDS(w, status, map[string]any{"error": why})
}

func refuseMethod(w http.ResponseWriter) {
	refuseIMDS(w, http.StatusMethodNotAllowed, "Method not allowed")
}

func refuseVersion(w http.ResponseWriter) {
	writeIMDS(w, http.StatusBadRequest, map[string]any{
		"error":           "Bad request. api-version is invalid or was not specified in the request. For more information refer to aka.ms/azureimds",
		"newest-versions": imdsVersions()[:3],
	})
}

func refuseGone(w http.ResponseWriter) { refuseIMDS(w, http.StatusGone, "Gone") }

// writeIMDS ignores a client that hung up: there is nobody left to tell.
func writeIMDS(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.Header().Set("Server", "IMDS/150.870.65.1")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}
