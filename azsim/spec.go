package azsim

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// A Spec describes an Azure to begin with. Every field may be left out.
type Spec struct {
	Tenant        string     `json:"tenant,omitempty"`
	Subscription  string     `json:"subscription,omitempty"`
	ResourceGroup string     `json:"resourceGroup,omitempty"` // the first one
	Location      string     `json:"location,omitempty"`
	Locations     []Location `json:"locations,omitempty"`

	Principals   []Principal         `json:"principals,omitempty"`
	Unregistered []string            `json:"unregistered,omitempty"` // resource providers
	Profile      map[string]SpanSpec `json:"profile,omitempty"`
	Faults       []Fault             `json:"faults,omitempty"`

	// PublicAddresses is the range of public addresses, "127.77.0.0/24".
	PublicAddresses string `json:"publicAddresses,omitempty"`
	// TakenStorageAccounts is Server.TakenStorageAccounts.
	TakenStorageAccounts []string `json:"takenStorageAccounts,omitempty"`
	// RetiredOffers is Server.RetiredOffers.
	RetiredOffers bool `json:"retiredOffers,omitempty"`
	// Quota is Server.Quota.
	Quota map[string]int `json:"quota,omitempty"`
	// Budgets is Server.Budgets.
	Budgets bool `json:"budgets,omitempty"`
	// UserDataMakesCustom is Server.UserDataMakesCustom.
	UserDataMakesCustom bool `json:"userDataMakesCustom,omitempty"`
	// OwnKeys is Server.OwnKeys.
	OwnKeys bool `json:"ownKeys,omitempty"`

	Seed         uint64 `json:"seed,omitempty"`
	PageSize     int    `json:"pageSize,omitempty"`
	TokenSeconds int    `json:"tokenSeconds,omitempty"`

	// AttestationChain is Server.AttestationChain.
	AttestationChain bool `json:"attestationChain,omitempty"`

	ResourceGroups []GroupSpec `json:"resourceGroups,omitempty"`
	// Galleries are there with what is in them from the start.
	Galleries []GallerySpec `json:"galleries,omitempty"`
	// Resources are made in their order, before the scale sets.
	Resources []ResourceSpec `json:"resources,omitempty"`
	// ScaleSets are made last, in their order, with their instances.
	ScaleSets []ScaleSetSpec `json:"scaleSets,omitempty"`
}

// A SpanSpec is a Span, as Go writes durations: "90s".
type SpanSpec struct {
	Min string `json:"min"`
	Max string `json:"max,omitempty"` // "" is Min
}

// A GroupSpec is a resource group.
type GroupSpec struct {
	Name     string            `json:"name"`
	Location string            `json:"location,omitempty"` // "" is the server's
	Tags     map[string]string `json:"tags,omitempty"`
}

// A GallerySpec is a gallery with its image definitions.
type GallerySpec struct {
	Name          string         `json:"name"`
	ResourceGroup string         `json:"resourceGroup,omitempty"`
	Body          map[string]any `json:"body,omitempty"` // ARM's; location is filled in
	Images        []ImageSpec    `json:"images,omitempty"`
}

// An ImageSpec is an image definition.
type ImageSpec struct {
	Name string         `json:"name"`
	Body map[string]any `json:"body"` // ARM's; location is filled in
}

// A ResourceSpec is any resource by its ARM body.
type ResourceSpec struct {
	Type          string         `json:"type"` // "Microsoft.Compute/disks"
	Name          string         `json:"name"` // "d", or "gallery/image" for a nested type
	ResourceGroup string         `json:"resourceGroup,omitempty"`
	APIVersion    string         `json:"apiVersion,omitempty"` // "" is the newest
	Body          map[string]any `json:"body,omitempty"`
}

// A ScaleSetSpec is a scale set by its ARM body, a VirtualMachineScaleSet.
type ScaleSetSpec struct {
	Name          string         `json:"name"`
	ResourceGroup string         `json:"resourceGroup,omitempty"`
	APIVersion    string         `json:"apiVersion,omitempty"`
	Capacity      *int           `json:"capacity,omitempty"` // overrides sku.capacity
	Body          map[string]any `json:"body"`
}

// ParseSpec reads a Spec from YAML, strictly. Its error lists every problem.
func ParseSpec(data []byte) (*Spec, error) {
	text, err := yaml.YAMLToJSONStrict(data)
	if err != nil {
		return nil, fmt.Errorf("spec: %w", err)
	}
	var spec Spec
	strict, err := kjson.UnmarshalStrict(text, &spec)
	if err != nil {
		return nil, fmt.Errorf("spec: %w", err)
	}
	problems := strict
	problems = append(problems, spec.check()...)
	if len(problems) > 0 {
		return nil, fmt.Errorf("spec: %w", errors.Join(problems...))
	}
	return &spec, nil
}

// check finds what decoding cannot.
func (spec *Spec) check() []error {
	var out []error
	bad := func(format string, args ...any) { out = append(out, fmt.Errorf(format, args...)) }
	for i, l := range spec.Locations {
		if l.Name == "" {
			bad("locations[%d]: name is missing", i)
		}
	}
	if spec.Location != "" && len(spec.Locations) > 0 &&
		!slices.ContainsFunc(spec.Locations, func(l Location) bool { return normLocation(l.Name) == normLocation(spec.Location) }) {
		bad("location %q is not among locations", spec.Location)
	}
	for i, p := range spec.Principals {
		if p.ClientID == "" {
			bad("principals[%d]: clientId is missing", i)
		}
		for j, g := range p.Roles {
			known := slices.ContainsFunc(builtinRoles(), func(r *role) bool { return strings.EqualFold(r.name, g.Role) })
			if !known && len(g.Actions) == 0 {
				bad("principals[%d].roles[%d]: role %q is not built in (Owner, Contributor, Reader) and has no actions", i, j, g.Role)
			}
		}
	}
	if _, err := spec.spans(); err != nil {
		out = append(out, err)
	}
	for _, f := range spec.Faults {
		if err := f.compile(); err != nil {
			out = append(out, err)
		}
	}
	for i, g := range spec.ResourceGroups {
		if g.Name == "" {
			bad("resourceGroups[%d]: name is missing", i)
		}
	}
	for i, g := range spec.Galleries {
		if g.Name == "" {
			bad("galleries[%d]: name is missing", i)
		}
	}
	for i, r := range spec.Resources {
		if strings.Count(r.Type, "/") != strings.Count(r.Name, "/")+1 || r.Name == "" {
			bad("resources[%d]: type %q and name %q do not fit: want NAMESPACE/TYPE with NAME, NAMESPACE/TYPE/TYPE with NAME/NAME", i, r.Type, r.Name)
		}
	}
	for i, v := range spec.ScaleSets {
		if v.Name == "" {
			bad("scaleSets[%d]: name is missing", i)
		}
		if v.Capacity != nil && *v.Capacity < 0 {
			bad("scaleSets[%d]: capacity %d is negative", i, *v.Capacity)
		}
	}
	if p, err := netip.ParsePrefix(spec.PublicAddresses); spec.PublicAddresses != "" && (err != nil || !p.Addr().Is4()) {
		bad("publicAddresses %q is no IPv4 prefix such as 127.77.0.0/24", spec.PublicAddresses)
	}
	for _, name := range sortedKeys(spec.Quota) {
		if !slices.Contains(quotaNames(), name) || spec.Quota[name] < 0 {
			bad("quota: %s: %d: want 0 or more for one of %s", name, spec.Quota[name], strings.Join(quotaNames(), ", "))
		}
	}
	if spec.PageSize < 0 || spec.TokenSeconds < 0 {
		bad("pageSize and tokenSeconds cannot be negative")
	}
	return out
}

func (spec *Spec) spans() (Profile, error) {
	out := Profile{}
	var problems []error
	for _, k := range sortedKeys(spec.Profile) {
		v := spec.Profile[k]
		v.Max = cmp.Or(v.Max, v.Min)
		low, err1 := time.ParseDuration(v.Min)
		high, err2 := time.ParseDuration(v.Max)
		if _, known := DefaultProfile()[k]; !known {
			problems = append(problems, fmt.Errorf("profile: %q is not an operation; there are %s", k, strings.Join(sortedKeys(DefaultProfile()), ", ")))
		} else if err := errors.Join(err1, err2); err != nil {
			problems = append(problems, fmt.Errorf("profile: %s: %w", k, err))
		} else if low < 0 || high < low {
			problems = append(problems, fmt.Errorf("profile: %s: want 0 ≤ min ≤ max", k))
		}
		out[k] = Span{low, high}
	}
	return out, errors.Join(problems...)
}

// Apply sets the server's fields as the spec has them. It comes before the first
// request; Create makes the resources.
func (spec *Spec) Apply(s *Server) error {
	spans, err := spec.spans()
	if err != nil {
		return err
	}
	set := func(field *string, value string) {
		if value != "" {
			*field = value
		}
	}
	set(&s.Tenant, spec.Tenant)
	set(&s.Subscription, spec.Subscription)
	set(&s.ResourceGroup, spec.ResourceGroup)
	set(&s.Location, spec.Location)
	if len(spec.Locations) > 0 {
		s.Locations = spec.Locations
	}
	if len(spec.Principals) > 0 {
		s.Principals = spec.Principals
	}
	s.Unregistered = append(s.Unregistered, spec.Unregistered...)
	s.Faults = append(s.Faults, spec.Faults...)
	if len(spans) > 0 {
		s.Profile = spans
	}
	if p, err := netip.ParsePrefix(spec.PublicAddresses); err == nil { // checked
		s.PublicAddresses = p
	}
	s.TakenStorageAccounts = append(s.TakenStorageAccounts, spec.TakenStorageAccounts...)
	s.RetiredOffers = s.RetiredOffers || spec.RetiredOffers
	if spec.Quota != nil {
		s.Quota = spec.Quota
	}
	s.Budgets = s.Budgets || spec.Budgets
	s.UserDataMakesCustom = s.UserDataMakesCustom || spec.UserDataMakesCustom
	s.OwnKeys = s.OwnKeys || spec.OwnKeys
	s.AttestationChain = s.AttestationChain || spec.AttestationChain
	if spec.Seed != 0 {
		s.Seed = spec.Seed
	}
	if spec.PageSize != 0 {
		s.PageSize = spec.PageSize
	}
	if spec.TokenSeconds != 0 {
		s.TokenLife = time.Duration(spec.TokenSeconds) * time.Second
	}
	return nil
}

// Create makes the spec's groups and resources and waits until they are there.
// It takes the Substrate's time, but none of Azure's; faults do not concern it.
func (s *Server) Create(ctx context.Context, spec *Spec) error {
	s.init()
	s.mu.Lock()
	was := s.instant
	s.instant = true
	for _, g := range spec.ResourceGroups {
		id := resourceID{subscription: s.Subscription, group: g.Name}
		if s.find(id) == nil {
			where := cmp.Or(g.Location, s.Location)
			s.putGroup(g.Name, where, g.Tags)
		}
	}
	s.mu.Unlock()
	defer func() {
		s.Instant(was)
	}()
	var problems []error
	for _, r := range spec.list() {
		if err := s.create(ctx, r); err != nil {
			problems = append(problems, fmt.Errorf("create %s %s: %w", r.Type, r.Name, err))
		}
	}
	return errors.Join(problems...)
}

// list is everything to make, in order, as plain resources.
func (spec *Spec) list() []ResourceSpec {
	var out []ResourceSpec
	for _, g := range spec.Galleries {
		out = append(out, ResourceSpec{Type: "Microsoft.Compute/galleries", Name: g.Name, ResourceGroup: g.ResourceGroup, Body: g.Body})
		for _, i := range g.Images {
			out = append(out, ResourceSpec{Type: "Microsoft.Compute/galleries/images", Name: g.Name + "/" + i.Name, ResourceGroup: g.ResourceGroup, Body: i.Body})
		}
	}
	out = append(out, spec.Resources...)
	for _, v := range spec.ScaleSets {
		body := v.Body
		if v.Capacity != nil {
			body, _ = mergePatch(v.Body, map[string]any{"sku": map[string]any{"capacity": *v.Capacity}}, false).(map[string]any)
		}
		out = append(out, ResourceSpec{Type: "Microsoft.Compute/virtualMachineScaleSets", Name: v.Name, ResourceGroup: v.ResourceGroup, APIVersion: v.APIVersion, Body: body})
	}
	return out
}

// create makes one resource by the same handler that a client's PUT meets.
func (s *Server) create(ctx context.Context, r ResourceSpec) error {
	s.mu.Lock()
	rt := s.types[strings.ToLower(r.Type)]
	s.mu.Unlock()
	if rt == nil || rt.put == nil {
		return fmt.Errorf("the type %q is not simulated", r.Type)
	}
	r.ResourceGroup = cmp.Or(r.ResourceGroup, s.ResourceGroup)
	if r.APIVersion == "" {
		r.APIVersion = rt.versions[len(rt.versions)-1]
	}
	body := map[string]any{"location": s.Location}
	for k, v := range r.Body {
		body[k] = v
	}
	data, err := json.Marshal(body)
	if err != nil {
		return err
	}
	id := resourceID{subscription: s.Subscription, group: r.ResourceGroup, namespace: strings.Split(rt.name, "/")[0]}
	names := strings.Split(r.Name, "/")
	for i, t := range strings.Split(rt.name, "/")[1:] {
		id = id.child(t, names[i])
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, InProcess+id.String()+"?api-version="+r.APIVersion, bytes.NewReader(data))
	if err != nil {
		return err
	}
	s.mu.Lock()
	c := &call{s: s, r: req, body: data, now: time.Now(), principal: root(s)}
	err = c.route()
	var rep *reply
	if err == nil {
		rep, err = c.handle(nil)
	}
	s.mu.Unlock()
	if err != nil {
		return err
	}
	if rep.later != nil {
		rep, err = rep.later(ctx)
	}
	if err != nil || rep.op == nil {
		return err
	}
	select {
	case <-rep.op.ended:
	case <-ctx.Done():
		return ctx.Err()
	case <-s.ctx.Done():
		return errors.New("the server was closed")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if rep.op.failure != nil {
		return rep.op.failure
	}
	return nil
}

// root is who makes the resources of a Spec.
func root(s *Server) *principal {
	all := &role{name: "root", actions: []string{"*"}}
	return &principal{grants: []*assignment{{role: all, scope: strings.ToLower("/subscriptions/" + s.Subscription)}}}
}
