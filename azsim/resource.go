package azsim

import (
	"cmp"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ortet/ortet/azsim/deployments"
)

// A handler answers one kind of request. It runs with the server's lock held,
// so it must neither wait nor call the Substrate: what takes time goes into an
// operation (call.begin) or into reply.later.
type handler func(c *call) (*reply, error)

// A resourceType is one ARM type: what it answers to each verb. See the package
// documentation for how to add one.
type resourceType struct {
	name     string   // "Microsoft.Compute/galleries/images", as ARM spells it
	versions []string // API versions it answers to, oldest first

	put    handler
	patch  handler
	remove handler // DELETE
	get    handler // nil: the stored body, rendered
	list   handler // nil: the stored bodies, rendered; see call.listing

	actions map[string]handler // POST to ID/<key>, lower case
	views   map[string]handler // GET at ID/<key>, lower case

	// render gives what a client may see of a stored body; nil: the body.
	render func(c *call, e *entry) any
	// listable says where a collection can be listed besides its parent:
	// "subscription" too, or "" for the parent alone.
	global bool
	// operations is the segment of its operations' paths; "" means "operations".
	operations string
	// preempts makes a write end the operation that runs, instead of meeting 409.
	preempts bool
	// stored is what a stored type adds (stored.go); nil for others.
	stored *storedRules
	// preflight says that put stops a PUT that is only checked (call.check) before it
	// stores anything, as write does.
	preflight bool
	// drop is told, under the lock, that an entry goes because its parent or
	// group goes; may be nil.
	drop func(s *Server, e *entry)
}

// An entry is one stored resource.
type entry struct {
	id    resourceID // as first spelled
	key   string     // id's key
	rt    *resourceType
	body  any        // pointer to an armcompute model, or a map
	op    *operation // the one that runs on it, or nil
	since time.Time  // created
	extra any        // what its type keeps beside the body
	// making is true until the operation that makes it has ended.
	making bool
}

// underWay says whether an operation runs on the resource; on a scale set the
// deletion of members is one.
func (e *entry) underWay() bool {
	if x, isSet := e.extra.(*scaleSet); isSet && len(x.deletions) > 0 {
		return true
	}
	return e.op != nil && e.op.running()
}

// find returns the stored resource, nil if there is none. The caller holds the lock.
func (s *Server) find(id resourceID) *entry { return s.entries[id.key()] }

// findID is find for an id out of a body.
func (s *Server) findID(id string) *entry {
	return s.entries[strings.ToLower(strings.TrimRight(id, "/"))]
}

// load returns the stored resource of that id with its body as a T.
func load[T any](s *Server, id string) (*entry, *T) {
	e := s.findID(id)
	if e == nil {
		return nil, nil
	}
	body, ok := e.body.(*T)
	if !ok {
		return nil, nil
	}
	return e, body
}

// insert stores a new resource: in the order of creation, those of one instant by
// id.
func (s *Server) insert(id resourceID, rt *resourceType, body any, now time.Time) *entry {
	id.tail = ""
	e := &entry{id: id, key: id.key(), rt: rt, body: body, since: now}
	s.entries[e.key] = e
	at, _ := slices.BinarySearchFunc(s.order, e, func(a, b *entry) int {
		return cmp.Or(a.since.Compare(b.since), natural(a.key, b.key))
	})
	s.order = slices.Insert(s.order, at, e)
	return e
}

// delete forgets a resource and all below it, and tells the types of what lies
// below. The caller holds the lock.
func (s *Server) delete(e *entry) {
	prefix := e.key + "/"
	var below []*entry
	s.order = slices.DeleteFunc(s.order, func(x *entry) bool {
		if x != e && !strings.HasPrefix(x.key, prefix) {
			return false
		}
		delete(s.entries, x.key)
		if x != e {
			below = append(below, x)
		}
		return true
	})
	for _, x := range below {
		if x.rt != nil && x.rt.drop != nil {
			x.rt.drop(s, x)
		}
	}
}

// children lists the stored resources directly below a parent, of one type, in
// the order of their creation. typ is the last part: "images".
func (s *Server) children(parent resourceID, typ string) []*entry {
	prefix := parent.key() + "/" + strings.ToLower(typ) + "/"
	var out []*entry
	for _, e := range s.order {
		if strings.HasPrefix(e.key, prefix) && !strings.Contains(e.key[len(prefix):], "/") {
			out = append(out, e)
		}
	}
	return out
}

// ofType lists the stored resources of a type in a subscription, or in one of
// its groups.
func (s *Server) ofType(name, subscription, group string) []*entry {
	var out []*entry
	for _, e := range s.order {
		if e.rt != nil && strings.EqualFold(e.rt.name, name) && strings.EqualFold(e.id.subscription, subscription) &&
			(group == "" || strings.EqualFold(e.id.group, group)) {
			out = append(out, e)
		}
	}
	return out
}

// render is what the client may see of an entry.
func (c *call) render(e *entry) any {
	if e.rt != nil && e.rt.render != nil {
		return e.rt.render(c, e)
	}
	return e.body
}

// busy is the conflict that a request meets while an operation runs on e. On a
// scale set a write meets none: it preempts the older one (begin), unless the set
// is being deleted or the fault "conflict" is met.
func (c *call) busy(e *entry) error {
	if e == nil || !e.underWay() {
		return nil
	}
	if e.rt != nil && e.rt.preempts && stateOf(e.body) != stateDeleting {
		if c.fault.is(EffectConflict) {
			return refuse(http.StatusConflict, "Conflict", "The request failed due to conflict with a concurrent request. To resolve it, please refer to https://aka.ms/activitylog to get more details on the conflicting requests.")
		}
		return nil
	}
	return refuse(http.StatusConflict, "OperationNotAllowed",
		"Operation '%s' is not allowed on '%s' since another operation ('%s', id %s) is in progress on it. Wait for it to end, then try again.",
		c.action, e.id.String(), e.op.name, e.op.id)
}

// hooks are what a type adds to the common way of PUT and PATCH.
type hooks[T any] struct {
	// check validates next and fills in defaults and read-only members. old is
	// nil for a new resource. It refuses by returning an *armError.
	check func(c *call, old, next *T) error
	// work says what the operation does; old is nil for a new resource. A nil
	// field answers at once. e.body is next already; its provisioningState is
	// set by the framework, before and after.
	work func(c *call, e *entry, old, next *T) work
	// accepted answers 202 instead of 201 and 200, and "Updating" instead of
	// "Creating", as disks and snapshots do; the operation's output is the resource.
	accepted bool
	// settled answers a change with "Succeeded" while its operation runs, as galleries do.
	settled bool
}

// put is the common PUT: decode, check, store, begin.
func put[T any](c *call, h hooks[T]) (*reply, error) {
	tree, err := c.tree()
	if err != nil {
		return nil, err
	}
	return write(c, tree, h)
}

// patch is the common PATCH: the stored body merged with the request's.
func patch[T any](c *call, h hooks[T]) (*reply, error) {
	e := c.s.find(c.id)
	if e == nil {
		return nil, notFound(c.id)
	}
	tree, err := c.tree()
	if err != nil {
		return nil, err
	}
	old, err := toTree(e.body)
	if err != nil {
		return nil, err
	}
	return write(c, mergePatch(old, tree, c.ignoreNull), h)
}

func write[T any](c *call, tree any, h hooks[T]) (*reply, error) {
	s := c.s
	if err := checkTags(tree); err != nil {
		return nil, err
	}
	next, err := fromTree[T](tree)
	if err != nil {
		return nil, err
	}
	e := s.find(c.id)
	if err := c.busy(e); err != nil && c.check == deployments.Perform {
		return nil, err
	}
	if err := c.precondition(e); err != nil {
		return nil, err
	}
	var old *T
	id, now := c.id, c.now
	if e != nil {
		old, id = e.body.(*T), e.id
	} else if err := c.needParent(); err != nil {
		return nil, err
	}
	stamp(next, id, c.rt.name)
	if err := c.needLocation(old, next); err != nil {
		return nil, err
	}
	if err := c.policy(next); err != nil {
		return nil, err
	}
	s.stampEtag(next, id.key())
	setField(next, "Properties.TimeCreated", &now)
	if old != nil {
		copyField(next, old, "Properties.TimeCreated")
	}
	if h.check != nil {
		if err := h.check(c, old, next); err != nil {
			return nil, err
		}
	}
	if c.check != deployments.Perform {
		return &reply{status: http.StatusNoContent}, nil
	}
	status, state := http.StatusOK, stateUpdating
	if e == nil {
		e = s.insert(id, c.rt, next, now)
		e.making = h.work != nil
		status, state = http.StatusCreated, stateCreating
	} else {
		e.body = next
	}
	if h.settled && old != nil {
		state = stateSucceeded
	}
	if h.accepted {
		status, state = http.StatusAccepted, stateUpdating
	}
	if h.work == nil {
		setState(next, stateSucceeded)
		return &reply{status: status, body: c.render(e)}, nil
	}
	w := h.work(c, e, old, next)
	done := w.done
	var op *operation
	w.done = func(failure *armError) {
		e.making = false
		if op.superseded {
			return
		}
		if failure != nil {
			setState(e.body, stateFailed)
		} else {
			setState(e.body, stateSucceeded)
		}
		if done != nil {
			done(failure)
		}
		if h.accepted {
			made, _ := toTree(c.render(e))
			op.output = func() any { return made }
		}
	}
	setState(next, state)
	op = c.begin(e, w)
	body := c.render(e)
	if h.accepted {
		body = c.firstDiskAnswer(e, tree)
	}
	return &reply{status: status, body: body, op: op}, nil
}

// remove is the common DELETE. work's done is called before the entry goes;
// after a failure it stays, with provisioningState Failed.
func (c *call) remove(check func(e *entry) error, begin func(e *entry) work) (*reply, error) {
	e := c.s.find(c.id)
	if e == nil {
		return &reply{status: http.StatusNoContent}, nil
	}
	if err := c.busy(e); err != nil {
		return nil, err
	}
	if err := c.precondition(e); err != nil {
		return nil, err
	}
	if check != nil {
		if err := check(e); err != nil {
			return nil, err
		}
	}
	w := begin(e)
	done := w.done
	w.done = func(failure *armError) {
		if done != nil {
			done(failure)
		}
		if failure != nil {
			setState(e.body, stateFailed)
			return
		}
		c.s.delete(e)
	}
	setState(e.body, stateDeleting)
	op := c.begin(e, w)
	return &reply{status: http.StatusAccepted, op: op}, nil
}

// needParent refuses a resource whose group or parent does not exist.
func (c *call) needParent() error {
	if len(c.id.names) > 1 && c.s.find(c.id.parent()) == nil {
		return parentNotFound(c.id)
	}
	return nil
}

// needLocation checks the location of a tracked resource: there, known, and
// never changed.
func (c *call) needLocation(old, next any) error {
	if !hasField(next, "Location") {
		return nil
	}
	where := getField(next, "Location")
	if where == "" {
		return badRequest("LocationRequired", "The location property is required for this definition.")
	}
	l, ok := c.s.location(where)
	if !ok {
		return badRequest("LocationNotAvailableForResourceType",
			"The provided location '%s' is not available for resource type '%s'. List of available regions for the resource type is '%s'.",
			where, c.rt.name, strings.Join(c.s.locationNames(), ","))
	}
	if !reflect.ValueOf(old).IsNil() {
		if was := getField(old, "Location"); normLocation(was) != normLocation(where) {
			return refuse(http.StatusConflict, "InvalidResourceLocation",
				"The resource '%s' already exists in location '%s' in resource group '%s'. A resource with the same name cannot be created in location '%s'. Please select a new resource name.",
				c.id.name(), was, c.id.group, where)
		}
	}
	setField(next, "Location", l.Name)
	return nil
}

func (s *Server) locationNames() []string {
	var out []string
	for _, l := range s.Locations {
		out = append(out, l.Name)
	}
	return out
}

// precondition checks If-Match and If-None-Match against the entry, which is nil
// where there is none yet.
func (c *call) precondition(e *entry) error {
	etag := ""
	if e != nil {
		etag = getField(e.body, "Etag")
	}
	if m := c.r.Header.Get("If-Match"); m != "" && (e == nil || m != "*" && m != etag) {
		return refuse(http.StatusPreconditionFailed, "PreconditionFailed", "Etag provided in if-match header %s does not match etag %s of resource.", m, etag)
	}
	if m := c.r.Header.Get("If-None-Match"); m != "" && e != nil && (m == "*" || m == etag) {
		return refuse(http.StatusPreconditionFailed, "PreconditionFailed", "The condition of the request's If-None-Match header does not hold for '%s'.", c.id.String())
	}
	return nil
}

// stampEtag gives a changed model its next ETag, if its type has them: a number in quotes,
// one more with each change (recordings of the Azure CLI, "4" and so on).
func (s *Server) stampEtag(model any, key string) {
	if !hasField(model, "Etag") {
		return
	}
	n := 0
	if e := s.entries[key]; e != nil {
		n, _ = strconv.Atoi(strings.Trim(getField(e.body, "Etag"), `"`))
	}
	setField(model, "Etag", strconv.Quote(strconv.Itoa(n+1)))
}
