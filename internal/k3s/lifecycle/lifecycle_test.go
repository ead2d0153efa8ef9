package lifecycle_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ortet/ortet/azsim"
	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/k3s/lifecycle"
	"github.com/ortet/ortet/internal/k3s/recipe"
	"github.com/ortet/ortet/internal/workflow"
)

const noSpot = "The requested size does not support Spot."

// invalid has Azure's validation of a deployment refuse it so.
func (x *site) invalid() {
	x.Helper()
	if err := x.s.AddFault(azsim.Fault{Name: "invalid", Method: http.MethodPost, Path: "deployments/ortet/validate$", Effect: "error", Status: 400,
		Code: "InvalidTemplateDeployment", Message: noSpot}); err != nil {
		x.Fatal(err)
	}
}

// foreign makes a scale set without machines that has no tags.
func (x *site) foreign(id string) {
	x.Helper()
	x.send(http.MethodPut, id, "2024-07-01", object{"location": "westeurope", "sku": object{"name": "Standard_D2s_v5", "capacity": 0}, "properties": object{
		"overprovision": false, "upgradePolicy": object{"mode": "Manual"}, "virtualMachineProfile": object{
			"osProfile":      object{"computerNamePrefix": "agents", "adminUsername": "ortet", "adminPassword": "Corr3ct-horse"},
			"storageProfile": object{"imageReference": object{"publisher": "Canonical", "offer": "ubuntu-24_04-lts", "sku": "server", "version": "latest"}}}}})
}

// A refused up changes nothing: the groups that it made are deleted, those that it found stay.
func TestUpRefuses(t *testing.T) {
	group := func(location string, tags object) func(*site) {
		return func(x *site) {
			x.send(http.MethodPut, computeGroup, "2021-04-01", object{"location": location, "tags": tags})
		}
	}
	for name, c := range map[string]struct {
		set   func(*site)
		there bool
		says  string
	}{
		"foreign group":   {group("westeurope", nil), true, "was not made by ortet"},
		"another cluster": {group("westeurope", object{recipe.TagCluster: "other", recipe.TagRole: "compute"}), true, "belongs to cluster other"},
		"elsewhere":       {group("northeurope", object{recipe.TagCluster: "demo", recipe.TagRole: "compute"}), true, "is in northeurope"},
		"no Spot":         {(*site).invalid, false, noSpot},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, nil, func(x *site) {
				c.set(x)
				_, err := x.manager(file).Up(x.ctx, lifecycle.UpOptions{})
				var refused *workflow.Refused
				if !errors.As(err, &refused) || !strings.Contains(err.Error(), c.says) {
					x.Errorf("up: %v", err)
				}
				time.Sleep(10 * time.Minute) // for the groups' deletion
				if x.read(storageGroup, &object{}) || x.read(computeGroup, &object{}) != c.there {
					x.Error("the groups are not as before")
				}
			})
		})
	}
}

// validating does something just before Azure validates a deployment.
type validating struct {
	azure.Resources
	do func()
}

func (v validating) Send(ctx context.Context, what, method string, id fleet.ResourceID, version string, body any, query ...string) (azure.Operation, error) {
	if id.Name() == "validate" {
		v.do()
	}
	return v.Resources.Send(ctx, what, method, id, version, body, query...)
}

// A refused up deletes the groups that it made, but not one that another up uses, or a person.
func TestRefusedUpLeavesAGroupInUse(t *testing.T) {
	for name, use := range map[string]func(x *site, ctx context.Context) (end chan error){
		"another up": func(x *site, ctx context.Context) chan error {
			end := make(chan error, 1)
			go func() { _, err := x.manager(file).Up(ctx, lifecycle.UpOptions{}); end <- err }()
			for x.deployment() == "" {
				time.Sleep(time.Second)
			}
			return end
		},
		"a person": func(x *site, _ context.Context) chan error {
			x.foreign(serverVM[:strings.LastIndex(serverVM, "/virtualMachines/")] + "/virtualMachineScaleSets/theirs")
			return nil
		},
		"a deployment that has made nothing yet": func(x *site, _ context.Context) chan error {
			x.send(http.MethodPut, computeGroup+"/providers/Microsoft.Resources/deployments/ortet", "2021-04-01", object{"properties": object{"mode": "Incremental",
				"template": object{"$schema": "https://schema.management.azure.com/schemas/2019-04-01/deploymentTemplate.json#", "contentVersion": "1.0.0.0", "resources": []any{}}}})
			return nil
		},
	} {
		play(t, nil, func(x *site) {
			go x.boot()
			ctx, cancel := context.WithTimeout(x.ctx, time.Hour) // a group that is deleted under an up may hold it up for ever
			defer cancel()
			var end chan error
			used, m := false, x.manager(file)
			m.ARM = validating{m.ARM, func() {
				if used || name != "another up" && !x.read(computeGroup, &object{}) {
					return
				}
				used = true
				end = use(x, ctx)
				x.invalid()
			}}
			if _, err := m.Up(ctx, lifecycle.UpOptions{}); workflow.ExitCode(err) != workflow.ExitRefused {
				x.Errorf("%s: up: %v", name, err)
			}
			if end != nil {
				if err := <-end; err != nil {
					x.Errorf("the other up: %v", err)
				}
				if _, there := x.thing(serverVM); !there {
					x.Error("the server is gone")
				}
			}
			if time.Sleep(10 * time.Minute); !x.read(computeGroup, &object{}) {
				x.Errorf("the group that %s uses is deleted", name)
			}
		})
	}
}

// deployment is the state of that of the compute group; "" is none.
func (x *site) deployment() string {
	x.Helper()
	var d struct {
		Properties struct{ ProvisioningState string }
	}
	x.read(computeGroup+"/providers/Microsoft.Resources/deployments/ortet", &d)
	return d.Properties.ProvisioningState
}

// accepted answers Accepted for Running.
type accepted struct{ azure.Resources }

func (a accepted) Get(ctx context.Context, id fleet.ResourceID, version string, into any, query ...string) error {
	var answer json.RawMessage
	if err := a.Resources.Get(ctx, id, version, &answer, query...); err != nil {
		return err
	}
	return json.Unmarshal(bytes.ReplaceAll(answer, []byte(`"Running"`), []byte(`"Accepted"`)), into)
}

// Azure answers Accepted before Running: a deployment that another up began just now is
// waited for, and the server that it makes is not deleted.
func TestAcceptedDeploymentIsUnderWay(t *testing.T) {
	for name, do := range map[string]func(context.Context, *lifecycle.Manager) error{
		"stop": stop,
		"replace server": func(ctx context.Context, m *lifecycle.Manager) error {
			_, err := m.ReplaceServer(ctx, lifecycle.UpOptions{})
			return err
		},
	} {
		play(t, nil, func(x *site) {
			go x.boot()
			x.up(file)
			end := make(chan error, 1)
			go func() {
				_, err := x.manager(strings.Replace(file, "count: 2", "count: 3", 1)).Up(x.ctx, lifecycle.UpOptions{})
				end <- err
			}()
			for x.deployment() != "Running" && len(end) == 0 {
				time.Sleep(100 * time.Millisecond)
			}
			m := x.manager(file)
			m.ARM = accepted{m.ARM}
			if err := do(x.ctx, m); err != nil {
				x.Errorf("%s: %v", name, err)
			}
			if state := x.deployment(); state != "Succeeded" {
				x.Errorf("%s ended beside a deployment that is %s", name, state)
			}
			if err := <-end; name == "replace server" && err != nil {
				x.Errorf("up beside replace server: %v", err)
			}
		})
	}
}

// A change of the machine that goes on is waited for: Azure would end the one operation for
// the other.
func TestStopWaitsForAChangeOfTheServer(t *testing.T) {
	play(t, nil, func(x *site) {
		go x.boot()
		x.up(file)
		op, err := x.arm.Send(x.ctx, "change", http.MethodPatch, serverVM, "2024-07-01", object{"properties": object{"hardwareProfile": object{"vmSize": "Standard_D4s_v5"}}})
		if err != nil {
			x.Fatal(err)
		}
		if err := stop(x.ctx, x.manager(file)); err != nil {
			x.Error(err)
		}
		if _, err := op.Wait(x.ctx); err != nil {
			x.Errorf("stop ended the change: %v", err)
		}
	})
}

func TestDown(t *testing.T) {
	play(t, nil, func(x *site) {
		go x.boot()
		x.up(file)
		compute, both := []string{lifecycle.RoleCompute}, []string{lifecycle.RoleCompute, lifecycle.RoleStorage}
		if _, err := x.manager(file).Down(x.ctx, []string{lifecycle.RoleStorage}); workflow.ExitCode(err) != workflow.ExitRefused {
			x.Errorf("storage under a cluster: %v", err)
		}
		const foreign = computeGroup + "/providers/Microsoft.Compute/virtualMachineScaleSets/foreign"
		x.foreign(foreign)
		if _, err := x.manager(file).Down(x.ctx, both); workflow.ExitCode(err) != workflow.ExitRefused || !strings.Contains(err.Error(), "scale set foreign") {
			x.Errorf("with a foreign scale set: %v", err)
		}
		x.send(http.MethodDelete, foreign, "2024-07-01", nil)
		r, err := x.manager(file).Down(x.ctx, compute)
		if err != nil || !slices.Equal(r.Deleted, []string{"demo-compute"}) || x.read(serverVM, &object{}) {
			x.Fatalf("%+v: %v", r, err)
		}
		if r, err = x.manager(file).Down(x.ctx, compute); err != nil || len(r.Missing) != 1 {
			x.Errorf("again: %+v: %v", r, err)
		}
	})
}

// keeps compares what up keeps of a pool.
func (x *site) keeps(when string, capacity int64, size, version string) {
	x.Helper()
	set, err := x.cloud.Pool(x.ctx, pool)
	if err != nil || set.Capacity != capacity || set.Size != size || set.Model.Image.Version != version {
		x.Errorf("%s: %d of %s by %q, %v; want %d of %s by %q", when, set.Capacity, set.Size, set.Model.Image.Version, err, capacity, size, version)
	}
}

// What was changed at a scale set since the file was applied stays, each setting until the
// file's own changes: a count by kubectl, a size by resize, an image by a capture. All else
// follows the file.
func TestUpKeepsWhatWasSetSince(t *testing.T) {
	play(t, nil, func(x *site) {
		go x.boot()
		x.up(file)
		before, err := x.cloud.Pool(x.ctx, pool)
		if err != nil {
			x.Fatal(err)
		}
		i := before.Model.Image
		x.send(http.MethodPatch, pool, "2024-07-01", object{"sku": object{"name": "Standard_D4s_v5", "tier": "Standard", "capacity": 4},
			"properties": object{"virtualMachineProfile": object{"storageProfile": object{"imageReference": object{
				"publisher": i.Publisher, "offer": i.Offer, "sku": i.SKU, "version": "0.20260101.1"}}}}})
		x.up(file)
		x.keeps("the same file", 4, "Standard_D4s_v5", "0.20260101.1")
		fields := "count: 3, labels: {a: b}"
		for _, step := range []struct{ more, size string }{{"", "Standard_D4s_v5"}, {"", "Standard_D4s_v5"}, {", size: Standard_D8s_v5", "Standard_D8s_v5"}} {
			fields += step.more
			r := x.up(strings.Replace(file, "count: 2", fields, 1))
			x.keeps(fields, 3, step.size, "0.20260101.1")
			if !strings.Contains(fmt.Sprint(r.Notes), "image") || strings.Contains(fmt.Sprint(r.Notes), "keeps size") != (step.more == "") {
				x.Errorf("%s: notes %q", fields, r.Notes)
			}
		}
	})
}

// Of a set whose tag says less, what is unknown stays: nothing that somebody set is undone.
func TestUpKeepsWhatItDoesNotKnow(t *testing.T) {
	for applied, want := range map[string]int64{"count=2": 3, "": 5} {
		play(t, nil, func(x *site) {
			go x.boot()
			x.up(file)
			tags := object{recipe.TagCluster: "demo"}
			if applied != "" {
				tags[recipe.TagApplied] = applied
			}
			set, err := x.cloud.Pool(x.ctx, pool)
			if err != nil {
				x.Fatal(err)
			}
			image := set.Model.Image.Version
			retag := func() {
				x.send(http.MethodPatch, pool+"/providers/Microsoft.Resources/tags/default", "2021-04-01", object{"operation": "Replace", "properties": object{"tags": tags}})
			}
			retag()
			x.send(http.MethodPatch, pool, "2024-07-01", object{"sku": object{"name": "Standard_D4s_v5", "tier": "Standard", "capacity": 5}})
			if r := x.up(file); !strings.Contains(fmt.Sprint(r.Notes), "keeps size Standard_D4s_v5") {
				x.Errorf("%q: notes %q", applied, r.Notes)
			}
			x.keeps("the same file, "+applied, 5, "Standard_D4s_v5", image)
			retag()
			x.up(strings.Replace(file, "count: 2", "count: 3", 1))
			x.keeps("another count, "+applied, want, "Standard_D4s_v5", image) // one that was applied changed
		})
	}
}

func TestRemovedPool(t *testing.T) {
	play(t, nil, func(x *site) {
		go x.boot()
		x.up(file)
		renamed := strings.Replace(file, "name: agents", "name: workers", 1)
		if r := x.up(renamed); len(r.Notes) != 1 || !strings.Contains(r.Notes[0], "up --prune deletes it") || !x.read(pool, &object{}) {
			x.Errorf("notes %q", r.Notes)
		}
		r, err := x.manager(renamed).Up(x.ctx, lifecycle.UpOptions{Prune: true})
		if err != nil || x.read(pool, &object{}) || strings.Contains(fmt.Sprint(r.Notes), "--prune") {
			x.Errorf("pruned: %v %+v", err, r)
		}
	})
}
