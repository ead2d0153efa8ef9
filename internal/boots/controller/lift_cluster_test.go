//go:build e2e

package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/wire"
	"github.com/ortet/ortet/test/controlplane"
)

func (s *site) taints(t *testing.T, node string) []string {
	t.Helper()
	n, err := s.admin.CoreV1().Nodes().Get(t.Context(), node, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var keys []string
	for _, taint := range n.Spec.Taints {
		keys = append(keys, taint.Key)
	}
	return keys
}

// registers makes a Node with the startup taint as its kubelet does.
func (s *site) registers(t *testing.T, b fleet.Boot) kubernetes.Interface {
	t.Helper()
	name := strings.ToLower(b.HostName)
	config, err := s.as(controlplane.Client{User: "system:node:" + name, Groups: []string{"system:nodes"}})
	if err != nil {
		t.Fatal(err)
	}
	kubelet, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	_, err = kubelet.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{
		ProviderID: "azure://" + strings.ToLower(string(b.Instance)), Taints: []corev1.Taint{oursTaint}}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = s.admin.CoreV1().Nodes().Delete(context.WithoutCancel(t.Context()), name, metav1.DeleteOptions{})
	})
	s.asKubelet(t, name, corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{BootID: "boot-a", SystemUUID: b.VMID}})
	return kubelet
}

func condition(kind corev1.NodeConditionType, status corev1.ConditionStatus) corev1.NodeStatus {
	now := metav1.Now()
	return corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: kind, Status: status, Reason: "Test", LastTransitionTime: now, LastHeartbeatTime: now}}}
}

func TestStartupTaintsAreLifted(t *testing.T) {
	s := newSite(t)
	s.lift = 20 * time.Second
	good, lame := s.machine(t, 0, nil), s.machine(t, 1, nil)
	v := aVerdict(wire.Failed, time.Minute, func(v *wire.Verdict) {
		v.Node, v.VMID, v.Reason, v.Owner, v.At = "", lame.VMID, "CNINotReady", wire.OwnerUser, time.Now().UTC()
	})
	s.cloud.mu.Lock()
	saying("X.Ortet", "ProvisioningState/failed/1", "Failed: CNINotReady\n"+v.ConsoleLine())(&s.cloud.boots[1])
	s.cloud.mu.Unlock()
	stranger := aBoot(func(b *fleet.Boot) {
		b.Instance, b.HostName = somePool.Child("virtualMachines", "9"), "pool1000009"
	}) // not in the cloud's lists
	kubelet := s.registers(t, good)
	s.registers(t, lame)
	s.registers(t, stranger)

	// A kubelet may not remove the taint, but may claim to have come up: see docs/reference/security.md.
	nodes := kubelet.CoreV1().Nodes()
	_, err := nodes.Patch(t.Context(), "pool1000000", types.MergePatchType, []byte(`{"spec":{"taints":[]}}`), metav1.PatchOptions{})
	if !apierrors.IsForbidden(err) {
		t.Errorf("a kubelet removes its taint: %v", err)
	}
	_, stop := s.start(t, "first")
	s.hasNodeCondition(t, lame, corev1.ConditionFalse, "CNINotReady")
	tainted := func(node string) bool { return slices.Contains(s.taints(t, node), fleet.TaintUnproven) }
	var theirs []string // others taint the Node all the while, of which it becomes Ready
	var began time.Time
	until(t, "the node that came up loses the taint", func() (bool, error) {
		if began.IsZero() {
			began = time.Now()
			for _, node := range []string{"pool1000000", "pool1000009"} {
				s.asKubelet(t, node, condition(corev1.NodeReady, corev1.ConditionTrue))
			}
		}
		for range 20 {
			n, err := s.admin.CoreV1().Nodes().Get(t.Context(), "pool1000000", metav1.GetOptions{})
			if err != nil {
				return false, err
			}
			key := fmt.Sprintf("theirs-%d", len(theirs))
			n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: key, Effect: corev1.TaintEffectNoSchedule})
			if _, err := s.admin.CoreV1().Nodes().Update(t.Context(), n, metav1.UpdateOptions{}); err != nil {
				return false, err
			}
			theirs = append(theirs, key)
		}
		return !tainted("pool1000000"), nil
	})
	t.Logf("removed after %s, while others wrote %d taints", time.Since(began).Round(time.Millisecond), len(theirs))
	for left := s.taints(t, "pool1000000"); len(theirs) > 0; theirs = theirs[1:] {
		if !slices.Contains(left, theirs[0]) {
			t.Errorf("the taint %s is gone", theirs[0])
		}
	}
	until(t, "the Ready node without a verdict loses the taint", func() (bool, error) { return !tainted("pool1000009"), nil })
	if d := time.Since(began); d < s.lift-2*time.Second { // conditions have whole seconds
		t.Errorf("it lost it after %s, not %s", d, s.lift)
	}
	if !tainted("pool1000001") {
		t.Error("the node that failed lost the taint")
	}
	stop()

	claim := `{"status":{"conditions":[{"type":"` + fleet.ConditionBootSucceeded + `","status":"True","reason":"Claimed"}]}}`
	if _, err := nodes.PatchStatus(t.Context(), "pool1000000", []byte(claim)); err != nil {
		t.Errorf("a kubelet claims to have come up: %v", err)
	}
}

// readinessCRD names a file with node-readiness-controller's CRD: config/crd/bases/ in
// github.com/kubernetes-sigs/node-readiness-controller. Its module is not on every proxy.
const readinessCRD = "ORTET_READINESS_CRD"

func TestReadinessRuleIsOneOfItsCRD(t *testing.T) {
	file := os.Getenv(readinessCRD)
	if file == "" {
		t.Skipf("%s names no CRD", readinessCRD)
	}
	s := newSite(t)
	s.installCRD(t, file)
	kind := schema.GroupVersionResource{Group: "readiness.node.x-k8s.io", Version: "v1alpha1", Resource: "nodereadinessrules"}
	rules := s.dynamic.Resource(kind)
	text, err := os.ReadFile("../../../deploy/readiness/rule.yaml")
	if err != nil {
		t.Fatal(err)
	}
	create := func(text string) (map[string]any, error) {
		u := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
			t.Fatal(err)
		}
		made, err := rules.Create(t.Context(), u, metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict})
		if err != nil {
			return nil, err
		}
		spec, _, err := unstructured.NestedMap(made.Object, "spec")
		return spec, err
	}
	until(t, "the rule is accepted", func() (bool, error) {
		spec, err := create(string(text))
		if err == nil {
			shown, _ := json.Marshal(spec)
			t.Logf("stored: %s", shown)
		}
		return err == nil, err
	})
	for old, wrong := range map[string]string{
		"readiness.k8s.io/ortet-boot": fleet.TaintUnproven, "continuous": "always", "nodeSelector:": "nodes:",
		"requiredStatus:": "status:", "effect: NoSchedule": "effect: Never",
	} {
		changed := strings.NewReplacer(old, wrong, "name: ortet-boot", "name: wrong").Replace(string(text))
		if _, err := create(changed); err == nil {
			t.Errorf("with %q for %q it is accepted", wrong, old)
		} else {
			t.Logf("with %q: %v", wrong, err)
		}
	}
}
