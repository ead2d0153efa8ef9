//go:build e2e

package kube_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/ortet/ortet/internal/cluster"
	"github.com/ortet/ortet/internal/cluster/clustertest"
	"github.com/ortet/ortet/internal/cluster/kube"
	"github.com/ortet/ortet/internal/journal"
	"github.com/ortet/ortet/internal/journal/journaltest"
	"github.com/ortet/ortet/test/controlplane"
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

// cp returns the administrator's configuration and client.
func cp(t testing.TB) (*rest.Config, kubernetes.Interface) {
	t.Helper()
	config, err := controlplane.Shared(t).RESTConfig()
	if err != nil {
		t.Fatal(err)
	}
	return config, controlplane.Shared(t).Admin(t)
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

// user returns a user's configuration who may do what the rules say, and nothing
// else.
func user(t testing.TB, admin kubernetes.Interface, name string, rules []kube.Rule) *rest.Config {
	t.Helper()
	policies, ctx := kube.PolicyRules(rules), t.Context()
	for namespace := range policies {
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
	return controlplane.Shared(t).Grant(ctx, t, name, policies)
}

// realServer is a real API server.
func realServer(t *testing.T) server {
	t.Helper()
	config, admin := cp(t)
	return server{
		config:    config,
		namespace: func(t testing.TB, name string) { t.Helper(); makeNamespace(t, admin, name) },
		user: func(t testing.TB, name string, rules []kube.Rule) *rest.Config {
			t.Helper()
			return user(t, admin, name, rules)
		},
	}
}

// TestContract runs the suites as a user who may do what Rules says, and no more.
func TestContract(t *testing.T) {
	config, admin := cp(t)
	const namespace, tests = "ortet-contract", "ortet-tests"
	makeNamespace(t, admin, namespace)
	makeNamespace(t, admin, tests)
	needs := kube.Everything(namespace)
	needs.Test = tests
	rules := kube.Rules(needs)
	least := user(t, admin, "ortet-contract", rules)
	allowed(t, open(t, least, namespace, nil), kube.Accesses(rules))

	clustertest.Run(t, clustertest.Setup{
		Admin: config, Namespace: namespace, Tests: tests,
		Open:          func(t *testing.T, now func() time.Time) cluster.Cluster { return open(t, least, namespace, now) },
		ServeMachines: serveMachines(config),
	})
	t.Run("Journals", func(t *testing.T) {
		secrets := admin.CoreV1().Secrets(namespace)
		journaltest.Run(t, journaltest.Setup{
			Open: func(t *testing.T) journal.Store { return open(t, least, namespace, nil).Journals() },
			Put: func(t *testing.T, pool string, data []byte) {
				t.Helper()
				err := secrets.Delete(t.Context(), kube.JournalName(pool), metav1.DeleteOptions{})
				if err != nil && !apierrors.IsNotFound(err) {
					t.Fatal(err)
				}
				if data == nil {
					return
				}
				if _, err := secrets.Create(t.Context(), journalSecret(namespace, pool, data), metav1.CreateOptions{}); err != nil {
					t.Fatal(err)
				}
			},
		})
	})
}

func TestFaults(t *testing.T) {
	config, admin := cp(t)
	const namespace = "ortet-faults"
	makeNamespace(t, admin, namespace)
	rules := kube.Rules(kube.Everything(namespace))
	least := user(t, admin, "ortet-faults", rules)
	allowed(t, open(t, least, namespace, nil), kube.Accesses(rules))
	came(t, clustertest.RunFaults(t, clustertest.Faults{
		Setup: clustertest.Setup{
			Admin: config, Namespace: namespace,
			Open:          func(t *testing.T, now func() time.Time) cluster.Cluster { return open(t, least, namespace, now) },
			ServeMachines: serveMachines(config),
		},
		Kinds: faultKinds(), Fail: failing(least, namespace),
	}))
}

func TestDeniedNamesWhatIsMissing(t *testing.T) { deniedNamesWhatIsMissing(t, realServer(t)) }
func TestDenialSaysWhatToGrant(t *testing.T)    { denialSaysWhatToGrant(t, realServer(t)) }
func TestEnsureNamespace(t *testing.T)          { ensureNamespace(t, realServer(t)) }
