package rollback

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/cluster"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/prototype"
	"github.com/ortet/ortet/internal/wire"
	"github.com/ortet/ortet/internal/workflow"
)

// restorable returns writes for the original's extensions that the model lacks and that can
// be restored, dependencies first, and a problem for each that is lost. An extension of the
// same name in the model stays as it is.
func restorable(ctx context.Context, vault cluster.Vault, original prototype.Original, pool fleet.Pool) (writes []fleet.WriteExtension, lost []fleet.Problem, err error) {
	there := map[string]bool{} // in the model or about to be written, by lower-case name
	for _, e := range pool.Model.Extensions {
		there[strings.ToLower(e.Name)] = true
	}
	var all []fleet.Extension
	known := map[string]prototype.OriginalExtension{}
	for _, e := range original.Extensions {
		all, known[e.Name] = append(all, e.Extension), e
	}
	for _, e := range slices.Backward(prototype.DependentsFirst(all)) {
		if there[strings.ToLower(e.Name)] {
			continue
		}
		write, why, err := withSettings(ctx, vault, pool.ID, known[e.Name])
		if err != nil {
			return nil, nil, err
		}
		absent := slices.IndexFunc(e.After, func(name string) bool { return !there[strings.ToLower(name)] })
		if why == "" && absent >= 0 {
			why = "it runs after extension " + e.After[absent] + ", which the model does not have"
		}
		if why != "" {
			lost = append(lost, fleet.Problem{
				Code: "ExtensionLost", On: "extension " + e.Name, What: why,
				WayOut: "go back without it (--accept-lost-extensions), then add it by az vmss extension set",
			})
			continue
		}
		there[strings.ToLower(e.Name)], writes = true, append(writes, write)
	}
	return writes, lost, nil
}

// withSettings reads an extension's settings from the Vault, or says why they are lost.
func withSettings(ctx context.Context, vault cluster.Vault, pool fleet.ResourceID, e prototype.OriginalExtension) (w fleet.WriteExtension, why string, err error) {
	w = fleet.WriteExtension{Pool: pool, Extension: e.Extension}
	for _, x := range []struct {
		what, kind, sha string
		into            *fleet.Secret
	}{
		{"public", cluster.ExtensionSettings, e.PublicSHA256, &w.Extension.Settings},
		{"protected", string(wire.ProtectedSettings), e.ProtectedSHA256, &w.Protected},
	} {
		switch x.sha {
		case prototype.NoSettings:
			continue
		case "":
			return w, "its " + x.what + " settings were not recorded before it was deleted, and Azure does not show them", nil
		}
		kept, err := vault.Kept(ctx, pool, x.kind, x.sha)
		if fleet.Is(err, fleet.KindNotFound) {
			return w, fmt.Sprintf("its %s settings are not kept (SHA-256 %s)", x.what, x.sha), nil
		} else if err != nil {
			return w, "", err
		}
		*x.into = kept.Data
	}
	return w, "", nil
}

// acceptsLost reports whether the request or the command that resumes it accepts the loss.
func (r *rollback) acceptsLost() bool {
	return r.req.AcceptLostExtensions || r.asked.AcceptLostExtensions
}

// planExtensions decides whether the row extensions runs: skip is the reason why not.
func (r *rollback) planExtensions(ctx context.Context, d *decision, pool fleet.Pool) (skip string, err error) {
	s := r.get()
	const none = "none to restore"
	if !s.ToOriginal {
		return none, nil
	}
	writes, lost, err := restorable(ctx, r.Cluster, *s.Original, pool)
	if err != nil {
		d.Refuse(true, "Unreadable", string(pool.ID), "the saved settings of extensions cannot be read: "+err.Error(), "add that Secret to the resourceNames of the Role")
		return "", nil //nolint:nilerr // it is a problem, beside others
	}
	if !r.acceptsLost() {
		d.Add(lost...)
	}
	r.lost = nil
	for _, p := range lost {
		r.lost = append(r.lost, p.On+": "+p.What+"; add it by az vmss extension set")
	}
	if len(writes) == 0 {
		return none, nil
	}
	var names []string
	for _, w := range writes {
		names = append(names, w.Extension.Name)
	}
	r.set(func(s *state) { s.ToRestore = names })
	denied, err := r.Cloud.Denied(ctx, pool.ID.Group(), azure.Actions(writes[0].Verb()))
	d.Add(prototype.DeniedProblems(prototype.Observed{Pool: &pool, DeniedAzure: denied})...)
	return "", err
}

// extensions writes those of the original's extensions that the model lacks and that can
// be restored, one at a time.
func (r *rollback) extensions(ctx context.Context, p *workflow.Pass) (workflow.Wait, error) {
	s := r.get()
	if r.write == nil {
		pool, err := r.Cloud.Pool(ctx, s.Pool)
		if err != nil {
			return workflow.Wait{}, err
		}
		writes, lost, err := restorable(ctx, r.Cluster, *s.Original, pool)
		switch {
		case err != nil:
			return workflow.Wait{}, err
		case len(lost) > 0 && !r.acceptsLost():
			return workflow.Wait{}, &fleet.Error{Op: "write extensions", Resource: string(s.Pool), Kind: fleet.KindInvalid, Err: fmt.Errorf("%s", lost[0])}
		case len(writes) == 0:
			return workflow.Wait{}, nil
		}
		r.write = &writes[0]
	}
	want := r.write.Extension
	is := func(pool fleet.Pool) bool {
		return slices.ContainsFunc(pool.Model.Extensions, func(e fleet.Extension) bool {
			return strings.EqualFold(e.Name, want.Name) && strings.EqualFold(e.Publisher, want.Publisher) && strings.EqualFold(e.Type, want.Type) && e.Settings == want.Settings
		})
	}
	w, err := r.Change(ctx, p, s.Pool, *r.write, is, func(context.Context, fleet.Pool) error { return nil })
	if err != nil || w.In > 0 {
		return w, err
	}
	r.write = nil
	r.set(func(s *state) { s.Restored = append(s.Restored, want.Name) })
	return workflow.Wait{In: time.Millisecond, Percent: -1, Status: "wrote extension " + want.Name}, nil
}
