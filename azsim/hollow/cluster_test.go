//go:build e2e

package hollow_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/ortet/ortet/azsim"
	"github.com/ortet/ortet/azsim/hollow"
	"github.com/ortet/ortet/test/controlplane"
)

// TestMain lets this binary be the program that pods run on disks.
func TestMain(m *testing.M) {
	if mode := os.Getenv("HOLLOW_TEST_PROGRAM"); mode != "" {
		os.Exit(program(mode))
	}
	os.Exit(controlplane.Main(m))
}

// customData is what asks for node preparation.
var customData = []byte("#cloud-config\nwrite_files:\n- path: /etc/pool.conf\n  permissions: '0640'\n  content: pool one\nruncmd:\n- kubeadm join\n")

// world is a cluster and a substrate for one test.
type world struct {
	*testing.T
	substrate *hollow.Substrate
	client    kubernetes.Interface
	cp        *controlplane.ControlPlane
	name      string // of the test's namespace, and before the name of what is not in it
}

func newWorld(t *testing.T, change ...func(*hollow.Config)) *world {
	t.Helper()
	return newWorldOn(t, controlplane.Shared(t), change...)
}

func newWorldOn(t *testing.T, cp *controlplane.ControlPlane, change ...func(*hollow.Config)) *world {
	t.Helper()
	client := cp.Admin(t)
	config := hollow.Config{
		Dir: t.TempDir(), Kubeconfig: cp.Kubeconfig, ClientCA: cp.CA(), LeaseInterval: 2 * time.Second,
		Logger: slog.New(slog.NewTextHandler(testWriter{t}, nil)),
	}
	for _, f := range change {
		f(&config)
	}
	s, err := hollow.New(config)
	if err != nil {
		t.Fatal(err)
	}
	w := &world{T: t, substrate: s, client: client, cp: cp}
	namespace, err := client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "t-"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w.name = namespace.Name
	t.Cleanup(func() {
		ctx := context.Background()
		nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		if err != nil {
			t.Error(err)
		}
		for _, node := range nodes.Items {
			if strings.HasPrefix(node.Name, w.name) {
				if err := client.CoreV1().Nodes().Delete(ctx, node.Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
					t.Error(err)
				}
			}
		}
		if err := client.CoreV1().Namespaces().Delete(ctx, w.name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return w
}

type testWriter struct{ t *testing.T }

func (w testWriter) Write(p []byte) (int, error) {
	if w.t.Context().Err() == nil {
		w.t.Log(strings.TrimSpace(string(p)))
	}
	return len(p), nil
}

// computer is the i-th instance of the test's pool.
func (w *world) computer(i int) azsim.Computer {
	id := fmt.Sprintf("/subscriptions/s/resourceGroups/RG/providers/Microsoft.Compute/virtualMachineScaleSets/%s/virtualMachines/%d", w.name, i)
	return azsim.Computer{
		ID: strings.ToLower(id), ResourceID: id, VMID: fmt.Sprintf("00000000-0000-4000-8000-%012d", i),
		Name: fmt.Sprintf("%s_%d", w.name, i), HostName: fmt.Sprintf("%s%06d", w.name, i), ScaleSet: w.name,
		ResourceGroup: "RG", Subscription: "s", Location: "westeurope", Zone: "1", Size: "Standard_D4s_v5", Architecture: "x64", Generation: "V2",
		OSDisk: azsim.Volume(strings.ToLower(id) + "/osdisk"), CustomData: customData, AdminUsername: "azureuser", SSHKeys: []string{"ssh-ed25519 AAAA someone"},
		Provision: true,
	}
}

// boot boots the i-th instance from source.
func (w *world) boot(i int, from azsim.Source, change ...func(*azsim.Computer)) azsim.Computer {
	w.Helper()
	c := w.computer(i)
	for _, f := range change {
		f(&c)
	}
	if err := w.substrate.CreateVolume(w.Context(), c.OSDisk, from); err != nil {
		w.Fatal(err)
	}
	if err := w.substrate.Boot(w.Context(), c); err != nil {
		w.Fatal(err)
	}
	return c
}

// eventually waits for check to hold.
func (w *world) eventually(what string, check func(context.Context) error) {
	w.Helper()
	last := errors.New("never looked")
	err := wait.PollUntilContextTimeout(w.Context(), 100*time.Millisecond, 10*time.Minute, true, func(ctx context.Context) (bool, error) {
		last = check(ctx)
		return last == nil, nil
	})
	if err != nil {
		w.Fatalf("%s: %v", what, last)
	}
}

func (w *world) node(name string) *corev1.Node {
	w.Helper()
	node, err := w.client.CoreV1().Nodes().Get(w.Context(), name, metav1.GetOptions{})
	if err != nil {
		w.Fatal(err)
	}
	return node
}

func readiness(node *corev1.Node) corev1.NodeCondition {
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c
		}
	}
	return corev1.NodeCondition{}
}

// ready waits until the node is Ready, and schedulable as far as we decide.
func (w *world) ready(name string) *corev1.Node {
	w.Helper()
	var node *corev1.Node
	w.eventually("node "+name+" is Ready", func(ctx context.Context) (err error) {
		if node, err = w.client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{}); err != nil {
			return err
		}
		if c := readiness(node); c.Status != corev1.ConditionTrue {
			return fmt.Errorf("%s: %s", c.Reason, c.Message)
		}
		for _, taint := range node.Spec.Taints {
			return fmt.Errorf("taint %s", taint.Key)
		}
		return nil
	})
	return node
}

// file reads a file of a volume's tree.
func (w *world) file(v azsim.Volume, name string) string {
	w.Helper()
	content, err := os.ReadFile(filepath.Join(w.substrate.Tree(v), name))
	if err != nil {
		w.Fatal(err)
	}
	return string(content)
}
