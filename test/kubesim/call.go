package kubesim

import (
	"context"
	"net/http"
	"net/url"
	"strings"
)

// A Request is what a client asked, in RBAC's words.
type Request struct {
	User string
	// Verb is "get", "list", "watch", "create", "update", "patch", "delete" or
	// "deletecollection".
	Verb, Group, Resource, Subresource, Namespace, Name string
	// Path is set where it is about no resource.
	Path string
	// DryRun: it changes nothing.
	DryRun bool
	// Status is the answer's.
	Status int
}

// ParseRequest says what a request asks, before it is served; the user is the
// bearer token's.
func ParseRequest(request *http.Request) Request {
	var c call
	c.User = bearer(request)
	c.parse(request)
	return c.Request
}

// call is a request while it is served.
type call struct {
	Request
	version string
	kind    *kind
	accept  string // content type of the answer
	header  http.Header
	rawURL  *url.URL
	query   url.Values // nil until it is asked for
	body    []byte
	groups  []string        // the user's
	ctx     context.Context // the request's, which ends a watch
	table   bool            // the answer is a table, as kubectl prints it
}

func (s *Server) parse(request *http.Request, user User, body []byte) *call {
	c := &call{body: body, groups: user.Groups, ctx: request.Context()}
	c.User = user.Name
	c.parse(request)
	c.accept = accepted(c.header.Get("Accept"), true)
	return c
}

// parameter returns a parameter of the query.
func (c *call) parameter(name string) string {
	if c.rawURL.RawQuery == "" {
		return ""
	}
	if c.query == nil {
		c.query = c.rawURL.Query()
	}
	return c.query.Get(name)
}

func (c *call) parse(request *http.Request) {
	c.header, c.rawURL = request.Header, request.URL
	c.DryRun = c.parameter("dryRun") != ""
	parts := strings.Split(strings.Trim(request.URL.Path, "/"), "/")
	switch {
	case len(parts) >= 3 && parts[0] == "api":
		c.version, parts = parts[1], parts[2:]
	case len(parts) >= 4 && parts[0] == "apis":
		c.Group, c.version, parts = parts[1], parts[2], parts[3:]
	default:
		c.Path, c.Verb = request.URL.Path, strings.ToLower(request.Method)
		return
	}
	if parts[0] == "namespaces" && len(parts) >= 2 {
		// A namespace is in itself, as RBAC sees it.
		c.Namespace = parts[1]
		if len(parts) >= 3 && !(len(parts) == 3 && (parts[2] == "status" || parts[2] == "finalize")) {
			parts = parts[2:]
		}
	}
	c.Resource = parts[0]
	if len(parts) > 1 {
		c.Name = parts[1]
	}
	if len(parts) > 2 {
		c.Subresource = strings.Join(parts[2:], "/")
	}
	c.Verb = map[string]string{
		http.MethodGet: "get", http.MethodHead: "get", http.MethodPost: "create", http.MethodPut: "update", http.MethodPatch: "patch", http.MethodDelete: "delete",
	}[request.Method]
	if c.Name != "" {
		return
	}
	switch c.Verb {
	case "get":
		c.Verb = "list"
		if watch := c.parameter("watch"); watch == "true" || watch == "1" {
			c.Verb = "watch"
		}
	case "delete":
		c.Verb = "deletecollection"
	}
}

// storedNamespace is the namespace of the object that is asked for: none for
// kinds without one.
func (c *call) storedNamespace() string {
	if !c.kind.namespaced {
		return ""
	}
	return c.Namespace
}

// key is that of the object that is asked for.
func (c *call) key() string { return keyOf(c.storedNamespace(), c.Name) }
