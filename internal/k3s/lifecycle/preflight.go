package lifecycle

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/k3s"
	"github.com/ortet/ortet/internal/k3s/recipe"
	"github.com/ortet/ortet/internal/workflow"
)

// neededRole is what the templates need, since they assign roles.
const neededRole = "have Owner, or Contributor and Role Based Access Control Administrator, on the subscription"

// problems collects all reasons to refuse a command.
type problems []fleet.Problem

func (p *problems) add(code string, on fleet.ResourceID, what, wayOut string) {
	*p = append(*p, fleet.Problem{Code: code, On: string(on), What: what, WayOut: wayOut})
}

// err is *workflow.Refused, or nil without problems.
func (p problems) err() error {
	if len(p) == 0 {
		return nil
	}
	return &workflow.Refused{Problems: p}
}

// preflight observes, refuses what cannot end well, all reasons at once, and makes the
// groups: ARM validates templates against a group that exists. Groups that it made are
// deleted again if the validation refuses and nothing is in them.
func (m *Manager) preflight(ctx context.Context, replace bool) (o *observation, d *recipe.Documents, err error) {
	c := m.begin("preflight", "Run preflight checks")
	defer func() { c.end(err) }()
	if o, err = m.observe(ctx); err != nil {
		return nil, nil, err
	}
	if replace {
		o.replace, err = m.replaceable(ctx, o)
	}
	if err == nil {
		d, err = m.check(ctx, o)
	}
	if err != nil {
		return nil, nil, err
	}
	if len(m.lostIdentities(o)) > 0 {
		// Assignments that a deployment of another up is making are not old.
		earlier, err := m.get(ctx, m.deploymentID(RoleStorage), resourcesVersion)
		if earlier != nil && !earlier.underWay() {
			err = m.deleteAssignments(ctx, RoleStorage)
		}
		if err != nil {
			return nil, nil, err
		}
	}
	var p problems
	var made []string
	for _, role := range roles() {
		if o.groups[role] == nil {
			err := m.makeGroup(ctx, m.group(role), m.Cluster.Spec.Location, map[string]string{recipe.TagCluster: m.name(), recipe.TagRole: role})
			if fleet.Is(err, fleet.KindDenied) {
				p.add("AuthorizationFailed", m.group(role), cause(err), neededRole)
				continue
			}
			if err != nil {
				return nil, nil, err
			}
			made = append(made, role)
		}
		if err := m.validate(ctx, role, document(d, role), &p); err != nil {
			return nil, nil, err
		}
	}
	if len(p) > 0 {
		for _, role := range made {
			if err := m.deleteEmpty(ctx, role, c); err != nil {
				return nil, nil, err
			}
		}
	}
	return o, d, p.err()
}

func (m *Manager) makeGroup(ctx context.Context, id fleet.ResourceID, location string, tags map[string]string) error {
	_, err := m.ARM.Send(ctx, "create the resource group", http.MethodPut, id, resourcesVersion, map[string]any{"location": location, "tags": tags})
	return err
}

// deleteEmpty deletes a group and waits, since the next up is refused while it is being
// deleted, unless another up uses it by now.
func (m *Manager) deleteEmpty(ctx context.Context, role string, c *clock) error {
	r := &reads{m: m}
	if r.get(ctx, m.deploymentID(role), resourcesVersion) != nil || len(r.list(ctx, m.group(role)+"/resources", resourcesVersion)) > 0 || r.err != nil {
		return r.err
	}
	if _, err := m.ARM.Send(ctx, "delete the empty resource group", http.MethodDelete, m.group(role), resourcesVersion, nil); err != nil {
		return err
	}
	return m.awaitDeletion(ctx, role, c)
}

// cause is Azure's sentence without ours around it.
func cause(err error) string {
	for {
		e, ok := err.(*fleet.Error) //nolint:errorlint // the chain is unwound one by one
		if !ok || e.Err == nil {
			return err.Error()
		}
		err = e.Err
	}
}

// check renders, and refuses what can be known before anything is made.
func (m *Manager) check(ctx context.Context, o *observation) (*recipe.Documents, error) {
	d, err := m.documents(ctx, o)
	if err != nil {
		return nil, err
	}
	var p problems
	m.checkGroups(o, &p)
	for _, name := range m.Cluster.Spec.Artifacts.Placeholders() {
		p.add("ArtifactPlaceholder", fleet.ResourceID("spec.artifacts."+name), "digest is all zeros, so machines cannot fetch "+name, "write the block with ortet cluster artifacts")
	}
	for _, role := range roles() {
		m.checkNames(o.resources[role], document(d, role), &p)
	}
	r := &reads{m: m}
	for _, ns := range []string{"Microsoft.Compute", "Microsoft.Network", "Microsoft.Storage", "Microsoft.ManagedIdentity", "Microsoft.Insights"} {
		if provider := r.get(ctx, m.subscription()+fleet.ResourceID("/providers/"+ns), resourcesVersion); provider == nil || provider.State != "Registered" {
			p.add("ProviderNotRegistered", m.subscription(), "resource provider "+ns+" is not registered", "az provider register --wait --namespace "+ns)
		}
	}
	renamed := m.checkRenamed(o, &p)
	if d := o.state; d != nil && d.ManagedBy != "" && !d.ManagedBy.Equal(m.serverID()) && !renamed {
		p.add("StateDiskAttached", d.ID, "state disk is attached to "+string(d.ManagedBy), "detach it there: az vm disk detach")
	}
	// A machine that is being deleted has lost its disk before its name.
	if o.replace && !o.server.is("Deleting") && !m.stateStays(o) {
		p.add("NoStateDisk", m.serverID(), "server does not keep its state on disk "+recipe.StateDisk+", so all of it would be lost", anotherCluster)
	}
	if o.serverStays() && (m.Cluster.Spec.Access.Tailscale != nil || m.withoutAddress()) &&
		recipe.AppliedSetting(o.server.Tags[recipe.TagApplied], "tailnet") == "" {
		p.add("RecipeTooOld", m.serverID(), "server was made by an earlier version of ortet: it needs its public address and joins no tailnet",
			"ortet cluster replace server makes it again with this cluster.yaml, on the same state")
	}
	if o.serverStays() || len(o.sets) > 0 {
		for _, name := range m.lostIdentities(o) {
			p.add("IdentityDeleted", m.in(RoleStorage, identityType, name), "identity "+name+" was deleted; machines have no rights by a new identity of that name", "run ortet cluster down, then ortet cluster up")
		}
	}
	if o.groups[RoleCompute] != nil {
		m.checkNetwork(r.get(ctx, m.in(RoleCompute, "Microsoft.Network/virtualNetworks", recipe.VNetName), networkVersion), &p)
		for _, to := range []string{k3s.ToServers, k3s.ToAgents} {
			m.checkRules(o.security[to], to, &p)
		}
	}
	if r.err != nil {
		return nil, r.err
	}
	m.checkPools(o, &p)
	m.checkUser(o, &p)
	m.checkRestore(o, &p)
	m.checkState(o, &p)
	m.checkVersion(o, &p)
	m.checkOtherAccounts(o, &p)
	if err := m.checkSizes(ctx, o, d, &p); err != nil {
		return nil, err
	}
	if err := m.checkAccount(ctx, o, &p); err != nil {
		return nil, err
	}
	return d, p.err()
}

// checkRenamed refuses another name of a group than the one with the cluster's server or
// state disk: up would make a second cluster beside it.
func (m *Manager) checkRenamed(o *observation, p *problems) (renamed bool) {
	check := func(role string, id fleet.ResourceID, what string) {
		if have := id.Segment("resourceGroups"); id != "" && !strings.EqualFold(have, m.group(role).Name()) {
			renamed = true
			p.add("GroupFixed", id, fmt.Sprintf("spec.groups.%s is %s, but the cluster's %s is in group %s, which would stay, and stay billed", role, m.group(role).Name(), what, have),
				"write groups."+role+": "+have+"; for another name: ortet cluster down with groups."+role+": "+have+" first")
		}
	}
	if o.state != nil && o.state.ManagedBy.Name() == recipe.ServerName {
		check(RoleCompute, o.state.ManagedBy, "server")
	}
	if o.server != nil {
		for _, d := range o.server.Properties.StorageProfile.DataDisks {
			check(RoleStorage, d.ManagedDisk.ID, "state disk")
		}
	}
	return renamed
}

const identityType = "Microsoft.ManagedIdentity/userAssignedIdentities"

// lostIdentities are the machines' identities that do not exist.
func (m *Manager) lostIdentities(o *observation) []string {
	names := []string{recipe.ServerIdentity, recipe.AgentIdentity}
	if o.serverStays() && m.hasAutoscaler(o.server) {
		names = append(names, recipe.AutoscalerIdentity)
	}
	return slices.DeleteFunc(names, func(name string) bool {
		return slices.ContainsFunc(o.resources[RoleStorage], func(r resource) bool { return r.ID.Equal(m.in(RoleStorage, identityType, name)) })
	})
}

// keeps reports whether a group is never made or deleted: that of an existing account.
func (m *Manager) keeps(role string) bool {
	return role == RoleStorage && m.Cluster.Spec.Storage.Existing
}

// foreignGroup says why a group is not ours, or "".
func (m *Manager) foreignGroup(o *observation, role string) string {
	switch g := o.groups[role]; {
	case g == nil || m.keeps(role) || g.Tags[recipe.TagCluster] == m.name() && g.Tags[recipe.TagRole] == role:
		return ""
	case g.Tags[recipe.TagCluster] == "":
		return "group exists and was not made by ortet cluster"
	default:
		return fmt.Sprintf("group belongs to cluster %s (%s)", g.Tags[recipe.TagCluster], g.Tags[recipe.TagRole])
	}
}

func (m *Manager) deleting(o *observation, role string) bool {
	return o.groups[role] != nil && o.groups[role].is("Deleting")
}

// checkGroups finds groups that are not ours, or elsewhere.
func (m *Manager) checkGroups(o *observation, p *problems) {
	for _, role := range roles() {
		g, id := o.groups[role], m.group(role)
		if m.keeps(role) {
			if g == nil {
				p.add("GroupNotFound", id, "group of the existing storage account does not exist", "correct spec.groups.storage")
			}
			continue
		}
		if why := m.foreignGroup(o, role); why != "" {
			p.add("GroupForeign", id, why, "choose another name in spec.groups."+role)
		} else if m.deleting(o, role) {
			p.add("GroupDeleting", id, "group is being deleted, by ortet cluster down or by hand", "wait for that with ortet cluster down, then run the command again")
		}
		if g != nil && !strings.EqualFold(strings.ReplaceAll(g.Location, " ", ""), m.Cluster.Spec.Location) {
			p.add("GroupLocation", id, fmt.Sprintf("group is in %s, not in %s", g.Location, m.Cluster.Spec.Location), "change spec.location, or ortet cluster down --all first")
		}
	}
}

// checkNames finds resources that the template would overwrite and that are not ours.
func (m *Manager) checkNames(existing []resource, d recipe.Deployment, p *problems) {
	mine := map[string]bool{}
	for _, t := range templateResources(d) {
		mine[strings.ToLower(t.Type+"/"+t.Name)] = true
	}
	for _, r := range existing {
		if r.Tags[recipe.TagCluster] != m.name() && mine[strings.ToLower(r.Type+"/"+r.Name)] && !r.ID.Equal(m.accountID()) {
			p.add("ResourceForeign", r.ID, kindName(r.Type)+" "+r.Name+" exists and was not made by ortet cluster", "delete it, or choose another group")
		}
	}
}

// templateResources are a template's resources as far as they are literal.
func templateResources(d recipe.Deployment) (all []resource) {
	list, _ := d.Template["resources"].([]any)
	for _, v := range list {
		one, _ := v.(map[string]any)
		kind, _ := one["type"].(string)
		name, _ := one["name"].(string)
		all = append(all, resource{Type: kind, Name: name})
	}
	return all
}

func (m *Manager) checkAccount(ctx context.Context, o *observation, p *problems) error {
	name := m.Cluster.Spec.Storage.Account
	if o.account != nil {
		return nil
	}
	if m.Cluster.Spec.Storage.Existing {
		p.add("AccountNotFound", m.accountID(), "storage account "+name+" does not exist", "correct spec.storage.account and spec.groups.storage")
		return nil
	}
	op, err := m.ARM.Send(ctx, "check the storage account's name", http.MethodPost, m.subscription()+"/providers/Microsoft.Storage/checkNameAvailability", storageVersion,
		map[string]string{"name": name, "type": "Microsoft.Storage/storageAccounts"})
	if err != nil {
		return err
	}
	answer := struct {
		Available bool   `json:"nameAvailable"`
		Message   string `json:"message"`
	}{Available: true}
	if err := json.Unmarshal(op.Answer(), &answer); err != nil {
		return fmt.Errorf("cannot check the storage account's name: %w", err)
	}
	if answer.Available {
		return nil
	}
	// Another up may have made it since the observation.
	if account, err := m.get(ctx, m.accountID(), storageVersion); account != nil || err != nil {
		return err
	}
	p.add("AccountNameTaken", m.accountID(), answer.Message, "choose another spec.storage.account, or if it is this cluster's, write its former spec.groups")
	return nil
}

// validate has ARM check a template: syntax, rights, quota, sizes.
func (m *Manager) validate(ctx context.Context, role string, d recipe.Deployment, p *problems) error {
	var body struct {
		Error *armError `json:"error"`
	}
	err := m.settled(ctx, func() error {
		op, err := m.ARM.Send(ctx, "validate the deployment", http.MethodPost, m.deploymentID(role)+"/validate", resourcesVersion, deploymentBody(d))
		if err != nil {
			return err
		}
		answer, err := op.Wait(ctx)
		if err != nil || len(answer) == 0 {
			return err
		}
		return json.Unmarshal(answer, &body)
	})
	var code, what string
	switch kind := fleet.KindOf(err); {
	case codeOf(err) == "DeploymentActive", err == nil && body.Error == nil:
		return nil
	case err == nil:
		code, what = body.Error.deepest()
		what = code + ": " + what
	case kind == fleet.KindTransient || kind == fleet.KindThrottled || kind == fleet.KindUnauthenticated || kind == fleet.KindTimedOut || ctx.Err() != nil:
		return err
	default:
		code, what = codeOf(err), cause(err)
	}
	wayOut := "correct cluster.yaml, or raise the quota"
	if fleet.Is(err, fleet.KindDenied) || strings.Contains(code+what, "AuthorizationFailed") || strings.Contains(what, "Authorization failed") {
		code, wayOut = "AuthorizationFailed", neededRole
	}
	p.add(code, m.group(role), what, wayOut)
	return nil
}
