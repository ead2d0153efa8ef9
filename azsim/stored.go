package azsim

import (
	"bytes"
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/ortet/ortet/azsim/deployments"
)

// Stored types are those whose models azsim keeps as decoded JSON: what a client
// wrote, with what Azure adds.

// An object is a decoded JSON object.
type object = map[string]any

// storedRules are what a stored type adds to the common PUT, PATCH and DELETE.
type storedRules struct {
	tracked bool // has a location
	slow    bool // a write and a deletion are operations
	// slowNew makes an operation of the first write alone: 202 with a Location and no
	// body, as storage accounts have it.
	slowNew bool
	// located gives the first answer the resource's id as its Location.
	located bool
	// inline names the member of properties in which children are written and shown.
	inline string
	// derived are members of properties that Azure computes and ignores in a body.
	derived  []string
	defaults []memberDefault // shown where the client gave none
	// parts are lists in properties whose elements have an id, a type, an ETag and a state.
	parts []string
	// check validates d.next and fills in; may be nil.
	check func(c *call, d *draft) error
	// together checks all children of one parent, once one of them changes.
	together func(parent object, children []*draft) error
	// settled says that a write has ended with its first answer, as one of Microsoft.Network
	// that changes nothing has; nil: it has not.
	settled func(s *Server, d *draft) bool
	// written is called under the lock after a write; may be nil.
	written func(s *Server, e *entry)
	// effect is what a write does on the Substrate, without the lock; may be nil.
	effect func(s *Server, e *entry) func(ctx context.Context) error
	// inUse refuses a deletion; may be nil.
	inUse func(s *Server, e *entry) error
	// leave is what a deletion does on the Substrate, without the lock; may be nil.
	leave func(s *Server, e *entry) func(ctx context.Context) error
	// gone is called under the lock once the entry is deleted; may be nil.
	gone func(s *Server, e *entry)
	// show adds computed members to a copy of the stored body; may be nil.
	show func(s *Server, e *entry, out object)
}

// A draft is one resource that is about to be written.
type draft struct {
	id        resourceID
	e         *entry // nil: a new one
	old, next object
	rules     *storedRules
	configs   []ipConfig // of a network interface
}

// properties returns the draft's properties, which are never nil.
func (d *draft) properties() object { return d.next["properties"].(object) }

// storedTypes lists all of them.
func storedTypes() []*resourceType {
	types := slices.Concat(storedNetworkTypes(), loadBalancerTypes(), storedStorageTypes())
	types = append(types, &resourceType{name: "Microsoft.Resources/tags", versions: tagsVersions(), get: getTags, put: writeTags, patch: writeTags, remove: writeTags})
	return append(types, identityResourceType(), autoscaleType(), availabilitySetType(), placementGroupResourceType(), sshKeyType(), standbyPoolResourceType(), encryptionSetResourceType())
}

// storedType makes the type of a name with its rules.
func storedType(name string, versions []string, r *storedRules) *resourceType {
	return &resourceType{
		name: name, versions: versions, global: r.tracked, stored: r,
		put: func(c *call) (*reply, error) {
			tree, err := c.tree()
			if err != nil {
				return nil, err
			}
			return c.writeStored(r, tree)
		},
		preflight: true,
		patch: func(c *call) (*reply, error) {
			tree, err := c.tree()
			if err != nil {
				return nil, err
			}
			e, err := c.need()
			if err != nil {
				return nil, err
			}
			merged, _ := mergePatch(e.body, tree, c.ignoreNull).(object)
			return c.writeStored(r, merged)
		},
		remove: func(c *call) (*reply, error) { return c.removeStored(r) },
		get:    getWithETag,
		render: func(c *call, e *entry) any { return c.s.showStored(e, c.version) },
		drop: func(s *Server, e *entry) {
			if r.gone != nil {
				r.gone(s, e)
			}
			if r.leave != nil {
				s.inBackground(r.leave(s, e))
			}
		},
	}
}

// inBackground does work on the Substrate that no operation waits for. The caller
// holds the lock.
func (s *Server) inBackground(do func(ctx context.Context) error) {
	if do == nil || s.ctx.Err() != nil {
		return
	}
	s.running.Add(1)
	go func() {
		defer s.running.Done()
		if err := do(s.ctx); err != nil {
			s.Log.Error("substrate", "error", err)
		}
	}()
}

// draftOf checks one body. The caller stores it with commit.
func (c *call) draftOf(rt *resourceType, id resourceID, tree object) (*draft, error) {
	r := rt.stored
	d := &draft{id: id, e: c.s.find(id), rules: r}
	if err := checkShape("", tree); err != nil {
		return nil, err
	}
	d.next, _ = spelled(tree).(object)
	for _, k := range []string{"id", "name", "type", "etag"} {
		delete(d.next, k)
	}
	if d.e != nil {
		d.id = d.e.id
		d.old, _ = d.e.body.(object)
	}
	if _, ok := d.next["properties"].(object); !ok {
		d.next["properties"] = object{}
	}
	p := d.properties()
	for _, k := range append(r.derived, "provisioningState", "resourceGuid") {
		delete(p, k)
	}
	if !r.tracked {
		delete(d.next, "location")
	} else {
		if d.next["location"] == nil {
			d.next["location"] = ""
		}
		if err := c.needLocation(d.old, d.next); err != nil {
			return nil, err
		}
	}
	if err := c.checkLinks(id, p, r.inline); err != nil {
		return nil, err
	}
	if r.check != nil {
		if err := r.check(c, d); err != nil {
			return nil, err
		}
	}
	d.next["id"], d.next["name"], d.next["type"] = d.id.String(), d.id.name(), rt.name
	c.s.keepResourceGUID(d, rt)
	return d, nil
}

// commit stores a draft.
func (c *call) commit(d *draft, rt *resourceType, state string) *entry {
	if d.e == nil {
		d.e = c.s.insert(d.id, rt, d.next, c.now)
	} else {
		d.e.body = d.next
	}
	if d.configs != nil {
		swapHosts(interfaceConfigs(d.e), d.configs)
		d.e.extra = &interfaceState{d.configs}
	}
	setState(d.next, state)
	if d.rules.written != nil {
		d.rules.written(c.s, d.e)
	}
	return d.e
}

func (c *call) writeStored(r *storedRules, tree object) (*reply, error) {
	s := c.s
	if err := checkTags(tree); err != nil {
		return nil, err
	}
	e := s.find(c.id)
	if err := c.busy(e); err != nil && c.check == deployments.Perform {
		return nil, err
	}
	if err := c.precondition(e); err != nil {
		return nil, err
	}
	if e == nil {
		if err := c.needParent(); err != nil {
			return nil, err
		}
	}
	d, err := c.draftOf(c.rt, c.id, tree)
	if err != nil {
		return nil, err
	}
	children, removed, err := c.inlineChildren(d)
	if err != nil {
		return nil, err
	}
	if err := c.checkSiblings(d); err != nil {
		return nil, err
	}
	if c.check != deployments.Perform {
		return &reply{status: http.StatusNoContent}, nil
	}
	status := http.StatusOK
	if e == nil {
		status = http.StatusCreated
	}
	if r.slowNew && e == nil {
		e = c.commit(d, c.rt, stateCreating)
		w := work{span: c.duration("stored.write"), done: func(failure *armError) {
			setState(e.body, stateSucceeded)
			if failure != nil {
				setState(e.body, stateFailed)
			}
		}}
		if r.effect != nil {
			w.run = r.effect(s, e)
		}
		op := c.begin(e, w)
		op.segment = asyncOperations
		return &reply{status: http.StatusAccepted, op: op}, nil
	}
	if !r.slow {
		e = c.commit(d, c.rt, stateSucceeded)
		body, err := toTree(s.showStored(e, c.version))
		if err != nil {
			return nil, err
		}
		out := &reply{status: status, body: body}
		if r.located && status == http.StatusCreated {
			out.header().Set("Location", text(body, "id"))
		}
		if r.effect == nil {
			return out, nil
		}
		do := r.effect(s, e)
		return &reply{later: func(ctx context.Context) (*reply, error) { return out, do(ctx) }}, nil
	}
	before, settled := s.comparable(e, c.version), r.settled != nil && r.settled(s, d)
	e = c.commit(d, c.rt, stateUpdating)
	e.making = status == http.StatusCreated
	if len(children) > 0 {
		order := map[string]int{}
		for i, child := range children {
			order[child.id.key()] = i
		}
		e.extra = order // clients compare what they wrote with what they read
	}
	for _, child := range children {
		c.commit(child, s.types[strings.ToLower(c.rt.name+"/"+r.inline)], stateSucceeded)
	}
	for _, child := range removed {
		s.discard(child)
	}
	do := s.republished
	if r.effect != nil {
		do = r.effect(s, e)
	}
	w, on := work{span: c.duration("stored.write"), run: do}, e
	if settled = settled || before != nil && bytes.Equal(before, s.comparable(e, c.version)); settled {
		setState(e.body, stateSucceeded)
		on, w.span = nil, 0
	}
	s.stampStored(e)
	w.done = func(failure *armError) {
		e.making = false
		switch {
		case failure != nil:
			setState(e.body, stateFailed)
		case !settled:
			setState(e.body, stateSucceeded)
			s.stampStored(e)
		}
	}
	op := c.begin(on, w)
	op.location = s.locationOf(e)
	return &reply{status: status, body: s.showStored(e, c.version), op: op}, nil
}

// inlineChildren checks the children that a body names, and finds those that it no
// longer names. A body without the member keeps all.
func (c *call) inlineChildren(d *draft) (children []*draft, removed []*entry, err error) {
	r := d.rules
	if r.inline == "" {
		return nil, nil, nil
	}
	list, given := d.properties()[r.inline].([]any)
	delete(d.properties(), r.inline)
	if !given {
		return nil, nil, nil
	}
	rt := c.s.types[strings.ToLower(c.rt.name+"/"+r.inline)]
	named := map[string]bool{}
	for _, v := range list {
		tree, _ := v.(object)
		name, _ := tree["name"].(string)
		if name == "" {
			return nil, nil, badRequest("InvalidRequestFormat", "Cannot parse the request: a member of '%s' has no name.", r.inline)
		}
		child, err := c.draftOf(rt, d.id.child(r.inline, name), tree)
		if err != nil {
			return nil, nil, err
		}
		named[strings.ToLower(name)] = true
		children = append(children, child)
	}
	for _, e := range c.s.children(d.id, r.inline) {
		if named[strings.ToLower(e.id.name())] {
			continue
		}
		if rt.stored.inUse != nil {
			if err := rt.stored.inUse(c.s, e); err != nil {
				return nil, nil, err
			}
		}
		removed = append(removed, e)
	}
	if rt.stored.together != nil {
		err = rt.stored.together(d.next, children)
	}
	return children, removed, err
}

// checkSiblings checks a child that is written on its own beside its siblings.
func (c *call) checkSiblings(d *draft) error {
	if d.rules.together == nil {
		return nil
	}
	parent := c.s.find(d.id.parent())
	all := []*draft{d}
	for _, e := range c.s.children(parent.id, d.id.types[len(d.id.types)-1]) {
		if e != d.e {
			all = append(all, &draft{id: e.id, e: e, next: e.body.(object)})
		}
	}
	return d.rules.together(parent.body.(object), all)
}

// discard forgets a stored resource and what lies below it. The caller holds the lock.
func (s *Server) discard(e *entry) {
	s.delete(e)
	if e.rt.stored.gone != nil {
		e.rt.stored.gone(s, e)
	}
}

func (c *call) removeStored(r *storedRules) (*reply, error) {
	check := func(e *entry) error {
		if r.inline != "" {
			below := c.s.types[strings.ToLower(c.rt.name+"/"+r.inline)].stored
			for _, child := range c.s.children(e.id, r.inline) {
				if below.inUse == nil {
					break
				}
				if err := below.inUse(c.s, child); err != nil {
					return err
				}
			}
		}
		if r.inUse != nil {
			return r.inUse(c.s, e)
		}
		return nil
	}
	if !r.slow {
		e := c.s.find(c.id)
		if e == nil {
			return &reply{status: http.StatusNoContent}, nil
		}
		if err := c.busy(e); err != nil {
			return nil, err
		}
		if err := check(e); err != nil {
			return nil, err
		}
		if r.leave != nil {
			c.s.inBackground(r.leave(c.s, e))
		}
		c.s.discard(e)
		return &reply{status: http.StatusOK}, nil
	}
	return c.remove(check, func(e *entry) work {
		w := work{span: c.duration("stored.delete"), done: func(failure *armError) {
			if failure == nil {
				c.s.discard(e)
				c.s.inBackground(c.s.republished)
			}
		}}
		if r.leave != nil {
			w.run = r.leave(c.s, e)
		}
		return w
	})
}

// showStored is a stored resource as clients of an API version may see it. The caller
// holds the lock.
func (s *Server) showStored(e *entry, version string) any {
	stored, _ := e.body.(object)
	copied, err := toTree(stored)
	if err != nil { // it was decoded from JSON
		return stored
	}
	out := copied.(object)
	r := e.rt.stored
	if r.inline != "" {
		list := []any{}
		children := s.children(e.id, r.inline)
		order, _ := e.extra.(map[string]int)
		place := func(e *entry) int {
			if i, ok := order[e.key]; ok {
				return i
			}
			return len(order)
		}
		slices.SortStableFunc(children, func(a, b *entry) int { return place(a) - place(b) })
		for _, child := range children {
			shown := s.showStored(child, version)
			if stateOf(e.body) == stateUpdating {
				setState(shown, stateUpdating)
			}
			list = append(list, shown)
		}
		out["properties"].(object)[r.inline] = list
	}
	fillDefaults(out, r.defaults, version)
	for _, part := range r.parts {
		showPart(e, out, part)
	}
	if r.show != nil {
		r.show(s, e, out)
	}
	return out
}
