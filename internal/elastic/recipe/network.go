package recipe

import (
	"fmt"
	"strconv"

	"github.com/ortet/ortet/internal/elastic"
)

const (
	groupType   = "Microsoft.Network/networkSecurityGroups"
	addressType = "Microsoft.Network/publicIPAddresses"
	gatewayType = "Microsoft.Network/natGateways"
	vnetType    = "Microsoft.Network/virtualNetworks"
	nicType     = "Microsoft.Network/networkInterfaces"
)

// Names in the compute group.
const (
	serversSubnet = "servers" // its security group, too
	agentsSubnet  = "agents"  // its security group, too
	gatewayName   = "nat"     // its public address, too
)

// Ports of a cluster: k3s's documentation, "Requirements, Networking"; Ortet's own.
const (
	apiPort       = "6443"
	admissionPort = "8443"
	callbackPort  = "340"
	kubeletPort   = "10250"
	vxlanPort     = "8472"
	registryPort  = "5000"
)

// network is everything of Microsoft.Network.
func (r *renderer) network() ([]any, error) {
	n := r.c.Spec.Network
	servers, err := r.serverRules()
	if err != nil {
		return nil, err
	}
	both := []string{n.Servers, n.Agents}
	ssh := strconv.Itoa(r.c.Spec.Access.SSHPort)
	agents := []any{
		rule("callback-from-servers", 200, "Tcp", []string{n.Servers}, callbackPort),
		rule("ssh-from-servers", 210, "Tcp", []string{n.Servers}, ssh), // through the server, for ortet cluster ssh
		rule("kubelet", 220, "Tcp", both, kubeletPort),
		rule("vxlan", 230, "Udp", both, vxlanPort),
		denyVNet(),
	}
	subnet := func(name, prefix string) object {
		return object{"name": name, "properties": object{
			"addressPrefix":         prefix,
			"defaultOutboundAccess": false,
			"networkSecurityGroup":  reference(idOf(groupType, name)),
			"natGateway":            reference(idOf(gatewayType, gatewayName)),
		}}
	}
	private, err := ServerAddress(r.c)
	if err != nil {
		return nil, err
	}
	label := expression(call("concat", quote(r.c.Metadata.Name+"-"), call("uniqueString", "resourceGroup().id")))
	return []any{
		r.tagged(resource(groupType, serversSubnet, networkAPI, object{"securityRules": servers})),
		r.tagged(resource(groupType, agentsSubnet, networkAPI, object{"securityRules": agents})),
		r.address(ServerName, label),
		r.address(gatewayName, ""),
		with(r.tagged(resource(gatewayType, gatewayName, networkAPI, object{
			"idleTimeoutInMinutes": 4, "publicIpAddresses": list(reference(idOf(addressType, gatewayName))),
		})), object{"sku": object{"name": "Standard"}, "dependsOn": list(expression(idOf(addressType, gatewayName)))}),
		with(r.tagged(resource(vnetType, VNetName, networkAPI, object{
			"addressSpace": object{"addressPrefixes": list(n.AddressSpace)},
			"subnets":      list(subnet(serversSubnet, n.Servers), subnet(agentsSubnet, n.Agents)),
		})), object{"dependsOn": list(
			expression(idOf(groupType, serversSubnet)), expression(idOf(groupType, agentsSubnet)), expression(idOf(gatewayType, gatewayName)))}),
		with(r.tagged(resource(nicType, ServerName, networkAPI, object{
			"ipConfigurations": list(object{"name": ServerName, "properties": object{
				"primary": true, "privateIPAllocationMethod": "Static", "privateIPAddress": private,
				"subnet":          reference(subnetID(serversSubnet)),
				"publicIPAddress": reference(idOf(addressType, ServerName)),
			}}),
		})), object{"dependsOn": list(expression(idOf(vnetType, VNetName)), expression(idOf(addressType, ServerName)))}),
	}, nil
}

func subnetID(name string) string {
	return idOf(vnetType+"/subnets", VNetName, name)
}

// address is a Standard public address, since Basic ones are retired. label is its DNS
// label, "" for none.
func (r *renderer) address(name, label string) object {
	properties := object{"publicIPAllocationMethod": "Static", "publicIPAddressVersion": "IPv4"}
	if label != "" {
		properties["dnsSettings"] = object{"domainNameLabel": label}
	}
	return with(r.tagged(resource(addressType, name, networkAPI, properties)), object{"sku": object{"name": "Standard"}})
}

// serverRules are what reaches the servers: the ports of access from its sources, and
// the cluster's own ports from its subnets.
func (r *renderer) serverRules() ([]any, error) {
	a, n := r.c.Spec.Access, r.c.Spec.Network
	var rules []any
	for i, open := range []struct {
		name    string
		sources []string
		ports   []string
	}{
		{"ssh", a.SSH, []string{strconv.Itoa(a.SSHPort)}},
		{"api", a.API, []string{apiPort}},
		{"ingress", a.Ingress, []string{"80", "443"}},
	} {
		v4, v6, err := elastic.Sources(open.sources, r.facts.OwnAddresses)
		if err != nil {
			return nil, fmt.Errorf("sources of access.%s: %w", open.name, err)
		}
		// A rule cannot mix IPv4 and IPv6 prefixes.
		if len(v4) > 0 {
			rules = append(rules, rule(open.name+"-ipv4", 100+10*i, "Tcp", v4, open.ports...))
		}
		if len(v6) > 0 {
			rules = append(rules, rule(open.name+"-ipv6", 101+10*i, "Tcp", v6, open.ports...))
		}
	}
	fromAgents := []string{apiPort, admissionPort}
	if r.c.Spec.Options.PrivateRegistry {
		fromAgents = append(fromAgents, registryPort)
	}
	both := []string{n.Servers, n.Agents}
	return append(rules,
		rule("cluster-from-agents", 200, "Tcp", []string{n.Agents}, fromAgents...),
		rule("kubelet", 220, "Tcp", both, kubeletPort),
		rule("vxlan", 230, "Udp", both, vxlanPort),
		denyVNet()), nil
}

// rule allows a protocol from sources to ports.
func rule(name string, priority int, protocol string, from []string, ports ...string) object {
	return object{"name": name, "properties": object{
		"priority": priority, "direction": "Inbound", "access": "Allow", "protocol": protocol,
		"sourceAddressPrefixes": list(from...), "sourcePortRange": "*",
		"destinationAddressPrefix": "*", "destinationPortRanges": list(ports...),
	}}
}

// denyVNet is before Azure's default rule AllowVnetInBound, by which everything within
// the virtual network would reach everything.
func denyVNet() object {
	return object{"name": "deny-virtual-network", "properties": object{
		"priority": 4000, "direction": "Inbound", "access": "Deny", "protocol": "*",
		"sourceAddressPrefix": "VirtualNetwork", "sourcePortRange": "*",
		"destinationAddressPrefix": "*", "destinationPortRange": "*",
	}}
}
