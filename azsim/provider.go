package azsim

import (
	"cmp"
	"net/http"
	"sort"
	"strings"
)

// A provider is a resource provider of the subscription.
type provider struct {
	namespace string
	types     []*resourceType
	state     string // "Registered", "NotRegistered", "Registering"
}

const registered = "Registered"

// newProviders finds the providers of the known types.
func newProviders(types map[string]*resourceType, unregistered []string) map[string]*provider {
	out := map[string]*provider{}
	get := func(ns string) *provider {
		p := out[strings.ToLower(ns)]
		if p == nil {
			p = &provider{namespace: ns, state: registered}
			out[strings.ToLower(ns)] = p
		}
		return p
	}
	for _, ns := range []string{"Microsoft.Authorization", "Microsoft.Compute", "Microsoft.ManagedIdentity", "Microsoft.Network", "Microsoft.Resources", "Microsoft.Storage"} {
		get(ns)
	}
	for _, t := range types {
		ns, _, _ := strings.Cut(t.name, "/")
		p := get(ns)
		p.types = append(p.types, t)
	}
	for _, p := range out {
		sort.Slice(p.types, func(i, j int) bool { return p.types[i].name < p.types[j].name })
	}
	for _, ns := range unregistered {
		get(ns).state = "NotRegistered"
	}
	return out
}

func (p *provider) body(s *Server) any {
	out := p.withTypes(s)
	out["id"] = "/subscriptions/" + s.Subscription + "/providers/" + p.namespace
	out["registrationState"], out["registrationPolicy"] = p.state, "RegistrationRequired"
	return out
}

// providerTypes is the template function providers; nil for an unknown namespace.
func (s *Server) providerTypes(namespace string) map[string]any {
	if p := s.providers[strings.ToLower(namespace)]; p != nil {
		return p.withTypes(s)
	}
	return nil
}

// withTypes is what of a provider never changes. It needs no lock.
func (p *provider) withTypes(s *Server) map[string]any {
	types := []any{}
	for _, t := range p.types {
		_, name, _ := strings.Cut(t.name, "/")
		versions := make([]string, 0, len(t.versions))
		for i := len(t.versions) - 1; i >= 0; i-- {
			versions = append(versions, t.versions[i])
		}
		typ := map[string]any{"resourceType": name, "locations": s.locationNames(), "apiVersions": versions, "capabilities": "None"}
		switch t.name {
		case machineType, setType, "Microsoft.Compute/disks":
			typ["zoneMappings"] = s.zoneMappings()
		}
		types = append(types, typ)
	}
	return map[string]any{"namespace": p.namespace, "resourceTypes": types}
}

// zoneMappings lists the regions that have zones, by display name as Azure does.
func (s *Server) zoneMappings() []any {
	out := []any{}
	for _, l := range s.Locations {
		if len(l.Zones) > 0 {
			out = append(out, map[string]any{"location": cmp.Or(l.DisplayName, l.Name), "zones": l.Zones})
		}
	}
	return out
}

func listProviders(c *call) (*reply, error) {
	names := make([]string, 0, len(c.s.providers))
	for k := range c.s.providers {
		names = append(names, k)
	}
	sort.Strings(names)
	items := make([]any, 0, len(names))
	for _, k := range names {
		items = append(items, c.s.providers[k].body(c.s))
	}
	return c.pageOf(items), nil
}

func (c *call) provider() (*provider, error) {
	p := c.s.providers[strings.ToLower(c.id.namespace)]
	if p == nil {
		return nil, refuse(http.StatusNotFound, "InvalidResourceNamespace", "The resource namespace '%s' is invalid.", c.id.namespace)
	}
	return p, nil
}

func getProvider(c *call) (*reply, error) {
	p, err := c.provider()
	if err != nil {
		return nil, err
	}
	return ok(p.body(c.s)), nil
}

func registerProvider(on bool) handler {
	return func(c *call) (*reply, error) {
		p, err := c.provider()
		if err != nil {
			return nil, err
		}
		switch {
		case !on:
			p.state = "NotRegistered"
		case p.state == "NotRegistered":
			p.state = "Registering"
			c.begin(nil, work{span: c.duration("provider.register"), done: func(*armError) { p.state = registered }})
		}
		return ok(p.body(c.s)), nil
	}
}

// needRegistered refuses writes to a provider that is not registered.
func (c *call) needRegistered() error {
	if c.rt == nil || c.r.Method == http.MethodGet {
		return nil
	}
	p := c.s.providers[strings.ToLower(c.id.namespace)]
	if p == nil || p.state == registered {
		return nil
	}
	e := refuse(http.StatusConflict, "MissingSubscriptionRegistration",
		"The subscription is not registered to use namespace '%s'. See https://aka.ms/rps-not-found for how to register subscriptions.", p.namespace)
	e.details = []*armError{{code: e.code, message: e.message, target: p.namespace}}
	return e
}
