package azsim

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"
)

// showLoadBalancer adds what is computed: ids, states and ETags of the children, what refers
// to them, and the inbound NAT rules that pools make for instances.
func showLoadBalancer(s *Server, e *entry, out object) {
	p := out["properties"].(object)
	rules, _ := p["inboundNatRules"].([]any)
	p["inboundNatRules"] = append(rules, s.instanceRules(e)...)
	places := map[string]string{}
	for _, c := range interfaceConfigs(e) {
		if a := c.address(); a.IsValid() {
			places[c.name] = a.Addr().String()
		}
	}
	for _, l := range balancerLists {
		for _, child := range l.members(out) {
			id := e.id.child(l.name, text(child, "name"))
			cp := child["properties"].(object)
			stampChild(child, id, out)
			for _, user := range l.users {
				var ids []string
				for _, other := range balancerListOf(user).members(out) {
					if names(other["properties"], id.key()) {
						ids = append(ids, e.id.child(user, text(other, "name")).String())
					}
				}
				if len(ids) > 0 {
					cp[user] = idList(ids)
				}
			}
			if a := places[text(child, "name")]; a != "" && l.name == "frontendIPConfigurations" {
				cp["privateIPAddress"] = a
			}
			backends := s.backends(id.key())
			switch {
			case len(backends) == 0:
			case l.name == "backendAddressPools":
				cp["backendIPConfigurations"] = idList(backends)
			case l.name == "inboundNatRules":
				cp["backendIPConfiguration"] = object{"id": backends[0]}
			}
			list, _ := cp["loadBalancerBackendAddresses"].([]any)
			for _, v := range list {
				s.showBackendAddress(id, v, out)
			}
		}
	}
	if strings.EqualFold(text(out, "sku", "name"), "Basic") {
		delete(p, "outboundRules")
	}
}

// stampChild gives a child what it has of its load balancer.
func stampChild(child object, id resourceID, of object) {
	child["id"], child["type"], child["etag"] = id.String(), id.typeName(), of["etag"]
	if p, ok := child["properties"].(object); ok {
		p["provisioningState"] = stateOf(of)
	}
}

// showBackendAddress shows an address of a pool; that of a global load balancer's pool is
// that of a regional one's frontend.
func (s *Server) showBackendAddress(pool resourceID, v any, of object) {
	one, _ := v.(object)
	stampChild(one, pool.child("loadBalancerBackendAddresses", text(one, "name")), of)
	id, err := parseID(text(one, "properties", "loadBalancerFrontendIPConfiguration", "id"))
	if err != nil {
		return
	}
	public := s.findID(text(s.balancerChild(id), "properties", "publicIPAddress", "id"))
	if public != nil {
		one["properties"].(object)["ipAddress"] = text(public.body, "properties", "ipAddress")
	}
}

// backends are the ids of the IP configurations that name a child: of stored network
// interfaces, and of instances.
func (s *Server) backends(key string) []string {
	var out []string
	for _, user := range s.usersOf(&entry{key: key}) {
		if strings.Contains(user, "/networkInterfaces/") {
			out = append(out, user)
		}
	}
	for _, v := range s.balancedNICs() {
		x, _ := instanceOf(v.e)
		for _, c := range x.nics[v.n].configs {
			pools, rules := v.balancers(c.name)
			if slices.ContainsFunc(append(pools, rules...), func(id string) bool { return strings.EqualFold(id, key) }) {
				out = append(out, v.id()+"/ipConfigurations/"+c.name)
			}
		}
	}
	return out
}

// balancedNICs are those of all instances; a plain machine's are stored.
func (s *Server) balancedNICs() []shownNIC {
	var out []shownNIC
	for _, e := range s.order {
		if x, isInstance := e.extra.(*instance); isInstance && x.plain == nil {
			out = append(out, s.nicsOf(e)...)
		}
	}
	return out
}

// ipProfile is the IP configuration of the instance's model.
func (v shownNIC) ipProfile(config string) *armcompute.VirtualMachineScaleSetIPConfigurationProperties {
	x, _ := instanceOf(v.e)
	if x.profile == nil || x.profile.NetworkProfile == nil {
		return nil
	}
	for _, n := range x.profile.NetworkProfile.NetworkInterfaceConfigurations {
		if n.Properties == nil || val(n.Name) != x.nics[v.n].name {
			continue
		}
		for _, ip := range n.Properties.IPConfigurations {
			if val(ip.Name) == config {
				return ip.Properties
			}
		}
	}
	return nil
}

// balancers are the ids of the backend pools and inbound NAT rules of an IP configuration. A
// NAT pool makes the rule POOL.INSTANCE.
func (v shownNIC) balancers(config string) (pools, rules []string) {
	p := v.ipProfile(config)
	if p == nil {
		return nil, nil
	}
	for _, pool := range p.LoadBalancerBackendAddressPools {
		pools = append(pools, val(pool.ID))
	}
	for _, pool := range p.LoadBalancerInboundNatPools {
		id, err := parseID(val(pool.ID))
		if err == nil && len(id.names) > 1 {
			rules = append(rules, id.parent().child("inboundNatRules", id.name()+"."+v.e.id.name()).String())
		}
	}
	return pools, rules
}

// instanceRules are the inbound NAT rules that the pools of a load balancer make: one for each
// instance, at the pool's first port and the instance's number (as recorded). An instance
// whose number is too high has the lowest port that is left.
func (s *Server) instanceRules(e *entry) []any {
	pools, taken := balancerListOf("inboundNatPools"), map[int64]bool{}
	if len(pools.members(e.body)) == 0 {
		return nil
	}
	var out []any
	for _, v := range s.balancedNICs() {
		x, _ := instanceOf(v.e)
		for _, c := range x.nics[v.n].configs {
			_, rules := v.balancers(c.name)
			for _, id := range rules {
				rule, err := parseID(id)
				if err != nil || !strings.EqualFold(rule.parent().String(), e.key) {
					continue
				}
				pool := named(pools.members(e.body), strings.TrimSuffix(rule.name(), "."+v.e.id.name()))
				if pool == nil {
					continue
				}
				low, high := number(pool, "properties", "frontendPortRangeStart"), number(pool, "properties", "frontendPortRangeEnd")
				n, _ := strconv.ParseInt(v.e.id.name(), 10, 64)
				port := low + n
				for port > high && taken[low] {
					low++
				}
				if port > high {
					port = low
				}
				taken[port] = true
				p := object{"frontendPort": json.Number(strconv.FormatInt(port, 10))}
				for k, member := range pool["properties"].(object) {
					if !strings.HasPrefix(k, "frontendPortRange") {
						p[k] = member
					}
				}
				out = append(out, object{"name": rule.name(), "properties": p})
			}
		}
	}
	return out
}

// forgetBalancerLinks takes the children that a load balancer no longer has out of the network
// interfaces that name them: they do not keep a load balancer from being changed or deleted.
func (s *Server) forgetBalancerLinks(e *entry) {
	for _, nic := range s.ofType(nicType, s.Subscription, "") {
		list, _ := at(nic.body, "properties", "ipConfigurations").([]any)
		for _, config := range list {
			p, _ := at(config, "properties").(object)
			for _, m := range []string{"loadBalancerBackendAddressPools", "loadBalancerInboundNatRules"} {
				ids, ok := p[m].([]any)
				if !ok {
					continue
				}
				ids = slices.DeleteFunc(ids, func(v any) bool {
					id, err := parseID(text(v, "id"))
					return err == nil && len(id.names) > 1 && id.parent().key() == e.key && s.balancerChild(id) == nil
				})
				if p[m] = ids; len(ids) == 0 {
					delete(p, m)
				}
			}
		}
	}
}

// balancerGone releases the addresses of a deleted load balancer.
func balancerGone(s *Server, e *entry) {
	interfaceGone(s, e)
	s.forgetBalancerLinks(e)
}
