package canary

import (
	"context"
	"fmt"
	"iter"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ortet/ortet/internal/cluster"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/plan"
	"github.com/ortet/ortet/test/workflowtest"
)

// found has Nodes by their names, and keeps which were set aside.
type found struct {
	kube
	nodes map[string]fleet.Node
	fails map[string]error
}

func (f *found) Node(_ context.Context, name string) (fleet.Node, error) {
	n, is := f.nodes[name]
	if !is {
		return n, &fleet.Error{Op: "get node", Kind: fleet.KindNotFound}
	}
	return n, f.fails["read "+name]
}

func (f *found) Nodes(context.Context) iter.Seq2[fleet.Node, error] {
	return func(yield func(fleet.Node, error) bool) {
		for _, n := range f.nodes {
			if !yield(n, nil) {
				return
			}
		}
	}
}

func (f *found) Pods(context.Context, string) ([]fleet.Pod, error) { return []fleet.Pod{}, nil }

func (f *found) Isolate(_ context.Context, name string) error {
	f.log = append(f.log, "isolate "+name)
	return f.fails["isolate "+name]
}

func (f *found) Drain(_ context.Context, name string, o cluster.DrainOptions, _ func(cluster.DrainEvent)) error {
	f.log = append(f.log, fmt.Sprint("empty ", name, " of ", o.UID, " within ", o.Deadline))
	return f.fails["drain "+name]
}

// TestIsolate sets the Nodes of clones aside once each, and none that another machine of the name left.
func TestIsolate(t *testing.T) {
	const vm = "5c5e9f1e-6d5b-4f0e-8a9d-00000000000"
	clone := func(n string) fleet.Instance {
		return fleet.Instance{ID: fleet.CanaryOf(poolID).Child("virtualMachines", n), Name: "c_" + n, HostName: "C00000" + n, VMID: vm + n}
	}
	node := func(n, of string) fleet.Node {
		return fleet.Node{Name: "c00000" + n, UID: "u" + n, SystemUUID: vm + of, ProviderID: "azure://" + string(clone(of).ID)}
	}
	const one = "isolate c000001, empty c000001 of u1 within 20s"
	failed := &fleet.Error{Op: "x", Kind: fleet.KindTransient}
	for name, c := range map[string]struct {
		nodes []fleet.Node
		fails map[string]error
		log   string
		again string // in the next pass
		err   bool
	}{
		"none is there":          {},
		"one is there":           {nodes: []fleet.Node{node("1", "1")}, log: one},
		"both are":               {nodes: []fleet.Node{node("1", "1"), node("2", "2")}, log: one + ", isolate c000002, empty c000002 of u2 within 20s"},
		"an earlier machine's":   {nodes: []fleet.Node{node("1", "9"), node("2", "2")}, log: "isolate c000002, empty c000002 of u2 within 20s"},
		"cannot be emptied":      {nodes: []fleet.Node{node("1", "1")}, fails: map[string]error{"drain c000001": failed}, log: one},
		"cannot be isolated":     {nodes: []fleet.Node{node("1", "1")}, fails: map[string]error{"isolate c000001": failed}, log: "isolate c000001", again: "isolate c000001", err: true},
		"goes as it is isolated": {nodes: []fleet.Node{node("1", "1")}, fails: map[string]error{"isolate c000001": &fleet.Error{Kind: fleet.KindNotFound}}, log: "isolate c000001", again: "isolate c000001"},
		"the API server is away": {nodes: []fleet.Node{node("1", "1")}, fails: map[string]error{"read c000001": failed}, err: true},
	} {
		f := &found{nodes: map[string]fleet.Node{}, fails: c.fails}
		for _, n := range c.nodes {
			f.nodes[n.Name] = n
		}
		x, _, _ := (&site{}).of(Version{}, &f.kube)
		x.Cluster = f
		x.judging = judging{clones: []fleet.Instance{clone("1"), clone("2"), {Name: "without a host name"}}, isolated: map[string]bool{}}
		for _, want := range []string{c.log, c.again} {
			f.log = nil
			if err := x.isolate(t.Context()); (err != nil) != c.err || strings.Join(f.log, ", ") != want {
				t.Errorf("%s: %v, %q, want %q", name, err, f.log, want)
			}
		}
	}
}

// TestJudged: the record keeps what the clones showed, and a version whose clones fail is tagged.
func TestJudged(t *testing.T) {
	const vm = "5c5e9f1e-6d5b-4f0e-8a9d-00000000000"
	for name, c := range map[string]struct {
		ready, none bool
		says        string
		note        string
	}{
		"they come up": {ready: true, note: "2026.1.2: "},
		"they do not":  {says: "2026.1.2 is quarantined: "},
		"none is made": {none: true, says: "the clones say nothing of 2026.1.2: "},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, f := &site{canary: &fleet.Pool{}}, &found{nodes: map[string]fleet.Node{}}
				for _, n := range []string{"1", "2"} {
					i := fleet.Instance{ID: fleet.CanaryOf(poolID).Child("virtualMachines", n), Name: "c_" + n, HostName: "c00000" + n, VMID: vm + n, Created: time.Now(), ProvisioningState: plan.Succeeded, Power: fleet.PowerRunning}
					if !c.none {
						s.clones = append(s.clones, i)
					}
					if c.ready {
						f.nodes[i.HostName] = fleet.Node{Name: i.HostName, Ready: true, ReadySince: time.Now(), Created: time.Now(), Unschedulable: true, SystemUUID: vm + n, ProviderID: "azure://" + string(i.ID)}
					}
				}
				x, o, _ := s.of(Version{}, &f.kube)
				x.Cluster = f
				_, judge := x.Rows("version", "")
				p := workflowtest.Play(t, s, judge)
				if (p.Err != nil) != (c.says != "") || p.Err != nil && !strings.Contains(p.Err.Error(), c.says) || !strings.HasPrefix(strings.Join(p.Notes, ""), c.note) || (len(p.Notes) > 0) != (c.note != "") {
					t.Errorf("%v, %q", p.Err, p.Notes)
				}
				failed := strings.Contains(c.says, "quarantined")
				if o.Proved != c.ready || (o.Quarantine != "") != failed || failed && s.tags[fleet.TagQuarantine] != o.Quarantine || failed != (s.tags[fleet.TagRolledBack] != "") || len(x.Findings) == 0 {
					t.Errorf("%+v, %v, %+v", o, s.tags, x.Findings)
				}
			})
		})
	}
}
