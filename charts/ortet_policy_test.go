//go:build e2e

package charts

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"github.com/ortet/ortet/test/controlplane"
)

func TestMain(m *testing.M) { os.Exit(controlplane.Main(m)) }

// admittingAt are the values that admission needs but for the pools; admitting are all.
var admittingAt = []string{"--set", "admission.enabled=true,admission.server=https://10.0.0.1:6443,admission.names={10.0.0.2}"}

var admitting = []string{
	admittingAt[0], admittingAt[1],
	"--set", "admission.pools={/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachineScaleSets/p}",
}

// client is somebody's on the shared control plane.
func client(t *testing.T, who controlplane.Client) kubernetes.Interface {
	t.Helper()
	cp := controlplane.Shared(t)
	config, err := cp.RESTConfig()
	if who.User != "" {
		config, err = cp.RESTConfigFor(who)
	}
	if err != nil {
		t.Fatal(err)
	}
	c, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func made[T any](t *testing.T, docs [][]byte, create func(*T) error) {
	t.Helper()
	for _, doc := range docs {
		object := new(T)
		if err := yaml.UnmarshalStrict(doc, object); err != nil {
			t.Fatal(err)
		}
		if err := create(object); err != nil {
			t.Fatal(err)
		}
	}
}

// install makes the chart's policies, and waits until they count.
func install(t *testing.T, admin kubernetes.Interface, args ...string) {
	t.Helper()
	ctx := t.Context()
	objects := renderOrtet(t, append(append([]string{}, admitting...), args...)...)
	policies, bindings := admin.AdmissionregistrationV1().ValidatingAdmissionPolicies(), admin.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings()
	// An API server ends its watch of parameters with the last policy that has some, and
	// does not begin it again: this one stays, for the tests that follow.
	_, err := policies.Create(ctx, &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "stays.ortet.io"}, Spec: admissionv1.ValidatingAdmissionPolicySpec{
		ParamKind: &admissionv1.ParamKind{APIVersion: "v1", Kind: "ConfigMap"}, Validations: []admissionv1.Validation{{Expression: "true"}},
		MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
			Operations: []admissionv1.OperationType{admissionv1.Create}, Rule: admissionv1.Rule{APIGroups: []string{"none.ortet.io"}, APIVersions: []string{"v1"}, Resources: []string{"none"}},
		}}}},
	}}, metav1.CreateOptions{})
	if err == nil {
		allow := admissionv1.AllowAction
		_, err = bindings.Create(ctx, &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: "stays.ortet.io"}, Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: "stays.ortet.io", ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
			ParamRef: &admissionv1.ParamRef{Name: "none", Namespace: "default", ParameterNotFoundAction: &allow},
		}}, metav1.CreateOptions{})
	}
	if err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	made(t, objects["ValidatingAdmissionPolicy"], func(p *admissionv1.ValidatingAdmissionPolicy) error {
		t.Cleanup(func() { _ = policies.Delete(context.WithoutCancel(ctx), p.Name, metav1.DeleteOptions{}) })
		_, err := policies.Create(ctx, p, metav1.CreateOptions{})
		return err
	})
	made(t, objects["ValidatingAdmissionPolicyBinding"], func(b *admissionv1.ValidatingAdmissionPolicyBinding) error {
		t.Cleanup(func() { _ = bindings.Delete(context.WithoutCancel(ctx), b.Name, metav1.DeleteOptions{}) })
		_, err := bindings.Create(ctx, b, metav1.CreateOptions{})
		return err
	})
}

// eventually ends the test where it does not come true in minutes.
func eventually(t *testing.T, what string, check func() error) {
	t.Helper()
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	limit := time.After(5 * time.Minute)
	for {
		err := check()
		if err == nil {
			return
		}
		select {
		case <-ticker.C:
		case <-limit:
			t.Fatalf("%s: %v", what, err)
		}
	}
}

// register creates a Node as its kubelet does.
func register(t *testing.T, name string) error {
	t.Helper()
	c := client(t, controlplane.Client{User: "system:node:" + name, Groups: []string{"system:nodes"}})
	_, err := c.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	if err == nil {
		t.Cleanup(func() {
			_ = client(t, controlplane.Client{}).CoreV1().Nodes().Delete(context.WithoutCancel(t.Context()), name, metav1.DeleteOptions{})
		})
	}
	return err
}

// Nodes register under the names that the list has, and under those that are exempt;
// others do not, nor anyone while there is no list but who is exempt. Administrators
// do as they please.
func TestPolicyKeepsOtherNamesOut(t *testing.T) {
	ctx := t.Context()
	admin := client(t, controlplane.Client{})
	_, err := admin.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ortet-system"}}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	if err := register(t, "was-there"); err != nil {
		t.Fatal(err)
	}
	install(t, admin, "--set", "admission.policy.exempt={cp-0,cp-1},admission.policy.exemptPrefixes={aks-,other-}")
	refused := func(name, why string) {
		t.Helper()
		eventually(t, name, func() error {
			err := register(t, name)
			switch {
			case err == nil:
				_ = admin.CoreV1().Nodes().Delete(ctx, name, metav1.DeleteOptions{})
				return fmt.Errorf("it was registered")
			case !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), why):
				return err
			}
			return nil
		})
	}
	refused("stranger", "no params found")
	if err := register(t, "cp-0"); err != nil {
		t.Errorf("exempt, without a list: %v", err)
	}
	refused("aks-nodepool1-1", "no params found")
	// 5,000 names, of the size that they have.
	data := map[string]string{"pool1000001": ""}
	for i := range 5000 {
		data[fmt.Sprintf("pool1-%09d", i)] = fmt.Sprintf("aaaaaaaa-0000-4000-8000-%012d 1790000000000 0 %d", i, i)
	}
	list, err := admin.CoreV1().ConfigMaps("ortet-system").Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "ortet-admitted"}, Data: data}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "a name that was admitted", func() error { return register(t, "pool1000001") })
	for _, name := range []string{"pool1-000004999", "aks-nodepool1-1", "other-7", "cp-1"} {
		if err := register(t, name); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	refused("stranger", "was not admitted by Ortet")
	refused("cp-2", "was not admitted by Ortet")
	refused("pool1000001x", "was not admitted by Ortet")
	// Nor is there another way to make one than by its name in a POST.
	stranger := client(t, controlplane.Client{User: "system:node:stranger", Groups: []string{"system:nodes"}}).CoreV1().Nodes()
	for _, prefix := range []string{"stranger", "pool1000001", "cp-0", ""} {
		n, err := stranger.Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{GenerateName: prefix}}, metav1.CreateOptions{})
		if !apierrors.IsForbidden(err) { // by the API server's NodeRestriction
			t.Errorf("a name that is generated from %q: %v, Node %q", prefix, err, n.GetName())
		}
	}
	_, err = stranger.Apply(ctx, applycorev1.Node("stranger").WithLabels(map[string]string{"a": "b"}), metav1.ApplyOptions{FieldManager: "kubelet"})
	if !apierrors.IsForbidden(err) {
		t.Errorf("a Node that is applied: %v", err)
	}
	if _, err := admin.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "by-hand"}}, metav1.CreateOptions{}); err != nil {
		t.Errorf("an administrator: %v", err)
	}
	_ = admin.CoreV1().Nodes().Delete(ctx, "by-hand", metav1.DeleteOptions{})
	// A Node that was there is not touched.
	was := client(t, controlplane.Client{User: "system:node:was-there", Groups: []string{"system:nodes"}})
	// A patch, since others write to Nodes too.
	if _, err := was.CoreV1().Nodes().Patch(ctx, "was-there", types.MergePatchType, []byte(`{"metadata":{"labels":{"still":"there"}}}`), metav1.PatchOptions{}); err != nil {
		t.Errorf("a Node that was there: %v", err)
	}
	if err := admin.CoreV1().ConfigMaps("ortet-system").Delete(ctx, list.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	refused("pool1-000000001", "no params found")
}

// Of kube-system's Secrets the admission server makes no others than its tokens, and
// deletes no others than these and node passwords, though RBAC would let it.
func TestPolicyNarrowsSecrets(t *testing.T) {
	ctx := t.Context()
	admin := client(t, controlplane.Client{})
	install(t, admin, "--set", "admission.policy.enabled=false")
	account := controlplane.Client{User: "system:serviceaccount:ortet-system:r-admission", Groups: []string{"system:serviceaccounts"}}
	subject := []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: account.User}}
	_, err := admin.RbacV1().Roles("kube-system").Create(ctx, &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "narrow"},
		Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"create", "delete"}}}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = admin.RbacV1().RoleBindings("kube-system").Create(ctx, &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "narrow"}, Subjects: subject,
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "narrow"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	server := client(t, account)
	token := func(change func(*corev1.Secret)) *corev1.Secret {
		s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "bootstrap-token-abcdef"}, Type: corev1.SecretTypeBootstrapToken, Data: map[string][]byte{
			"token-id": []byte("abcdef"), "token-secret": []byte("0123456789abcdef"), "usage-bootstrap-authentication": []byte("true"),
			"auth-extra-groups": []byte("system:bootstrappers:ortet"), "expiration": []byte("2100-01-01T00:00:00Z"),
		}}
		change(s)
		return s
	}
	create := func(s *corev1.Secret) error {
		_, err := server.CoreV1().Secrets("kube-system").Create(ctx, s, metav1.CreateOptions{})
		if err == nil {
			_ = admin.CoreV1().Secrets("kube-system").Delete(ctx, s.Name, metav1.DeleteOptions{})
		}
		return err
	}
	refused := func(what string, do func() error) {
		t.Helper()
		eventually(t, what, func() error {
			if err := do(); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "it has nothing else to do with") {
				return fmt.Errorf("not refused by the policy: %w", err)
			}
			return nil
		})
	}
	refused("a token of another group", func() error {
		return create(token(func(s *corev1.Secret) {
			s.Data["auth-extra-groups"] = []byte("system:bootstrappers:kubeadm:default-node-token")
		}))
	})
	refused("a token of more groups", func() error {
		return create(token(func(s *corev1.Secret) {
			s.Data["auth-extra-groups"] = append(s.Data["auth-extra-groups"], ",system:bootstrappers:x"...)
		}))
	})
	refused("a token without an end", func() error { return create(token(func(s *corev1.Secret) { delete(s.Data, "expiration") })) })
	refused("a service account's token", func() error {
		return create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "sa", Annotations: map[string]string{corev1.ServiceAccountNameKey: "default"}}, Type: corev1.SecretTypeServiceAccountToken})
	})
	if err := create(token(func(*corev1.Secret) {})); err != nil {
		t.Errorf("its own token: %v", err)
	}
	for name, fine := range map[string]bool{"n1.node-password.k3s": true, "n1.node-password.rke2": true, "etcd-certs": false} {
		s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if _, err := admin.CoreV1().Secrets("kube-system").Create(ctx, s, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := server.CoreV1().Secrets("kube-system").Delete(ctx, name, metav1.DeleteOptions{}); (err == nil) != fine {
			t.Errorf("deleting %s: %v", name, err)
		}
	}
	if _, err := admin.CoreV1().Secrets("kube-system").Create(ctx, token(func(s *corev1.Secret) { s.Data["auth-extra-groups"] = []byte("system:bootstrappers:x") }), metav1.CreateOptions{}); err != nil {
		t.Errorf("an administrator: %v", err)
	}
	refused("deleting another's token", func() error {
		return server.CoreV1().Secrets("kube-system").Delete(ctx, "bootstrap-token-abcdef", metav1.DeleteOptions{})
	})
}
