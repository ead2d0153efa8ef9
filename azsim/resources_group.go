package azsim

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"
)

// A resource group is stored among the entries, with a group as its body.
type group struct {
	ID         string            `json:"id"`
	Name       string            `json:"name"`
	Type       string            `json:"type"`
	Location   string            `json:"location"`
	ManagedBy  string            `json:"managedBy,omitempty"`
	Tags       map[string]string `json:"tags,omitempty"`
	Properties struct {
		State string `json:"provisioningState"`
	} `json:"properties"`
}

func groupKey(id resourceID) string {
	return strings.ToLower("/subscriptions/" + id.subscription + "/resourceGroups/" + id.group)
}

// putGroup makes a resource group at the server's start.
func (s *Server) putGroup(name, location string, tags map[string]string) {
	id := resourceID{subscription: s.Subscription, group: name}
	g := &group{ID: id.String(), Name: name, Type: "Microsoft.Resources/resourceGroups", Location: location, Tags: tags}
	g.Properties.State = stateSucceeded
	s.insert(id, nil, g, s.born)
}

func (c *call) group() (*entry, *group, error) {
	e, g := load[group](c.s, groupKey(c.id))
	if e == nil {
		return nil, nil, groupNotFound(c.id.group)
	}
	return e, g, nil
}

func getGroup(c *call) (*reply, error) {
	e, g, err := c.group()
	if c.r.Method == http.MethodHead {
		return existence(e), nil
	}
	if err != nil {
		return nil, err
	}
	return ok(g), nil
}

// existence answers HEAD.
func existence(e *entry) *reply {
	if e == nil {
		return &reply{status: http.StatusNotFound}
	}
	return &reply{status: http.StatusNoContent}
}

func putGroup(c *call) (*reply, error) {
	in, err := decode[group](c)
	if err != nil {
		return nil, err
	}
	if len(c.id.group) > 90 || strings.HasSuffix(c.id.group, ".") {
		return nil, badRequest("InvalidResourceGroup", "The provided resource group name '%s' is invalid: it has at most 90 characters and does not end with a period.", c.id.group)
	}
	l, found := c.s.location(in.Location)
	if in.Location == "" {
		return nil, badRequest("LocationRequired", "The location property is required for this definition.")
	} else if !found {
		return nil, badRequest("LocationNotAvailableForResourceGroup", "The provided location '%s' is not available for resource group. List of available regions is '%s'.", in.Location, strings.Join(c.s.locationNames(), ","))
	}
	e, g, err := c.group()
	if err != nil {
		c.s.putGroup(c.id.group, l.Name, in.Tags)
		_, g, err = c.group()
		return &reply{status: http.StatusCreated, body: g}, err
	}
	if err := c.busy(e); err != nil {
		return nil, err
	}
	if g.Location != l.Name {
		return nil, refuse(http.StatusConflict, "InvalidResourceGroupLocation", "Invalid resource group location '%s'. The Resource group already exists in location '%s'.", l.Name, g.Location)
	}
	g.Tags = in.Tags
	return ok(g), nil
}

func patchGroup(c *call) (*reply, error) {
	_, g, err := c.group()
	if err != nil {
		return nil, err
	}
	tree, err := c.tree()
	if err != nil {
		return nil, err
	}
	old, err := toTree(g)
	if err != nil {
		return nil, err
	}
	next, err := fromTree[group](mergePatch(old, tree, c.ignoreNull))
	if err != nil {
		return nil, err
	}
	g.Tags = next.Tags
	return ok(g), nil
}

func deleteGroup(c *call) (*reply, error) {
	e, g, err := c.group()
	if err != nil {
		return nil, err
	}
	if e.underWay() && g.Properties.State == stateDeleting {
		return accepted(e.op), nil // as often as one asks
	}
	if err := c.busy(e); err != nil {
		return nil, err
	}
	g.Properties.State = stateDeleting
	var kept []*entry
	verify := func() *armError {
		if kept = c.s.attachedElsewhere(e); len(kept) > 0 {
			return deletionBlocked(c.id.group, kept)
		}
		return nil
	}
	op := c.begin(e, work{span: c.duration("group.delete"), run: c.s.removeComputers(e), verify: verify, done: func(failure *armError) {
		if failure == nil {
			c.s.delete(e)
			return
		}
		g.Properties.State = stateSucceeded
		for _, x := range slices.Clone(c.s.order) { // all others go
			if len(kept) > 0 && strings.HasPrefix(x.key, e.key+"/") && !slices.Contains(kept, x) && c.s.entries[x.key] == x {
				c.s.delete(x)
				if x.rt.drop != nil {
					x.rt.drop(c.s, x)
				}
			}
		}
	}})
	op.segment = groupResults
	return accepted(op), nil
}

// beingDeleted refuses to make or change what is in a group that is being deleted.
func (c *call) beingDeleted() error {
	e, g := load[group](c.s, groupKey(c.id))
	if c.r.Method != http.MethodPut && c.r.Method != http.MethodPatch || e == nil || c.isGroup() || g.Properties.State != stateDeleting {
		return nil
	}
	return refuse(http.StatusConflict, "ResourceGroupBeingDeleted",
		"The resource group '%s' is in deprovisioning state and cannot perform this operation.", g.Name)
}

// attachedElsewhere lists the disks of a group that machines of other groups hold. The
// caller holds the lock.
func (s *Server) attachedElsewhere(group *entry) []*entry {
	var out []*entry
	for _, e := range s.ofType("Microsoft.Compute/disks", group.id.subscription, group.id.group) {
		by := strings.ToLower(val(e.body.(*armcompute.Disk).ManagedBy))
		if by != "" && !strings.HasPrefix(by, group.key+"/") {
			out = append(out, e)
		}
	}
	return out
}

// deletionBlocked is the failure of a group's deletion: Azure reports what could not be
// deleted, and why (bicep-registry-modules pull request 1607).
func deletionBlocked(group string, kept []*entry) *armError {
	var names []string
	var details []*armError
	for _, e := range kept {
		names = append(names, e.id.short())
		details = append(details, diskAttached(e).withTarget(e.id.String()))
	}
	out := conflict("Deletion of resource group '%s' failed: '%s' could not be deleted.", group, strings.Join(names, ","))
	out.code, out.details = "ResourceGroupDeletionBlocked", details
	return out
}

// removeComputers is an operation's run that removes the computers of a group, which
// have to be gone before their disks go. The caller holds the lock.
func (s *Server) removeComputers(group *entry) func(context.Context) error {
	if s.Substrate == nil {
		return nil
	}
	var list []*entry
	for _, e := range s.order {
		if _, isInstance := e.extra.(*instance); isInstance && strings.HasPrefix(e.key, group.key+"/") {
			list = append(list, e)
		}
	}
	return func(ctx context.Context) error {
		return each(list, func(e *entry) error {
			x, _ := instanceOf(e)
			return s.onSubstrate(ctx, x, func(sub Substrate) error { return sub.Remove(ctx, e.id.key()) })
		})
	}
}

func listGroups(c *call) (*reply, error) {
	var items []any
	for _, e := range c.s.order {
		if g, isGroup := e.body.(*group); isGroup && tagFilter(c.query("$filter"), g.Tags) {
			items = append(items, g)
		}
	}
	return c.pageOf(items), nil
}

// listResources lists the tracked resources of the subscription or a group; the
// instances of Uniform scale sets are not among them.
func listResources(c *call) (*reply, error) {
	filter := c.query("$filter")
	group := cmp.Or(c.id.group, filterValue(filter, "resourceGroup")) // the Azure CLI filters by it
	items := []any{}
	for _, e := range c.s.order {
		if e.rt == nil || e.rt.name == instanceType || !hasField(e.body, "Location") || group != "" && !strings.EqualFold(group, e.id.group) {
			continue
		}
		if typ := filterValue(filter, "resourceType"); typ != "" && !strings.EqualFold(typ, e.rt.name) {
			continue
		}
		tags := tagsOf(e)
		if !tagFilter(filter, tags) {
			continue
		}
		item := map[string]any{
			"id": e.id.String(), "name": e.id.name(), "type": e.rt.name, "location": getField(e.body, "Location"),
			"createdTime": e.since.UTC().Format(time.RFC3339), "provisioningState": stateOf(e.body),
		}
		if len(tags) > 0 {
			item["tags"] = tags
		}
		shown, err := toTree(withoutProperties(c.render(e)))
		if err != nil {
			return nil, err
		}
		for _, k := range []string{"sku", "kind", "zones", "identity", "managedBy", "plan"} {
			if v := at(shown, k); v != nil {
				item[k] = v
			}
		}
		items = append(items, item)
	}
	return c.pageOf(items), nil
}
