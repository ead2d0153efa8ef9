package lifecycle_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/ortet/ortet/azsim"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/k3s/agents"
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

// Up makes a cluster again whose groups a person deleted, though Azure keeps their role assignments
// to the former identities.
func TestOutcomeUpAfterGroupsWereDeletedByHand(t *testing.T) {
	play(t, nil, func(x *site) {
		go x.boot()
		x.up(file)
		for _, group := range []fleet.ResourceID{computeGroup, storageGroup} {
			op, err := x.arm.Send(x.ctx, "delete", http.MethodDelete, group, "2021-04-01", nil)
			if err == nil {
				_, err = op.Wait(x.ctx)
			}
			if err != nil {
				x.Fatal(err)
			}
		}
		x.up(file)
	})
}

// Down that may not cancel a running deployment names the action, and deletes nothing.
func TestOutcomeDownThatMayNotCancel(t *testing.T) {
	operate(t, []lack{{}}, nil, func(x *site, as func(int, operation) (bool, string)) {
		end := make(chan error, 1)
		go func() { _, err := x.manager(file).Up(x.ctx, lifecycle.UpOptions{}); end <- err }()
		time.Sleep(time.Minute)
		failed, output := as(0, operation{"down", func(x *site, _ *agents.Control) (any, error) {
			return x.manager(file).Down(x.ctx, []string{lifecycle.RoleCompute, lifecycle.RoleStorage})
		}})
		if !failed || !strings.Contains(output, "Microsoft.Resources/deployments/cancel/action") {
			x.Errorf("down: failed %t: %s", failed, output)
		}
		if err := <-end; err != nil {
			x.Errorf("up beside it: %v", err)
		}
	})
}
