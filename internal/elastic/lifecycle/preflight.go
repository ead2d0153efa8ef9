package lifecycle

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/ortet/ortet/internal/elastic/recipe"
	"github.com/ortet/ortet/internal/engine"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/plan"
)

// providers are those of the templates' resources.
func providers() []string {
	return []string{"Microsoft.Compute", "Microsoft.Network", "Microsoft.Storage", "Microsoft.ManagedIdentity", "Microsoft.Insights"}
}

// neededRole is what the templates need, since they define and assign roles. Role Based
// Access Control Administrator may assign, but not define them.
const neededRole = "have Owner, or Contributor and User Access Administrator, on the subscription"

// preflight observes, refuses what cannot end well, all reasons at once, and makes the
// groups: ARM validates templates against a group that exists. Groups that it made are
// deleted again where the validation refuses.
func (m *Manager) preflight(ctx context.Context) (o *observation, d *recipe.Documents, err error) {
	c := m.begin("preflight", "Run preflight checks")
	defer func() { c.end(err) }()
	if o, d, err = m.render(ctx); err != nil {
		return nil, nil, err
	}
	problems, err := m.problems(ctx, o, d)
	if err != nil {
		return nil, nil, err
	}
	if len(problems) > 0 {
		return nil, nil, &engine.Refused{Problems: problems}
	}
	var made []string
	for _, role := range []string{RoleStorage, RoleCompute} {
		if o.groups[role] != nil {
			continue
		}
		body := map[string]any{"location": m.Cluster.Spec.Location, "tags": map[string]string{recipe.TagCluster: m.name(), recipe.TagRole: role}}
		_, err := m.ARM.Send(ctx, "create the resource group", http.MethodPut, m.group(role), resourcesVersion, body)
		if fleet.Is(err, fleet.KindDenied) {
			problems = append(problems, denied(m.group(role), err))
			continue
		}
		if err != nil {
			return nil, nil, err
		}
		made = append(made, role)
	}
	for _, v := range []struct {
		role string
		d    recipe.Deployment
	}{{RoleStorage, d.Storage}, {RoleCompute, d.Compute}} {
		if o.groups[v.role] == nil && !slices.Contains(made, v.role) {
			continue
		}
		p, err := m.validate(ctx, v.role, v.d)
		if err != nil {
			return nil, nil, err
		}
		problems = append(problems, p...)
	}
	if len(problems) == 0 {
		return o, d, nil
	}
	for _, role := range made {
		if _, err := m.ARM.Send(ctx, "delete the empty resource group", http.MethodDelete, m.group(role), resourcesVersion, nil); err != nil {
			return nil, nil, err
		}
	}
	return nil, nil, &engine.Refused{Problems: problems}
}

// render observes, and makes the templates for it.
func (m *Manager) render(ctx context.Context) (*observation, *recipe.Documents, error) {
	o, err := m.observe(ctx)
	if err != nil {
		return nil, nil, err
	}
	f, err := m.facts(o)
	if err != nil {
		return nil, nil, err
	}
	d, err := m.Render(m.Cluster, f)
	return o, d, err
}

func denied(id fleet.ResourceID, err error) plan.Problem {
	return plan.Problem{Code: "AuthorizationFailed", On: string(id), What: cause(err), WayOut: neededRole}
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

// problems are what can be known before anything is made.
func (m *Manager) problems(ctx context.Context, o *observation, d *recipe.Documents) ([]plan.Problem, error) {
	problems := m.groupProblems(o)
	for _, name := range m.Cluster.Spec.Artifacts.Placeholders() {
		problems = append(problems, plan.Problem{Code: "ArtifactPlaceholder", On: "spec.artifacts." + name, What: "digest is all zeros, so machines cannot fetch " + name,
			WayOut: "write the block with ortet cluster artifacts"})
	}
	for _, v := range []struct {
		role string
		d    recipe.Deployment
	}{{RoleStorage, d.Storage}, {RoleCompute, d.Compute}} {
		problems = append(problems, m.foreignNames(o.resources[v.role], v.d)...)
	}
	var unregistered []string
	for _, ns := range providers() {
		var p struct {
			State string `json:"registrationState"`
		}
		if _, err := m.get(ctx, m.subscription()+fleet.ResourceID("/providers/"+ns), resourcesVersion, &p); err != nil {
			return nil, err
		}
		if p.State != "Registered" {
			unregistered = append(unregistered, ns)
		}
	}
	for _, ns := range unregistered {
		problems = append(problems, plan.Problem{Code: "ProviderNotRegistered", On: "subscription " + m.Subscription, What: "resource provider " + ns + " is not registered",
			WayOut: "az provider register --wait --namespace " + ns})
	}
	account, err := m.accountProblem(ctx, o)
	if err != nil {
		return nil, err
	}
	return append(problems, account...), nil
}

// groupProblems are groups that are not ours, or elsewhere.
func (m *Manager) groupProblems(o *observation) []plan.Problem {
	var problems []plan.Problem
	for _, role := range []string{RoleStorage, RoleCompute} {
		g := o.groups[role]
		refuse := func(code, what, wayOut string) {
			problems = append(problems, plan.Problem{Code: code, On: string(m.group(role)), What: what, WayOut: wayOut})
		}
		switch {
		case role == RoleStorage && m.Cluster.Spec.Storage.Existing:
			if g == nil {
				refuse("GroupNotFound", "group of the existing storage account does not exist", "correct spec.groups.storage")
			}
			continue
		case g == nil:
			continue
		case strings.EqualFold(g.Properties.ProvisioningState, "Deleting"):
			refuse("GroupDeleting", "group is being deleted", "run ortet cluster down, which waits for the end, then this command again")
		case g.Tags[recipe.TagCluster] == "":
			refuse("GroupForeign", "group exists and was not made by ortet cluster", "choose another name in spec.groups."+role)
		case g.Tags[recipe.TagCluster] != m.name() || g.Tags[recipe.TagRole] != role:
			refuse("GroupForeign", fmt.Sprintf("group belongs to cluster %s (%s)", g.Tags[recipe.TagCluster], g.Tags[recipe.TagRole]), "choose another name in spec.groups."+role)
		}
		if !strings.EqualFold(strings.ReplaceAll(g.Location, " ", ""), m.Cluster.Spec.Location) {
			refuse("GroupLocation", fmt.Sprintf("group is in %s, not in %s", g.Location, m.Cluster.Spec.Location), "change spec.location, or ortet cluster down --all first")
		}
	}
	return problems
}

// foreignNames are resources that the template would overwrite and that are not ours.
func (m *Manager) foreignNames(existing []resource, d recipe.Deployment) []plan.Problem {
	mine := map[string]bool{}
	for _, t := range templateResources(d.Template) {
		mine[strings.ToLower(t.Type+"/"+t.Name)] = true
	}
	var problems []plan.Problem
	for _, r := range existing {
		if r.Tags[recipe.TagCluster] != m.name() && mine[strings.ToLower(r.Type+"/"+r.Name)] && !r.ID.Equal(m.accountID()) {
			problems = append(problems, plan.Problem{Code: "ResourceForeign", On: string(r.ID), What: kindName(r.Type) + " " + r.Name + " exists and was not made by ortet cluster",
				WayOut: "delete it, or choose another group"})
		}
	}
	return problems
}

// A templateResource is a resource of a template, as far as it is literal.
type templateResource struct {
	Type string            `json:"type"`
	Name string            `json:"name"`
	Tags map[string]string `json:"tags"`
}

func templateResources(template map[string]any) []templateResource {
	text, err := json.Marshal(template["resources"])
	if err != nil {
		return nil
	}
	var all []templateResource
	if json.Unmarshal(text, &all) != nil {
		return nil
	}
	return all
}

func (m *Manager) accountProblem(ctx context.Context, o *observation) ([]plan.Problem, error) {
	name := m.Cluster.Spec.Storage.Account
	if m.Cluster.Spec.Storage.Existing {
		if !o.account {
			return []plan.Problem{{Code: "AccountNotFound", On: string(m.accountID()), What: "storage account " + name + " does not exist", WayOut: "correct spec.storage.account and spec.groups.storage"}}, nil
		}
		return nil, nil
	}
	if o.account {
		return nil, nil
	}
	op, err := m.ARM.Send(ctx, "check the storage account's name", http.MethodPost, m.subscription()+"/providers/Microsoft.Storage/checkNameAvailability", storageVersion,
		map[string]string{"name": name, "type": "Microsoft.Storage/storageAccounts"})
	if err != nil {
		return nil, err
	}
	var answer struct {
		Available *bool  `json:"nameAvailable"`
		Message   string `json:"message"`
	}
	if err := json.Unmarshal(op.Answer(), &answer); err != nil {
		return nil, fmt.Errorf("cannot read whether the storage account's name is available: %w", err)
	}
	if answer.Available != nil && !*answer.Available {
		// Another up has made it since the observation.
		if found, err := m.get(ctx, m.accountID(), storageVersion, &struct{}{}); found || err != nil {
			return nil, err
		}
		return []plan.Problem{{Code: "AccountNameTaken", On: "storage account " + name, What: answer.Message, WayOut: "choose another spec.storage.account"}}, nil
	}
	return nil, nil
}

// validate has ARM check a template: syntax, rights, quota, sizes.
func (m *Manager) validate(ctx context.Context, role string, d recipe.Deployment) ([]plan.Problem, error) {
	var answer json.RawMessage
	err := m.settled(ctx, func() error {
		op, err := m.ARM.Send(ctx, "validate the deployment", http.MethodPost, m.deploymentID(role)+"/validate", resourcesVersion, deploymentBody(d))
		if err != nil {
			return err
		}
		answer, err = op.Wait(ctx)
		return err
	})
	id := string(m.group(role))
	switch kind := fleet.KindOf(err); {
	case err == nil:
	case codeOf(err) == "DeploymentActive":
		return nil, nil
	case kind == fleet.KindDenied || strings.Contains(cause(err), "AuthorizationFailed") || strings.Contains(cause(err), "Authorization failed"):
		return []plan.Problem{denied(m.group(role), err)}, nil
	case kind == fleet.KindTransient || kind == fleet.KindThrottled || kind == fleet.KindUnauthenticated || kind == fleet.KindTimedOut || ctx.Err() != nil:
		return nil, err
	default:
		return []plan.Problem{{Code: codeOf(err), On: id, What: cause(err), WayOut: "correct cluster.yaml, or raise the quota"}}, nil
	}
	var body struct {
		Error *armError `json:"error"`
	}
	if len(answer) > 0 && json.Unmarshal(answer, &body) == nil && body.Error != nil {
		code, message := body.Error.deepest()
		p := plan.Problem{Code: code, On: id, What: code + ": " + message, WayOut: "correct cluster.yaml, or raise the quota"}
		if strings.Contains(code, "Authorization") {
			p.WayOut = neededRole
		}
		return []plan.Problem{p}, nil
	}
	return nil, nil
}
