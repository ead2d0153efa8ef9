//go:build e2e && linux

package lab_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/ortet/ortet/azsim"
	"github.com/ortet/ortet/azsim/machine"
	"github.com/ortet/ortet/hack/lab"
	"github.com/ortet/ortet/test/controlplane"
)

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
	client := cp.Admin(t)
	bootstrap, err := cp.BootstrapKubeconfig(ctx, lab.APIServer, time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	data, err := lab.CustomData(lab.Pool{BootstrapKubeconfig: bootstrap, CA: cp.CA()})
	if err != nil {
		t.Fatal(err)
	}
	// The same folder in every run: the next takes away what a killed one left.
	dir := filepath.Join(os.TempDir(), "ortet-lab-"+t.Name())
	machines, err := machine.New(machine.Config{
		Dir:       dir,
		Images:    map[string]string{"*": image},
		Frontends: []machine.Frontend{{Listen: lab.APIServerFrontend, Target: fmt.Sprintf("127.0.0.1:%d", cp.Port())}},
		Log:       slog.New(slog.NewTextHandler(testWriter{t}, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(machines.Close(), os.RemoveAll(dir)); err != nil {
			t.Error(err)
		}
	})
	bootAll(ctx, t, machines, instance(0, data), instance(1, data))
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
	t.Run("a pod, the API server and the host reach each other", func(t *testing.T) {
		pod := runPod(ctx, t, client, "web", corev1.PodSpec{
			NodeName:   instance(1, nil).HostName,
			Containers: []corev1.Container{{Name: "web", Image: lab.WebImage, ImagePullPolicy: corev1.PullNever}},
		})
		if !strings.HasPrefix(pod.Status.PodIP, "10.") {
			t.Errorf("pod address %q", pod.Status.PodIP)
		}
		log, err := client.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, &corev1.PodLogOptions{}).DoRaw(ctx)
		if err != nil {
			t.Errorf("the API server cannot read logs from the kubelet: %v: %s", err, log)
		}
		for _, tc := range []struct{ url, want string }{
			{"https://10.96.0.1/healthz", "ok"},
			{"http://169.254.169.254/metadata/instance", "virtualMachines/1"},
		} {
			out := exec(ctx, t, machines, instance(1, nil).ID, "nsenter --net --target $(pgrep -n -x web) curl --silent --insecure --max-time 10 "+tc.url)
			if !strings.Contains(out, tc.want) {
				t.Errorf("in the pod's network, %s says %q", tc.url, out)
			}
		}
		resp, err := http.Get("http://" + pod.Status.PodIP + ":8080")
		if err != nil {
			t.Fatalf("the host cannot reach the pod: %v", err)
		}
		if err := resp.Body.Close(); err != nil {
			t.Error(err)
		}
	})
	t.Run("a privileged pod sees an attached disk", func(t *testing.T) {
		bench := instance(0, nil)
		if err := machines.CreateVolume(ctx, "/disks/copy", azsim.Source{Platform: "any"}); err != nil {
			t.Fatal(err)
		}
		if err := machines.Attach(ctx, bench.ID, 3, "/disks/copy"); err != nil {
			t.Fatal(err)
		}
		pod := runPod(ctx, t, client, "workbench", corev1.PodSpec{
			NodeName: bench.HostName,
			Containers: []corev1.Container{{
				Name: "web", Image: lab.WebImage, ImagePullPolicy: corev1.PullNever,
				SecurityContext: &corev1.SecurityContext{Privileged: new(true), RunAsUser: new(int64(0))},
				VolumeMounts:    []corev1.VolumeMount{{Name: "dev", MountPath: "/dev"}},
			}},
			Volumes: []corev1.Volume{{Name: "dev", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/dev"}}}},
		})
		// The image has no shell: the node looks at what the pod's process can open.
		out := exec(ctx, t, machines, bench.ID, `pid=$(pgrep -n -x web) && dd if=/proc/$pid/root/dev/disk/azure/scsi1/lun3 bs=512 skip=1 count=1 status=none | head -c 8`)
		if out != "EFI PART" {
			t.Errorf("read %q at the second sector, want a GPT header", out)
		}
		if err := client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
		if err := machines.Detach(ctx, bench.ID, 3); err != nil {
			t.Error(err)
		}
	})
	t.Run("no unit failed", func(t *testing.T) {
		for n := range 2 {
			if out := exec(ctx, t, machines, instance(n, nil).ID, "systemctl list-units --failed --plain --no-legend"); out != "" {
				t.Errorf("machine %d: %s", n, out)
			}
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
	t.Run("after a restart it is the same node", func(t *testing.T) {
		c := instance(1, data)
		before := awaitNode(ctx, t, client, c.HostName)
		c.Provision = false
		bootAll(ctx, t, machines, c)
		err := wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
			node, err := client.CoreV1().Nodes().Get(ctx, c.HostName, metav1.GetOptions{})
			if err != nil {
				return false, err
			}
			return node.UID == before.UID && node.Status.NodeInfo.MachineID == before.Status.NodeInfo.MachineID &&
				node.Status.NodeInfo.BootID != before.Status.NodeInfo.BootID && ready(node), nil
		})
		if err != nil {
			t.Errorf("not Ready after a restart: %v", err)
		}
	})
	t.Run("a clone joins by what is baked into its disk", func(t *testing.T) {
		donor, bench := instance(1, nil), instance(0, nil)
		stop, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		if err := machines.Shutdown(stop, donor.ID, true); err != nil {
			t.Fatal(err)
		}
		clone := instance(2, []byte("#cloud-config\n"))
		if err := machines.CreateVolume(ctx, clone.OSDisk, azsim.Source{Volume: donor.OSDisk}); err != nil {
			t.Fatal(err)
		}
		if err := machines.Attach(ctx, bench.ID, 0, clone.OSDisk); err != nil {
			t.Fatal(err)
		}
		exec(ctx, t, machines, bench.ID, `set -e
			mount /dev/disk/azure/scsi1/lun0-part1 /mnt
			: >/mnt/etc/machine-id
			rm -rf /mnt/etc/ssh/ssh_host_* /mnt/etc/hostname /mnt/var/lib/cloud/* /mnt/etc/kubernetes/kubelet.conf /mnt/var/lib/kubelet/pki
			umount /mnt`)
		if err := machines.Detach(ctx, bench.ID, 0); err != nil {
			t.Fatal(err)
		}
		bootAll(ctx, t, machines, clone)
		node := awaitNode(ctx, t, client, clone.HostName)
		if want := "azure://" + clone.ResourceID; node.Spec.ProviderID != want {
			t.Errorf("provider id %q, want %q", node.Spec.ProviderID, want)
		}
		runPod(ctx, t, client, "on-clone", corev1.PodSpec{
			NodeName:   clone.HostName,
			Containers: []corev1.Container{{Name: "web", Image: lab.WebImage, ImagePullPolicy: corev1.PullNever}},
		})
		all, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		if err != nil || len(all.Items) != 3 {
			t.Errorf("%d nodes, want 3; %v", len(all.Items), err)
		}
	})
}

// bootAll boots computers side by side, as a scale set does.
func bootAll(ctx context.Context, t *testing.T, machines *machine.Substrate, all ...azsim.Computer) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	group, ctx := errgroup.WithContext(ctx)
	for _, c := range all {
		group.Go(func() error {
			if c.Provision {
				if err := machines.CreateVolume(ctx, c.OSDisk, azsim.Source{Platform: "debian:debian-12:12-gen2:latest"}); err != nil {
					return err
				}
			}
			return machines.Boot(ctx, c)
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
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
		return ready(node), nil
	})
	if err != nil {
		t.Errorf("node %s is not Ready: %v: %+v", name, err, node.Status.Conditions)
	}
	return node
}

func ready(node *corev1.Node) bool {
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

func runPod(ctx context.Context, t *testing.T, client kubernetes.Interface, name string, spec corev1.PodSpec) *corev1.Pod {
	t.Helper()
	pod, err := client.CoreV1().Pods("default").Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}, metav1.CreateOptions{})
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
