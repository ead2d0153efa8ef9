package lifecycle

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/k3s/recipe"
	"github.com/ortet/ortet/internal/workflow"
)

// A DownResult is what Down deleted.
type DownResult struct {
	Cluster string   `json:"cluster"`
	Deleted []string `json:"deleted"`           // groups
	Missing []string `json:"missing,omitempty"` // groups that did not exist
	Kept    []string `json:"kept,omitempty"`    // what stays, and why
}

// protected refuses what deletes while cluster.yaml says so.
func (m *Manager) protected() (p problems) {
	if m.Cluster.Spec.Protect {
		p.add("Protected", "spec.protect", "cluster is protected from deletion", "write protect: false in cluster.yaml first")
	}
	return p
}

// Check returns what Down would delete, or refuses: groups that ortet cluster did not
// make, of another cluster, or with resources of others.
func (m *Manager) Check(ctx context.Context, roles []string) (resources int, err error) {
	o, err := m.observe(ctx)
	if err != nil {
		return 0, err
	}
	p := m.protected()
	for _, role := range roles {
		id := m.group(role)
		if role == RoleState || m.keeps(role) {
			own, _, err := m.own(ctx, o, role)
			if err != nil {
				return 0, err
			}
			if len(own) > 0 && !slices.Contains(roles, RoleCompute) && o.groups[RoleCompute] != nil {
				p.add("ComputeExists", id, "compute group "+m.group(RoleCompute).Name()+" still uses what is in it", "ortet cluster down deletes it")
			} else {
				resources += len(own)
			}
			continue
		}
		if o.groups[role] == nil {
			continue
		}
		if why := m.foreignGroup(o, role); why != "" {
			p.add("GroupForeign", id, why, "correct spec.groups."+role)
			continue
		}
		if role == RoleStorage && !slices.Contains(roles, RoleCompute) && o.groups[RoleCompute] != nil {
			p.add("ComputeExists", id, "compute group "+m.group(RoleCompute).Name()+" still uses it", "ortet cluster down --all deletes both")
		}
		if err := m.checkForeign(ctx, id, o.resources[role], &p); err != nil {
			return 0, err
		}
		resources += len(o.resources[role])
	}
	return resources, p.err()
}

// checkForeign finds resources of a group that neither have our tags nor belong to one
// that has.
func (m *Manager) checkForeign(ctx context.Context, group fleet.ResourceID, all []resource, p *problems) error {
	disks, err := m.list(ctx, group+"/providers/Microsoft.Compute/disks", diskVersion)
	if err != nil {
		return err
	}
	lower := func(id fleet.ResourceID) string { return strings.ToLower(string(id)) }
	owners := map[string]string{} // an OS disk has no tags of its own
	for _, d := range disks {
		owners[lower(d.ID)] = lower(d.ManagedBy) + "/"
	}
	ours := func(r resource) bool { return r.Tags[recipe.TagCluster] == m.name() }
	for _, r := range all {
		owned := slices.ContainsFunc(all, func(owner resource) bool {
			return ours(owner) && strings.HasPrefix(owners[lower(r.ID)], lower(owner.ID)+"/")
		})
		if !ours(r) && !owned && r.Tags[fleet.TagCreatedBy] == "" {
			p.add("ResourceForeign", r.ID, kindName(r.Type)+" "+r.Name+" in group "+group.Name()+" was not made by ortet", "move or delete it")
		}
	}
	return nil
}

// own are the resources of the storage group that a role is, where the group stays: the
// state disk, or all that the recipe and backups make. Others are those that have the
// cluster's tag alone: tags are copied, by people and by policies. Disks come first.
func (m *Manager) own(ctx context.Context, o *observation, role string) (own, others []resource, err error) {
	snapshots, err := m.list(ctx, m.group(RoleStorage)+"/providers/Microsoft.Compute/snapshots", diskVersion)
	if err != nil {
		return nil, nil, err
	}
	ours := []fleet.ResourceID{m.stateID()}
	if role != RoleState {
		ours = append(ours, m.in(RoleStorage, identityType, recipe.ServerIdentity), m.in(RoleStorage, identityType, recipe.AgentIdentity), m.autoscalerID())
		for _, s := range snapshots {
			if s.Tags[recipe.TagRole] == recipe.RoleBackup && s.Properties.Creation.Source.Equal(m.stateID()) {
				ours = append(ours, m.backupID(s.Name))
			}
		}
	}
	for _, r := range o.resources[RoleStorage] {
		switch {
		case !m.ours(&r) || r.ID.Equal(m.accountID()):
		case slices.ContainsFunc(ours, r.ID.Equal):
			own = append(own, r)
		case role != RoleState:
			others = append(others, r)
		}
	}
	return own, others, nil
}

// Down deletes the groups of the roles, in their order, and waits; RoleState is the state
// disk alone, and of the group of an existing account it deletes what the recipe and
// backups made. What is deleted already is done. It refuses what Check refuses. When ctx ends, Azure goes on.
func (m *Manager) Down(ctx context.Context, roles []string) (*DownResult, error) {
	r := &DownResult{Cluster: m.name(), Deleted: []string{}}
	if _, err := m.Check(ctx, roles); err != nil {
		return r, interrupted(ctx, "preflight", "nothing was changed", err)
	}
	for _, role := range roles {
		name := m.group(role).Name()
		if role == RoleState || m.keeps(role) {
			if err := m.endRestore(ctx); err != nil {
				return r, interrupted(ctx, role, "nothing of it was deleted", err)
			}
			deleted, kept, err := m.deleteOwn(ctx, role)
			r.Deleted, r.Kept = append(r.Deleted, deleted...), append(r.Kept, kept...)
			if err != nil {
				return r, interrupted(ctx, role, "the rest is still there", err)
			}
			if m.keeps(role) && role == RoleStorage {
				r.Kept = append(r.Kept, name+": group of an existing storage account")
			}
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
	if b := m.Cluster.Spec.Backup; b != nil && slices.Contains(roles, RoleStorage) {
		r.Kept = append(r.Kept, "backups in group "+b.Group+", billed until they are deleted; ortet cluster backup --list shows them")
	}
	disk, err := m.get(ctx, m.stateID(), diskVersion)
	if disk != nil && disk.Tags[recipe.TagCluster] == m.name() {
		r.Kept = append(r.Kept, fmt.Sprintf("disk %s in %s, %d GiB: the cluster's objects, certificates and local volumes; billed until ortet cluster down --state",
			disk.Name, m.group(RoleStorage).Name(), disk.Properties.DiskSizeGB))
	}
	return r, interrupted(ctx, RoleState, "what was to be deleted is deleted", err)
}

// deleteOwn deletes what a role is in a group that stays, and names what else has the tag.
func (m *Manager) deleteOwn(ctx context.Context, role string) (deleted, kept []string, err error) {
	o, err := m.observe(ctx)
	if err != nil {
		return nil, nil, err
	}
	own, others, err := m.own(ctx, o, role)
	if err != nil {
		return nil, nil, err
	}
	for _, r := range others {
		kept = append(kept, fmt.Sprintf("%s %s: has tag %s=%s, but ortet cluster did not make it", kindName(r.Type), r.Name, recipe.TagCluster, m.name()))
	}
	if err := m.endDeployment(ctx, role); err != nil {
		return nil, kept, err
	}
	if m.keeps(role) {
		if err := m.deleteAssignments(ctx, role); err != nil {
			return nil, kept, err
		}
	}
	versions := map[string]string{"disk": diskVersion, "snapshot": diskVersion, "identity": identityVersion}
	for _, r := range own {
		kind := kindName(r.Type)
		c := m.begin("delete "+r.Name, "Delete "+kind+" "+r.Name)
		err := m.delete(ctx, kind+" "+r.Name, r.ID, versions[kind])
		if c.end(err); err != nil {
			return deleted, kept, err
		}
		deleted = append(deleted, kind+" "+r.Name)
	}
	return deleted, kept, nil
}

func (m *Manager) deleteGroup(ctx context.Context, role string) (found bool, err error) {
	g, err := m.get(ctx, m.group(role), resourcesVersion)
	if g == nil || err != nil {
		return false, err
	}
	c := m.begin(role, "Delete group "+m.group(role).Name())
	defer func() { c.end(err) }()
	if !g.is("Deleting") {
		if role == RoleCompute { // which no up has read since the server became ready
			if err := m.keepVersion(ctx); err != nil {
				return true, err
			}
		}
		if err := m.endDeployment(ctx, role); err != nil {
			return true, err
		}
		if err := m.deleteAssignments(ctx, role); err != nil {
			return true, err
		}
		if _, err := m.ARM.Send(ctx, "delete the resource group", http.MethodDelete, m.group(role), resourcesVersion, nil); err != nil && !fleet.Is(err, fleet.KindNotFound) {
			return true, err
		}
	}
	return true, m.awaitDeletion(ctx, role, c)
}

// endDeployment cancels the deployment that runs in a role's group, and waits for its end: it
// would make again what is deleted here, and the group's deletion leaves role assignments.
func (m *Manager) endDeployment(ctx context.Context, role string) (err error) {
	var c *clock
	defer func() {
		if c != nil {
			c.end(err)
		}
	}()
	return m.poll(ctx, func() (bool, error) {
		d, err := m.get(ctx, m.deploymentID(role), resourcesVersion)
		if err != nil || !d.underWay() {
			return true, err
		}
		if c == nil {
			c = m.begin("cancel "+role, "Cancel the deployment of group "+m.group(role).Name())
		}
		_, err = m.ARM.Send(ctx, "cancel the deployment", http.MethodPost, m.deploymentID(role)+"/cancel", resourcesVersion, nil)
		if codeOf(err) == "DeploymentCannotBeCancelled" { // it has ended meanwhile
			err = nil
		}
		return false, fleet.IgnoreNotFound(err)
	})
}

// awaitDeletion waits until a group is deleted.
func (m *Manager) awaitDeletion(ctx context.Context, role string, c *clock) error {
	last := -1
	return m.poll(ctx, func() (bool, error) {
		g, err := m.get(ctx, m.group(role), resourcesVersion)
		if g == nil || err != nil {
			return true, err
		}
		left, err := m.list(ctx, m.group(role)+"/resources", resourcesVersion)
		if len(left) != last {
			last = len(left)
			c.report(workflow.EventProgress, fmt.Sprintf("deleting group %s: %d resource(s) left", g.ID.Name(), last))
		}
		return false, err
	})
}

// deleteAssignments deletes the cluster's role assignments in a group. They may outlive
// their identity, and Azure refuses another principal in one of the same name
// (RoleAssignmentUpdateNotPermitted).
func (m *Manager) deleteAssignments(ctx context.Context, role string) error {
	account := ""
	if role == RoleStorage {
		account = m.Cluster.Spec.Storage.Account
	}
	pools := m.Cluster.ScaledByPods()
	if role == RoleCompute { // and those that cluster.yaml does not have any more
		sets, err := m.list(ctx, m.group(role)+"/providers/Microsoft.Compute/virtualMachineScaleSets", computeVersion)
		if err != nil {
			return err
		}
		for _, s := range sets {
			if m.ours(&s) && byPods(s) {
				pools = append(pools, s.Name)
			}
		}
	}
	for _, id := range recipe.Assignments(string(m.group(role)), account, pools...) {
		if err := m.delete(ctx, "the role assignment", fleet.ResourceID(id), roleVersion); err != nil {
			return err
		}
	}
	return nil
}
