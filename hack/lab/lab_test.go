//go:build linux

package lab_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
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
	"sigs.k8s.io/yaml"

	"github.com/ortet/ortet/hack/lab"
	"github.com/ortet/ortet/internal/azsim"
	"github.com/ortet/ortet/internal/azsim/machine"
	"github.com/ortet/ortet/test/controlplane"
)

func TestCustomDataIsCloudConfig(t *testing.T) {
	data, err := lab.CustomData(lab.Pool{
		BootstrapKubeconfig: []byte("kubeconfig"),
		CA:                  []byte("ca"),
		Files:               []lab.File{{Path: "/etc/kubernetes/azure.json", Mode: "0600", Content: []byte(`{"cloud":"x"}`)}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(string(data), "#cloud-config\n") {
		t.Errorf("no cloud-config: %.40q", data)
	}
	var doc struct {
		WriteFiles []struct{ Path, Content, Encoding, Permissions string } `json:"write_files"`
		RunCmd     [][]string                                              `json:"runcmd"`
	}
	if err := yaml.UnmarshalStrict(data, &doc); err != nil {
		t.Fatal(err)
	}
	last := doc.WriteFiles[len(doc.WriteFiles)-1]
	if last.Path != "/etc/kubernetes/azure.json" || last.Permissions != "0600" || last.Content != "eyJjbG91ZCI6IngifQ==" || last.Encoding != "b64" {
		t.Errorf("the pool's own file became %+v", last)
	}
	if len(doc.RunCmd) != 1 {
		t.Errorf("commands: %v", doc.RunCmd)
	}
}

type testWriter struct{ t *testing.T }

func (w testWriter) Write(p []byte) (int, error) {
	w.t.Log(strings.TrimSpace(string(p)))
	return len(p), nil
}

// TestMachinesJoinAndRunPods boots two machines from the disk image, which join
// a real control plane with the pool's bootstrap token and run pods.
func TestMachinesJoinAndRunPods(t *testing.T) {
	if os.Getenv("ORTET_LAB") != "1" {
		t.Skip("NOT RUN: real machines need root on Debian and ORTET_LAB=1")
	}
	ctx := t.Context()
	binary, err := controlplane.Binary(ctx)
	if err != nil {
		t.Fatal(err)
	}
	checkout, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	image, err := lab.BaseImage(ctx, checkout, binary, testWriter{t})
	if err != nil {
		t.Fatal(err)
	}
	cp, err := controlplane.Start(ctx, controlplane.Config{Dir: filepath.Join(t.TempDir(), "cp"), Binary: binary})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cp.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	config, err := cp.RESTConfig()
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	bootstrap, err := cp.BootstrapKubeconfig(ctx, lab.APIServer, time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	data, err := lab.CustomData(lab.Pool{BootstrapKubeconfig: bootstrap, CA: cp.CA()})
	if err != nil {
		t.Fatal(err)
	}
	machines, err := machine.New(machine.Config{
		Dir:       t.TempDir(),
		Images:    map[string]string{"*": image},
		Frontends: []machine.Frontend{{Listen: "10.96.0.1:443", Target: fmt.Sprintf("127.0.0.1:%d", cp.Port())}},
		Log:       slog.New(slog.NewTextHandler(testWriter{t}, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := machines.Close(); err != nil {
			t.Error(err)
		}
	})
	for n := range 2 {
		c := instance(n, data)
		if err := machines.CreateVolume(ctx, c.OSDisk, azsim.Source{Platform: "debian:debian-12:12-gen2:latest"}); err != nil {
			t.Fatal(err)
		}
		bctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
		err := machines.Boot(bctx, c)
		cancel()
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Run("nodes are Ready", func(t *testing.T) {
		for n := range 2 {
			c := instance(n, nil)
			node := awaitNode(ctx, t, client, c.HostName)
			if want := "azure://" + c.ResourceID; node.Spec.ProviderID != want {
				t.Errorf("%s: provider id %q, want %q", node.Name, node.Spec.ProviderID, want)
			}
			if got := node.Labels[corev1.LabelTopologyZone]; got != "westeurope-1" {
				t.Errorf("%s: zone %q", node.Name, got)
			}
		}
		if t.Failed() {
			t.Log(exec(ctx, t, machines, instance(0, nil).ID, "journalctl -b --no-pager -u kubelet -u node-preparation -u containerd | tail -60"))
		}
	})
	t.Run("a pod reaches the API server", func(t *testing.T) {
		pod := awaitPod(ctx, t, client, instance(1, nil).HostName)
		if !strings.HasPrefix(pod.Status.PodIP, "10.") {
			t.Errorf("pod address %q", pod.Status.PodIP)
		}
		log, err := client.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, &corev1.PodLogOptions{}).DoRaw(ctx)
		if err != nil {
			t.Errorf("the API server cannot read logs from the kubelet: %v: %s", err, log)
		}
		resp, err := http.Get("http://" + pod.Status.PodIP + ":8080")
		if err != nil {
			t.Fatalf("the host cannot reach the pod: %v", err)
		}
		if err := resp.Body.Close(); err != nil {
			t.Error(err)
		}
	})
	if s := os.Getenv("ORTET_LAB_SHELL"); s != "" {
		t.Log(exec(ctx, t, machines, instance(1, nil).ID, s))
	}
	t.Run("a graceful stop ends in time", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		if err := machines.Shutdown(ctx, instance(1, nil).ID, true); err != nil {
			log, _ := machines.Console(context.Background(), instance(1, nil).ID)
			t.Errorf("%v: %s", err, log[max(0, len(log)-3000):])
		}
	})
}

func instance(n int, customData []byte) azsim.Computer {
	id := fmt.Sprintf("/subscriptions/s/resourceGroups/rg/providers/Microsoft.Compute/virtualMachineScaleSets/pool1/virtualMachines/%d", n)
	return azsim.Computer{
		ID:         strings.ToLower(id),
		ResourceID: id,
		VMID:       fmt.Sprintf("00000000-0000-4000-8000-%012d", n),
		Name:       fmt.Sprintf("pool1_%d", n),
		HostName:   fmt.Sprintf("pool1%06d", n),
		Location:   "westeurope",
		OSDisk:     azsim.Volume(fmt.Sprintf("/disks/pool1_%d_osdisk", n)),
		CustomData: customData,
		Provision:  true,
		IMDS: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = fmt.Fprintf(w, `{"compute":{"resourceId":%q,"location":"westeurope","zone":"1"}}`, id)
		}),
	}
}

func exec(ctx context.Context, t *testing.T, s *machine.Substrate, id, script string) string {
	t.Helper()
	out, err := s.Exec(ctx, id, nil, "sh", "-c", script)
	if err != nil {
		t.Error(err)
	}
	return string(out)
}

func awaitNode(ctx context.Context, t *testing.T, client kubernetes.Interface, name string) *corev1.Node {
	t.Helper()
	var node *corev1.Node
	err := wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		var err error
		if node, err = client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{}); err != nil {
			return false, ignoreNotFound(err)
		}
		for _, c := range node.Status.Conditions {
			if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
				return true, nil
			}
		}
		return false, nil
	})
	if err != nil {
		t.Errorf("node %s is not Ready: %v: %+v", name, err, node.Status.Conditions)
	}
	return node
}

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

func awaitPod(ctx context.Context, t *testing.T, client kubernetes.Interface, node string) *corev1.Pod {
	t.Helper()
	pod, err := client.CoreV1().Pods("default").Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: corev1.PodSpec{
			NodeName:   node,
			Containers: []corev1.Container{{Name: "web", Image: lab.WebImage, ImagePullPolicy: corev1.PullNever}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	err = wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		if pod, err = client.CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{}); err != nil {
			return false, err
		}
		return pod.Status.Phase == corev1.PodRunning, nil
	})
	if err != nil {
		events, _ := client.CoreV1().Events("default").List(ctx, metav1.ListOptions{})
		for _, e := range events.Items {
			t.Log(e.Reason, e.Message)
		}
		t.Fatalf("the pod does not run: %v: %+v", err, pod.Status)
	}
	return pod
}
