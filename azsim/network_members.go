package azsim

import (
	"encoding/json"
	"slices"
	"strings"
)

// What resources of Microsoft.Network show beside what a client wrote, from recorded
// answers of Azure (test/recorded): defaults, ETags and GUIDs.

// A memberDefault is a member that Azure shows where the client gave none.
type memberDefault struct {
	// path leads to it. "list[]" goes on in each element, "object?" only where the client
	// gave the object; other objects are made.
	path  string
	value any
	since string // the first API version that shows it; "" is all
}

var noElements = []any{}

var interfaceDefaults = []memberDefault{
	{"kind", "Regular", "2021-02-01"},
	{"properties.allowPort25Out", true, "2021-02-01"},
	{"properties.dnsSettings.appliedDnsServers", noElements, ""},
	{"properties.dnsSettings.dnsServers", noElements, ""},
	{"properties.enableAcceleratedNetworking", false, ""},
	{"properties.enableIPForwarding", false, ""},
	{"properties.hostedWorkloads", noElements, "2018-10-01"},
	{"properties.ipConfigurations[].properties.privateIPAddressVersion", "IPv4", ""},
	{"properties.nicType", "Standard", "2020-08-01"},
	{"properties.tapConfigurations", noElements, "2018-10-01"},
	{"properties.vnetEncryptionSupported", false, "2021-02-01"},
}

var virtualNetworkDefaults = []memberDefault{
	{"properties.dhcpOptions?.dnsServers", noElements, ""},
	{"properties.enableDdosProtection", false, ""}, // az network vnet list -o table reads it
	{"properties.enableVmProtection", false, ""},
	{"properties.encryption?.enforcement", "AllowUnencrypted", ""},
	{"properties.virtualNetworkPeerings", noElements, ""},
}

// subnetDefaults differ by API version in one value. Which version a subnet was written in
// does not matter: one of 2015-06-15 shows Enabled in 2020-11-01 and Disabled in 2022-01-01.
var subnetDefaults = []memberDefault{
	{"properties.delegations", noElements, "2018-08-01"},
	{"properties.privateEndpointNetworkPolicies", "Disabled", "2022-01-01"},
	{"properties.privateEndpointNetworkPolicies", "Enabled", "2019-04-01"},
	{"properties.privateLinkServiceNetworkPolicies", "Enabled", "2019-04-01"},
}

var publicAddressDefaults = []memberDefault{
	{"properties.idleTimeoutInMinutes", 4, ""},
	{"properties.ipTags", noElements, "2017-11-01"},
	{"sku.tier", "Regional", "2020-07-01"},
}

var securityRuleDefaults = []memberDefault{
	{"properties.destinationAddressPrefixes", noElements, ""},
	{"properties.destinationPortRanges", noElements, ""},
	{"properties.sourceAddressPrefixes", noElements, ""},
	{"properties.sourcePortRanges", noElements, ""},
}

var natGatewayDefaults = []memberDefault{
	{"properties.idleTimeoutInMinutes", 4, ""},
	{"sku.tier", "Regional", ""},
}

// defaultSecurityRules are those that each security group has.
var defaultSecurityRules = []struct {
	name, description, source, destination, access, direction string
	priority                                                  int
}{
	{"AllowVnetInBound", "Allow inbound traffic from all VMs in VNET", "VirtualNetwork", "VirtualNetwork", "Allow", "Inbound", 65000},
	{"AllowAzureLoadBalancerInBound", "Allow inbound traffic from azure load balancer", "AzureLoadBalancer", "*", "Allow", "Inbound", 65001},
	{"DenyAllInBound", "Deny all inbound traffic", "*", "*", "Deny", "Inbound", 65500},
	{"AllowVnetOutBound", "Allow outbound traffic from all VMs to all VMs in VNET", "VirtualNetwork", "VirtualNetwork",
		"Allow", "Outbound", 65000},
	{"AllowInternetOutBound", "Allow outbound traffic from all VMs to Internet", "*", "Internet", "Allow", "Outbound", 65001},
	{"DenyAllOutBound", "Deny all outbound traffic", "*", "*", "Deny", "Outbound", 65500},
}

// fillDefaults adds the members that a tree does not have.
func fillDefaults(tree any, list []memberDefault, version string) {
	for _, d := range list {
		if version >= d.since {
			fillMember(tree, d.path, d.value)
		}
	}
}

// fillMember adds a member that a tree does not have. Of an object that it has, what it lacks.
func fillMember(tree any, path string, value any) {
	head, rest, more := strings.Cut(path, ".")
	parent, ok := tree.(object)
	if !ok {
		return
	}
	name, each := strings.CutSuffix(head, "[]")
	name, given := strings.CutSuffix(name, "?")
	switch {
	case !more && parent[name] == nil:
		parent[name] = value
	case !more:
		inner, _ := value.(object)
		for k, v := range inner {
			fillMember(parent[name], k, v)
		}
	case each:
		list, _ := parent[name].([]any)
		for _, e := range list {
			fillMember(e, rest, value)
		}
	case parent[name] != nil || !given:
		if parent[name] == nil {
			parent[name] = object{}
		}
		fillMember(parent[name], rest, value)
	}
}

// showPart gives the elements of a list in properties their ids, types, ETags and states.
func showPart(e *entry, out object, part string) {
	list, _ := at(out, "properties", part).([]any)
	for _, v := range list {
		one, isObject := v.(object)
		if !isObject {
			continue
		}
		one["id"], one["type"], one["etag"] = e.id.child(part, text(one, "name")).String(), e.rt.name+"/"+part, out["etag"]
		if _, isObject := one["properties"].(object); !isObject {
			one["properties"] = object{}
		}
		setState(one, stateOf(out))
	}
}

func (rt *resourceType) ofNetwork() bool { return strings.HasPrefix(rt.name, "Microsoft.Network/") }

// keepResourceGUID gives a draft the GUID that a resource keeps as long as it lives.
func (s *Server) keepResourceGUID(d *draft, rt *resourceType) {
	if !rt.ofNetwork() || !d.rules.tracked {
		return
	}
	d.properties()["resourceGuid"] = at(d.old, "properties", "resourceGuid")
	if d.e == nil {
		d.properties()["resourceGuid"] = s.newUUID("resourceGuid", d.id.key())
	}
}

// stampStored gives a changed resource of Microsoft.Network its next ETag, which a parent
// and its children have in common. The caller holds the lock.
func (s *Server) stampStored(e *entry) {
	if !e.rt.ofNetwork() {
		return
	}
	if parent := s.find(e.id.parent()); parent != nil && parent.rt != nil && parent.rt.stored != nil {
		e = parent
	}
	etag := `W/"` + s.newUUID("etag", e.key) + `"`
	family := []*entry{e}
	if inline := e.rt.stored.inline; inline != "" {
		family = append(family, s.children(e.id, inline)...)
	}
	for _, one := range family {
		one.body.(object)["etag"] = etag
	}
}

// getWithETag is the common GET with the ETag in the header, too.
func getWithETag(c *call) (*reply, error) {
	r, err := getStored(c)
	if err != nil {
		return nil, err
	}
	if etag := text(r.body, "etag"); etag != "" {
		r.header().Set("ETag", etag)
	}
	return r, nil
}

// comparable is what a resource of Microsoft.Network holds beside its tags, ETags and
// states; nil for other types. A write that does not change it is done at once: Azure
// answers Succeeded to it instead of Updating.
func (s *Server) comparable(e *entry, version string) []byte {
	if e == nil || !e.rt.ofNetwork() {
		return nil
	}
	tree, _ := s.showStored(e, version).(object)
	delete(tree, "tags")
	dropStates(tree)
	data, err := json.Marshal(tree)
	if err != nil { // it was decoded from JSON
		return nil
	}
	return data
}

// dropStates deletes ETags and states from a decoded JSON value.
func dropStates(v any) {
	switch v := v.(type) {
	case object:
		delete(v, "etag")
		delete(v, "provisioningState")
		for _, inner := range v {
			dropStates(inner)
		}
	case []any:
		for _, inner := range v {
			dropStates(inner)
		}
	}
}

// spelledMembers are members whose letter case templates disagree about, and which
// this package reads.
var spelledMembers = []string{
	"addressPrefix", "addressPrefixes", "addressSpace", "dnsSettings", "domainNameLabel", "id", "ipConfigurations", "natGateway",
	"networkSecurityGroup", "privateIPAddress", "privateIPAllocationMethod", "properties", "publicIPAddress", "publicIPAllocationMethod",
	"securityRules", "subnet", "subnets",
}

// balancerValues are enumerations that are taken in any letter case.
var balancerValues = map[string][]string{
	"protocol":                  {"Tcp", "Udp", "All", "Http", "Https"},
	"loadDistribution":          {"Default", "SourceIP", "SourceIPProtocol"},
	"privateIPAllocationMethod": {"Dynamic", "Static"},
	"name":                      {"Basic", "Standard", "Gateway"}, // of the sku
	"tier":                      {"Regional", "Global"},
}

// spellValues gives them the letter case of Azure.
func spellValues(p object) {
	for k, possible := range balancerValues {
		if i := indexFold(possible, text(p, k)); i >= 0 {
			p[k] = possible[i]
		}
	}
}

// spelledValues are the values of members that Azure shows in its own letter case.
var spelledValues = map[string][]string{
	"privateIPAddressVersion": {"IPv4", "IPv6"}, "publicIPAddressVersion": {"IPv4", "IPv6"},
	"privateIPAllocationMethod": {"Dynamic", "Static"}, "publicIPAllocationMethod": {"Dynamic", "Static"},
}

// objectMembers and listMembers are members of stored bodies that hold an object, and a list
// of objects, wherever they are.
var (
	objectMembers = []string{"addressSpace", "backendAddressPool", "dhcpOptions", "dnsSettings", "encryption", "frontendIPConfiguration",
		"identity", "natGateway", "networkAcls", "networkSecurityGroup", "probe", "properties", "publicIPAddress", "services", "sku", "subnet", "tags"}
	listMembers = []string{"backendAddressPools", "frontendIPConfigurations", "inboundNatPools", "inboundNatRules", "ipConfigurations", "ipRules",
		"loadBalancerBackendAddresses", "loadBalancerBackendAddressPools", "loadBalancerInboundNatRules", "loadBalancingRules", "outboundRules",
		"probes", "securityRules", "subnets", "virtualNetworkRules"}
)

// checkShape refuses what no client could read back: null in a list, and a member of another
// JSON type than Azure documents.
func checkShape(member string, v any) error {
	refused := badRequest("InvalidRequestFormat", "Cannot parse the request: the value of '%s' has the wrong type.", member)
	_, isObject := v.(object)
	list, isList := v.([]any)
	if v != nil && (indexFold(objectMembers, member) >= 0 && !isObject || indexFold(listMembers, member) >= 0 && !isList) {
		return refused
	}
	for _, inner := range list {
		if _, isObject := inner.(object); inner == nil || !isObject && indexFold(listMembers, member) >= 0 {
			return refused
		}
		if err := checkShape("", inner); err != nil {
			return err
		}
	}
	if strings.EqualFold(member, "tags") {
		return nil // their names are the client's
	}
	tree, _ := v.(object)
	for _, k := range sortedKeys(tree) {
		if err := checkShape(k, tree[k]); err != nil {
			return err
		}
	}
	return nil
}

// spelled gives members and values the letter case of Azure's documentation, without members
// that are null: a PUT of null is one without the member.
func spelled(v any) any {
	switch v := v.(type) {
	case object:
		out := make(object, len(v))
		for k, inner := range v {
			if inner == nil {
				continue
			}
			if strings.EqualFold(k, "tags") {
				out[k] = inner
				continue
			}
			if i := indexFold(spelledMembers, k); i >= 0 {
				k = spelledMembers[i]
			}
			out[k] = spelled(inner)
			if value, isText := inner.(string); isText {
				if i := indexFold(spelledValues[k], value); i >= 0 {
					out[k] = spelledValues[k][i]
				}
			}
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, inner := range v {
			out[i] = spelled(inner)
		}
		return out
	}
	return v
}

func indexFold(list []string, text string) int {
	return slices.IndexFunc(list, func(one string) bool { return strings.EqualFold(one, text) })
}
