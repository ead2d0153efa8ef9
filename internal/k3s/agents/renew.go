package agents

import (
	"context"
	"strings"
	"time"

	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/k3s/recipe"
)

// TagReimage is a tag of a scale set while a reimage of the pool is unfinished, and
// names it; AnnotationReimage is on the Nodes of the machines that are done.
const (
	TagReimage        = "ortet.io_reimage"
	AnnotationReimage = "ortet.io/reimage"
)

// Reimage gives each machine of a pool a new OS disk of the model's image, parallel
// machines at a time: drained, powered off, its Node deleted, upgraded to the model or
// reimaged, and its new Node awaited. It stops at the first that does not come up.
// Interrupted, the same call goes on. With outdated it is about those behind the model alone.
func (c *Control) Reimage(ctx context.Context, name string, parallel int, outdated bool) error {
	pool, machines, err := c.load(ctx, name)
	if err != nil {
		return err
	}
	run := pool.Tags[TagReimage]
	if outdated {
		if machines, err = c.outdated(ctx, pool, machines, run); err != nil {
			return err
		}
		c.report(name, "%d agents to reimage", len(machines))
	}
	if run == "" {
		run = c.Nodes.Now().UTC().Format(runLayout)
		if err := azure.MergeTags(ctx, c.ARM, pool.ID, map[string]string{TagReimage: run}); err != nil {
			return err
		}
	} else {
		c.report(name, "going on with reimage %s", run)
	}
	if err := c.eachOwn(ctx, machines, parallel, func(ctx context.Context, m Machine) error {
		return c.renew(ctx, c.writer(), pool, m, run)
	}); err != nil {
		return err
	}
	return azure.DeleteTags(ctx, c.ARM, pool.ID, map[string]string{TagReimage: run})
}

// runLayout makes the name of a reimage of when it began, by the API server's clock.
const runLayout = "20060102T150405Z"

// outdated returns the machines behind their pool's model, and those in which an
// unfinished reimage was interrupted: a machine has the model before it has a new disk.
// They are without a Node, or their Node is newer than the reimage. Those of which it is not
// known are reported, and left.
func (c *Control) outdated(ctx context.Context, pool fleet.Pool, machines []Machine, run string) (out []Machine, err error) {
	began, _ := time.Parse(runLayout, run) // where it is no time, all Nodes are newer
	for _, m := range machines {
		part, known := m.Lacks(pool, recipe.CloudInit)
		behind := part != ""
		if !known {
			c.report(m.Node, "left as it is: Azure says that the pool's model changed, and by which cloud-init document "+
				"it was made is not known; ortet cluster reimage %s renews it too", pool.Name)
		}
		if !behind && run != "" {
			n, err := c.node(ctx, m)
			if err != nil && !fleet.Is(err, fleet.KindInvalid) { // which its drain refuses
				return nil, err
			}
			behind = err != nil || n.Name == "" || n.Created.After(began)
		}
		if behind {
			out = append(out, m)
		}
	}
	return out, nil
}

// renew drains a machine, gives it its pool's model, and for the reimage run a new disk and
// Node; "" is a resize. One that is done already is only uncordoned: it has the model, and
// its Node has the reimage's annotation.
func (c *Control) renew(ctx context.Context, w azure.Writer, pool fleet.Pool, m Machine, run string) error {
	n, err := c.node(ctx, m)
	lacks, _ := m.Lacks(pool, recipe.CloudInit)
	done := lacks == "" || run == "" && lacks != fleet.PartSize
	switch {
	case done && err == nil && n.Ready && (run == "" || n.Annotations[AnnotationReimage] == run):
		return c.release(ctx, n)
	case done && m.Power != "running" && run == "":
		return nil
	}
	if n, err = c.drain(ctx, m, false); err != nil {
		return err
	}
	if run == "" {
		if done {
			n = fleet.Node{} // an earlier call restarted it: any boot counts
		} else {
			err = c.upgrade(ctx, w, pool, m)
		}
		if err != nil || m.Power != "running" {
			return err
		}
		return c.back(ctx, m, n.BootID)
	}
	// Its agent has to stand still before its Node is deleted, or it would register it
	// again (k3s #13072).
	if m.Power == "running" {
		c.report(m.Node, "powering off")
		if err := w.Do(ctx, fleet.StopInstance{Instance: m.ID}); err != nil {
			return err
		}
	}
	if n.Name != "" {
		if err := c.Nodes.Forget(ctx, m.Node, n.UID); err != nil {
			return err
		}
	}
	if err := c.newDisk(ctx, w, pool, m); err != nil {
		return err
	}
	if err := w.Do(ctx, fleet.StartInstance{Instance: m.ID}); err != nil { // of a running one it changes nothing
		return err
	}
	if err = c.back(ctx, m, ""); err != nil {
		return err
	}
	return c.Nodes.Annotate(ctx, m.Node, map[string]*string{AnnotationReimage: &run})
}

// newDisk gives a machine a new OS disk of the model's image. Azure documents that a
// reimage keeps the version of the image that the machine has, so one that may have
// another is upgraded to the model, which makes a new disk where the image differs.
func (c *Control) newDisk(ctx context.Context, w azure.Writer, pool fleet.Pool, m Machine) error {
	image := pool.Model.Image
	if latest := image.LatestOf() != "" || strings.EqualFold(image.Version, "latest"); latest || !m.LatestModelApplied || !m.Image.Same(image) {
		if err := c.upgrade(ctx, w, pool, m); err != nil {
			return err
		}
		now, err := c.Cloud.Instance(ctx, m.ID)
		if err != nil || now.OSDisk != m.OSDisk {
			return err
		}
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
	pool, machines, err := c.load(ctx, name)
	if err != nil {
		return err
	}
	w := c.writer()
	w.Rest = &azure.Rest{} // one stuck machine does not have each other one wait
	if pool.Size != size {
		c.report(name, "changing the size from %s to %s", pool.Size, size)
		if _, err = w.ScaleSet(ctx, pool.ID, func(p fleet.Pool) fleet.Change {
			if p.Size == size {
				return nil
			}
			return fleet.SetSize{Pool: p.ID, Size: size, Etag: p.Etag}
		}, func(_ context.Context, p fleet.Pool) (bool, error) { return p.Size == size, nil }); err != nil {
			return err
		}
		pool.Size = size
		if machines, err = c.Machines(ctx, pool.ID); err != nil {
			return err
		}
	}
	return c.eachOwn(ctx, machines, 1, func(ctx context.Context, m Machine) error { return c.renew(ctx, w, pool, m, "") })
}
