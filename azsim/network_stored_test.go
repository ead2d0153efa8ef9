package azsim

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
)

const (
	addressPath = "Microsoft.Network/publicIPAddresses/p"
	nicPath     = "Microsoft.Network/networkInterfaces/nic"
	vnetPath    = "Microsoft.Network/virtualNetworks/v"
	nsgPath     = "Microsoft.Network/networkSecurityGroups/nsg"
)

// memberAt is what lies at a path, whose numbers are places in lists.
func memberAt(v any, path string) any {
	for name := range strings.SplitSeq(path, ".") {
		var n int
		if list, isList := v.([]any); isList {
			if _, err := fmt.Sscan(name, &n); err == nil && n < len(list) {
				v = list[n]
				continue
			}
		}
		v = at(v, name)
	}
	return v
}

// memberText is its JSON.
func memberText(v any, path string) string {
	data, err := json.Marshal(memberAt(v, path))
	if err != nil {
		return err.Error()
	}
	return string(data)
}

// Each row is a member that recorded answers of Azure have, although no client gave it.
func TestNetworkResourcesShowAzuresDefaults(t *testing.T) {
	inVirtualTime(t, nil, func(b *bench) {
		network(b)
		b.made("PUT", addressPath, netVersion, strings.Replace(publicBody("mine"), "Standard", "standard", 1))
		b.made("PUT", nicPath, netVersion, strings.Replace(interfaceBody("servers", "", ""), `"Dynamic"`,
			`"dynamic","privateIPAddressVersion":"ipv4"`, 1))
		b.made("PUT", vnetPath+"/subnets/agents", netVersion,
			`{"properties":{"addressPrefix":"10.9.8.64/26","delegations":[{"name":"0","properties":{"serviceName":"Microsoft.Web/serverFarms"}}]}}`)
		for _, c := range []struct{ path, version, member, want string }{
			{nicPath, "2019-09-01", "kind", "null"},
			{nicPath, "2022-01-01", "kind", `"Regular"`},
			{nicPath, netVersion, "properties.enableIPForwarding", "false"},
			{nicPath, netVersion, "properties.tapConfigurations", "[]"},
			{nicPath, netVersion, "properties.dnsSettings.appliedDnsServers", "[]"},
			{nicPath, netVersion, "properties.ipConfigurations.0.type", `"Microsoft.Network/networkInterfaces/ipConfigurations"`},
			{nicPath, netVersion, "properties.ipConfigurations.0.properties.privateIPAddressVersion", `"IPv4"`},
			{nicPath, netVersion, "properties.ipConfigurations.0.properties.privateIPAllocationMethod", `"Dynamic"`},
			{nicPath, netVersion, "properties.macAddress", "null"},
			{vnetPath, netVersion, "properties.virtualNetworkPeerings", "[]"},
			{vnetPath, netVersion, "properties.dhcpOptions", "null"},
			{vnetPath, "2018-01-01", "properties.subnets.0.properties.privateEndpointNetworkPolicies", "null"},
			{vnetPath, "2020-11-01", "properties.subnets.0.properties.privateEndpointNetworkPolicies", `"Enabled"`},
			{vnetPath, "2022-01-01", "properties.subnets.0.properties.privateEndpointNetworkPolicies", `"Disabled"`},
			{vnetPath, "2022-01-01", "properties.subnets.1.properties.delegations.0.properties.actions",
				`["Microsoft.Network/virtualNetworks/subnets/action"]`},
			{addressPath, "2019-09-01", "sku.tier", "null"},
			{addressPath, "2022-01-01", "sku.tier", `"Regional"`},
			{addressPath, netVersion, "sku.name", `"Standard"`},
			{addressPath, netVersion, "properties.idleTimeoutInMinutes", "4"},
			{addressPath, netVersion, "properties.ddosSettings.protectionMode", `"VirtualNetworkInherited"`},
			{nsgPath, netVersion, "properties.defaultSecurityRules.5.name", `"DenyAllOutBound"`},
			{nsgPath, netVersion, "properties.defaultSecurityRules.5.properties.priority", "65500"},
			{nsgPath, netVersion, "properties.securityRules.0.properties.sourcePortRanges", "[]"},
			{nsgPath, netVersion, "properties.subnets.0.id", `"` + groupID(vnetPath) + `/subnets/servers"`},
		} {
			if got := memberText(b.get(c.path, c.version), c.member); got != c.want {
				t.Errorf("%s %s in %s: %s, want %s", c.path, c.member, c.version, got, c.want)
			}
		}
		nic := b.get(nicPath, netVersion)
		if domain := text(nic, "properties", "dnsSettings", "internalDomainNameSuffix"); !strings.HasSuffix(domain, ".internal.cloudapp.net") {
			t.Errorf("domain %q", domain)
		}
		b.refused("InvalidRequestFormat", "PUT", "Microsoft.Network/networkInterfaces/odd", netVersion,
			strings.Replace(interfaceBody("servers", "", ""), `s":{"ip`, `s":{"dnsSettings":"x","ip`, 1))
		b.refused("InvalidRequestFormat", "PUT", vnetPath+"/subnets/odd", netVersion,
			`{"properties":{"addressPrefix":"10.9.8.128/26","delegations":[1,{"name":"0","properties":2}]}}`)
	})
}

func TestNetworkWritesThatAreDoneAtOnce(t *testing.T) {
	inVirtualTime(t, nil, func(b *bench) {
		network(b)
		nic := interfaceBody("servers", "", "p")
		dynamic := `{"location":"westeurope","sku":{"name":"Basic"},"properties":{"publicIPAllocationMethod":"Dynamic"}}`
		b.s.RetiredOffers = true
		for _, c := range []struct{ what, path, body, want string }{
			{"new address", addressPath, dynamic, stateUpdating},
			{"the same address", addressPath, dynamic, stateSucceeded},
			{"tags", addressPath, strings.Replace(dynamic, "{", `{"tags":{"a":"1"},`, 1), stateSucceeded},
			{"timeout", addressPath, strings.Replace(dynamic, `s":{"`, `s":{"idleTimeoutInMinutes":15,"`, 1), stateUpdating},
			{"new interface", nicPath, nic, stateSucceeded},
			{"interface of no machine", nicPath, strings.Replace(nic, `s":{"ip`, `s":{"enableIPForwarding":true,"ip`, 1), stateSucceeded},
		} {
			if out := b.made("PUT", c.path, netVersion, c.body); text(out, "properties", "provisioningState") != c.want {
				t.Errorf("%s: %v, want %s", c.what, out, c.want)
			}
			got := b.get(c.path, netVersion)
			if text(got, "properties", "provisioningState") != stateSucceeded || at(got, "properties", "ipAddress") != nil {
				t.Errorf("%s, afterwards: %v", c.what, got)
			}
		}
		b.made("PUT", "Microsoft.Compute/virtualMachines/server", "2024-07-01", machineBody(""))
		if got := b.get(addressPath, netVersion); text(got, "properties", "ipAddress") == "" {
			t.Errorf("address of a machine: %v", got)
		}
		if got := b.get(nicPath, netVersion); len(text(got, "properties", "macAddress")) != 17 {
			t.Errorf("interface of a machine: %v", got)
		}
		out := b.made("PUT", nicPath, netVersion, nic)
		if memberText(out, "properties.ipConfigurations.0.properties.provisioningState") != `"Updating"` {
			t.Errorf("interface of a machine: %v", out)
		}
		out = b.made("PUT", "Microsoft.Network/publicIPAddresses/s", netVersion, publicBody("static"))
		if at(out, "properties", "ipAddress") != nil {
			t.Errorf("static address in the first answer: %v", out)
		}
	})
}

// A resource has one ETag with its children, and a new one at each change and at its end.
func TestNetworkResourcesHaveETags(t *testing.T) {
	inVirtualTime(t, nil, func(b *bench) {
		network(b)
		var seen []string
		check := func(etag string) {
			t.Helper()
			if etag == "" || slices.Contains(seen, etag) {
				t.Errorf("ETag %q after %q", etag, seen)
			}
			seen = append(seen, etag)
		}
		check(text(b.get(vnetPath, netVersion), "etag"))
		check(text(b.made("PUT", vnetPath+"/subnets/agents", netVersion,
			`{"properties":{"addressPrefix":"10.9.8.64/26","privateEndpointNetworkPolicies":"Enabled"}}`), "etag"))
		v := b.get(vnetPath, netVersion)
		check(text(v, "etag"))
		if got := memberText(v, "properties.subnets.0.etag"); got != memberText(v, "etag") {
			t.Errorf("ETag of a subnet %s, of its network %s", got, memberText(v, "etag"))
		}
		if got := b.send("GET", "/providers/"+vnetPath, netVersion, "").Header.Get("ETag"); got != text(v, "etag") {
			t.Errorf("ETag in the header: %q", got)
		}
	})
}

func TestNetworkRefusals(t *testing.T) {
	inVirtualTime(t, nil, func(b *bench) {
		network(b)
		const encrypted = `{"location":"westeurope","properties":{"addressSpace":{"addressPrefixes":["10.0.0.0/8"]},"encryption":{"enabled":%s}}}`
		const e = "Microsoft.Network/virtualNetworks/e"
		b.refused("MustSpecifyBothEncryptionIntentAndEnforcementPolicy", "PUT", e, netVersion, fmt.Sprintf(encrypted, "true"))
		b.made("PUT", e, netVersion, fmt.Sprintf(encrypted, "false"))
		if e := b.get(e, netVersion); text(e, "properties", "encryption", "enforcement") != "AllowUnencrypted" {
			t.Errorf("network %v", e)
		}
		b.refused("InvalidAddressPrefixFormat", "PUT", vnetPath+"/subnets/x", netVersion, `{"properties":{"addressPrefix":"10.9.8.128/26--x"}}`)
		b.refused("InvalidCIDRNotation", "PUT", vnetPath+"/subnets/x", netVersion, `{"properties":{"addressPrefix":"10.9.8.129/26"}}`)
		b.made("PUT", nicPath, netVersion, interfaceBody("servers", "10.9.8.5", ""))
		const free = `["10.9.8.4","10.9.8.6","10.9.8.7","10.9.8.8","10.9.8.9"]`
		for address, want := range map[string]string{
			"10.9.8.4": `{"available":true,"isPlatformReserved":false}`,
			"10.9.8.5": `{"available":false,"availableIPAddresses":` + free + `,"isPlatformReserved":false}`,
			"10.9.8.0": `{"available":false,"availableIPAddresses":` + free + `,"isPlatformReserved":true}`,
		} {
			_, got := b.call("GET", vnetPath+"/CheckIPAddressAvailability?ipAddress="+address, netVersion, "")
			if data, err := json.Marshal(got); err != nil || string(data) != want {
				t.Errorf("%s: %s, want %s", address, data, want)
			}
		}
	})
}
