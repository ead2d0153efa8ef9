package lifecycle_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ortet/ortet/internal/cluster"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/k3s/agents"
	"github.com/ortet/ortet/internal/k3s/recipe"
	"github.com/ortet/ortet/internal/workflow"
)

// kubelets keep the Nodes of the pool's machines in an API server.
type kubelets struct {
	w       *world
	mu      sync.Mutex
	made    int
	at      time.Time // of the last look at Azure
	all     map[string]*kubelet
	node    map[string]*fleet.Node
	pods    map[string]int
	blocked bool   // all drains, by a budget
	dead    bool   // kubelets that start now do not come up
	sick    string // this Node is not Ready
}

// A kubelet is one machine's.
type kubelet struct {
	fleet.Instance
	runs bool
	boot int
	up   time.Time // reports from then on
	down time.Time // when it reported last; its Node is Ready for 40 s more
	node string
}

// nodeOf is the name of the Node of an instance.
func nodeOf(instance string) string {
	n, _ := strconv.ParseInt(instance, 10, 64)
	return fmt.Sprintf("agents%06s", strconv.FormatInt(n, 36))
}

func (k *kubelets) starts(b *kubelet, after time.Duration) {
	b.boot++
	b.up = time.Now().Add(after)
	if k.dead {
		b.up = time.Now().Add(1000 * time.Hour)
	}
}

// dies has kubelets that start from now on not come up, or brings up those that did not.
func (k *kubelets) dies(dead bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.dead = dead
	for _, b := range k.all {
		if !dead && time.Until(b.up) > time.Hour {
			b.up = time.Now()
		}
	}
}

// accepted has what Azure accepted take kubelets down.
func (k *kubelets) accepted(path string, body []byte) {
	k.sync(true)
	k.mu.Lock()
	defer k.mu.Unlock()
	var in struct{ InstanceIDs []string }
	_ = json.Unmarshal(body, &in)
	rest, ours := strings.CutPrefix(path, strings.ToLower(pool))
	one, action, _ := strings.Cut(strings.TrimPrefix(rest, "/virtualmachines/"), "/")
	switch {
	case !ours:
		return
	case rest == "/manualupgrade":
	case action == "restart" || action == "reimage":
		in.InstanceIDs = []string{one}
	default:
		return
	}
	for _, id := range in.InstanceIDs {
		if b := k.all[id]; b != nil && b.runs {
			b.down = time.Now()
			k.starts(b, 200*time.Second)
		}
	}
}

// sync has kubelets follow their machines, and Nodes follow kubelets.
func (k *kubelets) sync(now bool) {
	k.mu.Lock()
	recent := time.Since(k.at) < 5*time.Second
	k.mu.Unlock()
	if recent && !now || k.w.ctx.Err() != nil {
		return
	}
	list, err := k.w.cloud.Instances(k.w.ctx, pool)
	if err != nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.at = time.Now()
	there := map[string]bool{}
	for _, i := range list {
		there[i.InstanceID] = true
		b := k.all[i.InstanceID]
		if b == nil {
			b = &kubelet{node: nodeOf(i.InstanceID)}
			k.all[i.InstanceID] = b
		}
		b.Instance = i
		switch runs := i.Power == "running" && i.ProvisioningState != "Creating"; {
		case runs && !b.runs:
			k.starts(b, 30*time.Second)
			b.runs = true
		case !runs && b.runs:
			b.runs, b.down = false, time.Now()
		}
		n := k.node[b.node]
		if b.runs && time.Now().After(b.up) {
			if n == nil {
				k.made++
				n = &fleet.Node{Name: b.node, UID: fmt.Sprint("uid-", k.made), Created: time.Now()}
				k.node[b.node], k.pods[b.node] = n, 1
			}
			n.SystemUUID, n.BootID, n.Ready = i.VMID, fmt.Sprint(b.node, " boot ", b.boot), b.node != k.sick
		} else if n != nil {
			n.Ready = n.Ready && time.Since(b.down) < 40*time.Second
		}
	}
	for id, b := range k.all {
		if !there[id] {
			if n := k.node[b.node]; n != nil {
				n.Ready = false
			}
			delete(k.all, id)
		}
	}
}

// nodesOf are the Nodes as one process reaches them.
type nodesOf struct {
	*kubelets
	p *process
}

func (nodesOf) Now() time.Time { return time.Now() }

func (k nodesOf) Node(_ context.Context, name string) (fleet.Node, error) {
	if err := k.p.ctx.Err(); err != nil {
		return fleet.Node{}, err
	}
	k.sync(false)
	k.mu.Lock()
	defer k.mu.Unlock()
	if n := k.node[name]; n != nil {
		is := *n
		is.Annotations = maps.Clone(n.Annotations)
		return is, nil
	}
	return fleet.Node{}, &fleet.Error{Op: "read node", Resource: "node " + name, Kind: fleet.KindNotFound}
}

func (k nodesOf) Nodes(ctx context.Context) iter.Seq2[fleet.Node, error] {
	return func(yield func(fleet.Node, error) bool) {
		k.sync(false)
		k.mu.Lock()
		names := slices.Sorted(maps.Keys(k.node))
		k.mu.Unlock()
		for _, name := range names {
			if n, err := k.Node(ctx, name); !fleet.Is(err, fleet.KindNotFound) && !yield(n, err) {
				return
			}
		}
	}
}

func (k nodesOf) change(name string, do func(n *fleet.Node)) func() error {
	return func() error {
		k.mu.Lock()
		defer k.mu.Unlock()
		if n := k.node[name]; n != nil {
			do(n)
			return nil
		}
		return &fleet.Error{Op: "change node", Resource: "node " + name, Kind: fleet.KindNotFound}
	}
}

func (k nodesOf) Annotate(_ context.Context, name string, annotations map[string]*string) error {
	what := strings.Join(slices.Sorted(maps.Keys(annotations)), ",")
	return k.p.kube("annotate "+what+" "+name, k.change(name, func(n *fleet.Node) {
		n.Annotations = maps.Clone(n.Annotations)
		if n.Annotations == nil {
			n.Annotations = map[string]string{}
		}
		for key, v := range annotations {
			if delete(n.Annotations, key); v != nil {
				n.Annotations[key] = *v
			}
		}
	}))
}

func (k nodesOf) SetUnschedulable(_ context.Context, name string, to bool) error {
	return k.p.kube(fmt.Sprintf("unschedulable=%t %s", to, name), k.change(name, func(n *fleet.Node) {
		if n.Unschedulable = to; !to {
			k.pods[name] = 1 // new pods come at once
		}
	}))
}

func (k nodesOf) Drain(ctx context.Context, name string, o cluster.DrainOptions, report func(cluster.DrainEvent)) error {
	return k.p.kube("drain "+name, func() error {
		n, err := k.Node(ctx, name)
		switch {
		case err != nil:
			return err
		case n.UID != o.UID:
			k.w.wrong("drain of Node %s by the UID %q: whichever has the name", name, o.UID)
		case o.Deadline <= 0 || o.Deadline > time.Minute:
			k.w.wrong("drain of Node %s within %s, not a minute", name, o.Deadline)
		case !n.Unschedulable:
			k.w.wrong("Node %s is drained and not cordoned: pods come back", name)
		}
		if k.blocked && !o.Force {
			report(cluster.DrainEvent{Pod: "default/web", What: "blocked", Because: "PodDisruptionBudget default/web"})
			time.Sleep(o.Deadline)
			return &fleet.Error{Op: "drain", Resource: "node " + name, Kind: fleet.KindBlocked, Err: errors.New("PodDisruptionBudget default/web")}
		}
		if k.blocked && !k.w.story.fit {
			k.w.wrong("drain of Node %s past its budget", name)
		}
		time.Sleep(5 * time.Second)
		k.mu.Lock()
		defer k.mu.Unlock()
		k.pods[name] = 0
		return nil
	})
}

func (k nodesOf) Forget(_ context.Context, name, uid string) error {
	return k.p.kube("forget "+name, func() error {
		k.sync(true)
		k.mu.Lock()
		defer k.mu.Unlock()
		n := k.node[name]
		if n == nil || n.UID != uid {
			return nil
		}
		for _, b := range k.all {
			if b.node == name && b.runs && b.ProvisioningState != "Deleting" {
				go k.w.wrong("the Node %s of a running machine is deleted: its kubelet registers it again", name)
			}
		}
		delete(k.node, name)
		return nil
	})
}

// guardAgents judges a write to Azure before it is made.
func guardAgents(w *world, p *process, r *http.Request, body []byte) {
	k := w.nodes
	k.sync(true)
	path := strings.ToLower(r.URL.Path)
	rest, ours := strings.CutPrefix(path, strings.ToLower(pool))
	if !ours {
		w.wrong("write to %s", path)
		return
	}
	var in struct {
		InstanceIDs []string
		SKU         *struct{ Capacity *int64 }
	}
	_ = json.Unmarshal(body, &in)
	one, action, _ := strings.Cut(strings.TrimPrefix(rest, "/virtualmachines/"), "/")
	goes := in.InstanceIDs
	switch {
	case r.Method == http.MethodPatch && rest == "":
		if r.Header.Get("If-Match") == "" {
			w.wrong("the scale set is written without its ETag")
		}
		if set, err := w.cloud.Pool(w.ctx, pool); err == nil && in.SKU != nil && in.SKU.Capacity != nil && *in.SKU.Capacity < set.Capacity {
			w.wrong("the capacity is set to %d from %d: Azure chooses which machines go", *in.SKU.Capacity, set.Capacity)
		}
		return
	case rest == "/deallocate" && len(goes) == 0:
		for id := range k.all {
			goes = append(goes, id)
		}
	case rest == "/deallocate", rest == "/delete", rest == "/manualupgrade":
	case action == "poweroff", action == "deallocate", action == "reimage", action == "restart":
		goes = []string{one}
	case action == "" && r.Method == http.MethodDelete:
		goes = []string{one}
	default:
		return
	}
	k.mu.Lock()
	var wrong []string
	for _, id := range goes {
		b := k.all[id]
		if b == nil || w.story.chaos {
			continue
		}
		if n := k.node[b.node]; n != nil && n.Ready && b.runs && (!n.Unschedulable || k.pods[b.node] > 0) {
			wrong = append(wrong, b.node+" goes undrained")
		}
	}
	if rest == "/manualupgrade" || action == "poweroff" || action == "restart" { // one machine after the other
		for id, b := range k.all {
			if n := k.node[b.node]; !slices.Contains(goes, id) && b.runs && b.node != k.sick && w.happens == nothing && (n == nil || !n.Ready || time.Now().Before(b.up)) {
				wrong = append(wrong, b.node+" is not Ready when the next goes")
			}
		}
	}
	k.mu.Unlock()
	for _, s := range wrong {
		w.wrong("%s %s: %s", r.Method, rest, s)
	}
}

// absent are machines that run and whose Nodes are not Ready in the boot that they are in.
func (k *kubelets) absent() (names []string) {
	k.sync(true)
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, b := range k.all {
		if n := k.node[b.node]; b.runs && b.ProvisioningState != "Deleting" && b.node != k.sick && (n == nil || !n.Ready || time.Now().Before(b.up)) {
			names = append(names, b.node)
		}
	}
	return names
}

// tells is the pool and its machines, by how they differ from what they were.
func (k *kubelets) tells(was map[string]kubelet, pools [2]fleet.Pool, interrupted []string) string {
	k.sync(true)
	k.mu.Lock()
	defer k.mu.Unlock()
	set, err := k.w.cloud.Pool(k.w.ctx, pool)
	if err != nil {
		return err.Error()
	}
	text := fmt.Sprint("capacity ", set.Capacity)
	if set.Size != pools[0].Size {
		text += " size " + set.Size
	}
	for _, name := range slices.Sorted(maps.Keys(pools[0].Tags)) {
		if set.Tags[name] != pools[0].Tags[name] {
			text += " without " + name
		}
	}
	for _, name := range slices.Sorted(maps.Keys(set.Tags)) {
		if pools[0].Tags[name] == "" {
			text += " with " + name
		}
	}
	if others, err := k.w.cloud.Pool(k.w.ctx, pool+"2"); err != nil || others.Etag != pools[1].Etag {
		text += " others changed"
	}
	machines := slices.SortedFunc(maps.Values(k.all), func(a, b *kubelet) int {
		return len(a.InstanceID) - len(b.InstanceID) + strings.Compare(a.InstanceID, b.InstanceID)
	})
	nodes := maps.Clone(k.node)
	for _, b := range machines {
		text += ", " + b.InstanceID
		add := func(is bool, what string) {
			if is {
				text += " " + what
			}
		}
		n, before := nodes[b.node], was[b.InstanceID]
		delete(nodes, b.node)
		add(b.Power != "running", string(b.Power))
		add(!b.LatestModelApplied, "behind")
		add(before.boot > 0 && b.OSDisk != before.OSDisk, "disk")
		add(b.ProvisioningState != "Succeeded", b.ProvisioningState)
		if n == nil {
			text += " no Node"
			continue
		}
		add(n.Unschedulable, "cordoned")
		add(n.Annotations[agents.AnnotationCordon] != "", "marked")
		add(b.runs && b.node != k.sick && (!n.Ready || time.Now().Before(b.up)), "not Ready")
		add(before.boot > 0 && b.boot != before.boot, "boot")
		add(n.Annotations["uid"] != n.UID && before.boot > 0, "node")
	}
	for _, name := range slices.Sorted(maps.Keys(nodes)) {
		if n := nodes[name]; len(interrupted) > 0 && n.Unschedulable && !n.Ready {
			continue // admission's reaper deletes it
		}
		text += ", Node " + name + " without a machine"
	}
	return text
}

func (w *world) patchPool(body object) {
	w.Helper()
	w.send(http.MethodPatch, pool, "2024-07-01", body)
}

func control(p *process) *agents.Control {
	return &agents.Control{ARM: p.arm, Cloud: p.cloud, Nodes: nodesOf{p.w.nodes, p}, Group: computeGroup, DrainTimeout: time.Minute, ReadyTimeout: 5 * time.Minute, Now: time.Now}
}

// agentStories are of a pool with four machines, of which 1 is cordoned by a person.
func agentStories() []story {
	do := func(f func(ctx context.Context, c *agents.Control) error) func(*world, *process) (any, error) {
		return func(_ *world, p *process) (any, error) { return nil, f(p.ctx, control(p)) }
	}
	scale := func(n int64) func(*world, *process) (any, error) {
		return do(func(ctx context.Context, c *agents.Control) error { return c.Scale(ctx, "agents", n) })
	}
	by := func(do func(*agents.Control, context.Context, string) error) func(*world, *process) (any, error) {
		return func(_ *world, p *process) (any, error) { return nil, do(control(p), p.ctx, "agents") }
	}
	reimage := func(outdated bool) func(*world, *process) (any, error) {
		return do(func(ctx context.Context, c *agents.Control) error { return c.Reimage(ctx, "agents", 1, outdated) })
	}
	return []story{
		{name: "scale up", do: scale(6), ends: "capacity 6 with ortet.io_scaled, 0, 1 cordoned, 2, 3, 4, 5", meets: map[string]string{scales: "", noBoot: ""}},
		{name: "scale up by less than others", do: scale(5), ends: "capacity 5 with ortet.io_scaled, 0, 1 cordoned, 2, 3, 4", meets: map[string]string{scales: ""}, without: []string{nothing, killBefore, killAfter, refused, conflicts, lost, passing}},
		{name: "scale down", do: scale(2), ends: "capacity 2 with ortet.io_scaled, 0, 2", meets: map[string]string{blocks: "", deletes: ""}},
		{name: "scale down, oldest first", prepare: func(w *world) {
			w.patchPool(object{"properties": object{"scaleInPolicy": object{"rules": []string{"OldestVM"}}}})
		}, do: scale(2), ends: "capacity 2 with ortet.io_scaled, 2, 3", without: []string{killBefore, lost, passing, refused, conflicts}},
		{name: "scale down with a Node that is not Ready", prepare: func(w *world) { w.nodes.sick = nodeOf("2"); w.nodes.sync(true) }, do: scale(2), ends: "capacity 2 with ortet.io_scaled, 0, 3", without: []string{killBefore, lost, passing}},
		{name: "replace", do: do(func(ctx context.Context, c *agents.Control) error { return c.Replace(ctx, "agents_2") }),
			ends: "capacity 4, 0, 1 cordoned, 3, 4", meets: map[string]string{blocks: "", scales: "capacity 5, 0, 1 cordoned, 3, 4, 5"}},
		{name: "stop", do: by((*agents.Control).Stop), fit: true, meets: map[string]string{blocks: ""},
			ends: "capacity 4, 0 deallocated cordoned marked, 1 deallocated cordoned, 2 deallocated cordoned marked, 3 deallocated cordoned marked"},
		{name: "start", prepare: func(w *world) {
			if err := control(w.process()).Stop(w.ctx, "agents"); err != nil {
				w.Fatal(err)
			}
			w.tag(recipe.TagStopped)
		}, do: by((*agents.Control).Start), fit: true, ends: "capacity 4, 0 boot, 1 cordoned boot, 2 boot, 3 boot", meets: map[string]string{noBoot: ""}},
		{name: "reimage", do: reimage(false), ends: "capacity 4, 0 disk boot node, 1 disk boot node, 2 disk boot node, 3 disk boot node", meets: map[string]string{blocks: "", noBoot: ""}},
		{name: "reimage after another", prepare: func(w *world) {
			if err := control(w.process()).Reimage(w.ctx, "agents", 1, false); err != nil {
				w.Fatal(err)
			}
		}, do: reimage(false), ends: "capacity 4, 0 disk boot node, 1 disk boot node, 2 disk boot node, 3 disk boot node", without: []string{killBefore, killAfter, refused, conflicts, lost, passing}},
		{name: "reimage --outdated", prepare: func(w *world) {
			w.patchPool(object{"sku": object{"name": "Standard_D2s_v5", "capacity": 5}, "properties": object{"virtualMachineProfile": object{"storageProfile": object{"imageReference": object{"version": "24.04.202501010"}}}}})
			for range 3 {
				time.Sleep(5 * time.Minute)
				w.nodes.sync(true)
			}
		}, do: reimage(true), ends: "capacity 5, 0 disk boot node, 1 disk boot node, 2 disk boot node, 3 disk boot node, 4", meets: map[string]string{blocks: ""}},
		{name: "resize", do: do(func(ctx context.Context, c *agents.Control) error { return c.Resize(ctx, "agents", "Standard_D4s_v5") }),
			ends: "capacity 4 size Standard_D4s_v5, 0 boot, 1 cordoned boot, 2 boot, 3 boot", meets: map[string]string{blocks: "", noBoot: ""}},
		{name: "resize with a stopped agent", prepare: func(w *world) {
			w.send(http.MethodPost, pool+"/virtualMachines/3/deallocate", "2024-07-01", nil)
			time.Sleep(time.Minute)
		}, do: do(func(ctx context.Context, c *agents.Control) error { return c.Resize(ctx, "agents", "Standard_D4s_v5") }),
			ends: "capacity 4 size Standard_D4s_v5, 0 boot, 1 cordoned boot, 2 boot, 3 deallocated cordoned marked", without: []string{killBefore, lost, passing, refused, conflicts}},
		{name: "chaos", do: do(func(ctx context.Context, c *agents.Control) error {
			return c.Chaos(ctx, "agents", func(int, func(i, j int)) {})
		}), ends: "capacity 4, 0 boot, 1 cordoned boot, 2 boot, 3 boot", chaos: true, without: []string{lost}, meets: map[string]string{noBoot: ""}},
	}
}

func (w *world) tag(name string) {
	w.send(http.MethodPatch, pool+"/providers/Microsoft.Resources/tags/default", "2021-04-01",
		object{"operation": "Merge", "properties": object{"tags": object{name: "yes"}}})
}

// TestAgentStories plays commands of pools, while each of their writes goes wrong.
func TestAgentStories(t *testing.T) {
	stories(t, agentStories(), func(t *testing.T, s story, happens string) {
		play(t, nil, func(x *site) {
			w := &world{site: x, story: s, happens: nothing, met: map[string]bool{}}
			w.nodes = &kubelets{w: w, all: map[string]*kubelet{}, node: map[string]*fleet.Node{}, pods: map[string]int{}}
			w.send(http.MethodPut, computeGroup, "2021-04-01", object{"location": "westeurope"})
			for _, id := range []string{pool, pool + "2"} {
				w.send(http.MethodPut, id, "2024-07-01", object{"location": "westeurope", "tags": object{"person": "keeps"}, "sku": object{"name": "Standard_D2s_v5", "capacity": map[string]int{pool: 4, pool + "2": 1}[id]}, "properties": object{
					"overprovision": false, "upgradePolicy": object{"mode": "Manual"}, "virtualMachineProfile": object{
						"osProfile":      object{"computerNamePrefix": fleet.ResourceID(id).Name(), "adminUsername": "ortet", "adminPassword": "Corr3ct-horse"},
						"storageProfile": object{"imageReference": object{"publisher": "Canonical", "offer": "ubuntu-24_04-lts", "sku": "server", "version": "latest"}}}}})
			}
			w.nodes.sync(true)
			time.Sleep(time.Minute)
			w.nodes.sync(true)
			was := map[string]kubelet{}
			for id, b := range w.nodes.all {
				was[id] = *b
				n := w.nodes.node[b.node]
				n.Annotations = map[string]string{"uid": n.UID}
				n.Unschedulable = id == "1"
			}
			set, err := w.cloud.Pool(w.ctx, pool)
			others, err2 := w.cloud.Pool(w.ctx, pool+"2")
			if err := errors.Join(err, err2); err != nil {
				t.Fatal(err)
			}
			if s.prepare != nil {
				s.prepare(w)
			}
			w.happens, w.guard, w.met, w.trace = happens, guardAgents, map[string]bool{}, nil
			w.tell(workflow.ExitFailed)
			if want := cmp.Or(s.meets[happens], s.ends); !t.Failed() {
				for _, name := range w.nodes.absent() {
					w.wrong("it has ended, and %s is not Ready", name)
				}
				time.Sleep(5 * time.Minute) // until what others and an earlier run began has ended
				if got := w.nodes.tells(was, [2]fleet.Pool{set, others}, w.interrupted); got != want {
					w.wrong("in the end\n%s, want\n%s", got, want)
				}
			}
		})
	})
}
