package agents

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/cluster"
	"github.com/ortet/ortet/internal/fleet"
)

const computeVersion = "2024-07-01"

// Nodes is the part of the cluster that agents need; kube.Cluster with DeleteNode
// beside it.
type Nodes interface {
	cluster.Cordoner
	Node(ctx context.Context, name string) (fleet.Node, error)
	Nodes(ctx context.Context) iter.Seq2[fleet.Node, error]
	// Forget deletes the Node of that UID and what k3s keeps of its name; a missing one
	// is no error.
	Forget(ctx context.Context, name, uid string) error
	// Now is the API server's time, with which times of Nodes are compared.
	Now() time.Time
}

// Control changes the pools of one cluster. All fields but Report are required.
type Control struct {
	ARM   azure.Resources // for the list of pools and their tags
	Cloud azure.Cloud
	Nodes Nodes
	Group fleet.ResourceID // the compute group
	// DrainTimeout bounds each drain, ReadyTimeout the wait for a Node to be Ready.
	DrainTimeout, ReadyTimeout time.Duration
	// Force deletes what is left of a Node's pods at the end of DrainTimeout.
	Force bool
	Now   func() time.Time
	// Report is what a person who watches sees, a line at a time.
	Report func(machine, what string)
}

// A Machine is an instance of a pool.
type Machine struct {
	fleet.Instance
	Node string // the name that its Node has: the computer name in lower case
}

// Pool finds a pool by its name.
func (c *Control) Pool(ctx context.Context, name string) (fleet.Pool, error) {
	p, err := c.Cloud.Pool(ctx, c.Group.In("virtualMachineScaleSets", name))
	if fleet.Is(err, fleet.KindNotFound) {
		err = &fleet.Error{Op: "find pool " + name, Resource: string(c.Group), Kind: fleet.KindNotFound,
			Remedy: "see ortet cluster status for the pools that exist"}
	}
	return p, err
}

// Machines lists a pool's instances by their numbers.
func (c *Control) Machines(ctx context.Context, pool fleet.ResourceID) ([]Machine, error) {
	list, err := c.Cloud.Instances(ctx, pool)
	var out []Machine
	for _, i := range list {
		out = append(out, Machine{i, strings.ToLower(i.HostName)})
	}
	slices.SortFunc(out, func(a, b Machine) int { return a.number() - b.number() })
	return out, err
}

func (m Machine) number() int {
	n, _ := strconv.Atoi(m.InstanceID) // of Uniform scale sets it is a number
	return n
}

// Find finds the machine of a Node, or of an instance's name, in any pool of the group. One that an
// unfinished replacement has deleted has no ID.
func (c *Control) Find(ctx context.Context, name string) (fleet.Pool, Machine, error) {
	var pools []string
	err := c.ARM.List(ctx, c.Group+"/providers/Microsoft.Compute/virtualMachineScaleSets", computeVersion, func(raw json.RawMessage) error {
		var v struct{ Name string }
		err := json.Unmarshal(raw, &v)
		pools = append(pools, v.Name)
		return err
	})
	if err != nil {
		return fleet.Pool{}, Machine{}, err
	}
	for _, p := range pools {
		pool, machines, err := c.load(ctx, p)
		if err != nil {
			return fleet.Pool{}, Machine{}, err
		}
		if m, _ := replaced(pool); m.Name != "" {
			machines = append(machines, m)
		}
		for _, m := range machines {
			if strings.EqualFold(m.Node, name) || strings.EqualFold(m.Name, name) {
				return pool, m, nil
			}
		}
	}
	return fleet.Pool{}, Machine{}, &fleet.Error{Op: "find agent " + name, Resource: string(c.Group), Kind: fleet.KindNotFound, Remedy: "see ortet cluster agents for the agents that exist"}
}

// writer is how pools and machines are changed.
func (c *Control) writer() azure.Writer {
	return azure.Writer{Cloud: c.Cloud, Now: c.Now, Within: c.ReadyTimeout, Report: func(format string, args ...any) { c.report("Azure", format, args...) }}
}

// once is a change that does not depend on what the pool is.
func once(change fleet.Change) func(fleet.Pool) fleet.Change {
	return func(fleet.Pool) fleet.Change { return change }
}

// setCapacity sets the capacity that want computes from the present one.
func (c *Control) setCapacity(ctx context.Context, pool fleet.ResourceID, want func(now int64) int64) error {
	var n int64
	_, err := c.writer().ScaleSet(ctx, pool, func(p fleet.Pool) fleet.Change {
		if n = want(p.Capacity); n == p.Capacity {
			return nil
		}
		return fleet.SetCapacity{Pool: p.ID, Capacity: n, Etag: p.Etag}
	}, func(_ context.Context, p fleet.Pool) (bool, error) { return p.Capacity >= n, nil }) // others may have scaled further
	return err
}

// load reads a pool and its machines but those that are being deleted, which its capacity does not count.
func (c *Control) load(ctx context.Context, name string) (fleet.Pool, []Machine, error) {
	pool, err := c.Pool(ctx, name)
	if err != nil {
		return pool, nil, err
	}
	machines, err := c.Machines(ctx, pool.ID)
	return pool, slices.DeleteFunc(machines, func(m Machine) bool { return strings.EqualFold(m.ProvisioningState, "Deleting") }), err
}

// node reads a machine's Node; a missing one has no name, and one of its name that is another machine's is
// KindInvalid.
func (c *Control) node(ctx context.Context, m Machine) (fleet.Node, error) {
	n, err := c.Nodes.Node(ctx, m.Node)
	if fleet.Is(err, fleet.KindNotFound) {
		return fleet.Node{}, nil
	}
	if err == nil {
		err = n.Claim().Is(m.Computer())
	}
	return n, err
}

// nodes returns the Nodes of machines that are to be stopped or deleted, by instance. Of refused machines a
// Node that is not it may be its own all the same: the machine would go without a drain.
func (c *Control) nodes(ctx context.Context, machines ...Machine) (out map[string]fleet.Node, refused map[string]error, err error) {
	var all []fleet.Node
	named := map[string]fleet.Node{}
	for n, err := range c.Nodes.Nodes(ctx) {
		if err != nil {
			return nil, nil, err
		}
		all, named[n.Name] = append(all, n), n
	}
	roster := fleet.NewRoster(all)
	out, refused = map[string]fleet.Node{}, map[string]error{}
	for _, m := range machines {
		n, rivals := roster.Of(m.Computer())
		other, found := named[m.Node]
		var why error
		switch {
		case len(rivals) > 0:
			why = errors.New("node " + strings.Join(rivals, ", ") + " reports that it is this machine")
		case n == nil && found:
			why = other.Claim().Is(m.Computer())
		}
		if why != nil {
			refused[m.InstanceID] = &fleet.Error{Op: "find the Node of", Resource: string(m.ID), Kind: fleet.KindInvalid, Err: why, Remedy: fleet.DeleteStaleNode}
		}
		if n != nil {
			out[m.InstanceID] = *n
		}
	}
	return out, refused, nil
}

// own returns the Node of one machine that is to be stopped or deleted; a missing one has no name.
func (c *Control) own(ctx context.Context, m Machine) (fleet.Node, error) {
	nodes, refused, err := c.nodes(ctx, m)
	return nodes[m.InstanceID], cmp.Or(err, refused[m.InstanceID])
}

// eachOwn is each for what stops or deletes: machines that refuse it come after all others, so that a Node
// that claims one of them keeps no other from its turn.
func (c *Control) eachOwn(ctx context.Context, machines []Machine, parallel int, do func(context.Context, Machine) error) error {
	_, refused, err := c.nodes(ctx, machines...)
	if err != nil {
		return err
	}
	for _, last := range []bool{false, true} {
		list := slices.DeleteFunc(slices.Clone(machines), func(m Machine) bool { return (refused[m.InstanceID] != nil) != last })
		if err := each(ctx, list, parallel, do); err != nil {
			return err
		}
	}
	return nil
}

// each works on machines, parallel at a time, and begins none after one failed.
func each(ctx context.Context, machines []Machine, parallel int, do func(context.Context, Machine) error) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(max(parallel, 1))
	for _, m := range machines {
		g.Go(func() error {
			if err := ctx.Err(); err != nil {
				return err
			}
			if err := do(ctx, m); err != nil {
				return fmt.Errorf("%s: %w", m.Name, err)
			}
			return nil
		})
	}
	return g.Wait()
}

func instances(list []Machine) []string {
	ids := []string{}
	for _, m := range list {
		ids = append(ids, m.InstanceID)
	}
	return ids
}

func (c *Control) report(machine, format string, args ...any) {
	if c.Report != nil {
		c.Report(machine, fmt.Sprintf(format, args...))
	}
}
