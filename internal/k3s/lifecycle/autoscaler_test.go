package lifecycle_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/ortet/ortet/azsim"
	"github.com/ortet/ortet/internal/k3s/lifecycle"
	"github.com/ortet/ortet/internal/k3s/recipe"
	"github.com/ortet/ortet/internal/workflow"
)

// A pool goes from Azure's autoscale to pods and back to a count. Azure's setting and the right
// of cluster-autoscaler are never there together, up keeps the number of agents that it finds,
// and other identities of the server stay.
func TestOutcomePodsDecide(t *testing.T) {
	scaled := strings.Replace(file, "count: 2", "min: 0, max: 3", 1)
	decide := edited(t, scaled, map[string]string{"spec.options.clusterAutoscaler": autoscaler, "spec.pools[].scaleBy": `"pods"`, "spec.pools[].labels": `{"example.org/work_load": "batch"}`})
	unused := edited(t, file, map[string]string{"spec.options.clusterAutoscaler": autoscaler})
	setting := computeGroup + "/providers/Microsoft.Insights/autoscaleSettings/agents"
	grants := recipe.Assignments(computeGroup, "", "agents")
	right := grants[len(grants)-1]
	play(t, nil, func(x *site) {
		go x.boot()
		x.up(scaled)
		both := func(when string) (byCPU, byPods bool) {
			x.Helper()
			_, byCPU = x.thing(setting)
			if _, byPods = x.thing(right); byCPU && byPods {
				x.Errorf("%s: Azure's autoscale setting and cluster-autoscaler's right", when)
			}
			return byCPU, byPods
		}
		has := func() (names string) {
			var vm struct {
				Identity struct {
					Type                   string
					UserAssignedIdentities object
				}
			}
			x.read(serverVM, &vm)
			for id := range vm.Identity.UserAssignedIdentities {
				names += " " + strings.ToLower(id[strings.LastIndex(id, "/")+1:])
			}
			return names + " " + vm.Identity.Type
		}
		x.send(http.MethodPatch, serverVM, "2024-07-01", object{"identity": object{"type": "SystemAssigned, UserAssigned"}})
		x.planned(decide, "spec.pools[agents].scaleBy: cpu -> pods", "goes away: Azure's autoscale setting", "spec.options.clusterAutoscaler: none -> registry.example")
		// Killed in the deployment, nothing scales, and the same command goes on.
		if err := x.s.AddFault(azsim.Fault{Method: http.MethodPut, Path: "virtualMachineScaleSets/agents$", Count: 1, Effect: "error", Status: 409, Code: "SkuNotAvailable"}); err != nil {
			x.Fatal(err)
		}
		if _, err := x.manager(decide).Up(x.ctx, lifecycle.UpOptions{}); workflow.ExitCode(err) != workflow.ExitNeedsPerson {
			x.Fatal(err)
		}
		if byCPU, byPods := both("after a deployment that failed"); byCPU || byPods {
			x.Errorf("after a deployment that failed: autoscale setting %t, right of cluster-autoscaler %t", byCPU, byPods)
		}
		x.send(http.MethodPut, pool, "2024-07-01", object{"location": "westeurope", "sku": object{"name": "Standard_D2s_v5", "capacity": 3}})
		x.up(decide)
		set, _ := x.thing(pool)
		if byCPU, byPods := both("by pods"); byCPU || !byPods || set.SKU.Capacity != 3 {
			x.Errorf("by pods: autoscale setting %t, right of cluster-autoscaler %t, %d agents of 3", byCPU, byPods, set.SKU.Capacity)
		}
		for name, want := range map[string]string{"cluster-autoscaler-enabled": "true", "cluster-autoscaler-name": "demo", "min": "0", "max": "3",
			"k8s.io_cluster-autoscaler_node-template_label_example.org_work~2load": "batch"} {
			if set.Tags[name] != want {
				x.Errorf("tag %s is %q, want %q", name, set.Tags[name], want)
			}
		}
		if now := has(); !strings.Contains(now, " ortet-autoscaler") || !strings.Contains(now, " ortet-server") || !strings.Contains(now, "SystemAssigned") {
			x.Errorf("the server has identities %s", now)
		}
		if p, err := x.manager(decide).Plan(x.ctx); err != nil || len(p.Fields)+len(p.Changes) > 0 {
			x.Errorf("plan after up: %v %+v", err, p)
		}
		x.planned(unused, "spec.pools[agents].scaleBy: pods -> none", "goes away: the right of cluster-autoscaler on the scale set")
		// A count again: its right is gone before agents are drained, and so are its tags.
		d := &drained{site: x}
		if _, err := x.with(unused, d).Up(x.ctx, lifecycle.UpOptions{}); err != nil {
			x.Fatal(err)
		}
		set, _ = x.thing(pool)
		if byCPU, byPods := both("by count"); byCPU || byPods || set.SKU.Capacity != 2 || set.Tags["min"]+set.Tags["cluster-autoscaler-enabled"] != "" {
			x.Errorf("by count: %t %t, %d agents of 2, tags %v", byCPU, byPods, set.SKU.Capacity, set.Tags)
		}
		x.up(file)
		if now := has(); strings.Contains(now, "ortet-autoscaler") || !strings.Contains(now, "SystemAssigned") {
			x.Errorf("without the option the server has identities %s", now)
		}
	})
}
