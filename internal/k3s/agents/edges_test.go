package agents_test

import (
	"context"
	"errors"
	"iter"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/cluster"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/k3s/agents"
)

// An agent is found by the names that people copy, from kubectl or from Azure, in any letter case;
// an unknown one is refused with where names are.
func TestOutcomeAgentsByAnyName(t *testing.T) {
	play(t, 2, func(w *world) {
		for _, name := range []string{"agents000001", "AGENTS000001", "agents_1", "Agents_1"} {
			if pool, m, err := w.control.Find(w.t.Context(), name); err != nil || pool.Name != "agents" || m.InstanceID != "1" {
				t.Errorf("%s: %+v, %v", name, m, err)
			}
		}
		if err := w.control.Replace(w.t.Context(), "agents000009"); !fleet.Is(err, fleet.KindNotFound) || !strings.Contains(err.Error(), "see ortet cluster agents") {
			t.Errorf("an agent that does not exist: %v", err)
		}
		if err := w.control.Scale(w.t.Context(), "workers", 1); !fleet.Is(err, fleet.KindNotFound) || !strings.Contains(err.Error(), "find pool workers") || !strings.Contains(err.Error(), "see ortet cluster status") {
			t.Errorf("a pool that does not exist: %v", err)
		}
		w.wantNodes(2)
	})
}

// Stop asks nothing of agents that do not run, and nothing of Azure where none may be stopped.
func TestOutcomeStopOfWhatIsStopped(t *testing.T) {
	play(t, 0, func(w *world) {
		w.control.Nodes = unread{w} // nor of the cluster
		if err := w.control.Stop(w.t.Context(), "agents"); err != nil || len(w.lines) > 0 {
			t.Errorf("an empty pool: %v, %q", err, w.lines)
		}
	})
	play(t, 2, func(w *world) {
		stopped := w.machines()[0]
		w.send("POST", "/virtualMachines/"+stopped.InstanceID+"/deallocate", "{}")
		time.Sleep(10 * time.Minute)
		w.mu.Lock()
		w.nodes[stopped.Node].SystemUUID = earlier // no refusal: it is not stopped now
		w.mu.Unlock()
		err := w.control.Stop(w.t.Context(), "agents")
		for _, m := range w.machines() {
			if err != nil || m.Power != "deallocated" {
				t.Errorf("%v: %s is %s", err, m.Name, m.Power)
			}
		}
		if n := w.nodes[stopped.Node]; n.Unschedulable || n.Annotations[agents.AnnotationCordon] != "" || !slices.Equal(w.drained, []string{"agents000001"}) {
			t.Errorf("the Node of the agent that was stopped: %+v; drained %v", n, w.drained)
		}
	})
	play(t, 1, func(w *world) {
		w.nodes["agents000000"].SystemUUID = earlier
		if err := w.control.Stop(w.t.Context(), "agents"); !fleet.Is(err, fleet.KindInvalid) || w.machines()[0].Power != "running" || strings.Contains(strings.Join(w.lines, "\n"), "deallocating") {
			t.Errorf("a machine that may be another's: %v, %s, %q", err, w.machines()[0].Power, w.lines)
		}
	})
}

// An unread world may not read Nodes.
type unread struct{ *world }

func (unread) Nodes(context.Context) iter.Seq2[fleet.Node, error] {
	return func(yield func(fleet.Node, error) bool) {
		yield(fleet.Node{}, &fleet.Error{Op: "list nodes", Kind: fleet.KindDenied, Err: errors.New("403 Forbidden")})
	}
}

func (unread) Node(context.Context, string) (fleet.Node, error) {
	return fleet.Node{}, &fleet.Error{Op: "read node", Kind: fleet.KindDenied, Err: errors.New("403 Forbidden")}
}

// Without the right to read a Node nothing is started or reimaged by what is not known of it.
func TestOutcomeNodesThatMayNotBeRead(t *testing.T) {
	play(t, 2, func(w *world) {
		if err := w.control.Stop(w.t.Context(), "agents"); err != nil {
			t.Fatal(err)
		}
		w.control.Nodes = unread{w}
		if err := w.control.Start(w.t.Context(), "agents"); !fleet.Is(err, fleet.KindDenied) || w.machines()[0].Power == "running" {
			t.Errorf("start: %v, %s", err, w.machines()[0].Power)
		}
		w.send("PATCH", "/providers/Microsoft.Resources/tags/default", `{"operation": "Merge", "properties": {"tags": {"`+agents.TagReimage+`": "20000101T000000Z"}}}`)
		if err := w.control.Reimage(w.t.Context(), "agents", 1, true); !fleet.Is(err, fleet.KindDenied) || w.reimages != 0 {
			t.Errorf("reimage --outdated: %v, %d reimaged", err, w.reimages)
		}
	})
}

// A larger Azure says that a pool has one machine more than Azure makes.
type larger struct{ azure.Cloud }

func (l larger) Pool(ctx context.Context, id fleet.ResourceID) (fleet.Pool, error) {
	p, err := l.Cloud.Pool(ctx, id)
	p.Capacity++
	return p, err
}

// What is awaited ends at its time with what is lacking: the machines, a Node, or what the Node says.
func TestOutcomeWhatIsAwaitedEnds(t *testing.T) {
	ends := func(w *world, err error, want string) {
		t.Helper()
		if !fleet.Is(err, fleet.KindTimedOut) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %q", err, want)
		}
	}
	play(t, 2, func(w *world) {
		w.control.Cloud = larger{w.control.Cloud}
		ctx, cancel := context.WithTimeout(w.t.Context(), time.Hour)
		defer cancel()
		began := time.Now()
		if ends(w, w.control.Scale(ctx, "agents", 3), "pool has 2 of 3"); time.Since(began) > 2*w.control.ReadyTimeout {
			t.Errorf("after %s", time.Since(began))
		}
	})
	play(t, 2, func(w *world) {
		w.mu.Lock()
		n := w.nodes["agents000001"]
		n.Ready, n.NotReadyWhy = false, "container runtime is down"
		w.mu.Unlock()
		ends(w, w.control.Scale(w.t.Context(), "agents", 2), "container runtime is down")
		w.mu.Lock()
		delete(w.nodes, "agents000001")
		w.mu.Unlock()
		ends(w, w.control.Scale(w.t.Context(), "agents", 2), "machine has no Node")
	})
}

// An agent that an autoscaler deletes while it is drained is deleted: its Node goes, and no other.
func TestOutcomeAgentThatOthersDelete(t *testing.T) {
	play(t, 2, func(w *world) {
		asked := &begun{Cloud: w.control.Cloud}
		w.control.Nodes, w.control.Cloud = deleting{w}, asked
		if err := w.control.Scale(w.t.Context(), "agents", 1); err != nil {
			t.Error(err)
		}
		if want := []string{"agents000000"}; !slices.Equal(w.names(), want) || len(asked.changes) > 0 {
			t.Errorf("Nodes %v, want %v; Azure was asked for %+v", w.names(), want, asked.changes)
		}
		w.wantNodes(1)
	})
}

// A begun Azure records what is begun, and has others do something just before the second read of the pool.
type begun struct {
	azure.Cloud
	changes []fleet.Change
	reads   int
	others  func()
}

func (b *begun) Begin(ctx context.Context, c fleet.Change) (fleet.Token, error) {
	b.changes = append(b.changes, c)
	return b.Cloud.Begin(ctx, c)
}

func (b *begun) Pool(ctx context.Context, id fleet.ResourceID) (fleet.Pool, error) {
	if b.reads++; b.reads == 2 && b.others != nil {
		b.others()
	}
	return b.Cloud.Pool(ctx, id)
}

// A size that others set meanwhile is not written again, and the agents get it.
func TestOutcomeSizeThatOthersSet(t *testing.T) {
	play(t, 2, func(w *world) {
		asked := &begun{Cloud: w.control.Cloud, others: func() {
			w.send("PATCH", "", `{"sku": {"name": "Standard_D4s_v5", "tier": "Standard", "capacity": 2}}`)
			time.Sleep(10 * time.Minute)
		}}
		w.control.Cloud = asked
		err := w.control.Resize(w.t.Context(), "agents", "Standard_D4s_v5")
		for _, c := range asked.changes {
			if _, is := c.(fleet.SetSize); is {
				t.Errorf("the size is written again: %+v", c)
			}
		}
		for _, m := range w.machines() {
			if err != nil || m.Size != "Standard_D4s_v5" {
				t.Errorf("%v: %s has size %s", err, m.Name, m.Size)
			}
		}
		time.Sleep(5 * time.Minute) // until the PATCH's machines have joined
	})
}

// A deleting world has others delete an agent while it is drained.
type deleting struct{ *world }

func (d deleting) Drain(ctx context.Context, name string, o cluster.DrainOptions, report func(cluster.DrainEvent)) error {
	d.send("POST", "/delete", `{"instanceIds": ["1"]}`)
	time.Sleep(10 * time.Minute)
	return d.world.Drain(ctx, name, o, report)
}
