package controlplane

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// Run starts a control plane of the test's own and stops it at the test's end. It fills
// in where the control plane is and its binary.
func Run(t testing.TB, c Config) *ControlPlane {
	t.Helper()
	binary, err := Binary(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	c.Dir, c.Binary = filepath.Join(t.TempDir(), "controlplane"), binary
	cp, err := Start(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 30*time.Second)
		defer cancel()
		if err := errors.Join(cp.Failed(), cp.Stop(ctx)); err != nil {
			t.Error(err)
		}
	})
	return cp
}

// Admin returns the administrator's client.
func (cp *ControlPlane) Admin(t testing.TB) kubernetes.Interface {
	t.Helper()
	config, err := cp.RESTConfig()
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// Grant lets a new user do what the rules say and nothing else; they are by namespace,
// "" being the whole cluster. It returns when all of it counts: the API server learns of
// roles and of their bindings by watches of its own, a moment after they were made.
func (cp *ControlPlane) Grant(ctx context.Context, t testing.TB, user string, rules map[string][]rbacv1.PolicyRule) *rest.Config {
	t.Helper()
	client := cp.Admin(t)
	rbac, options := client.RbacV1(), metav1.CreateOptions{}
	subjects := []rbacv1.Subject{{Kind: rbacv1.UserKind, Name: user, APIGroup: rbacv1.GroupName}}
	for namespace, policy := range rules {
		meta, ref := metav1.ObjectMeta{Name: user, Namespace: namespace}, rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: user}
		var made, bound error
		if namespace == "" {
			ref.Kind = "ClusterRole"
			_, made = rbac.ClusterRoles().Create(ctx, &rbacv1.ClusterRole{ObjectMeta: meta, Rules: policy}, options)
			_, bound = rbac.ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{ObjectMeta: meta, Subjects: subjects, RoleRef: ref}, options)
		} else {
			_, made = rbac.Roles(namespace).Create(ctx, &rbacv1.Role{ObjectMeta: meta, Rules: policy}, options)
			_, bound = rbac.RoleBindings(namespace).Create(ctx, &rbacv1.RoleBinding{ObjectMeta: meta, Subjects: subjects, RoleRef: ref}, options)
		}
		if err := errors.Join(made, bound, awaitAccess(ctx, client, user, namespace, policy)); err != nil {
			t.Fatal(err)
		}
	}
	config, err := cp.RESTConfigFor(Client{User: user})
	if err != nil {
		t.Fatal(err)
	}
	return config
}

// awaitAccess returns when the user may do all that the rules say.
func awaitAccess(ctx context.Context, client kubernetes.Interface, user, namespace string, rules []rbacv1.PolicyRule) error {
	for _, r := range rules {
		resource, sub, _ := strings.Cut(r.Resources[0], "/")
		for _, verb := range r.Verbs {
			for _, name := range append(slices.Clone(r.ResourceNames), "")[:max(len(r.ResourceNames), 1)] {
				wanted := authorizationv1.ResourceAttributes{Namespace: namespace, Verb: verb, Group: r.APIGroups[0], Resource: resource, Subresource: sub, Name: name}
				for allowed := false; !allowed; {
					review, err := client.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
						Spec: authorizationv1.SubjectAccessReviewSpec{User: user, ResourceAttributes: &wanted},
					}, metav1.CreateOptions{})
					if err != nil {
						return fmt.Errorf("await that %s may do %+v: %w", user, wanted, err)
					}
					if allowed = review.Status.Allowed; !allowed {
						time.Sleep(20 * time.Millisecond)
					}
				}
			}
		}
	}
	return nil
}
