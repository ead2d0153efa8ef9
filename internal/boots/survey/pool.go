package survey

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/boots/assess"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/workflow"
)

// Codes of what preflight calls the same.
const (
	PoolNotFound = "PoolNotFound"
	NodeNotFound = "NodeNotFound"
)

// A Finder finds scale sets by their ARM ids or names. Letter case does not count. Nodes and
// Places are required.
type Finder struct {
	Nodes  Nodes
	Places Places      // of one list of Nodes
	Boots  azure.Boots // nil: pools of which no machine is a Node are not found by name
	Groups []fleet.ResourceID
	Named  bool // the groups of Nodes are not searched
	// Machine reads the machine that a Node reports to be, and returns its scale set, as azure.PoolOfNode
	// does. nil: nothing is changed.
	Machine func(ctx context.Context, n fleet.Node) (fleet.ResourceID, error)
	// Note is told of a resource group that cannot be listed while a pool is found elsewhere.
	Note func(string)
}

// Places finds the scale sets of Nodes; azure.Places does.
type Places interface {
	Of(ctx context.Context, n fleet.Node) (fleet.Place, error)
}

// ToRead returns the scale set that an argument names, for what changes nothing.
func (f Finder) ToRead(ctx context.Context, arg string) (fleet.ResourceID, error) {
	return f.find(ctx, arg, false)
}

// ToChange is ToRead for what changes something: a name has to be that of a scale set of which a
// Node is a machine, as Azure shows it. What a Node reports of itself is not enough.
func (f Finder) ToChange(ctx context.Context, arg string) (fleet.ResourceID, error) {
	return f.find(ctx, arg, true)
}

func (f Finder) find(ctx context.Context, arg string, change bool) (fleet.ResourceID, error) {
	if strings.HasPrefix(arg, "/") {
		return fleet.ResourceID(strings.TrimRight(arg, "/")), nil
	}
	nodes, err := f.list(ctx)
	if err != nil {
		return "", err
	}
	return f.named(ctx, nodes, arg, change)
}

// NodeOrPool returns the Node or the scale set that an argument names, to change it. A Node goes
// before a scale set of the same name; what is neither is taken for a Node, which is not found.
func (f Finder) NodeOrPool(ctx context.Context, arg string) (node string, pool fleet.ResourceID, err error) {
	if strings.HasPrefix(arg, "/") {
		pool, err = f.ToChange(ctx, arg)
		return "", pool, err
	}
	nodes, err := f.list(ctx)
	switch {
	case fleet.Is(err, fleet.KindDenied): // then it can only be a node
		return arg, "", nil
	case err != nil:
		return "", "", err
	case slices.ContainsFunc(nodes, func(n fleet.Node) bool { return n.Name == arg }):
		return arg, "", nil
	}
	if pool, err = f.named(ctx, nodes, arg, true); IsPoolNotFound(err) {
		return arg, "", nil
	}
	return "", pool, err
}

// list reads as much of the Nodes as names their scale sets.
func (f Finder) list(ctx context.Context) (nodes []fleet.Node, err error) {
	for n, err := range f.Nodes.Nodes(ctx) {
		if err != nil {
			return nil, err
		}
		nodes = append(nodes, fleet.Node{Name: n.Name, ProviderID: n.ProviderID, SystemUUID: n.SystemUUID, Unmatched: n.Unmatched})
	}
	return nodes, nil
}

func (f Finder) named(ctx context.Context, nodes []fleet.Node, arg string, change bool) (fleet.ResourceID, error) {
	var found []fleet.ResourceID
	groups, names, claims := slices.Clone(f.Groups), map[string]bool{}, map[fleet.Key][]fleet.Node{}
	for _, n := range nodes {
		if id, ok := assess.InstanceOf(n.ProviderID); ok && !f.Named {
			groups = append(groups, id.Group())
		}
		place, err := f.Places.Of(ctx, n)
		if fleet.Is(err, fleet.KindInvalid, fleet.KindNotFound, fleet.KindDenied) {
			continue // a machine of its own, of another cloud, or one that is gone or may not be read
		}
		if err != nil {
			return "", err
		}
		names[place.Pool.Name()] = true
		if strings.EqualFold(place.Pool.Name(), arg) {
			found = append(found, place.Pool)
			claims[fleet.KeyOf(place.Pool)] = append(claims[fleet.KeyOf(place.Pool)], n)
		}
	}
	if found = distinct(found); f.Machine != nil && (change || len(found) > 1) {
		proven, err := f.proven(ctx, found, claims)
		if err != nil {
			return "", err
		}
		if change || len(proven) > 0 {
			found = proven
		}
	}
	if len(found) > 0 {
		return oneOf(arg, found)
	}
	maps.DeleteFunc(names, func(name string, _ bool) bool { return strings.EqualFold(name, arg) })
	found, unread := f.listed(ctx, groups, arg)
	for _, err := range unread {
		if f.Note != nil && len(found) > 0 {
			f.Note("scale sets of the name " + arg + " may be missing: " + err.Error())
		}
	}
	what := "the Nodes of this cluster are instances of " + strings.Join(slices.Sorted(maps.Keys(names)), ", ")
	wayOut := "give one of these, or an ARM id"
	if len(names) == 0 {
		what, wayOut = "no Node of this cluster is known to be an instance of a scale set", "give its ARM id (az vmss list)"
		if f.Named {
			what += " of the named resource groups"
		}
	}
	switch {
	case len(found) > 0 && change:
		return "", refuse("PoolWithoutNodes", "scale set "+arg, "no Node of this cluster is known to be an instance of "+joined(found)+", which may be another cluster's",
			"if it is this cluster's, give the ARM id instead of the name")
	case len(found) > 0:
		return oneOf(arg, found)
	case len(unread) > 0: // it may exist
		return "", fmt.Errorf("find scale set %s: %s, and Azure did not list all scale sets: %w", arg, what, errors.Join(unread...))
	}
	return "", refuse(PoolNotFound, "scale set "+arg, what, wayOut)
}

// maxProofs limits the machines of one scale set that are read.
const maxProofs = 20

// proven returns the scale sets of which a Node is a machine. claims are the Nodes that report to be.
func (f Finder) proven(ctx context.Context, pools []fleet.ResourceID, claims map[fleet.Key][]fleet.Node) (is []fleet.ResourceID, _ error) {
	for _, pool := range pools {
		nodes := claims[fleet.KeyOf(pool)]
		for _, n := range nodes[:min(len(nodes), maxProofs)] {
			of, err := f.Machine(ctx, n)
			if err == nil && of.Equal(pool) {
				is = append(is, pool)
				break
			}
			if err != nil && !fleet.Is(err, fleet.KindInvalid, fleet.KindNotFound, fleet.KindDenied) {
				return nil, err
			}
		}
	}
	return is, nil
}

// listed returns the scale sets of a name that Azure lists in the groups. One of Nodes may be deleted;
// one that is named has to exist.
func (f Finder) listed(ctx context.Context, groups []fleet.ResourceID, name string) (found []fleet.ResourceID, unread []error) {
	if f.Boots == nil {
		return nil, nil
	}
	for _, group := range distinct(groups) {
		pools, err := f.Boots.Pools(ctx, group)
		if err != nil && (!fleet.Is(err, fleet.KindNotFound) || slices.ContainsFunc(f.Groups, group.Equal)) {
			unread = append(unread, err)
		}
		for _, p := range pools {
			if strings.EqualFold(p.ID.Name(), name) {
				found = append(found, p.ID)
			}
		}
	}
	return found, unread
}

// oneOf returns the only scale set of that name.
func oneOf(arg string, found []fleet.ResourceID) (fleet.ResourceID, error) {
	if len(found) == 1 {
		return found[0], nil
	}
	return "", refuse("PoolAmbiguous", "scale set "+arg, fmt.Sprintf("%d have that name: %s", len(found), joined(found)), "give the ARM id of one")
}

func joined(ids []fleet.ResourceID) string {
	text := make([]string, len(ids))
	for i, id := range ids {
		text[i] = string(id)
	}
	return strings.Join(text, ", ")
}

// IsPoolNotFound reports whether err refuses a name that no scale set has.
func IsPoolNotFound(err error) bool {
	var refused *workflow.Refused
	return errors.As(err, &refused) && refused.Problems[0].Code == PoolNotFound
}

func refuse(code, on, what, wayOut string) error {
	return &workflow.Refused{Problems: []fleet.Problem{{Code: code, On: on, What: what, WayOut: wayOut}}}
}
