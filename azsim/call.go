package azsim

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/ortet/ortet/azsim/deployments"
)

// maxBody is ARM's limit of a request's body.
const maxBody = 4 << 20

// A call is one request on its way to its handler.
type call struct {
	s         *Server
	r         *http.Request
	body      []byte
	values    url.Values // the query; nil before it is asked for
	id        resourceID // tail is set for a collection, an action or a view
	rt        *resourceType
	verb      string // "read", "write", "delete", or the POST's action
	action    string // "Microsoft.Compute/disks/write"
	run       handler
	version   string
	principal *principal
	now       time.Time

	fault      *Fault // what this request meets, nil for none
	opFault    *Fault // the same, if it concerns the operation
	ignoreNull bool
	check      deployments.Check // how far a PUT goes
	remaining  string            // of a budget, as a header says it
}

// A Request is what the server remembers of a request.
type Request struct {
	Seq       int       `json:"seq"`
	Time      time.Time `json:"time"`
	Method    string    `json:"method"`
	Path      string    `json:"path"`   // lower case, without the query
	Action    string    `json:"action"` // "Microsoft.Compute/disks/write"; "" outside ARM
	Status    int       `json:"status"` // 0: the connection was dropped
	Code      string    `json:"code,omitempty"`
	Principal string    `json:"principal,omitempty"` // object id
	Fault     string    `json:"fault,omitempty"`     // name of the fault it met
}

// keptRequests is how many requests the server remembers.
const keptRequests = 4096

// ServeHTTP answers as Azure does. A dropped connection is a panic with
// http.ErrAbortHandler, as net/http wants it.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.init()
	c := &call{s: s, r: r, now: time.Now()}
	w.Header().Set("Date", c.now.UTC().Format(http.TimeFormat)) // net/http's, also in process
	if own, isOwn := r.Context().Value(ownKey{}).(own); isOwn {
		c.principal, c.check = own.principal, own.check
	}
	var data []byte
	var err error
	if r.Body != http.NoBody {
		data, err = io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	}
	if err != nil {
		var tooBig *http.MaxBytesError
		if errors.As(err, &tooBig) {
			c.finish(w, errorReply(refuse(http.StatusRequestEntityTooLarge, "RequestContentTooLarge", "The request content size exceeds the maximum size of '%d'.", maxBody)))
		}
		return
	}
	c.body = data
	if path, own := strings.CutPrefix(r.URL.Path, imdsPath); own {
		c.serveIMDS(w, "/"+path)
		return
	}
	if path, own := strings.CutPrefix(r.URL.Path, "/azsim/"); own {
		c.finish(w, c.encoded(c.control(path)))
		return
	}
	if c.aside(w) {
		return
	}
	c.finish(w, c.answer())
}

// finish sends the reply and remembers the request.
func (c *call) finish(w http.ResponseWriter, r *reply) {
	c.s.mu.Lock()
	trace := c.s.draw(c.r.Method, c.r.URL.Path)
	c.s.mu.Unlock()
	id := trace.uuid()
	correlation := c.r.Header.Get("X-Ms-Correlation-Request-Id")
	if correlation == "" {
		correlation = trace.uuid()
	}
	c.remember(r)
	if r.status == 0 {
		panic(http.ErrAbortHandler)
	}
	h := w.Header()
	h.Set("X-Ms-Request-Id", id)
	h.Set("X-Ms-Correlation-Request-Id", correlation)
	if id := c.r.Header.Get("X-Ms-Client-Request-Id"); id != "" && strings.EqualFold(c.r.Header.Get("X-Ms-Return-Client-Request-Id"), "true") {
		h.Set("X-Ms-Client-Request-Id", id)
	}
	h.Set("Cache-Control", "no-cache")
	kind := "Writes"
	switch c.r.Method {
	case http.MethodGet, http.MethodHead:
		kind = "Reads"
	case http.MethodDelete:
		kind = "Deletes"
	}
	h.Set("X-Ms-Ratelimit-Remaining-Subscription-"+kind, "11999")
	if c.remaining != "" {
		h.Set("X-Ms-Ratelimit-Remaining-Resource", c.remaining)
	}
	r.send(w)
}

func (c *call) remember(r *reply) {
	if c.check != deployments.Perform {
		return
	}
	req := Request{Time: c.now, Method: c.r.Method, Path: strings.ToLower(c.r.URL.Path), Action: c.action, Status: r.status}
	if body, isErr := r.body.(map[string]any); isErr {
		if e, isErr := body["error"].(*armError); isErr {
			req.Code = e.code
		}
	}
	if c.principal != nil {
		req.Principal = c.principal.ObjectID
	}
	if c.fault != nil {
		req.Fault = c.fault.Name
	}
	s := c.s
	s.mu.Lock()
	s.count++
	req.Seq = s.count
	s.requests = append(s.requests, req)
	if len(s.requests) > keptRequests {
		s.requests = slices.Clone(s.requests[keptRequests/2:])
	}
	s.mu.Unlock()
	if s.OnRequest != nil {
		s.OnRequest(req)
	}
	if s.Log.Enabled(c.r.Context(), slog.LevelDebug) {
		s.Log.Debug("request", "method", req.Method, "path", req.Path, "status", req.Status, "code", req.Code, "fault", req.Fault)
	}
}

// dropped is the reply that closes the connection instead.
func dropped() *reply { return &reply{} }

// answer takes an ARM request through its checks to its handler.
func (c *call) answer() *reply {
	s := c.s
	s.mu.Lock()
	routeErr := c.route()
	if c.check == deployments.Perform {
		c.meet()
	}
	s.mu.Unlock()

	if r := c.before(); r != nil {
		return c.encoded(r)
	}
	r, err := c.handleLocked(routeErr)
	if err == nil && r.later != nil {
		if r, err = r.later(c.r.Context()); err == nil {
			r = c.encoded(r)
		}
	}
	if err != nil {
		var e *armError
		if !errors.As(err, &e) {
			s.Log.Error("request failed", "method", c.r.Method, "path", c.r.URL.Path, "error", err)
		}
		r = c.encoded(errorReply(err))
	}
	return c.after(r)
}

// handleLocked handles the request under the lock, which a panic must not keep: it is logged
// and answered as an internal error, and the server goes on.
func (c *call) handleLocked(routeErr error) (r *reply, err error) {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	defer func() {
		if cause := recover(); cause != nil {
			c.s.Log.Error("panic", "method", c.r.Method, "path", c.r.URL.Path, "cause", cause, "stack", string(debug.Stack()))
			err = fmt.Errorf("azsim panicked, see its log: %v", cause)
		}
	}()
	if r, err = c.handle(routeErr); err == nil && r.later == nil {
		err = r.encode(c)
	}
	return r, err
}

// encoded encodes a reply that no stored model is part of.
func (c *call) encoded(r *reply) *reply {
	if err := r.encode(c); err != nil {
		return &reply{status: http.StatusInternalServerError}
	}
	return r
}

// handle makes the checks that every request meets, then calls the handler. It
// runs under the lock.
func (c *call) handle(routeErr error) (*reply, error) {
	if c.version == "" {
		return nil, badRequest("MissingApiVersionParameter", "The api-version query parameter (?api-version=) is required for all requests.")
	}
	own := c.principal != nil // the server's, as of a deployment
	if !own {
		if err := c.authenticate(); err != nil {
			return nil, err
		}
	}
	if routeErr != nil {
		return nil, routeErr
	}
	if c.id.subscription != "" && !strings.EqualFold(c.id.subscription, c.s.Subscription) {
		return nil, refuse(http.StatusNotFound, "SubscriptionNotFound", "The subscription '%s' could not be found.", c.id.subscription)
	}
	if err := c.checkVersion(); err != nil {
		return nil, err
	}
	if c.action != "" && c.id.subscription != "" {
		if err := c.authorize(c.action, c.id); err != nil {
			return nil, err
		}
	}
	if c.id.group != "" && c.s.entries[groupKey(c.id)] == nil && !c.isGroup() {
		return nil, groupNotFound(c.id.group)
	}
	if err := c.beingDeleted(); err != nil {
		return nil, err
	}
	if err := c.needRegistered(); err != nil {
		return nil, err
	}
	if c.check == deployments.CheckAccess || c.check == deployments.CheckBody && (c.rt == nil || !c.rt.preflight) {
		return &reply{status: http.StatusNoContent}, nil
	}
	if b, limited := c.budgetOf(); limited && !own {
		if err := c.spend(b, c.id); err != nil {
			return nil, err
		}
	}
	if c.fault.is(EffectReportSuccess) {
		return c.pretend()
	}
	return c.run(c)
}

// route finds the handler for the request's path and method.
func (c *call) route() error {
	c.version = c.query("api-version")
	id, err := parsePath(c.r.URL.EscapedPath())
	if err != nil {
		return refuse(http.StatusNotFound, "InvalidResourceId", "The request URL is not a valid resource id: %v.", err)
	}
	c.id = id
	if run, action := c.routeCore(); run != nil {
		c.run, c.action = run, action
		return nil
	}
	if id.namespace == "" {
		return refuse(http.StatusNotFound, "NotFound", "The requested URI does not represent any resource on the server.")
	}
	if c.s.providers[strings.ToLower(id.namespace)] == nil {
		return refuse(http.StatusNotFound, "InvalidResourceNamespace", "The resource namespace '%s' is invalid: azsim does not simulate it.", id.namespace)
	}
	typ := strings.ToLower(id.typeName())
	method := c.r.Method
	if id.tail == "" {
		rt := c.s.types[typ]
		if rt == nil {
			return c.unknownType()
		}
		c.rt = rt
		c.spell()
		switch method {
		case http.MethodGet, http.MethodHead:
			return c.to("read", orElse(rt.get, getStored))
		case http.MethodPut:
			return c.to("write", rt.put)
		case http.MethodPatch:
			return c.to("write", rt.patch)
		case http.MethodDelete:
			return c.to("delete", rt.remove)
		}
		return c.to("", nil)
	}
	if rt := c.s.types[typ+"/"+strings.ToLower(id.tail)]; rt != nil && method == http.MethodGet {
		c.rt = rt
		return c.to("read", orElse(rt.list, listStored))
	}
	rt := c.s.types[typ]
	if rt == nil {
		return c.unknownType()
	}
	c.rt = rt
	c.spell()
	tail := strings.ToLower(id.tail)
	switch method {
	case http.MethodGet:
		return c.to(id.tail+"/read", rt.views[tail])
	case http.MethodPost:
		return c.to(id.tail+"/action", rt.actions[tail])
	}
	return c.to("", nil)
}

// to settles the route.
func (c *call) to(verb string, run handler) error {
	if run == nil {
		if c.r.Method == http.MethodPost || c.id.tail != "" {
			return c.unknownType()
		}
		return refuse(http.StatusMethodNotAllowed, "HttpResourceMethodNotAllowed", "The HTTP method '%s' is not supported for resources of type '%s'.", c.r.Method, c.rt.name)
	}
	c.verb, c.action, c.run = verb, c.rt.name+"/"+verb, run
	return nil
}

// spell gives the path's types the letter case of ARM, and its group that of
// the stored group.
func (c *call) spell() {
	parts := strings.Split(c.rt.name, "/")
	if len(parts) == len(c.id.types)+1 {
		c.id.namespace = parts[0]
		c.id.types = slices.Clone(parts[1:])
	}
	c.id.subscription = c.s.Subscription
	if g := c.s.entries[groupKey(c.id)]; g != nil {
		c.id.group = g.id.group
	}
	if len(c.id.names) > 1 {
		if p := c.s.find(c.id.parent()); p != nil {
			copy(c.id.names, p.id.names)
		}
	}
}

func orElse(h, fallback handler) handler {
	if h != nil {
		return h
	}
	return fallback
}

func (c *call) unknownType() error {
	typ := strings.Join(c.id.types, "/")
	if c.id.tail != "" {
		typ = strings.Trim(typ+"/"+c.id.tail, "/")
	}
	return refuse(http.StatusNotFound, "InvalidResourceType",
		"The resource type '%s' could not be found in the namespace '%s' for api version '%s': azsim does not simulate it.", typ, c.id.namespace, c.version)
}

// query reads a query parameter, whose name ARM takes in any letter case.
func (c *call) query(name string) string {
	if c.values == nil {
		c.values = c.r.URL.Query()
	}
	if v := c.values.Get(name); v != "" {
		return v
	}
	for k, v := range c.values {
		if strings.EqualFold(k, name) && len(v) > 0 {
			return v[0]
		}
	}
	return ""
}

// expands says whether $expand names what.
func (c *call) expands(what string) bool {
	for e := range strings.SplitSeq(c.query("$expand"), ",") {
		if strings.EqualFold(strings.TrimSpace(e), what) {
			return true
		}
	}
	return false
}

// base is the server's URL as the client sees it, without a slash at its end.
func (c *call) base() string {
	if c.s.Base != "" {
		return strings.TrimRight(c.s.Base, "/")
	}
	scheme := "https"
	if c.r.TLS == nil && c.r.URL.Scheme == "" {
		scheme = "http"
	}
	host := c.r.Host
	if host == "" {
		host = c.r.URL.Host
	}
	return scheme + "://" + host
}

// tree decodes the request's body, which must be a JSON object.
func (c *call) tree() (map[string]any, error) {
	if len(bytes.TrimSpace(c.body)) == 0 {
		return nil, badRequest("InvalidRequestContent", "The request content was invalid: the request has no body.")
	}
	v, err := decodeJSON(c.body)
	if err != nil {
		return nil, badRequest("InvalidRequestContent", "The request content was invalid and could not be deserialized: '%v'.", err)
	}
	m, isObject := v.(map[string]any)
	if !isObject {
		return nil, badRequest("InvalidRequestContent", "The request content was invalid and could not be deserialized: an object is expected.")
	}
	return m, nil
}

// decode reads the request's body as a T; an empty body is a zero T.
func decode[T any](c *call) (*T, error) {
	if len(bytes.TrimSpace(c.body)) == 0 {
		return new(T), nil
	}
	tree, err := c.tree()
	if err != nil {
		return nil, err
	}
	return fromTree[T](tree)
}

// need finds the resource that the path names.
func (c *call) need() (*entry, error) {
	e := c.s.find(c.id)
	if e == nil {
		return nil, notFound(c.id)
	}
	return e, nil
}

// getStored is the common GET.
func getStored(c *call) (*reply, error) {
	e, err := c.need()
	if err != nil {
		return nil, err
	}
	return ok(c.render(e)), nil
}

// listStored is the common list: what lies below the parent that the path
// names, or of the type in the group or subscription.
func listStored(c *call) (*reply, error) {
	if len(c.id.names) > 0 {
		parent := c.s.find(c.id)
		if parent == nil {
			return nil, notFound(c.id)
		}
		return c.page(c.s.children(parent.id, c.id.tail)), nil
	}
	if c.id.group == "" && !c.rt.global {
		return nil, c.unknownType()
	}
	return c.page(c.s.ofType(c.rt.name, c.id.subscription, c.id.group)), nil
}
