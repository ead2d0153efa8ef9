package donor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/cluster"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/plan"
	"github.com/ortet/ortet/internal/workflow"
)

// A Used is a node that a capture uses, as donor or as workbench, and its instance.
type Used struct {
	Mark     string // the annotation of its Node
	Node     string
	Instance fleet.ResourceID
	Pool     fleet.ResourceID // that a virtual machine has to be of; "" is any, or none
	VMID     string
	UID      string // of its Node
}

// Read reads the instance. A virtual machine that was deleted and created again under its name is
// fleet.KindNotFound, as its vmId shows. One is believed to be of the pool only after Azure says so: its
// id, which a record may have, does not name its scale set.
func (u Used) Read(ctx context.Context, cloud azure.Reader) (fleet.Instance, error) {
	i, err := cloud.Instance(ctx, u.Instance)
	if err != nil || u.Instance.UniformPool() != "" {
		return i, err
	}
	if u.VMID != "" && !strings.EqualFold(i.VMID, u.VMID) {
		err = &fleet.Error{Op: "get instance", Resource: string(u.Instance), Kind: fleet.KindNotFound,
			Err: errors.New("it was deleted, and another virtual machine has its name")}
	} else if u.Pool != "" && !i.Pool.Equal(u.Pool) {
		err = fleet.Invalid("use instance", string(u.Instance), "", "it is of %s, not of %s", cmp.Or(string(i.Pool), "no scale set"), u.Pool)
	}
	return i, err
}

// Still checks, for one request to the API server, that the Node is the machine i, which was just read,
// and the one that was chosen. Call it before the first change, and before each that stops the machine
// or attaches to it; what gives back has to work in any case.
func (u Used) Still(ctx context.Context, c cluster.Cluster, i fleet.Instance) error {
	n, err := c.Node(ctx, u.Node)
	if err == nil {
		err = u.Is(n, i)
	}
	return err
}

// Is is Still for a Node that was just read, too.
func (u Used) Is(n fleet.Node, i fleet.Instance) error {
	if u.UID != "" && n.UID != u.UID || u.VMID != "" && !strings.EqualFold(i.VMID, u.VMID) { // a record of an earlier version of Ortet has no uid
		return fleet.Invalid("use", "node "+n.Name, "", "it, or its machine, was deleted and made again since it was chosen")
	}
	return n.Claim().Is(i.Computer())
}

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

// Protect protects a node and its instance. It marks the Node first, and only if that is
// unchanged since it was read: of two captures in the same second one has to read it again.
func (d *Donor) Protect(ctx context.Context, p *workflow.Pass, u Used, value string) (workflow.Wait, error) {
	node, err := d.Cluster.Node(ctx, u.Node)
	if err = cmp.Or(err, d.UsedByOthers(node)); err != nil {
		return done, err
	}
	mark, isDonor := u.Mark, u.Mark == fleet.AnnotationCapture
	if node.Annotations[mark] != value && !p.Begun() {
		p.Forget() // its owners may have changed it since an earlier pass
	}
	was, err := workflow.Before(ctx, p, func() (protection, error) {
		was := protection{Node: u.Node, Mark: mark, Value: value, Annotations: maps.Clone(node.Annotations)}
		maps.DeleteFunc(was.Annotations, func(key, _ string) bool {
			return key != fleet.AnnotationScaleDownDisabled &&
				(!isDonor || key != fleet.AnnotationCapiMachine && key != fleet.AnnotationCapiNamespace)
		})
		machine, _, machineErr := d.Cluster.Machine(ctx, was.node())
		i, err := u.Read(ctx, d.Cloud)
		if err == nil {
			err = u.Is(node, i)
		}
		was.Skip, was.Protection = valueOf(machine, fleet.AnnotationSkipRemediation), i.Protection
		return was, cmp.Or(machineErr, err)
	})
	if err == nil && node.Annotations[mark] != value {
		err = d.Cluster.AnnotateUnchanged(ctx, node, map[string]*string{fleet.AnnotationScaleDownDisabled: new("true"), mark: &value})
		if err == nil && isDonor {
			d.Cluster.Event(ctx, node, false, "CaptureBegun", "its OS disk becomes a prototype of its pool ("+d.Of().Capture+")")
		}
	}
	if err == nil && !p.Begun() {
		_, _, err = d.Cluster.AnnotateMachine(ctx, was.node(), map[string]*string{fleet.AnnotationSkipRemediation: new("true"), mark: &value})
	}
	if err != nil {
		return done, err
	}
	return d.ensureProtection(ctx, p, u, fleet.Protection{ScaleIn: true, ScaleSetActions: isDonor || was.Protection.ScaleSetActions})
}

// ensureProtection sets an instance's protection. An empty policy removes it: Azure does
// not document that null does.
func (d *Donor) ensureProtection(ctx context.Context, p *workflow.Pass, u Used, want fleet.Protection) (workflow.Wait, error) {
	want.Off = !want.Protects()
	id := u.Instance
	if want.Protects() && d.Taken.Get().Unprotected {
		return done, nil
	}
	w, err := p.Ensure(ctx, fleet.ProtectInstance{Instance: id, Protection: want}, func(ctx context.Context) (bool, error) {
		i, err := u.Read(ctx, d.Cloud)
		alone := id.UniformPool() == "" && i.Pool == "" // no scale set can delete it
		return err == nil && (alone || i.Protection.ScaleIn == want.ScaleIn && i.Protection.ScaleSetActions == want.ScaleSetActions), err
	})
	refused := fleet.Is(err, fleet.KindUnsupported) || fleet.Is(err, fleet.KindInvalid)
	if e := (*fleet.Error)(nil); errors.As(err, &e) { // else it may pass
		refused = refused || e.Code == "OperationNotAllowed" && p.Since() > time.Minute
	}
	if refused && want.Protects() && id.UniformPool() == "" {
		return done, d.unprotected(ctx, u, err)
	}
	return w, err
}

// unprotected goes on although Azure refuses to protect a virtual machine: its documentation
// contradicts itself on whether it can. What is wrong with the machine itself is an error.
func (d *Donor) unprotected(ctx context.Context, u Used, why error) error {
	i, err := u.Read(ctx, d.Cloud)
	if err != nil || strings.EqualFold(i.ProvisioningState, plan.Deleting) {
		return cmp.Or(err, why)
	}
	said := false
	if i.Power != fleet.PowerRunning { // others stopped it: Azure may protect the next
		d.Note("Azure does not protect %s, which is not running, from scale-in: %v", u.Instance.Name(), why)
		return nil
	}
	d.Taken.Set(func(t *Taken) { said, t.Unprotected = t.Unprotected, true })
	if !said {
		d.Note("Azure does not protect instances of this scale set from scale-in: %v; the Nodes' annotations keep cluster-autoscaler off them", why)
	}
	return nil
}

// Unprotect restores what Protect found. A Node that its kubelet registered
// again has none of Ortet's annotations; another capture that uses it now keeps its protection.
func (d *Donor) Unprotect(ctx context.Context, p *workflow.Pass, u Used) (workflow.Wait, error) {
	s := d.Of()
	var was protection
	if there, err := p.Saved(&was); !there || err != nil {
		return done, err
	}
	node, err := d.Cluster.Node(ctx, was.Node)
	if fleet.IgnoreNotFound(err) != nil || plan.UsedBy(node, s.Pool) != "" {
		return done, fleet.IgnoreNotFound(err)
	}
	machine, _, err := d.Cluster.Machine(ctx, was.node())
	if err == nil && machine[was.Mark] == was.Value {
		_, _, err = d.Cluster.AnnotateMachine(ctx, was.node(), map[string]*string{fleet.AnnotationSkipRemediation: was.Skip, was.Mark: nil})
	}
	if err == nil && node.Annotations[was.Mark] == was.Value {
		scaleDown := valueOf(was.Annotations, fleet.AnnotationScaleDownDisabled)
		err = d.Cluster.Annotate(ctx, was.Node, map[string]*string{fleet.AnnotationScaleDownDisabled: scaleDown, was.Mark: nil})
		if err == nil && was.Mark == fleet.AnnotationCapture {
			d.released(ctx, node, p.IsDone(StepSnapshot))
		}
	}
	if err != nil {
		return done, err
	}
	w, err := d.ensureProtection(ctx, p, u, was.Protection)
	return w, fleet.IgnoreNotFound(err)
}

// ManualUnprotect is for the donor and the workbench, which may be in no scale set.
func ManualUnprotect(node string, pool, id fleet.ResourceID) string {
	ofAzure := workflow.SkipIf(pool != "", fmt.Sprintf("az vmss update -g %s -n %s --instance-id %s "+
		"--protect-from-scale-in false --protect-from-scale-set-actions false; ", pool.Group().Name(), pool.Name(), id.Name()))
	return fmt.Sprintf("node %s may still be protected; remove what its owners did not set: %skubectl annotate node %s %s- %s- %s-",
		node, ofAzure, node, fleet.AnnotationCapture, fleet.AnnotationWorkbench, fleet.AnnotationScaleDownDisabled)
}

// UsedByOthers returns an error if another capture uses the node, as donor or workbench:
// the first of the two to end would remove its protection.
func (d *Donor) UsedByOthers(node fleet.Node) error {
	s := d.Of()
	if by := plan.UsedBy(node, s.Pool); by != "" {
		return fleet.Invalid("use", "node "+node.Name, "", "a capture of %s uses it as its workbench", by)
	}
	if _, marked := node.Annotations[fleet.AnnotationCapture]; marked && node.Name != s.Request.Node {
		return fleet.Invalid("use workbench", "node "+node.Name, "", "it is being captured")
	}
	return nil
}

// released records a Kubernetes Event on the donor's Node at the end of its protection.
// What failed after the copy of its disk, as a workbench that another took the place of, is not its failure.
func (d *Donor) released(ctx context.Context, node fleet.Node, copied bool) {
	reason, text := "CaptureGaveBack", "returned to service ("+d.Of().Capture+")"
	_, steps := d.Recorded()
	for _, x := range slices.Backward(steps) {
		if x.Failure != "" && reason != "CaptureDonorLost" && !copied {
			reason, text = "CaptureFailed", "its disk was not captured; step "+x.Step+": "+x.Failure
		}
		if x.Failure != "" && x.Step == UndoStart {
			reason, text = "CaptureDonorLost", "did not come back after its disk was captured: "+x.Step+": "+x.Failure
		}
	}
	d.Cluster.Event(ctx, node, reason != "CaptureGaveBack", reason, text)
}
