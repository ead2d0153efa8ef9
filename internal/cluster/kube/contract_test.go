package kube_test

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/ortet/ortet/internal/cluster"
	"github.com/ortet/ortet/internal/cluster/clustertest"
	"github.com/ortet/ortet/internal/cluster/kube"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/journal"
	"github.com/ortet/ortet/internal/journal/journaltest"
	"github.com/ortet/ortet/test/controlplane"
)

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		os.Exit(child())
	}
	os.Exit(controlplane.Main(m))
}

// cp gives the administrator's configuration and client.
func cp(t testing.TB) (*rest.Config, kubernetes.Interface) {
	t.Helper()
	config, err := controlplane.Shared(t).RESTConfig()
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return config, client
}

// makeNamespace makes Ortet's namespace, named for the test.
func makeNamespace(t testing.TB, admin kubernetes.Interface, name string) {
	t.Helper()
	_, err := admin.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	for t.Context().Err() == nil {
		if _, err := admin.CoreV1().ServiceAccounts(name).Get(t.Context(), "default", metav1.GetOptions{}); err == nil {
			return
		}
		<-time.After(50 * time.Millisecond)
	}
}

// user gives a user's configuration who may do what the rules say, and nothing
// else.
func user(t testing.TB, admin kubernetes.Interface, name string, rules []kube.Rule) *rest.Config {
	t.Helper()
	subject := []rbacv1.Subject{{Kind: "User", Name: name, APIGroup: rbacv1.GroupName}}
	ctx := t.Context()
	for namespace, policy := range kube.PolicyRules(rules) {
		meta := metav1.ObjectMeta{Name: name, Namespace: namespace}
		var err error
		if namespace == "" {
			_, err = admin.RbacV1().ClusterRoles().Create(ctx, &rbacv1.ClusterRole{ObjectMeta: meta, Rules: policy}, metav1.CreateOptions{})
			if err == nil {
				_, err = admin.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{ObjectMeta: meta, Subjects: subject,
					RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name}}, metav1.CreateOptions{})
			}
		} else {
			_, err = admin.RbacV1().Roles(namespace).Create(ctx, &rbacv1.Role{ObjectMeta: meta, Rules: policy}, metav1.CreateOptions{})
			if err == nil {
				_, err = admin.RbacV1().RoleBindings(namespace).Create(ctx, &rbacv1.RoleBinding{ObjectMeta: meta, Subjects: subject,
					RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name}}, metav1.CreateOptions{})
			}
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			ctx := context.WithoutCancel(ctx)
			if namespace == "" {
				_ = admin.RbacV1().ClusterRoles().Delete(ctx, name, metav1.DeleteOptions{})
				_ = admin.RbacV1().ClusterRoleBindings().Delete(ctx, name, metav1.DeleteOptions{})
				return
			}
			_ = admin.RbacV1().Roles(namespace).Delete(ctx, name, metav1.DeleteOptions{})
			_ = admin.RbacV1().RoleBindings(namespace).Delete(ctx, name, metav1.DeleteOptions{})
		})
	}
	config, err := controlplane.Shared(t).RESTConfigFor(controlplane.Client{User: name})
	if err != nil {
		t.Fatal(err)
	}
	return config
}

func open(t testing.TB, config *rest.Config, namespace string, now func() time.Time) *kube.Cluster {
	t.Helper()
	c, err := kube.New(kube.Config{REST: config, Namespace: namespace, Identity: "test", Now: now})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// allowed waits until the API server has taken up the user's roles.
func allowed(t testing.TB, c *kube.Cluster, accesses []cluster.Access) {
	t.Helper()
	for {
		denied, err := c.Denied(t.Context(), accesses)
		if err != nil && !fleet.Is(err, fleet.KindDenied) {
			t.Fatal(err)
		}
		if err == nil && len(denied) == 0 {
			return
		}
		select {
		case <-t.Context().Done():
			t.Fatalf("still denied: %v", denied)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// TestContract runs the suites as a user who may do what Rules says, and no more.
func TestContract(t *testing.T) {
	config, admin := cp(t)
	const namespace = "ortet-contract"
	makeNamespace(t, admin, namespace)
	rules := kube.Rules(kube.Everything(namespace))
	least := user(t, admin, "ortet-contract", rules)
	allowed(t, open(t, least, namespace, nil), kube.Accesses(rules))

	clustertest.Run(t, clustertest.Setup{
		Admin: config, Namespace: namespace,
		Open:          func(t *testing.T, now func() time.Time) cluster.Cluster { return open(t, least, namespace, now) },
		ServeMachines: serveMachines(config),
	})
	t.Run("Journals", func(t *testing.T) {
		journaltest.Run(t, "contract-", func(t *testing.T) journal.Store { return open(t, least, namespace, nil).Journals() })
	})
}

// TestDeniedNamesWhatIsMissing takes one access away after the other.
func TestDeniedNamesWhatIsMissing(t *testing.T) {
	_, admin := cp(t)
	const namespace = "ortet-denied"
	makeNamespace(t, admin, namespace)
	rules := kube.Rules(kube.Everything(namespace))
	for i, missing := range rules {
		// Another rule may grant the same in a wider place.
		rest := append(append([]kube.Rule(nil), rules[:i]...), rules[i+1:]...)
		name := "ortet-denied-" + strings.ReplaceAll(strings.ReplaceAll(missing.Resource, "/", "-"), ".", "-") + "-" + missing.Verbs[0]
		c := open(t, user(t, admin, name, rest), namespace, nil)
		if missing.Resource == "selfsubjectaccessreviews" {
			continue // Kubernetes' own role grants it
		}
		allowed(t, c, kube.Accesses(rest))
		denied, err := c.Denied(t.Context(), kube.Accesses(rules))
		if err != nil {
			t.Fatal(err)
		}
		want := kube.Accesses([]kube.Rule{missing})
		if missing.Resource == "pods" && missing.Namespace != "" {
			want = want[:1] // deleting pods anywhere is another rule
		}
		if len(denied) != len(want) {
			t.Errorf("without %s: denied %v, want %v", missing.Resource, denied, want)
			continue
		}
		for j := range want {
			if denied[j] != want[j] {
				t.Errorf("without %s: denied %v, want %v", missing.Resource, denied[j], want[j])
			}
		}
	}
}

// TestDenialSaysWhatToGrant has a user who may do nothing.
func TestDenialSaysWhatToGrant(t *testing.T) {
	_, admin := cp(t)
	const namespace = "ortet-nobody"
	makeNamespace(t, admin, namespace)
	c := open(t, user(t, admin, "ortet-nobody", nil), namespace, nil)
	ctx := t.Context()
	_, nodeErr := c.Node(ctx, "n")
	_, holdErr := c.Hold(ctx, "pool", "me", time.Minute)
	_, kuredErr := c.HoldReboots(ctx, "me", time.Minute)
	for what, c := range map[string]struct {
		err  error
		want string
	}{
		"read node": {nodeErr, "grant get nodes to"},
		"cordon":    {c.SetUnschedulable(ctx, "n", true), "grant patch nodes to"},
		"start job": {c.StartJob(ctx, cluster.Job{Name: "j", Node: "n", Image: "i"}), "grant create pods in namespace " + namespace},
		"hold":      {holdErr, "grant get leases.coordination.k8s.io in namespace " + namespace},
		"kured":     {kuredErr, "grant get daemonsets.apps in namespace kube-system"},
	} {
		if !fleet.Is(c.err, fleet.KindDenied) || !strings.Contains(c.err.Error(), c.want) {
			t.Errorf("%s: %v (kind %q), want %q", what, c.err, fleet.KindOf(c.err), c.want)
		}
	}
	c.Event(ctx, fleet.Node{Name: "n"}, false, "Test", "nobody may record this, and nothing fails")
}

func TestEnsureNamespace(t *testing.T) {
	config, admin := cp(t)
	const namespace = "ortet-ensured"
	c := open(t, config, namespace, nil)
	ctx := t.Context()

	// Who may write Leases anywhere, but make no namespace, is told who has to.
	leases := []kube.Rule{{Group: "coordination.k8s.io", Resource: "leases", Verbs: []string{"create", "delete", "get", "update"}}}
	poor := open(t, user(t, admin, "ortet-ensured-leases", leases), namespace, nil)
	allowed(t, poor, kube.Accesses(leases))
	_, holdErr := poor.Hold(ctx, "pool", "me", time.Minute)
	for what, err := range map[string]error{"start job": c.StartJob(ctx, cluster.Job{Name: "j", Node: "n", Image: "i"}), "hold": holdErr} {
		if !fleet.Is(err, fleet.KindInvalid) || !strings.Contains(err.Error(), "kubectl create namespace "+namespace) {
			t.Errorf("%s without a namespace: %v", what, err)
		}
	}
	if _, err := c.Journals().Load(ctx, "pool"); !fleet.Is(err, fleet.KindNotFound) {
		t.Errorf("journal without a namespace: %v", err)
	}
	nobody := open(t, user(t, admin, "ortet-ensured-nobody", nil), namespace, nil)
	if err := nobody.EnsureNamespace(ctx); err != nil {
		t.Errorf("who may not look goes on: %v", err)
	}
	// The Lease is the first thing that is written, so it makes the namespace.
	if _, err := c.Hold(ctx, "pool", "me", time.Minute); err != nil {
		t.Fatal(err)
	}
	if err := c.EnsureNamespace(ctx); err != nil {
		t.Fatal(err)
	}
	made, err := admin.CoreV1().Namespaces().Get(ctx, namespace, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got := made.Labels["pod-security.kubernetes.io/enforce"]; got != "privileged" {
		t.Errorf("Pod Security enforces %q", got)
	}
}
