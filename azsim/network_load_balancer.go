package azsim

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"regexp"
	"slices"
	"strings"
)

// A load balancer is one stored resource: its children (frontends, pools, rules, …) lie in
// its body, as in Azure, where they share its ETag and state. What refers to a child is
// never stored but computed when it is shown. It carries no traffic.

const balancerType = "Microsoft.Network/loadBalancers"

// A balancerList is one kind of child.
type balancerList struct {
	name     string // the member of properties, and the end of the type's name
	writable bool   // has a PUT and a DELETE of its own
	defaults object // of properties
	standard object // more of them, unless the load balancer is Basic
	derived  []string
	// users are the lists whose members refer to this one, as it shows.
	users []string
}

// ruleDefaults are those of what forwards a port. The last three are in every recorded
// answer; allowBackendPortConflict and enableDestinationServiceEndpoint are undocumented.
var ruleDefaults = object{"enableFloatingIP": false, "idleTimeoutInMinutes": json.Number("4"), "enableTcpReset": false,
	"allowBackendPortConflict": false, "enableDestinationServiceEndpoint": false}

// balancerLists are in the order in which Azure shows them. Defaults are from recorded answers.
var balancerLists = []*balancerList{
	{name: "frontendIPConfigurations", users: []string{"loadBalancingRules", "inboundNatRules", "inboundNatPools", "outboundRules"},
		defaults: object{"privateIPAllocationMethod": "Dynamic", "privateIPAddressVersion": "IPv4"}},
	{name: "backendAddressPools", writable: true, users: []string{"loadBalancingRules", "inboundNatRules", "outboundRules"},
		derived: []string{"backendIPConfigurations"}, standard: object{"loadBalancerBackendAddresses": []any{}}},
	{name: "loadBalancingRules", standard: object{"disableOutboundSnat": false}, defaults: with(ruleDefaults, "loadDistribution", "Default")},
	{name: "probes", users: []string{"loadBalancingRules"},
		defaults: object{"intervalInSeconds": json.Number("15"), "numberOfProbes": json.Number("2"), "probeThreshold": json.Number("1")}},
	{name: "inboundNatRules", writable: true, derived: []string{"backendIPConfiguration"},
		defaults: with(ruleDefaults, "frontendPort", json.Number("0"))},
	{name: "inboundNatPools", defaults: ruleDefaults},
	{name: "outboundRules", defaults: object{
		"allocatedOutboundPorts": json.Number("1024"), "enableTcpReset": false, "idleTimeoutInMinutes": json.Number("4"),
		"allocationPolicy": object{"onDemandAllocation": false, "portReuse": "FirstAvailable"}}},
}

func with(o object, k string, v any) object {
	o = maps.Clone(o)
	o[k] = v
	return o
}

func loadBalancerTypes() []*resourceType {
	v := networkVersions()
	rules := &storedRules{
		tracked: true, slow: true, check: checkLoadBalancer, settled: balancerSettled, written: (*Server).forgetBalancerLinks,
		inUse: balancerInUse, gone: balancerGone, show: showLoadBalancer,
	}
	out := []*resourceType{
		storedType(balancerType, v, rules),
		{name: balancerType + "/networkInterfaces", versions: v, list: listBalancerNICs, get: noResource},
	}
	for _, l := range balancerLists {
		rt := &resourceType{name: balancerType + "/" + l.name, versions: v, get: getBalancerChild, list: listBalancerChildren}
		if l.writable {
			rt.preflight, rt.put, rt.remove = true, l.put, l.remove
		}
		out = append(out, rt)
	}
	return out
}

// members are the objects of a list of children.
func (l *balancerList) members(body any) []object {
	list, _ := at(body, "properties", l.name).([]any)
	var out []object
	for _, v := range list {
		if o, ok := v.(object); ok {
			out = append(out, o)
		}
	}
	return out
}

func balancerListOf(name string) *balancerList {
	i := slices.IndexFunc(balancerLists, func(l *balancerList) bool { return strings.EqualFold(l.name, name) })
	if i < 0 {
		return nil
	}
	return balancerLists[i]
}

func named(list []object, name string) object {
	i := slices.IndexFunc(list, func(o object) bool { return strings.EqualFold(text(o, "name"), name) })
	if i < 0 {
		return nil
	}
	return list[i]
}

// balancerChild finds a child of a stored load balancer; nil if it is none.
func (s *Server) balancerChild(id resourceID) object {
	e := s.find(id.parent())
	if e == nil || e.rt == nil || e.rt.name != balancerType || len(id.types) != 2 {
		return nil
	}
	l := balancerListOf(id.types[1])
	if l == nil {
		return nil
	}
	return named(l.members(s.showStored(e, latestNetwork)), id.name())
}

func checkLoadBalancer(c *call, d *draft) error {
	sku, _ := d.next["sku"].(object)
	if sku == nil {
		sku = object{"name": "Basic"}
		d.next["sku"] = sku
	}
	if sku["tier"] == nil {
		sku["tier"] = "Regional"
	}
	spellValues(sku)
	standard := text(sku, "name") != "Basic"
	for _, l := range balancerLists {
		if err := l.check(d, standard); err != nil {
			return err
		}
	}
	if err := checkOwnLinks(d); err != nil {
		return err
	}
	if d.e != nil {
		if err := c.s.checkRemoved(d); err != nil {
			return err
		}
	}
	return checkFrontends(c, d)
}

// check fills in one list of children.
func (l *balancerList) check(d *draft, standard bool) error {
	next := []any{}
	for _, child := range l.members(d.next) {
		name := text(child, "name")
		if name == "" {
			return badRequest("InvalidRequestFormat", "Cannot parse the request: a member of '%s' has no name.", l.name)
		}
		if l.name == "inboundNatRules" && madeByPool(d.next, name) {
			continue
		}
		p, _ := child["properties"].(object)
		if p = maps.Clone(p); p == nil {
			p = object{}
		}
		for _, k := range slices.Concat(l.derived, l.users, []string{"provisioningState"}) {
			delete(p, k)
		}
		if l.name == "loadBalancingRules" {
			fillPools(p)
		}
		all := object{}
		maps.Copy(all, l.defaults)
		if standard {
			maps.Copy(all, l.standard)
		}
		for k, v := range all {
			if p[k] == nil {
				p[k] = v
			}
		}
		spellValues(p)
		tunnels, _ := p["tunnelInterfaces"].([]any)
		for _, v := range tunnels {
			fillTunnel(v)
		}
		one := object{"name": name, "properties": p}
		if child["zones"] != nil {
			one["zones"] = child["zones"]
		}
		next = append(next, one)
	}
	d.properties()[l.name] = next
	return nil
}

// fillTunnel gives a gateway's tunnel its port (documentation of gateway load balancers; that
// of internal ones is recorded).
func fillTunnel(v any) {
	port := json.Number("10800")
	if strings.EqualFold(text(v, "type"), "External") {
		port = "10801"
	}
	if t, ok := v.(object); ok && t["port"] == nil {
		t["port"] = port
	}
}

// fillPools names the pool of a rule both ways: backendAddressPools is the newer one.
func fillPools(p object) {
	if list, _ := p["backendAddressPools"].([]any); len(list) > 0 {
		p["backendAddressPool"] = list[0]
	} else if p["backendAddressPool"] != nil {
		p["backendAddressPools"] = []any{p["backendAddressPool"]}
	}
}

var instanceRule = regexp.MustCompile(`^(.+)\.\d+$`)

// madeByPool says whether a pool made an inbound NAT rule for an instance:
// clients write back what they have read.
func madeByPool(body any, rule string) bool {
	m := instanceRule.FindStringSubmatch(rule)
	return m != nil && named(balancerListOf("inboundNatPools").members(body), m[1]) != nil
}

// checkOwnLinks refuses references to children that the load balancer does not have.
func checkOwnLinks(d *draft) error {
	var refused error
	prefix := d.id.key() + "/"
	walk(d.properties(), func(key string, v any) {
		id, _ := v.(string)
		if key != "id" || refused != nil || !strings.HasPrefix(strings.ToLower(id), prefix) {
			return
		}
		typ, name, _ := strings.Cut(id[len(prefix):], "/")
		name, _, _ = strings.Cut(name, "/")
		if l := balancerListOf(typ); l != nil && named(l.members(d.next), name) == nil {
			refused = missingReference(id, d.id)
		}
	})
	return refused
}

// checkFrontends checks the addresses of the frontends, and takes private ones.
func checkFrontends(c *call, d *draft) error {
	var before, got []ipConfig
	if d.e != nil {
		before = interfaceConfigs(d.e)
	}
	swapHosts(before, nil)
	undo := func(err error) error {
		swapHosts(got, before)
		return err
	}
	for _, f := range balancerListOf("frontendIPConfigurations").members(d.next) {
		p := f["properties"].(object)
		public := c.s.findID(text(p, "publicIPAddress", "id"))
		if public != nil {
			if err := c.checkFrontendAddress(d, public); err != nil {
				return undo(err)
			}
		}
		if text(p, "subnet", "id") == "" {
			if public == nil && text(p, "publicIPPrefix", "id") == "" {
				return undo(badRequest("InvalidRequestFormat", "Cannot parse the request: frontend IP configuration %s of %s has no address.",
					text(f, "name"), d.id.String()))
			}
			delete(p, "privateIPAddress")
			continue
		}
		one, err := c.placeConfig(d, f, before)
		if err != nil {
			return undo(err)
		}
		got = append(got, one)
	}
	swapHosts(got, before)
	d.configs = append([]ipConfig{}, got...)
	return nil
}

// checkFrontendAddress refuses a public address that another resource has, or of another
// sku (azure-docs and terraform-azurerm-loadbalancer issue 32 have code and text).
func (c *call) checkFrontendAddress(d *draft, public *entry) error {
	for _, user := range c.s.usersOf(public) {
		if !strings.HasPrefix(strings.ToLower(user), d.id.key()+"/") {
			return badRequest("PublicIPAddressInUse", "Resource %s is referencing public IP address %s that is already allocated to resource %s.",
				d.id.String(), public.id.String(), user)
		}
	}
	mine, its := text(d.next, "sku", "name"), text(public.body, "sku", "name")
	if strings.EqualFold(mine, "Basic") != strings.EqualFold(its, "Basic") {
		return badRequest("PublicIPAndLBSkuDoNotMatch", "%s sku load balancer %s cannot reference %s sku publicIP %s.", mine, d.id.String(),
			its, public.id.String())
	}
	return nil
}

// inUseBySets are the codes of children that a scale set's model names: of terraform-provider-azurerm
// issue 4769 and vm-scale-sets issue 53; the pool's code is inferred from the NAT pool's.
var inUseBySets = map[string][2]string{
	"backendAddressPools": {"LoadBalancerBackendAddressPoolInUseByVirtualMachineScaleSet", "backend address pool"},
	"inboundNatPools":     {"LoadBalancerInboundNatPoolInUseByVirtualMachineScaleSet", "inbound nat pool"},
	"probes":              {"LoadBalancerProbeInUseByVirtualMachineScaleSet", "probe"},
}

// checkRemoved refuses to drop children that scale sets need.
func (s *Server) checkRemoved(d *draft) error {
	for _, l := range balancerLists {
		for _, child := range l.members(d.old) {
			name := text(child, "name")
			if named(l.members(d.next), name) != nil {
				continue
			}
			if why, ok := inUseBySets[l.name]; ok {
				if set := s.setWith(d.id.child(l.name, name).key()); set != nil {
					return badRequest(why[0], "Cannot remove %s %s from load balancer since it is in use by virtual machine scale set %s.",
						why[1], name, set.id.String())
				}
			}
			if probe := text(child, "properties", "probe", "id"); l.name == "loadBalancingRules" && probe != "" {
				if set := s.setWith(strings.ToLower(probe)); set != nil {
					return badRequest("CannotRemoveRuleUsedByProbeUsedByVMSS",
						"Load balancer rule %s cannot be removed because the rule references the load balancer probe %s that is used as health "+
							"probe by VM scale set %s. To remove this rule, please update VM scale set to remove the reference to the probe.",
						d.id.child(l.name, name).String(), probe, set.id.String())
				}
			}
		}
	}
	return nil
}

// setWith finds a scale set whose model names an id.
func (s *Server) setWith(key string) *entry {
	for _, e := range s.order {
		if e.rt == nil || e.rt.name != setType {
			continue
		}
		if tree, err := toTree(e.body); err == nil && names(at(tree, "properties", "virtualMachineProfile", "networkProfile"), key) {
			return e
		}
	}
	return nil
}

func balancerInUse(s *Server, e *entry) error {
	for _, l := range balancerLists {
		for _, child := range l.members(e.body) {
			if set := s.setWith(e.id.child(l.name, text(child, "name")).key()); set != nil {
				return badRequest("LoadBalancerInUseByVirtualMachineScaleSet",
					"Cannot delete load balancer %s since its child resources %s are in use by virtual machine scale set %s.",
					e.id.String(), text(child, "name"), set.id.String())
			}
		}
	}
	return nil
}

// balancerSettled says whether a write has ended with its first answer. It has not where
// Azure has more to do than to store the model, as recorded: with backends before or after,
// for gateways and global load balancers, and where a Standard one's private address changes.
func balancerSettled(s *Server, d *draft) bool {
	switch {
	case d.old != nil && reflect.DeepEqual(withoutState(d.old), withoutState(d.next)):
		return true
	case text(d.next, "sku", "tier") == "Global", text(d.next, "sku", "name") == "Gateway":
		return false
	}
	frontends := balancerListOf("frontendIPConfigurations")
	for _, f := range frontends.members(d.next) {
		old := named(frontends.members(d.old), text(f, "name"))
		moved := text(f, "properties", "subnet", "id") != text(old, "properties", "subnet", "id")
		if moved && text(d.next, "sku", "name") != "Basic" {
			return false
		}
	}
	for _, l := range balancerLists {
		for _, child := range append(l.members(d.next), l.members(d.old)...) {
			if len(l.derived) > 0 && len(s.backends(d.id.child(l.name, text(child, "name")).key())) > 0 {
				return false
			}
		}
	}
	return true
}

func withoutState(body object) object {
	p, _ := body["properties"].(object)
	p = maps.Clone(p)
	delete(p, "provisioningState")
	return p
}

// put and remove write a child on its own: the load balancer is written with it.
func (l *balancerList) put(c *call) (*reply, error) {
	tree, err := c.tree()
	if err != nil {
		return nil, err
	}
	tree["name"] = c.id.name()
	return l.write(c, tree)
}

func (l *balancerList) remove(c *call) (*reply, error) {
	if c.s.balancerChild(c.id) == nil {
		return &reply{status: http.StatusNoContent}, nil
	}
	return l.write(c, nil)
}

func (l *balancerList) write(c *call, child object) (*reply, error) {
	e := c.s.find(c.id.parent())
	if e == nil {
		return nil, parentNotFound(c.id)
	}
	copied, err := toTree(e.body)
	if err != nil {
		return nil, err
	}
	body := copied.(object)
	id, rt, list, isNew := c.id, c.rt, []any{}, true
	for _, one := range l.members(body) {
		if !strings.EqualFold(text(one, "name"), id.name()) {
			list = append(list, one)
			continue
		}
		if isNew = false; child != nil {
			list = append(list, child)
		}
	}
	if isNew {
		list = append(list, child)
	}
	body["properties"].(object)[l.name] = list
	c.id, c.rt = e.id, e.rt
	out, err := c.writeStored(e.rt.stored, body)
	c.id, c.rt = id, rt
	switch {
	case err != nil || out.body == nil:
		return out, err
	case child == nil:
		out.status, out.body = http.StatusAccepted, nil
	default:
		if out.body = named(l.members(out.body), id.name()); isNew {
			out.status = http.StatusCreated
		}
	}
	if out.op != nil {
		out.op.method = c.r.Method
	}
	return out, nil
}

func getBalancerChild(c *call) (*reply, error) {
	if child := c.s.balancerChild(c.id); child != nil {
		return ok(child), nil
	}
	return nil, notFound(c.id)
}

func listBalancerChildren(c *call) (*reply, error) {
	e, err := c.need()
	if err != nil {
		return nil, err
	}
	items := []any{}
	for _, child := range balancerListOf(c.id.tail).members(c.s.showStored(e, c.version)) {
		items = append(items, child)
	}
	return c.pageOf(items), nil
}

// listBalancerNICs lists the stored network interfaces behind a load balancer.
func listBalancerNICs(c *call) (*reply, error) {
	e, err := c.need()
	if err != nil {
		return nil, err
	}
	var list []*entry
	for _, nic := range c.s.ofType(nicType, c.id.subscription, "") {
		used := false
		walk(nic.body, func(key string, v any) {
			used = used || key == "id" && strings.HasPrefix(strings.ToLower(fmt.Sprint(v)), e.key+"/")
		})
		if used {
			list = append(list, nic)
		}
	}
	return c.page(list), nil
}
