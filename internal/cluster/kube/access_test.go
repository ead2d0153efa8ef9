package kube_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/ortet/ortet/internal/cluster"
	"github.com/ortet/ortet/internal/cluster/kube"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/test/kubesim"
)

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

// memoryServer is the API server in memory.
func memoryServer() server {
	s := &kubesim.Server{Users: map[string][]kubesim.Grant{"admin": {kubesim.Administrator()}}}
	return server{
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
	}
}

func TestDeniedNamesWhatIsMissingInMemory(t *testing.T) { deniedNamesWhatIsMissing(t, memoryServer()) }

// deniedNamesWhatIsMissing takes one access away after the other.
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

func TestDenialSaysWhatToGrantInMemory(t *testing.T) { denialSaysWhatToGrant(t, memoryServer()) }

// denialSaysWhatToGrant has a user who may do nothing.
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

func TestEnsureNamespaceInMemory(t *testing.T) { ensureNamespace(t, memoryServer()) }

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
