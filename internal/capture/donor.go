package capture

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ortet/ortet/internal/cluster"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/prototype"
	"github.com/ortet/ortet/internal/workflow"
)

// yes is the value of the annotations that keep autoscalers and health checks away.
const yes = "true"

// done is the Wait of an act that is done.
var done = workflow.Wait{}

func in(d time.Duration, format string, args ...any) workflow.Wait {
	return workflow.Wait{In: d, Percent: -1, Status: fmt.Sprintf(format, args...)}
}

func invalid(op, on, remedy, format string, args ...any) error {
	return &fleet.Error{Op: op, Resource: on, Kind: fleet.KindInvalid, Remedy: remedy, Err: fmt.Errorf(format, args...)}
}

// protectBefore is the protection that the donor had before.
type protectBefore struct {
	UID        string            `json:"uid"` // of the Node
	ScaleDown  *string           `json:"scaleDown"`
	Protection fleet.Protection  `json:"protection"`
	HasMachine bool              `json:"hasMachine,omitempty"`
	Machine    map[string]string `json:"machine,omitempty"` // the Node's annotations that name its Machine
	Skip       *string           `json:"skip,omitempty"`    // the Machine's
}

func valueOf(annotations map[string]string, key string) *string {
	if v, ok := annotations[key]; ok {
		return &v
	}
	return nil
}

// protect keeps autoscalers, health checks and upgrades off the donor. The Machine is
// annotated first: fleet.AnnotationCapture on the Node means that both are.
func (c *capture) protect(ctx context.Context, p *workflow.Pass) (workflow.Wait, error) {
	s := c.get()
	node, err := c.Cluster.Node(ctx, c.req.Node)
	if err == nil && prototype.UsedBy(node, s.Pool) != "" {
		err = invalid("protect", "node "+node.Name, "", "a capture of %s uses it as its workbench", prototype.UsedBy(node, s.Pool))
	}
	if err != nil {
		return done, err
	}
	var was protectBefore
	if there, err := p.Saved(&was); err != nil {
		return done, err
	} else if !there {
		if was, err = c.readProtection(ctx, p, node); err != nil {
			return done, err
		}
		if err := p.Before(ctx, &was); err != nil {
			return done, err
		}
	}
	if node.Annotations[fleet.AnnotationCapture] != c.name {
		value := yes
		if err := c.annotateMachine(ctx, was, &value, &c.name); err != nil {
			return done, err
		}
		if err := c.Cluster.Annotate(ctx, node.Name, map[string]*string{fleet.AnnotationCapture: &c.name, fleet.AnnotationScaleDownDisabled: &value}); err != nil {
			return done, err
		}
		c.Cluster.Event(ctx, node, false, "CaptureBegun", "its OS disk becomes a prototype of its pool ("+c.name+")")
	}
	return c.ensureProtection(ctx, p, s.Instance, fleet.Protection{ScaleIn: true, ScaleSetActions: true})
}

func (c *capture) readProtection(ctx context.Context, p *workflow.Pass, node fleet.Node) (was protectBefore, err error) {
	i, err := c.Cloud.Instance(ctx, c.get().Instance)
	if err != nil {
		return was, err
	}
	machine, known, err := c.Cluster.Machine(ctx, node)
	if err != nil {
		return was, err
	}
	was = protectBefore{UID: node.UID, Protection: i.Protection, ScaleDown: valueOf(node.Annotations, fleet.AnnotationScaleDownDisabled), HasMachine: known}
	if known {
		was.Skip, was.Machine = valueOf(machine, fleet.AnnotationSkipRemediation), map[string]string{}
		for _, k := range []string{fleet.AnnotationCapiMachine, fleet.AnnotationCapiNamespace} {
			was.Machine[k] = node.Annotations[k]
		}
		if was.Skip != nil {
			p.Note("the Machine of %s had the annotation %s before, and keeps it", node.Name, fleet.AnnotationSkipRemediation)
		}
	}
	if was.ScaleDown != nil && *was.ScaleDown == yes {
		p.Note("node %s had the annotation %s=true before, and keeps it", node.Name, fleet.AnnotationScaleDownDisabled)
	}
	return was, nil
}

func (c *capture) annotateMachine(ctx context.Context, was protectBefore, skip, mark *string) error {
	if !was.HasMachine {
		return nil
	}
	_, _, err := c.Cluster.AnnotateMachine(ctx, fleet.Node{Name: c.req.Node, Annotations: was.Machine}, map[string]*string{
		fleet.AnnotationSkipRemediation: skip, fleet.AnnotationCapture: mark,
	})
	return err
}

// ensureProtection sets an instance's protection. An empty policy removes it: Azure does
// not document that null does.
func (c *capture) ensureProtection(ctx context.Context, p *workflow.Pass, id fleet.ResourceID, want fleet.Protection) (workflow.Wait, error) {
	want.Off = !want.Protects()
	return p.Ensure(ctx, fleet.ProtectInstance{Instance: id, Protection: want}, func(ctx context.Context) (bool, error) {
		i, err := c.Cloud.Instance(ctx, id)
		return err == nil && i.Protection.ScaleIn == want.ScaleIn && i.Protection.ScaleSetActions == want.ScaleSetActions, err
	})
}

// unprotect restores what protect found. If the kubelet has registered the Node again, the
// new Node has none of Ortet's annotations.
func (c *capture) unprotect(ctx context.Context, p *workflow.Pass) (workflow.Wait, error) {
	var was protectBefore
	if there, err := p.Saved(&was); !there || err != nil {
		return done, err
	}
	node, err := c.Cluster.Node(ctx, c.req.Node)
	if missing(err) != nil {
		return done, err
	}
	same := err == nil && node.UID == was.UID
	if was.HasMachine {
		machine, _, err := c.Cluster.Machine(ctx, fleet.Node{Name: c.req.Node, Annotations: was.Machine})
		if err == nil && machine[fleet.AnnotationCapture] == c.name {
			err = c.annotateMachine(ctx, was, was.Skip, nil)
		}
		if err != nil {
			return done, err
		}
	}
	if same && node.Annotations[fleet.AnnotationCapture] == c.name {
		if err := c.Cluster.Annotate(ctx, c.req.Node, map[string]*string{fleet.AnnotationCapture: nil, fleet.AnnotationScaleDownDisabled: was.ScaleDown}); err != nil {
			return done, err
		}
		c.released(ctx, node)
	}
	w, err := c.ensureProtection(ctx, p, c.get().Instance, was.Protection)
	return w, missing(err)
}

func (c *capture) manualUnprotect() string {
	id := c.get().Instance
	return fmt.Sprintf("node %s may still be protected: az vmss update -g %s -n %s --instance-id %s --protect-from-scale-in false --protect-from-scale-set-actions false",
		c.req.Node, id.Group().Name(), id.Parent().Name(), id.Name())
}

// cordonBefore is the Node as cordon found it.
type cordonBefore struct {
	UID           string `json:"uid"`
	Unschedulable bool   `json:"unschedulable,omitempty"`
}

func (c *capture) cordon(ctx context.Context, p *workflow.Pass) (workflow.Wait, error) {
	node, err := c.Cluster.Node(ctx, c.req.Node)
	if err != nil {
		return done, err
	}
	was := cordonBefore{node.UID, node.Unschedulable}
	if err := p.Before(ctx, &was); err != nil {
		return done, err
	}
	if was.Unschedulable {
		p.Note("node %s was cordoned before, and stays cordoned", node.Name)
	}
	return done, c.Cluster.SetUnschedulable(ctx, node.Name, true)
}

// uncordon does not change a Node that its kubelet has registered again.
func (c *capture) uncordon(ctx context.Context, p *workflow.Pass) (workflow.Wait, error) {
	var was cordonBefore
	if there, err := p.Saved(&was); !there || err != nil || was.Unschedulable {
		return done, err
	}
	node, err := c.Cluster.Node(ctx, c.req.Node)
	if err != nil || node.UID != was.UID {
		return done, missing(err)
	}
	return done, c.Cluster.SetUnschedulable(ctx, node.Name, false)
}

func (c *capture) drain(ctx context.Context, p *workflow.Pass) (workflow.Wait, error) {
	deadline := max(3*c.req.GracePeriod-p.Since(), time.Second)
	return done, c.Cluster.Drain(ctx, c.req.Node, cluster.DrainOptions{
		GracePeriod: c.req.GracePeriod, Deadline: deadline, Force: c.req.ForceDrain, Leave: []string{inspectionPod(c.get().Pool)},
	}, func(e cluster.DrainEvent) {
		text := e.What + " " + e.Pod
		if e.Because != "" {
			text += " (" + e.Because + ")"
		}
		p.Progress(-1, "%s, %d to go", text, e.Left)
	})
}

// isDown reports whether an instance is stopped or deallocated.
func isDown(i fleet.Instance) bool {
	return i.Power == fleet.PowerStopped || i.Power == fleet.PowerDeallocated
}

// stopBefore is the donor's boot before it is stopped.
type stopBefore struct {
	BootID string `json:"bootId"`
}

func (c *capture) stop(ctx context.Context, p *workflow.Pass) (workflow.Wait, error) {
	var was stopBefore
	if there, err := p.Saved(&was); err != nil {
		return done, err
	} else if !there {
		node, err := c.Cluster.Node(ctx, c.req.Node)
		if err != nil {
			return done, err
		}
		was.BootID = node.BootID
		c.set(func(s *state) { s.BootID, s.Stopped = node.BootID, false })
		if err := p.Before(ctx, &was); err != nil {
			return done, err
		}
	}
	id := c.get().Instance
	return p.Ensure(ctx, fleet.StopInstance{Instance: id, Deallocate: c.req.Deallocate}, func(ctx context.Context) (bool, error) {
		i, err := c.Cloud.Instance(ctx, id)
		if err != nil || !isDown(i) {
			return false, err
		}
		c.set(func(s *state) { s.Stopped, s.Disk = true, i.OSDisk })
		return !c.req.Deallocate || i.Power == fleet.PowerDeallocated, nil
	})
}

const (
	// readyEvery is how often the donor's Node is read while it boots.
	readyEvery = 3 * time.Second
	// readyFor is how long a donor has to stay Ready if it is not known whether it was
	// stopped: longer than Kubernetes takes to notice that a kubelet is gone (50 s).
	readyFor = time.Minute
)

// start starts the donor's instance, and is done when the Node is Ready with a new boot id.
// It does not wait for Azure's operation, which may end a minute later.
func (c *capture) start(ctx context.Context, p *workflow.Pass) (workflow.Wait, error) {
	var was stopBefore
	if there, err := p.Saved(&was); !there || err != nil {
		return done, err // the donor was not stopped
	}
	s := c.get()
	node, err := c.Cluster.Node(ctx, c.req.Node)
	if missing(err) != nil {
		return done, err
	}
	there := err == nil
	if there && node.Ready && s.Stopped && node.BootID != s.BootID {
		return done, nil
	}
	w, err := p.Ensure(ctx, fleet.StartInstance{Instance: s.Instance}, func(ctx context.Context) (bool, error) {
		i, err := c.Cloud.Instance(ctx, s.Instance)
		if err == nil && i.Power != fleet.PowerRunning && i.Power != fleet.PowerStarting {
			c.set(func(s *state) { s.Stopped = true })
		}
		return err == nil && i.Power == fleet.PowerRunning, err
	})
	switch {
	case fleet.Is(err, fleet.KindNotFound):
		if _, err := c.Cloud.Pool(ctx, s.Pool); err != nil {
			return done, err
		}
		p.Note("node %s was deleted during the capture", c.req.Node)
		c.set(func(s *state) { s.DonorGone = true })
		return done, nil
	case err != nil:
		return done, err
	case w.In > 0:
		w.In = min(w.In, readyEvery)
		return w, nil
	case !there:
		return in(readyEvery, "node %s is not registered in the cluster", c.req.Node), nil
	case !node.Ready:
		return in(readyEvery, "node %s is not Ready: %s", c.req.Node, node.NotReadyWhy), nil
	case c.get().Stopped:
		return in(readyEvery, "node %s has not reported its boot", c.req.Node), nil
	case p.Since() < readyFor:
		return in(readyEvery, "node %s is Ready; checking for %s that it stays Ready", c.req.Node, readyFor), nil
	}
	return done, nil
}

func (c *capture) manualStart() string {
	return fmt.Sprintf("node %s did not come back: it is left cordoned. Check instance %s (az vmss get-instance-view), start or replace it; then run the same command again, or kubectl uncordon %s",
		c.req.Node, c.get().Instance, c.req.Node)
}

var errGone = errors.New("the donor was deleted during the capture")
