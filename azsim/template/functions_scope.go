package template

import (
	"strings"

	"github.com/google/uuid"
)

func scopeFunctions() map[string]function {
	return map[string]function{
		"resourcegroup": {0, 0, func(e evaluator, _ *arguments) any {
			tags := map[string]any{}
			for key, value := range e.scope.Tags {
				tags[key] = value
			}
			return map[string]any{
				"id": e.group(), "name": e.scope.Group, "type": "Microsoft.Resources/resourceGroups",
				"location": e.scope.Location, "tags": tags,
				"properties": map[string]any{"provisioningState": "Succeeded"},
			}
		}},
		"subscription": {0, 0, func(e evaluator, _ *arguments) any {
			return map[string]any{
				"id": "/subscriptions/" + e.scope.Subscription, "subscriptionId": e.scope.Subscription,
				"tenantId": e.scope.Tenant,
			}
		}},
		"environment": {0, 0, func(e evaluator, _ *arguments) any { return normalize(e.scope.Environment) }},
		"tenant":      {0, 0, func(e evaluator, _ *arguments) any { return map[string]any{"tenantId": e.scope.Tenant} }},
		"deployment": {0, 0, func(e evaluator, _ *arguments) any {
			return map[string]any{
				"name": e.scope.Deployment, "type": "Microsoft.Resources/deployments",
				"properties": map[string]any{"mode": "Incremental", "provisioningState": "Accepted"},
			}
		}},
		"tenantresourceid": {2, -1, func(_ evaluator, a *arguments) any { return providerID(a, "", a.strings(0)) }},
		"providers":        {1, 2, providers},
		"resourceid": {2, -1, func(e evaluator, a *arguments) any {
			args := a.strings(0)
			subscription, group := e.scope.Subscription, e.scope.Group
			// The type is the first with a slash; subscription and group may stand before it.
			at := 0
			for at < len(args) && at < 2 && !strings.Contains(args[at], "/") {
				at++
			}
			switch at {
			case 2:
				subscription, group = args[0], args[1]
			case 1:
				if _, err := uuid.Parse(args[0]); err == nil {
					subscription = args[0]
				} else {
					group = args[0]
				}
			}
			return providerID(a, "/subscriptions/"+subscription+"/resourceGroups/"+group, args[at:])
		}},
		"subscriptionresourceid": {2, -1, func(e evaluator, a *arguments) any {
			args, subscription := a.strings(0), e.scope.Subscription
			if a.err == nil && !strings.Contains(args[0], "/") {
				subscription, args = args[0], args[1:]
			}
			return providerID(a, "/subscriptions/"+subscription, args)
		}},
		"extensionresourceid": {3, -1, func(_ evaluator, a *arguments) any {
			return providerID(a, strings.TrimSuffix(a.string(0), "/"), a.strings(1))
		}},
		"reference": {1, 3, reference},
	}
}

// providers is providers(namespace, [type]).
func providers(e evaluator, a *arguments) any {
	var found map[string]any
	if e.scope.Provider != nil {
		known, _ := decode([]byte(toJSON(e.scope.Provider(a.string(0)))))
		found, _ = known.(map[string]any)
	}
	if found == nil {
		a.fail("the provider '%s' is not known", a.any(0))
		return nil
	}
	if a.len() == 1 {
		return found
	}
	types, _ := found["resourceTypes"].([]any)
	for _, t := range types {
		kind, _ := t.(map[string]any)
		if strings.EqualFold(text(kind["resourceType"]), a.string(1)) {
			return kind
		}
	}
	a.fail("the provider '%s' has no resource type '%s'", a.any(0), a.any(1))
	return nil
}

// group is the id of the deployment's resource group.
func (m *model) group() string {
	return "/subscriptions/" + m.scope.Subscription + "/resourceGroups/" + m.scope.Group
}

// providerID is SCOPE/providers/TYPE with NAMES between; args are the type and names.
func providerID(a *arguments, scope string, args []string) string {
	if len(args) == 0 || a.err != nil {
		a.fail("the resource type is missing")
		return ""
	}
	kind := strings.Trim(args[0], "/")
	path, ok := interleave(kind, args[1:])
	if !ok {
		a.fail("the type '%s' requires '%d' resource name argument(s)", kind, strings.Count(kind, "/"))
	}
	return scope + "/providers/" + path
}

// interleave makes NAMESPACE/type/name/type/name of a type and its names.
func interleave(kind string, names []string) (string, bool) {
	segments := strings.Split(kind, "/")
	if len(segments) < 2 || len(segments) != len(names)+1 {
		return "", false
	}
	path := segments[0]
	for i, name := range names {
		path += "/" + segments[i+1] + "/" + name
	}
	return path, true
}

// target resolves what reference and list functions name: an id, or a resource of the
// template. version is that of the template's resource.
func (e evaluator) target(a *arguments) (id, version string) {
	if !a.allowed(e, withRuntime) {
		return "", ""
	}
	name := a.string(0)
	found := e.index[key(name)]
	switch {
	case len(found) > 0:
		id, version = found[0].ID, found[0].APIVersion
	case strings.HasPrefix(name, "/"):
		id = name
	case strings.Count(name, "/") > 1:
		id = e.group() + "/providers/" + name
	case a.err == nil:
		a.err = refuse("The template reference '%s' is not valid: could not find template resource or resource copy with this name. Please see https://aka.ms/arm-function-reference for usage details.", name)
	}
	if a.err == nil && e.referred != nil {
		a.err = e.referred(id)
	}
	return id, version
}

// reference is reference(name or id, [version], ['Full']).
func reference(e evaluator, a *arguments) any {
	id, version := e.target(a)
	if a.len() > 1 && a.any(1) != nil {
		version = a.string(1)
	}
	full := a.len() > 2 && strings.EqualFold(a.string(2), "Full")
	if a.err == nil && version == "" {
		a.err = refuse("The template reference '%s' is not valid: the API version is required for a resource that is not in the template. Please see https://aka.ms/arm-function-reference for usage details.", id)
	}
	if a.err != nil || e.world == nil {
		return deferred{}
	}
	value, err := e.world.Reference(id, version, full)
	a.err = err
	return normalize(value)
}

// list is list*(name or id, version, [body]).
func list(e evaluator, a *arguments) any {
	id, _ := e.target(a)
	version := a.string(1)
	if a.err != nil || e.world == nil {
		return deferred{}
	}
	value, err := e.world.List(a.name, id, version, a.any(2))
	a.err = err
	return normalize(value)
}
