package capture

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/ortet/ortet/internal/cluster"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/plan"
	"github.com/ortet/ortet/internal/workflow"
)

// done is the Wait of an act that is done.
var done = workflow.Wait{}

// A protection is what a node had before it was protected.
type protection struct {
	Node        string            `json:"node"`
	Mark        string            `json:"mark"` // the annotation that says that its protection is the capture's
	Value       string            `json:"value"`
	Annotations map[string]string `json:"annotations"`    // scale-down's, and the donor's that name its Machine, which may outlive the Node
	Skip        *string           `json:"skip,omitempty"` // the Machine's
	Protection  fleet.Protection  `json:"protection"`
}

func (p protection) node() fleet.Node { return fleet.Node{Name: p.Node, Annotations: p.Annotations} }

func valueOf(annotations map[string]string, key string) *string {
	if v, ok := annotations[key]; ok {
		return &v
	}
	return nil
}

// protectNode protects a node and its instance. It marks the Node first, and only if that is
// unchanged since it was read: of two captures in the same second one has to read it again.
func (c *capture) protectNode(ctx context.Context, p *workflow.Pass,
	name, mark, value string) (workflow.Wait, error) {
	node, err := c.Cluster.Node(ctx, name)
	if err = cmp.Or(err, c.usedByOthers(node)); err != nil {
		return done, err
	}
	isDonor := mark == fleet.AnnotationCapture
	if node.Annotations[mark] != value && !p.Begun() {
		p.Forget() // its owners may have changed it since an earlier pass
	}
	was, err := workflow.Before(ctx, p, func() (protection, error) {
		was := protection{Node: name, Mark: mark, Value: value, Annotations: maps.Clone(node.Annotations)}
		maps.DeleteFunc(was.Annotations, func(key, _ string) bool {
			return key != fleet.AnnotationScaleDownDisabled &&
				(!isDonor || key != fleet.AnnotationCapiMachine && key != fleet.AnnotationCapiNamespace)
		})
		machine, _, machineErr := c.Cluster.Machine(ctx, was.node())
		i, err := c.machineOf(ctx, mark)
		if err == nil {
			err = c.stillIs(mark, node, i)
		}
		was.Skip, was.Protection = valueOf(machine, fleet.AnnotationSkipRemediation), i.Protection
		return was, cmp.Or(machineErr, err)
	})
	if err == nil && node.Annotations[mark] != value {
		err = c.Cluster.AnnotateUnchanged(ctx, node, map[string]*string{fleet.AnnotationScaleDownDisabled: new("true"), mark: &value})
		if err == nil && isDonor {
			c.Cluster.Event(ctx, node, false, "CaptureBegun", "its OS disk becomes a prototype of its pool ("+c.name+")")
		}
	}
	if err == nil && !p.Begun() {
		_, _, err = c.Cluster.AnnotateMachine(ctx, was.node(), map[string]*string{fleet.AnnotationSkipRemediation: new("true"), mark: &value})
	}
	if err != nil {
		return done, err
	}
	return c.ensureProtection(ctx, p, mark, fleet.Protection{ScaleIn: true, ScaleSetActions: isDonor || was.Protection.ScaleSetActions})
}

// ensureProtection sets an instance's protection. An empty policy removes it: Azure does
// not document that null does.
func (c *capture) ensureProtection(ctx context.Context, p *workflow.Pass, mark string, want fleet.Protection) (workflow.Wait, error) {
	want.Off = !want.Protects()
	id := c.used(mark).Instance
	if want.Protects() && c.get().Unprotected {
		return done, nil
	}
	w, err := p.Ensure(ctx, fleet.ProtectInstance{Instance: id, Protection: want}, func(ctx context.Context) (bool, error) {
		i, err := c.machineOf(ctx, mark)
		alone := id.UniformPool() == "" && i.Pool == "" // no scale set can delete it
		return err == nil && (alone || i.Protection.ScaleIn == want.ScaleIn && i.Protection.ScaleSetActions == want.ScaleSetActions), err
	})
	refused := fleet.Is(err, fleet.KindUnsupported) || fleet.Is(err, fleet.KindInvalid)
	if e := (*fleet.Error)(nil); errors.As(err, &e) { // else it may pass
		refused = refused || e.Code == "OperationNotAllowed" && p.Since() > time.Minute
	}
	if refused && want.Protects() && id.UniformPool() == "" {
		return done, c.unprotected(ctx, mark, err)
	}
	return w, err
}

// unprotected goes on although Azure refuses to protect a virtual machine: its documentation
// contradicts itself on whether it can. What is wrong with the machine itself is an error.
func (c *capture) unprotected(ctx context.Context, mark string, why error) error {
	i, err := c.machineOf(ctx, mark)
	if err != nil || strings.EqualFold(i.ProvisioningState, plan.Deleting) {
		return cmp.Or(err, why)
	}
	said := false
	c.set(func(s *state) { said, s.Unprotected = s.Unprotected, true })
	if !said {
		c.Note("Azure does not protect instances of this scale set from scale-in: %v; the Nodes' annotations keep cluster-autoscaler off them", why)
	}
	return nil
}

// unprotect restores what protectNode found. A Node that its kubelet registered
// again has none of Ortet's annotations; another capture that uses it now keeps its protection.
func (c *capture) unprotect(ctx context.Context, p *workflow.Pass) (workflow.Wait, error) {
	var was protection
	if there, err := p.Saved(&was); !there || err != nil {
		return done, err
	}
	node, err := c.Cluster.Node(ctx, was.Node)
	if fleet.IgnoreNotFound(err) != nil || plan.UsedBy(node, c.get().Pool) != "" {
		return done, fleet.IgnoreNotFound(err)
	}
	machine, _, err := c.Cluster.Machine(ctx, was.node())
	if err == nil && machine[was.Mark] == was.Value {
		_, _, err = c.Cluster.AnnotateMachine(ctx, was.node(), map[string]*string{fleet.AnnotationSkipRemediation: was.Skip, was.Mark: nil})
	}
	if err == nil && node.Annotations[was.Mark] == was.Value {
		scaleDown := valueOf(was.Annotations, fleet.AnnotationScaleDownDisabled)
		err = c.Cluster.Annotate(ctx, was.Node, map[string]*string{fleet.AnnotationScaleDownDisabled: scaleDown, was.Mark: nil})
		if err == nil && was.Mark == fleet.AnnotationCapture {
			c.released(ctx, node, p.IsDone(stepSnapshot))
		}
	}
	if err != nil {
		return done, err
	}
	w, err := c.ensureProtection(ctx, p, was.Mark, was.Protection)
	return w, fleet.IgnoreNotFound(err)
}

// manualUnprotect is for the donor and the workbench, which may be in no scale set.
func manualUnprotect(node string, pool, id fleet.ResourceID) string {
	ofAzure := workflow.SkipIf(pool != "", fmt.Sprintf("az vmss update -g %s -n %s --instance-id %s "+
		"--protect-from-scale-in false --protect-from-scale-set-actions false; ", pool.Group().Name(), pool.Name(), id.Name()))
	return fmt.Sprintf("node %s may still be protected; remove what its owners did not set: %skubectl annotate node %s %s- %s- %s-",
		node, ofAzure, node, fleet.AnnotationCapture, fleet.AnnotationWorkbench, fleet.AnnotationScaleDownDisabled)
}

func (c *capture) cordon(ctx context.Context, p *workflow.Pass) (workflow.Wait, error) {
	was, err := workflow.Before(ctx, p, func() (bool, error) {
		node, err := c.Cluster.Node(ctx, c.req.Node)
		return node.Unschedulable, err
	})
	if err != nil {
		return done, err
	}
	if was {
		p.Note("node %s was cordoned before, and stays cordoned", c.req.Node)
	}
	return done, c.Cluster.SetUnschedulable(ctx, c.req.Node, true)
}

func (c *capture) uncordon(ctx context.Context, p *workflow.Pass) (workflow.Wait, error) {
	var was bool
	if there, err := p.Saved(&was); !there || err != nil || was {
		return done, err
	}
	return done, fleet.IgnoreNotFound(c.Cluster.SetUnschedulable(ctx, c.req.Node, false))
}

func (c *capture) drain(ctx context.Context, p *workflow.Pass) (workflow.Wait, error) {
	return done, c.Cluster.Drain(ctx, c.req.Node, cluster.DrainOptions{
		GracePeriod: c.req.GracePeriod,
		Deadline:    max(3*c.req.GracePeriod-p.Since(), time.Second),
		Force:       c.req.ForceDrain,
		UID:         c.get().UID,
		Leave:       []string{inspectionPod(c.get().Pool)},
	}, func(e cluster.DrainEvent) {
		p.Progress(-1, "%s, %d to go", strings.TrimSuffix(fmt.Sprintf("%s %s (%s)", e.What, e.Pod, e.Because), " ()"), e.Left)
	})
}

// isDown reports whether an instance is stopped or deallocated.
func isDown(i fleet.Instance) bool {
	return i.Power == fleet.PowerStopped || i.Power == fleet.PowerDeallocated
}

// stop saves the donor's boot id: another one proves a later boot.
func (c *capture) stop(ctx context.Context, p *workflow.Pass) (workflow.Wait, error) {
	_, err := workflow.Before(ctx, p, func() (string, error) {
		node, err := c.Cluster.Node(ctx, c.req.Node)
		return node.BootID, err
	})
	if err != nil {
		return done, err
	}
	id := c.get().Instance
	return p.Ensure(ctx, fleet.StopInstance{Instance: id, Deallocate: c.req.Deallocate}, func(ctx context.Context) (bool, error) {
		i, err := c.donorInstance(ctx)
		if err == nil && !isDown(i) && !p.Begun() {
			err = c.still(ctx, fleet.AnnotationCapture, i)
		}
		if err != nil || !isDown(i) {
			return false, err
		}
		c.set(func(s *state) { s.Stopped, s.Disk = true, i.OSDisk })
		return !c.req.Deallocate || i.Power == fleet.PowerDeallocated, nil
	})
}

// readyEvery is how often the donor's Node is read while it boots.
const readyEvery = 2 * time.Second

// start starts the donor's instance, and is done when the Node is Ready with a new boot id.
// It does not wait for Azure's operation, which may end a minute later. If it is not known
// whether the donor was stopped, it has to be Ready after a minute: Kubernetes takes 50 s to
// notice that a kubelet is gone. A donor whose stop was refused is in service already.
func (c *capture) start(ctx context.Context, p *workflow.Pass) (workflow.Wait, error) {
	var bootID string
	s := c.get()
	if there, err := p.Saved(&bootID); !there || err != nil || !s.Stopped && !p.Begun() {
		return done, err
	}
	node, err := c.Cluster.Node(ctx, c.req.Node)
	if fleet.IgnoreNotFound(err) != nil {
		return done, err
	}
	if node.Ready && s.Stopped && node.BootID != bootID {
		return done, nil
	}
	w, err := p.Ensure(ctx, fleet.StartInstance{Instance: s.Instance}, func(ctx context.Context) (bool, error) {
		i, err := c.donorInstance(ctx)
		if err == nil && i.Power != fleet.PowerRunning && i.Power != fleet.PowerStarting {
			c.set(func(s *state) { s.Stopped = true })
		}
		return err == nil && i.Power == fleet.PowerRunning, err
	})
	switch {
	case fleet.Is(err, fleet.KindNotFound):
		p.Note("node %s was deleted during the capture", c.req.Node)
		c.set(func(s *state) { s.DonorGone = true })
		return done, nil
	case err != nil:
		return done, err
	case w.RequeueAfter > 0:
		w.RequeueAfter = min(w.RequeueAfter, readyEvery)
		return w, nil
	case !node.Ready:
		return workflow.In(readyEvery, "node %s is not Ready: %s", c.req.Node, cmp.Or(node.NotReadyWhy, "it is not registered in the cluster")), nil
	case c.get().Stopped && node.BootID == bootID && !c.reported.IsZero() && !node.Reported.Equal(c.reported):
		return done, nil // its kubelet reports on, in the boot of before: the stop was preempted
	case c.get().Stopped || p.Since() < time.Minute:
		c.reported = node.Reported
		return workflow.In(readyEvery, "node %s has not reported its boot", c.req.Node), nil
	}
	return done, nil
}

func (c *capture) manualStart() string {
	id := c.get().Instance
	view := cmp.Or(workflow.SkipIf(id.UniformPool() == "", "az vm get-instance-view"), "az vmss get-instance-view")
	return fmt.Sprintf("node %s did not come back: it is left cordoned. Check instance %s (%s), start or replace it; "+
		"then run the same command again, or kubectl uncordon %s", c.req.Node, id, view, c.req.Node)
}

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
		err = fleet.Invalid("use instance", string(s.Instance), "", "it is of %s, not of %s", cmp.Or(string(i.Pool), "no scale set"), s.Pool)
	}
	return i, err
}

// benchInstance reads the workbench's instance, which may be of any pool, or of none.
func (c *capture) benchInstance(ctx context.Context) (fleet.Instance, error) {
	b := c.get().Bench
	return c.machine(ctx, b.Instance, b.VMID)
}

// used returns the donor, or the workbench, by the annotation that marks its Node.
func (c *capture) used(mark string) workbench {
	s := c.get()
	if mark == fleet.AnnotationWorkbench {
		return s.Bench
	}
	return workbench{Node: c.req.Node, Instance: s.Instance, VMID: s.VMID, UID: s.UID}
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
	n, err := c.Cluster.Node(ctx, c.used(mark).Node)
	if err == nil {
		err = c.stillIs(mark, n, i)
	}
	return err
}

// stillIs is still for a Node that was just read, too.
func (c *capture) stillIs(mark string, n fleet.Node, i fleet.Instance) error {
	u := c.used(mark)
	if u.UID != "" && n.UID != u.UID || u.VMID != "" && !strings.EqualFold(i.VMID, u.VMID) { // a record of an earlier version of Ortet has no uid
		return fleet.Invalid("use", "node "+n.Name, "", "it, or its machine, was deleted and made again since it was chosen")
	}
	return n.Claim().Is(i.Computer())
}
