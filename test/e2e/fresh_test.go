//go:build e2e

package e2e

import (
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// freshKilled kills captures that add their donor while it boots, is judged, and is stopped, and runs
// another command on the pool: afterwards the pool has the nodes that it had.
func freshKilled(t *testing.T, w *world) {
	judged := func(l line) os.Signal {
		if l.step == "raise" && strings.Contains(l.text, "has not been Ready for") {
			return syscall.SIGKILL
		}
		return nil
	}
	for _, c := range []struct {
		short string
		run   func(*testing.T, *pool)
	}{
		{"boots", func(t *testing.T, p *pool) {
			boots := func(l line) os.Signal {
				if l.step != "raise" {
					return nil
				}
				p.added(t)
				return syscall.SIGKILL
			}
			p.killFresh(t, boots)
			p.ortet(t, nil, "rollback", string(p.id())).exits(t, exitRefused).
				says(t, "delete-donor: done", "refused for 1 reason, the open capture was undone, nothing else was changed", "it was never captured")
			p.killFresh(t, boots)
			abandon := []string{"capture", "--abandon", string(p.id())} // as ortet status says
			p.run(t, nil, append(abandon, p.access([]string{"status"})...)...).exits(t, exitDone).says(t, "the model of "+p.name+" is as it was")
		}},
		{"judges", func(t *testing.T, p *pool) {
			p.killFresh(t, judged, "--canary-soak=30s")
			p.ortet(t, nil, baked("capture", p.nodes[0], "--workbench="+p.nodes[1])...).exits(t, exitDone).
				says(t, "is undone first: this command captures "+p.nodes[0], "delete-donor: done")
			p.pinned(t, today())
		}},
		{"copies", func(t *testing.T, p *pool) {
			p.killFresh(t, on("stop", "done", syscall.SIGKILL))
			donor := p.fresh(t)
			eventually(t, "the command that deletes "+donor, func() bool { // once the Lease has expired
				o := p.ortet(t, nil, "status", string(p.id())).exits(t, exitDone).says(t, "fresh donor: "+donor)
				return strings.Contains(flat(o.stdout), "to delete it: ortet capture --abandon "+string(p.id()))
			})
			p.ortet(t, nil, p.capturesFresh()...).exits(t, exitDone).says(t, "captured "+donor+" as "+today())
			p.pinned(t, today())
		}},
	} {
		t.Run(c.short, func(t *testing.T) {
			t.Parallel()
			p := w.pool(t, c.short, 2)
			before := []kept{p.node(t, p.nodes[0]), p.node(t, p.nodes[1])}
			c.run(t, p)
			set, err := p.azure.Pool(t.Context(), p.name)
			must(t, err)
			if got := *set.SKU.Capacity; got != 2 {
				t.Errorf("the capacity is %d, was 2", got)
			}
			if got := p.fresh(t); got != "" {
				t.Errorf("Node %s is left", got)
			}
			for i, node := range p.nodes {
				p.whole(t, node, before[i])
			}
			if got := p.instances(t); len(got) != 2 {
				t.Errorf("%d instances, were 2", len(got))
			}
			p.clean(t)
		})
	}
}

func (p *pool) capturesFresh(more ...string) []string {
	return append(baked("capture", "--pool="+string(p.id()), "--fresh", "--canary=0", "--canary-soak=5s", "--lease-duration=5s"), more...)
}

// killFresh has a capture that adds its donor killed; its machine stays.
func (p *pool) killFresh(t *testing.T, at func(line) os.Signal, more ...string) {
	t.Helper()
	p.ortet(t, at, p.capturesFresh(more...)...).exits(t, exitKilled)
	p.added(t)
}

func (p *pool) added(t *testing.T) {
	t.Helper()
	eventually(t, "a third instance", func() bool { return len(p.instances(t)) == 3 })
}

// fresh returns the Node that the pool did not have at the start, "" for none.
func (p *pool) fresh(t *testing.T) string {
	t.Helper()
	nodes, err := p.kube.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	must(t, err)
	for _, n := range nodes.Items {
		if strings.HasPrefix(n.Name, p.name) && !slices.Contains(p.nodes, n.Name) {
			return n.Name
		}
	}
	return ""
}
