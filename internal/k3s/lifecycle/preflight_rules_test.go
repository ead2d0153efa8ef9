package lifecycle_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/k3s/lifecycle"
	"github.com/ortet/ortet/internal/workflow"
)

// rule makes a security rule by hand.
func (x *site) rule(group, name string, priority int) {
	x.Helper()
	x.send(http.MethodPut, group+"/securityRules/"+name, "2024-05-01", object{"properties": object{"priority": priority,
		"direction": "Inbound", "access": "Allow", "protocol": "Tcp",
		"sourceAddressPrefix": "192.0.2.0/24", "sourcePortRange": "*", "destinationAddressPrefix": "*", "destinationPortRange": "8883"}})
}

// rules are the names of a group's rules.
func (x *site) rules(group string) (names []string) {
	x.Helper()
	err := x.arm.List(x.ctx, fleet.ResourceID(group+"/securityRules"), "2024-05-01", func(raw json.RawMessage) error {
		var r struct{ Name string }
		err := json.Unmarshal(raw, &r)
		names = append(names, r.Name)
		return err
	})
	if err != nil {
		x.Fatal(err)
	}
	return names
}

func withRules(rules ...string) string {
	return strings.Replace(file, "  pools:", "  access: {rules: ["+strings.Join(rules, ", ")+"]}\n  pools:", 1)
}

func TestRulesOfOthers(t *testing.T) {
	const mqtt = `{name: mqtt, priority: 300, protocol: Tcp, ports: ["8883"], from: [192.0.2.0/24], to: servers}`
	play(t, nil, func(x *site) {
		go x.boot()
		x.up(file)
		x.rule(serversNSG, "mqtt", 300)
		x.rule(agentsNSG, "game", 310)
		x.rule(serversNSG, "ssh-ipv6", 320) // of an up from another address
		foreign := refusal{code: "RuleForeign", wants: []string{"security rule game is not in cluster.yaml", "with to: agents",
			"az network nsg rule delete --resource-group demo-compute --nsg-name agents --name game"}}
		x.refuses(file, refusal{code: "RuleForeign", wants: []string{"security rule mqtt is not in cluster.yaml", "with to: servers"}}, foreign)
		x.refuses(withRules(strings.Replace(mqtt, "to: servers", "to: agents", 1)), refusal{code: "RuleForeign",
			wants: []string{"security rule mqtt"}}, foreign)
		x.refuses(withRules(mqtt), foreign)
		x.send(http.MethodDelete, agentsNSG+"/securityRules/game", "2024-05-01", nil)

		x.up(withRules(mqtt))
		if all := x.rules(serversNSG); !slices.Contains(all, "mqtt") || slices.Contains(all, "ssh-ipv6") {
			x.Errorf("rules of servers: %q", all)
		}
		if p, err := x.manager(withRules(mqtt)).Plan(x.ctx); err != nil || len(p.Changes) > 0 {
			x.Errorf("plan of the same rules: %v %+v", err, p)
		}
		// A rule that the file made is the file's to take back.
		x.up(file)
		if all := x.rules(serversNSG); slices.Contains(all, "mqtt") {
			x.Errorf("rules of servers: %q", all)
		}
	})
}

func TestSubnetsOfOthers(t *testing.T) {
	play(t, nil, func(x *site) {
		go x.boot()
		x.up(file)
		x.send(http.MethodPut, networkID+"/subnets/AzureBastionSubnet", "2024-05-01",
			object{"properties": object{"addressPrefix": "10.16.1.0/24"}})
		x.refuses(file, refusal{code: "SubnetForeign",
			wants: []string{"subnet AzureBastionSubnet was not made by ortet cluster, and up would delete it"}})
		x.send(http.MethodDelete, networkID+"/subnets/AzureBastionSubnet", "2024-05-01", nil)
		x.up(file)
	})
}

func TestProtectedCluster(t *testing.T) {
	protect := func(text string) string { return strings.Replace(text, "  pools:", "  protect: true\n  pools:", 1) }
	play(t, nil, func(x *site) {
		go x.boot()
		x.up(protect(twoPools))
		refused := func(command string, err error) {
			x.Helper()
			if workflow.ExitCode(err) != workflow.ExitRefused || !strings.Contains(err.Error(), "write protect: false in cluster.yaml first") {
				x.Errorf("%s: %v", command, err)
			}
		}
		for _, roles := range [][]string{{lifecycle.RoleCompute}, {lifecycle.RoleStorage}, {lifecycle.RoleCompute, lifecycle.RoleStorage}} {
			_, err := x.manager(protect(file)).Check(x.ctx, roles)
			refused("check", err)
			_, err = x.manager(protect(file)).Down(x.ctx, roles)
			refused("down", err)
		}
		_, err := x.manager(protect(file)).Up(x.ctx, lifecycle.UpOptions{Prune: true})
		refused("up --prune", err)
		for _, id := range []string{pool, strings.TrimSuffix(pool, "agents") + "more", serverVM} {
			if err := x.arm.Get(x.ctx, fleet.ResourceID(id), "2024-07-01", &object{}); err != nil {
				x.Errorf("%s: %v", id, err)
			}
		}
		x.up(protect(file))
		if _, err := x.manager(file).Up(x.ctx, lifecycle.UpOptions{Prune: true}); err != nil {
			x.Error(err)
		}
		if _, err := x.manager(file).Down(x.ctx, []string{lifecycle.RoleCompute}); err != nil {
			x.Error(err)
		}
	})
}
