package azsim

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"strings"
)

// interfaceState is what a stored network interface keeps beside its model: its IP
// configurations with their places in the subnets.
type interfaceState struct{ configs []ipConfig }

func interfaceConfigs(e *entry) []ipConfig {
	if x, ok := e.extra.(*interfaceState); ok {
		return x.configs
	}
	return nil
}

// hold marks a host as used or free.
func (c ipConfig) hold(on bool) {
	switch {
	case c.host == 0:
	case on:
		c.subnet.used[c.host] = true
	default:
		c.subnet.free(c.host)
	}
}

// checkInterface finds the addresses of an interface, which commit takes.
func checkInterface(c *call, d *draft) error {
	list, _ := d.properties()["ipConfigurations"].([]any)
	if len(list) == 0 {
		return badRequest("NetworkInterfaceMustHaveIpConfiguration", "Network interface %s must have at least one IP configuration.", d.id.String())
	}
	var before, got []ipConfig
	if d.e != nil {
		before = interfaceConfigs(d.e)
	}
	swapHosts(before, nil)
	for _, v := range list {
		one, err := c.placeConfig(d, v, before)
		if err != nil {
			swapHosts(got, before)
			return err
		}
		one.primary = one.primary || len(list) == 1
		got = append(got, one)
	}
	swapHosts(got, before)
	d.configs = got
	return nil
}

// swapHosts gives the hosts of some configurations back, and takes those of others.
func swapHosts(off, on []ipConfig) {
	for _, one := range off {
		one.hold(false)
	}
	for _, one := range on {
		one.hold(true)
	}
}

// placeConfig checks one IP configuration and takes its address.
func (c *call) placeConfig(d *draft, v any, before []ipConfig) (ipConfig, error) {
	none := ipConfig{}
	config, _ := v.(object)
	p, _ := config["properties"].(object)
	out := ipConfig{name: text(config, "name"), subnetID: text(p, "subnet", "id")}
	out.primary, _ = p["primary"].(bool)
	se := c.s.findID(out.subnetID)
	if out.name == "" || se == nil {
		return none, badRequest("InvalidRequestFormat", "Cannot parse the request: an IP configuration of %s has no name or no subnet.", d.id.String())
	}
	if public := text(p, "publicIPAddress", "id"); public != "" {
		pe := c.s.findID(public)
		for _, user := range c.s.usersOf(pe) {
			if !strings.HasPrefix(strings.ToLower(user), d.id.key()+"/") {
				return none, badRequest("PublicIPAddressInUse", "Resource %s is referencing public IP address %s that is already allocated to resource %s.", d.id.String(), pe.id.String(), user)
			}
		}
	}
	out.subnetID, out.subnet = se.id.String(), c.s.subnetOf(out.subnetID)
	if !strings.EqualFold(text(p, "privateIPAllocationMethod"), "Static") {
		p["privateIPAllocationMethod"] = "Dynamic"
		i := slices.IndexFunc(before, func(b ipConfig) bool {
			return b.subnet == out.subnet && strings.EqualFold(b.name, out.name) && !out.subnet.used[b.host]
		})
		if i >= 0 {
			out.host = before[i].host
			out.hold(true)
		} else if out.host = out.subnet.take(); out.host == 0 {
			return none, badRequest("SubnetIsFull", "Subnet %s with address prefix %s does not have enough capacity for 1 IP addresses.", se.id.name(), out.subnet.prefix(false))
		}
		return out, nil
	}
	wanted := text(p, "privateIPAddress")
	a, err := netip.ParseAddr(wanted)
	if err != nil {
		return none, badRequest("InvalidIPAddress", "The private IP address '%s' of %s is no address.", wanted, d.id.String())
	}
	if !out.subnet.prefix(false).Contains(a) {
		return none, badRequest("PrivateIPAddressNotInSubnet", "Private static IP address %s does not belong to the range of subnet prefix %s.", a, out.subnet.prefix(false))
	}
	out.host = hostOf(out.subnet.prefix(false), a)
	if out.host < firstHost || out.host > out.subnet.last() {
		return none, badRequest("PrivateIPAddressInReservedRange", "Private static IP address %s falls within reserved IP range of subnet prefix %s.", a, out.subnet.prefix(false))
	}
	if out.subnet.used[out.host] {
		return none, badRequest("PrivateIPAddressIsAllocated", "IP configuration %s is using the private IP address %s which is already allocated to another resource.", d.id.child("ipConfigurations", out.name).String(), a)
	}
	out.hold(true)
	return out, nil
}

func hostOf(p netip.Prefix, a netip.Addr) int {
	base, one := p.Masked().Addr().As4(), a.As4()
	return int(binary.BigEndian.Uint32(one[:]) - binary.BigEndian.Uint32(base[:]))
}

// interfaceWritten brings a new model to the machine that has the interface.
func interfaceWritten(s *Server, e *entry) {
	if vm := s.machineWith(e); vm != nil {
		x, _ := instanceOf(vm)
		s.plugIn(x)
	}
}

// machineWith finds the virtual machine that has a stored interface, nil for none.
func (s *Server) machineWith(e *entry) *entry {
	for _, vm := range s.order {
		x, isInstance := vm.extra.(*instance)
		if isInstance && x.plain != nil && slices.ContainsFunc(x.plain.interfaces(), func(id string) bool { return strings.EqualFold(id, e.key) }) {
			return vm
		}
	}
	return nil
}

func interfaceInUse(s *Server, e *entry) error {
	if vm := s.machineWith(e); vm != nil {
		return nicInUse(e, vm)
	}
	return nil
}

func nicInUse(e, vm *entry) error {
	return badRequest("NicInUse", "Network Interface %s is used by existing resource %s. In order to delete the network interface, it must be dissociated from the resource. To learn more, see aka.ms/deletenic.", e.id.String(), vm.id.String())
}

func interfaceGone(_ *Server, e *entry) {
	swapHosts(interfaceConfigs(e), nil)
	e.extra = nil
}

func showInterface(s *Server, e *entry, out object) {
	p := out["properties"].(object)
	list, _ := p["ipConfigurations"].([]any)
	for i, c := range interfaceConfigs(e) {
		cp := list[i].(object)["properties"].(object)
		cp["primary"] = c.primary
		if a := c.address(); a.IsValid() {
			cp["privateIPAddress"] = a.Addr().String()
		}
	}
	if dns, isObject := p["dnsSettings"].(object); isObject {
		s.showNames(e, dns)
	}
	vm := s.machineWith(e)
	if vm == nil {
		return
	}
	p["virtualMachine"] = object{"id": vm.id.String()}
	x, _ := instanceOf(vm)
	for _, n := range x.nics {
		if n.name == e.id.name() {
			p["primary"], p["macAddress"] = n.primary, n.macText()
		}
	}
}

// showNames adds the names of an interface in Azure's own DNS, whose domain the interfaces
// of one virtual network have in common.
func (s *Server) showNames(e *entry, dns object) {
	configs := interfaceConfigs(e)
	if len(configs) == 0 {
		return
	}
	id, err := parseID(configs[0].subnetID)
	if err != nil {
		return
	}
	network := s.find(id.parent())
	if network == nil {
		return
	}
	domain := strings.ReplaceAll(text(network.body, "properties", "resourceGuid"), "-", "")[:26] + ".bx.internal.cloudapp.net"
	dns["internalDomainNameSuffix"] = domain
	if label := text(dns, "internalDnsNameLabel"); label != "" {
		dns["internalFqdn"] = label + "." + domain
	}
}
