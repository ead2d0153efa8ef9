package azsim

import (
	"net/http"
	"slices"
	"strings"
	"time"
)

// authorizationTypes lists the extension types that answer after roles and
// permissions, at any scope.
func authorizationTypes() []*resourceType {
	versions := []string{"2015-07-01", "2018-01-01-preview", "2018-07-01", "2018-09-01-preview", "2020-04-01-preview", "2020-10-01-preview", "2022-04-01", "2022-05-01-preview"}
	return []*resourceType{
		{name: "Microsoft.Authorization/permissions", versions: versions, list: listPermissions},
		{name: "Microsoft.Authorization/roleDefinitions", versions: versions, list: listRoleDefinitions, get: getRoleDefinition, put: putRoleDefinition, remove: removeRoleDefinition},
		{name: "Microsoft.Authorization/roleAssignments", versions: versions, list: listRoleAssignments, get: getRoleAssignment,
			put: putRoleAssignment, remove: removeRoleAssignment},
	}
}

// listPermissions answers what the caller may do at the scope: the roles that
// authorize itself asks.
func listPermissions(c *call) (*reply, error) {
	items := []any{}
	for _, a := range c.principal.grants {
		if a.covers(strings.ToLower(c.id.root())) {
			items = append(items, a.role.permissions())
		}
	}
	return c.pageOf(items), nil
}

func (r *role) permissions() map[string]any {
	empty := []string{}
	orEmpty := func(l []string) []string {
		if l == nil {
			return empty
		}
		return l
	}
	return map[string]any{"actions": orEmpty(r.actions), "notActions": orEmpty(r.notActions), "dataActions": empty, "notDataActions": empty}
}

func (r *role) path(s *Server) string {
	return "/subscriptions/" + s.Subscription + "/providers/Microsoft.Authorization/roleDefinitions/" + r.id
}

func (r *role) body(s *Server) any {
	kind, scopes := "CustomRole", r.scopes
	if r.builtin {
		kind, scopes = "BuiltInRole", []string{"/"}
	} else if scopes == nil {
		scopes = []string{"/subscriptions/" + s.Subscription}
	}
	created, updated := r.created, r.updated
	if created.IsZero() {
		created, updated = builtinCreated, builtinUpdated
	}
	return map[string]any{
		"id": r.path(s), "name": r.id, "type": "Microsoft.Authorization/roleDefinitions",
		"properties": map[string]any{
			"roleName": r.name, "type": kind, "description": r.description, "assignableScopes": scopes, "permissions": []any{r.permissions()},
			"createdOn": azureTime(created), "updatedOn": azureTime(updated), "createdBy": orNull(r.createdBy), "updatedBy": orNull(r.updatedBy),
		},
	}
}

// When Azure made most of its built-in roles, and changed them last (recorded in 2023).
var (
	builtinCreated = time.Date(2015, 2, 2, 21, 55, 9, 880642300, time.UTC)
	builtinUpdated = time.Date(2021, 11, 11, 20, 13, 47, 862868400, time.UTC)
)

// orNull is a string for JSON, null for "".
func orNull(s string) any {
	if s == "" {
		return nil
	}
	return s
}

func listRoleDefinitions(c *call) (*reply, error) {
	filter := c.query("$filter")
	name, kind := filterValue(filter, "roleName"), filterValue(filter, "type")
	items := []any{}
	for _, r := range c.s.roles {
		if (name == "" || strings.EqualFold(r.name, name)) && (kind == "" || strings.EqualFold(kind, "BuiltInRole") == r.builtin) {
			items = append(items, r.body(c.s))
		}
	}
	return c.pageOf(items), nil
}

func (s *Server) roleAt(guid string) *role {
	for _, r := range s.roles {
		if strings.EqualFold(r.id, guid) {
			return r
		}
	}
	return nil
}

// putRoleDefinition makes a custom role, or changes one: that takes effect at once.
func putRoleDefinition(c *call) (*reply, error) {
	in, err := decode[struct {
		ID         string `json:"id,omitempty"`
		Name       string `json:"name,omitempty"`
		Type       string `json:"type,omitempty"`
		Properties struct {
			RoleName         string   `json:"roleName"`
			Type             string   `json:"type,omitempty"`
			Description      string   `json:"description,omitempty"`
			AssignableScopes []string `json:"assignableScopes"`
			Permissions      []struct {
				Actions        []string `json:"actions"`
				NotActions     []string `json:"notActions"`
				DataActions    []string `json:"dataActions"`
				NotDataActions []string `json:"notDataActions"`
			} `json:"permissions"`
		} `json:"properties"`
	}](c)
	if err != nil {
		return nil, err
	}
	p := in.Properties
	if p.RoleName == "" || len(p.AssignableScopes) == 0 || len(p.Permissions) == 0 {
		return nil, badRequest("BadRequestFormat", "The request was incorrectly formatted: properties.roleName, assignableScopes and permissions are needed.")
	}
	r := c.s.roleAt(c.id.name())
	for _, other := range c.s.roles {
		if other != r && strings.EqualFold(other.name, p.RoleName) {
			return nil, refuse(http.StatusConflict, "RoleDefinitionWithSameNameExists", "A custom role with the same name already exists in this directory. Use a different name.")
		}
	}
	status := http.StatusCreated // also for a change, as Azure answers
	if r == nil {
		r = &role{id: c.id.name(), created: c.now, createdBy: c.principal.ObjectID}
		c.s.roles = append(c.s.roles, r)
	} else if r.builtin {
		return nil, refuse(http.StatusForbidden, "RoleDefinitionUpdateNotPermitted", "The built-in role '%s' cannot be changed.", r.name)
	}
	r.name, r.description, r.scopes, r.actions, r.notActions = p.RoleName, p.Description, p.AssignableScopes, nil, nil
	r.updated, r.updatedBy = c.now, c.principal.ObjectID
	for _, one := range p.Permissions {
		r.actions, r.notActions = append(r.actions, one.Actions...), append(r.notActions, one.NotActions...)
	}
	return &reply{status: status, body: r.body(c.s)}, nil
}

func removeRoleDefinition(c *call) (*reply, error) {
	r := c.s.roleAt(c.id.name())
	if r == nil {
		return &reply{status: http.StatusNoContent}, nil
	}
	if r.builtin {
		return nil, refuse(http.StatusForbidden, "RoleDefinitionDeleteNotPermitted", "The built-in role '%s' cannot be deleted.", r.name)
	}
	for _, p := range c.s.principals {
		if slices.ContainsFunc(p.grants, func(a *assignment) bool { return a.role == r }) {
			return nil, badRequest("RoleDefinitionHasAssignments", "There are existing role assignments referencing role (code: %s). Remove them first.", r.id)
		}
	}
	c.s.roles = slices.DeleteFunc(c.s.roles, func(x *role) bool { return x == r })
	return ok(r.body(c.s)), nil
}

func getRoleDefinition(c *call) (*reply, error) {
	if r := c.s.roleAt(c.id.name()); r != nil {
		return ok(r.body(c.s)), nil
	}
	return nil, refuse(http.StatusNotFound, "RoleDefinitionDoesNotExist", "The specified role definition with ID '%s' does not exist.", c.id.name())
}

func (a *assignment) body(s *Server, p *principal) any {
	props := map[string]any{
		"roleDefinitionId": a.role.path(s), "principalId": p.ObjectID, "principalType": "ServicePrincipal", "scope": a.shown,
		"createdOn": azureTime(a.created), "updatedOn": azureTime(a.updated), "createdBy": orNull(a.createdBy), "updatedBy": orNull(a.updatedBy),
	}
	for _, k := range []string{"condition", "conditionVersion", "delegatedManagedIdentityResourceId", "description"} {
		props[k] = a.given[k]
	}
	if kind := text(a.given, "principalType"); kind != "" {
		props["principalType"] = kind
	}
	return map[string]any{
		"id": a.shown + "/providers/Microsoft.Authorization/roleAssignments/" + a.id, "name": a.id,
		"type": "Microsoft.Authorization/roleAssignments", "properties": props,
	}
}

// listRoleAssignments lists what holds at the scope and, unless $filter asks for
// atScope(), below it.
func listRoleAssignments(c *call) (*reply, error) {
	filter := strings.ToLower(c.query("$filter"))
	scope := strings.ToLower(c.id.root())
	items := []any{}
	for _, p := range c.s.principals {
		oid := strings.ToLower(p.ObjectID)
		if (strings.Contains(filter, "principalid eq") || strings.Contains(filter, "assignedto(")) && !strings.Contains(filter, "'"+oid+"'") {
			continue
		}
		for _, a := range p.grants {
			below := strings.HasPrefix(a.scope, scope+"/")
			if a.covers(scope) || below && !strings.Contains(filter, "atscope()") {
				items = append(items, a.body(c.s, p))
			}
		}
	}
	return c.pageOf(items), nil
}

func (c *call) roleAssignment() (*principal, int) {
	for _, p := range c.s.principals {
		if i := slices.IndexFunc(p.grants, func(a *assignment) bool { return strings.EqualFold(a.id, c.id.name()) }); i >= 0 {
			return p, i
		}
	}
	return nil, 0
}

func getRoleAssignment(c *call) (*reply, error) {
	p, i := c.roleAssignment()
	if p == nil {
		return nil, refuse(http.StatusNotFound, "RoleAssignmentNotFound", "The role assignment '%s' is not found.", c.id.name())
	}
	return ok(p.grants[i].body(c.s, p)), nil
}

func putRoleAssignment(c *call) (*reply, error) {
	in, err := c.tree() // Azure takes members that it does not know, such as displayName
	if err != nil {
		return nil, err
	}
	principal, definition := text(in, "properties", "principalId"), text(in, "properties", "roleDefinitionId")
	p := c.s.principalOf(principal)
	if p == nil {
		return nil, badRequest("PrincipalNotFound", "Principal %s does not exist in the directory %s.", principal, c.s.Tenant)
	}
	guid := definition[strings.LastIndexByte(definition, '/')+1:]
	i := slices.IndexFunc(c.s.roles, func(r *role) bool { return strings.EqualFold(r.id, guid) })
	if i < 0 {
		return nil, badRequest("RoleDefinitionDoesNotExist", "The specified role definition with ID '%s' does not exist.", guid)
	}
	scope := strings.ToLower(c.id.root())
	if was, n := c.roleAssignment(); was != nil {
		if was != p || was.grants[n].role != c.s.roles[i] || was.grants[n].scope != scope {
			return nil, badRequest("RoleAssignmentUpdateNotPermitted", "Tenant ID, application ID, principal ID, and scope are not allowed to be updated.")
		}
		a := was.grants[n]
		a.given, _ = in["properties"].(object)
		a.updated, a.updatedBy = c.now, c.principal.ObjectID
		return ok(a.body(c.s, was)), nil
	}
	for _, a := range p.grants {
		if a.role == c.s.roles[i] && a.scope == scope {
			return nil, refuse(http.StatusConflict, "RoleAssignmentExists", "The role assignment already exists. The ID of the existing role assignment is %s.", strings.ReplaceAll(a.id, "-", ""))
		}
	}
	a := &assignment{id: c.id.name(), role: c.s.roles[i], shown: c.id.root(), scope: scope, created: c.now, updated: c.now, updatedBy: c.principal.ObjectID}
	a.given, _ = in["properties"].(object)
	p.grants = append(p.grants, a)
	body := a.body(c.s, p)
	a.createdBy = a.updatedBy // the first answer does not say it
	return &reply{status: http.StatusCreated, body: body}, nil
}

func removeRoleAssignment(c *call) (*reply, error) {
	p, i := c.roleAssignment()
	if p == nil {
		return &reply{status: http.StatusNoContent}, nil
	}
	body := p.grants[i].body(c.s, p)
	p.grants = slices.Delete(p.grants, i, i+1)
	return ok(body), nil
}
