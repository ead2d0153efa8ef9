package azsim

import (
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"github.com/ortet/ortet/azsim/deployments"
)

const (
	subnetType = "Microsoft.Network/virtualNetworks/subnets"
	nsgType    = "Microsoft.Network/networkSecurityGroups"
	publicType = "Microsoft.Network/publicIPAddresses"
)

func storedNetworkTypes() []*resourceType {
	v := networkVersions()
	inUse := func(code, format string) func(*Server, *entry) error {
		return func(s *Server, e *entry) error {
			if users := s.usersOf(e); len(users) > 0 {
				return badRequest(code, format, e.id.name(), strings.Join(users, ", "))
			}
			return nil
		}
	}
	nics := storedType(nicType, v, &storedRules{
		tracked: true, slow: true, derived: []string{"virtualMachine", "macAddress", "primary", "hostedWorkloads", "tapConfigurations"},
		defaults: interfaceDefaults, parts: []string{"ipConfigurations"},
		settled: func(s *Server, d *draft) bool { return d.e == nil || s.machineWith(d.e) == nil },
		check:   checkInterface, written: interfaceWritten, inUse: interfaceInUse, gone: interfaceGone, show: showInterface,
	})
	nics.list, nics.get = listNICs, getNIC
	networks := storedType("Microsoft.Network/virtualNetworks", v, &storedRules{
		tracked: true, slow: true, inline: "subnets", defaults: virtualNetworkDefaults, check: checkVirtualNetwork,
	})
	networks.views = map[string]handler{"checkipaddressavailability": checkAddressAvailability}
	return []*resourceType{
		networks,
		storedType(subnetType, v, &storedRules{
			slow: true, derived: []string{"ipConfigurations"}, defaults: subnetDefaults, parts: []string{"delegations"},
			check: checkSubnet, together: checkSubnets, written: subnetWritten, inUse: subnetInUse, show: showSubnet,
			gone: func(s *Server, e *entry) { delete(s.scaleSets.subnets, e.key) },
		}),
		storedType(nsgType, v, &storedRules{
			tracked: true, slow: true, inline: "securityRules", derived: []string{"subnets", "networkInterfaces", "defaultSecurityRules"},
			show:  showSecurityGroup,
			inUse: inUse("InUseNetworkSecurityGroupCannotBeDeleted", "Network security group %s cannot be deleted because it is in use by the following resources: (%s). In order to delete the Network security group, remove the association with the resource(s)."),
		}),
		storedType(nsgType+"/securityRules", v, &storedRules{
			slow: true, defaults: securityRuleDefaults, check: checkRule, together: checkPriorities,
		}),
		storedType(publicType, v, &storedRules{
			tracked: true, slow: true, derived: []string{"ipConfiguration", "natGateway"}, defaults: publicAddressDefaults,
			check: checkPublicAddress, show: showPublicAddress,
			inUse: inUse("PublicIPAddressCannotBeDeleted", "Public IP address %s can not be deleted since it is still allocated to resource %s. In order to delete the public IP, disassociate/detach the Public IP address from the resource."),
		}),
		storedType("Microsoft.Network/natGateways", v, &storedRules{
			tracked: true, slow: true, derived: []string{"subnets"}, defaults: natGatewayDefaults, check: checkNATGateway,
			inUse: inUse("InUseNatGatewayCannotBeDeleted", "NAT gateway %s cannot be deleted because it is in use by the following resources: (%s)."),
			show: func(s *Server, e *entry, out object) {
				if list := idList(s.usersOf(e)); len(list) > 0 {
					out["properties"].(object)["subnets"] = list
				}
			},
		}),
		nics,
	}
}

func wrongPrefix(prefix string, d *draft) error {
	return badRequest("InvalidAddressPrefixFormat", "Address prefix %s of resource %s is not formatted correctly. "+
		"It should follow CIDR notation, for example 10.0.0.0/24.", prefix, d.id.String())
}

func checkVirtualNetwork(_ *call, d *draft) error {
	list := texts(d.next, "properties", "addressSpace", "addressPrefixes")
	for _, p := range list {
		if _, err := netip.ParsePrefix(p); err != nil {
			return wrongPrefix(p, d)
		}
	}
	if len(list) == 0 {
		return badRequest("InvalidRequestFormat", "Cannot parse the request: properties.addressSpace.addressPrefixes is missing.")
	}
	if e, given := d.properties()["encryption"].(object); given && (e["enabled"] == nil || e["enabled"] == true && e["enforcement"] == nil) {
		return badRequest("MustSpecifyBothEncryptionIntentAndEnforcementPolicy", "Cannot encrypt VirtualNetwork %s unless both encryption intent "+
			"(Enabled true or false) and enforcement policy (AllowUnencrypted or DropUnencrypted) are specified.", d.id.String())
	}
	return nil
}

// checkAddressAvailability answers whether an address of a virtual network is free, and
// where it is not, which ones are.
func checkAddressAvailability(c *call) (*reply, error) {
	network, err := c.need()
	if err != nil {
		return nil, err
	}
	wanted, err := netip.ParseAddr(c.query("ipAddress"))
	if err != nil {
		return nil, badRequest("InvalidIPAddress", "The IP address '%s' is no address.", c.query("ipAddress"))
	}
	for _, e := range c.s.children(network.id, "subnets") {
		n := c.s.subnetOf(e.id.String())
		if !n.prefix(false).Contains(wanted) {
			continue
		}
		host := hostOf(n.prefix(false), wanted)
		reserved := host < firstHost || host > n.last()
		if !reserved && !n.used[host] {
			return ok(object{"available": true, "isPlatformReserved": false}), nil
		}
		free := []any{}
		for h := firstHost; h <= n.last() && len(free) < 5; h++ {
			if !n.used[h] {
				free = append(free, n.address(h, false).String())
			}
		}
		return ok(object{"available": false, "availableIPAddresses": free, "isPlatformReserved": reserved}), nil
	}
	return nil, badRequest("PrivateIPAddressNotInAnySubnet",
		"Private static IP address %s does not belong to the range of any subnet in the virtual network %s.", wanted, network.id.String())
}

// subnetPrefix is the IPv4 range of a stored subnet.
func subnetPrefix(subnet object) (netip.Prefix, string) {
	list := append(texts(subnet, "properties", "addressPrefixes"), text(subnet, "properties", "addressPrefix"))
	for _, one := range list {
		if p, err := netip.ParsePrefix(one); err == nil && p.Addr().Is4() && p == p.Masked() && p.Bits() <= 29 {
			return p, one
		}
	}
	return netip.Prefix{}, strings.Join(list, ",")
}

func checkSubnet(c *call, d *draft) error {
	p, was := subnetPrefix(d.next)
	if _, err := netip.ParsePrefix(strings.Split(was, ",")[0]); err != nil {
		return wrongPrefix(was, d)
	}
	if !p.IsValid() {
		return badRequest("InvalidCIDRNotation", "The address prefix %s in resource %s has an invalid CIDR notation. Want the first address of an IPv4 range of /29 or larger.", was, d.id.String())
	}
	if d.e == nil {
		return nil
	}
	if before, _ := subnetPrefix(d.old); before != p && subnetInUse(c.s, d.e) != nil {
		return badRequest("InUsePrefixCannotBeDeleted", "IpPrefix %s on Subnet %s has active allocations and cannot be deleted.", before, d.id.name())
	}
	return nil
}

// subnetWritten forgets the range that a subnet had before.
func subnetWritten(s *Server, e *entry) {
	p, _ := subnetPrefix(e.body.(object))
	if n := s.scaleSets.subnets[e.key]; n != nil && n.stored != p {
		delete(s.scaleSets.subnets, e.key)
	}
}

func checkSubnets(parent object, children []*draft) error {
	var space []netip.Prefix
	for _, one := range texts(parent, "properties", "addressSpace", "addressPrefixes") {
		if p, err := netip.ParsePrefix(one); err == nil {
			space = append(space, p)
		}
	}
	for i, d := range children {
		p, _ := subnetPrefix(d.next)
		if !slices.ContainsFunc(space, func(s netip.Prefix) bool { return s.Bits() <= p.Bits() && s.Contains(p.Addr()) }) {
			return badRequest("NetcfgSubnetRangeOutsideVnet", "Subnet '%s' is not valid because its IP address range is outside the IP address range of virtual network '%s'.", d.id.name(), d.id.parent().name())
		}
		for _, other := range children[:i] {
			if q, _ := subnetPrefix(other.next); q.Overlaps(p) {
				return badRequest("NetcfgSubnetRangesOverlap", "Subnet '%s' is not valid because its IP address range overlaps with that of an existing subnet in virtual network '%s'.", d.id.name(), d.id.parent().name())
			}
		}
	}
	return nil
}

// subnetUsers lists the IP configurations in a subnet: of stored network interfaces
// and of instances.
func (s *Server) subnetUsers(e *entry) []string {
	out := s.usersOf(e)
	for _, one := range s.order {
		x, isInstance := one.extra.(*instance)
		if !isInstance || x.plain != nil {
			continue
		}
		for _, v := range s.nicsOf(one) {
			for _, config := range x.nics[v.n].configs {
				if strings.EqualFold(config.subnetID, e.key) {
					out = append(out, v.id()+"/ipConfigurations/"+config.name)
				}
			}
		}
	}
	return out
}

func subnetInUse(s *Server, e *entry) error {
	if users := s.subnetUsers(e); len(users) > 0 {
		return badRequest("InUseSubnetCannotBeDeleted", "Subnet %s is in use by %s and cannot be deleted. In order to delete the subnet, delete all the resources within the subnet. See aka.ms/deletesubnet.", e.id.name(), users[0])
	}
	return nil
}

// delegatedActions are what a service may do in a subnet that is delegated to it: of those
// that Azure's list of available delegations gives other actions than otherActions.
var delegatedActions = map[string][]any{
	"microsoft.sql/managedinstances": {
		subnetType + "/join/action", subnetType + "/prepareNetworkPolicies/action", subnetType + "/unprepareNetworkPolicies/action",
	},
	"microsoft.web/serverfarms": {subnetType + "/action"},
}

var otherActions = []any{subnetType + "/action"}

func showSubnet(s *Server, e *entry, out object) {
	delegations, _ := at(out, "properties", "delegations").([]any)
	for _, v := range delegations {
		p, isObject := at(v, "properties").(object)
		if !isObject {
			continue
		}
		if p["actions"] = otherActions; delegatedActions[strings.ToLower(text(p, "serviceName"))] != nil {
			p["actions"] = delegatedActions[strings.ToLower(text(p, "serviceName"))]
		}
		p["provisioningState"] = stateSucceeded
	}
	if list := idList(s.subnetUsers(e)); len(list) > 0 {
		out["properties"].(object)["ipConfigurations"] = list
	}
}

// showSecurityGroup adds the default rules, and what uses the group.
func showSecurityGroup(s *Server, e *entry, out object) {
	p := out["properties"].(object)
	rules := []any{}
	for _, r := range defaultSecurityRules {
		one := object{"name": r.name, "properties": object{
			"description": r.description, "access": r.access, "direction": r.direction, "priority": r.priority, "protocol": "*",
			"sourceAddressPrefix": r.source, "sourcePortRange": "*", "destinationAddressPrefix": r.destination, "destinationPortRange": "*",
		}}
		fillDefaults(one, securityRuleDefaults, "")
		rules = append(rules, one)
	}
	p["defaultSecurityRules"] = rules
	showPart(e, out, "defaultSecurityRules")
	for _, user := range s.usersOf(e) {
		member := "networkInterfaces"
		if strings.Contains(strings.ToLower(user), "/subnets/") {
			member = "subnets"
		}
		list, _ := p[member].([]any)
		p[member] = append(list, object{"id": user})
	}
}

func checkRule(_ *call, d *draft) error {
	p := d.properties()
	stringMembers(p, "destinationPortRange", "sourcePortRange")
	for _, m := range []string{"access", "direction", "protocol"} {
		if text(p, m) == "" {
			return badRequest("SecurityRuleParameterMissing", "Required security rule parameter is missing. Parameter: %s, rule: %s.", m, d.id.String())
		}
	}
	if n := number(p, "priority"); n < 100 || n > 4096 {
		return badRequest("SecurityRuleInvalidPriority", "Security rule has invalid Priority. Value provided: %d Allowed range 100-4096.", n)
	}
	return nil
}

func checkPriorities(_ object, children []*draft) error {
	for i, d := range children {
		for _, other := range children[:i] {
			a, b := d.properties(), other.properties()
			if number(a, "priority") == number(b, "priority") && strings.EqualFold(text(a, "direction"), text(b, "direction")) {
				return badRequest("SecurityRuleConflict", "Security rule %s conflicts with rule %s. Rules cannot have the same Priority and Direction.", d.id.name(), other.id.name())
			}
		}
	}
	return nil
}

var domainLabel = regexp.MustCompile(`^[a-z][a-z0-9-]{1,61}[a-z0-9]$`)

func checkPublicAddress(c *call, d *draft) error {
	p := d.properties()
	sku, _ := d.next["sku"].(object)
	if sku == nil {
		sku = object{"name": "Basic"}
		d.next["sku"] = sku
	}
	spellValues(sku)
	standard := !strings.EqualFold(text(sku, "name"), "Basic")
	// Azure counts addresses when one is made: a deployment with a Basic one passes
	// validation and fails (AZ-801 labs issue 75).
	if d.e == nil && !standard && !c.s.RetiredOffers && c.check == deployments.Perform {
		return badRequest("IPv4BasicSkuPublicIpCountLimitReached", "Cannot create more than 0 IPv4 Basic SKU public IP addresses for this subscription in this region.")
	}
	if text(p, "publicIPAllocationMethod") == "" {
		p["publicIPAllocationMethod"] = "Dynamic"
	}
	if standard && text(p, "publicIPAllocationMethod") != "Static" {
		return badRequest("StandardSkuPublicIPAddressesMustBeStatic", "Standard sku publicIp %s must have AllocationMethod set to Static.", d.id.String())
	}
	if text(p, "publicIPAddressVersion") == "" {
		p["publicIPAddressVersion"] = "IPv4"
	}
	if standard {
		fillMember(p, "ddosSettings.protectionMode", "VirtualNetworkInherited")
	}
	if d.e != nil {
		p["ipAddress"] = at(d.old, "properties", "ipAddress")
	} else {
		p["ipAddress"] = c.s.freePublicAddress()
	}
	if label := text(p, "dnsSettings", "domainNameLabel"); label != "" {
		if !domainLabel.MatchString(label) {
			return badRequest("InvalidDomainNameLabel", "The domain name label %s is invalid. It must conform to the following regular expression: ^[a-z][a-z0-9-]{1,61}[a-z0-9]$.", label)
		}
		fqdn := label + "." + text(d.next, "location") + ".cloudapp.azure.com"
		for _, e := range c.s.ofType(publicType, c.s.Subscription, "") {
			if e != d.e && strings.EqualFold(text(e.body, "properties", "dnsSettings", "fqdn"), fqdn) {
				return badRequest("DnsRecordInUse", "DNS record %s is already used by another public IP.", fqdn)
			}
		}
		p["dnsSettings"].(object)["fqdn"] = fqdn
	}
	return nil
}

// freePublicAddress is the lowest free one of the server's range.
func (s *Server) freePublicAddress() any {
	all := s.PublicAddresses
	if !all.IsValid() {
		all = netip.MustParsePrefix("20.50.0.0/16")
	}
	used := map[string]bool{}
	for _, e := range s.ofType(publicType, s.Subscription, "") {
		used[text(e.body, "properties", "ipAddress")] = true
	}
	for a := all.Masked().Addr().Next(); all.Contains(a.Next()); a = a.Next() {
		if !used[a.String()] {
			return a.String()
		}
	}
	return nil
}

// showPublicAddress hides a static address until its operation has ended, and a dynamic one
// as long as nothing has it.
func showPublicAddress(s *Server, e *entry, out object) {
	p := out["properties"].(object)
	used := false
	for _, user := range s.usersOf(e) {
		member := "natGateway"
		if strings.Contains(strings.ToLower(user), "ipconfigurations/") {
			member = "ipConfiguration"
		}
		p[member] = object{"id": user}
		id, _ := parseID(user)
		nic := s.find(id.parent())
		used = used || nic == nil || nic.rt == nil || nic.rt.name != nicType || s.machineWith(nic) != nil
	}
	if !used && text(p, "publicIPAllocationMethod") == "Dynamic" || e.making {
		delete(p, "ipAddress")
	}
}

// checkNATGateway wants Standard addresses, as Azure does.
func checkNATGateway(c *call, d *draft) error {
	if sku := text(d.next, "sku", "name"); sku == "" {
		d.next["sku"] = object{"name": "Standard"}
	}
	list, _ := d.properties()["publicIpAddresses"].([]any)
	for _, v := range list {
		if e := c.s.findID(text(v, "id")); e != nil && !strings.HasPrefix(text(e.body, "sku", "name"), "Standard") {
			return badRequest("NatGatewaySkuAndPublicIpSkuMismatch", "Nat Gateway %s and Public IP Address %s must have the same SKU.", d.id.String(), e.id.String())
		}
	}
	return nil
}
