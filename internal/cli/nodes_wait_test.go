package cli

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// waitedAzure has pool1 with instance 0, of Node a, which is Ready, and instance 1, whose
// state is what each list says.
func waitedAzure(t *testing.T, capacity int, second func(list int32) string) map[string]string {
	t.Helper()
	var lists atomic.Int32
	machine := func(n, state string) map[string]any {
		view := map[string]any{"statuses": []any{map[string]string{"code": "PowerState/running"}}}
		return map[string]any{"id": string(pool1) + "/virtualMachines/" + n, "instanceId": n, "name": pool1.Name() + "_" + n,
			"properties": map[string]any{"vmId": n + "1111111-2222-4333-8444-555555555555", "timeCreated": time.Now().Add(-time.Minute).UTC().Format(time.RFC3339), "provisioningState": state,
				"osProfile": map[string]string{"computerName": map[string]string{"0": "a", "1": "b"}[n]}, "instanceView": view}}
	}
	return fakeAzure(t, func(path string) (int, any) {
		switch {
		case strings.HasSuffix(path, "/virtualMachineScaleSets"):
			return 200, map[string]any{"value": []any{map[string]any{"id": string(pool1), "name": pool1.Name(), "sku": map[string]any{"name": "s", "capacity": capacity},
				"properties": map[string]any{"orchestrationMode": "Uniform"}}}}
		case strings.HasSuffix(path, "/virtualMachines"):
			all := []any{machine("0", "Succeeded")}
			if state := second(lists.Add(1)); state != "" {
				all = append(all, machine("1", state))
			}
			return 200, map[string]any{"value": all}
		}
		return 404, nil
	})
}

func TestNodesWait(t *testing.T) {
	booting := func(int32) string { return "Creating" }
	then := func(state string) func(int32) string {
		return func(list int32) string {
			if list < 4 {
				return "Creating"
			}
			return state
		}
	}
	name := pool1.Name()
	for what, c := range map[string]struct {
		capacity  int
		second    func(int32) string
		args      string
		code      int
		says, out string
	}{
		"all came up":        {1, func(int32) string { return "" }, "--wait 1m --pool " + name, 0, "", "Succeeded"},
		"one fails later":    {2, then("Failed"), "--wait 1m --pool " + name, needsPerson, "Waiting for 1 instance without a verdict: b", "Failed"},
		"and alone is shown": {2, then("Failed"), "--wait 1m --failed", needsPerson, "Waiting for 1 instance without a verdict: b", "Failed"},
		"it is deleted":      {1, then("Deleting"), "--wait 1m", 0, "Waiting for 1 instance without a verdict: b", "Deleting"},
		"the time is over":   {2, booting, "--wait 300ms --pool " + string(pool1), failed, "not all came up within 300ms (--wait): 1 instance without a verdict: b", "Booting"},
		"one is not there":   {2, func(int32) string { return "" }, "--wait 300ms", failed, "1 instance that the scale set's capacity has and Azure does not list yet", "Succeeded"},
		"it is too old":      {2, booting, "--wait 1m --since 10s", 0, "", ""},
		"no such pool":       {2, booting, "--wait 1m --pool pool9", refused, "the Nodes of this cluster are instances of " + name, ""},
		"not a pool":         {2, booting, "--pool a/b", ExitUsage, "neither the name of a scale set nor its ARM id", ""},
		"no time":            {2, booting, "--wait 0s", ExitUsage, "--wait 0s: want more than 0s", ""},
	} {
		t.Run(what, func(t *testing.T) {
			code, out, said := runIn(t, waitedAzure(t, c.capacity, c.second), "nodes --kubeconfig "+aCluster(t, true)+" "+c.args)
			t.Logf("ortet nodes %s: %d\n%s%s", c.args, code, said, out)
			if code != c.code || !strings.Contains(said, c.says) || !strings.Contains(out, c.out) {
				t.Errorf("code %d, want %d, %q and %q", code, c.code, c.says, c.out)
			}
			if strings.Count(said, "without a verdict: b") > 2 || strings.Count(out, "VERDICT") > 1 {
				t.Errorf("it repeats itself:\n%s%s", said, out)
			}
		})
	}
}
