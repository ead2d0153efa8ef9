package agents

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/cluster"
	"github.com/ortet/ortet/internal/fleet"
)

const (
	computeVersion = "2024-07-01"
	tagsVersion    = "2021-04-01"
)

// Nodes is the part of the cluster that agents need; kube.Cluster with DeleteNode
// beside it.
type Nodes interface {
	cluster.Drainer
	Node(ctx context.Context, name string) (fleet.Node, error)
	Annotate(ctx context.Context, node string, annotations map[string]*string) error
	SetUnschedulable(ctx context.Context, node string, unschedulable bool) error
	// Forget deletes the Node of that UID and what k3s keeps of its name; a missing one
	// is no error.
	Forget(ctx context.Context, name, uid string) error
}

// Control changes the pools of one cluster. All fields but Report are required.
type Control struct {
	ARM   azure.Resources
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

// A Pool is a scale set as it is in Azure.
type Pool struct {
	ID       fleet.ResourceID
	Name     string
	Size     string
	Capacity int
	ScaleIn  string // "OldestVM", "NewestVM"; others are taken as NewestVM
	Tags     map[string]string
}

// A Machine is an instance of a pool.
type Machine struct {
	ID       fleet.ResourceID
	Instance string // "3"
	Number   int    // 3
	Name     string // "agents_3"
	Node     string // the name that its Node has: the computer name in lower case
	Power    string // "running", "deallocated", …; "" where Azure gives none
	Latest   bool   // it has the scale set's current model
}

// Pool finds a pool by its name.
func (c *Control) Pool(ctx context.Context, name string) (Pool, error) {
	var v struct {
		ID  fleet.ResourceID `json:"id"`
		SKU struct {
			Name     string `json:"name"`
			Capacity int    `json:"capacity"`
		} `json:"sku"`
		Tags       map[string]string `json:"tags"`
		Properties struct {
			ScaleInPolicy struct {
				Rules []string `json:"rules"`
			} `json:"scaleInPolicy"`
		} `json:"properties"`
	}
	err := c.ARM.Get(ctx, c.Group.In("virtualMachineScaleSets", name), computeVersion, &v)
	if fleet.Is(err, fleet.KindNotFound) {
		return Pool{}, &fleet.Error{Op: "find pool " + name, Resource: string(c.Group), Kind: fleet.KindNotFound,
			Remedy: "see ortet cluster status for the pools that exist"}
	}
	if err != nil {
		return Pool{}, err
	}
	p := Pool{ID: v.ID, Name: name, Size: v.SKU.Name, Capacity: v.SKU.Capacity, Tags: v.Tags}
	if len(v.Properties.ScaleInPolicy.Rules) > 0 {
		p.ScaleIn = v.Properties.ScaleInPolicy.Rules[0]
	}
	return p, nil
}

// Machines lists a pool's instances by their numbers.
func (c *Control) Machines(ctx context.Context, pool Pool) ([]Machine, error) {
	var out []Machine
	err := c.ARM.List(ctx, pool.ID+"/virtualMachines", computeVersion, func(raw json.RawMessage) error {
		var v struct {
			ID         fleet.ResourceID `json:"id"`
			InstanceID string           `json:"instanceId"`
			Name       string           `json:"name"`
			Properties struct {
				Latest    bool `json:"latestModelApplied"`
				OSProfile struct {
					ComputerName string `json:"computerName"`
				} `json:"osProfile"`
				InstanceView struct {
					Statuses []struct {
						Code string `json:"code"`
					} `json:"statuses"`
				} `json:"instanceView"`
			} `json:"properties"`
		}
		if err := json.Unmarshal(raw, &v); err != nil {
			return err
		}
		n, _ := strconv.Atoi(v.InstanceID) // of Uniform scale sets it is a number
		m := Machine{ID: v.ID, Instance: v.InstanceID, Number: n, Name: v.Name, Node: strings.ToLower(v.Properties.OSProfile.ComputerName), Latest: v.Properties.Latest}
		for _, s := range v.Properties.InstanceView.Statuses {
			if power, ok := strings.CutPrefix(s.Code, "PowerState/"); ok {
				m.Power = power
			}
		}
		out = append(out, m)
		return nil
	}, "$expand", "instanceView")
	slices.SortFunc(out, func(a, b Machine) int { return a.Number - b.Number })
	return out, err
}

// Find finds the machine of a Node, or of an instance's name, in any pool of the group.
func (c *Control) Find(ctx context.Context, name string) (Pool, Machine, error) {
	var pools []string
	err := c.ARM.List(ctx, c.Group+"/providers/Microsoft.Compute/virtualMachineScaleSets", computeVersion, func(raw json.RawMessage) error {
		var v struct{ Name string }
		err := json.Unmarshal(raw, &v)
		pools = append(pools, v.Name)
		return err
	})
	if err != nil {
		return Pool{}, Machine{}, err
	}
	for _, p := range pools {
		pool, machines, err := c.load(ctx, p)
		if err != nil {
			return Pool{}, Machine{}, err
		}
		for _, m := range machines {
			if strings.EqualFold(m.Node, name) || strings.EqualFold(m.Name, name) {
				return pool, m, nil
			}
		}
	}
	return Pool{}, Machine{}, &fleet.Error{Op: "find agent " + name, Resource: string(c.Group), Kind: fleet.KindNotFound, Remedy: "see ortet cluster agents for the agents that exist"}
}

// send sends what changes a pool or a machine, and waits until it is carried out. What
// an interrupted command began may still run, which Azure answers with 409
// OperationNotAllowed: that is waited for.
func (c *Control) send(ctx context.Context, op, method string, id fleet.ResourceID, version string, body any) error {
	deadline, waits := c.Now().Add(c.ReadyTimeout), false
	for {
		o, err := c.ARM.Send(ctx, op, method, id, version, body)
		if err == nil {
			_, err = o.Wait(ctx)
		}
		if !busy(err) || c.Now().After(deadline) {
			return err
		}
		if !waits {
			c.report(id.Name(), "waiting for an operation that runs in Azure")
		}
		waits = true
		select {
		case <-time.After(busyInterval):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// act sends an action of the scale set or of one machine.
func (c *Control) act(ctx context.Context, id fleet.ResourceID, action string, body any) error {
	return c.send(ctx, action, http.MethodPost, id+fleet.ResourceID("/"+action), computeVersion, body)
}

// setSKU changes the size or the capacity in the scale set's model.
func (c *Control) setSKU(ctx context.Context, op string, pool Pool, size string, capacity int) error {
	return c.send(ctx, op, http.MethodPatch, pool.ID, computeVersion, map[string]any{"sku": map[string]any{"name": size, "tier": "Standard", "capacity": capacity}})
}

// load reads a pool and its machines.
func (c *Control) load(ctx context.Context, name string) (Pool, []Machine, error) {
	pool, err := c.Pool(ctx, name)
	if err != nil {
		return pool, nil, err
	}
	machines, err := c.Machines(ctx, pool)
	return pool, machines, err
}

// node reads a machine's Node; one that is missing has no name.
func (c *Control) node(ctx context.Context, m Machine) (fleet.Node, error) {
	n, err := c.Nodes.Node(ctx, m.Node)
	if fleet.Is(err, fleet.KindNotFound) {
		return fleet.Node{}, nil
	}
	return n, err
}

// busy reports whether another operation is in the way. Azure answers 409 for much else
// that no waiting mends, such as a size that a region lacks.
func busy(err error) bool {
	return fleet.Is(err, fleet.KindConflict) && (strings.Contains(err.Error(), "in progress") || strings.Contains(err.Error(), "concurrent request"))
}

// busyInterval is how often an action is tried again that another one is in the way of.
const busyInterval = 5 * time.Second

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

func instances(list []Machine) map[string]any {
	ids := []string{}
	for _, m := range list {
		ids = append(ids, m.Instance)
	}
	return map[string]any{"instanceIds": ids}
}

func (c *Control) report(machine, format string, args ...any) {
	if c.Report != nil {
		c.Report(machine, fmt.Sprintf(format, args...))
	}
}
