package denial

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ortet/ortet/azsim"
	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/capture"
	"github.com/ortet/ortet/internal/image/prove"
	"github.com/ortet/ortet/internal/workflow"
)

// elsewhere is the group of the network and of the identities: as often as not another team's.
const elsewhere = fleet.ResourceID("/subscriptions/" + azsim.DefaultSubscription + "/resourceGroups/network")

// joins are what the pool's model names, with the action that Azure checks on it.
var joins = []fleet.Join{
	{Resource: elsewhere + "/providers/Microsoft.Network/virtualNetworks/vnet/subnets/nodes", Action: azure.JoinSubnet},
	{Resource: elsewhere + "/providers/Microsoft.ManagedIdentity/userAssignedIdentities/nodes", Action: azure.AssignIdentity},
	{Resource: group + "/providers/Microsoft.Network/networkSecurityGroups/nodes", Action: azure.JoinSecurityGroup},
	{Resource: group + "/providers/Microsoft.Network/loadBalancers/lb/backendAddressPools/nodes", Action: azure.JoinBackendPool},
	{Resource: group + "/providers/Microsoft.Network/applicationSecurityGroups/nodes", Action: azure.JoinApplication},
	{Resource: group + "/providers/Microsoft.Network/publicIPPrefixes/nodes", Action: azure.JoinPrefix},
}

// joined has a pool's model name them.
func joined(body map[string]any) {
	at := func(action string) string {
		return string(joins[slices.IndexFunc(joins, func(j fleet.Join) bool { return j.Action == action })].Resource)
	}
	of := func(action string) map[string]any { return map[string]any{"id": at(action)} }
	ip := map[string]any{
		"primary": true, "subnet": of(azure.JoinSubnet), "loadBalancerBackendAddressPools": []any{of(azure.JoinBackendPool)},
		"applicationSecurityGroups":    []any{of(azure.JoinApplication)},
		"publicIPAddressConfiguration": map[string]any{"name": "public", "properties": map[string]any{"publicIPPrefix": of(azure.JoinPrefix)}},
	}
	nic := map[string]any{
		"primary": true, "networkSecurityGroup": of(azure.JoinSecurityGroup),
		"ipConfigurations": []any{map[string]any{"name": "ip", "properties": ip}},
	}
	profile := body["properties"].(map[string]any)["virtualMachineProfile"].(map[string]any)
	profile["networkProfile"] = map[string]any{"networkInterfaceConfigurations": []any{map[string]any{"name": "nic", "properties": nic}}}
	assigned := map[string]any{at(azure.AssignIdentity): map[string]any{}}
	body["identity"] = map[string]any{"type": "UserAssigned", "userAssignedIdentities": assigned}
}

// canaryActions are those of the role on the resource group, with what a canary needs there.
func canaryActions() []string {
	return azure.ActionsOf(slices.Concat(azure.Changes(), azure.CanaryChanges())...)
}

// ofCanary are the actions of its changes.
func ofCanary() (all []string) {
	for _, c := range azure.CanaryChanges() {
		all = append(all, azure.Actions(c.Verb())...)
	}
	return all
}

const (
	permissionsRead = "Microsoft.Authorization/permissions/read"
	usagesRead      = "Microsoft.Compute/locations/usages/read"
)

// canaryWorld has a pool that is joined to all that a pool can be. Ortet may do on the group what
// is given, and on each joined resource what the documentation says, but for one action.
func canaryWorld(t *testing.T, onGroup []string, without string) *world {
	t.Helper()
	_, onSubscription := documentedActions()
	onSubscription = slices.DeleteFunc(append(onSubscription, usagesRead), func(a string) bool { return a == without })
	p := principal(clientID, onGroup, onSubscription)
	for i, j := range joins {
		allowed := slices.DeleteFunc([]string{j.Action, permissionsRead}, func(a string) bool { return a == without })
		p.Roles = append(p.Roles, azsim.Grant{Role: fmt.Sprintf("join %d", i), Scope: string(j.Resource), Actions: some(allowed)})
	}
	spec := azsim.Spec{ResourceGroups: []azsim.GroupSpec{{Name: elsewhere.Name()}}, Resources: []azsim.ResourceSpec{{
		Type: "Microsoft.ManagedIdentity/userAssignedIdentities", Name: "nodes", ResourceGroup: elsewhere.Name(),
		Body: map[string]any{"location": "westeurope"},
	}, {
		Type: "Microsoft.Network/publicIPAddresses", Name: "lb",
		Body: map[string]any{"location": "westeurope", "sku": map[string]any{"name": "Standard"}, "properties": map[string]any{"publicIPAllocationMethod": "Static"}},
	}, {
		Type: "Microsoft.Network/loadBalancers", Name: "lb",
		Body: map[string]any{"location": "westeurope", "sku": map[string]any{"name": "Standard"}, "properties": map[string]any{
			"frontendIPConfigurations": []any{map[string]any{"name": "public", "properties": map[string]any{
				"publicIPAddress": map[string]any{"id": string(group) + "/providers/Microsoft.Network/publicIPAddresses/lb"}}}},
			"backendAddressPools": []any{map[string]any{"name": "nodes"}}}},
	}}}
	return newWorldOf(t, spec, joined, documentedRules(true), p)
}

func canaryRequest() capture.Request {
	q := fullRequest(false)
	q.Canary, q.CanarySoak = 2, time.Minute
	return q
}

// TestCanaryPermissionsSuffice: with exactly what is documented a canary proves the version, and
// uses each action of its changes.
func TestCanaryPermissionsSuffice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := canaryWorld(t, canaryActions(), "")
		w.putDaemonSet("kured")
		result := mustCapture(w, canaryRequest())
		if len(result.Canary) != 2 || result.Canary[0].Result != prove.Passed || result.Canary[1].Result != prove.Passed {
			t.Errorf("the clones: %+v", result.Canary)
		}
		w.usedAll(append(ofCanary(), usagesRead), nil)
	})
}

// TestCanaryWithoutQuota: without the actions on the subscription the canary is made all the same.
func TestCanaryWithoutQuota(t *testing.T) {
	for _, a := range append(azure.SubscriptionReadActions(), usagesRead) {
		synctest.Test(t, func(t *testing.T) {
			if result := mustCapture(canaryWorld(t, canaryActions(), a), canaryRequest()); len(result.Canary) != 2 {
				t.Errorf("without %s: clones %+v", a, result.Canary)
			}
		})
	}
}

// TestCanaryDenied takes away each action that a canary needs. Who asked for a canary is refused
// by name before anything has changed; else the capture goes on without, and says why.
func TestCanaryDenied(t *testing.T) {
	onGroup, _ := documentedActions()
	onJoined := append(azure.JoinActions(), permissionsRead)
	cases := slices.DeleteFunc(denials(canaryActions(), nil, nil), func(d denial) bool { return !slices.Contains(ofCanary(), d.of) })
	for _, a := range onJoined {
		cases = append(cases, denial{of: a, said: []string{a, "/providers/Microsoft."}, onGroup: canaryActions()})
	}
	for _, d := range cases {
		t.Run("without "+short(d.of), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := canaryWorld(t, d.onGroup, d.of)
				_, err := w.open(documentedRules(true)).Capture(t.Context(), canaryRequest())
				w.refused(err, d.said...)
			})
			if slices.Contains(onGroup, d.of) && !slices.Contains(onJoined, d.of) {
				return // no capture can be made without it
			}
			synctest.Test(t, func(t *testing.T) {
				w := canaryWorld(t, d.onGroup, d.of)
				q := canaryRequest()
				q.CanaryIfPossible = true
				result := mustCapture(w, q)
				says := func(n string) bool { return strings.HasPrefix(n, "no canary: ") && strings.Contains(n, d.of) }
				if len(result.Canary) > 0 || !slices.ContainsFunc(result.Notes, says) {
					t.Errorf("clones %+v, notes %q", result.Canary, result.Notes)
				}
			})
		})
	}
}

// TestJoinActionsAreNeeded: without one of them, and with a preflight that does not see it,
// Azure refuses the canary's scale set and names it; the version does not go live.
func TestJoinActionsAreNeeded(t *testing.T) {
	for _, a := range azure.JoinActions() {
		t.Run("without "+short(a), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := canaryWorld(t, canaryActions(), a)
				e := w.open(documentedRules(true), func(c azure.Cloud) azure.Cloud { return trusting{c} })
				_, err := e.Capture(t.Context(), canaryRequest())
				const kept = "the model was not changed"
				if workflow.ExitCode(err) != workflow.ExitFailed || !strings.Contains(err.Error(), a) || !strings.Contains(err.Error(), kept) {
					t.Errorf("exit code %d: %v", workflow.ExitCode(err), err)
				}
			})
		})
	}
}
