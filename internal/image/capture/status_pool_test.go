package capture_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ortet/ortet/internal/cluster"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/capture"
	"github.com/ortet/ortet/internal/image/plan"
	"github.com/ortet/ortet/internal/journal"
	"github.com/ortet/ortet/internal/journal/journaltest"
)

// A prototyped scale set has a definition with versions, and instances.
type prototyped struct {
	scaleSets
	instances []fleet.Instance
	versions  []fleet.ImageVersion
	fails     error // to list the instances
}

func (p prototyped) Definitions(context.Context, fleet.ResourceID) ([]fleet.Definition, error) {
	return []fleet.Definition{{ID: plan.DefinitionOf(scaleSet("web"))}}, nil
}

func (p prototyped) Versions(context.Context, fleet.ResourceID) ([]fleet.ImageVersion, error) {
	return p.versions, nil
}

func (p prototyped) Instances(context.Context, fleet.ResourceID) ([]fleet.Instance, error) {
	return p.instances, p.fails
}

// A kubernetes has Nodes, and a Lease if somebody holds it.
type kubernetes struct {
	cluster.Cluster
	nodes  []fleet.Node
	fails  error
	lease  cluster.Holding
	leases error
}

func (k kubernetes) Nodes(context.Context) iter.Seq2[fleet.Node, error] {
	return func(yield func(fleet.Node, error) bool) {
		for _, n := range k.nodes {
			if !yield(n, nil) {
				return
			}
		}
		if k.fails != nil {
			yield(fleet.Node{}, k.fails)
		}
	}
}

func (k kubernetes) Holding(context.Context, string) (cluster.Holding, bool, error) {
	return k.lease, k.lease.Holder != "", k.leases
}

// TestStatusOfPool says of which image each instance is, how many run each version, which one is live, and
// which nodes a watch cordoned.
func TestStatusOfPool(t *testing.T) {
	definition := plan.DefinitionOf(scaleSet("web"))
	version := func(name, by string, at int) fleet.ImageVersion {
		return fleet.ImageVersion{ID: definition.Child("versions", name), Name: name, ProvisioningState: plan.Succeeded, Published: time.Unix(int64(at), 0),
			Tags: map[string]string{fleet.TagBuiltFrom: by, fleet.TagBuiltAt: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC).Format(fleet.BuiltAtLayout)}}
	}
	instance := func(id string, image fleet.ImageReference) fleet.Instance {
		return fleet.Instance{ID: scaleSet("web").Child("virtualMachines", id), InstanceID: id, Name: "web_" + id, HostName: "web00000" + id, Power: fleet.PowerRunning, Image: image}
	}
	cordoned := fleet.Node{Name: "web000000", Unschedulable: true, ProviderID: "azure://" + string(scaleSet("web")) + "/virtualMachines/0", Annotations: map[string]string{fleet.AnnotationCordoned: "x"}}
	byOwners := fleet.Node{Name: "web000001", Unschedulable: true, ProviderID: "azure://" + string(scaleSet("web")) + "/virtualMachines/1"}
	world := prototyped{scaleSets: scaleSets{pools: map[string]fleet.Pool{"web": {ID: scaleSet("web"), Name: "web", Model: fleet.Model{Image: fleet.ImageReference{ID: definition.Child("versions", "2026.1.2")}}}}},
		versions: []fleet.ImageVersion{version("2026.1.1", "a", 1), version("2026.1.2", "b", 2)},
		instances: []fleet.Instance{instance("0", fleet.ImageReference{ID: definition.Child("versions", "2026.1.1")}), instance("1", fleet.ImageReference{ID: definition.Child("versions", "2026.1.2")}),
			instance("2", fleet.ImageReference{ID: definition.Child("versions", "2026.1.1")}), instance("3", fleet.ImageReference{Publisher: "Canonical", Offer: "o", SKU: "s", Version: "1"})}}
	s := capture.New(capture.Config{Cloud: world, Cluster: kubernetes{nodes: []fleet.Node{cordoned, byOwners}}, Journal: &journaltest.Memory{}, Now: time.Now})
	all, err := s.Status(t.Context(), nil)
	if err != nil || len(all) != 1 || all[0].Problem != "" || all[0].Capture != nil || all[0].Definition != definition {
		t.Fatalf("%+v, %v", all, err)
	}
	var versions, instances []string
	for _, v := range all[0].Versions {
		versions = append(versions, fmt.Sprint(v.Name, " of ", v.BuiltFrom, " live ", v.InModel, " run by ", v.Instances, v.BuiltAt.Format(" 15:04")))
	}
	for _, i := range all[0].Instances {
		instances = append(instances, fmt.Sprint(i.InstanceID, " ", i.Name, " ", i.HostName, " ", i.Power, " ", i.Image, " latest ", i.LatestModel))
	}
	if want := []string{"2026.1.2 of b live true run by 1 03:04", "2026.1.1 of a live false run by 2 03:04"}; !slices.Equal(versions, want) {
		t.Errorf("versions %q, want %q", versions, want)
	}
	if want := []string{"0 web_0 web000000 running 2026.1.1 latest false", "1 web_1 web000001 running 2026.1.2 latest true", "2 web_2 web000002 running 2026.1.1 latest false",
		"3 web_3 web000003 running Canonical:o:s:1 latest false"}; !slices.Equal(instances, want) {
		t.Errorf("instances %q, want %q", instances, want)
	}
	if !slices.Equal(all[0].Cordoned, []string{"web000000"}) {
		t.Errorf("cordoned by a watch: %q", all[0].Cordoned)
	}
}

// TestStatusOfRun says who works on the pool, and what becomes of a capture that nobody works on.
func TestStatusOfRun(t *testing.T) {
	now := time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)
	definition := plan.DefinitionOf(scaleSet("web"))
	record := func(kind string, end *journal.End) journal.Record {
		state := fmt.Sprintf(`{"pool":%q,"instance":%q,"names":{"Version":%q,"Definition":%q}}`, scaleSet("web"), scaleSet("web").Child("virtualMachines", "0"), definition.Child("versions", "2026.1.2"), definition)
		return journal.Record{Name: "capture-1", Kind: kind, Pool: strings.ToLower(string(scaleSet("web"))), Subject: "web000000", Phase: journal.Forward, Why: "why", Ended: end, Request: []byte(`{"node":"web000000"}`), State: []byte(state),
			Steps: map[string]journal.Step{"stop": {State: journal.Running}, "cordon": {State: journal.Done}, "drain": {State: journal.Done}, "version": {State: journal.Done}, "gallery": {State: journal.Skipped}}}
	}
	for name, c := range map[string]struct {
		record          journal.Record
		lease           cluster.Holding
		leases          error
		holder          string
		resumes         bool
		steps, run, und []string
		why             string
	}{
		"works":              {record: record(capture.Kind, nil), lease: cluster.Holding{Holder: "h", Until: now.Add(time.Second)}, holder: "h", steps: []string{"cordon", "drain", "stop", "version"}, run: []string{"stop"}, und: []string{"uncordon", "start", "delete-version"}, why: "why"},
		"killed":             {record: record(capture.Kind, nil), lease: cluster.Holding{Holder: "h", Until: now}, resumes: true, steps: []string{"cordon", "drain", "stop", "version"}, run: []string{"stop"}, und: []string{"uncordon", "start", "delete-version"}, why: "why"},
		"nobody works on it": {record: record(capture.Kind, nil), resumes: true, steps: []string{"cordon", "drain", "stop", "version"}, run: []string{"stop"}, und: []string{"uncordon", "start", "delete-version"}, why: "why"},
		"who is not known":   {record: record(capture.Kind, nil), leases: errors.New("no"), steps: []string{"cordon", "drain", "stop", "version"}, run: []string{"stop"}, und: []string{"uncordon", "start", "delete-version"}, why: "why"},
		"ended":              {record: record(capture.Kind, &journal.End{Exit: 1}), lease: cluster.Holding{Holder: "h", Until: now.Add(time.Second)}, steps: []string{"cordon", "drain", "stop", "version"}},
		"a rollback":         {record: record("rollback", nil), resumes: true, steps: []string{"cordon", "drain", "stop", "version"}, run: []string{"stop"}, why: "why"},
	} {
		store := &journaltest.Memory{}
		if _, err := store.Save(t.Context(), c.record); err != nil {
			t.Fatal(err)
		}
		world := prototyped{scaleSets: scaleSets{pools: map[string]fleet.Pool{"web": {ID: scaleSet("web"), Name: "web"}}}}
		s := capture.New(capture.Config{Cloud: world, Cluster: kubernetes{lease: c.lease, leases: c.leases}, Journal: store, Now: func() time.Time { return now }})
		all, err := s.Status(t.Context(), []fleet.ResourceID{scaleSet("web")})
		if err != nil || len(all) != 1 || all[0].Capture == nil {
			t.Fatalf("%s: %+v, %v", name, all, err)
		}
		run := all[0].Capture
		if run.Holder != c.holder || run.Resumes != c.resumes || !slices.Equal(run.Steps, c.steps) || !slices.Equal(run.Running, c.run) || !slices.Equal(run.Undo, c.und) ||
			run.Donor != "web000000" || run.Kind != c.record.Kind || run.Why != c.why {
			t.Errorf("%s: %+v", name, run)
		}
	}
}

// TestStatusUnread: a pool that cannot be read says why; where Nodes may not be read, pools that are named can be.
func TestStatusUnread(t *testing.T) {
	web, denied := []fleet.ResourceID{scaleSet("web")}, &fleet.Error{Op: "list nodes", Kind: fleet.KindDenied}
	down := &fleet.Error{Op: "list nodes", Kind: fleet.KindTransient}
	world := prototyped{scaleSets: scaleSets{pools: map[string]fleet.Pool{"web": {ID: scaleSet("web"), Name: "web"}}}}
	broken := world
	broken.fails = errors.New("no instances")
	gone := prototyped{}
	for name, c := range map[string]struct {
		world   prototyped
		nodes   error
		pools   []fleet.ResourceID
		fails   bool
		problem string
		gone    bool
	}{
		"is read":                           {world: world, pools: web},
		"Nodes may not be read":             {world: world, pools: web, nodes: denied},
		"Nodes may not be read, of all":     {world: world, nodes: denied, fails: true},
		"Nodes cannot be read":              {world: world, pools: web, nodes: down, fails: true},
		"its instances cannot be read":      {world: broken, pools: web, problem: "no instances"},
		"there is no scale set of the name": {world: gone, pools: web, problem: "NotFound", gone: true},
	} {
		s := capture.New(capture.Config{Cloud: c.world, Cluster: kubernetes{fails: c.nodes}, Journal: &journaltest.Memory{}, Now: time.Now})
		all, err := s.Status(t.Context(), c.pools)
		if (err != nil) != c.fails || !c.fails && (len(all) != 1 || !strings.Contains(all[0].Problem, c.problem) || c.problem == "" && all[0].Problem != "" || all[0].Gone != c.gone || all[0].Unread != c.gone || all[0].Pool.ID != scaleSet("web")) {
			t.Errorf("%s: %+v, %v", name, all, err)
		}
	}
}
