package lifecycle

import (
	"context"
	"maps"
	"net/http"
	"slices"

	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/k3s/recipe"
)

// autoscalerID is the identity of cluster-autoscaler.
func (m *Manager) autoscalerID() fleet.ResourceID {
	return m.in(RoleStorage, identityType, recipe.AutoscalerIdentity)
}

// byPods reports whether cluster-autoscaler scales a scale set.
func byPods(set resource) bool { return recipe.Live{Applied: set.Tags[recipe.TagApplied]}.ByPods() }

// hasAutoscaler reports whether the server's VM has cluster-autoscaler's identity.
func (m *Manager) hasAutoscaler(server *resource) bool {
	return slices.ContainsFunc(slices.Collect(maps.Keys(server.Identity.UserAssigned)), m.autoscalerID().Equal)
}

// assignAutoscaler gives the server's VM cluster-autoscaler's identity, or takes it away, and
// leaves its other identities.
func (m *Manager) assignAutoscaler(ctx context.Context) error {
	vm, err := m.get(ctx, m.serverID(), computeVersion)
	if err != nil || vm == nil {
		return err
	}
	var assigned any = map[string]any{}
	if m.Cluster.Spec.Options.ClusterAutoscaler == "" {
		assigned = nil // removes it
	}
	return m.send(azure.IfMatch(ctx, vm.ETag), "assign identity "+recipe.AutoscalerIdentity, http.MethodPatch, m.serverID(), computeVersion,
		map[string]any{"identity": map[string]any{"type": vm.Identity.Type, "userAssignedIdentities": map[string]any{string(m.autoscalerID()): assigned}}})
}

// endFormerScalers ends, before a deployment, what scaled pools that something else scales
// after it: the autoscale setting of a pool that pods scale from now on, and the rights of
// cluster-autoscaler on all others. No pool has two of them at any time.
func (m *Manager) endFormerScalers(ctx context.Context, o *observation, prune bool) error {
	keep, former := m.Cluster.ScaledByPods(), []string{}
	for _, name := range sorted(o.sets) {
		wanted := slices.Contains(keep, name)
		switch {
		case byPods(o.sets[name]) && !wanted && m.pool(name) == nil && !prune:
			keep = append(keep, name)
		case byPods(o.sets[name]) && !wanted:
			former = append(former, name)
		case wanted && !byPods(o.sets[name]):
			id := m.in(RoleCompute, "Microsoft.Insights/autoscaleSettings", name)
			s, err := m.get(ctx, id, autoscaleVersion)
			if err == nil && m.ours(s) {
				err = m.delete(ctx, "the autoscale setting", id, autoscaleVersion)
			}
			if err != nil {
				return err
			}
		}
	}
	group := string(m.group(RoleCompute))
	kept := recipe.Assignments(group, "", keep...)
	for _, id := range recipe.Assignments(group, "", former...) {
		if !slices.Contains(kept, id) {
			if err := m.delete(ctx, "the role assignment", fleet.ResourceID(id), roleVersion); err != nil {
				return err
			}
		}
	}
	return nil
}
