package azsim

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"
)

const balancer = "Microsoft.Network/loadBalancers/lb"

// balancerBody has a frontend, and a pool with a rule, a probe, a NAT rule and a NAT pool.
func balancerBody(public string, more string) string {
	id := func(child string) string { return `{"id":"` + groupID(balancer+child) + `"}` }
	return `{"location":"westeurope","sku":{"name":"standard"},"properties":{
		"frontendIPConfigurations":[{"name":"fe","properties":{"publicIPAddress":{"id":"` + groupID(public) + `"}}}],
		"backendAddressPools":[{"name":"pool"}],
		"probes":[{"name":"health","properties":{"protocol":"tcp","port":80}}],
		"loadBalancingRules":[{"name":"web","properties":{
			"protocol":"Tcp","frontendPort":80,"backendPort":80,"probe":` + id("/probes/health") + `,
			"frontendIPConfiguration":` + id("/frontendIPConfigurations/fe") + `,
			"backendAddressPool":` + id("/backendAddressPools/pool") + `}}],
		"inboundNatRules":[{"name":"ssh","properties":{
			"protocol":"Tcp","frontendPort":22,"backendPort":22,"frontendIPConfiguration":` + id("/frontendIPConfigurations/fe") + `}}],
		"inboundNatPools":[{"name":"nat","properties":{
			"protocol":"Tcp","frontendPortRangeStart":50000,"frontendPortRangeEnd":50001,"backendPort":22,"frontendIPConfiguration":` + id("/frontendIPConfigurations/fe") + `}}]` + more + `}}`
}

func balancedNIC(pools ...string) string {
	links := ""
	for _, p := range pools {
		kind, list := "loadBalancerBackendAddressPools", p
		if strings.Contains(p, "inboundNatRules") {
			kind = "loadBalancerInboundNatRules"
		}
		links += `,"` + kind + `":[{"id":"` + groupID(list) + `"}]`
	}
	return `{"location":"westeurope","properties":{"ipConfigurations":[{"name":"ip","properties":{"subnet":{"id":"` +
		groupID("Microsoft.Network/virtualNetworks/v/subnets/agents") + `"}` + links + `}}]}}`
}

func publicAddress(b *bench, name string) string {
	b.made("PUT", "Microsoft.Network/publicIPAddresses/"+name, netVersion,
		`{"location":"westeurope","sku":{"name":"Standard"},"properties":{"publicIPAllocationMethod":"Static"}}`)
	return "Microsoft.Network/publicIPAddresses/" + name
}

// The children of a load balancer are resources of their own, filled in, and show what refers
// to them.
func TestLoadBalancerChildren(t *testing.T) {
	inVirtualTime(t, nil, func(b *bench) {
		network(b)
		public := publicAddress(b, "p")
		status, first := b.call("PUT", balancer, netVersion, balancerBody(public, ""))
		if status != 201 || stateOf(first) != stateSucceeded || text(first, "sku", "name") != "Standard" || text(first, "sku",
			"tier") != "Regional" {
			t.Fatalf("%d %v", status, first)
		}
		time.Sleep(time.Minute)
		rule := b.get(balancer+"/loadBalancingRules/web", netVersion)
		p := rule["properties"].(object)
		if p["enableFloatingIP"] != false || number(jsonNumbers(rule), "properties", "idleTimeoutInMinutes") != 4 ||
			p["loadDistribution"] != "Default" || p["disableOutboundSnat"] != false ||
			len(p["backendAddressPools"].([]any)) != 1 || rule["etag"] != b.get(balancer, netVersion)["etag"] ||
			rule["type"] != "Microsoft.Network/loadBalancers/loadBalancingRules" {
			t.Errorf("rule: %v", rule)
		}
		probe := b.get(balancer+"/probes/health", netVersion)
		if text(probe, "properties", "protocol") != "Tcp" || text(at(probe, "properties", "loadBalancingRules").([]any)[0],
			"id") != groupID(balancer+"/loadBalancingRules/web") {
			t.Errorf("probe: %v", probe)
		}
		if got := text(b.get(public, netVersion), "properties", "ipConfiguration",
			"id"); got != groupID(balancer+"/frontendIPConfigurations/fe") {
			t.Errorf("the address is used by %q", got)
		}
		b.refused("PublicIPAddressCannotBeDeleted", "DELETE", public, netVersion, "")

		b.made("PUT", "Microsoft.Network/networkInterfaces/nic", netVersion, balancedNIC(balancer+"/backendAddressPools/pool",
			balancer+"/inboundNatRules/ssh"))
		const config = "Microsoft.Network/networkInterfaces/nic/ipConfigurations/ip"
		pool := b.get(balancer+"/backendAddressPools", netVersion)["value"].([]any)[0]
		if list, _ := at(pool, "properties", "backendIPConfigurations").([]any); len(list) != 1 || text(list[0], "id") != groupID(config) {
			t.Errorf("pool: %v", pool)
		}
		if got := text(b.get(balancer+"/inboundNatRules/ssh", netVersion), "properties", "backendIPConfiguration", "id"); got != groupID(config) {
			t.Errorf("the NAT rule leads to %q", got)
		}
		if list := b.get(balancer+"/networkInterfaces", netVersion)["value"].([]any); len(list) != 1 {
			t.Errorf("%d network interfaces", len(list))
		}

		// With backends a write takes time, and the pools are written on their own.
		if status, pool := b.call("PUT", balancer+"/backendAddressPools/second", netVersion, "{}"); status != 201 ||
			stateOf(pool) != stateUpdating || text(pool, "name") != "second" {
			t.Errorf("second pool: %d %v", status, pool)
		}
		time.Sleep(time.Minute)
		if status, _ := b.call("DELETE", balancer+"/backendAddressPools/second", netVersion, ""); status != 202 {
			t.Errorf("DELETE of the second pool: %d", status)
		}
		time.Sleep(time.Minute)
		b.refused("ResourceNotFound", "GET", balancer+"/backendAddressPools/second", netVersion, "")

		// A deleted load balancer leaves its network interfaces, and its address.
		b.made("DELETE", balancer, netVersion, "")
		nic := b.get("Microsoft.Network/networkInterfaces/nic", netVersion)
		if one := at(nic, "properties", "ipConfigurations").([]any)[0]; at(one, "properties", "loadBalancerBackendAddressPools") != nil {
			t.Errorf("the network interface: %v", one)
		}
		b.made("DELETE", public, netVersion, "")
	})
}

// jsonNumbers makes what encoding/json decoded into what azsim's readers take.
func jsonNumbers(v object) any {
	out, _ := toTree(v)
	return out
}

func marshal(t *testing.T, v any) string {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// An internal load balancer has an address of its subnet.
func TestInternalLoadBalancer(t *testing.T) {
	inVirtualTime(t, nil, func(b *bench) {
		network(b)
		body := `{"location":"westeurope","sku":{"name":"Standard"},"properties":{"frontendIPConfigurations":[{"name":"fe","properties":{"subnet":{"id":"` +
			groupID("Microsoft.Network/virtualNetworks/v/subnets/agents") + `"}}}]}}`
		if out := b.made("PUT", balancer, netVersion, body); stateOf(out) != stateUpdating {
			t.Errorf("first answer: %v", out)
		}
		fe := b.get(balancer+"/frontendIPConfigurations/fe", netVersion)
		if text(fe, "properties", "privateIPAddress") != "10.9.8.68" || text(fe, "properties", "privateIPAllocationMethod") != "Dynamic" {
			t.Errorf("frontend: %v", fe)
		}
		b.refused("InUseSubnetCannotBeDeleted", "DELETE", "Microsoft.Network/virtualNetworks/v/subnets/agents", netVersion, "")
		b.made("PUT", "Microsoft.Network/networkInterfaces/nic", netVersion, balancedNIC())
		nic := b.get("Microsoft.Network/networkInterfaces/nic", netVersion)
		if got := text(at(nic, "properties", "ipConfigurations").([]any)[0], "properties", "privateIPAddress"); got != "10.9.8.69" {
			t.Errorf("the next address is %s", got)
		}
		b.made("DELETE", balancer, netVersion, "")
		b.made("PUT", "Microsoft.Network/networkInterfaces/other", netVersion, balancedNIC())
		nic = b.get("Microsoft.Network/networkInterfaces/other", netVersion)
		if got := text(at(nic, "properties", "ipConfigurations").([]any)[0], "properties", "privateIPAddress"); got != "10.9.8.68" {
			t.Errorf("the address was not given back: %s", got)
		}
	})
}

func TestLoadBalancerRefusals(t *testing.T) {
	inVirtualTime(t, nil, func(b *bench) {
		network(b)
		public := publicAddress(b, "p")
		b.made("PUT", balancer, netVersion, balancerBody(public, ""))
		for name, x := range map[string]struct{ code, body string }{
			"a rule's unknown pool": {"InvalidResourceReference", strings.Replace(balancerBody(public, ""), `"name":"pool"`, `"name":"other"`, 1)},
			"an unknown address":    {"InvalidResourceReference", balancerBody("Microsoft.Network/publicIPAddresses/none", "")},
			"no address":            {"InvalidRequestFormat", `{"location":"westeurope","properties":{"frontendIPConfigurations":[{"name":"fe"}]}}`},
			"another sku":           {"PublicIPAndLBSkuDoNotMatch", strings.Replace(balancerBody(public, ""), "standard", "Basic", 1)},
		} {
			t.Log(name)
			b.refused(x.code, "PUT", balancer, netVersion, x.body)
		}
		b.refused("PublicIPAddressInUse", "PUT", balancer+"2", netVersion, strings.ReplaceAll(balancerBody(public, ""), "loadBalancers/lb",
			"loadBalancers/lb2"))
		b.refused("InvalidResourceReference", "PUT", "Microsoft.Network/networkInterfaces/nic", netVersion,
			balancedNIC(balancer+"/backendAddressPools/none"))
		b.refused("ResourceNotFound", "GET", balancer+"/probes/none", netVersion, "")
		b.refused("ParentResourceNotFound", "PUT", "Microsoft.Network/loadBalancers/none/backendAddressPools/p", netVersion, "{}")
	})
}

// A body that no client could read back is refused, and null is no value.
func TestStoredBodiesOfWrongShape(t *testing.T) {
	inVirtualTime(t, nil, func(b *bench) {
		b.made("PUT", balancer, netVersion, balancerBody(publicAddress(b, "p"), ""))
		for _, list := range []string{`[null]`, `[1]`, `{}`} {
			b.refused("InvalidRequestFormat", "PUT", balancer+"/backendAddressPools/pool", netVersion,
				`{"properties":{"loadBalancerBackendAddresses":`+list+`}}`)
		}
		for _, members := range []string{`"networkAcls":["x"]`, `"networkAcls":{"ipRules":["x"]}`, `"encryption":["x"]`} {
			b.refused("InvalidRequestFormat", "PUT", "Microsoft.Storage/storageAccounts/acct", "2022-09-01",
				`{"location":"westeurope","kind":"StorageV2","sku":{"name":"Standard_LRS"},"properties":{`+members+`}}`)
		}
		const network = "Microsoft.Network/virtualNetworks/n"
		b.refused("InvalidRequestFormat", "PUT", network, netVersion, `{"location":"westeurope","tags":["a"]}`)
		b.made("PUT", network, netVersion, `{"location":"westeurope","tags":{"Subnet":"a"},"properties":{"dhcpOptions":null,
			"addressSpace":{"addressPrefixes":["10.0.0.0/16"]},"subnets":[{"name":"s","properties":{"addressPrefix":"10.0.0.0/24","routeTable":null}}]}}`)
		got := b.get(network, netVersion)
		if text := marshal(t, got); strings.Contains(text, "null") {
			t.Errorf("null is shown: %s", text)
		}
		if text(got, "tags", "Subnet") != "a" {
			t.Errorf("tags: %v", got["tags"])
		}
	})
}

// Instances are in a load balancer's pools, and have a rule of each NAT pool.
func TestLoadBalancerOfScaleSet(t *testing.T) {
	inVirtualTime(t, nil, func(b *bench) {
		network(b)
		public := publicAddress(b, "p")
		b.made("PUT", balancer, netVersion, balancerBody(public, ""))
		sub := func(id string) []*armcompute.SubResource {
			return []*armcompute.SubResource{{ID: ptr(groupID(balancer + id))}}
		}
		body := pool(3)
		ip := &armcompute.VirtualMachineScaleSetIPConfigurationProperties{
			Subnet:                          &armcompute.APIEntityReference{ID: ptr(groupID("Microsoft.Network/virtualNetworks/v/subnets/agents"))},
			LoadBalancerBackendAddressPools: sub("/backendAddressPools/pool"), LoadBalancerInboundNatPools: sub("/inboundNatPools/nat"),
		}
		body.Properties.VirtualMachineProfile.NetworkProfile = &armcompute.VirtualMachineScaleSetNetworkProfile{
			HealthProbe: &armcompute.APIEntityReference{ID: ptr(groupID(balancer + "/probes/health"))},
			NetworkInterfaceConfigurations: []*armcompute.VirtualMachineScaleSetNetworkConfiguration{{Name: ptr("nic"),
				Properties: &armcompute.VirtualMachineScaleSetNetworkConfigurationProperties{Primary: ptr(true),
					IPConfigurations: []*armcompute.VirtualMachineScaleSetIPConfiguration{{Name: ptr("ip"), Properties: ip}}}}},
		}
		begin := func() error {
			p, err := b.f.NewVirtualMachineScaleSetsClient().BeginCreateOrUpdate(b.ctx, b.group, "set", body, nil)
			_, err = tryDone(p, err)
			return err
		}
		ip.LoadBalancerInboundNatPools = sub("/inboundNatPools/none")
		wantRefusal(t, begin(), "InvalidResourceReference", "inboundNatPools/none")
		ip.LoadBalancerInboundNatPools = sub("/inboundNatPools/nat")
		if err := begin(); err != nil {
			t.Fatal(err)
		}
		lb := b.get(balancer, netVersion)
		if list := at(at(lb, "properties", "backendAddressPools").([]any)[0], "properties", "backendIPConfigurations").([]any); len(list) < 3 {
			t.Errorf("backends: %v", list)
		}
		rule := b.get(balancer+"/inboundNatRules/nat.0", netVersion)
		const nic = "Microsoft.Compute/virtualMachineScaleSets/set/virtualMachines/0/networkInterfaces/nic"
		if number(jsonNumbers(rule), "properties", "frontendPort") != 50000 || !strings.EqualFold(text(rule, "properties",
			"backendIPConfiguration", "id"), groupID(nic+"/ipConfigurations/ip")) {
			t.Errorf("rule: %v", rule)
		}
		config := at(b.get(nic, "2018-10-01"), "properties", "ipConfigurations").([]any)[0]
		if got := text(at(config, "properties", "loadBalancerInboundNatRules").([]any)[0],
			"id"); got != groupID(balancer+"/inboundNatRules/nat.0") {
			t.Errorf("the interface has rule %q", got)
		}
		// What was read may be written back; what the set uses must stay.
		b.made("PUT", balancer, netVersion, marshal(t, lb))
		if a, z := len(at(lb, "properties", "inboundNatRules").([]any)), len(at(b.get(balancer, netVersion), "properties",
			"inboundNatRules").([]any)); a != z {
			t.Errorf("%d inbound NAT rules, %d after they were written back", a, z)
		}
		without := func(list string) string {
			copied := jsonNumbers(lb).(object)
			copied["properties"].(object)[list] = []any{}
			return marshal(t, copied)
		}
		b.refused("LoadBalancerInboundNatPoolInUseByVirtualMachineScaleSet", "PUT", balancer, netVersion, without("inboundNatPools"))
		b.refused("CannotRemoveRuleUsedByProbeUsedByVMSS", "PUT", balancer, netVersion, without("loadBalancingRules"))
		b.refused("LoadBalancerInUseByVirtualMachineScaleSet", "DELETE", balancer, netVersion, "")
	})
}
