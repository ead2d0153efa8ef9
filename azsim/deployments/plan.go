package deployments

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ortet/ortet/azsim/template"
)

// A Plan is the body of a deployment's request, checked and expanded.
type Plan struct {
	ID   string // of the deployment
	Name string
	Tags map[string]string
	// IDsOnly is what-if's resultFormat ResourceIdOnly.
	IDsOnly bool

	mode     string
	template *template.Template
	scope    template.Scope
	expanded *template.Deployment
	places   map[string]string // locations of the resources by id, lower case; "" for none
}

// NewPlan reads the body of PUT, validate and whatIf: JSON, or what the Azure CLI
// sends for it, whose template is the file as it is. Its errors are *Error.
func NewPlan(body []byte, id string, scope template.Scope) (*Plan, error) {
	bad := func(code, format string, args ...any) error {
		return &Error{Status: http.StatusBadRequest, Code: code, Message: fmt.Sprintf(format, args...)}
	}
	clean, err := template.Clean(body)
	if err != nil {
		return nil, bad("InvalidRequestContent", "The request content was invalid and could not be deserialized: '%v'.", err)
	}
	var in struct {
		Tags       map[string]string
		Properties struct {
			Template                                        json.RawMessage
			TemplateLink, ParametersLink, OnErrorDeployment any
			Parameters                                      map[string]any
			Mode                                            string
			WhatIfSettings                                  struct{ ResultFormat string }
		}
	}
	d := json.NewDecoder(bytes.NewReader(clean))
	d.UseNumber()
	if err := d.Decode(&in); err != nil {
		return nil, bad("InvalidRequestContent", "The request content was invalid and could not be deserialized: '%v'.", err)
	}
	p := &in.Properties
	switch {
	case p.TemplateLink != nil || p.ParametersLink != nil:
		return nil, bad("NotSimulated", "azsim does not follow templateLink and parametersLink; send the template and its parameters in the request.")
	case p.OnErrorDeployment != nil:
		return nil, bad("NotSimulated", "azsim has no onErrorDeployment; leave it out.")
	case strings.EqualFold(p.Mode, "Complete"):
		return nil, bad("NotSimulated", "azsim has no deployments of mode Complete; use Incremental.")
	case !strings.EqualFold(p.Mode, "Incremental"):
		return nil, bad("InvalidRequestContent", "The request content was invalid and could not be deserialized: 'The deployment mode '%s' is not one of Incremental, Complete.'", p.Mode)
	case len(p.Template) == 0:
		return nil, bad("InvalidRequestContent", "The request content was invalid: a deployment has a template.")
	}
	out := &Plan{ID: id, Name: scope.Deployment, Tags: in.Tags, mode: "Incremental", scope: scope}
	out.IDsOnly = strings.EqualFold(p.WhatIfSettings.ResultFormat, "ResourceIdOnly")
	if out.template, err = template.Parse(p.Template); err != nil {
		return nil, asError(err)
	}
	if out.expanded, err = out.template.Expand(scope, p.Parameters); err != nil {
		return nil, asError(err)
	}
	out.places = map[string]string{}
	for _, r := range out.expanded.Resources {
		body, err := r.Body(nil)
		if err != nil {
			return nil, asError(err)
		}
		out.places[strings.ToLower(r.ID)] = strings.ToLower(strings.ReplaceAll(text(body, "location"), " ", ""))
	}
	return out, nil
}

func decode(data []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var v any
	err := d.Decode(&v)
	return v, err
}

// find returns the resource of the template with that id, nil if there is none.
func (p *Plan) find(id string) *template.Resource {
	for _, r := range p.expanded.Resources {
		if strings.EqualFold(r.ID, id) {
			return r
		}
	}
	return nil
}

// Template is what exportTemplate gives.
func (p *Plan) Template() any { return p.template.Export() }

// Validate checks the template's resources with ARM, as far as this is possible
// without a change; nil if ARM has no objection.
//
// The body of a resource that depends on others of the template can hold what does
// not exist yet, so only its type, API version, permission and registration count.
func (p *Plan) Validate(ctx context.Context, caller Caller) *Error {
	var details []*Error
	for _, r := range p.expanded.Resources {
		req := Request{Method: http.MethodPut, Path: r.ID + "?api-version=" + r.APIVersion, Body: []byte("{}"), Check: CheckAccess}
		if len(r.DependsOn) == 0 {
			body, err := r.Body(world{ctx, caller, p})
			if err != nil {
				details = append(details, asError(err))
				continue
			}
			if req.Body, err = json.Marshal(body); err != nil {
				return asError(err)
			}
			req.Check = CheckBody
		}
		out, err := caller.Do(ctx, req)
		if err != nil {
			return asError(err)
		}
		e := out.refusal()
		if e == nil {
			continue
		}
		if e.Code == "AuthorizationFailed" {
			e.Message = fmt.Sprintf("Authorization failed for template resource '%s' of type '%s'. %s", r.Name, r.Type, e.Message)
		}
		e.Target = cmp.Or(e.Target, r.ID)
		details = append(details, e)
	}
	if details == nil {
		return nil
	}
	return &Error{
		Status: http.StatusBadRequest, Code: "InvalidTemplateDeployment", Details: details,
		Message: fmt.Sprintf("The template deployment '%s' is not valid according to the validation procedure. See inner errors for details.", p.Name),
	}
}

// Validated is the answer to a validation without objection; a validation has a
// correlation id, and no time.
func (p *Plan) Validated(correlation string) map[string]any {
	props := p.properties()
	props["provisioningState"], props["timestamp"], props["duration"] = stateSucceeded, stamp(time.Time{}), "PT0S"
	props["correlationId"] = correlation
	props["validatedResources"] = ids(p.expanded.Resources)
	return p.envelope(props)
}

func ids(list []*template.Resource) []any {
	out := []any{}
	for _, r := range list {
		out = append(out, map[string]any{"id": r.ID})
	}
	return out
}

func (p *Plan) envelope(props map[string]any) map[string]any {
	out := map[string]any{"id": p.ID, "name": p.Name, "type": "Microsoft.Resources/deployments", "properties": props}
	if p.Tags != nil {
		out["tags"] = p.Tags
	}
	return out
}

// properties are those that do not change while a deployment runs.
func (p *Plan) properties() map[string]any {
	out := map[string]any{"mode": p.mode, "templateHash": strconv.FormatUint(p.template.Hash(), 10), "providers": p.providers(), "dependencies": p.dependencies()}
	if p.template.Declares("parameters") {
		out["parameters"] = p.expanded.Parameters
	}
	return out
}

// providers lists the types of the template's resources with their locations, in the
// order in which the template names them first.
func (p *Plan) providers() []any {
	out := []any{}
	find := func(list []any, key, value string) map[string]any {
		for _, item := range list {
			if strings.EqualFold(text(item, key), value) {
				return item.(map[string]any)
			}
		}
		return nil
	}
	for _, r := range p.expanded.Resources {
		namespace, name, _ := strings.Cut(r.Type, "/")
		provider := find(out, "namespace", namespace)
		if provider == nil {
			provider = map[string]any{"namespace": namespace, "resourceTypes": []any{}}
			out = append(out, provider)
		}
		types := provider["resourceTypes"].([]any)
		kind := find(types, "resourceType", name)
		if kind == nil {
			kind = map[string]any{"resourceType": name, "locations": []any{}}
			provider["resourceTypes"] = append(types, kind)
		}
		var place any // null for a resource without a location
		if at := p.places[strings.ToLower(r.ID)]; at != "" {
			place = at
		}
		if places := kind["locations"].([]any); !slices.Contains(places, place) {
			kind["locations"] = append(places, place)
		}
	}
	return out
}

// dependencies lists the resources that depend on others of the template.
func (p *Plan) dependencies() []any {
	out := []any{}
	for _, r := range p.expanded.Resources {
		on := []any{}
		for _, id := range r.DependsOn {
			if other := p.find(id); other != nil {
				on = append(on, target(other))
			}
		}
		if len(on) > 0 {
			entry := target(r)
			entry["dependsOn"] = on
			out = append(out, entry)
		}
	}
	return out
}

func target(r *template.Resource) map[string]any {
	return map[string]any{"id": r.ID, "resourceType": r.Type, "resourceName": r.Name}
}
