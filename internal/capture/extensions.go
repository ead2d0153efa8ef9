package capture

import (
	"context"
	"slices"
	"strings"

	"github.com/ortet/ortet/internal/cluster"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/prototype"
	"github.com/ortet/ortet/internal/wire"
	"github.com/ortet/ortet/internal/workflow"
)

// extensions deletes what bootstrapped the donor, dependents first, until the scale set
// as it was read last has none of them. Azure shows no settings of a deleted extension:
// they are kept at the moment at which it may be deleted.
func (c *capture) extensions(ctx context.Context, p *workflow.Pass) (workflow.Wait, error) {
	s := c.get()
	if err := c.readPool(ctx, s.Pool); err != nil {
		return done, err
	}
	toDelete, kept := c.req.Extensions.Doomed(c.pool.Model.Extensions)
	switch {
	case len(kept) > 0:
		return done, invalid("delete extensions", string(s.Pool), "", "%s", strings.Join(kept, "; "))
	case len(toDelete) == 0:
		return done, nil
	}
	name := toDelete[0].Name
	named := func(e fleet.Extension) bool { return strings.EqualFold(e.Name, name) }
	change := func(pool fleet.Pool) fleet.Change { return fleet.DeleteExtension{Pool: pool.ID, Name: name} }
	is := func(pool fleet.Pool) bool { return !slices.ContainsFunc(pool.Model.Extensions, named) }
	return goOn(c.Change(ctx, p, s.Pool, "extensions", change, is, func(ctx context.Context, pool fleet.Pool) error {
		settings := pool.Model.Extensions[slices.IndexFunc(pool.Model.Extensions, named)].Settings
		if settings.Reveal() == "" {
			return nil
		}
		if err := p.Save(ctx); err != nil {
			return err
		}
		return c.keep(ctx, cluster.ExtensionSettings, name, settings, nil)
	}))
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
