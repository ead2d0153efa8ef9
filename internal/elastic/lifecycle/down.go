package lifecycle

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/ortet/ortet/internal/elastic/recipe"
	"github.com/ortet/ortet/internal/engine"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/plan"
)

// A DownResult is what Down deleted.
type DownResult struct {
	Cluster string   `json:"cluster"`
	Deleted []string `json:"deleted"`           // groups
	Missing []string `json:"missing,omitempty"` // groups that did not exist
	Kept    []string `json:"kept,omitempty"`    // groups that stay, and why
}

// Check gives what Down would delete, or refuses: groups that ortet cluster did not
// make, of another cluster, or with resources of others.
func (m *Manager) Check(ctx context.Context, roles []string) (resources int, err error) {
	o, err := m.observe(ctx)
	if err != nil {
		return 0, err
	}
	var problems []plan.Problem
	refuse := func(code string, on fleet.ResourceID, what, wayOut string) {
		problems = append(problems, plan.Problem{Code: code, On: string(on), What: what, WayOut: wayOut})
	}
	deletesCompute := false
	for _, role := range roles {
		g := o.groups[role]
		deletesCompute = deletesCompute || role == RoleCompute
		switch {
		case g == nil || m.keeps(role):
			continue
		case g.Tags[recipe.TagCluster] == "":
			refuse("GroupForeign", m.group(role), "group was not made by ortet cluster", "correct spec.groups."+role)
			continue
		case g.Tags[recipe.TagCluster] != m.name() || g.Tags[recipe.TagRole] != role:
			refuse("GroupForeign", m.group(role), fmt.Sprintf("group belongs to cluster %s (%s)", g.Tags[recipe.TagCluster], g.Tags[recipe.TagRole]), "correct spec.groups."+role)
			continue
		case role == RoleStorage && !deletesCompute && o.groups[RoleCompute] != nil:
			refuse("ComputeExists", m.group(role), "compute group "+m.group(RoleCompute).Name()+" still uses it", "ortet cluster down --all deletes both")
		}
		for _, r := range foreign(m.name(), o.resources[role]) {
			refuse("ResourceForeign", r.ID, kindName(r.Type)+" "+r.Name+" in group "+m.group(role).Name()+" was not made by ortet", "move or delete it")
		}
		resources += len(o.resources[role])
	}
	if len(problems) > 0 {
		return 0, &engine.Refused{Problems: problems}
	}
	return resources, nil
}

// keeps reports whether a group is never deleted: that of an existing account.
func (m *Manager) keeps(role string) bool {
	return role == RoleStorage && m.Cluster.Spec.Storage.Existing
}

// foreign are resources that neither have our tags nor belong to one that has.
func foreign(cluster string, all []resource) []resource {
	ours := map[string]bool{}
	for _, r := range all {
		if r.Tags[recipe.TagCluster] == cluster {
			ours[strings.ToLower(string(r.ID))] = true
		}
	}
	var out []resource
	for _, r := range all {
		if ours[strings.ToLower(string(r.ID))] || r.Tags["ortet.io_created-by"] != "" {
			continue
		}
		// An OS disk has no tags of its own, but its VM's id.
		if r.ManagedBy != "" && ours[strings.ToLower(string(r.ManagedBy))] {
			continue
		}
		out = append(out, r)
	}
	return out
}

// Down deletes the groups of the roles, in their order, and waits. What is deleted
// already is done. It refuses what Check refuses. When ctx ends, Azure goes on.
func (m *Manager) Down(ctx context.Context, roles []string) (*DownResult, error) {
	r := &DownResult{Cluster: m.name(), Deleted: []string{}}
	if _, err := m.Check(ctx, roles); err != nil {
		return r, interrupted(ctx, "preflight", "nothing was changed", err)
	}
	for _, role := range roles {
		name := m.group(role).Name()
		if m.keeps(role) {
			r.Kept = append(r.Kept, name+": group of an existing storage account")
			continue
		}
		found, err := m.deleteGroup(ctx, role)
		if err != nil {
			return r, interrupted(ctx, role, "Azure goes on deleting what it has accepted", err)
		}
		if found {
			r.Deleted = append(r.Deleted, name)
		} else {
			r.Missing = append(r.Missing, name)
		}
	}
	return r, nil
}

func (m *Manager) deleteGroup(ctx context.Context, role string) (found bool, err error) {
	var g group
	if found, err = m.get(ctx, m.group(role), resourcesVersion, &g); !found || err != nil {
		return false, err
	}
	c := m.begin(role, "Delete group "+m.group(role).Name())
	defer func() { c.end(err) }()
	if !strings.EqualFold(g.Properties.ProvisioningState, "Deleting") {
		if err := m.deleteRoles(ctx, m.group(role)); err != nil {
			return true, err
		}
		_, err := m.ARM.Send(ctx, "delete the resource group", http.MethodDelete, m.group(role), resourcesVersion, nil)
		if fleet.Is(err, fleet.KindNotFound) {
			return true, nil
		}
		if err != nil {
			return true, err
		}
	}
	for last := -1; ; {
		found, err := m.get(ctx, m.group(role), resourcesVersion, &g)
		if err != nil || !found {
			return true, err
		}
		left, err := list[resource](ctx, m, m.group(role)+"/resources", resourcesVersion)
		if err != nil {
			return true, err
		}
		if len(left) != last {
			last = len(left)
			c.report(engine.StepProgress, fmt.Sprintf("%d resource(s) left", last))
		}
		if err := pause(ctx, m.Poll); err != nil {
			return true, err
		}
	}
}

// A roleObject is a role definition or a role assignment.
type roleObject struct {
	ID         fleet.ResourceID `json:"id"`
	Properties struct {
		Type             string             `json:"type"` // definition: CustomRole, BuiltInRole
		AssignableScopes []fleet.ResourceID `json:"assignableScopes"`
		RoleDefinitionID fleet.ResourceID   `json:"roleDefinitionId"` // assignment
	} `json:"properties"`
}

// deleteRoles deletes the custom roles that are for this group alone, and their
// assignments. Role definitions are objects of the tenant: they stay when the group
// goes, and Azure limits their number to 5,000.
func (m *Manager) deleteRoles(ctx context.Context, group fleet.ResourceID) error {
	const roles = "/providers/Microsoft.Authorization/"
	definitions, err := list[roleObject](ctx, m, group+roles+"roleDefinitions", roleVersion, "$filter", "type eq 'CustomRole'")
	if err != nil {
		return err
	}
	ours := map[string]fleet.ResourceID{}
	for _, d := range definitions {
		if s := d.Properties.AssignableScopes; d.Properties.Type == "CustomRole" && len(s) == 1 && s[0].Equal(group) {
			ours[strings.ToLower(d.ID.Name())] = group + roles + "roleDefinitions/" + fleet.ResourceID(d.ID.Name())
		}
	}
	if len(ours) == 0 {
		return nil
	}
	assignments, err := list[roleObject](ctx, m, group+roles+"roleAssignments", roleVersion)
	if err != nil {
		return err
	}
	for _, a := range assignments {
		if ours[strings.ToLower(a.Properties.RoleDefinitionID.Name())] == "" {
			continue
		}
		if err := m.remove(ctx, "delete the role assignment", a.ID); err != nil {
			return err
		}
	}
	for _, name := range sorted(ours) {
		if err := m.remove(ctx, "delete the role definition", ours[name]); err != nil {
			return err
		}
	}
	return nil
}

// remove deletes a role object; one that is deleted already is done.
func (m *Manager) remove(ctx context.Context, op string, id fleet.ResourceID) error {
	_, err := m.ARM.Send(ctx, op, http.MethodDelete, id, roleVersion, nil)
	if fleet.Is(err, fleet.KindNotFound) {
		return nil
	}
	return err
}
