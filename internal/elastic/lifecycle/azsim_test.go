package lifecycle_test

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ortet/ortet/internal/azsim"
	"github.com/ortet/ortet/internal/azure/arm"
	"github.com/ortet/ortet/internal/elastic"
	"github.com/ortet/ortet/internal/elastic/lifecycle"
	"github.com/ortet/ortet/internal/elastic/recipe"
	"github.com/ortet/ortet/internal/engine"
	"github.com/ortet/ortet/internal/fleet"
)

// A site is a simulated Azure, whose server machine reports itself ready by its tag.
type site struct {
	*testing.T
	s   *azsim.Server
	arm *arm.Resources
	ctx context.Context // ends before the bubble waits for its goroutines
}

func play(t *testing.T, set func(*azsim.Server), test func(x *site)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &azsim.Server{Seed: 1}
		if set != nil {
			set(s)
		}
		defer s.Close()
		client, err := arm.NewResources(arm.Options{Cloud: azsim.Cloud(azsim.InProcess), Credential: s.Credential(azsim.DefaultClientID), Transport: s.Transport(), Version: "test"})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		test(&site{t, s, client, ctx})
	})
}

func (x *site) manager(text string) *lifecycle.Manager {
	x.Helper()
	c, err := elastic.Parse("cluster.yaml", []byte(text))
	if err != nil {
		x.Fatal(err)
	}
	return lifecycle.New(lifecycle.Config{ARM: x.arm, Subscription: azsim.DefaultSubscription, Cluster: c, Render: recipe.Render,
		SSHPublicKey: "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIPj3ovIt1MnNtgPmsu2Aj1CqPYbS7ZCMPHUFw7h6qXEb", OwnAddresses: []string{"192.0.2.7"}})
}

const computeGroup = "/subscriptions/" + azsim.DefaultSubscription + "/resourceGroups/demo-compute"

// boot writes the tags that the server's machine writes.
func (x *site) boot() {
	id := fleet.ResourceID(computeGroup + "/providers/Microsoft.Compute/virtualMachines/server")
	for x.ctx.Err() == nil {
		var vm struct{ Tags map[string]string }
		if x.arm.Get(x.ctx, id, "2024-07-01", &vm) == nil && vm.Tags[recipe.TagCAHash] == "" {
			_, _ = x.arm.Send(x.ctx, "tag", http.MethodPatch, id+"/providers/Microsoft.Resources/tags/default", "2021-04-01",
				object{"operation": "Merge", "properties": object{"tags": object{recipe.TagBoot: "ready", recipe.TagCAHash: "sha256:1"}}})
		}
		select {
		case <-x.ctx.Done():
		case <-time.After(10 * time.Second):
		}
	}
}

func (x *site) up(text string) *lifecycle.Result {
	x.Helper()
	r, err := x.manager(text).Up(x.Context(), lifecycle.UpOptions{})
	if err != nil {
		data, _ := json.Marshal(r)
		x.Fatalf("up: %v\n%s", err, data)
	}
	return r
}

var twoPools = strings.Replace(file, "count: 2}", "count: 2}, {name: more, count: 1}", 1)

func TestAzsim(t *testing.T) {
	play(t, nil, func(x *site) {
		p, err := x.manager(file).Plan(x.Context())
		if err != nil || len(p.NewGroups) != 2 || p.Counts["Create"] != len(p.Changes) || len(p.Changes) < 10 {
			x.Fatalf("plan of nothing: %v %+v", err, p)
		}
		go x.boot()
		if r := x.up(file); !r.Ready || r.Boot != "ready" {
			x.Errorf("%+v", r)
		}
		p, err = x.manager(file).Plan(x.Context())
		if err != nil || len(p.Changes) > 0 || p.Unchanged < 10 {
			x.Errorf("plan of what is there: %v %+v", err, p)
		}
		x.up(file)
		p, err = x.manager(strings.Replace(file, "count: 2", "count: 3", 1)).Plan(x.Context())
		if err != nil || len(p.Changes) != 1 || p.Changes[0].Name != "agents" || !strings.Contains(strings.Join(p.Changes[0].What, " "), "sku.capacity: 2 -> 3") {
			x.Errorf("plan of a third agent: %v %+v", err, p)
		}
		if p, err = x.manager(twoPools).Plan(x.Context()); err != nil || len(p.Changes) != 1 || p.Changes[0].Change != "Create" || p.Changes[0].Name != "more" || len(p.Notes) != 0 {
			x.Errorf("plan of a second pool: %v %+v", err, p)
		}
		if p, err = x.manager(strings.Replace(file, "  pools:", "  options: {swapGB: 1}\n  pools:", 1)).Plan(x.Context()); err != nil || len(p.Notes) != 1 || !strings.Contains(p.Notes[0], "another recipe") {
			x.Errorf("plan of another recipe: %v %+v", err, p)
		}
		s, err := x.manager(file).Status(x.Context())
		if err != nil || s.Server == nil || s.Server.Power != "running" || !s.Server.SameRecipe || len(s.Pools) != 1 || s.Pools[0].Running != 2 || len(s.Endpoints) != 2 || s.Endpoints[0].Address == "" || len(s.Storage.Shares) != 3 {
			data, _ := json.Marshal(s)
			x.Errorf("status: %v %s", err, data)
		}
		if r, err := x.manager(file).Down(x.Context(), []string{lifecycle.RoleCompute}); err != nil || len(r.Deleted) != 1 {
			x.Errorf("down: %v %+v", err, r)
		}
		x.up(file)
		if _, err := x.manager(file).Down(x.Context(), []string{lifecycle.RoleCompute, lifecycle.RoleStorage}); err != nil {
			x.Error(err)
		}
		x.rolesAreGone()
	})
}

// rolesAreGone: role definitions are the tenant's, so they would outlive the groups.
func (x *site) rolesAreGone() {
	x.Helper()
	err := x.arm.List(x.Context(), "/subscriptions/"+azsim.DefaultSubscription+"/providers/Microsoft.Authorization/roleDefinitions", "2022-04-01", func(raw json.RawMessage) error {
		if strings.Contains(string(raw), "demo-compute") || strings.Contains(string(raw), "demo-storage") {
			x.Errorf("role definition is left: %s", raw)
		}
		return nil
	})
	if err != nil {
		x.Error(err)
	}
}

func TestAzsimRepairs(t *testing.T) {
	play(t, nil, func(x *site) {
		if err := x.s.AddFault(azsim.Fault{Method: http.MethodPut, Path: "virtualMachineScaleSets/agents$", Count: 1, Effect: "error", Status: 409, Code: "SkuNotAvailable"}); err != nil {
			x.Fatal(err)
		}
		go x.boot()
		r, err := x.manager(file).Up(x.Context(), lifecycle.UpOptions{})
		if engine.ExitCode(err) != engine.ExitNeedsPerson || len(r.Failures) != 1 || r.Failures[0].Resource != "scale set agents" {
			x.Errorf("exit code %d, %v, %+v", engine.ExitCode(err), err, r)
		}
		x.up(file)
	})
}

func TestAzsimRefuses(t *testing.T) {
	play(t, func(s *azsim.Server) {
		s.Unregistered, s.TakenStorageAccounts = []string{"Microsoft.Storage"}, []string{"demo1234567"}
	}, func(x *site) {
		_, err := x.manager(file).Up(x.Context(), lifecycle.UpOptions{})
		if engine.ExitCode(err) != engine.ExitRefused || !strings.Contains(err.Error(), "namespace Microsoft.Storage") {
			x.Error(err)
		}
	})
	play(t, func(s *azsim.Server) { s.TakenStorageAccounts = []string{"demo1234567"} }, func(x *site) {
		_, err := x.manager(file).Up(x.Context(), lifecycle.UpOptions{})
		if engine.ExitCode(err) != engine.ExitRefused || !strings.Contains(err.Error(), "demo1234567") {
			x.Error(err)
		}
	})
	// A Contributor may make everything but role assignments.
	play(t, func(s *azsim.Server) {
		s.Principals = []azsim.Principal{{Name: "contributor", ClientID: azsim.DefaultClientID, Roles: []azsim.Grant{{Role: "Contributor"}}}}
	}, func(x *site) {
		_, err := x.manager(file).Up(x.Context(), lifecycle.UpOptions{})
		if engine.ExitCode(err) != engine.ExitRefused || !strings.Contains(err.Error(), "User Access Administrator") {
			x.Error(err)
		}
		time.Sleep(10 * time.Minute) // for the group's deletion
		if err := x.arm.Get(x.Context(), computeGroup, "2021-04-01", &object{}); !fleet.Is(err, fleet.KindNotFound) {
			x.Errorf("group is left: %v", err)
		}
	})
}
