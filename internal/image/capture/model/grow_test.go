package model

import (
	"context"
	"errors"
	"iter"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/cluster"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/plan"
	"github.com/ortet/ortet/internal/image/prove"
	"github.com/ortet/ortet/internal/workflow"
)

const (
	set     = fleet.ResourceID("/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachineScaleSets/pool1")
	version = fleet.ResourceID("/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/galleries/ortet/images/pool1/versions/2026.1.2")
	other   = fleet.ResourceID("/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/galleries/ortet/images/pool1/versions/2026.1.1")
)

// TestWishes keeps what earlier captures added, as far as it is of the same version and wish.
func TestWishes(t *testing.T) {
	nodes, at := []plan.NewNode{{Instance: "a"}}, time.Unix(1, 0)
	for name, c := range map[string]struct {
		was  plan.Growth
		n    int64
		want plan.Growth
	}{
		"first":           {plan.Growth{}, 2, plan.Growth{Version: version, Wanted: 2}},
		"another version": {plan.Growth{Version: other, Wanted: 2, Done: true, Nodes: nodes}, 2, plan.Growth{Version: version, Wanted: 2}},
		"came true": {plan.Growth{Version: version, Wanted: 2, Done: true, Nodes: nodes, Capacity: 6, Accepted: at, Adds: 2, Before: []string{"x"}}, 2,
			plan.Growth{Version: version, Wanted: 2, Done: true, Nodes: nodes, Unmet: 6}},
		"more than came true": {plan.Growth{Version: version, Wanted: 2, Done: true, Nodes: nodes, Capacity: 6, Accepted: at}, 3,
			plan.Growth{Version: version, Wanted: 3, Nodes: nodes, Unmet: 6}},
		"fewer than came true": {plan.Growth{Version: version, Wanted: 2, Done: true, Nodes: nodes, Capacity: 6, Accepted: at}, 1,
			plan.Growth{Version: version, Wanted: 1, Done: true, Nodes: nodes, Unmet: 6}},
		"not known whether Azure took it": {plan.Growth{Version: version, Wanted: 2, Capacity: 6, Etag: "e", Adds: 2, Before: []string{"x"}}, 2,
			plan.Growth{Version: version, Wanted: 2, Capacity: 6, Etag: "e", Adds: 2, Before: []string{"x"}}},
	} {
		got := Wishes(c.was, version, c.n)
		if !slices.Equal(got.Nodes, c.want.Nodes) || !slices.Equal(got.Before, c.want.Before) || got.Version != c.want.Version || got.Wanted != c.want.Wanted ||
			got.Done != c.want.Done || got.Capacity != c.want.Capacity || got.Unmet != c.want.Unmet || got.Adds != c.want.Adds || got.Etag != c.want.Etag {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

// made is an instance of the version, with its Node if that says something.
func made(name, state string, node *fleet.Node) prove.Clone {
	return prove.Clone{Node: node, Instance: fleet.Instance{Name: name, ProvisioningState: state, Created: time.Unix(2, 0), Image: fleet.ImageReference{ID: version}}}
}

// TestObserved: new nodes are those that are recorded, and as many as were asked for of the version's
// instances that were not there before, the first ones first.
func TestObserved(t *testing.T) {
	ready, booting := &fleet.Node{Name: "n", Ready: true}, &fleet.Node{Name: "n", NotReadyWhy: "KubeletNotReady"}
	foreign := made("p_9", plan.Succeeded, ready)
	foreign.Instance.Image.ID = other
	early := made("p_10", plan.Succeeded, ready)
	early.Instance.Created, foreign.Instance.Created = time.Unix(1, 0), time.Unix(1, 0)
	rival := made("p_4", plan.Succeeded, nil)
	rival.Rivals = []string{"liar"}
	for name, c := range map[string]struct {
		was    plan.Growth
		clones []prove.Clone
		want   []plan.NewNode
	}{
		"recorded, and Ready by now":  {plan.Growth{Nodes: []plan.NewNode{{Instance: "p_4", Why: "x"}}}, []prove.Clone{foreign, made("p_4", plan.Succeeded, ready)}, []plan.NewNode{{Instance: "p_4", Node: "n", Ready: true}}},
		"was Ready, and booting":      {plan.Growth{Nodes: []plan.NewNode{{Instance: "p_4", Node: "n", Ready: true}}}, []prove.Clone{made("p_4", plan.Succeeded, booting)}, []plan.NewNode{{Instance: "p_4", Node: "n", Ready: true}}},
		"recorded, and deleted":       {plan.Growth{Nodes: []plan.NewNode{{Instance: "p_4"}}}, []prove.Clone{foreign}, []plan.NewNode{{Instance: "p_4", Why: noInstance}}},
		"its Node is not Ready":       {plan.Growth{Adds: 1}, []prove.Clone{made("p_4", plan.Succeeded, booting)}, []plan.NewNode{{Instance: "p_4", Node: "n", Why: "its Node is not Ready (KubeletNotReady)"}}},
		"Failed":                      {plan.Growth{Adds: 1}, []prove.Clone{made("p_4", "Failed", nil)}, []plan.NewNode{{Instance: "p_4", Why: failedInAzure}}},
		"Failed in Azure, with Node":  {plan.Growth{Adds: 1}, []prove.Clone{made("p_4", "Failed", ready)}, []plan.NewNode{{Instance: "p_4", Node: "n", Ready: true}}},
		"another Node claims it":      {plan.Growth{Adds: 1}, []prove.Clone{rival}, []plan.NewNode{{Instance: "p_4", Why: "it has no Node, and node liar reports that it is the instance"}}},
		"no Node":                     {plan.Growth{Adds: 1}, []prove.Clone{made("p_4", "Creating", nil)}, []plan.NewNode{{Instance: "p_4", Why: "it has no Node; its provisioning state is Creating"}}},
		"there before, or no version": {plan.Growth{Adds: 2, Before: []string{"p_1"}}, []prove.Clone{made("p_1", plan.Succeeded, ready), foreign}, nil},
		"more than were asked for":    {plan.Growth{Adds: 1}, []prove.Clone{made("p_9", plan.Succeeded, ready), made("p_11", plan.Succeeded, ready), early}, []plan.NewNode{{Instance: "p_10", Node: "n", Ready: true}}},
		"at one time, by number":      {plan.Growth{Adds: 1}, []prove.Clone{made("p_11", plan.Succeeded, ready), made("p_9", plan.Succeeded, ready)}, []plan.NewNode{{Instance: "p_9", Node: "n", Ready: true}}},
		"one of two is recorded":      {plan.Growth{Adds: 1, Nodes: []plan.NewNode{{Instance: "p_4", Node: "n", Ready: true}}}, []prove.Clone{made("p_4", plan.Succeeded, ready), made("p_5", plan.Succeeded, ready)}, []plan.NewNode{{Instance: "p_4", Node: "n", Ready: true}, {Instance: "p_5", Node: "n", Ready: true}}},
		"none was asked for":          {plan.Growth{}, []prove.Clone{made("p_4", plan.Succeeded, ready)}, nil},
	} {
		c.was.Version = version
		if got := observed(c.was, c.clones); !slices.Equal(got, c.want) {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

// TestLacking names each new node that is not there and Ready, with what to do.
func TestLacking(t *testing.T) {
	for name, c := range map[string]struct {
		g    plan.Growth
		want []string
	}{
		"all are Ready": {plan.Growth{Wanted: 1, Nodes: []plan.NewNode{{Instance: "a", Ready: true}}}, nil},
		"deleted":       {plan.Growth{Wanted: 1, Nodes: []plan.NewNode{{Instance: "a", Why: noInstance}}}, []string{"new node a: the instance does not exist any more; the same command adds another"}},
		"Failed":        {plan.Growth{Wanted: 1, Nodes: []plan.NewNode{{Instance: "a", Why: failedInAzure}}}, []string{"new node a: the instance is Failed in Azure; delete it, then the same command adds another"}},
		"not Ready": {plan.Growth{Wanted: 1, Nodes: []plan.NewNode{{Instance: "a", Why: "why"}}},
			[]string{"new node a: why; ortet nodes --pool p shows why; the same command waits for it again, or adds another once it is deleted"}},
		"request failed":       {plan.Growth{Wanted: 2}, []string{"Azure did not add 2 new nodes (the reason is above); the same command adds what is missing"}},
		"operation failed":     {plan.Growth{Wanted: 1, Accepted: time.Unix(1, 0), Failure: "no quota"}, []string{"Azure did not add 1 new node (no quota); the same command adds what is missing"}},
		"taken without a word": {plan.Growth{Wanted: 1, Accepted: time.Unix(1, 0)}, []string{"Azure did not add 1 new node (or others deleted what came); the same command adds what is missing"}},
	} {
		if got := lacking(c.g, "p", "the same command"); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// A world is a scale set's instances, the cluster's Nodes, and the gallery's versions.
type world struct {
	azure.Cloud
	instances []fleet.Instance
	nodes     []fleet.Node
	versions  []fleet.ImageVersion
	fails     error
}

func (w world) Instances(context.Context, fleet.ResourceID) ([]fleet.Instance, error) {
	return w.instances, w.fails
}

func (w world) Versions(context.Context, fleet.ResourceID) ([]fleet.ImageVersion, error) {
	return w.versions, w.fails
}

type nodes struct {
	cluster.Cluster
	all []fleet.Node
}

func (c nodes) Nodes(context.Context) iter.Seq2[fleet.Node, error] {
	return func(yield func(fleet.Node, error) bool) {
		for _, n := range c.all {
			if !yield(n, nil) {
				return
			}
		}
	}
}

// TestAwaitNewNodes waits for new nodes as long as one may become Ready; a watch needs only their instances.
func TestAwaitNewNodes(t *testing.T) {
	const uuid = "5c5e9f1e-6d5b-4f0e-8a9d-00000000000"
	instance := func(id, state string) fleet.Instance {
		return fleet.Instance{ID: set.Child("virtualMachines", id), Name: "pool1_" + id, HostName: "pool100000" + id, VMID: uuid + id, ProvisioningState: state, Image: fleet.ImageReference{ID: version}}
	}
	node := func(id string, ready bool) fleet.Node {
		return fleet.Node{Name: "pool100000" + id, Ready: ready, SystemUUID: uuid + id, ProviderID: "azure://" + string(set.Child("virtualMachines", id))}
	}
	for name, c := range map[string]struct {
		world   world
		g       plan.Growth
		watched bool
		since   time.Duration // since the capacity was in effect
		want    string        // nodes that are kept, "pool1_4 true"
		waits   bool
		fails   string
		done    bool
	}{
		"all are Ready":                   {world: world{instances: []fleet.Instance{instance("4", plan.Succeeded)}, nodes: []fleet.Node{node("4", true)}}, want: "pool1_4 true", done: true},
		"one boots":                       {world: world{instances: []fleet.Instance{instance("4", plan.Succeeded)}, nodes: []fleet.Node{node("4", false)}}, since: time.Minute, waits: true},
		"one boots for too long":          {world: world{instances: []fleet.Instance{instance("4", plan.Succeeded)}, nodes: []fleet.Node{node("4", false)}}, since: newNodesFor, want: "pool1_4 false", fails: "0 of 1 new node of 2026.1.2 Ready"},
		"one is Failed":                   {world: world{instances: []fleet.Instance{instance("4", "Failed")}}, want: "pool1_4 false", fails: "0 of 1 new node of 2026.1.2 Ready"},
		"none came yet":                   {since: time.Minute, waits: true},
		"none came":                       {since: newNodesFor, fails: "0 of 1 new node of 2026.1.2 Ready"},
		"one is watched":                  {world: world{instances: []fleet.Instance{instance("4", plan.Succeeded)}}, watched: true, want: "pool1_4 false", done: true},
		"one is watched, and gone":        {g: plan.Growth{Nodes: []plan.NewNode{{Instance: "pool1_4"}}}, watched: true, want: "pool1_4 false", fails: "0 of 1 new node of 2026.1.2 Ready"},
		"a recorded one was gone":         {g: plan.Growth{Nodes: []plan.NewNode{{Instance: "pool1_4"}}}, want: "pool1_4 false", fails: "0 of 1 new node of 2026.1.2 Ready"},
		"one of two, in its boot":         {world: world{instances: []fleet.Instance{instance("4", plan.Succeeded), instance("5", plan.Succeeded)}, nodes: []fleet.Node{node("4", true)}}, g: plan.Growth{Wanted: 2, Adds: 2}, since: time.Minute, want: "pool1_4 true", waits: true},
		"a recorded one boots":            {world: world{instances: []fleet.Instance{instance("4", plan.Succeeded)}}, g: plan.Growth{Nodes: []plan.NewNode{{Instance: "pool1_4"}}}, since: time.Minute, want: "pool1_4 false", waits: true},
		"a recorded one and another boot": {world: world{instances: []fleet.Instance{instance("4", plan.Succeeded), instance("5", plan.Succeeded)}}, g: plan.Growth{Wanted: 2, Adds: 1, Nodes: []plan.NewNode{{Instance: "pool1_4"}}}, since: time.Minute, want: "pool1_4 false", waits: true},
		"instances cannot be read":        {world: world{fails: errors.New("no")}, fails: "no"},
		"two of one that is wished":       {world: world{instances: []fleet.Instance{instance("4", plan.Succeeded)}, nodes: []fleet.Node{node("4", true)}}, g: plan.Growth{Adds: 1, Nodes: []plan.NewNode{{Instance: "pool1_3", Ready: true}}}, want: "pool1_3 true, pool1_4 true", done: true},
	} {
		var mu sync.Mutex
		h := plan.Inherited{Growth: c.g}
		h.Growth.Version, h.Growth.Wanted, h.Growth.Accepted = version, max(c.g.Wanted, 1), time.Unix(0, 0)
		if len(c.g.Nodes) == 0 {
			h.Growth.Adds = h.Growth.Wanted
		}
		m := Model{Cloud: c.world, Cluster: nodes{all: c.world.nodes}, Now: func() time.Time { return time.Unix(0, 0).Add(c.since) }, Inherited: workflow.PartOf(&mu, &h),
			Of: func() Target { return Target{Pool: set, Version: version, Watched: c.watched} }}
		w, err := m.awaitNewNodes(t.Context())
		var kept []string
		for _, n := range h.Growth.Nodes {
			kept = append(kept, n.Instance+map[bool]string{true: " true", false: " false"}[n.Ready])
		}
		if (w.RequeueAfter > 0) != c.waits || (err != nil) != (c.fails != "") || err != nil && !strings.Contains(err.Error(), c.fails) ||
			strings.Join(kept, ", ") != c.want || h.Growth.Done != c.done {
			t.Errorf("%s: %v, %v; kept %q, done: %t", name, w, err, kept, h.Growth.Done)
		}
	}
}

// TestStillNamed: new nodes come from the version where the model names it, or its definition of which it
// is the latest.
func TestStillNamed(t *testing.T) {
	there := func(id fleet.ResourceID) fleet.ImageVersion {
		return fleet.ImageVersion{ID: id, Name: id.Name(), ProvisioningState: plan.Succeeded, Regions: []string{"here"}}
	}
	for name, c := range map[string]struct {
		image fleet.ResourceID
		world world
		want  string
	}{
		"named":                     {image: version},
		"latest of the definition":  {image: version.Parent(), world: world{versions: []fleet.ImageVersion{there(version), there(other)}}},
		"another one is the latest": {image: version.Parent(), world: world{versions: []fleet.ImageVersion{there(version), there(version.Parent().Child("versions", "2026.1.3"))}}, want: "no node was added"},
		"another version":           {image: other, world: world{versions: []fleet.ImageVersion{there(version), there(other)}}, want: "versions/2026.1.1 by now, not 2026.1.2, so no node was added"},
		"cannot be read":            {image: version.Parent(), world: world{fails: &fleet.Error{Op: "list versions", Kind: fleet.KindTransient}}, want: "list versions"},
		"all were deleted":          {image: version.Parent(), world: world{fails: &fleet.Error{Op: "list versions", Kind: fleet.KindNotFound}}, want: "no node was added"},
	} {
		var mu sync.Mutex
		m := Model{Cloud: c.world, Inherited: workflow.PartOf(&mu, &plan.Inherited{Growth: plan.Growth{Version: version}})}
		err := m.stillNamed(t.Context(), fleet.Pool{ID: set, Location: "here", Model: fleet.Model{Image: fleet.ImageReference{ID: c.image}}})
		if (err != nil) != (c.want != "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestUnrestored names what only a donor's disk shows of the model that a rollback may have to restore.
func TestUnrestored(t *testing.T) {
	sealed := fleet.Extension{Name: "cse", HasProtectedSettings: true}
	goes := &plan.Original{Extensions: []plan.OriginalExtension{{Extension: sealed}}}
	deleted := &plan.Original{Extensions: []plan.OriginalExtension{{Extension: sealed, Deleted: true}, {Extension: fleet.Extension{Name: "plain"}, Deleted: true}}}
	baked := plan.Request{Bootstrap: plan.BootstrapBaked}
	tagged := func(custom string) []fleet.ImageVersion {
		return []fleet.ImageVersion{{ID: version, Name: version.Name(), ProvisioningState: plan.Succeeded, Tags: map[string]string{fleet.TagCustomData: custom}}}
	}
	for name, c := range map[string]struct {
		request  plan.Request
		versions []fleet.ImageVersion // with the model's
		last     string
		original *plan.Original
		toDelete []string
		want     string
	}{
		"nothing is changed":                   {},
		"baked over an image of others":        {request: baked, want: "customData"},
		"baked over a version with customData": {request: baked, versions: tagged("abc"), want: "customData"},
		"baked over a baked version":           {request: baked, versions: tagged(plan.NoopSHA256)},
		"baked over a version without":         {request: baked, versions: tagged("")},
		"customData was set before":            {last: "abc", want: "customData"},
		"and is named":                         {request: plan.Request{Bootstrap: plan.BootstrapBaked, RestoreLearned: []string{"CUSTOMDATA"}}},
		"extension that goes":                  {original: goes, toDelete: []string{"cse"}, want: "cse"},
		"extension that stays":                 {original: goes},
		"extension that went before":           {original: deleted, want: "cse"},
		"and the model names a version":        {original: deleted, versions: tagged("abc")},
	} {
		var mu sync.Mutex
		m := Model{Changed: workflow.PartOf(&mu, &Changed{ToDelete: c.toDelete}), Inherited: workflow.PartOf(&mu, &plan.Inherited{LastCustomData: c.last, Original: c.original}),
			Of: func() Target { return Target{Request: c.request} }}
		pool := fleet.Pool{ID: set, Model: fleet.Model{Image: fleet.ImageReference{ID: version}}}
		if got := m.Unrestored(plan.Observed{Pool: &pool, Versions: c.versions}); strings.Join(got, " ") != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
