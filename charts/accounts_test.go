//go:build e2e

package charts

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/ortet/ortet/internal/admission"
	admissionkube "github.com/ortet/ortet/internal/admission/kube"
	"github.com/ortet/ortet/internal/cluster/kube"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/wire"
	"github.com/ortet/ortet/test/controlplane"
)

var dry = []string{metav1.DryRunAll}

// workbench is a pod as a capture makes it.
func workbench(on string, change func(*corev1.Pod)) *corev1.Pod {
	no := false
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "work"}, Spec: corev1.PodSpec{
		NodeName: on, AutomountServiceAccountToken: &no, Containers: []corev1.Container{{Name: "work", Image: "example.invalid/c"}}}}
	if change != nil {
		change(p)
	}
	return p
}

// An attempt is what an account may not do; why is in the refusal.
type attempt struct {
	what, why string
	do        func(ctx context.Context, by kubernetes.Interface, namespace string) error
}

const (
	byRBAC   = `cannot `
	byPolicy = "denied request"
	alone    = "is for the pods of its Deployment alone"
	record   = "is for the admission server alone"
	oneTaint = "removes the taint " + fleet.TaintUnproven + ":NoSchedule from a Node; it changes nothing else"
)

func makePod(p *corev1.Pod) func(context.Context, kubernetes.Interface, string) error {
	return func(ctx context.Context, by kubernetes.Interface, namespace string) error {
		_, err := by.CoreV1().Pods(namespace).Create(ctx, p, metav1.CreateOptions{DryRun: dry})
		return err
	}
}

func makeSecret(s *corev1.Secret) func(context.Context, kubernetes.Interface, string) error {
	return func(ctx context.Context, by kubernetes.Interface, namespace string) error {
		_, err := by.CoreV1().Secrets(namespace).Create(ctx, s, metav1.CreateOptions{DryRun: dry})
		return err
	}
}

func readKey(name string) func(context.Context, kubernetes.Interface, string) error {
	return func(ctx context.Context, by kubernetes.Interface, namespace string) error {
		_, err := by.CoreV1().Secrets(admissionkube.KeysNamespace(namespace)).Get(ctx, name, metav1.GetOptions{})
		return err
	}
}

func changeMap(name string) func(context.Context, kubernetes.Interface, string) error {
	return func(ctx context.Context, by kubernetes.Interface, namespace string) error {
		_, err := by.CoreV1().ConfigMaps(namespace).Update(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.UpdateOptions{DryRun: dry})
		return err
	}
}

func makeMap(name string) func(context.Context, kubernetes.Interface, string) error {
	return func(ctx context.Context, by kubernetes.Interface, namespace string) error {
		_, err := by.CoreV1().ConfigMaps(namespace).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{DryRun: dry})
		return err
	}
}

func makeLease(name string) func(context.Context, kubernetes.Interface, string) error {
	return func(ctx context.Context, by kubernetes.Interface, namespace string) error {
		_, err := by.CoordinationV1().Leases(namespace).Create(ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{DryRun: dry})
		return err
	}
}

func patchNode(name, patch string, subresources ...string) func(context.Context, kubernetes.Interface, string) error {
	return func(ctx context.Context, by kubernetes.Interface, _ string) error {
		_, err := by.CoreV1().Nodes().Patch(ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{DryRun: dry}, subresources...)
		return err
	}
}

func runAs(account string) func(context.Context, kubernetes.Interface, string) error {
	return func(ctx context.Context, by kubernetes.Interface, namespace string) error {
		labels := map[string]string{"a": "b"}
		_, err := by.AppsV1().Deployments(namespace).Create(ctx, &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "d"}, Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{ServiceAccountName: account, Containers: []corev1.Container{{Name: "c", Image: "example.invalid/c"}}}},
		}}, metav1.CreateOptions{DryRun: dry})
		return err
	}
}

func tokenOf(account string) func(context.Context, kubernetes.Interface, string) error {
	return func(ctx context.Context, by kubernetes.Interface, namespace string) error {
		_, err := by.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, account, &authenticationv1.TokenRequest{}, metav1.CreateOptions{DryRun: dry})
		return err
	}
}

// configSecret is the value azure.configSecret of the chart.
const configSecret = "azure-config"

const reachNode, reachExempt, serverPod = "reach-worker", "reach-control", "r-admission-0"

// attempts are what each account tries.
func attempts() map[string][]attempt {
	serverToken := &corev1.Secret{Type: corev1.SecretTypeServiceAccountToken,
		ObjectMeta: metav1.ObjectMeta{Name: "s", Annotations: map[string]string{corev1.ServiceAccountNameKey: "r-admission"}}}
	planted := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "ortet-admission-records"}, Data: map[string][]byte{"key": bytes.Repeat([]byte("k"), 32)}}
	// This Secret configures which Azure endpoint the server queries.
	elsewhere := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: configSecret}, Data: map[string][]byte{"azure.json": []byte(`{"cloud":"AzureStackCloud","resourceManagerEndpoint":"https://attack.example"}`)}}
	everybody := []attempt{
		{"reads the authority", byRBAC, readKey("ortet-admission-authority")},
		{"reads the records' key", byRBAC, readKey("ortet-admission-records")},
		{"reads the nonces' key", byRBAC, readKey("ortet-admission-nonce")},
	}
	const kured = `{"spec":{"template":{"spec":{"containers":[{"name":"kured","image":"example.invalid/x"}]}}}}`
	return map[string][]attempt{
		"c-vmss-prototype": append([]attempt{
			{"runs a pod as the server", byPolicy, makePod(workbench(reachNode, func(p *corev1.Pod) { p.Spec.ServiceAccountName = "r-admission" }))},
			{"runs a pod as the controller", byPolicy, makePod(workbench(reachNode, func(p *corev1.Pod) { p.Spec.ServiceAccountName = "r-controller" }))},
			{"runs a pod with a token", "has no service account", makePod(workbench(reachNode, func(p *corev1.Pod) { p.Spec.AutomountServiceAccountToken = nil }))},
			{"runs a pod with a Secret", "has no Secrets", makePod(workbench(reachNode, func(p *corev1.Pod) {
				p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "azure"}}}}
			}))},
			{"runs a pod with a Secret's key", "has no Secrets", makePod(workbench(reachNode, func(p *corev1.Pod) {
				p.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "E", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{Key: "k", LocalObjectReference: corev1.LocalObjectReference{Name: "azure"}}}}}
			}))},
			{"puts a pod on the control plane", "none of admission.policy.exempt", makePod(workbench(reachExempt, nil))},
			{"puts a pod on a node that is exempt for it", "none of ortet.exempt", makePod(workbench(reachExempt+"-2", nil))},
			{"has a pod put anywhere", byPolicy, makePod(workbench("", nil))},
			{"reads a Secret", byRBAC, func(ctx context.Context, by kubernetes.Interface, namespace string) error {
				_, err := by.CoreV1().Secrets(namespace).Get(ctx, configSecret, metav1.GetOptions{})
				return err
			}},
			{"keeps data for another pool", byPolicy, makeSecret(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: kube.SavedName(accountsPool + "2")}, Type: "ortet.io/saved"})},
			{"changes what is saved", "it changes none of it", func(ctx context.Context, by kubernetes.Interface, namespace string) error {
				s, err := by.CoreV1().Secrets(namespace).Get(ctx, kube.SavedName(accountsPool), metav1.GetOptions{})
				if err != nil {
					return err
				}
				for key := range s.Data {
					s.Data[key] = []byte("z")
				}
				_, err = by.CoreV1().Secrets(namespace).Update(ctx, s, metav1.UpdateOptions{DryRun: dry})
				return err
			}},
			{"makes a token of the server", byPolicy, makeSecret(serverToken)},
			{"asks for a token of the server", byRBAC, tokenOf("r-admission")},
			{"plants a key", byPolicy, makeSecret(planted)},
			{"has the server ask another Azure", byPolicy, makeSecret(elsewhere)},
			{"runs a Deployment as the server", byRBAC, runAs("r-admission")},
			{"writes the names admitted", byRBAC, changeMap("ortet-admitted")},
			{"takes the lead", byPolicy, makeLease("ortet-admission")},
			{"spends a nonce", byPolicy, makeLease("nonce-b2")},
			{"forgets a nonce", byPolicy, func(ctx context.Context, by kubernetes.Interface, namespace string) error {
				return by.CoordinationV1().Leases(namespace).Delete(ctx, "nonce-a1", metav1.DeleteOptions{DryRun: dry})
			}},
			{"labels a Node", "annotates and cordons", patchNode(reachNode, `{"metadata":{"labels":{"node-role.kubernetes.io/control-plane":""}}}`)},
			{"gives a Node an owner", "annotates and cordons", patchNode(reachNode, `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Node","name":"gone","uid":"u"}]}}`)},
			{"taints a Node", "annotates and cordons", patchNode(reachNode, `{"spec":{"taints":[{"key":"k","effect":"NoExecute"}]}}`)},
			{"patches a Node's status", byRBAC, patchNode(reachNode, `{"status":{"capacity":{"cpu":"999"}}}`, "status")},
			{"changes kured's pods", "annotates kured", func(ctx context.Context, by kubernetes.Interface, namespace string) error {
				_, err := by.AppsV1().DaemonSets(namespace).Patch(ctx, "kured", types.StrategicMergePatchType, []byte(kured), metav1.PatchOptions{DryRun: dry})
				return err
			}},
		}, everybody...),
		"r-controller": append([]attempt{
			{"runs a pod as the server", byRBAC, makePod(workbench(reachNode, func(p *corev1.Pod) { p.Spec.ServiceAccountName = "r-admission" }))},
			{"makes a token of the server", byRBAC, makeSecret(serverToken)},
			{"asks for a token of the server", byRBAC, tokenOf("r-admission")},
			{"reads a Secret", byRBAC, func(ctx context.Context, by kubernetes.Interface, namespace string) error {
				_, err := by.CoreV1().Secrets(namespace).Get(ctx, "azure", metav1.GetOptions{})
				return err
			}},
			{"writes the names admitted", record, changeMap("ortet-admitted")},
			{"deletes the names admitted", record, func(ctx context.Context, by kubernetes.Interface, namespace string) error {
				return by.CoreV1().ConfigMaps(namespace).Delete(ctx, "ortet-admitted", metav1.DeleteOptions{DryRun: dry})
			}},
			{"writes a token's record", record, makeMap("ortet-token-abcdef")},
			{"lowers a capacity", record, makeMap("ortet-desired-capacity-0123456789abcdef")},
			{"gives the server roots", record, makeMap("r-admission")},
			{"gives nodes an authority", record, changeMap("kube-root-ca.crt")},
			{"takes the lead", record, makeLease("ortet-admission")},
			{"releases a capture's Lease", byRBAC, func(ctx context.Context, by kubernetes.Interface, namespace string) error {
				_, err := by.CoordinationV1().Leases(namespace).Update(ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "ortet-p-0123456789ab"}}, metav1.UpdateOptions{DryRun: dry})
				return err
			}},
			{"annotates a Node by its object", oneTaint, patchNode(reachNode, `{"metadata":{"annotations":{"a":"b"}}}`)},
			{"labels a Node by its object", oneTaint, patchNode(reachNode, `{"metadata":{"labels":{"node-role.kubernetes.io/control-plane":""}}}`)},
			{"gives a Node an owner by its object", oneTaint,
				patchNode(reachNode, `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Node","name":"gone","uid":"u"}]}}`)},
			{"cordons a Node", oneTaint, patchNode(reachNode, `{"spec":{"unschedulable":true}}`)},
			{"taints a Node", oneTaint, patchNode(reachNode, `{"spec":{"taints":[{"key":"k","effect":"NoExecute"}]}}`)},
			{"removes another taint", oneTaint, patchNode(reachNode, `{"spec":{"taints":[]}}`)},
			{"labels a Node", "changes nothing else", patchNode(reachNode, `{"metadata":{"labels":{"node-role.kubernetes.io/control-plane":""}}}`, "status")},
			{"annotates a Node", "changes nothing else", patchNode(reachNode, `{"metadata":{"annotations":{"a":"b"}}}`, "status")},
			{"gives a Node an owner", "changes nothing else", patchNode(reachNode, `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Node","name":"gone","uid":"u"}]}}`, "status")},
			{"declares a feature", "changes nothing else", patchNode(reachNode, `{"status":{"declaredFeatures":["GuaranteedQoSPodCPUResize"]}}`, "status")},
			{"raises a capacity", "changes nothing else", patchNode(reachNode, `{"status":{"capacity":{"cpu":"999"}}}`, "status")},
			{"changes an address", "changes nothing else", patchNode(reachNode, `{"status":{"addresses":[{"type":"InternalIP","address":"192.0.2.1"}]}}`, "status")},
			{"says that a Node is Ready", "changes nothing else", patchNode(reachNode, `{"status":{"conditions":[{"type":"Ready","status":"True"}]}}`, "status")},
		}, everybody...),
		"tenant": append([]attempt{
			{"runs a Deployment as the server", alone, runAs("r-admission")},
			{"runs a Deployment as the controller", alone, runAs("r-controller")},
			{"asks for a token of the server", alone, tokenOf("r-admission")},
			{"makes a token of the server", alone, makeSecret(serverToken)},
			{"changes the server's image", alone, func(ctx context.Context, by kubernetes.Interface, namespace string) error {
				_, err := by.CoreV1().Pods(namespace).Patch(ctx, serverPod, types.StrategicMergePatchType, []byte(`{"spec":{"containers":[{"name":"work","image":"example.invalid/x"}]}}`), metav1.PatchOptions{DryRun: dry})
				return err
			}},
			{"adds a container to the server", alone, func(ctx context.Context, by kubernetes.Interface, namespace string) error {
				patch := `{"spec":{"ephemeralContainers":[{"name":"e","image":"example.invalid/x"}]}}`
				_, err := by.CoreV1().Pods(namespace).Patch(ctx, serverPod, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{DryRun: dry}, "ephemeralcontainers")
				return err
			}},
			{"works in the server's pod", alone, func(ctx context.Context, by kubernetes.Interface, namespace string) error {
				return by.CoreV1().RESTClient().Post().Namespace(namespace).Resource("pods").Name(serverPod).SubResource("exec").Param("command", "/ortet").Param("stdout", "true").Do(ctx).Error()
			}},
			{"plants a key", record, makeSecret(planted)},
			{"has the server ask another Azure", record, makeSecret(elsewhere)},
			{"writes the names admitted", record, changeMap("ortet-admitted")},
		}, everybody...),
	}
}

// What each account may not do it is refused by a real API server: neither a capture, nor
// the controller, nor a tenant who may edit all in the namespace gets at the server's
// keys, its account, its records, or at what would bring its account to another node.
func TestAccountsDoNotReachTheAdmissionServer(t *testing.T) {
	i := installed(t, "reach-system", manifests(t, "reach-system", reachExempt))
	i.surroundings(reachNode, reachExempt)
	server := i.server()
	i.starts(server, machine("reach-member"))
	replicas := client(t, controlplane.Client{User: "system:serviceaccount:kube-system:replicaset-controller", Groups: []string{"system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated"}})
	_, err := replicas.CoreV1().Pods(i.namespace).Create(i.ctx, workbench(reachNode, func(p *corev1.Pod) { p.Name, p.Spec.ServiceAccountName = serverPod, "r-admission" }), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	there := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: kube.SavedName(accountsPool)}, Type: "ortet.io/saved", Data: map[string][]byte{"customData-1": []byte("x")}}
	if _, err := i.admin.CoreV1().Secrets(i.namespace).Create(i.ctx, there, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a nonce to be spent", func() error { return spendOnce(i.ctx, server, "a1") })
	for account, all := range attempts() {
		by := client(t, i.account(account))
		for _, a := range all {
			refusal(t, account+" "+a.what, a.why, func() error { return a.do(i.ctx, by, i.namespace) })
		}
	}
	// What they are for they may do.
	t.Run("the controller", func(t *testing.T) {
		nodes := client(t, i.account("r-controller")).CoreV1().Nodes()
		status := `{"apiVersion":"v1","kind":"Node","metadata":{"name":"` + reachNode + `"},"status":{"conditions":[{"type":"` + fleet.ConditionBootSucceeded + `","status":"True"}]}}`
		if _, err := nodes.Patch(i.ctx, reachNode, types.ApplyPatchType, []byte(status), metav1.PatchOptions{FieldManager: "ortet-controller"}, "status"); err != nil {
			t.Error(err)
		}
		n, err := nodes.Patch(i.ctx, reachNode, types.MergePatchType, []byte(`{"metadata":{"annotations":{"`+wire.BootAnnotation+`":null}}}`), metav1.PatchOptions{}, "status")
		if err != nil || n.Annotations[wire.BootAnnotation] != "" || len(n.Status.Conditions) != 2 {
			t.Errorf("%v: %v, %v", err, n.Annotations, n.Status.Conditions)
		}
		ours := func(t corev1.Taint) bool { return t.Key == fleet.TaintUnproven }
		eventually(t, "the startup taint to be removed", func() error {
			n, err := nodes.Get(i.ctx, reachNode, metav1.GetOptions{})
			if err != nil {
				return err
			}
			patch, err := json.Marshal(map[string]any{"spec": map[string]any{"taints": slices.DeleteFunc(n.Spec.Taints, ours)}})
			if err == nil {
				n, err = nodes.Patch(i.ctx, reachNode, types.MergePatchType, patch, metav1.PatchOptions{})
			}
			if err == nil && (slices.ContainsFunc(n.Spec.Taints, ours) || len(n.Spec.Taints) == 0) {
				return fmt.Errorf("its taints are %v", n.Spec.Taints)
			}
			return err
		})
	})
	t.Run("a capture", func(t *testing.T) { i.captures(t, i.capture(), reachNode) })
	t.Run("the server", func(t *testing.T) {
		if _, err := server.Admit(i.ctx, machine("reach-other"), wire.Kubelet, admission.NodeState{}); err != nil {
			t.Error(err)
		}
		if err := server.Sweep(i.ctx); err != nil {
			t.Error(err)
		}
	})
}
