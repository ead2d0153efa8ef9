package azsim

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
)

// sizeTypes are the lists that Microsoft.Compute gives of VM sizes, and of quotas and
// scale sets in a region.
func sizeTypes() []*resourceType {
	return append(append(publisherTypes(), publicGalleryTypes()...), []*resourceType{
		{name: "Microsoft.Compute/skus", global: true, versions: []string{"2017-03-30", "2017-09-01", "2019-04-01", "2021-07-01"}, list: listSKUs},
		{name: "Microsoft.Compute/locations/vmSizes", versions: scaleSetVersions(), list: listSizes},
		{name: "Microsoft.Compute/locations/usages", versions: scaleSetVersions(), list: listUsages},
		{name: "Microsoft.Compute/locations/virtualMachineScaleSets", versions: scaleSetVersions(), list: listScaleSetsIn},
	}...)
}

var skuFilter = regexp.MustCompile(`(?i)^\s*location\s+eq\s+'([^']*)'\s*$`)

// listSKUs lists the sizes of all regions, or of that of $filter.
func listSKUs(c *call) (*reply, error) {
	where := ""
	if f := c.query("$filter"); f != "" {
		m := skuFilter.FindStringSubmatch(f)
		if m == nil {
			return nil, badRequest("InvalidParameter", "The filter '%s' is not supported. Only location eq '…' is.", f)
		}
		where = m[1]
	}
	items := []any{}
	for _, l := range c.s.Locations {
		if where != "" && normLocation(where) != normLocation(l.Name) {
			continue
		}
		skus, err := c.s.skusOf(l)
		if err != nil {
			return nil, err
		}
		items = append(items, skus...)
	}
	return ok(map[string]any{"value": items}), nil
}

// skusOf encodes the sizes of a region, which never change, once. The caller
// holds the lock.
func (s *Server) skusOf(l Location) ([]any, error) {
	if known := s.skus[l.Name]; known != nil {
		return known, nil
	}
	var out []any
	for _, z := range vmSizes() {
		data, err := json.Marshal(z.sku(l.Name, l.Zones, s.checkRestricted(z, l.Name) != nil))
		if err != nil {
			return nil, err
		}
		out = append(out, json.RawMessage(data))
	}
	s.skus[l.Name] = out
	return out, nil
}

// checkRestricted refuses a size that the subscription may not use (Azure's page on
// "SkuNotAvailable").
func (s *Server) checkRestricted(z vmSize, location string) error {
	if !slices.ContainsFunc(s.RestrictedSizes, func(name string) bool { return strings.EqualFold(name, z.name) }) {
		return nil
	}
	return refuse(409, "SkuNotAvailable", "The VM size %s is not available in location '%s'.", z.name, normLocation(location))
}

func listSizes(c *call) (*reply, error) {
	if err := c.knownLocation(); err != nil {
		return nil, err
	}
	return sizeList(), nil
}

func sizeList() *reply {
	items := []any{}
	for _, z := range vmSizes() {
		items = append(items, z.entry())
	}
	return ok(map[string]any{"value": items})
}

func listScaleSetsIn(c *call) (*reply, error) {
	if err := c.knownLocation(); err != nil {
		return nil, err
	}
	var list []*entry
	for _, e := range c.s.ofType(setType, c.id.subscription, "") {
		if c.s.locationOf(e) == normLocation(c.id.name()) {
			list = append(list, e)
		}
	}
	return c.page(list), nil
}

// knownLocation refuses a region that does not exist.
func (c *call) knownLocation() error {
	if _, ok := c.s.location(c.id.name()); !ok {
		return badRequest("NoRegisteredProviderFound", "No registered resource provider found for location '%s' and API version '%s' for type '%s'. The supported locations are '%s'.",
			c.id.name(), c.version, strings.Join(append(c.id.types, c.id.tail), "/"), strings.Join(c.s.locationNames(), ", "))
	}
	return nil
}
