package azsim

import (
	"cmp"
	"net/http"
	"regexp"
	"strings"
)

// routeCore finds the handler of what Resource Manager answers itself: tenants,
// subscriptions, groups, providers and operations. It gives nil where the path
// is a provider's.
func (c *call) routeCore() (handler, string) {
	id := c.id
	tail := strings.ToLower(id.tail)
	method := c.r.Method
	get := method == http.MethodGet || method == http.MethodHead
	const res = "Microsoft.Resources/"
	switch {
	case id.namespace == "" && len(id.types) > 0:
		if get && strings.EqualFold(id.types[0], "operationresults") {
			return operationHandler(id.names[0]), ""
		}
	case id.namespace == "" && id.subscription == "":
		switch {
		case get && tail == "subscriptions":
			return listSubscriptions, ""
		case get && tail == "tenants":
			return listTenants, ""
		case get && tail == "providers":
			return listProviders, ""
		}
	case id.namespace == "" && id.group == "":
		switch {
		case get && tail == "":
			return getSubscription, res + "subscriptions/read"
		case get && tail == "locations":
			return listLocations, res + "subscriptions/locations/read"
		case get && tail == "resourcegroups":
			return listGroups, res + "subscriptions/resourceGroups/read"
		case get && tail == "resources":
			return listResources, res + "subscriptions/resources/read"
		case get && tail == "providers":
			return listProviders, res + "subscriptions/providers/read"
		}
	case id.namespace == "":
		const group = res + "subscriptions/resourceGroups/"
		switch {
		case get && tail == "resources":
			return listResources, res + "subscriptions/resourceGroups/resources/read"
		case tail != "":
		case get:
			return getGroup, group + "read"
		case method == http.MethodPut:
			return putGroup, group + "write"
		case method == http.MethodPatch:
			return patchGroup, group + "write"
		case method == http.MethodDelete:
			return deleteGroup, group + "delete"
		}
	case len(id.types) == 0:
		switch {
		case get && tail == "":
			return getProvider, res + "subscriptions/providers/read"
		case method == http.MethodPost && tail == "checknameavailability" && strings.EqualFold(id.namespace, "Microsoft.Storage"):
			return checkNameAvailability, "Microsoft.Storage/checknameavailability/read"
		case method == http.MethodPost && tail == "register", method == http.MethodPost && tail == "unregister":
			return registerProvider(tail == "register"), id.namespace + "/" + tail + "/action"
		}
	case len(id.types) == 2 && strings.EqualFold(id.types[0], "locations") && tail == "" && get:
		switch strings.ToLower(id.types[1]) {
		case "operations", "diskoperations", "capsoperations", asyncOperations:
			// Operations lie in the subscription, yet who may change one resource
			// group and nothing else can follow what it began there.
			return operationHandler(id.names[1]), ""
		}
	}
	return nil, ""
}

func (c *call) isGroup() bool {
	return c.id.group != "" && c.id.namespace == "" && len(c.id.types) == 0
}

func operationHandler(id string) handler {
	return func(c *call) (*reply, error) { return c.showOperation(id) }
}

func listSubscriptions(c *call) (*reply, error) {
	return c.pageOf([]any{c.s.subscriptionBody()}), nil
}

func getSubscription(c *call) (*reply, error) { return ok(c.s.subscriptionBody()), nil }

func (s *Server) subscriptionBody() any {
	return map[string]any{
		"id": "/subscriptions/" + s.Subscription, "subscriptionId": s.Subscription, "tenantId": s.Tenant,
		"displayName": "azsim", "state": "Enabled", "authorizationSource": "RoleBased", "managedByTenants": []any{},
		"subscriptionPolicies": map[string]any{"locationPlacementId": "Public_2014-09-01", "quotaId": "PayAsYouGo_2014-09-01", "spendingLimit": "Off"},
	}
}

func listTenants(c *call) (*reply, error) {
	return c.pageOf([]any{map[string]any{
		"id": "/tenants/" + c.s.Tenant, "tenantId": c.s.Tenant, "displayName": "azsim", "tenantCategory": "Home",
		"defaultDomain": "azsim.invalid", "domains": []string{"azsim.invalid"},
	}}), nil
}

func listLocations(c *call) (*reply, error) {
	var items []any
	for _, l := range c.s.Locations {
		display := cmp.Or(l.DisplayName, l.Name)
		var zones []any
		for _, z := range l.Zones {
			zones = append(zones, map[string]any{"logicalZone": z, "physicalZone": l.Name + "-az" + z})
		}
		id := func(name string) string { return "/subscriptions/" + c.s.Subscription + "/locations/" + name }
		metadata := map[string]any{"regionType": "Physical", "regionCategory": "Recommended", "pairedRegion": []any{}}
		if pair := pairedRegions()[l.Name]; pair != "" {
			metadata["pairedRegion"] = []any{map[string]any{"name": pair, "id": id(pair)}}
		}
		item := map[string]any{
			"id": id(l.Name), "name": l.Name, "displayName": display, "type": "Region", "regionalDisplayName": display, "metadata": metadata,
		}
		if zones != nil {
			item["availabilityZoneMappings"] = zones
		}
		items = append(items, item)
	}
	return c.pageOf(items), nil
}

var dateVersion = regexp.MustCompile(`^20\d\d-\d\d-\d\d(-[a-z]+)?$`)

// checkVersion refuses an API version that the type does not answer to.
func (c *call) checkVersion() error {
	if !dateVersion.MatchString(c.version) {
		return badRequest("InvalidApiVersionParameter", "The api-version '%s' is invalid. The supported versions are '%s'.", c.version, "2025-04-01,2024-11-01,2022-09-01,2021-04-01,2020-06-01,2019-11-01,2016-06-01")
	}
	if c.rt == nil || len(c.rt.versions) == 0 {
		return nil
	}
	for _, v := range c.rt.versions {
		if v == c.version {
			return nil
		}
	}
	_, typ, _ := strings.Cut(c.rt.name, "/")
	return badRequest("NoRegisteredProviderFound",
		"No registered resource provider found for location '%s' and API version '%s' for type '%s'. The supported api-versions are '%s'. The supported locations are '%s'.",
		c.s.Location, c.version, typ, strings.Join(c.rt.versions, ", "), strings.Join(c.s.locationNames(), ", "))
}
