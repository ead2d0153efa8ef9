package azsim

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
)

const netVersion = "2024-05-01"

// call sends a request and gives the status with the decoded body.
func (b *bench) call(method, path, version, body string) (int, object) {
	b.Helper()
	var r *http.Response
	if strings.HasPrefix(path, "/subscriptions/") {
		r = b.sendAbsolute(method, path, version, body)
	} else {
		r = b.send(method, "/providers/"+path, version, body)
	}
	out := object{}
	if err := json.NewDecoder(r.Body).Decode(&out); err != nil && r.ContentLength > 0 {
		b.Fatal(err)
	}
	return r.StatusCode, out
}

// made sends a request that must succeed, and lets its operation end.
func (b *bench) made(method, path, version, body string) object {
	b.Helper()
	status, out := b.call(method, path, version, body)
	if status >= 300 {
		b.Fatalf("%s %s: %d %v", method, path, status, out)
	}
	time.Sleep(16 * time.Minute)
	synctest.Wait() // for what the substrate does in the background
	return out
}

func (b *bench) get(path, version string) object {
	b.Helper()
	return b.made("GET", path, version, "")
}

func (b *bench) refused(code, method, path, version, body string) {
	b.Helper()
	if status, out := b.call(method, path, version, body); status < 400 || text(out, "error", "code") != code {
		b.Errorf("%s %s: %d %v, want %s", method, path, status, out, code)
	}
}

func groupID(rest string) string {
	return "/subscriptions/" + DefaultSubscription + "/resourceGroups/" + DefaultResourceGroup + "/providers/" + rest
}

// sharingSubstrate notes what is shared and published.
type sharingSubstrate struct {
	*modelSubstrate
	shares    []string
	keys      map[string][]string
	published map[string]string
	at        sync.Mutex
}

func newSharingSubstrate() *sharingSubstrate {
	return &sharingSubstrate{modelSubstrate: newModelSubstrate(), keys: map[string][]string{}, published: map[string]string{}}
}

func (m *sharingSubstrate) PutShare(account, share string) error {
	m.at.Lock()
	defer m.at.Unlock()
	m.shares = append(m.shares, account+"/"+share)
	return nil
}

func (m *sharingSubstrate) SetKeys(account string, keys []string) error {
	m.at.Lock()
	defer m.at.Unlock()
	m.keys[account] = keys
	return nil
}

func (m *sharingSubstrate) DeleteAccount(account string) error {
	m.at.Lock()
	defer m.at.Unlock()
	delete(m.keys, account)
	m.shares = slices.DeleteFunc(m.shares, func(s string) bool { return strings.HasPrefix(s, account+"/") })
	return nil
}

func (m *sharingSubstrate) Publish(public netip.Addr, computer string, ports []int) error {
	m.at.Lock()
	defer m.at.Unlock()
	delete(m.published, public.String())
	if len(ports) > 0 {
		m.published[public.String()] = computer[strings.LastIndexByte(computer, '/')+1:] + fmt.Sprint(ports)
	}
	return nil
}

// network makes a virtual network with a subnet that has a security group.
func network(b *bench) {
	b.Helper()
	b.made("PUT", "Microsoft.Network/networkSecurityGroups/nsg", netVersion, `{"location":"westeurope","properties":{"securityRules":[
		{"name":"ssh","properties":{"priority":100,"direction":"Inbound","access":"Allow","protocol":"Tcp","sourceAddressPrefix":"203.0.113.0/24","sourcePortRange":"*","destinationAddressPrefix":"*","destinationPortRange":"22"}},
		{"name":"no","properties":{"priority":200,"direction":"Inbound","access":"Deny","protocol":"*","sourceAddressPrefix":"*","sourcePortRange":"*","destinationAddressPrefix":"*","destinationPortRange":"80"}},
		{"name":"web","properties":{"priority":300,"direction":"Inbound","access":"Allow","protocol":"*","sourceAddressPrefix":"Internet","sourcePortRange":"*","destinationAddressPrefix":"*","destinationPortRanges":["80","6443-6444"]}}]}}`)
	b.made("PUT", "Microsoft.Network/virtualNetworks/v", netVersion, `{"location":"westeurope","properties":{"addressSpace":{"addressPrefixes":["10.9.8.0/24"]},"subnets":[
		{"name":"servers","properties":{"addressPrefix":"10.9.8.0/26","networkSecurityGroup":{"id":"`+groupID("Microsoft.Network/networkSecurityGroups/nsg")+`"}}},
		{"name":"agents","properties":{"addressPrefix":"10.9.8.64/26"}}]}}`)
}

func publicBody(label string) string {
	return `{"location":"westeurope","sku":{"name":"Standard"},"properties":{"publicIPAllocationMethod":"Static","dnsSettings":{"domainNameLabel":"` + label + `"}}}`
}

func interfaceBody(subnet, address, public string) string {
	p := `"privateIPAllocationMethod":"Dynamic"`
	if address != "" {
		p = `"privateIPAllocationMethod":"Static","privateIPAddress":"` + address + `"`
	}
	if public != "" {
		p += `,"publicIPAddress":{"id":"` + groupID("Microsoft.Network/publicIPAddresses/"+public) + `"}`
	}
	return `{"location":"westeurope","properties":{"ipConfigurations":[{"name":"ip","properties":{"subnet":{"id":"` + groupID("Microsoft.Network/virtualNetworks/v/subnets/"+subnet) + `"},` + p + `}}]}}`
}

// machineBody is a virtual machine with the interface "nic".
func machineBody(extra string) string {
	return `{"location":"westeurope","tags":{"a":"1"},` + extra + `"properties":{"hardwareProfile":{"vmSize":"Standard_D2s_v5"},
		"storageProfile":{"imageReference":{"publisher":"Debian","offer":"debian-12","sku":"12-gen2","version":"latest"},"osDisk":{"name":"server-os","createOption":"FromImage"}},
		"osProfile":{"computerName":"server","adminUsername":"azureuser","customData":"` + base64.StdEncoding.EncodeToString([]byte("#cloud-config\n")) + `",
		"linuxConfiguration":{"disablePasswordAuthentication":true,"ssh":{"publicKeys":[{"path":"/home/azureuser/.ssh/authorized_keys","keyData":"ssh-ed25519 AAAA"}]}}},
		"networkProfile":{"networkInterfaces":[{"id":"` + groupID("Microsoft.Network/networkInterfaces/nic") + `"}]}}}`
}

func TestNetworkResourcesAreStoredAndProtected(t *testing.T) {
	inVirtualTime(t, nil, func(b *bench) {
		network(b)
		v := b.get("Microsoft.Network/virtualNetworks/v", "2017-06-01")
		if list, _ := at(v, "properties", "subnets").([]any); len(list) != 2 || text(list[1], "properties", "addressPrefix") != "10.9.8.64/26" || text(list[0], "properties", "provisioningState") != "Succeeded" {
			t.Errorf("subnets of %v", v)
		}
		b.made("PUT", "Microsoft.Network/publicIPAddresses/p", netVersion, publicBody("mine"))
		p := b.get("Microsoft.Network/publicIPAddresses/p", netVersion)
		if text(p, "properties", "ipAddress") != "20.50.0.1" || text(p, "properties", "dnsSettings", "fqdn") != "mine.westeurope.cloudapp.azure.com" {
			t.Errorf("public address %v", p)
		}
		b.refused("DnsRecordInUse", "PUT", "Microsoft.Network/publicIPAddresses/q", netVersion, publicBody("mine"))
		b.refused("IPv4BasicSkuPublicIpCountLimitReached", "PUT", "Microsoft.Network/publicIPAddresses/q", netVersion, `{"location":"westeurope","properties":{"publicIPAllocationMethod":"Dynamic"}}`)
		b.refused("LocationRequired", "PUT", "Microsoft.Network/publicIPAddresses/q", netVersion, `{"sku":{"name":"Standard"}}`)
		b.made("PUT", "Microsoft.Network/natGateways/n", netVersion, `{"location":"westeurope","sku":{"name":"Standard"},"properties":{"publicIpAddresses":[{"id":"`+groupID("Microsoft.Network/publicIPAddresses/p")+`"}]}}`)
		b.refused("PublicIPAddressCannotBeDeleted", "DELETE", "Microsoft.Network/publicIPAddresses/p", netVersion, "")
		b.made("PUT", "Microsoft.Network/virtualNetworks/v/subnets/agents", netVersion, `{"properties":{"addressPrefix":"10.9.8.64/26","natGateway":{"id":"`+groupID("Microsoft.Network/natGateways/n")+`"}}}`)
		b.refused("InUseNatGatewayCannotBeDeleted", "DELETE", "Microsoft.Network/natGateways/n", netVersion, "")
		b.refused("InUseNetworkSecurityGroupCannotBeDeleted", "DELETE", "Microsoft.Network/networkSecurityGroups/nsg", netVersion, "")
		b.refused("InvalidResourceReference", "PUT", "Microsoft.Network/virtualNetworks/v/subnets/x", netVersion, `{"properties":{"addressPrefix":"10.9.8.128/26","natGateway":{"id":"`+groupID("Microsoft.Network/natGateways/none")+`"}}}`)
		b.refused("NetcfgSubnetRangesOverlap", "PUT", "Microsoft.Network/virtualNetworks/v/subnets/x", netVersion, `{"properties":{"addressPrefix":"10.9.8.96/27"}}`)
		b.refused("NetcfgSubnetRangeOutsideVnet", "PUT", "Microsoft.Network/virtualNetworks/v/subnets/x", netVersion, `{"properties":{"addressPrefix":"10.9.9.0/27"}}`)
		b.refused("SecurityRuleConflict", "PUT", "Microsoft.Network/networkSecurityGroups/nsg/securityRules/x", netVersion, `{"properties":{"priority":100,"direction":"Inbound","access":"Allow","protocol":"Tcp","destinationPortRange":"1"}}`)

		b.made("PUT", "Microsoft.Network/networkInterfaces/nic", netVersion, interfaceBody("servers", "10.9.8.4", ""))
		b.refused("PrivateIPAddressIsAllocated", "PUT", "Microsoft.Network/networkInterfaces/o", netVersion, interfaceBody("servers", "10.9.8.4", ""))
		b.refused("PrivateIPAddressInReservedRange", "PUT", "Microsoft.Network/networkInterfaces/o", netVersion, interfaceBody("servers", "10.9.8.3", ""))
		b.refused("PrivateIPAddressInReservedRange", "PUT", "Microsoft.Network/networkInterfaces/o", netVersion, interfaceBody("servers", "10.9.8.63", ""))
		b.refused("PrivateIPAddressNotInSubnet", "PUT", "Microsoft.Network/networkInterfaces/o", netVersion, interfaceBody("servers", "10.9.8.64", ""))
		b.refused("PublicIPAddressInUse", "PUT", "Microsoft.Network/networkInterfaces/o", netVersion, interfaceBody("servers", "", "p"))
		b.made("PUT", "Microsoft.Network/networkInterfaces/o", netVersion, interfaceBody("servers", "", ""))
		o := b.get("Microsoft.Network/networkInterfaces/o", netVersion)
		if list := at(o, "properties", "ipConfigurations").([]any); text(list[0], "properties", "privateIPAddress") != "10.9.8.5" {
			t.Errorf("interface %v", o)
		}
		for range 2 { // as deployments do
			b.made("PUT", "Microsoft.Network/networkInterfaces/nic", netVersion, interfaceBody("servers", "10.9.8.4", ""))
			b.made("PUT", "Microsoft.Network/networkInterfaces/o", netVersion, interfaceBody("servers", "", ""))
			network(b)
		}
		b.refused("PrivateIPAddressIsAllocated", "PUT", "Microsoft.Network/networkInterfaces/x", netVersion, interfaceBody("servers", "10.9.8.5", ""))
		b.refused("InUsePrefixCannotBeDeleted", "PUT", "Microsoft.Network/virtualNetworks/v/subnets/servers", netVersion, `{"properties":{"addressPrefix":"10.9.8.0/27"}}`)
		b.refused("InUseSubnetCannotBeDeleted", "DELETE", "Microsoft.Network/virtualNetworks/v/subnets/servers", netVersion, "")
		b.refused("InUseSubnetCannotBeDeleted", "DELETE", "Microsoft.Network/virtualNetworks/v", netVersion, "")
		b.made("DELETE", "Microsoft.Network/networkInterfaces/o", netVersion, "")
		b.made("PUT", "Microsoft.Network/networkInterfaces/o", netVersion, interfaceBody("servers", "10.9.8.5", ""))
		for _, path := range []string{"networkInterfaces/o", "networkInterfaces/nic", "virtualNetworks/v", "natGateways/n", "publicIPAddresses/p", "networkSecurityGroups/nsg"} {
			b.made("DELETE", "Microsoft.Network/"+path, netVersion, "")
		}
		if left := b.get("/subscriptions/"+DefaultSubscription+"/resources", "2021-04-01")["value"].([]any); len(left) != 0 {
			t.Errorf("left: %v", left)
		}
	})
}

func TestVirtualMachineByHand(t *testing.T) {
	sub := newSharingSubstrate()
	inVirtualTime(t, func(s *Server) { s.Substrate, s.PublicAddresses = sub, netip.MustParsePrefix("127.77.0.0/24") }, func(b *bench) {
		network(b)
		b.made("PUT", "Microsoft.Network/publicIPAddresses/p", netVersion, publicBody("mine"))
		b.made("PUT", "Microsoft.Network/networkInterfaces/nic", netVersion, interfaceBody("servers", "10.9.8.9", "p"))
		b.made("PUT", "Microsoft.ManagedIdentity/userAssignedIdentities/i", "2023-01-31", `{"location":"westeurope"}`)
		identity := b.get("Microsoft.ManagedIdentity/userAssignedIdentities/i", "2018-11-30")
		const vm = "Microsoft.Compute/virtualMachines/server"
		with := `"identity":{"type":"UserAssigned","userAssignedIdentities":{"` + groupID("Microsoft.ManagedIdentity/userAssignedIdentities/i") + `":{}}},`
		b.made("PUT", vm, "2024-07-01", machineBody(with))
		got := b.get(vm, "2019-03-01")
		if text(got, "properties", "provisioningState") != "Succeeded" || text(got, "properties", "osProfile", "computerName") != "server" || at(got, "properties", "virtualMachineScaleSet") != nil ||
			text(got, "properties", "storageProfile", "osDisk", "name") != "server-os" || at(got, "properties", "osProfile", "customData") != nil {
			t.Errorf("machine %v", got)
		}
		c := sub.computer(t, "server")
		if c.Address.String() != "10.9.8.9/26" || c.ScaleSet != "" || string(c.CustomData) != "#cloud-config\n" {
			t.Errorf("computer %+v", c)
		}
		if got := sub.published["127.77.0.1"]; got != "server[22 6443 6444]" {
			t.Errorf("published: %q", got)
		}
		ask := func(path string) (int, object) {
			r := httptest.NewRequest(http.MethodGet, "http://169.254.169.254/metadata/"+path, nil)
			r.Header.Set("Metadata", "true")
			w := httptest.NewRecorder()
			c.IMDS.ServeHTTP(w, r)
			out := object{}
			if err := json.Unmarshal(w.Body.Bytes(), &out); err != nil {
				t.Fatal(err)
			}
			return w.Code, out
		}
		_, document := ask("instance?api-version=2021-02-01")
		if text(document, "compute", "tags") != "a:1" || text(document, "compute", "vmScaleSetName") != "" || text(document, "compute", "resourceId") != groupID(vm) ||
			!strings.Contains(fmt.Sprint(document["network"]), "10.9.8.9") {
			t.Errorf("metadata %v", document)
		}
		for _, query := range []string{"", "&client_id=" + text(identity, "properties", "clientId"), "&msi_res_id=" + groupID("Microsoft.ManagedIdentity/userAssignedIdentities/I")} {
			if status, out := ask("identity/oauth2/token?api-version=2018-02-01&resource=x" + query); status != 200 || text(out, "client_id") != text(identity, "properties", "clientId") {
				t.Errorf("token%s: %d %v", query, status, out)
			}
		}
		if status, _ := ask("identity/oauth2/token?api-version=2018-02-01&resource=x&client_id=other"); status != 400 {
			t.Errorf("token of another identity: %d", status)
		}
		b.made("PATCH", groupID(vm)+"/providers/Microsoft.Resources/tags/default", "2021-04-01", `{"operation":"Merge","properties":{"tags":{"b":"2"}}}`)
		if time.Sleep(time.Second); len(b.get(vm, "2024-07-01")["tags"].(object)) != 2 {
			t.Error("the tag is missing")
		}
		b.made("PUT", vm, "2024-07-01", machineBody(with)) // the same again
		b.refused("PropertyChangeNotAllowed", "PUT", vm, "2024-07-01", strings.Replace(machineBody(with), `"customData":"`, `"customData":"AAAA`, 1))
		b.refused("PropertyChangeNotAllowed", "PUT", vm, "2024-07-01", strings.Replace(machineBody(with), "azureuser", "root2", 1))
		b.refused("PropertyChangeNotAllowed", "PUT", vm, "2024-07-01", strings.Replace(machineBody(with), "12-gen2", "13-gen2", 1))
		b.refused("NicInUse", "DELETE", "Microsoft.Network/networkInterfaces/nic", netVersion, "")
		b.refused("NicInUse", "PUT", "Microsoft.Compute/virtualMachines/other", "2024-07-01", strings.ReplaceAll(machineBody(""), "server-os", "other-os"))
		b.made("POST", vm+"/powerOff", "2024-07-01", "")
		if view := b.get(vm+"/instanceView", "2024-07-01"); !strings.Contains(fmt.Sprint(view), "PowerState/stopped") {
			t.Errorf("view %v", view)
		}
		b.made("POST", vm+"/start", "2024-07-01", "")
		b.made("DELETE", "Microsoft.Network/networkSecurityGroups/nsg/securityRules/web", netVersion, "")
		if got := sub.published["127.77.0.1"]; got != "server[22]" {
			t.Errorf("published without the rule: %q", got)
		}
		b.made("DELETE", vm, "2024-07-01", "")
		b.get("Microsoft.Compute/disks/server-os", "2022-07-02")
		if nic := b.get("Microsoft.Network/networkInterfaces/nic", netVersion); at(nic, "properties", "virtualMachine") != nil {
			t.Errorf("interface %v", nic)
		}
		if len(sub.published) != 0 || len(sub.names()) != 0 {
			t.Errorf("published %v, running %v", sub.published, sub.names())
		}
		b.made("DELETE", "Microsoft.Network/networkInterfaces/nic", netVersion, "")
	})
}

func TestGroupGoesWithItsMachineAccountAndIdentity(t *testing.T) {
	sub := newSharingSubstrate()
	inVirtualTime(t, func(s *Server) { s.Substrate = sub }, func(b *bench) {
		network(b)
		b.made("PUT", "Microsoft.Network/publicIPAddresses/p", netVersion, publicBody("mine"))
		b.made("PUT", "Microsoft.Network/networkInterfaces/nic", netVersion, interfaceBody("servers", "", "p"))
		b.made("PUT", "Microsoft.Compute/virtualMachines/server", "2024-07-01", machineBody(""))
		b.made("PUT", "Microsoft.Storage/storageAccounts/mine", "2023-05-01", `{"location":"westeurope","sku":{"name":"Standard_LRS"}}`)
		made := b.made("PUT", "Microsoft.ManagedIdentity/userAssignedIdentities/i", "2023-01-31", `{"location":"westeurope"}`)
		if len(sub.published) != 1 || len(sub.names()) != 1 || len(sub.keys) != 1 {
			t.Errorf("before: %v, %v, %v", sub.published, sub.names(), sub.keys)
		}
		b.made("DELETE", "/subscriptions/"+DefaultSubscription+"/resourceGroups/"+DefaultResourceGroup, "2021-04-01", "")
		if len(sub.published) != 0 || len(sub.names()) != 0 || len(sub.keys) != 0 {
			t.Errorf("after: %v, %v, %v", sub.published, sub.names(), sub.keys)
		}
		if _, err := b.s.Credential(text(made, "properties", "clientId")).GetToken(b.ctx, policy.TokenRequestOptions{}); err == nil {
			t.Error("the identity still has tokens")
		}
	})
}

func TestMachineTakesItsDiskAndInterfaceWithIt(t *testing.T) {
	inVirtualTime(t, nil, func(b *bench) {
		network(b)
		b.made("PUT", "Microsoft.Network/networkInterfaces/nic", netVersion, interfaceBody("servers", "", ""))
		body := strings.Replace(machineBody(""), `"createOption":"FromImage"`, `"createOption":"FromImage","deleteOption":"Delete"`, 1)
		body = strings.Replace(body, `networkInterfaces/nic"`, `networkInterfaces/nic","properties":{"deleteOption":"Delete"}`, 1)
		b.made("PUT", "Microsoft.Compute/virtualMachines/server", "2024-07-01", body)
		b.made("DELETE", "Microsoft.Compute/virtualMachines/server", "2024-07-01", "")
		for path, version := range map[string]string{"Microsoft.Compute/disks/server-os": "2022-07-02", "Microsoft.Network/networkInterfaces/nic": netVersion} {
			if status, _ := b.call("GET", path, version, ""); status != 404 {
				t.Errorf("%s: %d", path, status)
			}
		}
		b.made("DELETE", "Microsoft.Network/virtualNetworks/v/subnets/servers", netVersion, "")
	})
}

func TestSpecHasRetiredOffersAndTakenNames(t *testing.T) {
	if _, err := ParseSpec([]byte("publicAddresses: 10.0.0.1\n")); err == nil || !strings.Contains(err.Error(), "publicAddresses") {
		t.Errorf("a wrong range: %v", err)
	}
	spec, err := ParseSpec([]byte(`retiredOffers: true
publicAddresses: 127.77.0.0/24
takenStorageAccounts: [taken]
resources:
  - {type: Microsoft.Network/publicIPAddresses, name: p, body: {sku: {name: Basic}, properties: {publicIPAllocationMethod: Static}}}
  - {type: Microsoft.Storage/storageAccounts, name: mine, body: {sku: {name: Standard_LRS}}}
  - {type: Microsoft.Storage/storageAccounts/fileServices/shares, name: mine/default/data}
`))
	if err != nil {
		t.Fatal(err)
	}
	sub := newSharingSubstrate()
	inVirtualTime(t, func(s *Server) {
		s.Substrate = sub
		if err := spec.Apply(s); err != nil {
			t.Fatal(err)
		}
	}, func(b *bench) {
		if err := b.s.Create(b.ctx, spec); err != nil {
			t.Fatal(err)
		}
		if p := b.get("Microsoft.Network/publicIPAddresses/p", netVersion); text(p, "properties", "ipAddress") != "127.77.0.1" {
			t.Errorf("address %v", p)
		}
		if !slices.Equal(sub.shares, []string{"mine/data"}) {
			t.Errorf("shares %v", sub.shares)
		}
		b.refused("StorageAccountAlreadyTaken", "PUT", "Microsoft.Storage/storageAccounts/taken", "2023-05-01", `{"location":"westeurope","sku":{"name":"Standard_LRS"}}`)
	})
}

func TestInstancesTakeAddressesOfAStoredSubnet(t *testing.T) {
	sub := newModelSubstrate()
	inVirtualTime(t, func(s *Server) { s.Substrate = sub }, func(b *bench) {
		network(b)
		if err := b.s.Create(context.Background(), &Spec{ScaleSets: []ScaleSetSpec{{Name: "pool", Body: setBody(groupID("Microsoft.Network/virtualNetworks/v/subnets/agents"))}}}); err != nil {
			t.Fatal(err)
		}
		if a := sub.computer(t, "pool000000").Address.String(); a != "10.9.8.68/26" {
			t.Errorf("address %s", a)
		}
		b.refused("InUseSubnetCannotBeDeleted", "DELETE", "Microsoft.Network/virtualNetworks/v/subnets/agents", netVersion, "")
	})
}

func setBody(subnet string) object {
	return object{"sku": object{"name": "Standard_D2s_v5", "capacity": 1}, "properties": object{"upgradePolicy": object{"mode": "Manual"}, "virtualMachineProfile": object{
		"osProfile":      object{"computerNamePrefix": "pool", "adminUsername": "azureuser", "linuxConfiguration": object{"ssh": object{"publicKeys": []any{object{"path": "/home/azureuser/.ssh/authorized_keys", "keyData": "ssh-ed25519 AAAA"}}}}},
		"storageProfile": object{"imageReference": object{"publisher": "Debian", "offer": "debian-12", "sku": "12-gen2", "version": "latest"}},
		"networkProfile": object{"networkInterfaceConfigurations": []any{object{"name": "nic", "properties": object{"primary": true, "ipConfigurations": []any{object{"name": "ip", "properties": object{"subnet": object{"id": subnet}}}}}}}},
	}}}
}

func TestStorageAccountsHaveKeysAndShares(t *testing.T) {
	sub := newSharingSubstrate()
	inVirtualTime(t, func(s *Server) { s.Substrate, s.TakenStorageAccounts = sub, []string{"taken"} }, func(b *bench) {
		const v, body = "2023-05-01", `{"location":"westeurope","sku":{"name":"Standard_LRS"},"kind":"StorageV2","properties":{"minimumTlsVersion":"TLS1_2"}}`
		b.refused("StorageAccountAlreadyTaken", "PUT", "Microsoft.Storage/storageAccounts/taken", v, body)
		b.refused("AccountNameInvalid", "PUT", "Microsoft.Storage/storageAccounts/No-good", v, body)
		b.made("PUT", "Microsoft.Storage/storageAccounts/mine", v, body)
		b.made("PUT", "/subscriptions/"+DefaultSubscription+"/resourceGroups/other", "2021-04-01", `{"location":"westeurope"}`)
		b.refused("StorageAccountAlreadyExists", "PUT", "/subscriptions/"+DefaultSubscription+"/resourceGroups/other/providers/Microsoft.Storage/storageAccounts/mine", v, body)
		if free := b.made("POST", "/subscriptions/"+DefaultSubscription+"/providers/Microsoft.Storage/checkNameAvailability", v, `{"name":"mine","type":"Microsoft.Storage/storageAccounts"}`); free["nameAvailable"] != false || free["reason"] != "AlreadyExists" {
			t.Errorf("%v", free)
		}
		got := b.get("Microsoft.Storage/storageAccounts/mine", "2019-04-01")
		if text(got, "properties", "primaryEndpoints", "file") != "https://mine.file.azsim.invalid/" {
			t.Errorf("account %v", got)
		}
		keys := func(out object) (list []string) {
			for _, k := range out["keys"].([]any) {
				list = append(list, text(k, "value"))
			}
			return list
		}
		before := keys(b.made("POST", "Microsoft.Storage/storageAccounts/mine/listKeys", v, ""))
		if len(before) != 2 || before[0] == before[1] || !slices.Equal(sub.keys["mine"], before) {
			t.Errorf("keys %v, of the substrate %v", before, sub.keys)
		}
		after := keys(b.made("POST", "Microsoft.Storage/storageAccounts/mine/regenerateKey", v, `{"keyName":"key1"}`))
		if after[0] == before[0] || after[1] != before[1] || !slices.Equal(sub.keys["mine"], after) {
			t.Errorf("keys %v, after %v", after, before)
		}
		const shares = "Microsoft.Storage/storageAccounts/mine/fileServices/default/shares"
		b.made("PUT", shares+"/data", v, `{"properties":{"shareQuota":100}}`)
		if list := b.get(shares, v)["value"].([]any); len(list) != 1 || text(list[0], "name") != "data" || !slices.Equal(sub.shares, []string{"mine/data"}) {
			t.Errorf("shares %v, of the substrate %v", list, sub.shares)
		}
		b.made("DELETE", "Microsoft.Storage/storageAccounts/mine", v, "")
		if status, _ := b.call("GET", shares+"/data", v, ""); status != 404 || len(sub.shares) != 0 || len(sub.keys) != 0 {
			t.Errorf("after the deletion: %d, %v, %v", status, sub.shares, sub.keys)
		}
	})
}

func TestIdentitiesAndCustomRoles(t *testing.T) {
	inVirtualTime(t, nil, func(b *bench) {
		const v = "2022-04-01"
		made := b.made("PUT", "Microsoft.ManagedIdentity/userAssignedIdentities/i", "2023-01-31", `{"location":"westeurope","tags":{"a":"b"}}`)
		principal := text(made, "properties", "principalId")
		const role = "Microsoft.Authorization/roleDefinitions/11111111-0000-4000-8000-000000000009"
		definition := func(action string) string {
			return `{"properties":{"roleName":"ours","assignableScopes":["` + groupID("")[:len(groupID(""))-len("/providers/")] + `"],"permissions":[{"actions":["` + action + `"]}]}}`
		}
		b.made("PUT", role, v, definition("Microsoft.Storage/storageAccounts/listKeys/action"))
		grant := func(name string) (string, string) {
			return "Microsoft.Authorization/roleAssignments/" + name, `{"properties":{"principalType":"ServicePrincipal","principalId":"` + principal + `","roleDefinitionId":"` + groupID(role) + `"}}`
		}
		path, body := grant("11111111-0000-4000-8000-00000000000a")
		b.made("PUT", path, v, body)
		b.made("PUT", path, v, body) // again, as a template's second deployment does
		other, _ := grant("11111111-0000-4000-8000-00000000000b")
		b.refused("RoleAssignmentExists", "PUT", other, v, body)
		b.refused("RoleAssignmentUpdateNotPermitted", "PUT", path, v, strings.Replace(body, "11111111-0000-4000-8000-000000000009", "acdd72a7-3385-48ef-bd42-f606fba81ae7", 1))
		b.refused("RoleDefinitionHasAssignments", "DELETE", role, v, "")

		b.made("PUT", "Microsoft.Storage/storageAccounts/mine", "2023-05-01", `{"location":"westeurope","sku":{"name":"Standard_LRS"},"kind":"StorageV2"}`)
		mine := newBench(t, b.s, text(made, "properties", "clientId"))
		ask := func(action string) int {
			token, err := b.s.Credential(text(made, "properties", "clientId")).GetToken(b.ctx, policy.TokenRequestOptions{})
			if err != nil {
				t.Fatal(err)
			}
			r, err := http.NewRequestWithContext(b.ctx, http.MethodPost, InProcess+groupID("Microsoft.Storage/storageAccounts/mine/")+action+"?api-version=2023-05-01", strings.NewReader(`{"keyName":"key1"}`))
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Authorization", "Bearer "+token.Token)
			resp, err := mine.s.Transport().Do(r)
			if err != nil {
				t.Fatal(err)
			}
			return resp.StatusCode
		}
		if a, c := ask("listKeys"), ask("regenerateKey"); a != 200 || c != 403 {
			t.Errorf("with the role: %d, %d", a, c)
		}
		b.made("PUT", role, v, definition("Microsoft.Storage/storageAccounts/read"))
		if a := ask("listKeys"); a != 403 {
			t.Errorf("with the changed role: %d", a)
		}
		b.made("DELETE", "Microsoft.ManagedIdentity/userAssignedIdentities/i", "2023-01-31", "")
		if left := b.get("Microsoft.Authorization/roleAssignments", v); !strings.Contains(fmt.Sprint(left), principal) {
			t.Errorf("assignments after the identity: %v", left)
		}
		path, body = grant("11111111-0000-4000-8000-00000000000c")
		b.refused("PrincipalNotFound", "PUT", path, v, body)
	})
}

func TestAutoscaleAndTags(t *testing.T) {
	inVirtualTime(t, nil, func(b *bench) {
		setting := func(low, normal, high string) string {
			return `{"location":"westeurope","properties":{"enabled":true,"targetResourceUri":"` + groupID("Microsoft.Compute/virtualMachineScaleSets/p") + `","profiles":[{"name":"all","capacity":{"minimum":"` + low + `","maximum":"` + high + `","default":"` + normal + `"},"rules":[]}]}}`
		}
		b.made("PUT", "microsoft.insights/autoscalesettings/a", "2022-10-01", setting("1", "2", "3"))
		b.refused("BadRequest", "PUT", "microsoft.insights/autoscalesettings/a", "2015-04-01", setting("3", "2", "1"))
		b.made("PUT", "Microsoft.Compute/availabilitySets/s", "2019-03-01", `{"location":"westeurope","sku":{"name":"Aligned"},"properties":{}}`)
		const tags = "/providers/Microsoft.Resources/tags/default"
		group := "/subscriptions/" + DefaultSubscription + "/resourceGroups/" + DefaultResourceGroup
		b.made("PUT", group+tags, "2021-04-01", `{"properties":{"tags":{"a":"1","b":"2"}}}`)
		b.made("PATCH", group+tags, "2021-04-01", `{"operation":"Delete","properties":{"tags":{"a":"1"}}}`)
		if got := b.get(group, "2021-04-01"); fmt.Sprint(got["tags"]) != "map[b:2]" {
			t.Errorf("group %v", got)
		}
		b.made("PATCH", groupID("Microsoft.Compute/availabilitySets/s")+tags, "2021-04-01", `{"operation":"Replace","properties":{"tags":{"x":"y"}}}`)
		if got := b.get(group+"/resources?$filter=tagName%20eq%20'x'", "2021-04-01")["value"].([]any); len(got) != 1 || text(got[0], "type") != "Microsoft.Compute/availabilitySets" {
			t.Errorf("by tag: %v", got)
		}
	})
}
