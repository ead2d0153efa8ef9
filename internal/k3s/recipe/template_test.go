package recipe_test

import (
	"encoding/base64"
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/ortet/ortet/internal/k3s"
	"github.com/ortet/ortet/internal/k3s/recipe"
)

type object = map[string]any

// resources are those of both templates.
func resources(d *recipe.Documents) []object {
	var all []object
	for _, one := range []recipe.Deployment{d.Storage, d.Compute} {
		list, _ := one.Template["resources"].([]any)
		for _, r := range list {
			all = append(all, r.(object))
		}
	}
	return all
}

// of are the resources of a type.
func of(t *testing.T, d *recipe.Documents, kind string) []object {
	t.Helper()
	all := slices.DeleteFunc(resources(d), func(r object) bool { return r["type"] != kind })
	if len(all) == 0 {
		t.Fatalf("there is no resource of type %s", kind)
	}
	return all
}

// at is a value below v, by keys.
func at(v any, keys ...string) any {
	for _, k := range keys {
		m, _ := v.(object)
		v = m[k]
	}
	return v
}

func clusters() map[string]*k3s.Cluster {
	return map[string]*k3s.Cluster{"minimal": minimal(), "full": full()}
}

func TestEveryResourceIsTagged(t *testing.T) {
	untaggable := []string{"Microsoft.Storage/storageAccounts/fileServices/shares", "Microsoft.Authorization/roleAssignments"}
	for name, c := range clusters() {
		for _, r := range resources(render(t, c, facts())) {
			if !slices.Contains(untaggable, r["type"].(string)) && at(r, "tags", recipe.TagCluster) != c.Metadata.Name {
				t.Errorf("%s: %s %s has tags %v", name, r["type"], r["name"], r["tags"])
			}
		}
	}
	d := render(t, full(), facts())
	server := of(t, d, "Microsoft.Compute/virtualMachines")[0]
	if at(server, "tags", recipe.TagRecipe) != d.ServerRecipe || at(server, "tags", recipe.TagRole) != "server" {
		t.Errorf("the server has tags %v", server["tags"])
	}
	if pool := of(t, d, "Microsoft.Compute/virtualMachineScaleSets")[1]; at(pool, "tags", recipe.TagApplied) != "count=auto size=Standard_D4s_v5 image=5656e04e1d2ff7d6 cloudinit="+d.Applied.CloudInit["auto"] || at(pool, "tags", recipe.TagRole) != "pool" {
		t.Errorf("the pool has tags %v", pool["tags"])
	}
}

// Each id in dependsOn is a resource of the same template, and no id of the same
// template is used without a dependency on it.
func TestDependenciesResolve(t *testing.T) {
	id := regexp.MustCompile(`resourceId\('(Microsoft[^']+)', (?:'([^']+)'|(guid\([^)]*\)[^)]*\)))(?:, '[^']+')?\)`)
	for name, c := range clusters() {
		d := render(t, c, facts())
		for _, one := range []recipe.Deployment{d.Storage, d.Compute} {
			list := one.Template["resources"].([]any)
			has := map[string]bool{}
			for _, r := range list {
				n := strings.Trim(at(r, "name").(string), "[]")
				has[at(r, "type").(string)+" "+n] = true
			}
			for _, r := range list {
				needs, _ := at(r, "dependsOn").([]any)
				var depends []string
				for _, n := range needs {
					m := id.FindStringSubmatch(n.(string))
					if m == nil {
						if strings.Contains(n.(string), "userAssignedIdentities") {
							continue // has the group's name in it
						}
						t.Fatalf("%s: dependsOn %s is no id", name, n)
					}
					depends = append(depends, m[1])
					if !has[m[1]+" "+m[2]+m[3]] {
						t.Errorf("%s: %s %s depends on %s, which is not in the template", name, at(r, "type"), at(r, "name"), n)
					}
				}
				text, err := json.Marshal(at(r, "properties"))
				if err != nil {
					t.Fatal(err)
				}
				for _, m := range id.FindAllStringSubmatch(string(text), -1) {
					kind := strings.TrimSuffix(m[1], "/subnets")
					if has[kind+" "+m[2]] && !slices.Contains(depends, kind) && !strings.Contains(string(text), "subscriptionResourceId('"+m[1]) {
						t.Errorf("%s: %s %s uses %s without a dependency", name, at(r, "type"), at(r, "name"), m[0])
					}
				}
			}
		}
	}
}

func TestPublicAddressesAreStandard(t *testing.T) {
	for _, c := range clusters() {
		d := render(t, c, facts())
		for _, a := range of(t, d, "Microsoft.Network/publicIPAddresses") {
			if at(a, "sku", "name") != "Standard" || at(a, "properties", "publicIPAllocationMethod") != "Static" {
				t.Errorf("address %s: %v", a["name"], a)
			}
		}
		text, _ := json.Marshal(d)
		if strings.Contains(string(text), `"Basic"`) {
			t.Error("a SKU is Basic, which Azure has retired")
		}
	}
}

// All machines reach the internet: by the gateway, or by addresses of a security group's subnet.
func TestEverySubnetHasSecurityGroupAndWayOut(t *testing.T) {
	for _, c := range clusters() {
		d := render(t, c, facts())
		vnet := of(t, d, "Microsoft.Network/virtualNetworks")[0]
		addresses := c.Spec.Network.Outbound == k3s.Addresses
		for _, p := range of(t, d, "Microsoft.Compute/virtualMachineScaleSets") {
			text, _ := json.Marshal(p)
			if got := strings.Contains(string(text), `"publicIPAddressConfiguration":{"name":"agent","properties":{"publicIPAddressVersion":"IPv4"},"sku":{"name":"Standard"}}`); got != addresses {
				t.Errorf("agents of %s have addresses of their own: %v, want %v", p["name"], got, addresses)
			}
		}
		subnets := at(vnet, "properties", "subnets").([]any)
		if len(subnets) != 2 {
			t.Fatalf("want 2 subnets, got %d", len(subnets))
		}
		for _, s := range subnets {
			p := at(s, "properties")
			if at(p, "networkSecurityGroup", "id") == nil || (at(p, "natGateway", "id") == nil) != addresses || at(p, "defaultOutboundAccess") != false {
				t.Errorf("subnet %v", s)
			}
		}
	}
}

// Rules of both groups: the listed ports, and a last one that denies the rest of the
// virtual network.
func TestSecurityGroupsAreClosedByDefault(t *testing.T) {
	c := minimal()
	for _, group := range of(t, render(t, c, facts()), "Microsoft.Network/networkSecurityGroups") {
		var open []string
		rules := at(group, "properties", "securityRules").([]any)
		for _, rule := range rules[:len(rules)-1] {
			p := at(rule, "properties").(object)
			text, _ := json.Marshal([]any{p["protocol"], p["sourceAddressPrefixes"], p["destinationPortRanges"]})
			open = append(open, string(text))
		}
		want := map[string][]string{
			"servers": {
				`["Tcp",["203.0.113.7/32"],["22"]]`, `["Tcp",["203.0.113.7/32"],["6443"]]`, `["Tcp",["10.16.16.0/20"],["6443","8443"]]`,
				`["Tcp",["10.16.0.0/24","10.16.16.0/20"],["10250"]]`, `["Udp",["10.16.0.0/24","10.16.16.0/20"],["8472"]]`,
			},
			"agents": {
				`["Tcp",["10.16.0.0/24"],["340"]]`, `["Tcp",["10.16.0.0/24"],["22"]]`,
				`["Tcp",["10.16.0.0/24","10.16.16.0/20"],["10250"]]`, `["Udp",["10.16.0.0/24","10.16.16.0/20"],["8472"]]`,
			},
		}[group["name"].(string)]
		if !slices.Equal(open, want) {
			t.Errorf("group %s is open for\n%s\nwant\n%s", group["name"], strings.Join(open, "\n"), strings.Join(want, "\n"))
		}
		last := at(rules[len(rules)-1], "properties").(object)
		if last["access"] != "Deny" || last["sourceAddressPrefix"] != "VirtualNetwork" || last["priority"].(float64) <= at(rules[len(rules)-2], "properties", "priority").(float64) {
			t.Errorf("the last rule of %s is %v", group["name"], last)
		}
	}
}

func TestRulesDoNotMixAddressFamilies(t *testing.T) {
	for _, group := range of(t, render(t, full(), facts()), "Microsoft.Network/networkSecurityGroups") {
		priorities := map[any]bool{}
		for _, rule := range at(group, "properties", "securityRules").([]any) {
			priority := at(rule, "properties", "priority")
			if priorities[priority] {
				t.Errorf("group %s has two rules of priority %v", group["name"], priority)
			}
			priorities[priority] = true
			from, _ := at(rule, "properties", "sourceAddressPrefixes").([]any)
			for _, f := range from {
				if strings.Contains(f.(string), ":") != strings.Contains(from[0].(string), ":") {
					t.Errorf("rule %v has sources %v", at(rule, "name"), from)
				}
			}
		}
	}
}

func TestPools(t *testing.T) {
	f := facts()
	f.Live = map[string]recipe.Live{"agents": {Count: 4}, "auto": {Count: 3, Applied: "count=1"}}
	d := render(t, full(), f)
	pools := of(t, d, "Microsoft.Compute/virtualMachineScaleSets")
	spot, regular := at(pools[0], "properties", "virtualMachineProfile").(object), at(pools[1], "properties", "virtualMachineProfile").(object)
	if spot["evictionPolicy"] != "Deallocate" || at(spot, "billingProfile", "maxPrice") != -1.0 || spot["scheduledEventsProfile"] != nil {
		t.Errorf("Spot pool: %v", spot)
	}
	if regular["evictionPolicy"] != nil || regular["billingProfile"] != nil || at(regular, "scheduledEventsProfile", "terminateNotificationProfile", "notBeforeTimeout") != "PT5M" {
		t.Errorf("Regular pool: %v", regular)
	}
	for i, pool := range pools {
		p := at(pool, "properties")
		if at(p, "singlePlacementGroup") != false || at(p, "overprovision") != false || at(p, "upgradePolicy", "mode") != "Manual" {
			t.Errorf("pool %d: %v", i, p)
		}
	}
	if text, _ := json.Marshal(d.Compute.Parameters["capacity"]); string(text) != `{"agents":4,"auto":3,"burst":0,"gpu":0}` {
		t.Errorf("capacity is %s: a pool that exists keeps its number of instances", text)
	}
	scale := of(t, d, "Microsoft.Insights/autoscaleSettings")
	if len(scale) != 1 || scale[0]["name"] != "auto" {
		t.Errorf("want one autoscale setting, of the pool with min and max, got %v", scale)
	}
}

// Azure refuses any change of a VM's customData, so a server that exists is left out,
// and what depends on it stays.
func TestExistingServerIsLeftOut(t *testing.T) {
	f := facts()
	f.ServerExists = true
	d := render(t, minimal(), f)
	if d.Compute.Parameters["serverExists"] != true {
		t.Error("parameter serverExists is not true")
	}
	if c := of(t, d, "Microsoft.Compute/virtualMachines")[0]["condition"]; c != "[not(parameters('serverExists'))]" {
		t.Errorf("the server's condition is %v", c)
	}
}

// What a server that runs can take over is in its settings, and everything else in its
// recipe.
func TestRecipeIsWhatOnlyAnotherServerChanges(t *testing.T) {
	first := render(t, minimal(), facts())
	for what, c := range map[string]struct {
		change           func(*k3s.Spec)
		recipe, settings bool
	}{
		"count":      {func(s *k3s.Spec) { s.Pools[0].Count = number(7) }, false, false},
		"pool":       {func(s *k3s.Spec) { s.Pools = append(s.Pools, k3s.Pool{Name: "more", Count: number(1)}) }, false, false},
		"size":       {func(s *k3s.Spec) { s.Server.Size = "Standard_D4s_v5" }, false, false},
		"k3s":        {func(s *k3s.Spec) { s.Artifacts.K3s.SHA256 = digest('9') }, false, true},
		"ortet":      {func(s *k3s.Spec) { s.Artifacts.Ortet.SHA256 = digest('9') }, false, true},
		"ortet-node": {func(s *k3s.Spec) { s.Artifacts.OrtetNode.SHA256 = digest('9') }, false, false},
		"time zone":  {func(s *k3s.Spec) { s.Options.TimeZone = "Europe/Lisbon" }, false, true},
		"SSH port":   {func(s *k3s.Spec) { s.Access.SSHPort = 2200 }, false, true},
		"fail2ban":   {func(s *k3s.Spec) { s.Access.Fail2ban = true }, false, true},
		"registry":   {func(s *k3s.Spec) { s.Options.PrivateRegistry = true }, false, true},
		"packages":   {func(s *k3s.Spec) { s.Packages = []string{"nfs-common"} }, false, true},
		"kubelet":    {func(s *k3s.Spec) { s.Server.K3s = k3s.K3s{"kubelet-arg": "max-pods=60"} }, false, true},
		"pool's k3s": {func(s *k3s.Spec) { s.Pools[0].K3s = k3s.K3s{"kubelet-arg": "max-pods=60"} }, false, false},
		"image":      {func(s *k3s.Spec) { s.Server.Image.Version = "24.04.202601010" }, true, false},
		"OS disk":    {func(s *k3s.Spec) { s.Server.DiskGB = 64 }, true, false},
		"user":       {func(s *k3s.Spec) { s.Access.User = "ops" }, true, false},
	} {
		spec := minimal()
		c.change(&spec.Spec)
		d := render(t, spec, facts())
		if got := d.ServerRecipe != first.ServerRecipe; got != c.recipe {
			t.Errorf("%s: the recipe is another: %v, want %v", what, got, c.recipe)
		}
		if got := d.SettingsDigest != first.SettingsDigest; got != c.settings {
			t.Errorf("%s: the settings are others: %v, want %v", what, got, c.settings)
		}
	}
	if n := len(first.ServerRecipe); n != 16 || len(first.SettingsDigest) != 16 {
		t.Errorf("digests %q and %q", first.ServerRecipe, first.SettingsDigest)
	}
}

// userData is what boot.py reads, and fits Azure's limit.
func TestTooLargeSettingsAreRefused(t *testing.T) {
	c := minimal()
	c.Spec.Artifacts.K3s.URL = "https://artifacts.example/" + strings.Repeat("k", 1<<16)
	if _, err := recipe.Render(c, facts()); err == nil || !strings.Contains(err.Error(), "userData") {
		t.Errorf("settings of more than 64 KiB: %v", err)
	}
}

// An existing account is neither made nor changed.
func TestExistingAccountIsNotMade(t *testing.T) {
	for _, r := range resources(render(t, full(), facts())) {
		if r["type"] == "Microsoft.Storage/storageAccounts" {
			t.Errorf("the template makes %v", r)
		}
	}
}

// secrets are what must not be in customData: keys, tokens, and the hash of a CA that
// does not exist yet.
var secrets = map[string]*regexp.Regexp{
	"a private key":   regexp.MustCompile(`PRIVATE KEY`),
	"a k3s token":     regexp.MustCompile(`K10[0-9a-f]{8,}|node-token|K3S_TOKEN|token-file`),
	"a boot token":    regexp.MustCompile(`\b[a-z0-9]{6}\.[a-z0-9]{16}\b`),
	"a CA hash":       regexp.MustCompile(`sha256:[0-9a-f]{8,}`),
	"a storage key":   regexp.MustCompile(`[A-Za-z0-9+/]{86}==`),
	"a password":      regexp.MustCompile(`(?i)password\s*[:=]\s*["']?[A-Za-z0-9+/]{6,}`),
	"a bearer token":  regexp.MustCompile(`eyJ[A-Za-z0-9_-]{10,}`),
	"a shared access": regexp.MustCompile(`[?&]sig=`),
}

func TestCustomDataHasNoSecret(t *testing.T) {
	for name, c := range clusters() {
		d := render(t, c, facts())
		for machine, document := range d.CloudInit {
			all := parse(t, document)
			text, _ := json.Marshal(all.RunCommands)
			for _, f := range all.WriteFiles {
				text = append(text, f.Content...)
			}
			for what, pattern := range secrets {
				if found := pattern.Find(text); found != nil {
					t.Errorf("%s: customData of %s holds %s: %s", name, machine, what, found)
				}
			}
			if len(document) > 65535 {
				t.Errorf("%s: customData of %s has %d bytes", name, machine, len(document))
			}
		}
	}
	for what, example := range map[string]string{
		"a private key": "-----BEGIN OPENSSH PRIVATE KEY-----", "a k3s token": "K10" + digest('a'), "a boot token": "abcdef.0123456789abcdef", "a CA hash": "sha256:" + digest('a'),
		"a storage key": base64.StdEncoding.EncodeToString(make([]byte, 64)), "a password": "password=hunter22", "a bearer token": "eyJhbGciOiJSUzI1NiJ9", "a shared access": "?sig=x",
	} {
		if !secrets[what].MatchString(example) {
			t.Errorf("the pattern for %s misses %s", what, example)
		}
	}
}

// The documents are the same in the template and beside it.
func TestCustomDataIsTheDocument(t *testing.T) {
	d := render(t, minimal(), facts())
	for kind, keys := range map[string][]string{
		"Microsoft.Compute/virtualMachines":         {"properties", "osProfile", "customData"},
		"Microsoft.Compute/virtualMachineScaleSets": {"properties", "virtualMachineProfile", "osProfile", "customData"},
	} {
		r := of(t, d, kind)[0]
		if at(r, keys...) != base64.StdEncoding.EncodeToString(d.CloudInit[r["name"].(string)]) {
			t.Errorf("%s: customData is not the document", kind)
		}
	}
}

func TestTooLargeCustomDataIsRefused(t *testing.T) {
	c := minimal()
	c.Spec.Pools[0].Labels = map[string]string{}
	for i := range 20000 {
		c.Spec.Pools[0].Labels[base64.RawURLEncoding.EncodeToString([]byte{byte(i), byte(i >> 8), byte(i * 7), byte(i * 13), byte(i * 31)})] = "x"
	}
	_, err := recipe.Render(c, facts())
	if err == nil || !strings.Contains(err.Error(), "exceed Azure's limit of 65535") {
		t.Errorf("got error %v", err)
	}
}

// Names that YAML would take for another type.
func TestNamesAreStrings(t *testing.T) {
	c := minimal()
	c.Spec.Pools[0].Name, c.Spec.Storage.Account = "on", "1234567"
	d := render(t, c, facts())
	if name := of(t, d, "Microsoft.Compute/virtualMachineScaleSets")[0]["name"]; name != "on" {
		t.Errorf("pool %v", name)
	}
	if name := of(t, d, "Microsoft.Storage/storageAccounts")[0]["name"]; name != "1234567" {
		t.Errorf("account %v", name)
	}
}
