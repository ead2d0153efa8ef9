package kube_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"slices"
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
	"github.com/ortet/ortet/test/kubesim"
)

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		os.Exit(child())
	}
	flag.Parse()
	// Tests that run beside each other wait most of their time, so that more of
	// them can than there are processors.
	if err := flag.Set("test.parallel", "12"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
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

// A server is an API server to test on.
type server struct {
	config *rest.Config // the administrator's
	// namespace makes a namespace.
	namespace func(t testing.TB, name string)
	// user gives somebody who may do what the rules say.
	user func(t testing.TB, name string, rules []kube.Rule) *rest.Config
}

// onBoth tests on a real API server and on the one in memory.
func onBoth(t *testing.T, test func(t *testing.T, on server)) {
	t.Helper()
	t.Run("Real", func(t *testing.T) {
		config, admin := cp(t)
		test(t, server{
			config:    config,
			namespace: func(t testing.TB, name string) { t.Helper(); makeNamespace(t, admin, name) },
			user: func(t testing.TB, name string, rules []kube.Rule) *rest.Config {
				t.Helper()
				return user(t, admin, name, rules)
			},
		})
	})
	t.Run("InMemory", func(t *testing.T) {
		s := &kubesim.Server{Users: map[string][]kubesim.Grant{"admin": {kubesim.Administrator()}}}
		test(t, server{
			config: s.Config("admin"),
			namespace: func(_ testing.TB, name string) {
				s.Put(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
			},
			user: func(_ testing.TB, name string, rules []kube.Rule) *rest.Config {
				// Kubernetes' own role gives everybody this one.
				rules = append(slices.Clone(rules), kube.Rule{Group: "authorization.k8s.io", Resource: "selfsubjectaccessreviews", Verbs: []string{"create"}})
				s.Users[name] = kubesim.Grants(kube.PolicyRules(rules))
				return s.Config(name)
			},
		})
	})
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
		journaltest.Run(t, "contract-", func(t *testing.T) journal.Store { return open(t, least, namespace, nil).Journals() }, func(t *testing.T, pool string) {
			t.Helper()
			if err := admin.CoreV1().Secrets(namespace).Delete(t.Context(), kube.JournalName(pool), metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
		})
	})
}

// TestDeniedNamesWhatIsMissing takes one access away after the other.
func TestDeniedNamesWhatIsMissing(t *testing.T) { onBoth(t, deniedNamesWhatIsMissing) }

func deniedNamesWhatIsMissing(t *testing.T, on server) {
	const namespace = "ortet-denied"
	on.namespace(t, namespace)
	rules := kube.Rules(kube.Everything(namespace))
	for i, missing := range rules {
		// Another rule may grant the same in a wider place.
		rest := append(append([]kube.Rule(nil), rules[:i]...), rules[i+1:]...)
		name := "ortet-denied-" + strings.ReplaceAll(strings.ReplaceAll(missing.Resource, "/", "-"), ".", "-") + "-" + missing.Verbs[0]
		c := open(t, on.user(t, name, rest), namespace, nil)
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
func TestDenialSaysWhatToGrant(t *testing.T) { onBoth(t, denialSaysWhatToGrant) }

func denialSaysWhatToGrant(t *testing.T, on server) {
	const namespace = "ortet-nobody"
	on.namespace(t, namespace)
	c := open(t, on.user(t, "ortet-nobody", nil), namespace, nil)
	ctx := t.Context()
	_, nodeErr := c.Node(ctx, "n")
	_, holdErr := c.Hold(ctx, "pool", "me", time.Minute)
	_, kuredErr := c.HoldReboots(ctx, "me", time.Minute)
	cannot := `User "ortet-nobody" cannot `
	for what, c := range map[string]struct {
		err         error
		rbac, grant string
	}{
		"read node": {nodeErr, `nodes "n" is forbidden: ` + cannot + `get resource "nodes" in API group "" at the cluster scope`, "grant get nodes to"},
		"cordon":    {c.SetUnschedulable(ctx, "n", true), `nodes "n" is forbidden: ` + cannot + `patch resource "nodes" in API group "" at the cluster scope`, "grant patch nodes to"},
		"start job": {c.StartJob(ctx, cluster.Job{Name: "j", Node: "n", Image: "i"}), `pods is forbidden: ` + cannot + `create resource "pods" in API group "" in the namespace "` + namespace + `"`,
			"grant create pods in namespace " + namespace},
		"hold":  {holdErr, cannot + `get resource "leases" in API group "coordination.k8s.io" in the namespace`, "grant get leases.coordination.k8s.io in namespace " + namespace},
		"kured": {kuredErr, `daemonsets.apps "kured" is forbidden: ` + cannot + `get resource "daemonsets" in API group "apps" in the namespace "kube-system"`, "grant get daemonsets.apps in namespace kube-system"},
	} {
		if !fleet.Is(c.err, fleet.KindDenied) || !strings.Contains(c.err.Error(), c.grant) || !strings.Contains(c.err.Error(), c.rbac) {
			t.Errorf("%s: %v (kind %q), want %q and %q", what, c.err, fleet.KindOf(c.err), c.rbac, c.grant)
		}
	}
	c.Event(ctx, fleet.Node{Name: "n"}, false, "Test", "nobody may record this, and nothing fails")
}

func TestEnsureNamespace(t *testing.T) { onBoth(t, ensureNamespace) }

func ensureNamespace(t *testing.T, on server) {
	const namespace = "ortet-ensured"
	admin, err := kubernetes.NewForConfig(on.config)
	if err != nil {
		t.Fatal(err)
	}
	c := open(t, on.config, namespace, nil)
	ctx := t.Context()

	// Who may write Leases anywhere, but make no namespace, is told who has to.
	leases := []kube.Rule{{Group: "coordination.k8s.io", Resource: "leases", Verbs: []string{"create", "delete", "get", "update"}}}
	poor := open(t, on.user(t, "ortet-ensured-leases", leases), namespace, nil)
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
	nobody := open(t, on.user(t, "ortet-ensured-nobody", nil), namespace, nil)
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
