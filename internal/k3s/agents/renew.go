package agents

import (
	"context"
	"slices"
	"time"

	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/k3s/recipe"
)

// TagReimage is a tag of a scale set while a reimage of the pool is unfinished: when it began, by the API
// server's clock. Nodes that were registered since are of machines that have their new disk.
const TagReimage = "ortet.io_reimage"

const runLayout = "20060102T150405Z"

// Reimage gives each machine of a pool a new OS disk of the model's image, parallel
// machines at a time: drained, powered off, its Node deleted, upgraded to the model or
// reimaged, and its new Node awaited. It stops at the first that does not come up.
// Interrupted, the same call goes on. With outdated it is about those behind the model alone;
// those of which it is not known are reported, and left.
//
// The Node goes, unlike a rollout's: a kubelet sets taints, and k3s takes labels away, only when it
// registers its Node, and they come with the model's cloud-init document.
func (c *Control) Reimage(ctx context.Context, name string, parallel int, outdated bool) error {
	pool, machines, err := c.load(ctx, name)
	if err != nil {
		return err
	}
	began, unread := time.Parse(runLayout, pool.Tags[TagReimage])
	goesOn := unread == nil
	if !goesOn {
		began = c.Nodes.Now().UTC()
	}
	run := map[string]string{TagReimage: began.Format(runLayout)}
	if outdated {
		machines = slices.DeleteFunc(machines, func(m Machine) bool {
			part, known := m.Lacks(pool, recipe.CloudInit)
			if !known {
				c.report(m.Node, "left as it is: Azure says that the pool's model changed, and by which cloud-init document "+
					"it was made is not known; ortet cluster reimage %s renews it too", pool.Name)
			}
			return part == "" && !goesOn // an earlier call may have upgraded it, and not awaited its Node
		})
	}
	if goesOn {
		c.report(name, "going on with reimage %s", run[TagReimage])
	} else if err := azure.MergeTags(ctx, c.ARM, pool.ID, run); err != nil {
		return err
	} else {
		c.report(name, "%d agents to reimage", len(machines))
	}
	if err := c.eachOwn(ctx, machines, parallel, func(ctx context.Context, m Machine) error {
		return c.reimage(ctx, pool, m, began, outdated)
	}); err != nil {
		return err
	}
	return azure.DeleteTags(ctx, c.ARM, pool.ID, run)
}

// reimage renews one machine. One that the reimage that began then has renewed is only uncordoned.
func (c *Control) reimage(ctx context.Context, pool fleet.Pool, m Machine, began time.Time, outdated bool) error {
	n, err := c.node(ctx, m)
	if lacks, _ := m.Lacks(pool, recipe.CloudInit); err == nil && lacks == "" && n.Name != "" {
		switch renewed := n.Created.After(began); {
		case n.Ready && m.Power == "running" && (renewed || outdated):
			return c.release(ctx, n)
		case outdated && !renewed:
			return nil
		}
	}
	if n, err = c.drain(ctx, m, false); err != nil {
		return err
	}
	// Its agent has to stand still before its Node is deleted, or it would register it
	// again (k3s #13072).
	w := c.writer()
	if m.Power == "running" {
		c.report(m.Node, "powering off")
		err = w.Do(ctx, fleet.StopInstance{Instance: m.ID})
	}
	if err == nil && n.Name != "" {
		err = c.Nodes.Forget(ctx, m.Node, n.UID)
	}
	if err == nil {
		err = c.newDisk(ctx, w, pool, m)
	}
	if err == nil {
		err = w.Do(ctx, fleet.StartInstance{Instance: m.ID}) // of a running one it changes nothing
	}
	if err != nil {
		return err
	}
	return c.back(ctx, m, "")
}

// newDisk gives a machine a new OS disk of the model's image: Azure's upgrade does where the image
// differs, and a reimage keeps the version of the image that the machine has.
func (c *Control) newDisk(ctx context.Context, w azure.Writer, pool fleet.Pool, m Machine) error {
	if err := c.upgrade(ctx, w, pool, m); err != nil {
		return err
	}
	now, err := c.Cloud.Instance(ctx, m.ID)
	if err != nil || now.OSDisk != m.OSDisk {
		return err
	}
	c.report(m.Node, "reimaging")
	return w.Do(ctx, fleet.ReimageInstance{Instance: m.ID})
}

func (c *Control) upgrade(ctx context.Context, w azure.Writer, pool fleet.Pool, m Machine) error {
	c.report(m.Node, "upgrading to the pool's model")
	_, err := w.ScaleSet(ctx, pool.ID, once(fleet.UpgradeInstances{Pool: pool.ID, Instances: instances([]Machine{m})}), nil)
	return err
}

// Resize gives a pool's machines another size, one after the other: drained, upgraded
// to the scale set's model, which restarts them, and awaited. Interrupted, the same
// call goes on with those that do not have the size yet.
func (c *Control) Resize(ctx context.Context, name, size string) error {
	w := c.writer()
	w.Rest = &azure.Rest{} // one stuck machine does not have each other one wait
	pool, err := c.Pool(ctx, name)
	if err == nil && pool.Size != size {
		c.report(name, "changing the size from %s to %s", pool.Size, size)
		_, err = w.ScaleSet(ctx, pool.ID, func(p fleet.Pool) fleet.Change {
			if p.Size == size {
				return nil
			}
			return fleet.SetSize{Pool: p.ID, Size: size, Etag: p.Etag}
		}, func(_ context.Context, p fleet.Pool) (bool, error) { return p.Size == size, nil })
	}
	if err != nil {
		return err
	}
	pool, machines, err := c.load(ctx, name)
	if err != nil {
		return err
	}
	return c.eachOwn(ctx, machines, 1, func(ctx context.Context, m Machine) error {
		boot := "" // any, of one that an earlier call restarted
		if lacks, _ := m.Lacks(pool, recipe.CloudInit); lacks == fleet.PartSize {
			n, err := c.drain(ctx, m, false)
			if err == nil {
				err = c.upgrade(ctx, w, pool, m)
			}
			if boot = n.BootID; err != nil {
				return err
			}
		}
		if m.Power != "running" {
			return nil
		}
		return c.back(ctx, m, boot)
	})
}
