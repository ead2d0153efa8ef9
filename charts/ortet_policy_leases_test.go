//go:build e2e

package charts

import (
	"context"
	"fmt"
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ortet/ortet/test/controlplane"
)

// Of its namespace's Leases the admission server sweeps spent nonces and no others, by
// whichever request, and makes no hold on a pool, though RBAC would let it.
func TestPolicyNarrowsLeases(t *testing.T) {
	ctx := t.Context()
	admin := client(t, controlplane.Client{})
	_, err := admin.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ortet-system"}}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	install(t, admin, "--set", "admission.policy.enabled=false")
	account := controlplane.Client{User: "system:serviceaccount:ortet-system:r-admission", Groups: []string{"system:serviceaccounts"}}
	subject := []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: account.User}}
	_, err = admin.RbacV1().Roles("ortet-system").Create(ctx, &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "narrow"},
		Rules: []rbacv1.PolicyRule{{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"create", "delete", "deletecollection"}}}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = admin.RbacV1().RoleBindings("ortet-system").Create(ctx, &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "narrow"}, Subjects: subject,
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "narrow"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	all, server := admin.CoordinationV1().Leases("ortet-system"), client(t, account).CoordinationV1().Leases("ortet-system")
	lease := func(name, purpose string) *coordinationv1.Lease {
		return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"ortet.io/purpose": purpose}}}
	}
	there := func() string {
		t.Helper()
		list, err := all.List(ctx, metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, l := range list.Items {
			names = append(names, l.Name)
		}
		return strings.Join(names, " ")
	}
	for _, l := range []*coordinationv1.Lease{lease("pool-1", "lease"), lease("pool-2", "nonce"), lease("nonce-3", "lease")} {
		if _, err := all.Create(ctx, l, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = all.Delete(context.WithoutCancel(ctx), l.Name, metav1.DeleteOptions{}) })
	}
	refused := func(what string, do func() error) {
		t.Helper()
		eventually(t, what, func() error {
			if err := do(); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "with others it has nothing to do") {
				return fmt.Errorf("not refused by the policy: %w", err)
			}
			return nil
		})
	}
	refused("a hold on a pool", func() error {
		_, err := server.Create(ctx, lease("pool-4", "lease"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	})
	for _, l := range []*coordinationv1.Lease{lease("nonce-aa", "nonce"), lease("nonce-bb", "nonce"), {ObjectMeta: metav1.ObjectMeta{Name: "ortet-admission"}}} {
		if _, err := server.Create(ctx, l, metav1.CreateOptions{}); err != nil {
			t.Errorf("its own %s: %v", l.Name, err)
		}
	}
	t.Cleanup(func() { _ = all.Delete(context.WithoutCancel(ctx), "ortet-admission", metav1.DeleteOptions{}) })
	// The sweep, as the server does it, but for the label that pool-2 has.
	sweep := metav1.ListOptions{LabelSelector: "ortet.io/purpose=nonce", FieldSelector: "metadata.name!=pool-2"}
	if err := server.DeleteCollection(ctx, metav1.DeleteOptions{}, sweep); err != nil {
		t.Errorf("the sweep: %v", err)
	}
	const others = "nonce-3 ortet-admission pool-1 pool-2"
	if got := there(); got != others {
		t.Errorf("after the sweep: %s", got)
	}
	for _, name := range strings.Fields(others) {
		refused("deleting "+name, func() error { return server.Delete(ctx, name, metav1.DeleteOptions{}) })
		refused("deleting all that are "+name, func() error {
			return server.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{FieldSelector: "metadata.name=" + name})
		})
	}
	refused("deleting all", func() error {
		return server.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
	})
	if got := there(); got != others {
		t.Errorf("at the end: %s", got)
	}
	// Another's Leases are not its own business.
	if _, err := all.Create(ctx, lease("pool-5", "lease"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
		t.Errorf("an administrator: %v", err)
	}
}
