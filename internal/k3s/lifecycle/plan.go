package lifecycle

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/k3s/recipe"
)

// A Change is what Up would do to a resource.
type Change struct {
	Change string       `json:"change"`          // Azure's: Create, Modify, Delete, Deploy, Unsupported
	Group  string       `json:"group"`           // resource group
	Type   string       `json:"type"`            // "Microsoft.Compute/virtualMachines"
	Name   string       `json:"name"`            // "server"
	What   []string     `json:"what,omitempty"`  // changed properties, "sku.capacity"
	Delta  []Difference `json:"delta,omitempty"` // Azure's, with the values
}

// Kind is the type in a word, "vm".
func (c Change) Kind() string { return kindName(c.Type) }

// A Plan is what Up would do.
type Plan struct {
	Cluster   string         `json:"cluster"`
	Fields    []FieldChange  `json:"fields"` // of cluster.yaml, where the cluster has another value
	Changes   []Change       `json:"changes"`
	Counts    map[string]int `json:"counts"`              // by change
	Unchanged int            `json:"unchanged"`           // resources that stay as they are
	NewGroups []string       `json:"newGroups,omitempty"` // groups that do not exist yet
	Billed    []Charge       `json:"billed"`              // of what Up would make
	Notes     []string       `json:"notes,omitempty"`     // what Up leaves as it is, and why
}

// Plan asks Azure what Up would change, and changes nothing. Of a group that does not
// exist Azure cannot be asked: all of its template is to be created.
func (m *Manager) Plan(ctx context.Context) (*Plan, error) {
	o, err := m.observe(ctx)
	if err != nil {
		return nil, err
	}
	d, err := m.check(ctx, o)
	if err != nil {
		return nil, err
	}
	agents, err := m.agents(ctx, o)
	if err != nil {
		return nil, err
	}
	fields, unknown, err := m.fields(ctx, o, d)
	if err != nil {
		return nil, err
	}
	_, behind := m.behind(ctx, agents)
	p := &Plan{Cluster: m.name(), Fields: append([]FieldChange{}, fields...), Changes: []Change{}, Counts: map[string]int{},
		Notes: slices.Concat(m.unfinished(o, agents), m.notes(o, d, false), missing(o, d, agents), driverNotes(d),
			unused(&m.Cluster.Spec), unknown, behind)}
	for _, role := range roles() {
		if o.groups[role] != nil {
			if err := m.whatIf(ctx, role, document(d, role), p); err != nil {
				return nil, err
			}
			continue
		}
		name := m.group(role).Name()
		p.NewGroups = append(p.NewGroups, name)
		for _, r := range templateResources(document(d, role)) {
			p.add(Change{Change: "Create", Group: name, Type: r.Type, Name: shownName(r.Name)})
		}
	}
	if p.Billed, err = m.billed(ctx, o, d, agents); err != nil {
		return nil, err
	}
	for _, name := range sorted(o.sets) { // Azure does not return customData, so what-if is silent on it
		if tag := recipe.AppliedSetting(o.sets[name].Tags[recipe.TagApplied], "cloudinit"); m.pool(name) != nil && tag != d.Applied.CloudInit[name] {
			p.modify(m.group(RoleCompute).Name(), scaleSets, name, "cloud-init document, for new agents")
		}
		if n, lowered := d.Lowered[name]; lowered { // after the deployment, so what-if is silent on it
			p.modify(m.group(RoleCompute).Name(), scaleSets, name, fmt.Sprintf("sku.capacity: %d -> %d", o.sets[name].SKU.Capacity, n))
		}
	}
	for _, to := range sorted(o.security) {
		if former := m.formerPorts(o, to); len(former) > 0 {
			p.modify(m.group(RoleCompute).Name(), securityGroups, to, fmt.Sprintf("port %s of SSH closes when its machines listen on %s", strings.Join(former, ", "), m.sshPort()))
		}
	}
	if m.withoutAddress() { // after the deployment, so what-if is silent on it
		r := &reads{m: m}
		if a := m.publicAddress(ctx, r); a != nil {
			p.add(Change{Change: "Delete", Group: m.group(RoleCompute).Name(), Type: publicAddresses, Name: recipe.ServerName, What: []string{
				fmt.Sprintf("%s and %s are given back to Azure, once the server was reached by another way",
					a.Properties.IPAddress, a.Properties.DNSSettings.FQDN)}})
			if o.nic.hasAddress() {
				p.Unchanged--
			}
		}
		if r.err != nil {
			return nil, r.err
		}
	}
	if what := m.serverChange(o, d).lines(); len(what) > 0 {
		p.add(Change{Change: "Modify", Group: m.group(RoleCompute).Name(), Type: "Microsoft.Compute/virtualMachines", Name: recipe.ServerName, What: what})
	}
	return p, nil
}

func (p *Plan) add(c Change) {
	p.Changes = append(p.Changes, c)
	p.Counts[c.Change]++
}

const (
	scaleSets      = "Microsoft.Compute/virtualMachineScaleSets"
	securityGroups = "Microsoft.Network/networkSecurityGroups"
)

// modify adds a change of a resource to what Azure would do with it.
func (p *Plan) modify(group, kind, name, what string) {
	i := slices.IndexFunc(p.Changes, func(c Change) bool { return c.Group == group && c.Name == name && strings.EqualFold(c.Type, kind) })
	if i < 0 {
		p.add(Change{Change: "Modify", Group: group, Type: kind, Name: name})
		i, p.Unchanged = len(p.Changes)-1, p.Unchanged-1
	}
	p.Changes[i].What = append(p.Changes[i].What, what)
}

// shownName is the last segment of a name, and of a UUID the beginning. A name of a
// template may be an expression.
func shownName(name string) string {
	name = name[strings.LastIndexByte(name, '/')+1:]
	switch {
	case strings.HasSuffix(name, "]"):
		return "(computed)"
	case len(name) == 36 && strings.Count(name, "-") == 4:
		return name[:8] + "…"
	}
	return name
}

// whatIf adds what Azure would do in a group that exists.
func (m *Manager) whatIf(ctx context.Context, role string, d recipe.Deployment, p *Plan) error {
	name := m.group(role).Name()
	op, err := m.ARM.Send(ctx, "plan group "+name, http.MethodPost, m.deploymentID(role)+"/whatIf", resourcesVersion, deploymentBody(d))
	if err != nil {
		return err
	}
	answer, err := op.Wait(ctx)
	if err != nil {
		return err
	}
	type resourceType struct {
		Type string `json:"type"`
	}
	var result struct {
		Error      *armError `json:"error"`
		Properties struct {
			Changes []struct {
				ID     fleet.ResourceID `json:"resourceId"`
				Type   string           `json:"changeType"`
				Before resourceType     `json:"before"`
				After  resourceType     `json:"after"`
				Delta  []Difference     `json:"delta"`
				Reason string           `json:"unsupportedReason"`
			} `json:"changes"`
		} `json:"properties"`
	}
	if err := json.Unmarshal(answer, &result); err != nil {
		return fmt.Errorf("cannot plan group %s: %w", name, err)
	}
	if result.Error != nil {
		code, message := result.Error.deepest()
		return fmt.Errorf("cannot plan group %s: %s: %s", name, code, message)
	}
	for _, r := range result.Properties.Changes {
		c := Change{Change: r.Type, Group: name, Type: cmp.Or(r.After.Type, r.Before.Type), Name: shownName(r.ID.Name())}
		switch {
		case r.Type == "Modify":
			c.Delta = r.Delta
			for _, one := range r.Delta {
				c.What = append(c.What, one.paths("")...)
			}
		case r.Reason != "":
			c.What = []string{r.Reason}
		}
		switch {
		case r.Type == "Ignore":
		case r.Type == "NoChange", r.Type == "NoEffect", r.Type == "Modify" && len(c.What) == 0:
			p.Unchanged++
		default:
			p.add(c)
		}
	}
	return nil
}

// A Difference is a change of a property, as what-if gives it.
type Difference struct {
	Path     string       `json:"path"`
	Type     string       `json:"propertyChangeType"` // Create, Modify, Delete, Array, NoEffect
	Before   any          `json:"before,omitempty"`
	After    any          `json:"after,omitempty"`
	Children []Difference `json:"children,omitempty"`
}

// paths are the changed properties, a list as a whole, without what-if's noise
// (Azure/arm-template-whatif, label "noise"): what the service has set by itself looks
// deleted, ids differ in letter case, and functions that run only in the deployment look
// like values.
func (d Difference) paths(parent string) (all []string) {
	path := strings.TrimPrefix(parent+"."+d.Path, ".")
	for _, c := range d.Children {
		all = append(all, c.paths(path)...)
	}
	before, _ := d.Before.(string)
	after, isText := d.After.(string)
	_, err := strconv.Atoi(d.Path)
	element := err == nil // of a list
	switch {
	case d.Type != "Array" && len(d.Children) > 0:
		return all
	case path == "tags."+recipe.TagApplied: // of Ortet's own, beside what it says
		return nil
	case d.Type == "Array" && len(all) == 0, d.Type == "NoEffect", d.Type == "Delete" && !element && !strings.HasPrefix(path, "tags."),
		d.Type != "Array" && isText && (strings.HasPrefix(after, "[") || strings.EqualFold(before, after)):
		return nil
	}
	text := strings.TrimPrefix(strings.ReplaceAll(path, ".properties.", "."), "properties.")
	if d.Type == "Modify" {
		text += fmt.Sprintf(": %.40v -> %.40v", d.Before, d.After)
	}
	return []string{text}
}
