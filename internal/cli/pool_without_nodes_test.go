package cli

import (
	"slices"
	"strings"
	"testing"
)

// strandedAzure has pool1, and two more groups beside its own: in each of the groups that are
// given a scale set broken of three instances that never became Nodes; "closed" may not be listed, and "deleted" does not exist.
func strandedAzure(t *testing.T, groups ...string) map[string]string {
	t.Helper()
	scaleSet := func(id string) map[string]any {
		return map[string]any{"id": id, "name": id[strings.LastIndexByte(id, '/')+1:], "location": "eastus", "sku": map[string]any{"name": "Standard_D2s_v5", "capacity": 3}, "tags": map[string]string{},
			"properties": map[string]any{"orchestrationMode": "Uniform", "provisioningState": "Succeeded", "upgradePolicy": map[string]string{"mode": "Manual"}, "virtualMachineProfile": map[string]any{
				"storageProfile": map[string]any{"osDisk": map[string]any{"osType": "Linux"}, "imageReference": map[string]string{"publisher": "p", "offer": "o", "sku": "s", "version": "1"}},
				"osProfile":      map[string]any{"computerNamePrefix": "broken"}}}}
	}
	instance := func(set, n string) map[string]any {
		return map[string]any{"id": set + "/broken/virtualMachines/" + n, "instanceId": n, "name": "broken_" + n,
			"properties": map[string]any{"vmId": n + "2222222-2222-4333-8444-555555555555", "timeCreated": "2026-01-01T00:00:00Z", "provisioningState": "Succeeded",
				"osProfile":    map[string]string{"computerName": "broken00000" + n},
				"instanceView": map[string]any{"statuses": []any{map[string]string{"code": "PowerState/running"}}}}}
	}
	return fakeAzure(t, func(path string) (int, any) {
		group, rest, _ := strings.Cut(path[strings.Index(strings.ToLower(path), "/resourcegroups/")+len("/resourcegroups/"):], "/")
		set := "/subscriptions/" + pool1.Segment("subscriptions") + "/resourceGroups/" + group + "/providers/Microsoft.Compute/virtualMachineScaleSets"
		has := strings.Contains(","+strings.Join(groups, ",")+",", ","+group+",")
		switch {
		case group == "closed":
			return 403, nil
		case group == "deleted":
			return 404, nil
		case strings.HasSuffix(rest, "/virtualMachineScaleSets"):
			all := []any{}
			if strings.EqualFold(group, pool1.Group().Name()) {
				all = append(all, scaleSet(string(pool1)))
			}
			if has {
				all = append(all, scaleSet(set+"/broken"))
			}
			return 200, map[string]any{"value": all}
		case has && strings.HasSuffix(rest, "/virtualMachineScaleSets/broken"):
			return 200, scaleSet(set + "/broken")
		case has && strings.HasSuffix(rest, "/broken/virtualMachines"):
			return 200, map[string]any{"value": []any{instance(set, "0"), instance(set, "1"), instance(set, "2")}}
		case has && strings.HasSuffix(rest, "/broken/virtualMachines/0"):
			return 200, instance(set, "0")
		case strings.HasSuffix(rest, "/permissions"):
			return 200, map[string]any{"value": []any{map[string]any{"actions": []string{"*"}, "notActions": []string{}}}}
		case strings.HasSuffix(rest, "/virtualMachines"), strings.HasSuffix(rest, "/instances"), strings.HasSuffix(rest, "/versions"), strings.HasSuffix(rest, "/images"):
			return 200, map[string]any{"value": []any{}}
		}
		return 404, nil
	})
}

// A pool whose instances never became Nodes is shown by name and by ARM id; what changes something
// names the ARM id, and acts on that alone.
func TestPoolWithoutNodes(t *testing.T) {
	id := string(pool1.In("virtualMachineScaleSets", "broken"))
	other := strings.Replace(id, "/resourceGroups/"+pool1.Group().Name()+"/", "/resourceGroups/shared/", 1)
	key, _ := aKey(t)
	in := " --resource-group " + string(pool1.Group())
	named := " is known to be an instance of " + id + ", which may be another cluster's"
	for _, c := range []struct {
		command, byName, byID string // what it says
		code, codeByID        int
	}{
		{"nodes --pool broken", "broken000002", "broken000002", 0, 0},
		{"status broken", "broken: eastus", "broken: eastus", 0, 0},
		{"versions broken", "broken no prototype yet", "broken no prototype yet", 0, 0},
		{"donors broken", "broken: not due", "broken: not due", 0, 0},
		{"config status broken", "Instances without a Node: ", "Instances without a Node: ", 0, 0},
		{"config plan broken -f " + aConfig(t), "generation 1", "generation 1", 0, 0},
		{"config rollback broken --key " + key, named, "the history has no earlier configuration", refused, refused},
		{"capture --image i --pool broken" + in, named, "not due: 0 of 0 nodes qualify", refused, 0},
		{"watch broken", named, "capture a node of the pool first", refused, refused},
		{"rollout broken --dry-run", named, "Nothing to do: no node is to be renewed", refused, 0},
		{"rollback broken", named, "it was never captured", refused, refused},
	} {
		for _, by := range []struct {
			args, says string
			code       int
		}{{c.command, c.byName, c.code}, {strings.Replace(c.command, "broken", id, 1), c.byID, c.codeByID}} {
			t.Run(by.args, func(t *testing.T) {
				code, out, said := runIn(t, strandedAzure(t, pool1.Group().Name()), by.args+" --kubeconfig "+aCluster(t, true))
				t.Logf("exit code %d\n%s%s", code, out, said)
				if flat := strings.Join(strings.Fields(out+said), " "); code != by.code || !strings.Contains(flat, strings.TrimSpace(by.says)) {
					t.Errorf("code %d, want %d and %q", code, by.code, by.says)
				}
			})
		}
	}
	shared, closed := " --resource-group "+string(pool1.Group()[:strings.LastIndexByte(string(pool1.Group()), '/')])+"/shared", " --resource-group "+string(pool1.Group()[:strings.LastIndexByte(string(pool1.Group()), '/')])+"/closed"
	deleted := strings.Replace(closed, "closed", "deleted", 1)
	claims := "azure://" + other + "/virtualMachines/0"
	is := "broken000000 02222222-2222-4333-8444-555555555555 azure://" + id + "/virtualMachines/0"
	for what, c := range map[string]struct {
		groups, args string
		code         int
		says         []string
		node         string // beside that of pool1
	}{
		"in another group":                {"shared", "status broken" + shared, 0, []string{"broken: eastus"}, ""},
		"in another group, to change it":  {"shared", "rollback broken" + shared, refused, []string{other + ", which may be another cluster's"}, ""},
		"in a group that is not named":    {"shared", "status broken", refused, []string{"the Nodes of this cluster are instances of " + pool1.Name()}, ""},
		"two of one name":                 {"both", "status broken" + shared, refused, []string{"2 have that name", id, other}, ""},
		"two of one name, to roll out":    {"both", "rollout broken" + shared, refused, []string{id, other}, ""},
		"two of one name, to change one":  {"both", "watch broken" + shared, refused, []string{id, other}, ""},
		"a group may not be listed":       {"", "status broken" + closed, failed, []string{"Azure did not list all scale sets", "403"}, ""},
		"it is found beside such a group": {pool1.Group().Name(), "status broken" + closed, 0, []string{"may be missing", "403"}, ""},
		"and of a change":                 {"", "watch broken" + closed, failed, []string{"Azure did not list all scale sets"}, ""},
		"a group does not exist":          {"", "status broken" + deleted, failed, []string{"resourceGroups/deleted", "404"}, ""},
		"that of a Node does not exist":   {"", "status broken", refused, []string{"the Nodes of this cluster are instances of"}, strings.NewReplacer("shared", "deleted", "broken", "x").Replace(claims)},
		"its machine became a Node":       {"both", "rollback broken" + shared, refused, []string{"it was never captured"}, is},
		"a Node reports to be of another": {"shared", "rollback broken", refused, []string{other + ", which may be another cluster's"}, claims},
		"and a rollout is planned":        {"shared", "rollout broken --dry-run", refused, []string{other + ", which may be another cluster's"}, claims},
		"and is read":                     {"shared", "status broken", 0, []string{"broken: eastus"}, claims},
		"and a configuration is pushed":   {"shared", "config push broken -f " + aConfig(t) + " --key " + key, refused, []string{other + ", which may be another cluster's"}, claims},
		"and a capture is given up":       {"shared", "capture --abandon broken", refused, []string{other + ", which may be another cluster's"}, claims},
		"a Node's machine is deleted":     {pool1.Group().Name(), "rollback broken", refused, []string{id + ", which may be another cluster's"}, "azure://" + id + "/virtualMachines/7"},
		"to read, beside the Nodes' own":  {"shared", "donors " + pool1.Name() + shared, refused, []string{pool1.Name() + ": cannot be captured"}, ""},
		"a pool of a group not named":     {"shared", "capture --image i --pool " + pool1.Name() + shared, refused, []string{"of the named resource groups"}, ""},
	} {
		t.Run(what, func(t *testing.T) {
			groups := []string{c.groups}
			if c.groups == "both" {
				groups = []string{"shared", pool1.Group().Name()}
			}
			code, out, said := runIn(t, strandedAzure(t, groups...), c.args+" --kubeconfig "+aCluster(t, true, slices.DeleteFunc([]string{c.node}, func(n string) bool { return n == "" })...))
			flat := strings.Join(strings.Fields(out+said), " ")
			for _, want := range c.says {
				if code != c.code || !strings.Contains(flat, want) {
					t.Errorf("code %d, want %d and %q:\n%s%s", code, c.code, want, out, said)
				}
			}
		})
	}
}
