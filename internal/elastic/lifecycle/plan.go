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
)

// A Change is what Up would do to a resource.
type Change struct {
	Change string   `json:"change"`         // Azure's: Create, Modify, Delete, Deploy, Unsupported
	Group  string   `json:"group"`          // resource group
	Type   string   `json:"type"`           // "Microsoft.Compute/virtualMachines"
	Name   string   `json:"name"`           // "server"
	What   []string `json:"what,omitempty"` // changed properties, "sku.capacity: 1 -> 2"
}

// Kind is the type in a word, "vm".
func (c Change) Kind() string { return kindName(c.Type) }

// A Plan is what Up would do.
type Plan struct {
	Cluster   string         `json:"cluster"`
	Changes   []Change       `json:"changes"`
	Counts    map[string]int `json:"counts"`              // by change
	Unchanged int            `json:"unchanged"`           // resources that stay as they are
	NewGroups []string       `json:"newGroups,omitempty"` // groups that do not exist yet
	Notes     []string       `json:"notes,omitempty"`     // what Up leaves as it is, and why
}

// Plan asks Azure what Up would change, and changes nothing. Of a group that does not
// exist Azure cannot be asked: all of its template is to be created.
func (m *Manager) Plan(ctx context.Context) (*Plan, error) {
	o, d, err := m.render(ctx)
	if err != nil {
		return nil, err
	}
	problems, err := m.problems(ctx, o, d)
	if err != nil {
		return nil, err
	}
	if len(problems) > 0 {
		return nil, &engine.Refused{Problems: problems}
	}
	p := &Plan{Cluster: m.name(), Changes: []Change{}, Counts: map[string]int{}, Notes: m.notes(o, d)}
	for _, role := range []string{RoleStorage, RoleCompute} {
		document := d.Storage
		if role == RoleCompute {
			document = d.Compute
		}
		name := m.group(role).Name()
		if o.groups[role] == nil {
			p.NewGroups = append(p.NewGroups, name)
			for _, r := range templateResources(document.Template) {
				p.add(Change{Change: "Create", Group: name, Type: r.Type, Name: shownName(r.Name)})
			}
			continue
		}
		if err := m.whatIf(ctx, role, document, p); err != nil {
			return nil, err
		}
	}
	return p, nil
}

func (p *Plan) add(c Change) {
	p.Changes = append(p.Changes, c)
	p.Counts[c.Change]++
}

// shownName is a name of a template, which may be an expression.
func shownName(name string) string {
	if strings.HasPrefix(name, "[") {
		return "(computed)"
	}
	return name[strings.LastIndexByte(name, '/')+1:]
}

// A delta is a property that what-if reports as changed.
type delta struct {
	Path     string  `json:"path"`
	Type     string  `json:"propertyChangeType"` // Create, Delete, Modify, Array, NoEffect
	Before   any     `json:"before"`
	After    any     `json:"after"`
	Children []delta `json:"children"`
}

// whatIf adds what Azure says of a group that exists.
func (m *Manager) whatIf(ctx context.Context, role string, d recipe.Deployment, p *Plan) error {
	body := deploymentBody(d)
	body["properties"].(map[string]any)["whatIfSettings"] = map[string]string{"resultFormat": "FullResourcePayloads"} //nolint:forcetypeassert // made by deploymentBody
	op, err := m.ARM.Send(ctx, "ask what would change", http.MethodPost, m.deploymentID(role)+"/whatIf", resourcesVersion, body)
	if err != nil {
		return err
	}
	answer, err := op.Wait(ctx)
	if err != nil {
		return err
	}
	var result struct {
		Status     string    `json:"status"`
		Error      *armError `json:"error"`
		Properties struct {
			Changes []struct {
				ID     fleet.ResourceID `json:"resourceId"`
				Type   string           `json:"changeType"`
				Delta  []delta          `json:"delta"`
				Reason string           `json:"unsupportedReason"`
			} `json:"changes"`
		} `json:"properties"`
	}
	if err := json.Unmarshal(answer, &result); err != nil {
		return fmt.Errorf("cannot read what would change: %w", err)
	}
	if result.Error != nil {
		code, message := result.Error.deepest()
		return fmt.Errorf("cannot plan group %s: %s: %s", m.group(role).Name(), code, message)
	}
	for _, r := range result.Properties.Changes {
		c := Change{Change: r.Type, Group: m.group(role).Name(), Type: typeOf(r.ID), Name: r.ID.Name()}
		switch r.Type {
		case "Ignore":
			continue
		case "NoChange", "NoEffect":
			p.Unchanged++
			continue
		case "Modify":
			if c.What = effects("", r.Delta); len(c.What) == 0 {
				p.Unchanged++
				continue
			}
		case "Unsupported":
			c.What = []string{r.Reason}
		}
		p.add(c)
	}
	return nil
}

// typeOf is the type in an id: that of the last provider, with all its levels.
func typeOf(id fleet.ResourceID) string {
	i := strings.LastIndex(strings.ToLower(string(id)), "/providers/")
	if i < 0 {
		return ""
	}
	parts := strings.Split(string(id)[i+len("/providers/"):], "/")
	kind := parts[0]
	for j := 1; j < len(parts); j += 2 {
		kind += "/" + parts[j]
	}
	return kind
}

// effects are the deltas that are changes. What-if also lists what the service has set
// by itself as a deletion (Azure/arm-template-whatif, "noise"), since a template does
// not name it; tags are the exception, as a deployment replaces them.
func effects(above string, deltas []delta) []string {
	var all []string
	for _, d := range deltas {
		path := strings.TrimPrefix(above+"."+d.Path, ".")
		switch {
		case d.Type == "NoEffect", strings.HasSuffix(path, "provisioningState"), strings.HasSuffix(path, "etag"):
		case len(d.Children) > 0:
			all = append(all, effects(path, d.Children)...)
		case d.Type == "Delete" && !strings.HasPrefix(path, "tags"):
		default:
			all = append(all, fmt.Sprintf("%s: %s -> %s", strings.TrimPrefix(path, "properties."), brief(d.Before), brief(d.After)))
		}
	}
	slices.Sort(all)
	return all
}

// brief is a value in at most some dozen characters.
func brief(v any) string {
	const limit = 40
	if v == nil {
		return "none"
	}
	text, isText := v.(string)
	if !isText {
		data, err := json.Marshal(v)
		if err != nil {
			return "?"
		}
		text = string(data)
	}
	if r := []rune(text); len(r) > limit {
		return string(r[:limit-1]) + "…"
	}
	return text
}
