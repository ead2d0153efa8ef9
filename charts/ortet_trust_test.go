//go:build e2e

package charts

import (
	"context"
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"github.com/ortet/ortet/test/controlplane"
)

// On a control plane's node /etc/kubernetes holds admin.conf and the authority's key:
// no pod of ours has the folder.
func TestChartsMountNoFolderOfKeys(t *testing.T) {
	pods := map[string]corev1.PodSpec{"the capture": job(t, "--set", "kamino.targetNode="+node).Spec.Template.Spec}
	for _, doc := range renderOrtet(t, admitting...)["Deployment"] {
		var d appsv1.Deployment
		if err := yaml.UnmarshalStrict(doc, &d); err != nil {
			t.Fatal(err)
		}
		pods[d.Name] = d.Spec.Template.Spec
	}
	if len(pods) != 3 {
		t.Fatalf("%d pods", len(pods))
	}
	for name, pod := range pods {
		for _, v := range pod.Volumes {
			if h := v.HostPath; h != nil && *h.Type != corev1.HostPathFile && h.Path != "/etc/ssl/certs" {
				t.Errorf("%s mounts all of %s", name, h.Path)
			}
		}
	}
}

// namespaced makes the release's namespace.
func namespaced(t *testing.T, admin kubernetes.Interface) {
	t.Helper()
	_, err := admin.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ortet-system"}}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
}

// refusal waits until a policy refuses, for the reason that is wanted.
func refusal(t *testing.T, what, why string, do func() error) {
	t.Helper()
	eventually(t, what, func() error {
		// An expression that fails is Invalid.
		if err := do(); !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), why) {
			return fmt.Errorf("not refused by the policy: %w", err)
		}
		return nil
	})
}

// A kubelet registers its Node as the instance that was admitted under its name, or as
// none, and as no other: neither at once nor later.
func TestPolicyBindsProviderIDs(t *testing.T) {
	ctx := t.Context()
	admin := client(t, controlplane.Client{})
	namespaced(t, admin)
	install(t, admin)
	const group = "/subscriptions/s/resourceGroups/g"
	const pool = group + "/providers/Microsoft.Compute/virtualMachineScaleSets/p"
	const flexible, elsewhere = group + "/providers/Microsoft.Compute/virtualMachines/flex_1", "/subscriptions/s/resourceGroups/h/providers/Microsoft.Compute/virtualMachines/x"
	_, err := admin.CoreV1().ConfigMaps("ortet-system").Create(ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "ortet-admitted", Annotations: map[string]string{"ortet.io/pools": `["` + pool + `2","` + pool + `"]`}},
		Data: map[string]string{
			"bound-uniform": "vm-a 1790000000000 1 12 - =seal", "bound-flexible": "vm-b 1790000000000 1 ~flex_1", "bound-elsewhere": "vm-c 1790000000000 0 " + elsewhere,
			"bound-later": "vm-d 1790000000000 1 13 -", "bound-before": "", "bound-broken": "vm-e 1790000000000 7 13 -",
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = admin.CoreV1().ConfigMaps("ortet-system").Delete(context.WithoutCancel(ctx), "ortet-admitted", metav1.DeleteOptions{})
	})
	create := func(name, id string) error {
		_, err := client(t, controlplane.Client{User: "system:node:" + name, Groups: []string{"system:nodes"}}).CoreV1().Nodes().
			Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{ProviderID: id}}, metav1.CreateOptions{})
		if err == nil {
			t.Cleanup(func() { _ = admin.CoreV1().Nodes().Delete(context.WithoutCancel(ctx), name, metav1.DeleteOptions{}) })
		}
		return err
	}
	// Until the policy counts a Node is made, and taken away again.
	attempt := func(name, id string) error {
		err := create(name, id)
		if err == nil {
			err = admin.CoreV1().Nodes().Delete(ctx, name, metav1.DeleteOptions{})
		}
		return err
	}
	for name, id := range map[string]string{
		"bound-uniform": pool + "/virtualMachines/1", "bound-flexible": group + "/providers/Microsoft.Compute/virtualMachines/flex_2", "bound-elsewhere": flexible,
	} {
		refusal(t, name+" as another instance", "was admitted by Ortet as another instance", func() error { return attempt(name, "azure://"+id) })
	}
	refusal(t, "an entry that cannot be read", "index out of bounds", func() error { return attempt("bound-broken", "azure://"+pool+"/virtualMachines/13") })
	for name, id := range map[string]string{
		"bound-uniform": "azure://" + strings.ToUpper(pool) + "/virtualMachines/12", "bound-flexible": "azure://" + flexible, "bound-elsewhere": "azure://" + elsewhere,
		"bound-later": "", "bound-before": "azure://" + flexible,
	} {
		if err := create(name, id); err != nil {
			t.Errorf("%s as %q: %v", name, id, err)
		}
	}
	later := func(id string) error {
		_, err := client(t, controlplane.Client{User: "system:node:bound-later", Groups: []string{"system:nodes"}}).CoreV1().Nodes().
			Patch(ctx, "bound-later", types.MergePatchType, []byte(`{"spec":{"providerID":"`+id+`"}}`), metav1.PatchOptions{})
		return err
	}
	refusal(t, "another instance, later", "was admitted by Ortet as another instance", func() error { return later("azure://" + pool + "/virtualMachines/12") })
	if err := later("azure://" + pool + "/virtualMachines/13"); err != nil {
		t.Errorf("its own instance, later: %v", err)
	}
}

// Who may make pods and Secrets in the namespace runs none as the admission server or
// the controller, and gets no token of theirs.
func TestPolicyKeepsPodsFromTheServersAccount(t *testing.T) {
	ctx := t.Context()
	admin := client(t, controlplane.Client{})
	namespaced(t, admin)
	install(t, admin, "--set", "admission.policy.enabled=false")
	var accounts []string
	for _, doc := range renderOrtet(t, admitting...)["ServiceAccount"] {
		var a corev1.ServiceAccount
		if err := yaml.UnmarshalStrict(doc, &a); err != nil {
			t.Fatal(err)
		}
		accounts = append(accounts, a.Name)
	}
	for _, name := range append(accounts, "capture") {
		if _, err := admin.CoreV1().ServiceAccounts("ortet-system").Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = admin.CoreV1().ServiceAccounts("ortet-system").Delete(context.WithoutCancel(ctx), name, metav1.DeleteOptions{})
		})
	}
	dry := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	run := func(by kubernetes.Interface, account string) error {
		_, err := by.CoreV1().Pods("ortet-system").Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: corev1.PodSpec{
			ServiceAccountName: account, Containers: []corev1.Container{{Name: "c", Image: "example.invalid/c"}}}}, dry)
		return err
	}
	for _, account := range accounts {
		refusal(t, "a pod as "+account, "is for the pods of its Deployment alone", func() error { return run(admin, account) })
		refusal(t, "a token of "+account, "is for the pods of its Deployment alone", func() error {
			_, err := admin.CoreV1().Secrets("ortet-system").Create(ctx, &corev1.Secret{Type: corev1.SecretTypeServiceAccountToken,
				ObjectMeta: metav1.ObjectMeta{Name: "s", Annotations: map[string]string{corev1.ServiceAccountNameKey: account}}}, dry)
			return err
		})
		controllers := client(t, controlplane.Client{User: "system:serviceaccount:kube-system:replicaset-controller", Groups: []string{"system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated"}})
		if err := run(controllers, account); err != nil {
			t.Errorf("the Deployment's pod as %s: %v", account, err)
		}
	}
	if len(accounts) != 2 {
		t.Errorf("accounts %v", accounts)
	}
	if err := run(admin, "capture"); err != nil {
		t.Errorf("a pod as another account: %v", err)
	}
	if _, err := admin.CoreV1().Secrets("ortet-system").Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s"}}, dry); err != nil {
		t.Errorf("a Secret: %v", err)
	}
}
