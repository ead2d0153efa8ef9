//go:build e2e

package kube_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"github.com/ortet/ortet/azsim"
	"github.com/ortet/ortet/internal/azure/arm"
	"github.com/ortet/ortet/internal/cluster"
	clusterkube "github.com/ortet/ortet/internal/cluster/kube"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/capture"
	"github.com/ortet/ortet/internal/operator"
	"github.com/ortet/ortet/internal/operator/kube"
	"github.com/ortet/ortet/test/controlplane"
)

func TestMain(m *testing.M) { os.Exit(controlplane.Main(m)) }

const namespace, group = "ortet-system", "/subscriptions/" + azsim.DefaultSubscription + "/resourceGroups/" + azsim.DefaultResourceGroup

func eventually(t *testing.T, what string, f func() error) {
	t.Helper()
	var err error
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
		if err = f(); err == nil {
			return
		}
	}
	t.Fatalf("%s: %v", what, err)
}

// With the rights that the chart grants, and on a real API server, the operator leads, sees an object,
// writes its status, leads again after its Lease was taken away, and ends.
func TestRun(t *testing.T) {
	cp := controlplane.Shared(t)
	config, err := cp.RESTConfig()
	if err != nil {
		t.Fatal(err)
	}
	admin, objects := kubernetes.NewForConfigOrDie(config), dynamic.NewForConfigOrDie(config)
	text, err := os.ReadFile("../../../charts/ortet/files/ortet.io_scalesetpools.yaml")
	if err != nil {
		t.Fatal(err)
	}
	crd := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(text, &crd.Object); err != nil {
		t.Fatal(err)
	}
	crds := objects.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	if _, err := crds.Apply(t.Context(), crd.GetName(), crd, metav1.ApplyOptions{FieldManager: "test", Force: true}); err != nil {
		t.Fatal(err)
	}
	space := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	if _, err := admin.CoreV1().Namespaces().Create(t.Context(), space, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	rules := slices.Concat(clusterkube.Rules(clusterkube.Everything(namespace)), clusterkube.OperatorRules())
	user := cp.Grant(t.Context(), t, "operator", clusterkube.PolicyRules(rules))
	api, err := clusterkube.New(clusterkube.Config{REST: user, Namespace: namespace, Identity: "test"})
	if err != nil {
		t.Fatal(err)
	}
	const id = "60000000-0000-4000-8000-000000000000"
	world := &azsim.Server{Principals: []azsim.Principal{{Name: "operator", ClientID: id, ObjectID: id, Roles: []azsim.Grant{{Role: "Owner"}}}}}
	azureCloud, err := arm.New(arm.Options{Cloud: azsim.Cloud(azsim.InProcess), Version: "test",
		Credential: world.Credential(id), Transport: world.Transport()})
	if err != nil {
		t.Fatal(err)
	}
	c := kube.Config{REST: user, Lease: "ortet-operator", Identify: func(c cluster.Cluster) cluster.Cluster { return c }}
	c.Config = operator.Config{
		Capture: capture.Config{Cloud: azureCloud, Cluster: api, Journal: api.Journals(), Log: slog.New(slog.DiscardHandler), Now: time.Now,
			Namespace: namespace, Holder: "test", LockFor: 45 * time.Second, Accesses: clusterkube.PoolAccesses(rules)},
		Groups: []fleet.ResourceID{group},
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- kube.Run(ctx, c) }()

	pools := objects.Resource(schema.GroupVersionResource{Group: "ortet.io", Version: "v1alpha1", Resource: "scalesetpools"})
	create := func(name string) {
		eventually(t, "create "+name, func() error {
			_, err := pools.Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": "ortet.io/v1alpha1", "kind": "ScaleSetPool", "metadata": map[string]any{"name": name},
				"spec": map[string]any{"scaleSet": group + "/providers/Microsoft.Compute/virtualMachineScaleSets/" + name, "watch": map[string]any{}},
			}}, metav1.CreateOptions{})
			return err
		})
	}
	stalled := func(name string) {
		eventually(t, "the status of "+name, func() error {
			u, err := pools.Get(t.Context(), name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			if all, _ := yaml.Marshal(u.Object["status"]); !strings.Contains(string(all), "reason: PoolNotFound") {
				return errors.New(string(all))
			}
			return nil
		})
	}
	create("first")
	stalled("first")
	leases := admin.CoordinationV1().Leases(namespace)
	l, err := leases.Get(t.Context(), c.Lease, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	another, now := "another", metav1.NewMicroTime(time.Now())
	l.Spec.HolderIdentity, l.Spec.RenewTime = &another, &now
	if _, err := leases.Update(t.Context(), l, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	time.Sleep(12 * time.Second) // it leads no more
	create("second")
	stalled("second")
	stop()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("it ends with %v", err)
	}
	if l, err = leases.Get(t.Context(), c.Lease, metav1.GetOptions{}); err != nil || l.Spec.HolderIdentity != nil && *l.Spec.HolderIdentity != "" {
		t.Errorf("the Lease is held: %+v, %v", l, err)
	}
}
