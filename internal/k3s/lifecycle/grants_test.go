package lifecycle_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/ortet/ortet/azsim"
	"github.com/ortet/ortet/internal/k3s/lifecycle"
	"github.com/ortet/ortet/internal/workflow"
)

// nothingLeft wants neither groups of the cluster nor role assignments in them, which Azure keeps.
func (x *site) nothingLeft() {
	x.Helper()
	for _, id := range []string{computeGroup, storageGroup} {
		if _, there := x.thing(id); there {
			x.Errorf("%s is left", id)
		}
	}
	var list struct{ Value []struct{ ID string } }
	x.read("/subscriptions/"+azsim.DefaultSubscription+"/providers/Microsoft.Authorization/roleAssignments", &list)
	for _, a := range list.Value {
		if strings.Contains(strings.ToLower(a.ID), "/resourcegroups/demo-") {
			x.Errorf("%s is left", a.ID)
		}
	}
}

// Down leaves no role assignment of an up that was interrupted at any time, also by a cluster.yaml
// without the pool that cluster-autoscaler scales: the next up could not make one of the same name.
func TestOutcomeDownAfterAnInterruptedUpLeavesNoGrant(t *testing.T) {
	t.Parallel()
	scaled := edited(t, strings.Replace(twoPools, "count: 1", "min: 1, max: 2, scaleBy: pods", 1), map[string]string{"spec.options.clusterAutoscaler": autoscaler})
	for after := time.Second; ; after += 29 * time.Second {
		done := false
		play(t, nil, func(x *site) {
			go x.boot()
			ctx, cancel := context.WithTimeout(x.ctx, after)
			defer cancel()
			_, err := x.manager(scaled).Up(ctx, lifecycle.UpOptions{})
			if done = err == nil; !done && workflow.ExitCode(err) != workflow.ExitInterrupted {
				x.Fatalf("after %s: exit code %d: %v", after, workflow.ExitCode(err), err)
			}
			if _, err := x.manager(file).Down(x.ctx, []string{lifecycle.RoleCompute, lifecycle.RoleStorage}); err != nil {
				x.Errorf("after %s: down: %v", after, err)
			}
			x.nothingLeft()
			x.up(scaled)
		})
		if done || t.Failed() {
			return
		}
	}
}
