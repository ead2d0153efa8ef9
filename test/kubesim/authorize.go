package kubesim

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// A Grant lets a user do something: in one namespace, or for "" in all of them
// and to what is in none.
type Grant struct {
	Namespace string
	rbacv1.PolicyRule
}

// Administrator lets a user do everything.
func Administrator() Grant {
	all := []string{"*"}
	return Grant{PolicyRule: rbacv1.PolicyRule{Verbs: all, APIGroups: all, Resources: all}}
}

// Grants takes rules by namespace, as Roles and ClusterRoles hold them.
func Grants(rules map[string][]rbacv1.PolicyRule) []Grant {
	var out []Grant
	for _, namespace := range slices.Sorted(maps.Keys(rules)) {
		for _, rule := range rules[namespace] {
			out = append(out, Grant{Namespace: namespace, PolicyRule: rule})
		}
	}
	return out
}

func (g Grant) allows(r Request) bool {
	resource := r.Resource
	if r.Subresource != "" {
		resource += "/" + r.Subresource
	}
	has := func(list []string, value string) bool {
		return slices.Contains(list, value) || slices.Contains(list, "*")
	}
	return (g.Namespace == "" || g.Namespace == r.Namespace) && has(g.Verbs, r.Verb) && has(g.APIGroups, r.Group) &&
		(has(g.Resources, resource) || r.Subresource != "" && slices.Contains(g.Resources, "*/"+r.Subresource)) &&
		(len(g.ResourceNames) == 0 || slices.Contains(g.ResourceNames, r.Name))
}

func (s *Server) allowed(r Request, groups []string) bool {
	if s.Users == nil && s.Groups == nil {
		return true
	}
	grants, known := s.Users[r.User]
	for _, group := range groups {
		more, of := s.Groups[group]
		grants, known = append(slices.Clip(grants), more...), known || of
	}
	switch r.Path {
	case "":
	case "/version", "/healthz", "/livez", "/readyz":
		return true // as Kubernetes' own role system:public-info-viewer has it
	default:
		return known // as Kubernetes' own role system:discovery has it
	}
	return slices.ContainsFunc(grants, func(g Grant) bool { return g.allows(r) })
}

// authorize refuses what the user may not, in RBAC's words.
func (s *Server) authorize(c *call) error {
	if s.allowed(c.Request, c.groups) {
		return nil
	}
	if c.Path != "" {
		return apierrors.NewForbidden(schema.GroupResource{}, "", words("User %q cannot %s path %q", c.User, c.Verb, c.Path))
	}
	resource := c.Resource
	if c.Subresource != "" {
		resource += "/" + c.Subresource
	}
	where := "at the cluster scope"
	if c.Namespace != "" {
		where = fmt.Sprintf("in the namespace %q", c.Namespace)
	}
	return c.forbidden(c.Name, "User %q cannot %s resource %q in API group %q %s", c.User, c.Verb, resource, c.Group, where)
}

func (c *call) forbidden(name, format string, values ...any) error {
	return apierrors.NewForbidden(schema.GroupResource{Group: c.Group, Resource: c.Resource}, name, words(format, values...))
}

// review answers a user who asks what he may do.
func (s *Server) review(c *call) (answer, error) {
	if c.Resource != "selfsubjectaccessreviews" || c.Verb != "create" || c.version != "v1" {
		return answer{}, c.notServed()
	}
	var review authorizationv1.SelfSubjectAccessReview
	if err := decode(c.header.Get("Content-Type"), c.body, &review); err != nil {
		return answer{}, err
	}
	asked := Request{User: c.User}
	switch a, path := review.Spec.ResourceAttributes, review.Spec.NonResourceAttributes; {
	case a != nil:
		asked.Verb, asked.Group, asked.Resource, asked.Subresource, asked.Namespace, asked.Name = a.Verb, a.Group, a.Resource, a.Subresource, a.Namespace, a.Name
	case path != nil:
		asked.Verb, asked.Path = path.Verb, path.Path
	default:
		return answer{}, errors.New("a review needs attributes of a resource or of a path")
	}
	review.Status = authorizationv1.SubjectAccessReviewStatus{Allowed: s.allowed(asked, c.groups)}
	return said(c.accept, http.StatusCreated, authorizationv1.SchemeGroupVersion.WithKind("SelfSubjectAccessReview"), &review), nil
}
