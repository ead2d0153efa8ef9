package lifecycle_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"iter"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ortet/ortet/azsim"
	"github.com/ortet/ortet/internal/azure/arm"
	"github.com/ortet/ortet/internal/cluster"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/k3s"
	"github.com/ortet/ortet/internal/k3s/agents"
	"github.com/ortet/ortet/internal/k3s/lifecycle"
	"github.com/ortet/ortet/internal/k3s/recipe"
	"github.com/ortet/ortet/internal/workflow"
	"github.com/ortet/ortet/test/serverboot"
)

// A site is a simulated Azure, whose server machine reports itself ready by its tag.
type site struct {
	*testing.T
	s         *azsim.Server
	arm       *arm.Resources
	cloud     *arm.Cloud
	ctx       context.Context // ends before the bubble waits for its goroutines
	loggedOut *atomic.Bool    // nobody logged the server in to its tailnet
	outOfSync *atomic.Bool    // an admin removed it there
	k3s       string          // version that the server's machine reports, set before boot; "": none
}

type object = map[string]any

// file is a cluster.yaml with two agents.
const file = `apiVersion: ortet.io/v1alpha1
kind: Cluster
metadata: {name: demo}
spec:
  location: westeurope
  artifacts:
    k3s: {url: "https://m.example/k3s", sha256: ea5647ee8642f531e768edfc9fc5c6f34b911696d7488a0ec26ac2a798f41da4}
    ortet: {url: "https://m.example/ortet", sha256: ea5647ee8642f531e768edfc9fc5c6f34b911696d7488a0ec26ac2a798f41da4}
    ortetNode: {url: "https://m.example/ortet-node", sha256: ea5647ee8642f531e768edfc9fc5c6f34b911696d7488a0ec26ac2a798f41da4}
  pools: [{name: agents, count: 2}]
  storage: {account: demo1234567}
`

func play(t *testing.T, set func(*azsim.Server), test func(x *site)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &azsim.Server{Seed: 1}
		if set != nil {
			set(s)
		}
		defer s.Close()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		test(siteOf(ctx, t, s, azsim.DefaultClientID))
	})
}

// siteOf is a site as a principal has it.
func siteOf(ctx context.Context, t *testing.T, s *azsim.Server, clientID string) *site {
	t.Helper()
	options := arm.Options{Cloud: azsim.Cloud(azsim.InProcess), Credential: s.Credential(clientID), Transport: s.Transport(), Version: "test"}
	resources, err := arm.NewResources(options)
	if err != nil {
		t.Fatal(err)
	}
	cloud, err := arm.New(options)
	if err != nil {
		t.Fatal(err)
	}
	return &site{T: t, s: s, arm: resources, cloud: cloud, ctx: ctx, loggedOut: new(atomic.Bool), outOfSync: new(atomic.Bool)}
}

func (x *site) manager(text string) *lifecycle.Manager {
	x.Helper()
	c, err := k3s.Parse("cluster.yaml", []byte(text))
	if err != nil {
		x.Fatal(err)
	}
	return lifecycle.New(lifecycle.Config{ARM: x.arm, Cloud: x.cloud, Subscription: azsim.DefaultSubscription, Cluster: c, Render: recipe.Render,
		SSHPublicKey: "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIPj3ovIt1MnNtgPmsu2Aj1CqPYbS7ZCMPHUFw7h6qXEb", OwnAddresses: []string{"192.0.2.7"}, Agents: x,
		Dial: func(context.Context, string, string) error { return nil }})
}

// Reach and Lower implement lifecycle.Agents, of agents without Nodes.
func (x *site) Reach(context.Context) error { return nil }
func (x *site) Lower(ctx context.Context, name string, n int64, report func(string)) error {
	c := &agents.Control{ARM: x.arm, Cloud: x.cloud, Nodes: noNodes{}, Group: computeGroup, DrainTimeout: time.Minute, ReadyTimeout: 5 * time.Minute, Now: time.Now,
		Report: func(machine, what string) { report(machine + ": " + what) }}
	return c.Lower(ctx, name, n)
}

type noNodes struct{ cluster.Drainer }

func (noNodes) Now() time.Time { return time.Now() }

func (noNodes) Nodes(context.Context) iter.Seq2[fleet.Node, error] {
	return func(func(fleet.Node, error) bool) {}
}
func (noNodes) Node(_ context.Context, name string) (fleet.Node, error) {
	return fleet.Node{}, &fleet.Error{Op: "read node", Resource: "node " + name, Kind: fleet.KindNotFound}
}
func (noNodes) Annotate(context.Context, string, map[string]*string) error { return nil }
func (noNodes) SetUnschedulable(context.Context, string, bool) error       { return nil }
func (noNodes) Forget(context.Context, string, string) error               { return nil }

const (
	computeGroup = "/subscriptions/" + azsim.DefaultSubscription + "/resourceGroups/demo-compute"
	storageGroup = "/subscriptions/" + azsim.DefaultSubscription + "/resourceGroups/demo-storage"
	serverVM     = computeGroup + "/providers/Microsoft.Compute/virtualMachines/server"
	pool         = computeGroup + "/providers/Microsoft.Compute/virtualMachineScaleSets/agents"
)

// send sends a request and waits until it is carried out.
func (x *site) send(method, id, version string, body any) {
	x.Helper()
	op, err := x.arm.Send(x.ctx, method, method, fleet.ResourceID(id), version, body)
	if err == nil {
		_, err = op.Wait(x.ctx)
	}
	if err != nil {
		x.Fatal(err)
	}
}

// boot writes the tags that the server's machine writes, as soon as it runs by other
// settings.
func (x *site) boot() { x.bootAt(serverVM) }

func (x *site) bootAt(server string) {
	for x.ctx.Err() == nil {
		tailnet := recipe.TailnetRunning
		if x.loggedOut != nil && x.loggedOut.Load() {
			tailnet = ""
		} else if x.outOfSync != nil && x.outOfSync.Load() {
			tailnet = recipe.TailnetOutOfSync
		}
		_ = serverboot.Ready(x.ctx, x.arm, server, serverboot.Tags{K3s: x.k3s, Tailnet: tailnet, HostKey: "ssh-ed25519 AAAAhost"}) // no VM yet
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
		if err != nil || len(p.Changes) != 1 || p.Changes[0].Name != "agents" || p.Changes[0].What[0] != "sku.capacity: 2 -> 3" || len(p.Changes[0].Delta) < 2 {
			x.Errorf("plan of a third agent: %v %+v", err, p)
		}
		if p, err = x.manager(twoPools).Plan(x.Context()); err != nil || len(p.Changes) != 1 || p.Changes[0].Change != "Create" || p.Changes[0].Name != "more" || len(p.Notes) != 0 {
			x.Errorf("plan of a second pool: %v %+v", err, p)
		}
		if p, err = x.manager(strings.Replace(file, "  pools:", "  server: {diskGB: 64}\n  pools:", 1)).Plan(x.Context()); err != nil || len(p.Notes) != 1 || !strings.Contains(p.Notes[0], "another recipe") {
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
		// Nothing is in the way of other identities by the same names.
		x.up(file)
	})
}

func TestAzsimRepairs(t *testing.T) {
	play(t, nil, func(x *site) {
		if err := x.s.AddFault(azsim.Fault{Method: http.MethodPut, Path: "virtualMachineScaleSets/agents$", Count: 1, Effect: "error", Status: 409, Code: "SkuNotAvailable"}); err != nil {
			x.Fatal(err)
		}
		go x.boot()
		r, err := x.manager(file).Up(x.Context(), lifecycle.UpOptions{})
		if workflow.ExitCode(err) != workflow.ExitNeedsPerson || len(r.Failures) != 1 || r.Failures[0].Resource != "scale set agents" || r.Failures[0].Code != "SkuNotAvailable" {
			x.Errorf("exit code %d, %v, %+v", workflow.ExitCode(err), err, r)
		}
		x.up(file)
	})
}

func TestAzsimRefuses(t *testing.T) {
	play(t, func(s *azsim.Server) {
		s.Unregistered, s.TakenStorageAccounts = []string{"Microsoft.Storage"}, []string{"demo1234567"}
	}, func(x *site) {
		_, err := x.manager(file).Up(x.Context(), lifecycle.UpOptions{})
		if workflow.ExitCode(err) != workflow.ExitRefused || !strings.Contains(err.Error(), "namespace Microsoft.Storage") {
			x.Error(err)
		}
	})
	play(t, func(s *azsim.Server) { s.TakenStorageAccounts = []string{"demo1234567"} }, func(x *site) {
		_, err := x.manager(file).Up(x.Context(), lifecycle.UpOptions{})
		if workflow.ExitCode(err) != workflow.ExitRefused || !strings.Contains(err.Error(), "demo1234567") {
			x.Error(err)
		}
	})
	// A Contributor may make everything but role assignments.
	play(t, func(s *azsim.Server) {
		s.Principals = []azsim.Principal{{Name: "contributor", ClientID: azsim.DefaultClientID, Roles: []azsim.Grant{{Role: "Contributor"}}}}
	}, func(x *site) {
		_, err := x.manager(file).Up(x.Context(), lifecycle.UpOptions{})
		if workflow.ExitCode(err) != workflow.ExitRefused || !strings.Contains(err.Error(), "Role Based Access Control Administrator") {
			x.Error(err)
		}
		time.Sleep(10 * time.Minute) // for the group's deletion
		if err := x.arm.Get(x.Context(), computeGroup, "2021-04-01", &object{}); !fleet.Is(err, fleet.KindNotFound) {
			x.Errorf("group is left: %v", err)
		}
	})
}

// What the first up needs at least, beside Owner.
func TestAzsimContributorWhoAssignsRoles(t *testing.T) {
	play(t, func(s *azsim.Server) {
		s.Principals = []azsim.Principal{{Name: "operator", ClientID: azsim.DefaultClientID, Roles: []azsim.Grant{{Role: "Contributor"}, {Role: "Role Based Access Control Administrator"}}}}
	}, func(x *site) {
		go x.boot()
		x.up(file)
		if _, err := x.manager(file).Down(x.ctx, []string{lifecycle.RoleCompute, lifecycle.RoleStorage}); err != nil {
			x.Error(err)
		}
	})
}

func TestAzsimForeignPool(t *testing.T) {
	play(t, nil, func(x *site) {
		tags := object{recipe.TagCluster: "demo", recipe.TagRole: lifecycle.RoleCompute}
		x.send(http.MethodPut, computeGroup, "2021-04-01", object{"location": "westeurope", "tags": tags})
		x.foreign(pool)
		_, err := x.manager(file).Up(x.ctx, lifecycle.UpOptions{})
		if workflow.ExitCode(err) != workflow.ExitRefused || !strings.Contains(err.Error(), "scale set agents exists and was not made by ortet cluster") {
			x.Errorf("up: %v", err)
		}
		if err := x.arm.Get(x.ctx, storageGroup, "2021-04-01", &object{}); !fleet.Is(err, fleet.KindNotFound) {
			x.Errorf("storage group: %v", err)
		}
	})
}

func TestAzsimCanceledDeployment(t *testing.T) {
	play(t, nil, func(x *site) {
		go x.boot()
		const deployment = computeGroup + "/providers/Microsoft.Resources/deployments/ortet"
		go func() { // as soon as it runs
			for x.ctx.Err() == nil {
				if _, err := x.arm.Send(x.ctx, "cancel", http.MethodPost, deployment+"/cancel", "2021-04-01", nil); err == nil {
					return
				}
				time.Sleep(time.Second)
			}
		}()
		_, err := x.manager(file).Up(x.ctx, lifecycle.UpOptions{})
		if workflow.ExitCode(err) != workflow.ExitNeedsPerson || !strings.Contains(err.Error(), "deployment was canceled") {
			x.Errorf("exit code %d, %v", workflow.ExitCode(err), err)
		}
		if s, err := x.manager(file).Status(x.ctx); err != nil || s.Groups[1].Deployment != "Canceled" {
			x.Errorf("status: %v %+v", err, s)
		}
		x.up(file)
	})
}

// What Azure lets a person delete by hand, up makes again.
func TestAzsimRepairsWhatIsDeleted(t *testing.T) {
	const network = computeGroup + "/providers/Microsoft.Network/"
	vm, nic := serverVM, network+"networkInterfaces/server"
	for name, ids := range map[string][]string{
		"pool":   {pool},
		"server": {vm},
		"share":  {storageGroup + "/providers/Microsoft.Storage/storageAccounts/demo1234567/fileServices/default/shares/registry"},
		"network": {pool, vm, nic, network + "virtualNetworks/ortet", network + "networkSecurityGroups/servers", network + "networkSecurityGroups/agents",
			network + "natGateways/nat", network + "publicIPAddresses/server", network + "publicIPAddresses/nat"},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, nil, func(x *site) {
				go x.boot()
				x.up(file)
				for _, id := range ids {
					version := "2024-05-01"
					switch {
					case strings.Contains(id, "Microsoft.Compute"):
						version = "2024-07-01"
					case strings.Contains(id, "Microsoft.Storage"):
						version = "2023-05-01"
					}
					if err := x.arm.Get(x.ctx, fleet.ResourceID(id), version, &object{}); err != nil {
						x.Fatal(err)
					}
					x.send(http.MethodDelete, id, version, nil)
					if err := x.arm.Get(x.ctx, fleet.ResourceID(id), version, &object{}); !fleet.Is(err, fleet.KindNotFound) {
						x.Fatalf("%s is not deleted: %v", id, err)
					}
				}
				if r := x.up(file); !r.Ready {
					x.Errorf("%+v", r)
				}
				if p, err := x.manager(file).Plan(x.ctx); err != nil || len(p.Changes) > 0 {
					x.Errorf("plan after the repair: %v %+v", err, p)
				}
			})
		})
	}
}

// TestHole08: a deployment writes scale sets without an ETag, so it waits for a scale-up of
// others, and leaves the capacity that they set.
func TestHole08DeploymentDuringAScaleUp(t *testing.T) {
	play(t, nil, func(x *site) {
		go x.boot()
		x.up(file)
		op, err := x.arm.Send(x.ctx, "scale", http.MethodPatch, pool, "2024-07-01", object{"sku": object{"name": "Standard_D2s_v5", "tier": "Standard", "capacity": 6}})
		if err != nil {
			x.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		x.up(file)
		if _, err := op.Wait(x.ctx); err != nil {
			x.Errorf("the deployment ended the scale-up: %v", err)
		}
		if set, err := x.cloud.Pool(x.ctx, pool); err != nil || set.Capacity != 6 {
			x.Errorf("capacity %d, %v; want 6", set.Capacity, err)
		}
	})
}

// A size and an image that were set at the scale set stay, and to Azure's what-if too.
func TestAzsimKeepsSizeAndImage(t *testing.T) {
	play(t, nil, func(x *site) {
		go x.boot()
		x.up(file)
		before, err := x.cloud.Pool(x.ctx, pool)
		if err != nil {
			x.Fatal(err)
		}
		i := before.Model.Image
		version := object{"publisher": i.Publisher, "offer": i.Offer, "sku": i.SKU, "version": "0.20260101.1"}
		x.send(http.MethodPatch, pool, "2024-07-01", object{"sku": object{"name": "Standard_D4s_v5", "tier": "Standard", "capacity": 2},
			"properties": object{"virtualMachineProfile": object{"storageProfile": object{"imageReference": version}}}})
		set, err := x.cloud.Pool(x.ctx, pool)
		if err != nil || set.Model.Image.Version != "0.20260101.1" {
			x.Fatalf("%+v %v", set.Model, err)
		}
		kept := func(p *lifecycle.Plan, err error) {
			x.Helper()
			if err != nil || len(p.Changes) > 0 || len(p.Notes) != 2 || !strings.Contains(p.Notes[0], "keeps size Standard_D4s_v5 and image ") {
				x.Errorf("plan: %v %+v", err, p)
			}
		}
		kept(x.manager(file).Plan(x.ctx))
		x.up(file)
		kept(x.manager(file).Plan(x.ctx))
		if now, err := x.cloud.Pool(x.ctx, pool); err != nil || now.Size != "Standard_D4s_v5" || !now.Model.Image.Same(set.Model.Image) {
			x.Errorf("after up: %s, %+v, %v", now.Size, now.Model.Image, err)
		}
	})
}

// Agents keep the model that they have when up changes it: plan, up and status count those,
// and name the command.
func TestAzsimCountsAgentsBehindTheModel(t *testing.T) {
	play(t, nil, func(x *site) {
		go x.boot()
		x.up(file)
		const note = "pool agents: 2 of 2 agents are behind the pool's model; ortet cluster reimage agents --outdated renews them"
		labeled := strings.Replace(file, "count: 2", "count: 2, labels: {a: b}", 1) // it is in customData
		if p, err := x.manager(labeled).Plan(x.ctx); err != nil || len(p.Notes) != 0 {
			x.Errorf("plan before: %v %+v", err, p)
		}
		if r := x.up(labeled); len(r.Notes) != 1 || r.Notes[0] != note {
			x.Errorf("up: %q", r.Notes)
		}
		if p, err := x.manager(labeled).Plan(x.ctx); err != nil || len(p.Notes) != 1 || p.Notes[0] != note {
			x.Errorf("plan: %v %+v", err, p)
		}
		newer := strings.Replace(labeled, "sha256: ea", "sha256: eb", 1)
		if p, err := x.manager(newer).Plan(x.ctx); err != nil || len(p.Notes) != 1 || len(p.Fields) != 1 || p.Fields[0].Field != "spec.artifacts.k3s.sha256" {
			x.Errorf("plan of another k3s: %v %+v", err, p)
		}
		s, err := x.manager(labeled).Status(x.ctx)
		if err != nil || len(s.Notes) != 1 || s.Notes[0] != note || len(s.Pools) != 1 {
			x.Fatalf("status: %v %+v", err, s)
		}
		if p := s.Pools[0]; p.Behind != 2 || p.Instances != 2 || p.Running != 2 || p.States["Succeeded"] != 2 {
			x.Errorf("status: %+v", p)
		}
	})
}

func TestAzsimChecksumIsShown(t *testing.T) {
	const reason = "fetching k3s: checksum of https://m.example/k3s does not match: want 1, got 2"
	play(t, nil, func(x *site) {
		go func() {
			for x.ctx.Err() == nil {
				if _, err := x.arm.Send(x.ctx, "tag", http.MethodPatch, serverVM+"/providers/Microsoft.Resources/tags/default", "2021-04-01",
					object{"operation": "Merge", "properties": object{"tags": object{recipe.TagBoot: reason}}}); err == nil {
					return
				}
				time.Sleep(10 * time.Second)
			}
		}()
		_, err := x.manager(file).Up(x.ctx, lifecycle.UpOptions{})
		if workflow.ExitCode(err) != workflow.ExitNeedsPerson || !strings.Contains(err.Error(), reason) {
			x.Errorf("exit code %d, %v", workflow.ExitCode(err), err)
		}
		if s, err := x.manager(file).Status(x.ctx); err != nil || s.Server == nil || s.Server.Ready || s.Server.Boot != reason {
			x.Errorf("status: %v %+v", err, s)
		}
	})
}

func TestAzsimTwoUps(t *testing.T) {
	play(t, nil, func(x *site) {
		go x.boot()
		ends, followed := make(chan error), atomic.Bool{}
		for range 2 {
			m := x.manager(file)
			m.Report = func(e workflow.Event) {
				if strings.Contains(e.Message, "another deployment is running") {
					followed.Store(true)
				}
			}
			go func() { _, err := m.Up(x.ctx, lifecycle.UpOptions{}); ends <- err }()
		}
		if err := errors.Join(<-ends, <-ends); err != nil || !followed.Load() {
			x.Errorf("followed: %t, %v", followed.Load(), err)
		}
	})
}

// Ctrl-C at any time leaves Azure working; the next up finishes.
func TestAzsimInterrupted(t *testing.T) {
	for after := time.Second; ; after += 23 * time.Second {
		done := false
		play(t, nil, func(x *site) {
			go x.boot()
			ctx, cancel := context.WithTimeout(x.ctx, after)
			defer cancel()
			_, err := x.manager(file).Up(ctx, lifecycle.UpOptions{})
			if done = err == nil; !done && workflow.ExitCode(err) != workflow.ExitInterrupted {
				x.Fatalf("after %s: exit code %d: %v", after, workflow.ExitCode(err), err)
			}
			x.up(file)
		})
		if done {
			return
		}
	}
}

// Down while two ups run ends both, whatever they deploy, and what it deletes stays deleted; then
// up makes all again.
func TestAzsimDownDuringUp(t *testing.T) {
	for after, want := range map[time.Duration]string{
		10 * time.Second: "group demo-compute is being deleted, by ortet cluster down or by hand",
		25 * time.Second: "", // either
		time.Minute:      "deployment was canceled, by ortet cluster down or by hand",
	} {
		play(t, nil, func(x *site) {
			go x.boot()
			end := make(chan error, 2)
			for range 2 {
				go func() { _, err := x.manager(file).Up(x.ctx, lifecycle.UpOptions{}); end <- err }()
			}
			time.Sleep(after)
			late := azsim.Fault{Method: http.MethodPost, Path: "/cancel$", Count: 1, Effect: azsim.EffectReportSuccess} // accepted, without effect
			if err := x.s.AddFault(late); err != nil {
				x.Fatal(err)
			}
			if r, err := x.manager(file).Down(x.ctx, []string{lifecycle.RoleCompute, lifecycle.RoleStorage}); err != nil || len(r.Deleted) != 2 {
				x.Errorf("down after %s: %v %+v", after, err, r)
			}
			for range 2 {
				if err := <-end; workflow.ExitCode(err) != workflow.ExitNeedsPerson || !strings.Contains(err.Error(), cmp.Or(want, ", by ortet cluster down or by hand")) ||
					!strings.Contains(err.Error(), "after ortet cluster down has ended, the same command makes the cluster again") {
					x.Errorf("down after %s: up: %v", after, err)
				}
			}
			x.nothingLeft()
			x.up(file)
		})
	}
}

// Up beside a down is refused, as plan is: it would make again what another operator deletes.
func TestOutcomeUpBesideDownIsRefused(t *testing.T) {
	play(t, nil, func(x *site) {
		go x.boot()
		x.up(file)
		ctx, cancel := context.WithTimeout(x.ctx, 5*time.Second)
		defer cancel()
		if _, err := x.manager(file).Down(ctx, []string{lifecycle.RoleCompute}); workflow.ExitCode(err) != workflow.ExitInterrupted {
			x.Errorf("down: %v", err)
		}
		if s, err := x.manager(file).Status(x.ctx); err != nil || s.Groups[1].State != "Deleting" {
			x.Errorf("status: %v %+v", err, s)
		}
		_, err := x.manager(file).Plan(x.ctx)
		_, upErr := x.manager(file).Up(x.ctx, lifecycle.UpOptions{})
		for _, err := range []error{err, upErr} {
			if workflow.ExitCode(err) != workflow.ExitRefused || !strings.Contains(err.Error(), "wait for that with ortet cluster down") {
				x.Errorf("plan, and up: %v", err)
			}
		}
		if _, err := x.manager(file).Down(x.ctx, []string{lifecycle.RoleCompute}); err != nil {
			x.Errorf("down again: %v", err)
		}
		x.up(file)
	})
}

// An operator with an older file does not put the former k3s back beside an upgrade of another
// operator, whenever each begins.
func TestOutcomeOlderFileBesideAnUpgrade(t *testing.T) {
	t.Parallel()
	older := edited(t, file, map[string]string{"spec.artifacts.version": `"v1.36.3+k3s1"`})
	newer := edited(t, strings.ReplaceAll(file, "ea5647", "0b5647"), map[string]string{"spec.artifacts.version": `"v1.36.4+k3s1"`})
	refusals := map[string]int{}
	for apart := -3 * time.Minute; apart < 4*time.Minute; apart += 13 * time.Second {
		play(t, nil, func(x *site) {
			go x.boot()
			x.up(older)
			begin := func(text string, after time.Duration) chan error {
				end := make(chan error, 1)
				go func() {
					time.Sleep(after)
					_, err := x.manager(text).Up(x.ctx, lifecycle.UpOptions{})
					end <- err
				}()
				return end
			}
			upgrade, other := begin(newer, max(0, -apart)), begin(older, max(0, apart))
			if err := <-upgrade; err != nil {
				x.Errorf("%s: the upgrade: %v", apart, err)
			}
			switch err := <-other; {
			case err == nil:
				refusals["none"]++
			case workflow.ExitCode(err) != workflow.ExitRefused:
				x.Errorf("%s: the older file ends with %v", apart, err)
			case strings.Contains(err.Error(), "ortet cluster plan again"):
				refusals["meanwhile"]++
			case strings.Contains(err.Error(), "k3s cannot go back"):
				refusals["before"]++
			}
			if vm, _ := x.thing(serverVM, "$expand", "userData"); !strings.Contains(string(vm.Properties.UserData), "0b5647") {
				x.Errorf("%s: after an upgrade that ended well, the server has the former k3s", apart)
			}
		})
	}
	if len(refusals) != 3 {
		t.Errorf("refusals: %v; all kinds are to be met", refusals)
	}
	t.Log(refusals)
}

// Machines have no rights by an identity that was made again: all of compute is.
func TestAzsimDeletedIdentity(t *testing.T) {
	play(t, nil, func(x *site) {
		go x.boot()
		x.up(file)
		x.send(http.MethodDelete, storageGroup+"/providers/Microsoft.ManagedIdentity/userAssignedIdentities/ortet-agent", "2023-01-31", nil)
		if _, err := x.manager(file).Up(x.ctx, lifecycle.UpOptions{}); workflow.ExitCode(err) != workflow.ExitRefused || !strings.Contains(err.Error(), "identity ortet-agent was deleted") {
			x.Errorf("up: %v", err)
		}
		if _, err := x.manager(file).Down(x.ctx, []string{lifecycle.RoleCompute}); err != nil {
			x.Error(err)
		}
		x.up(file)
	})
}

func TestAzsimStatusOfNothing(t *testing.T) {
	play(t, nil, func(x *site) {
		if s, err := x.manager(file).Status(x.ctx); err != nil || len(s.Groups) != 2 || s.Groups[0].Exists || s.Server != nil {
			x.Errorf("%v %+v", err, s)
		}
	})
}
