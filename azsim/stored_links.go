package azsim

import (
	"maps"
	"slices"
	"strings"
)

// linkedTypes are those that other stored types name by id.
var linkedTypes = []string{"Microsoft.Network/virtualNetworks/subnets", "Microsoft.Network/networkSecurityGroups", "Microsoft.Network/publicIPAddresses", "Microsoft.Network/natGateways", nicType,
	balancerType + "/backendAddressPools", balancerType + "/inboundNatRules", balancerType + "/inboundNatPools", balancerType + "/probes",
	balancerType + "/frontendIPConfigurations"}

// checkLinks refuses ids of resources that do not exist, or that the caller may not
// use.
func (c *call) checkLinks(id resourceID, properties object, inline string) error {
	var refused error
	for _, k := range sortedKeys(properties) {
		if k == inline && inline != "" {
			continue // each is checked as a resource of its own
		}
		walk(properties[k], func(key string, v any) {
			text, _ := v.(string)
			if key != "id" || refused != nil || strings.HasPrefix(strings.ToLower(text), id.key()+"/") {
				return
			}
			refused = c.checkLink(id, text)
		})
	}
	return refused
}

func (c *call) checkLink(id resourceID, text string) error {
	on, err := parseID(text)
	i := slices.IndexFunc(linkedTypes, func(t string) bool { return err == nil && strings.EqualFold(t, on.typeName()) })
	if i < 0 {
		return nil
	}
	if c.s.find(on) == nil && c.s.balancerChild(on) == nil {
		return missingReference(on.String(), id)
	}
	action := strings.Replace(linkedTypes[i], "frontendIPConfigurations", "frontendIPAddresses", 1) + "/join/action"
	return c.authorizeLinked(action, on)
}

func missingReference(on string, by resourceID) error {
	return badRequest("InvalidResourceReference",
		"Resource %s referenced by resource %s was not found. Please make sure that the referenced resource exists, and that both resources are in the same region.", on, by.String())
}

// usersOf lists the ids of stored resources whose properties name e, in the order of
// their creation. Of a network interface or a load balancer it is the IP configuration's
// id. The caller holds the lock.
func (s *Server) usersOf(e *entry) []string {
	var out []string
	for _, user := range s.order {
		tree, isStored := user.body.(object)
		if !isStored || user == e {
			continue
		}
		p, _ := tree["properties"].(object)
		rest := maps.Clone(p)
		for _, m := range []string{"ipConfigurations", "frontendIPConfigurations"} {
			configs, _ := p[m].([]any)
			for _, v := range configs {
				config, _ := v.(object)
				if names(config["properties"], e.key) {
					name, _ := config["name"].(string)
					out = append(out, user.id.child(m, name).String())
				}
			}
			delete(rest, m)
		}
		if names(rest, e.key) {
			out = append(out, user.id.String())
		}
	}
	return out
}
