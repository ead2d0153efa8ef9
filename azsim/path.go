package azsim

import (
	"fmt"
	"net/url"
	"strings"
)

// A resourceID is a parsed ARM path. Its parts keep the letter case they came
// in; key compares without it, as ARM does.
//
//	/subscriptions/S/resourceGroups/G/providers/NS/t1/n1/t2/n2
//
// A path whose last type has no name (a collection, or an action) leaves the
// odd segment in tail.
type resourceID struct {
	subscription string
	group        string
	namespace    string
	types        []string
	names        []string
	tail         string
	scope        string // what an extension resource lies upon; "" for others
}

// pathError is what parsePath returns for a path that ARM does not know.
type pathError struct{ path, why string }

func (e pathError) Error() string { return fmt.Sprintf("path %q: %s", e.path, e.why) }

// parsePath parses an escaped URL path below the root.
func parsePath(escaped string) (resourceID, error) {
	var id resourceID
	bad := func(why string) (resourceID, error) { return resourceID{}, pathError{escaped, why} }
	trimmed := strings.Trim(escaped, "/")
	if trimmed == "" {
		return id, nil
	}
	var segs []string
	for _, raw := range strings.Split(trimmed, "/") {
		s, err := url.PathUnescape(raw)
		if err != nil {
			return bad("bad escape")
		}
		if s == "" && len(segs) > 1 && strings.EqualFold(segs[len(segs)-2], "providers") {
			continue // az resource show: providers/NS//TYPE/NAME
		}
		if s == "" {
			return bad("empty segment")
		}
		if strings.ContainsAny(s, "/\\") || s == "." || s == ".." {
			return bad("forbidden characters in segment")
		}
		segs = append(segs, s)
	}
	// The last "providers" in key position begins the type; what is before it
	// is the scope, and only an extension resource has one with a provider.
	last := -1
	for i, s := range segs {
		if strings.EqualFold(s, "providers") && i+1 < len(segs) && (i == 0 || strings.Contains(segs[i+1], ".")) {
			last = i
		}
	}
	head := segs
	if last >= 0 {
		head = segs[:last]
		id.namespace = segs[last+1]
		id.addTypes(segs[last+2:])
	}
	if len(head) > 0 && strings.EqualFold(head[0], "subscriptions") {
		if len(head) > 1 {
			id.subscription = head[1]
		} else {
			id.tail = head[0]
		}
		rest := head[min(2, len(head)):]
		if len(rest) > 0 && strings.EqualFold(rest[0], "resourceGroups") {
			if len(rest) > 1 {
				id.group = rest[1]
			} else {
				id.tail = rest[0]
			}
			rest = rest[min(2, len(rest)):]
		}
		switch {
		case len(rest) == 0:
		case last >= 0: // a provider's resource as the scope
			id.scope = "/" + strings.Join(head, "/")
		case len(rest) == 1 && id.tail == "":
			id.tail = rest[0]
		case id.group != "" && strings.EqualFold(rest[0], "deployments"):
			// The older form of deployments and their operations, without a provider.
			id.namespace = "Microsoft.Resources"
			id.addTypes(rest)
		default:
			// /subscriptions/S/operationresults/ID, /subscriptions/S/providers/NS
			id.types, id.names = append(id.types, rest[0]), append(id.names, rest[1:]...)
			if len(rest) != 2 {
				return bad("unknown form")
			}
		}
		return id, nil
	}
	if last == 0 {
		return id, nil
	}
	if last > 0 {
		return bad("a scope begins with /subscriptions")
	}
	if len(head) == 1 {
		id.tail = head[0]
		return id, nil
	}
	return bad("unknown form")
}

// addTypes adds pairs of type and name; what is left over is the tail.
func (id *resourceID) addTypes(segs []string) {
	for ; len(segs) >= 2; segs = segs[2:] {
		id.types, id.names = append(id.types, segs[0]), append(id.names, segs[1])
	}
	if len(segs) == 1 {
		id.tail = segs[0]
	}
}

func (id resourceID) hasGroup() bool { return id.group != "" }

// typeName is "Microsoft.Compute/galleries/images", without the tail.
func (id resourceID) typeName() string {
	return strings.Trim(id.namespace+"/"+strings.Join(id.types, "/"), "/")
}

// name is the last name in the path, "" without any.
func (id resourceID) name() string {
	if len(id.names) == 0 {
		return ""
	}
	return id.names[len(id.names)-1]
}

// root is the path of what the provider's part lies in: the scope, the
// resource group, or the subscription.
func (id resourceID) root() string {
	if id.scope != "" {
		return id.scope
	}
	s := ""
	if id.subscription != "" {
		s = "/subscriptions/" + id.subscription
	}
	if id.group != "" {
		s += "/resourceGroups/" + id.group
	}
	return s
}

// String is the resource's id, without the tail.
func (id resourceID) String() string {
	var b strings.Builder
	b.WriteString(id.root())
	if id.namespace != "" {
		b.WriteString("/providers/" + id.namespace)
	}
	for i, t := range id.types {
		b.WriteString("/" + t)
		if i < len(id.names) {
			b.WriteString("/" + id.names[i])
		}
	}
	return b.String()
}

// key is String in lower case: what resources are stored and compared by.
func (id resourceID) key() string { return strings.ToLower(id.String()) }

// short is "Microsoft.Compute/disks/d", as error messages name a resource.
func (id resourceID) short() string {
	s := id.namespace
	for i, t := range id.types {
		s += "/" + t
		if i < len(id.names) {
			s += "/" + id.names[i]
		}
	}
	return s
}

// parent is the resource one level up; only of use where len(names) > 1.
func (id resourceID) parent() resourceID {
	n := len(id.names) - 1
	if n < 0 {
		return id
	}
	id.types, id.names, id.tail = id.types[:n:n], id.names[:n:n], ""
	return id
}

// child is the resource of type typ named name under id.
func (id resourceID) child(typ, name string) resourceID {
	id.types = append(id.types[:len(id.types):len(id.types)], typ)
	id.names = append(id.names[:len(id.names):len(id.names)], name)
	id.tail = ""
	return id
}

// parseID parses a resource id found in a body. It names a resource, not a
// collection.
func parseID(s string) (resourceID, error) {
	if !strings.HasPrefix(s, "/") {
		return resourceID{}, pathError{s, "a resource id begins with '/'"}
	}
	id, err := parsePath(strings.ReplaceAll(s, "%", "%25"))
	if err != nil {
		return id, err
	}
	if id.tail != "" || id.subscription == "" || id.namespace == "" || len(id.names) == 0 {
		return id, pathError{s, "not the id of a resource"}
	}
	return id, nil
}
