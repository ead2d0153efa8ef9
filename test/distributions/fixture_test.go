package distributions

import (
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/ortet/ortet/azsim"
	"github.com/ortet/ortet/test/azsimserver"
)

// A fixture is what a distribution makes. Each has two nodes, so that one can be the other's
// workbench.
type fixture struct {
	ResourceGroup string
	Set           *resource // a scale set, or else machines of their own
	Machine       *resource
	CustomData    string
	Distribution  string // of ortet-node join; "" is kubelet
	// NewestCompute is the newest API version of Microsoft.Compute that the cloud serves, which
	// has no galleries then; "" is Azure.
	NewestCompute string
	Node          struct {
		ProviderID, Version string // {id} is the machine's ARM id, {name} the Node's name
		Labels, Annotations map[string]string
	}
}

type resource struct {
	Name       string
	Tags       map[string]any
	Identity   map[string]any
	Extensions map[string]map[string]any
}

func readFixture(t *testing.T, name string) (f fixture) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name+".yaml"))
	must(t, err)
	must(t, yaml.UnmarshalStrict(text, &f))
	if (f.Set == nil) == (f.Machine == nil) {
		t.Fatalf("fixture %s: want a set or a machine", name)
	}
	return f
}

func (f fixture) group() string {
	if f.ResourceGroup != "" {
		return f.ResourceGroup
	}
	return azsim.DefaultResourceGroup
}

func (f fixture) id(resourceType, name string) string {
	return "/subscriptions/" + azsim.DefaultSubscription + "/resourceGroups/" + f.group() + "/providers/" + resourceType + "/" + name
}

// pool is the scale set's id; where the distribution has none, that of a set which does not exist.
func (f fixture) pool() string {
	name := "none"
	if f.Set != nil {
		name = f.Set.Name
	}
	return f.id("Microsoft.Compute/virtualMachineScaleSets", name)
}

// create makes the fixture's resources.
func (f fixture) create(t *testing.T, s *azsim.Server) {
	t.Helper()
	if f.Set != nil {
		must(t, azsimserver.Pool{Name: f.Set.Name, Capacity: 2, CustomData: f.CustomData, Change: f.set}.CreateIn(t.Context(), s))
		return
	}
	subnet := f.id("Microsoft.Network/virtualNetworks", "vnet/subnets/nodes")
	spec := azsim.Spec{Resources: []azsim.ResourceSpec{{Type: "Microsoft.Network/virtualNetworks", Name: "vnet", Body: map[string]any{"location": azsim.DefaultLocation, "properties": map[string]any{
		"addressSpace": map[string]any{"addressPrefixes": []any{"10.1.0.0/24"}},
		"subnets":      []any{map[string]any{"name": "nodes", "properties": map[string]any{"addressPrefix": "10.1.0.0/24"}}}}}}}}
	for i, name := range []string{f.Machine.Name, f.Machine.Name + "b"} {
		nic := fmt.Sprintf("%s-nic", name)
		spec.Resources = append(spec.Resources,
			azsim.ResourceSpec{Type: "Microsoft.Network/networkInterfaces", Name: nic, Body: map[string]any{"location": azsim.DefaultLocation, "properties": map[string]any{"ipConfigurations": []any{
				map[string]any{"name": "ip", "properties": map[string]any{"subnet": map[string]any{"id": subnet}, "privateIPAllocationMethod": "Static", "privateIPAddress": fmt.Sprintf("10.1.0.%d", 10+i)}}}}}},
			azsim.ResourceSpec{Type: "Microsoft.Compute/virtualMachines", Name: name, Body: f.machine(name, f.id("Microsoft.Network/networkInterfaces", nic))})
	}
	must(t, s.Create(t.Context(), &spec))
}

// set changes the scale set of package azsimserver into the fixture's.
func (f fixture) set(body map[string]any) {
	body["tags"] = f.Set.Tags
	if f.Set.Identity != nil {
		body["identity"] = f.Set.Identity
	}
	extensions := []any{}
	for name, properties := range f.Set.Extensions {
		extensions = append(extensions, map[string]any{"name": name, "properties": properties})
	}
	profile := body["properties"].(map[string]any)["virtualMachineProfile"].(map[string]any)
	profile["extensionProfile"] = map[string]any{"extensions": extensions}
}

func (f fixture) machine(name, nic string) map[string]any {
	return map[string]any{"location": azsim.DefaultLocation, "tags": f.Machine.Tags, "properties": map[string]any{
		"hardwareProfile": map[string]any{"vmSize": "Standard_D2s_v5"},
		"storageProfile": map[string]any{
			"imageReference": map[string]any{"publisher": "Debian", "offer": "debian-12", "sku": "12-gen2", "version": "latest"},
			"osDisk":         map[string]any{"name": name + "_OSDisk", "createOption": "FromImage"}},
		"osProfile": map[string]any{"computerName": name, "adminUsername": "azureuser", "customData": base64.StdEncoding.EncodeToString([]byte(f.CustomData)),
			"linuxConfiguration": map[string]any{"disablePasswordAuthentication": true, "ssh": map[string]any{"publicKeys": []any{map[string]any{"path": "/home/azureuser/.ssh/authorized_keys", "keyData": "ssh-ed25519 AAAA"}}}}},
		"networkProfile": map[string]any{"networkInterfaces": []any{map[string]any{"id": nic}}}}}
}

// filled is a template of the fixture's for one machine.
func filled(template string, c azsim.Computer) string {
	return strings.NewReplacer("{id}", c.ResourceID, "{name}", strings.ToLower(c.HostName)).Replace(template)
}
