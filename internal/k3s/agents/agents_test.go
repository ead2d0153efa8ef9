package agents_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ortet/ortet/azsim"
	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/azure/arm"
	"github.com/ortet/ortet/internal/cluster"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/k3s/agents"
	"github.com/ortet/ortet/internal/k3s/recipe"
	"github.com/ortet/ortet/test/conditional"
)

const group = "/subscriptions/" + azsim.DefaultSubscription + "/resourceGroups/" + azsim.DefaultResourceGroup

// A world is azsim with a pool of machines, and Nodes that come and go with them.
type world struct {
	t       *testing.T
	control *agents.Control
	lines   []string

	mu       sync.Mutex
	nodes    map[string]*fleet.Node
	boots    int
	reimages int
	drained  []string
	blocked  string // a Node whose drain is blocked
	drains   func() // called once, at the first drain
	pool     fleet.ResourceID
	arm      azure.Resources
	slow     time.Duration // from a restart or start in Azure to the boot that the Node shows
	sick     string        // a Node that does not become Ready when its machine boots
}

// play runs a test in virtual time, with a pool of n machines.
func play(t *testing.T, n int, test func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, nodes: map[string]*fleet.Node{}, pool: group + "/providers/Microsoft.Compute/virtualMachineScaleSets/agents"}
		s := &azsim.Server{OnRequest: w.request}
		defer s.Close()
		o := s.ClientOptions()
		options := arm.Options{Cloud: o.Cloud, Credential: s.Credential(""), Transport: o.Transport, Version: "test"}
		client, err := arm.NewResources(options)
		if err != nil {
			t.Fatal(err)
		}
		cloud, err := arm.New(options)
		if err != nil {
			t.Fatal(err)
		}
		w.arm = client
		unconditional := func(verb string) { t.Errorf("%s without an ETag: others' changes would be lost", verb) }
		w.control = &agents.Control{ARM: client, Cloud: conditional.Cloud(cloud, unconditional), Nodes: w, Group: group, DrainTimeout: time.Minute, ReadyTimeout: 5 * time.Minute, Now: time.Now,
			Report: func(machine, what string) {
				w.mu.Lock()
				defer w.mu.Unlock()
				w.lines = append(w.lines, machine+": "+what)
			}}
		var body map[string]any
		if err := json.Unmarshal([]byte(`{"location": "westeurope", "sku": {"name": "Standard_D2s_v5", "capacity": 0}, "properties": {"overprovision": false, "upgradePolicy": {"mode": "Manual"},
			"virtualMachineProfile": {"osProfile": {"computerNamePrefix": "agents", "adminUsername": "ortet", "adminPassword": "Corr3ct-horse"},
			"storageProfile": {"imageReference": {"publisher": "Canonical", "offer": "ubuntu-24_04-lts", "sku": "server", "version": "latest"}}}}}`), &body); err != nil {
			t.Fatal(err)
		}
		body["sku"].(map[string]any)["capacity"] = n
		op, err := client.Send(t.Context(), "create", http.MethodPut, w.pool, "2024-07-01", body)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := op.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, m := range w.machines() {
			w.boot(m.Node)
		}
		test(w)
	})
}

// request has the Nodes follow what is done to machines: a restart is another boot, a
// reimage or a start without a Node another Node, and new machines join some minutes later.
func (w *world) request(r azsim.Request) {
	if r.Status >= 300 {
		return
	}
	path, below := strings.CutPrefix(r.Path, strings.ToLower(string(w.pool)))
	switch instance, action, one := strings.Cut(strings.TrimPrefix(path, "/virtualmachines/"), "/"); {
	case !below:
	case r.Method == http.MethodPost && one && action == "restart" && w.slow > 0:
		go func() {
			time.Sleep(w.slow)
			w.boot(fmt.Sprintf("agents%06s", instance))
		}()
	case r.Method == http.MethodPost && one && (action == "restart" || action == "reimage"):
		w.boot(fmt.Sprintf("agents%06s", instance))
		w.reimages += strings.Count(action, "reimage")
	case r.Method == http.MethodPost && instance != "" && action == "start":
		if n := fmt.Sprintf("agents%06s", instance); !slices.Contains(w.names(), n) {
			w.boot(n)
		}
	case r.Method == http.MethodPost && path == "/start" && w.slow > 0:
		go func() {
			time.Sleep(w.slow)
			for _, n := range w.names() {
				w.boot(n)
			}
		}()
	case r.Method == http.MethodPost && (path == "/start" || path == "/manualupgrade"):
		for _, n := range w.names() {
			w.boot(n)
		}
	case r.Method == http.MethodPatch && path == "":
		go func() {
			time.Sleep(4 * time.Minute)
			for _, m := range w.machines() {
				if !slices.Contains(w.names(), m.Node) {
					w.boot(m.Node)
				}
			}
		}()
	}
}

func (w *world) boot(node string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.boots++
	n := w.nodes[node]
	if n == nil {
		n = &fleet.Node{Name: node, UID: fmt.Sprint("uid-", w.boots), Ready: true, Created: time.Now()}
		w.nodes[node] = n
	}
	n.BootID, n.Ready = fmt.Sprint("boot-", w.boots), node != w.sick
}

func (w *world) machines() []agents.Machine {
	w.t.Helper()
	pool, err := w.control.Pool(w.t.Context(), "agents")
	if err != nil {
		w.t.Fatal(err)
	}
	list, err := w.control.Machines(w.t.Context(), pool.ID)
	if err != nil {
		w.t.Fatal(err)
	}
	return list
}

func (w *world) names() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []string
	for n := range w.nodes {
		out = append(out, n)
	}
	slices.Sort(out)
	return out
}

// wantNodes wants the Nodes to be just those of the machines, all schedulable.
func (w *world) wantNodes(want int) {
	w.t.Helper()
	var machines []string
	for _, m := range w.machines() {
		machines = append(machines, m.Node)
	}
	if got := w.names(); !slices.Equal(got, machines) || len(got) != want {
		w.t.Errorf("Nodes %v, machines %v; want the same %d", got, machines, want)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, n := range w.nodes {
		if n.Unschedulable || n.Annotations[agents.AnnotationCordon] != "" {
			w.t.Errorf("node %s is cordoned in the end: %+v", n.Name, n)
		}
	}
}

var _ agents.Nodes = (*world)(nil)

// Now is the API server's time: that of the Nodes.
func (w *world) Now() time.Time { return time.Now() }

func (w *world) Node(_ context.Context, name string) (fleet.Node, error) {
	machines := w.machines()
	w.mu.Lock()
	defer w.mu.Unlock()
	if n := w.nodes[name]; n != nil {
		is := *n
		for _, m := range machines {
			if m.Node == name && is.SystemUUID == "" { // else the test's
				is.SystemUUID = m.VMID
			}
		}
		return is, nil
	}
	return fleet.Node{}, &fleet.Error{Op: "read node", Kind: fleet.KindNotFound}
}

func (w *world) Nodes(ctx context.Context) iter.Seq2[fleet.Node, error] {
	return func(yield func(fleet.Node, error) bool) {
		w.mu.Lock()
		names := slices.Sorted(maps.Keys(w.nodes))
		w.mu.Unlock()
		for _, name := range names {
			if n, err := w.Node(ctx, name); err == nil && !yield(n, nil) {
				return
			}
		}
	}
}

func (w *world) Annotate(_ context.Context, name string, annotations map[string]*string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := w.nodes[name]
	next := map[string]string{}
	for k, v := range n.Annotations {
		next[k] = v
	}
	for k, v := range annotations {
		delete(next, k)
		if v != nil {
			next[k] = *v
		}
	}
	n.Annotations = next
	return nil
}

func (w *world) SetUnschedulable(_ context.Context, name string, unschedulable bool) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.nodes[name].Unschedulable = unschedulable
	return nil
}

func (w *world) Drain(_ context.Context, name string, o cluster.DrainOptions, report func(cluster.DrainEvent)) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.drains != nil {
		go w.drains()
		w.drains = nil
	}
	if name == w.blocked && !o.Force {
		return &fleet.Error{Op: "drain", Resource: "node " + name, Kind: fleet.KindBlocked, Err: errors.New("PodDisruptionBudget default/web")}
	}
	report(cluster.DrainEvent{Pod: "default/web", What: "evicted"})
	w.drained = append(w.drained, name)
	return nil
}

func (w *world) Forget(_ context.Context, name, uid string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if n := w.nodes[name]; n != nil && n.UID == uid {
		delete(w.nodes, name)
	}
	return nil
}

// A machine is neither stopped nor deleted while its Node may be another, which would not be drained.
func TestHoleMachineOfAnotherNode(t *testing.T) {
	for name, c := range map[string]struct {
		change func(w *world)
		want   string
	}{
		"a rival": {func(w *world) {
			w.nodes["liar"] = &fleet.Node{Name: "liar", UID: "liar", Ready: true, SystemUUID: w.machines()[0].VMID}
		}, "node liar reports that it is this machine"},
		"under another name": {func(w *world) {
			n := *w.nodes["agents000000"]
			n.Name, n.SystemUUID = "agent-a", w.machines()[0].VMID
			w.nodes[n.Name] = &n
			delete(w.nodes, "agents000000")
		}, "node agent-a reports that it is this machine"},
	} {
		play(t, 2, func(w *world) {
			c.change(w)
			err := w.control.Replace(w.t.Context(), "agents000000")
			if !fleet.Is(err, fleet.KindInvalid) || !strings.Contains(err.Error(), c.want) || len(w.drained) > 0 || len(w.machines()) != 2 {
				t.Errorf("%s: %v, drained %v, machines %+v", name, err, w.drained, w.machines())
			}
			if err := w.control.Replace(w.t.Context(), "agents000001"); err != nil {
				t.Errorf("%s: of the machine beside it: %v", name, err)
			}
		})
	}
}

const earlier = "6c5e9f1e-6d5b-4f0e-8a9d-0c1b2a3f4e5d" // no machine's vmId

// A Node that claims one machine of a pool holds up that machine, and no other.
func TestHoleLiarHoldsUpPool(t *testing.T) {
	for of, claims := range map[string]func(w *world, victim agents.Machine){
		"liar": func(w *world, victim agents.Machine) {
			w.nodes["liar"] = &fleet.Node{Name: "liar", UID: "liar", Ready: true, SystemUUID: victim.VMID}
		},
		"an earlier machine": func(w *world, victim agents.Machine) { w.nodes[victim.Node].SystemUUID = earlier },
	} {
		for what, act := range map[string]func(w *world) error{
			"scale":   func(w *world) error { return w.control.Scale(w.t.Context(), "agents", 1) },
			"stop":    func(w *world) error { return w.control.Stop(w.t.Context(), "agents") },
			"reimage": func(w *world) error { return w.control.Reimage(w.t.Context(), "agents", 1, false) },
			"chaos":   func(w *world) error { return w.control.Chaos(w.t.Context(), "agents", func(int, func(i, j int)) {}) },
		} {
			play(t, 2, func(w *world) {
				victim, other := w.machines()[0], w.machines()[1]
				if what == "scale" { // the newest would go first
					victim, other = other, victim
				}
				claims(w, victim)
				was, boots := *w.nodes[victim.Node], w.boots
				err := act(w)
				if refused := fleet.Is(err, fleet.KindInvalid); refused != (what != "scale") || !refused && err != nil {
					t.Errorf("%s beside %s: %v", what, of, err)
				}
				left := map[string]string{}
				for _, m := range w.machines() {
					left[m.Node] = string(m.Power)
				}
				is := w.nodes[victim.Node]
				if left[victim.Node] != "running" || is == nil || is.UID != was.UID || what == "chaos" && is.BootID != was.BootID || is.Unschedulable {
					t.Errorf("%s beside %s: the machine that is claimed is %q, its Node %+v, before %+v", what, of, left[victim.Node], is, was)
				}
				if done := map[string]bool{"scale": left[other.Node] == "", "stop": left[other.Node] == "deallocated", "reimage": w.reimages == 1, "chaos": w.boots == boots+1}; !done[what] {
					t.Errorf("%s beside %s: nothing was done to the other: %v", what, of, left)
				}
			})
		}
	}
}

// A Node of an earlier machine does not stand for one that did not come up.
func TestHoleNodeOfAnEarlierMachineIsNotReady(t *testing.T) {
	play(t, 1, func(w *world) {
		if err := w.control.Stop(w.t.Context(), "agents"); err != nil {
			t.Fatal(err)
		}
		w.nodes["agents000000"].SystemUUID = earlier
		if err := w.control.Start(w.t.Context(), "agents"); !fleet.Is(err, fleet.KindTimedOut) || !strings.Contains(err.Error(), "an earlier machine's") {
			t.Errorf("start: %v", err)
		}
	})
}

func TestScale(t *testing.T) {
	play(t, 2, func(w *world) {
		if err := w.control.Scale(w.t.Context(), "agents", 4); err != nil {
			t.Fatal(err)
		}
		w.wantNodes(4)
		w.mu.Lock()
		w.nodes["agents000001"].Ready = false // the least useful goes first, then the newest
		w.mu.Unlock()
		if err := w.control.Scale(w.t.Context(), "agents", 2); err != nil {
			t.Fatal(err)
		}
		w.wantNodes(2)
		if got, want := w.names(), []string{"agents000000", "agents000002"}; !slices.Equal(got, want) {
			t.Errorf("left are %v, want %v", got, want)
		}
		if want := []string{"agents000003"}; !slices.Equal(w.drained, want) {
			t.Errorf("drained %v, want %v: of a Node that is not Ready nothing can be drained", w.drained, want)
		}
	})
}

func TestScaleInIsBlocked(t *testing.T) {
	play(t, 2, func(w *world) {
		w.blocked = "agents000001"
		err := w.control.Scale(w.t.Context(), "agents", 1)
		if !fleet.Is(err, fleet.KindBlocked) || !strings.Contains(err.Error(), "PodDisruptionBudget default/web") {
			t.Fatalf("scale-in past a budget: %v", err)
		}
		if n := len(w.machines()); n != 2 {
			t.Errorf("%d machines, want both", n)
		}
		w.blocked = ""
		if err := w.control.Scale(w.t.Context(), "agents", 2); err != nil {
			t.Fatal(err)
		}
		w.wantNodes(2) // who stays with two machines has both in service
		w.blocked = "agents000001"
		if err := w.control.Scale(w.t.Context(), "agents", 1); !fleet.Is(err, fleet.KindBlocked) {
			t.Fatalf("scale-in past a budget: %v", err)
		}
		w.blocked = ""
		if err := w.control.Scale(w.t.Context(), "agents", 1); err != nil {
			t.Fatal(err)
		}
		if got := w.names(); !slices.Equal(got, []string{"agents000000"}) {
			t.Errorf("left is %v: the machine that was cordoned already has to go", got)
		}
	})
}

func TestReimageGoesOn(t *testing.T) {
	play(t, 3, func(w *world) {
		before := map[string]string{}
		for name, n := range w.nodes {
			before[name] = n.UID
		}
		w.blocked = "agents000001"
		if err := w.control.Reimage(w.t.Context(), "agents", 1, false); !fleet.Is(err, fleet.KindBlocked) {
			t.Fatalf("reimage past a budget: %v", err)
		}
		if w.nodes["agents000000"].UID == before["agents000000"] || w.nodes["agents000002"].UID != before["agents000002"] {
			t.Fatal("a serial reimage has to be done with the first, and not to begin after the failed one")
		}
		first := w.nodes["agents000000"].UID
		w.blocked = ""
		if err := w.control.Reimage(w.t.Context(), "agents", 2, false); err != nil {
			t.Fatal(err)
		}
		if w.nodes["agents000000"].UID != first {
			t.Error("the machine that was done was reimaged again")
		}
		for _, name := range []string{"agents000001", "agents000002"} {
			if w.nodes[name].UID == before[name] {
				t.Errorf("%s was not reimaged", name)
			}
		}
		w.wantNodes(3)
		pool, err := w.control.Pool(w.t.Context(), "agents")
		if err != nil || pool.Tags[agents.TagReimage] != "" {
			t.Errorf("tags in the end: %v, %v", pool.Tags, err)
		}
	})
}

// A machine behind the model gets it by an upgrade; a reimage would keep its image's version.
// One that has it, or had no new disk of the upgrade, is reimaged.
func TestReimageBringsTheModelsImage(t *testing.T) {
	play(t, 2, func(w *world) {
		change := func(body string) {
			t.Helper()
			op, err := w.arm.Send(w.t.Context(), "change", http.MethodPatch, w.pool, "2024-07-01", json.RawMessage(body))
			if err == nil {
				_, err = op.Wait(w.t.Context())
			}
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(5 * time.Minute) // until the PATCH's machines have joined
		}
		disks := map[fleet.ResourceID]bool{}
		reimage := func(when, version string, reimages int) {
			t.Helper()
			for _, m := range w.machines() {
				disks[m.OSDisk] = true
			}
			before := w.reimages
			if err := w.control.Reimage(w.t.Context(), "agents", 2, false); err != nil {
				t.Fatal(err)
			}
			for _, m := range w.machines() {
				if m.Image.ExactVersion != version || !m.LatestModelApplied || disks[m.OSDisk] {
					t.Errorf("%s: %s has image %s, latest model %t, a new disk %t; want image %s",
						when, m.Name, m.Image.ExactVersion, m.LatestModelApplied, !disks[m.OSDisk], version)
				}
			}
			if n := w.reimages - before; n != reimages {
				t.Errorf("%s: %d reimages, want %d", when, n, reimages)
			}
			w.wantNodes(2)
		}
		const pinned = "24.04.202501010"
		change(`{"properties": {"virtualMachineProfile": {"storageProfile": {"imageReference": {"version": "` + pinned + `"}}}}}`)
		reimage("another image", pinned, 0)
		reimage("the model's image", pinned, 2)
		change(`{"sku": {"name": "Standard_D4s_v5"}}`)
		reimage("another size", pinned, 2)
	})
}

// With outdated only machines behind the model are reimaged. Interrupted anywhere, the same
// call goes on, also with a machine that has the model already and not yet its new disk.
func TestReimageOutdated(t *testing.T) { reimagesOutdated(t, 0) }

// reimagesOutdated has the laptop's clock ahead of all others.
func reimagesOutdated(t *testing.T, ahead time.Duration) {
	t.Helper()
	interrupted := 0
	for after := 10 * time.Second; ; after += 20 * time.Second {
		done := false
		play(t, 2, func(w *world) {
			w.control.Now = func() time.Time { return time.Now().Add(ahead) }
			time.Sleep(time.Hour)
			body := json.RawMessage(`{"sku": {"name": "Standard_D4s_v5", "capacity": 3}}`)
			op, err := w.arm.Send(w.t.Context(), "change", http.MethodPatch, w.pool, "2024-07-01", body)
			if err == nil {
				_, err = op.Wait(w.t.Context())
			}
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Hour) // until the third, which has the model, has joined
			disks := map[string]fleet.ResourceID{}
			for _, m := range w.machines() {
				disks[m.Name] = m.OSDisk
			}
			ctx, cancel := context.WithTimeout(w.t.Context(), after)
			defer cancel()
			if done = w.control.Reimage(ctx, "agents", 1, true) == nil; !done {
				interrupted++
				if err := w.control.Reimage(w.t.Context(), "agents", 1, true); err != nil {
					t.Fatalf("after %s: %v", after, err)
				}
			}
			for _, m := range w.machines() {
				if renewed := m.OSDisk != disks[m.Name]; !m.LatestModelApplied || m.Power != "running" || renewed != (m.Name != "agents_2") {
					t.Errorf("after %s: %s is %s, has the latest model %t, a new disk %t", after, m.Name, m.Power, m.LatestModelApplied, renewed)
				}
			}
			w.wantNodes(3)
			if pool, err := w.control.Pool(w.t.Context(), "agents"); err != nil || pool.Tags[agents.TagReimage] != "" {
				t.Errorf("after %s: tags in the end: %v, %v", after, pool.Tags, err)
			}
		})
		if done || t.Failed() {
			break
		}
	}
	if interrupted < 5 {
		t.Errorf("%d interruptions: too few", interrupted)
	}
}

// A laptop whose clock is wrong renews the same machines: its time is not compared with that of Nodes.
func TestOutcomeReimageByTheClockOfTheNodes(t *testing.T) {
	for _, ahead := range []time.Duration{-90 * time.Minute, 2 * time.Hour} {
		t.Run(ahead.String(), func(t *testing.T) { reimagesOutdated(t, ahead) })
	}
}

// What a reimage has done is to do again where the model changed before it ended.
func TestReimageOutdatedAfterAnotherModel(t *testing.T) {
	play(t, 2, func(w *world) {
		w.blocked = "agents000001"
		if err := w.control.Reimage(w.t.Context(), "agents", 1, false); !fleet.Is(err, fleet.KindBlocked) {
			t.Fatal(err)
		}
		w.blocked = ""
		body := json.RawMessage(`{"sku": {"name": "Standard_D4s_v5"}}`)
		op, err := w.arm.Send(w.t.Context(), "change", http.MethodPatch, w.pool, "2024-07-01", body)
		if err == nil {
			_, err = op.Wait(w.t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := w.control.Reimage(w.t.Context(), "agents", 1, true); err != nil {
			t.Fatal(err)
		}
		for _, m := range w.machines() {
			if !m.LatestModelApplied {
				t.Errorf("%s does not have the pool's model", m.Name)
			}
		}
		w.wantNodes(2)
	})
}

// Where pods decide, neither scale nor replace changes the capacity, nor a machine.
func TestPodsDecideTheNumber(t *testing.T) {
	play(t, 2, func(w *world) {
		if _, err := w.arm.Send(w.t.Context(), "tag", http.MethodPatch, w.pool+"/providers/Microsoft.Resources/tags/default", "2021-04-01",
			json.RawMessage(`{"operation": "Merge", "properties": {"tags": {"`+recipe.TagApplied+`": "count=pods size=s"}}}`)); err != nil {
			t.Fatal(err)
		}
		for what, err := range map[string]error{
			"scale up": w.control.Scale(w.t.Context(), "agents", 3), "scale down": w.control.Scale(w.t.Context(), "agents", 1),
			"replace": w.control.Replace(w.t.Context(), "agents000000"),
		} {
			if codeOf(err) != agents.CodeAutoscaled || !strings.Contains(err.Error(), "cluster-autoscaler decides") {
				t.Errorf("%s: %v", what, err)
			}
		}
		w.wantNodes(2)
		if want := []string{"agents000000", "agents000001"}; !slices.Equal(w.names(), want) || len(w.drained) > 0 {
			t.Errorf("agents %v, want %v; drained %v", w.names(), want, w.drained)
		}
	})
}

func TestResizeStopStartReplaceChaos(t *testing.T) {
	play(t, 2, func(w *world) {
		if err := w.control.Resize(w.t.Context(), "agents", "Standard_D4s_v5"); err != nil {
			t.Fatal(err)
		}
		w.wantNodes(2)
		for _, m := range w.machines() {
			if !m.LatestModelApplied {
				t.Errorf("%s does not have the pool's model", m.Name)
			}
		}
		if err := w.control.Stop(w.t.Context(), "agents"); err != nil {
			t.Fatal(err)
		}
		for _, m := range w.machines() {
			if m.Power != "deallocated" {
				t.Errorf("%s is %s, which is billed", m.Name, m.Power)
			}
		}
		// As ortet cluster stop of the whole cluster has it.
		if _, err := w.arm.Send(w.t.Context(), "tag", http.MethodPatch, w.pool+"/providers/Microsoft.Resources/tags/default", "2021-04-01",
			json.RawMessage(`{"operation": "Merge", "properties": {"tags": {"`+recipe.TagStopped+`": "yes"}}}`)); err != nil {
			t.Fatal(err)
		}
		if err := w.control.Start(w.t.Context(), "agents"); err != nil {
			t.Fatal(err)
		}
		w.wantNodes(2)
		if pool, err := w.control.Pool(w.t.Context(), "agents"); err != nil || pool.Tags[recipe.TagStopped] != "" {
			t.Errorf("tags of a pool that was started: %v (%v)", pool.Tags, err)
		}
		boots := map[string]string{}
		for name, n := range w.nodes {
			boots[name] = n.BootID
		}
		if err := w.control.Chaos(w.t.Context(), "agents", func(n int, swap func(i, j int)) { swap(0, n-1) }); err != nil {
			t.Fatal(err)
		}
		w.wantNodes(2)
		for name, n := range w.nodes {
			if n.BootID == boots[name] {
				t.Errorf("%s was not restarted", name)
			}
		}
		if err := w.control.Replace(w.t.Context(), "agents000000"); err != nil {
			t.Fatal(err)
		}
		w.wantNodes(2)
		if slices.Contains(w.names(), "agents000000") {
			t.Error("the agent that was to be replaced is there")
		}
	})
}

// Azure counts instances in base 36 with capitals; Nodes have none.
func TestDefectUpperCaseHostNames(t *testing.T) {
	play(t, 11, func(w *world) {
		pool, m, err := w.control.Find(w.t.Context(), "agents00000a")
		if err != nil || pool.Name != "agents" || m.InstanceID != "10" || m.Node != "agents00000a" {
			t.Fatalf("the eleventh agent: %+v, %v", m, err)
		}
		if err := w.control.Scale(w.t.Context(), "agents", 10); err != nil {
			t.Fatal(err)
		}
		if slices.Contains(w.names(), "agents00000a") {
			t.Error("the Node of the eleventh agent was not deleted with it")
		}
	})
}

// An interrupted command leaves an operation behind, which Azure lets nothing else pass.
func TestReimageAfterAnInterruption(t *testing.T) {
	play(t, 1, func(w *world) {
		ctx, cancel := context.WithTimeout(w.t.Context(), 20*time.Second)
		defer cancel()
		if err := w.control.Reimage(ctx, "agents", 1, false); err == nil {
			t.Fatal("the reimage was not interrupted")
		}
		if err := w.control.Reimage(w.t.Context(), "agents", 1, false); err != nil {
			t.Fatal(err)
		}
		w.wantNodes(1)
	})
}

// A region is an Azure that lacks a size, which it says with 409 (SkuNotAvailable).
type region struct{ azure.Cloud }

func (r region) Begin(ctx context.Context, change fleet.Change) (fleet.Token, error) {
	if _, ok := change.(fleet.SetSize); ok {
		return "", &fleet.Error{Op: change.Verb(), Resource: string(change.Target()), Kind: fleet.KindConflict, Code: "SkuNotAvailable", Err: errors.New("409 SkuNotAvailable")}
	}
	return r.Cloud.Begin(ctx, change)
}

// Not every conflict is another operation that ends.
func TestResizeToASizeThatTheRegionLacks(t *testing.T) {
	play(t, 1, func(w *world) {
		w.control.Cloud = region{w.control.Cloud}
		began := time.Now() // of virtual time
		if err := w.control.Resize(w.t.Context(), "agents", "Standard_D4s_v5"); err == nil || time.Since(began) > 0 {
			t.Fatalf("the refusal came after %s: %v", time.Since(began), err)
		}
		w.wantNodes(1)
	})
}

// TestHole08: what changes a pool waits for a scale-up of others, which ends with its nodes.
func TestHole08PoolsDuringAScaleUp(t *testing.T) {
	for name, change := range map[string]func(ctx context.Context, c *agents.Control) error{
		"resize": func(ctx context.Context, c *agents.Control) error { return c.Resize(ctx, "agents", "Standard_D4s_v5") },
		"scale":  func(ctx context.Context, c *agents.Control) error { return c.Scale(ctx, "agents", 6) },
		"more":   func(ctx context.Context, c *agents.Control) error { return c.Scale(ctx, "agents", 7) },
		"stop":   func(ctx context.Context, c *agents.Control) error { return c.Stop(ctx, "agents") },
		"start":  func(ctx context.Context, c *agents.Control) error { return c.Start(ctx, "agents") },
	} {
		t.Run(name, func(t *testing.T) {
			play(t, 3, func(w *world) {
				op, err := w.arm.Send(w.t.Context(), "scale", http.MethodPatch, w.pool, "2024-07-01", json.RawMessage(`{"sku": {"name": "Standard_D2s_v5", "tier": "Standard", "capacity": 6}}`))
				if err != nil {
					w.t.Fatal(err)
				}
				time.Sleep(5 * time.Second)
				if err := change(w.t.Context(), w.control); err != nil {
					w.t.Errorf("%s: %v", name, err)
				}
				if _, err := op.Wait(w.t.Context()); err != nil {
					w.t.Errorf("%s ended the scale-up: %v", name, err)
				}
				want := 6
				if name == "more" {
					want = 7
				}
				if machines := w.machines(); len(machines) != want {
					w.t.Errorf("%d machines, want %d", len(machines), want)
				}
				time.Sleep(5 * time.Minute) // until the last PATCH's machines have joined
			})
		})
	}
}

// An other is an Azure in which others act, or nothing comes to an end.
type other struct {
	azure.Cloud
	state string // of the scale set, "" for what it is
	begin error
	poll  error
	ended func() // once, when a change has ended
}

func (o *other) Pool(ctx context.Context, id fleet.ResourceID) (fleet.Pool, error) {
	p, err := o.Cloud.Pool(ctx, id)
	if o.state != "" {
		p.ProvisioningState = o.state
	}
	return p, err
}

func (o *other) Begin(ctx context.Context, c fleet.Change) (fleet.Token, error) {
	if o.begin != nil {
		return "", o.begin
	}
	return o.Cloud.Begin(ctx, c)
}

func (o *other) Poll(ctx context.Context, t fleet.Token) (fleet.Progress, error) {
	if o.poll != nil {
		return fleet.Progress{}, o.poll
	}
	p, err := o.Cloud.Poll(ctx, t)
	if p.Done && o.ended != nil {
		o.ended()
		o.ended = nil
	}
	return p, err
}

// TestHole08: a scale set that stays Updating has a resize wait once, not for each machine.
func TestHole08StuckScaleSet(t *testing.T) {
	play(t, 4, func(w *world) {
		w.control.Cloud = &other{Cloud: w.control.Cloud, state: "Updating"}
		began := time.Now()
		if err := w.control.Resize(w.t.Context(), "agents", "Standard_D4s_v5"); err != nil || time.Since(began) > 40*time.Minute {
			w.t.Errorf("after %s: %v", time.Since(began), err)
		}
		w.wantNodes(4)
	})
}

// TestHole08: a change ends although Azure does not answer, or others write all the time.
func TestHole08ChangesEnd(t *testing.T) {
	for name, o := range map[string]*other{
		"ETag":   {begin: &fleet.Error{Op: "set capacity", Kind: fleet.KindStale}},
		"silent": {poll: &fleet.Error{Op: "poll", Kind: fleet.KindTransient}},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, 1, func(w *world) {
				o.Cloud, w.control.Cloud = w.control.Cloud, o
				ctx, cancel := context.WithTimeout(w.t.Context(), time.Hour)
				defer cancel()
				if err := w.control.Scale(ctx, "agents", 2); ctx.Err() != nil {
					w.t.Errorf("scale did not end in an hour: %v", err)
				}
				time.Sleep(5 * time.Minute) // until the last PATCH's machines have joined
			})
		})
	}
}

// TestHole08: others who scale further right after a scale-up, or delete a machine that is
// being drained, are in no way.
func TestHole08ScaleBesideOthers(t *testing.T) {
	t.Run("further", func(t *testing.T) {
		play(t, 2, func(w *world) {
			w.control.Cloud = &other{Cloud: w.control.Cloud, ended: func() {
				w.send(http.MethodPatch, "", `{"sku": {"name": "Standard_D2s_v5", "tier": "Standard", "capacity": 6}}`)
			}}
			if err := w.control.Scale(w.t.Context(), "agents", 4); err != nil || len(w.machines()) != 4 {
				w.t.Errorf("%d machines, want 4; %v", len(w.machines()), err)
			}
			time.Sleep(5 * time.Minute)
		})
	})
	t.Run("gone", func(t *testing.T) {
		play(t, 4, func(w *world) {
			w.drains = func() { w.send(http.MethodPost, "/delete", `{"instanceIds": ["3"]}`) }
			if err := w.control.Scale(w.t.Context(), "agents", 2); err != nil {
				w.t.Error(err)
			}
			w.wantNodes(2)
		})
	})
}

// send is a change by others.
func (w *world) send(method, action, body string) {
	if _, err := w.arm.Send(w.t.Context(), "change", method, w.pool+fleet.ResourceID(action), "2024-07-01", json.RawMessage(body)); err != nil {
		w.t.Error(err)
	}
}

// TestHole08: what an interrupted scale-down deletes is not put into service again by the
// same command, nor counted by the next.
func TestHole08InterruptedScaleDown(t *testing.T) {
	play(t, 3, func(w *world) {
		ctx, cancel := context.WithTimeout(w.t.Context(), 8*time.Second)
		defer cancel()
		if err := w.control.Scale(ctx, "agents", 2); err == nil {
			t.Fatal("the scale-down was not interrupted")
		}
		if err := w.control.Scale(w.t.Context(), "agents", 2); err != nil || !w.nodes["agents000002"].Unschedulable {
			t.Errorf("a machine that is being deleted was uncordoned; %v", err)
		}
		if err := w.control.Scale(w.t.Context(), "agents", 1); err != nil || len(w.machines()) != 1 {
			t.Errorf("%d machines, want 1; %v", len(w.machines()), err)
		}
	})
}

// A strict world lets nobody evict.
type strict struct{ *world }

func (strict) Drain(context.Context, string, cluster.DrainOptions, func(cluster.DrainEvent)) error {
	return &fleet.Error{Op: "drain", Kind: fleet.KindDenied, Err: errors.New("403 Forbidden")}
}

// A stop goes past budgets when its time is over, not past a refusal.
func TestOutcomeStopThatMayNotDrain(t *testing.T) {
	play(t, 2, func(w *world) {
		w.control.Nodes = strict{w}
		if err := w.control.Stop(w.t.Context(), "agents"); !fleet.Is(err, fleet.KindDenied) {
			t.Errorf("stop without the right to evict: %v", err)
		}
		for _, m := range w.machines() {
			if m.Power != "running" {
				t.Errorf("%s is %s undrained", m.Node, m.Power)
			}
		}
	})
}

// An interrupted Azure accepts a change, and its client ends then.
type interrupted struct {
	azure.Cloud
	end func()
}

func (i interrupted) Begin(ctx context.Context, c fleet.Change) (fleet.Token, error) {
	defer i.end()
	return i.Cloud.Begin(ctx, c)
}

// A scale-up that was interrupted awaits its machines when it is given again, also before Azure has made them.
func TestOutcomeScaleUpInterrupted(t *testing.T) {
	play(t, 2, func(w *world) {
		ctx, cancel := context.WithCancel(w.t.Context())
		cloud := w.control.Cloud
		w.control.Cloud = interrupted{cloud, cancel}
		if err := w.control.Scale(ctx, "agents", 4); err == nil {
			t.Fatal("the scale-up was not interrupted")
		}
		w.control.Cloud = cloud
		if err := w.control.Scale(w.t.Context(), "agents", 4); err != nil {
			t.Error(err)
		}
		w.wantNodes(4)
		time.Sleep(5 * time.Minute) // until the PATCH's machines have joined
	})
}

// A replacement that was interrupted goes on, also where the agent is deleted already.
func TestOutcomeReplaceInterrupted(t *testing.T) {
	for after := time.Second; ; after += 20 * time.Second {
		done := false
		play(t, 2, func(w *world) {
			ctx, cancel := context.WithTimeout(w.t.Context(), after)
			defer cancel()
			if done = w.control.Replace(ctx, "agents_0") == nil; !done {
				err := w.control.Replace(w.t.Context(), "agents000000")
				done = fleet.Is(err, fleet.KindNotFound) && after > 4*time.Minute // interrupted as its last write was made
				if err != nil && !done {
					t.Errorf("interrupted after %s: %v", after, err)
				}
			}
			w.wantNodes(2)
			if pool, err := w.control.Pool(w.t.Context(), "agents"); err != nil || pool.Capacity != 2 || pool.Tags[agents.TagReplace] != "" {
				t.Errorf("interrupted after %s: capacity %d, tags %v, %v", after, pool.Capacity, pool.Tags, err)
			}
			time.Sleep(5 * time.Minute) // until the PATCH's machines have joined
		})
		if done || t.Failed() {
			return
		}
	}
}

// A Node that a person cordoned stays so, whatever ortet does with its machine.
func TestPersonsCordonStays(t *testing.T) {
	for name, do := range map[string]func(ctx context.Context, c *agents.Control) error{
		"resize": func(ctx context.Context, c *agents.Control) error { return c.Resize(ctx, "agents", "Standard_D4s_v5") },
		"stop and start": func(ctx context.Context, c *agents.Control) error {
			return errors.Join(c.Stop(ctx, "agents"), c.Start(ctx, "agents"))
		},
		"scale": func(ctx context.Context, c *agents.Control) error { return c.Scale(ctx, "agents", 3) },
		"chaos": func(ctx context.Context, c *agents.Control) error {
			return c.Chaos(ctx, "agents", func(int, func(i, j int)) {})
		},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, 2, func(w *world) {
				if err := w.SetUnschedulable(w.t.Context(), "agents000001", true); err != nil {
					t.Fatal(err)
				}
				if err := do(w.t.Context(), w.control); err != nil {
					t.Fatal(err)
				}
				for node, want := range map[string]bool{"agents000000": false, "agents000001": true} {
					if n := w.nodes[node]; n.Unschedulable != want || n.Annotations[agents.AnnotationCordon] != "" {
						t.Errorf("%s is cordoned: %v, with %v", node, n.Unschedulable, n.Annotations)
					}
				}
			})
		})
	}
}

// A restart has ended when the Node shows another boot, not when Azure says so.
func TestRestartsAreAwaited(t *testing.T) {
	play(t, 2, func(w *world) {
		w.slow = 2 * time.Minute
		before := map[string]string{}
		for name, n := range w.nodes {
			before[name] = n.BootID
		}
		begin := time.Now()
		if err := w.control.Chaos(w.t.Context(), "agents", func(int, func(i, j int)) {}); err != nil {
			t.Fatal(err)
		}
		for name, n := range w.nodes {
			if n.BootID == before[name] {
				t.Errorf("%s has not booted", name)
			}
		}
		if took := time.Since(begin); took < 2*w.slow {
			t.Errorf("two restarts one after the other took %s", took)
		}
		time.Sleep(w.slow)
	})
}

// A start has ended when each Node shows another boot: that it was Ready before its machine was
// stopped says nothing, and Kubernetes may still show it.
func TestOutcomeStartAwaitsTheBoot(t *testing.T) {
	play(t, 2, func(w *world) {
		if err := w.control.Stop(w.t.Context(), "agents"); err != nil {
			t.Fatal(err)
		}
		w.slow = 2 * time.Minute
		before := map[string]string{}
		for name, n := range w.nodes {
			before[name] = n.BootID
		}
		if err := w.control.Start(w.t.Context(), "agents"); err != nil {
			t.Fatal(err)
		}
		for name, n := range w.nodes {
			if n.BootID == before[name] || n.Unschedulable {
				t.Errorf("%s has not booted when the start ends, or is cordoned: %+v", name, n)
			}
		}
		time.Sleep(w.slow)
	})
}

// A resize whose last Node does not become Ready fails as often as it is repeated, and ends well once
// the Node is Ready, also while it waits.
func TestOutcomeRepeatedResizeAwaitsReady(t *testing.T) {
	play(t, 2, func(w *world) {
		w.sick = "agents000001"
		for range 2 {
			if err := w.control.Resize(w.t.Context(), "agents", "Standard_D4s_v5"); !fleet.Is(err, fleet.KindTimedOut) {
				t.Errorf("resize with a Node that is not Ready: %v", err)
			}
		}
		go func() {
			time.Sleep(time.Minute)
			w.mu.Lock()
			defer w.mu.Unlock()
			w.nodes[w.sick].Ready = true
		}()
		if err := w.control.Resize(w.t.Context(), "agents", "Standard_D4s_v5"); err != nil {
			t.Errorf("resize whose Node becomes Ready while it waits: %v", err)
		}
		time.Sleep(2 * time.Minute)
		w.wantNodes(2)
	})
}

// Which machines go follows the pool's scale-in policy.
func TestScaleInPolicy(t *testing.T) {
	for policy, left := range map[string][]string{"Default": {"agents000000", "agents000001"}, "NewestVM": {"agents000000", "agents000001"}, "OldestVM": {"agents000002", "agents000003"}} {
		t.Run(policy, func(t *testing.T) {
			play(t, 4, func(w *world) {
				w.send(http.MethodPatch, "", `{"properties": {"scaleInPolicy": {"rules": ["`+policy+`"]}}}`)
				time.Sleep(5 * time.Minute)
				if err := w.control.Scale(w.t.Context(), "agents", 2); err != nil {
					t.Fatal(err)
				}
				if names := w.names(); !slices.Equal(slices.Sorted(slices.Values(names)), left) {
					t.Errorf("%v are left, want %v", names, left)
				}
			})
		})
	}
}

func codeOf(err error) string {
	var of *fleet.Error
	if errors.As(err, &of) {
		return of.Code
	}
	return ""
}
