package donor

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/ortet/ortet/internal/cluster"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/workflow"
)

var done = workflow.Wait{}

func (d *Donor) cordon(ctx context.Context, p *workflow.Pass) (workflow.Wait, error) {
	s := d.Of()
	was, err := workflow.Before(ctx, p, func() (bool, error) {
		node, err := d.Cluster.Node(ctx, s.Request.Node)
		return node.Unschedulable, err
	})
	if err != nil {
		return done, err
	}
	if was && s.Request.Fresh == "" {
		p.Note("node %s was cordoned before, and stays cordoned", s.Request.Node)
	}
	return done, d.Cluster.SetUnschedulable(ctx, s.Request.Node, true)
}

func (d *Donor) uncordon(ctx context.Context, p *workflow.Pass) (workflow.Wait, error) {
	var was bool
	if there, err := p.Saved(&was); !there || err != nil || was {
		return done, err
	}
	return done, fleet.IgnoreNotFound(d.Cluster.SetUnschedulable(ctx, d.Of().Request.Node, false))
}

func (d *Donor) drain(ctx context.Context, p *workflow.Pass) (workflow.Wait, error) {
	s := d.Of()
	return done, d.Cluster.Drain(ctx, s.Request.Node, cluster.DrainOptions{
		GracePeriod: s.Request.GracePeriod,
		Deadline:    max(3*s.Request.GracePeriod-p.Since(), time.Second),
		Force:       s.Request.ForceDrain,
		UID:         d.Machine.Get().UID,
		Leave:       s.Leave,
	}, func(e cluster.DrainEvent) {
		p.Progress(-1, "%s, %d to go", strings.TrimSuffix(fmt.Sprintf("%s %s (%s)", e.What, e.Pod, e.Because), " ()"), e.Left)
	})
}

// IsDown reports whether an instance is stopped or deallocated.
func IsDown(i fleet.Instance) bool {
	return i.Power == fleet.PowerStopped || i.Power == fleet.PowerDeallocated
}

// stop saves the donor's boot id: another one proves a later boot.
func (d *Donor) stop(ctx context.Context, p *workflow.Pass) (workflow.Wait, error) {
	s := d.Of()
	_, err := workflow.Before(ctx, p, func() (string, error) {
		node, err := d.Cluster.Node(ctx, s.Request.Node)
		return node.BootID, err
	})
	if err != nil {
		return done, err
	}
	u := d.used()
	return p.Ensure(ctx, fleet.StopInstance{Instance: u.Instance, Deallocate: s.Request.Deallocate}, func(ctx context.Context) (bool, error) {
		i, err := u.Read(ctx, d.Cloud)
		if err == nil && !IsDown(i) && !p.Begun() {
			err = u.Still(ctx, d.Cluster, i)
		}
		if err != nil || !IsDown(i) {
			return false, err
		}
		d.Machine.Set(func(m *Machine) { m.Disk = i.OSDisk })
		d.Taken.Set(func(t *Taken) { t.Stopped = true })
		return !s.Request.Deallocate || i.Power == fleet.PowerDeallocated, nil
	})
}

// readyEvery is how often the donor's Node is read while it boots.
const readyEvery = 2 * time.Second

// start starts the donor's instance, and is done when the Node is Ready with a new boot id.
// It does not wait for Azure's operation, which may end a minute later. If it is not known
// whether the donor was stopped, it has to be Ready after a minute: Kubernetes takes 50 s to
// notice that a kubelet is gone. A donor whose stop was refused is in service already.
func (d *Donor) start(ctx context.Context, p *workflow.Pass) (workflow.Wait, error) {
	var bootID string
	s, u, taken := d.Of(), d.used(), d.Taken.Get()
	if there, err := p.Saved(&bootID); !there || err != nil || !taken.Stopped && !p.Begun() {
		return done, err
	}
	node, err := d.Cluster.Node(ctx, s.Request.Node)
	if fleet.IgnoreNotFound(err) != nil {
		return done, err
	}
	if node.Ready && taken.Stopped && node.BootID != bootID {
		return done, nil
	}
	w, err := p.Ensure(ctx, fleet.StartInstance{Instance: u.Instance}, func(ctx context.Context) (bool, error) {
		i, err := u.Read(ctx, d.Cloud)
		if err == nil && i.Power != fleet.PowerRunning && i.Power != fleet.PowerStarting {
			d.Taken.Set(func(t *Taken) { t.Stopped = true })
		}
		return err == nil && i.Power == fleet.PowerRunning, err
	})
	switch {
	case fleet.Is(err, fleet.KindNotFound):
		p.Note("node %s was deleted during the capture", s.Request.Node)
		d.Taken.Set(func(t *Taken) { t.DonorGone = true })
		return done, nil
	case err != nil:
		return done, err
	case w.RequeueAfter > 0:
		w.RequeueAfter = min(w.RequeueAfter, readyEvery)
		return w, nil
	case !node.Ready:
		return workflow.In(readyEvery, "node %s is not Ready: %s", s.Request.Node, cmp.Or(node.NotReadyWhy, "it is not registered in the cluster")), nil
	case d.Taken.Get().Stopped && node.BootID == bootID && !d.reported.IsZero() && !node.Reported.Equal(d.reported):
		return done, nil // its kubelet reports on, in the boot of before: the stop was preempted
	case d.Taken.Get().Stopped || p.Since() < time.Minute:
		d.reported = node.Reported
		return workflow.In(readyEvery, "node %s has not reported its boot", s.Request.Node), nil
	}
	return done, nil
}

func (d *Donor) manualStart() string {
	s := d.Of()
	id := d.Machine.Get().Instance
	view := cmp.Or(workflow.SkipIf(id.UniformPool() == "", "az vm get-instance-view"), "az vmss get-instance-view")
	return fmt.Sprintf("node %s did not come back: it is left cordoned. Check instance %s (%s), start or replace it; "+
		"then run the same command again, or kubectl uncordon %s", s.Request.Node, id, view, s.Request.Node)
}
