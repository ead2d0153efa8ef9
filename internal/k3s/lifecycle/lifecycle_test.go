package lifecycle_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/ortet/ortet/internal/k3s/lifecycle"
	"github.com/ortet/ortet/internal/k3s/recipe"
	"github.com/ortet/ortet/internal/workflow"
)

const (
	setID    = "/subscriptions/s/resourcegroups/demo-compute/providers/microsoft.compute/virtualmachinescalesets/agents"
	serverID = "/subscriptions/s/resourcegroups/demo-compute/providers/microsoft.compute/virtualmachines/server"
)

func up(t *testing.T, f *fake, text string) *lifecycle.Result {
	t.Helper()
	r, err := manager(t, f, text, nil).Up(t.Context(), lifecycle.UpOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if !r.Ready {
		t.Fatalf("not ready: %+v", r)
	}
	return r
}

func capacity(f *fake) any { return f.objects[setID]["sku"].(object)["capacity"] }

func TestUp(t *testing.T) {
	f := newFake()
	up(t, f, file)
	if want := []string{"put demo-storage", "put demo-compute", "deploy demo-storage", "deploy demo-compute"}; !slices.Equal(f.writes, want) {
		t.Errorf("writes %q, want %q", f.writes, want)
	}
	if g := f.objects["/subscriptions/s/resourcegroups/demo-compute"]; g["location"] != "westeurope" || g["tags"].(object)[recipe.TagCluster] != "demo" {
		t.Errorf("group %v", g)
	}
	if capacity(f) != 2.0 || f.objects[serverID] == nil {
		t.Errorf("capacity %v, server %v", capacity(f), f.objects[serverID])
	}
}

// A pool keeps what it was scaled to, until the file's count changes.
func TestUpAgainKeepsCapacity(t *testing.T) {
	f := newFake()
	up(t, f, file)
	f.objects[setID]["sku"].(object)["capacity"] = 4
	server := f.objects[serverID]
	if r := up(t, f, file); len(r.Notes) > 0 || capacity(f) != 4.0 || f.objects[serverID]["tags"].(object)[recipe.TagRecipe] != server["tags"].(object)[recipe.TagRecipe] {
		t.Errorf("capacity %v, notes %q", capacity(f), r.Notes)
	}
	up(t, f, strings.Replace(file, "count: 2", "count: 3", 1))
	if capacity(f) != 3.0 {
		t.Errorf("capacity %v after the count changed to 3", capacity(f))
	}
}

func TestUpRefuses(t *testing.T) {
	tagged := func(cluster, location string) object {
		return object{"location": location, "tags": object{recipe.TagCluster: cluster, recipe.TagRole: "compute"}}
	}
	const compute = "/subscriptions/s/resourcegroups/demo-compute"
	for name, c := range map[string]struct {
		set  func(*fake)
		says []string
	}{
		"foreign group":       {func(f *fake) { f.objects[compute] = object{"location": "westeurope"} }, []string{"was not made by ortet"}},
		"another cluster":     {func(f *fake) { f.objects[compute] = tagged("other", "westeurope") }, []string{"belongs to cluster other"}},
		"elsewhere and taken": {func(f *fake) { f.objects[compute] = tagged("demo", "eastus"); f.taken = true }, []string{"is in eastus", "already taken"}},
		"unregistered":        {func(f *fake) { f.lacks["Microsoft.Storage"] = true }, []string{"az provider register --wait --namespace Microsoft.Storage"}},
		"no Spot":             {func(f *fake) { f.invalid = "The requested size does not support Spot." }, []string{"does not support Spot"}},
		"no right":            {func(f *fake) { f.invalid = "AuthorizationFailed: The client does not have roleAssignments/write" }, []string{"roleAssignments/write", "Owner"}},
		"foreign resource": {func(f *fake) {
			f.objects[compute] = tagged("demo", "westeurope")
			f.objects[serverID] = object{"id": serverID, "name": "server", "type": "Microsoft.Compute/virtualMachines", "tags": object{}}
		}, []string{"vm server exists and was not made"}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake()
			c.set(f)
			before := len(f.objects)
			_, err := manager(t, f, file, nil).Up(t.Context(), lifecycle.UpOptions{})
			var refused *workflow.Refused
			if !errors.As(err, &refused) {
				t.Fatalf("not refused: %v", err)
			}
			for _, s := range c.says {
				if !strings.Contains(err.Error(), s) {
					t.Errorf("%q is missing in %v", s, err)
				}
			}
			if len(f.objects) != before {
				t.Errorf("objects are left: %v", f.writes)
			}
		})
	}
}

// A refused up deletes the groups that it made, but not one that another up uses.
func TestRefusedUpLeavesAGroupInUse(t *testing.T) {
	f := newFake()
	f.invalid = "The requested size does not support Spot."
	f.runs["demo-compute"] = &run{state: "Running"}
	if _, err := manager(t, f, file, nil).Up(t.Context(), lifecycle.UpOptions{}); workflow.ExitCode(err) != workflow.ExitRefused {
		t.Fatal(err)
	}
	if want := []string{"put demo-storage", "put demo-compute", "delete demo-storage"}; !slices.Equal(f.writes, want) {
		t.Errorf("writes %q, want %q", f.writes, want)
	}
}

func TestFailedResourceIsRepaired(t *testing.T) {
	f := newFake()
	f.fails["Microsoft.Compute/virtualMachineScaleSets"] = "The requested size is not available in westeurope."
	r, err := manager(t, f, file, nil).Up(t.Context(), lifecycle.UpOptions{})
	if workflow.ExitCode(err) != workflow.ExitNeedsPerson {
		t.Fatalf("exit code %d: %v", workflow.ExitCode(err), err)
	}
	if len(r.Failures) != 1 || r.Failures[0].Resource != "scale set agents" || r.Failures[0].Code != "SkuNotAvailable" || !strings.Contains(r.Failures[0].Message, "not available in westeurope") {
		t.Errorf("failures %+v", r.Failures)
	}
	f.fails = nil
	up(t, f, file)
	if f.objects[setID] == nil {
		t.Error("the scale set is still missing")
	}
}

// Stopped at any observation, up is an interruption, and the next one finishes.
func TestInterruptedAnywhere(t *testing.T) {
	for n := 0; n < 25; n += 2 {
		f := newFake()
		ctx, cancel := context.WithCancel(t.Context())
		m := manager(t, &stopping{fake: f, after: n, stop: cancel}, file, nil)
		_, err := m.Up(ctx, lifecycle.UpOptions{})
		cancel()
		if workflow.ExitCode(err) != workflow.ExitInterrupted {
			t.Fatalf("after %d observations: exit code %d: %v", n, workflow.ExitCode(err), err)
		}
		up(t, f, file)
	}
}

func TestTwoUps(t *testing.T) {
	f := newFake()
	var (
		wg     sync.WaitGroup
		errs   [2]error
		events [2][]workflow.Event
	)
	f.hold = true
	started := make(chan struct{}, 8)
	f.onDeploy = func(string) { started <- struct{}{} }
	wg.Go(func() { _, errs[0] = manager(t, f, file, &events[0]).Up(t.Context(), lifecycle.UpOptions{}) })
	<-started
	wg.Go(func() { _, errs[1] = manager(t, f, file, &events[1]).Up(t.Context(), lifecycle.UpOptions{}) })
	wg.Wait()
	if err := errors.Join(errs[:]...); err != nil {
		t.Fatal(err)
	}
	following := slices.ContainsFunc(slices.Concat(events[0], events[1]), func(e workflow.Event) bool { return strings.Contains(e.Message, "another deployment is running") })
	if !following {
		t.Error("neither followed the other")
	}
}

// Azure answers Accepted before Running: a deployment that another up began just now is
// waited for, and the server that it makes is not deleted.
func TestAcceptedDeploymentIsUnderWay(t *testing.T) {
	for name, do := range map[string]func(*lifecycle.Manager) error{
		"stop": func(m *lifecycle.Manager) error { _, err := m.Stop(t.Context()); return err },
		"replace server": func(m *lifecycle.Manager) error {
			_, err := m.ReplaceServer(t.Context(), lifecycle.UpOptions{})
			return err
		},
	} {
		f := newFake()
		up(t, f, file)
		f.objects["/subscriptions/s/resourcegroups/demo-storage/providers/microsoft.compute/disks/state"]["managedBy"] = serverID
		f.writes, f.runs["demo-compute"] = nil, &run{id: 99, state: "Accepted"}
		if err := do(manager(t, f, file, nil)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if r := f.runs["demo-compute"]; !r.ended() || slices.Contains(f.writes, "delete server") {
			t.Errorf("%s: deployment %s; writes %v", name, r.state, f.writes)
		}
	}
}

// A machine whose creation goes on is not stopped: Azure would end the one operation for the
// other.
func TestStopWaitsForACreation(t *testing.T) {
	f := newFake()
	up(t, f, file)
	f.objects[serverID]["properties"].(object)["provisioningState"] = "Creating"
	f.creating = 3
	if _, err := manager(t, f, file, nil).Stop(t.Context()); err != nil || f.stopped != "Succeeded" {
		t.Errorf("%v, deallocated in state %q", err, f.stopped)
	}
}

func TestDown(t *testing.T) {
	f := newFake()
	up(t, f, file)
	r, err := manager(t, f, file, nil).Down(t.Context(), []string{lifecycle.RoleCompute})
	if err != nil || !slices.Equal(r.Deleted, []string{"demo-compute"}) || f.objects[serverID] != nil {
		t.Fatalf("%+v: %v", r, err)
	}
	if r, err = manager(t, f, file, nil).Down(t.Context(), []string{lifecycle.RoleCompute}); err != nil || len(r.Missing) != 1 {
		t.Errorf("again: %+v: %v", r, err)
	}
	up(t, f, file)
	if _, err := manager(t, f, file, nil).Down(t.Context(), []string{lifecycle.RoleStorage}); workflow.ExitCode(err) != workflow.ExitRefused {
		t.Errorf("storage under a cluster: %v", err)
	}
	f.objects[serverID+"2"] = object{"id": serverID + "2", "name": "server2", "type": "Microsoft.Compute/virtualMachines", "tags": object{}}
	both := []string{lifecycle.RoleCompute, lifecycle.RoleStorage}
	if _, err := manager(t, f, file, nil).Down(t.Context(), both); workflow.ExitCode(err) != workflow.ExitRefused || !strings.Contains(err.Error(), "server2") {
		t.Errorf("with a foreign machine: %v", err)
	}
	delete(f.objects, serverID+"2")
	if _, err := manager(t, f, file, nil).Down(t.Context(), both); err != nil || len(f.objects) != 0 {
		t.Errorf("all: %v, left %v", err, f.objects)
	}
}

// What was changed at a scale set since the file was applied stays, each setting until the
// file's own changes: a size by resize, an image by a capture. All else follows the file.
func TestUpKeepsWhatWasSetSince(t *testing.T) {
	const (
		group   = "/subscriptions/5ca1ab1e-0000-4000-8000-000000000002/resourceGroups/images"
		version = group + "/providers/Microsoft.Compute/galleries/g/images/agents/versions/2026.11.21"
		other   = group + "/providers/Microsoft.Compute/galleries/g/images/others"
	)
	profile := func(f *fake) object { return f.objects[setID]["properties"].(object)["virtualMachineProfile"].(object) }
	image := func(f *fake) any { return profile(f)["storageProfile"].(object)["imageReference"].(object)["id"] }
	size := func(f *fake) any { return f.objects[setID]["sku"].(object)["name"] }
	changed := func(f *fake) { // by resize, and by a capture with --bootstrap=baked
		f.objects[setID]["sku"].(object)["name"] = "Standard_D4s_v5"
		profile(f)["storageProfile"] = object{"imageReference": object{"id": version}}
		delete(profile(f)["osProfile"].(object), "customData")
	}
	f := newFake()
	up(t, f, file)
	changed(f)
	before := profile(f)["osProfile"]
	labeled := strings.Replace(file, "count: 2", "count: 3, labels: {a: b}", 1)
	r := up(t, f, labeled)
	if size(f) != "Standard_D4s_v5" || image(f) != version || capacity(f) != 3.0 || profile(f)["osProfile"].(object)["customData"] == nil {
		t.Errorf("size %v, image %v, capacity %v, osProfile %v, was %v", size(f), image(f), capacity(f), profile(f)["osProfile"], before)
	}
	if want := "pool agents keeps size Standard_D4s_v5 and image agents/2026.11.21,"; len(r.Notes) != 1 || !strings.Contains(r.Notes[0], want) {
		t.Errorf("notes %q, want %q", r.Notes, want)
	}
	// The first did not make them the file's.
	if r := up(t, f, labeled); len(r.Notes) != 1 || size(f) != "Standard_D4s_v5" || image(f) != version {
		t.Errorf("again: size %v, image %v, notes %q", size(f), image(f), r.Notes)
	}
	sized := strings.Replace(labeled, "count: 3", "count: 3, size: Standard_D8s_v5", 1)
	if r := up(t, f, sized); size(f) != "Standard_D8s_v5" || image(f) != version || len(r.Notes) != 1 || strings.Contains(r.Notes[0], "keeps size") {
		t.Errorf("the file's size changed: size %v, image %v, notes %q", size(f), image(f), r.Notes)
	}
	if r := up(t, f, strings.Replace(sized, "count: 3", "count: 3, image: {id: "+other+"}", 1)); image(f) != other || len(r.Notes) != 0 {
		t.Errorf("the file's image changed: image %v, notes %q", image(f), r.Notes)
	}
}

// Of a set whose tag says less, what is unknown stays: nothing that somebody set is undone.
func TestUpKeepsWhatItDoesNotKnow(t *testing.T) {
	for name, tags := range map[string]object{
		"the count alone": {recipe.TagCluster: "demo", recipe.TagApplied: "count=2"},
		"nothing":         {recipe.TagCluster: "demo"},
	} {
		f := newFake()
		up(t, f, file)
		set := f.objects[setID]
		set["tags"], set["sku"] = tags, object{"name": "Standard_D4s_v5", "capacity": 5}
		r := up(t, f, file)
		if s := f.objects[setID]["sku"].(object); s["name"] != "Standard_D4s_v5" || capacity(f) != 5.0 || len(r.Notes) != 1 {
			t.Errorf("%s: sku %v, notes %q", name, s, r.Notes)
		}
		f.objects[setID]["tags"] = tags
		want := 5.0
		if len(tags) > 1 {
			want = 3 // its count was applied, and changed
		}
		if up(t, f, strings.Replace(file, "count: 2", "count: 3", 1)); capacity(f) != want {
			t.Errorf("%s, the file's count changed: capacity %v, want %v", name, capacity(f), want)
		}
	}
}

func TestRemovedPool(t *testing.T) {
	f := newFake()
	up(t, f, file)
	profile := f.objects[setID]["properties"].(object)["virtualMachineProfile"].(object)
	profile["storageProfile"] = object{"imageReference": object{"id": "/x/images/agents/versions/1.0.0"}} // it was captured
	renamed := strings.Replace(file, "name: agents", "name: workers", 1)
	if r := up(t, f, renamed); len(r.Notes) != 1 || !strings.Contains(r.Notes[0], "up --prune deletes it") || f.objects[setID] == nil {
		t.Errorf("notes %q, set %v", r.Notes, f.objects[setID])
	}
	r, err := manager(t, f, renamed, nil).Up(t.Context(), lifecycle.UpOptions{Prune: true})
	if err != nil || f.objects[setID] != nil || len(f.objects) == 0 || strings.Contains(strings.Join(r.Notes, " "), "--prune") {
		t.Errorf("pruned: %v %+v, set %v", err, r, f.objects[setID])
	}
}
