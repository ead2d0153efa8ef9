package capture

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/ortet/ortet/internal/cluster"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/prototype"
	"github.com/ortet/ortet/internal/wire"
	"github.com/ortet/ortet/internal/workflow"
)

// extensions deletes what bootstrapped the donor, dependents first, until the scale set
// as it is read then has none of them.
func (c *capture) extensions(ctx context.Context, p *workflow.Pass) (workflow.Wait, error) {
	if c.extension == "" {
		pool, err := c.Cloud.Pool(ctx, c.get().Pool)
		if err != nil {
			return done, err
		}
		c.pool = pool
		toDelete, kept := c.req.Extensions.Doomed(pool.Model.Extensions)
		if len(kept) > 0 {
			return done, invalid("delete extensions", string(pool.ID), "", "%s", strings.Join(kept, "; "))
		}
		if len(toDelete) == 0 {
			return done, nil
		}
		if err := c.keepSettings(ctx, p, toDelete[0]); err != nil {
			return done, err
		}
		c.extension = toDelete[0].Name
	}
	name := c.extension
	change := func(pool fleet.Pool) fleet.Change { return fleet.DeleteExtension{Pool: pool.ID, Name: name} }
	is := func(pool fleet.Pool) bool { return !hasExtension(pool.Model.Extensions, name) }
	w, err := c.changePool(ctx, p, "extensions", change, is, func(context.Context, fleet.Pool) error { return nil })
	if err != nil || w.In > 0 {
		return w, err
	}
	c.extension = ""
	return in(time.Millisecond, "deleted extension %s", name), nil
}

// keepSettings keeps the public settings of an extension, which Azure shows no more once
// the extension is deleted.
func (c *capture) keepSettings(ctx context.Context, p *workflow.Pass, e fleet.Extension) error {
	text := e.Settings.Reveal()
	if text == "" {
		return nil
	}
	if err := p.Save(ctx); err != nil {
		return err
	}
	return c.Cluster.Keep(ctx, cluster.Kept{
		Kind: cluster.ExtensionSettings, Name: e.Name, SHA256: sha(text), Data: e.Settings, Pool: c.get().Pool, Donor: c.req.Node, At: c.Now(),
	}, func(ctx context.Context) ([]string, error) { return c.neededItems(ctx, nil) })
}

// learn completes what is recorded of the original's extensions from a donor's disk, by
// their handlers' names.
func learn(o prototype.Original, report wire.GeneralizeReport) prototype.Original {
	o.Extensions = slices.Clone(o.Extensions)
	for i := range o.Extensions {
		e := &o.Extensions[i]
		if e.KeyVault != nil {
			continue
		}
		names := []string{e.Handler(), e.Handler() + "/" + e.Name}
		is := func(name string) bool {
			return slices.ContainsFunc(names, func(n string) bool { return strings.EqualFold(n, name) })
		}
		if slices.ContainsFunc(report.NoProtected, is) {
			e.ProtectedSHA256 = prototype.NoSettings
		}
		for _, item := range report.Saved {
			if item.Kind == wire.ProtectedSettings && is(item.Name) {
				e.ProtectedSHA256 = item.SHA256
			}
		}
	}
	return o
}

func hasExtension(extensions []fleet.Extension, name string) bool {
	for _, e := range extensions {
		if strings.EqualFold(e.Name, name) {
			return true
		}
	}
	return false
}
