package capture

import (
	"cmp"
	"context"
	"errors"
	"strings"

	"github.com/ortet/ortet/internal/fleet"
)

// machine reads an instance. A virtual machine that was deleted and created again under its name
// is fleet.KindNotFound, as its vmId shows.
func (c *capture) machine(ctx context.Context, id fleet.ResourceID, vmID string) (fleet.Instance, error) {
	i, err := c.Cloud.Instance(ctx, id)
	if err == nil && id.UniformPool() == "" && vmID != "" && !strings.EqualFold(i.VMID, vmID) {
		err = &fleet.Error{Op: "get instance", Resource: string(id), Kind: fleet.KindNotFound,
			Err: errors.New("it was deleted, and another virtual machine has its name")}
	}
	return i, err
}

// donorInstance reads the donor's instance. A virtual machine is believed to be of the pool only
// after Azure says so: its id, which a record may have, does not name its scale set.
func (c *capture) donorInstance(ctx context.Context) (fleet.Instance, error) {
	s := c.get()
	i, err := c.machine(ctx, s.Instance, s.VMID)
	if err == nil && s.Instance.UniformPool() == "" && !i.Pool.Equal(s.Pool) {
		err = invalid("use instance", string(s.Instance), "", "it is of %s, not of %s", cmp.Or(string(i.Pool), "no scale set"), s.Pool)
	}
	return i, err
}

// benchInstance reads the workbench's instance, which may be of any pool, or of none.
func (c *capture) benchInstance(ctx context.Context) (fleet.Instance, error) {
	b := c.get().Bench
	return c.machine(ctx, b.Instance, b.VMID)
}

// machineOf reads the donor's or the workbench's instance, by the annotation that marks its Node.
func (c *capture) machineOf(ctx context.Context, mark string) (fleet.Instance, error) {
	if mark == fleet.AnnotationWorkbench {
		return c.benchInstance(ctx)
	}
	return c.donorInstance(ctx)
}

// still checks, for one request to the API server, that a Node is the machine i, which was just read,
// and the one that was chosen. Call it before the first change, and before each that stops the machine
// or attaches to it; what gives back has to work in any case.
func (c *capture) still(ctx context.Context, mark string, i fleet.Instance) error {
	name := c.req.Node
	if mark == fleet.AnnotationWorkbench {
		name = c.get().Bench.Node
	}
	n, err := c.Cluster.Node(ctx, name)
	if err == nil {
		err = c.stillIs(mark, n, i)
	}
	return err
}

// stillIs is still for a Node that was just read, too.
func (c *capture) stillIs(mark string, n fleet.Node, i fleet.Instance) error {
	s := c.get()
	uid, vm := s.UID, s.VMID
	if mark == fleet.AnnotationWorkbench {
		uid, vm = s.Bench.UID, s.Bench.VMID
	}
	if uid != "" && n.UID != uid || vm != "" && !strings.EqualFold(i.VMID, vm) { // a record of an earlier version of Ortet has no uid
		return invalid("use", "node "+n.Name, "", "it, or its machine, was deleted and made again since it was chosen")
	}
	return n.Claim().Is(i.Computer())
}
